#!/usr/bin/env python3
"""Compares the speed of our programs with other people's code.

    python3 -m venv peers && peers/bin/pip install torch            # outside the repository
    peers/bin/python apps/attention_bench/peers.py --program build/cpu/bin

Each row measures one of our programs and one peer in turn, with the same shapes and threads. It prints a JSON object with
the medians in seconds and the ratio peer / ours: above 1, ours is faster. A row without an installed peer says so in
"left_out", and the other rows continue; if one of our programs fails, everything stops. The rows of text-search embed also
need the packages transformers, onnx and onnxruntime. Install the authors' code with
`pip install --no-build-isolation pytorch-fast-transformers`, without nvcc on the PATH; that takes some minutes.

To compare AVX2 on a processor with AVX-512: configure our build with -DCAIRN_CPU=v3, and say --avx2.
"""
import argparse
import array
import contextlib
import functools
import io
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from functools import partial

HEADS, SIZE, HIDDEN = 6, 64, 1536
FEATURES = HEADS * SIZE
TOKENS = {"cpu": 16384, "cuda": 131072}
TEXTS, BATCH = 128, 32  # for text-search embed; 32 is its default


# ---- ours: functions that return the seconds of one call


def last_object(settings, program, *words, input=None, **options):
    """Runs one of our programs. Returns the JSON object in its last line."""
    command = [settings.program / program, *words, "--json", "--quiet", "--threads", settings.threads]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", value]
    done = subprocess.run([str(word) for word in command], input=input, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:  # it has printed why
        sys.exit(1)
    return json.loads(done.stdout.splitlines()[-1])


def bench(settings, **options):
    """attention-bench run. Each measurement starts the program, and is the median of its repetitions."""
    run = partial(last_object, settings, "attention-bench", "run", device=settings.device, repeat=3, **options)
    return lambda: run()["median_seconds"]


def training_step(settings, program, *preset, **options):
    """One step of a program's train, without the first five steps, which warm up."""
    train = partial(last_object, settings, program, "train", *preset, device=settings.device, attention="full",
                    evaluate_every=1000000, **options)

    def seconds_of(steps):
        return steps / train(iterations=steps)["steps_per_second"]

    return lambda: (seconds_of(25) - seconds_of(5)) / 20


def speech(settings, batch, frames, labels, phones):
    """A step of speech train --quick without dropout, on random data of one length."""

    def once():
        front_end = {"phones": [f"p{i}" for i in range(phones)], "mean": [0] * 40, "deviation": [1] * 40}
        names = [f"s{i}" for i in range(batch)]
        parts = {"train": names, "dev": names[:1], "test": []}
        header = {"__metadata__": {"front_end": json.dumps(front_end), "parts": json.dumps(parts)}}
        data = bytearray()

        def add(name, dtype, shape, numbers):
            begin = len(data)
            data.extend(numbers.tobytes())
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(data)]}

        for name in names:
            numbers = (random.uniform(-2, 2) for _ in range(40 * frames))
            add(f"{name}/features", "F32", [frames, 40], array.array("f", numbers))
            add(f"{name}/labels", "I32", [labels], array.array("i", random.choices(range(1, phones + 1), k=labels)))
        text = json.dumps(header).encode()
        with tempfile.NamedTemporaryFile() as file:
            file.write(struct.pack("<Q", len(text)) + text + data)
            file.flush()
            return training_step(settings, "speech", "--quick", data=file.name, batch_frames=batch * frames, dropout=0)()

    return once


def embed(settings, length):
    """text-search embed for texts of one length, so without padding. The time excludes loading the model. It includes
    tokenizing and writing, which the peer does not do."""

    def once():
        vocabulary = (settings.model / "vocab.txt").read_text().split("\n")
        words = [word for word in vocabulary if word.isascii() and word.isalpha() and word.islower()]  # one token each
        texts = "".join(" ".join(random.choices(words, k=length - 2)) + "\n" for _ in range(TEXTS))
        with tempfile.TemporaryDirectory() as folder:
            for file in settings.model.iterdir():
                if file.name != "sentence_bert_config.json":  # its max_seq_length would cut the texts
                    pathlib.Path(folder, file.name).symlink_to(file.resolve())
            return last_object(settings, "text-search", "embed", input=texts, text_file="-", out=f"{folder}/out",
                               model=folder, batch=BATCH)["seconds"]

    return once


