#!/usr/bin/env python3
"""Our programs and other people's code side by side, in one run.

    python3 -m venv peers && peers/bin/pip install torch            # outside the repository
    peers/bin/python apps/attention_bench/peers.py --program build/cpu/bin

Each row times one of our programs and one peer in turn, with the same shapes and threads, and tells the medians and
peer / ours: above 1, ours is faster. The table goes to standard error, an object a row to standard output. A row whose
peer is not installed says so, and the others go on. The authors' code is installed by
`pip install --no-build-isolation pytorch-fast-transformers`, with no nvcc on the PATH; it takes some minutes.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from typing import Callable

HEADS, SIZE, HIDDEN = 6, 64, 1536
FEATURES = HEADS * SIZE
TOKENS = {"cpu": 16384, "cuda": 131072}


class OursFailed(Exception):
    """One of our programs failed: what it said."""


# ---- ours: functions that return the seconds of one call


def last_object(command):
    """The JSON object that one of our programs ends with."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if done.returncode != 0:
        raise OursFailed(f"{done.stderr.strip()} (exit code {done.returncode})")
    return json.loads(done.stdout.splitlines()[-1])


def options(**values):
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", value)]


def bench(settings, **values):
    """attention-bench run. A program is started for each measurement; it tells the median of its repetitions alone."""
    common = options(device=settings.device, threads=settings.threads, repeat=3)
    command = [settings.program / "attention-bench", "run", "--json", "--quiet", *common, *options(**values)]
    return lambda: last_object(command)["median_seconds"]


def copy_task(settings, *preset):
    """A step of copy-task train, without the first steps, which warm up."""
    common = options(device=settings.device, threads=settings.threads, attention="full", evaluate_every=1000000)
    command = [settings.program / "copy-task", "train", "--json", "--quiet", *common, *preset, "--iterations"]

    def seconds_of(steps):
        return steps / last_object([*command, steps])["steps_per_second"]

    return lambda: (seconds_of(25) - seconds_of(5)) / 20


# ---- peers: functions that make a function of one call


def only_cudnn(device):
    """On a GPU, PyTorch's attention is to be cuDNN's."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if device == "cuda" else contextlib.nullcontext()


def layer_peer(length, batch, device, precision):
    """A post-norm layer with exact gelu and PyTorch's scaled_dot_product_attention, forward and backward."""
    import torch
    from torch.nn import functional as F

    dtype = {"float32": torch.float32, "bf16": torch.bfloat16}[precision]
    projections = [torch.nn.Linear(FEATURES, FEATURES, device=device, dtype=dtype) for _ in range(4)]
    norms = [torch.nn.LayerNorm(FEATURES, device=device, dtype=dtype) for _ in range(2)]
    up = torch.nn.Linear(FEATURES, HIDDEN, device=device, dtype=dtype)
    down = torch.nn.Linear(HIDDEN, FEATURES, device=device, dtype=dtype)
    x = torch.randn(batch, length, FEATURES, device=device, dtype=dtype, requires_grad=True)
    gradient = torch.randn_like(x)
    learned = [parameter for module in (*projections, *norms, up, down) for parameter in module.parameters()]

    def once():
        q, k, v = (projection(x).view(batch, length, HEADS, SIZE).transpose(1, 2) for projection in projections[:3])
        with only_cudnn(device):
            attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        y = norms[0](x + projections[3](attended))
        torch.autograd.grad(norms[1](y + down(F.gelu(up(y)))), [x, *learned], gradient)

    return once