# ---- peers: functions that make a function of one call


def only_cudnn(device):
    """On a GPU, lets PyTorch use only cuDNN's attention."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if device == "cuda" else contextlib.nullcontext()


def layer_peer(length, batch, device, precision):
    """PyTorch's post-norm layer with exact gelu and scaled_dot_product_attention, forward and backward."""
    import torch

    made = {"device": device, "dtype": {"float32": torch.float32, "bf16": torch.bfloat16}[precision]}
    layer = torch.nn.TransformerEncoderLayer(FEATURES, HEADS, HIDDEN, 0.0, "gelu", batch_first=True, **made)
    x = torch.randn(batch, length, FEATURES, requires_grad=True, **made)
    gradient = torch.randn_like(x)

    def once():
        with only_cudnn(device):
            out = layer(x)
        torch.autograd.grad(out, [x, *layer.parameters()], gradient)

    return once


def with_gradients(attention, shape, **made):
    """One call of an attention function, forward and backward."""
    import torch

    q, k, v = (torch.randn(shape, requires_grad=True, **made) for _ in range(3))
    gradient = torch.randn_like(q)
    return lambda: torch.autograd.grad(attention(q, k, v), [q, k, v], gradient)


def attention_peer(length, batch, device, precision, backward=True):
    import torch

    def attention(*qkv):
        with only_cudnn(device):
            return torch.nn.functional.scaled_dot_product_attention(*qkv)

    made = {"device": device, "dtype": {"float32": torch.float32, "bf16": torch.bfloat16}[precision]}
    shape = (batch, HEADS, length, SIZE)
    if backward:
        return with_gradients(attention, shape, **made)
    qkv = [torch.randn(shape, **made) for _ in range(3)]
    return lambda: attention(*qkv)


def authors_attention(kind, length, batch, device):
    import torch
    from fast_transformers.attention.clustered_attention import ClusteredAttention
    from fast_transformers.attention.improved_clustered_attention import ImprovedClusteredAttention
    from fast_transformers.masking import FullMask, LengthMask

    settings = {"clusters": 100, "iterations": 10, "bits": 63, "attention_dropout": 0.0}
    attention = ImprovedClusteredAttention(topk=32, **settings) if kind[0] == "i" else ClusteredAttention(**settings)
    mask = FullMask(length, length, device=device)
    lengths = LengthMask(torch.full((batch,), length, device=device))
    return with_gradients(lambda q, k, v: attention(q, k, v, mask, lengths, lengths), (batch, length, HEADS, SIZE),
                          device=device)


def authors_kmeans(length, batch):
    import torch
    from fast_transformers.clustering.hamming import cluster

    codes = torch.randint(0, 2**62, (batch, HEADS, length))
    lengths = torch.full((batch,), length, dtype=torch.int32)
    return lambda: cluster(codes, lengths, clusters=100, iterations=10, bits=63)


def flash_kmeans(length, batch):
    import torch
    from flash_kmeans import batch_kmeans_Euclid

    x = torch.randn(batch * HEADS, length, SIZE, device="cuda", dtype=torch.bfloat16)
    return lambda: batch_kmeans_Euclid(x, n_clusters=100, max_iters=10, tol=0.0)


def copy_task_peer(layers, heads, size, hidden, length=31, batch=32):
    """A training step of the same model: embedding, fixed positions, post-norm layers, cross entropy, R-Adam."""
    import torch

    n, features = 2 * (length + 1), heads * size
    layer = torch.nn.TransformerEncoderLayer(features, heads, hidden, 0.0, "gelu", batch_first=True)
    embedding, encoder = torch.nn.Embedding(12, features), torch.nn.TransformerEncoder(layer, layers)
    out, positions = torch.nn.Linear(features, 11), torch.randn(n, features)
    learned = [parameter for module in (embedding, encoder, out) for parameter in module.parameters()]
    optimizer = torch.optim.RAdam(learned, 2e-4)
    x, y = torch.randint(0, 12, (batch, n)), torch.randint(0, 11, (batch, n))

    def once():
        optimizer.zero_grad()
        scores = out(encoder(embedding(x) + positions))
        torch.nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten()).backward()
        optimizer.step()

    return once


def speech_peer(batch, frames, labels, phones, stride=3, layers=4, heads=4, size=36, hidden=576):
    """A training step of the same model: three frames a position, fixed positions, pre-norm layers, CTC, clipping, AdamW."""
    import torch

    n, features = frames // stride, heads * size
    layer = torch.nn.TransformerEncoderLayer(features, heads, hidden, 0.0, "gelu", batch_first=True, norm_first=True)
    front, out = torch.nn.Linear(40 * stride, features), torch.nn.Linear(features, phones + 1)
    encoder = torch.nn.TransformerEncoder(layer, layers, torch.nn.LayerNorm(features), enable_nested_tensor=False)
    learned = [parameter for module in (front, encoder, out) for parameter in module.parameters()]
    optimizer = torch.optim.AdamW(learned, 2e-3, weight_decay=0.01)
    x, positions = torch.randn(batch, n, 40 * stride), torch.randn(n, features)
    y = torch.randint(1, phones + 1, (batch, labels), dtype=torch.int32)
    frames_of, labels_of = (torch.full((batch,), count, dtype=torch.int32) for count in (n, labels))

    def once():
        optimizer.zero_grad()
        scores = torch.nn.functional.log_softmax(out(encoder(front(x) + positions)), 2).transpose(0, 1)
        torch.nn.functional.ctc_loss(scores, y, frames_of, labels_of, reduction="none").mean().backward()
        torch.nn.utils.clip_grad_norm_(learned, 10)
        optimizer.step()

    return once


def product_peer(forward, tokens, columns, depth):
    """One product of a layer, by the faster of MKL and oneDNN."""
    import torch

    x, weight, bias, gradient = map(torch.randn, ((tokens, depth), (columns, depth), (columns,), (tokens, columns)))
    onednn = torch.ops.mkldnn._linear_pointwise
    if forward:
        products = (lambda: torch.addmm(bias, x, weight.t()), lambda: onednn(x, weight, bias, "none", [], ""))
    else:
        products = (lambda: torch.mm(gradient.t(), x), lambda: onednn(gradient.t(), x.t(), None, "none", [], ""))
    with torch.inference_mode():
        for once in products:
            once()  # warms up
        fastest = min(products, key=lambda once: seconds_of(once, "cpu"))
    return torch.inference_mode()(fastest)


@functools.cache
def onnx_models(folder):
    """Exports a BERT to ONNX. Returns the model, the same after ONNX Runtime's optimizer, and the vocabulary's size."""
    import torch
    import transformers
    from onnxruntime.transformers import optimizer

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, input_ids, attention_mask, token_type_ids):
            return self.bert(input_ids, attention_mask, token_type_ids).last_hidden_state

    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {name: {0: "batch", 1: "position"} for name in [*names, "hidden"]}
    hidden, tokens = Hidden(), torch.ones(2, 8, dtype=torch.int64)
    with tempfile.TemporaryDirectory() as made:
        plain, optimised = f"{made}/plain.onnx", f"{made}/optimised.onnx"
        torch.onnx.export(hidden, (tokens, tokens, 0 * tokens), plain, input_names=names, output_names=["hidden"],
                          dynamic_axes=axes, dynamo=False)
        config = hidden.bert.config
        optimizer.optimize_model(plain, "bert", config.num_attention_heads, config.hidden_size).save_model_to_file(optimised)
        return pathlib.Path(plain).read_bytes(), pathlib.Path(optimised).read_bytes(), config.vocab_size