def attention_peer(length, batch, device):
    import torch
    from torch.nn import functional as F

    shape = (batch, HEADS, length, SIZE)
    q, k, v = (torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    gradient = torch.randn_like(q)

    def once():
        with only_cudnn(device):
            out = F.scaled_dot_product_attention(q, k, v)
        torch.autograd.grad(out, [q, k, v], gradient)

    return once


def authors_attention(kind, length, batch, device):
    import torch
    from fast_transformers.attention.clustered_attention import ClusteredAttention
    from fast_transformers.attention.improved_clustered_attention import ImprovedClusteredAttention
    from fast_transformers.masking import FullMask, LengthMask

    settings = {"clusters": 100, "iterations": 10, "bits": 63, "attention_dropout": 0.0}
    attention = ImprovedClusteredAttention(topk=32, **settings) if kind[0] == "i" else ClusteredAttention(**settings)
    shape = (batch, length, HEADS, SIZE)
    q, k, v = (torch.randn(shape, device=device, requires_grad=True) for _ in range(3))
    mask = FullMask(length, length, device=device)
    lengths = LengthMask(torch.full((batch,), length, device=device))
    gradient = torch.randn(shape, device=device)
    return lambda: torch.autograd.grad(attention(q, k, v, mask, lengths, lengths), [q, k, v], gradient)


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


# ---- text-search embed: both get the same texts, all of one length, so that nothing is padded


def texts_of(model, length):
    """128 lines of words that are one token each."""
    vocabulary = (model / "vocab.txt").read_text().split("\n")
    words = [word for word in vocabulary if word.isascii() and word.isalpha() and word.islower()]
    random.seed(1)
    return "".join(" ".join(random.choices(words, k=length - 2)) + "\n" for _ in range(128))


def embed(settings, length):
    """Without loading the model; with reading, tokenizing and writing, which the peer has not."""

    def once():
        with tempfile.TemporaryDirectory() as folder:
            text, out = pathlib.Path(folder, "text"), pathlib.Path(folder, "out")
            text.write_text(texts_of(settings.model, length))
            values = options(model=settings.model, text_file=text, out=out, batch=16, threads=settings.threads)
            return last_object([settings.program / "text-search", "embed", "--json", "--quiet", *values])["seconds"]

    return once


def embed_peer(settings, length):
    """The model's own layers in PyTorch, with scaled_dot_product_attention."""
    import torch
    from torch.nn import functional as F

    if not settings.model:
        raise ValueError("--model is missing, the folder of a BERT (apps/text_search/README.md says how to get one)")
    command = [settings.program / "text-search", "tokenize", "--model", settings.model, "--text-file", "-"]
    found = subprocess.run(command, input=texts_of(settings.model, length), check=True, capture_output=True, text=True)
    tokens = torch.tensor([json.loads(line) for line in found.stdout.splitlines()])
    config = json.loads((settings.model / "config.json").read_text())
    data = (settings.model / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    kinds = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}
    weights = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            numbers = torch.frombuffer(bytearray(data[begin:end]), dtype=kinds[entry["dtype"]])
            weights[name] = numbers.reshape(entry["shape"]).float()

    def linear(x, name):
        return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    def norm(x, name):
        weight, bias = weights[name + ".weight"], weights[name + ".bias"]
        return F.layer_norm(x, x.shape[-1:], weight, bias, config["layer_norm_eps"])

    def split(x):
        return x.unflatten(-1, (config["num_attention_heads"], -1)).transpose(1, 2)

    def embeddings(tokens):
        words, positions, types = (weights[f"embeddings.{name}_embeddings.weight"]
                                   for name in ("word", "position", "token_type"))
        x = norm(words[tokens] + positions[:length] + types[0], "embeddings.LayerNorm")
        for i in range(config["num_hidden_layers"]):
            layer = f"encoder.layer.{i}."
            q, k, v = (split(linear(x, f"{layer}attention.self.{part}")) for part in ("query", "key", "value"))
            mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = norm(x + linear(mixed, layer + "attention.output.dense"), layer + "attention.output.LayerNorm")
            hidden = F.gelu(linear(x, layer + "intermediate.dense"))
            x = norm(x + linear(hidden, layer + "output.dense"), layer + "output.LayerNorm")
        return F.normalize(x.mean(1), dim=1)

    def once():
        with torch.inference_mode():
            return torch.cat([embeddings(batch) for batch in tokens.split(16)])

    return once


# ---- the rows


@dataclasses.dataclass
class Row:
    name: str
    ours: Callable  # the seconds of one call
    peer: Callable  # makes a function of one call; loads what it needs
    must: float | None = None  # peer / ours
    aim: float | None = None


def rows(settings):
    """Those of the device."""
    device, tokens = settings.device, TOKENS[settings.device]

    def layer(name, attention, length, must, aim, precision):
        batch = max(1, tokens // length)
        ours = bench(settings, attention=attention, length=length, batch=batch, what="layer", precision=precision)
        return Row(name, ours, lambda: layer_peer(length, batch, device, precision), must, aim)

    def clustered(kind, batch, must, aim):
        ours = bench(settings, attention=f"{kind}-100", length=4096, batch=batch, what="attention")
        return Row(f"{kind}-attention-4096", ours, lambda: authors_attention(kind, 4096, batch, device), must, aim)

    def kmeans(batch, peer, must, aim):
        ours = bench(settings, attention="clustered-100", length=16384, batch=batch, what="cluster")
        return Row("kmeans-16384", ours, lambda: peer(16384, batch), must, aim)

    if device == "cuda":
        full = bench(settings, attention="full", length=4096, batch=32, what="attention", precision="bf16")
        return [
            clustered("i-clustered", 32, 3, 10),
            clustered("clustered", 32, 3, 8),
            kmeans(8, flash_kmeans, 1, 10),
            Row("full-attention-4096", full, lambda: attention_peer(4096, 32, device), 0.4, 0.7),
            layer("i-clustered-layer-8192", "i-clustered-100", 8192, 1.5, 3.3, "bf16"),
            layer("i-clustered-layer-32768", "i-clustered-100", 32768, 4, 12, "bf16"),
        ]
    return [
        *(layer(f"full-layer-{length}", "full", length, 1.05, 1.25, "float32") for length in (512, 1024, 2048, 4096)),
        layer("i-clustered-layer-4096", "i-clustered-100", 4096, 2.6, 3.3, "float32"),
        layer("i-clustered-layer-32768", "i-clustered-100", 32768, 14, 19, "float32"),
        clustered("i-clustered", 1, 4, 7),
        kmeans(1, authors_kmeans, 15, 40),
        Row("copy-task-quick", copy_task(settings, "--quick"), lambda: copy_task_peer(2, 4, 32, 512), 1.0, 1.5),
        Row("copy-task", copy_task(settings), lambda: copy_task_peer(4, 6, 32, 768), 1.0, 1.5),
        Row("embed-128", embed(settings, 128), lambda: embed_peer(settings, 128)),
        Row("embed-512", embed(settings, 512), lambda: embed_peer(settings, 512)),
    ]


# ---- measuring


def seconds_of(once, device):
    """The median of three times of one call, or of fewer where they take long. On a GPU, of calls that last 5 ms."""

    def timed(calls):
        start = time.perf_counter()
        for _ in range(calls):
            once()
        if device == "cuda":
            import torch

            torch.cuda.synchronize()
        return (time.perf_counter() - start) / calls

    times = [timed(1)]
    calls = max(1, int(5e-3 / times[0])) if device == "cuda" else 1
    while len(times) < 3 and sum(times) * calls < 2:
        times.append(timed(calls))
    return statistics.median(times)


def measure(row, settings):
    """The object of a row; ours and the peer in turn. "left_out" says why there is no peer, "problem" why ours failed.
    """
    result = {"row": row.name, "device": settings.device, "threads": settings.threads}
    try:
        once = row.peer()
        once()  # warms up
        pairs = [(row.ours(), seconds_of(once, settings.device)) for _ in range(settings.repeat)]
    except OursFailed as failure:
        return {**result, "problem": " ".join(str(failure).split())}
    except Exception as error:  # a peer may fail in any way
        return {**result, "left_out": " ".join(f"{type(error).__name__}: {error}".split())[:200]}
    ours, peer = (statistics.median(times) for times in zip(*pairs))
    ratios = sorted(theirs / mine for mine, theirs in pairs)
    spread = (ratios[3 * len(ratios) // 4] - ratios[len(ratios) // 4]) / 2  # half the distance of the quartiles
    return {**result, "ours_seconds": ours, "peer_seconds": peer, "ratio": peer / ours, "spread": spread,
            "must": row.must, "aim": row.aim}


def line(result):
    for key, words in (("left_out", "left out"), ("problem", "FAILED")):
        if key in result:
            return f"{result['row']:24} {words}: {result[key]}"
    must, aim = (f"{result[key]:g}" if result[key] else "-" for key in ("must", "aim"))
    verdict = "" if must == "-" else "met" if result["ratio"] >= result["must"] else "NOT MET"
    return (f"{result['row']:24} {result['ours_seconds'] * 1e3:10.2f} {result['peer_seconds'] * 1e3:10.2f} "
            f"{result['ratio']:7.2f} {result['spread']:6.2f} {must:>5} {aim:>5}  {verdict}").rstrip()


def machine(settings):
    """The processor, and the versions of what is compared."""
    processor = re.search(r"model name\s*: (.*)|$", pathlib.Path("/proc/cpuinfo").read_text())[1]
    with contextlib.suppress(ImportError, RuntimeError):
        import torch

        torch.set_num_threads(settings.threads)
        torch.manual_seed(1)
        processor = torch.cuda.get_device_name() if settings.device == "cuda" else processor
    versions = {each.name: each.version for each in metadata.distributions()
                if each.name in ("torch", "pytorch-fast-transformers", "flash-kmeans")}
    command = [settings.program / "attention-bench", "--version"]
    versions["ours"] = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return {"processor": processor, "versions": versions}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--program", type=pathlib.Path, help="the folder of our programs; by default build/DEVICE/bin")
    parser.add_argument("--model", type=pathlib.Path, help="the folder of a BERT, for the rows of text-search embed")
    parser.add_argument("--rows", help="only these, comma-separated")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeat", type=int, default=5, help="pairs of measurements; the medians count")
    settings = parser.parse_args()
    settings.program = settings.program or pathlib.Path("build", settings.device, "bin")
    if settings.threads < 1 or settings.repeat < 1:
        parser.error("--threads and --repeat: expected at least 1")
    if not os.access(settings.program / "attention-bench", os.X_OK):
        parser.error(f"{settings.program}/attention-bench: no such program; give our programs' folder by --program")
    chosen = rows(settings)
    if settings.rows:
        wanted, names = settings.rows.split(","), [row.name for row in chosen]
        for name in wanted:
            if name not in names:
                parser.error(f"--rows: no row {name!r} on {settings.device}; there are {', '.join(names)}")
        chosen = [row for row in chosen if row.name in wanted]
    here = machine(settings)
    print(f"{here['processor']}; {settings.threads} threads; medians of {settings.repeat}\n"
          f"{'row':24} {'ours ms':>10} {'peer ms':>10} {'ratio':>7} {'spread':>6} {'must':>5} {'aim':>5}",
          file=sys.stderr)
    failed = False
    for row in chosen:
        result = measure(row, settings)
        print(line(result), file=sys.stderr)
        print(json.dumps({**result, **here}), flush=True)
        failed = failed or "problem" in result
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