def embed_peer(settings, length, optimised):
    """The same model in ONNX Runtime, on as many tokens."""
    if not settings.model:
        raise ValueError("expected --model with the folder of a BERT; apps/text_search/README.md says how to get one")
    import numpy
    import onnxruntime

    with contextlib.redirect_stderr(io.StringIO()):  # the export says much
        *models, vocabulary = onnx_models(settings.model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.add_session_config_entry("session.force_spinning_stop", "1")  # its threads must not slow ours down
    session = onnxruntime.InferenceSession(models[optimised], options, providers=["CPUExecutionProvider"])
    tokens = numpy.random.randint(vocabulary, size=(TEXTS, length))
    inputs = {"input_ids": tokens, "attention_mask": numpy.ones_like(tokens), "token_type_ids": numpy.zeros_like(tokens)}
    types = {"tensor(int64)": numpy.int64, "tensor(int32)": numpy.int32}
    inputs = {each.name: inputs[each.name].astype(types[each.type]) for each in session.get_inputs()}

    def once():
        for first in range(0, TEXTS, BATCH):
            hidden = session.run(None, {name: array[first:first + BATCH] for name, array in inputs.items()})[0]
            mean = hidden.mean(1)
            mean /= numpy.linalg.norm(mean, axis=1, keepdims=True)

    return once


# ---- the rows


def rows(settings):
    """The rows for the device. Each has a name; a function that returns the seconds of one call of ours; a function that
    loads the peer and returns its call; the required ratio peer / ours (must) and the desired one (aim)."""
    device, tokens = settings.device, TOKENS[settings.device]

    def layer(attention, length, must, aim, precision="float32"):
        batch = max(1, tokens // length)
        ours = bench(settings, attention=attention, length=length, batch=batch, what="layer", precision=precision)
        name = f"{attention.removesuffix('-100')}-layer-{length}"
        return name, ours, partial(layer_peer, length, batch, device, precision), must, aim

    def clustered(kind, batch, must, aim):
        ours = bench(settings, attention=f"{kind}-100", length=4096, batch=batch, what="attention")
        return f"{kind}-attention-4096", ours, partial(authors_attention, kind, 4096, batch, device), must, aim

    def attention(length, passes):
        batch = 4096 // length
        ours = bench(settings, attention="full", length=length, batch=batch, what="attention", **{"pass": passes})
        peer = partial(attention_peer, length, batch, device, "float32", passes == "both")
        return f"full-attention-{length}-{passes}", ours, peer, 1.0, 1.05

    def kmeans(batch, peer, must, aim):
        ours = bench(settings, attention="clustered-100", length=16384, batch=batch, what="cluster")
        return "kmeans-16384", ours, partial(peer, 16384, batch), must, aim

    def product_row(kind, depth, columns):
        ours = bench(settings, what="product" if kind == "forward" else "gradient", length=tokens, batch=1,
                     head_size=depth // HEADS, feed_forward=columns)
        peer = partial(product_peer, kind == "forward", tokens, columns, depth)
        return f"product-{kind}-{depth}-{columns}", ours, peer, 0.95, 1.0

    if device == "cuda":
        full = bench(settings, attention="full", length=4096, batch=32, what="attention", precision="bf16")
        return [
            clustered("i-clustered", 32, 3, 10),
            clustered("clustered", 32, 3, 8),
            kmeans(8, flash_kmeans, 1, 10),
            ("full-attention-4096", full, partial(attention_peer, 4096, 32, device, "bf16"), 0.4, 0.7),
            layer("i-clustered-100", 8192, 1.5, 3.3, "bf16"),
            layer("i-clustered-100", 32768, 4, 12, "bf16"),
        ]
    return [
        *(layer("full", length, 1.05, 1.25) for length in (512, 1024, 2048, 4096)),
        *(attention(length, passes) for length in (1024, 4096) for passes in ("forward", "both")),
        layer("i-clustered-100", 4096, 2.6, 3.3),
        layer("i-clustered-100", 32768, 14, 19),
        clustered("i-clustered", 1, 4, 7),
        kmeans(1, authors_kmeans, 15, 40),
        ("copy-task-quick", training_step(settings, "copy-task", "--quick"), partial(copy_task_peer, 2, 4, 32, 512), 1.0,
         1.5),
        ("copy-task", training_step(settings, "copy-task"), partial(copy_task_peer, 4, 6, 32, 768), 1.0, 1.5),
        *((f"speech-{frames}", speech(settings, batch, frames, labels, 50),
           partial(speech_peer, batch, frames, labels, 50), 1.0, 1.3)
          for batch, frames, labels in ((8, 960, 85), (3, 2880, 255))),
        *((f"embed-{length}{'-optimised' * optimised}", embed(settings, length),
           partial(embed_peer, settings, length, optimised), 1.1, 1.3)
          for length in (128, 512) for optimised in (False, True)),
        *(product_row(kind, *weight) for kind in ("forward", "gradient")
          for weight in ((FEATURES, FEATURES), (FEATURES, HIDDEN), (HIDDEN, FEATURES))),
    ]


# ---- measuring


def seconds_of(once, device):
    """The seconds of one call: the median of three measurements, or fewer if they take long. On a GPU, each has 20 calls."""
    calls = 20 if device == "cuda" else 1
    times = []
    while len(times) < 3 and sum(times) * calls < 2:
        start = time.perf_counter()
        for _ in range(calls):
            once()
        if device == "cuda":
            import torch

            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times)


def measure(ours, peer, settings):
    """Measures ours and the peer in turn, or returns as "left_out" why there is no peer."""
    try:
        once = peer()
        once()  # warms up
    except Exception as error:  # a peer may fail in any way
        return {"left_out": " ".join(f"{type(error).__name__}: {error}".split())[:200]}
    pairs = [(ours(), seconds_of(once, settings.device)) for _ in range(settings.repeat)]
    ours_seconds, peer_seconds = (statistics.median(times) for times in zip(*pairs))
    return {"ours_seconds": ours_seconds, "peer_seconds": peer_seconds, "ratio": peer_seconds / ours_seconds,
            "ratios": sorted(theirs / mine for mine, theirs in pairs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--program", type=pathlib.Path, help="folder of our programs (default build/DEVICE/bin)")
    parser.add_argument("--model", type=pathlib.Path, help="folder of a BERT, for the rows of text-search embed")
    parser.add_argument("--rows", help="only these rows, comma-separated")
    parser.add_argument("--avx2", action="store_true", help="limit PyTorch to AVX2 (ONNX Runtime has no such limit)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeat", type=int, default=5, help="pairs of measurements; the medians are printed")
    settings = parser.parse_args()
    settings.program = settings.program or pathlib.Path("build", settings.device, "bin")
    if not os.access(settings.program / "attention-bench", os.X_OK):
        parser.error(f"{settings.program}/attention-bench: no such program; name the folder of our programs with --program")
    chosen = {name: rest for name, *rest in rows(settings)}
    wanted = settings.rows.split(",") if settings.rows else chosen
    for name in wanted:
        if name not in chosen:
            parser.error(f"--rows: no row {name!r} on {settings.device}; there are {', '.join(chosen)}")
    os.environ["OMP_NUM_THREADS"] = str(settings.threads)  # for PyTorch, which is not loaded yet
    if settings.avx2:
        os.environ |= {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    for name in wanted:
        ours, peer, must, aim = chosen[name]
        print(json.dumps({"row": name, "must": must, "aim": aim, **measure(ours, peer, settings),
                          "device": settings.device, "threads": settings.threads}), flush=True)


if __name__ == "__main__":
    main()
