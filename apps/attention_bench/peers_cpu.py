"""The table of peers.py on the CPU."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
except ImportError:
    sys.exit("peers.py: error: PyTorch is not installed; pip install torch, in a virtual environment")

from peers_torch import FEATURES, SdpaLayer, authors, authors_attention, authors_kmeans

F = torch.nn.functional


def seconds(f):
    start = time.perf_counter()
    f()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def layer_peer(length, batch):
    torch.manual_seed(1)
    layer = SdpaLayer()
    x = torch.randn(batch, length, FEATURES, requires_grad=True)
    gradient = torch.randn(batch, length, FEATURES)

    def once():
        layer.zero_grad()
        x.grad = None
        layer(x).backward(gradient)

    return once


class CopyTaskModel(torch.nn.Module):
    def __init__(self, layers, heads, size, hidden, length):
        super().__init__()
        self.embedding = torch.nn.Embedding(12, heads * size)
        layer = torch.nn.TransformerEncoderLayer(heads * size, heads, hidden, 0.0, "gelu", batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, layers)
        self.out = torch.nn.Linear(heads * size, 11)
        self.register_buffer("positions", torch.randn(length, heads * size))

    def forward(self, x):
        return self.out(self.encoder(self.embedding(x) + self.positions))


def copy_task_peer(layers, heads, size, hidden, length=31, batch=32):
    torch.manual_seed(1)
    n = 2 * (length + 1)
    model = CopyTaskModel(layers, heads, size, hidden, n)
    optimizer = torch.optim.RAdam(model.parameters(), 2e-4)
    x, y = torch.randint(0, 12, (batch, n)), torch.randint(0, 11, (batch, n))

    def once():
        optimizer.zero_grad()
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()

    return once


def bench(program, command, threads, **options):
    """What `attention-bench COMMAND --json` ends with."""
    arguments = [os.path.join(program, "attention-bench"), command, "--json", "--quiet", "--device", "cpu", "--threads", str(threads)]
    for name, value in options.items():
        arguments += [f"--{name}", str(value)]
    return json.loads(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def attention_ours(program, threads, **options):
    """The program is started for each measurement, and tells the median of its repetitions alone."""
    return lambda: bench(program, "run", threads, repeat=3, **options)["median_seconds"]


def copy_task_ours(program, threads, *arguments):
    command = [os.path.join(program, "copy-task"), "train", "--json", "--quiet", "--device", "cpu", "--threads", str(threads), "--attention", "full",
               "--evaluate-every", "1000000", *arguments]

    def seconds_of(steps):
        output = subprocess.run([*command, "--iterations", str(steps)], check=True, capture_output=True, text=True).stdout
        return steps / json.loads(output.splitlines()[-1])["steps_per_second"]

    def once():
        return (seconds_of(25) - seconds_of(5)) / 20  # the first steps, which warm up, fall out

    return once


def rows(group, program, threads, tokens):
    """Name, what it must reach, the aim, ours, the peer's."""
    for length in (512, 1024, 2048, 4096) if group == "cpu" else ():
        batch = max(1, tokens // length)
        ours = attention_ours(program, threads, attention="full", length=length, batch=batch, what="layer")
        yield f"full layer, N = {length}, PyTorch's SDPA", 1.0, 1.25, ours, layer_peer(length, batch)
    for length, must, aim in ((4096, 2.5, 3.3), (32768, 13, 19)):
        batch = max(1, tokens // length)
        ours = attention_ours(program, threads, attention="i-clustered-100", length=length, batch=batch, what="layer")
        yield f"i-clustered-100 layer, N = {length}, PyTorch's SDPA layer", must, aim, ours, layer_peer(length, batch)
    if isinstance(authors(), dict):
        for kind in ("i-clustered", "clustered"):
            ours = attention_ours(program, threads, attention=f"{kind}-100", length=4096, batch=1, what="attention")
            yield f"{kind}-100 attention, N = 4096, the authors'", 4 if kind[0] == "i" else None, 7, ours, authors_attention(kind, 4096, 1)
        ours = attention_ours(program, threads, attention="clustered-100", length=16384, batch=1, what="cluster")
        yield "Hamming k-means, N = 16384, the authors'", 15, 40, ours, authors_kmeans(16384, 1)
    else:
        print(f"the authors' code is left out: {authors()}", file=sys.stderr)
    yield "copy task, quick model, a step", 1.0, 1.5, copy_task_ours(program, threads, "--quick"), copy_task_peer(2, 4, 32, 512)
    yield "copy task, the paper's model, a step", 1.0, 1.5, copy_task_ours(program, threads), copy_task_peer(4, 6, 32, 768)


def rows_alone(program, threads):
    """Rows without a peer, of which less is better: name, it must be at most, the aim, how it is measured."""

    def crossover():
        with tempfile.TemporaryDirectory() as out:
            figure = bench(program, "figure", threads, attention="full,i-clustered-100", what="layer", lengths="256,512,1024,2048", out=out)
        return figure["crossovers"]["i-clustered-100"]

    def peak_ratio():
        both = bench(program, "run", threads, attention="full,i-clustered-100", what="layer", length=4096, repeat=1)["results"]
        return both[1]["peak_bytes"] / both[0]["peak_bytes"]

    yield "the N from which i-clustered-100's layer is faster than full's", 1000, 400, crossover
    yield "peak bytes of i-clustered-100's layer over full's, N = 4096", 1.1, 1.0, peak_ratio


def short_median(f):
    """Of three times, or of fewer where they take long."""
    times = [seconds(f)]
    while len(times) < 3 and sum(times) < 2:
        times.append(seconds(f))
    return statistics.median(times)


def compare_builds(arguments):
    builds = [rows(arguments.rows, folder, arguments.threads, arguments.tokens) for folder in (arguments.program, arguments.beside)]
    for (name, _, _, ours, _), (_, _, _, other, _) in zip(*builds):
        if arguments.only not in name:
            continue
        ratios = sorted(other() / ours() for _ in range(arguments.repeat))
        low, middle, high = (ratios[len(ratios) * quarter // 4] for quarter in (1, 2, 3))
        print(f"{name.rsplit(', ', 1)[0]:58} {middle:.3f} ({low:.3f} to {high:.3f})", flush=True)


def main(arguments):
    torch.set_num_threads(arguments.threads)
    if arguments.beside:
        compare_builds(arguments)
        return
    print(f"PyTorch {torch.__version__}, {arguments.threads} threads, {arguments.tokens} tokens")
    print(f"{'':58} {'ours ms':>9} {'peer ms':>9} {'peer/ours':>9}  must   aim")
    results = []
    for name, must, aim, ours, peer in rows(arguments.rows, arguments.program, arguments.threads, arguments.tokens):
        if arguments.only not in name:
            continue
        start, mine, theirs = time.perf_counter(), [], []
        peer()
        while not mine or (len(mine) < arguments.repeat and time.perf_counter() - start < arguments.seconds):
            mine.append(ours())
            theirs.append(short_median(peer))
        a, b = statistics.median(mine), statistics.median(theirs)
        verdict = "" if must is None else ("met" if b / a >= must else "NOT MET")
        print(f"{name:58} {a * 1e3:9.2f} {b * 1e3:9.2f} {b / a:9.2f}  {must or '-':>4} {aim:>5}  {verdict}", flush=True)
        results.append({"row": name, "ours_seconds": a, "peer_seconds": b, "ratio": b / a, "must": must, "aim": aim})
    alone = [row for row in rows_alone(arguments.program, arguments.threads) if arguments.only in row[0]]
    if alone:
        print("Ours alone, where less is better:")
    for name, must, aim, measure in alone:
        value = measure()
        verdict = "met" if value is not None and value <= must else "NOT MET"
        shown = "never" if value is None else f"{value:.4g}"
        print(f"{name:78} {shown:>9}  {must:>4} {aim:>5}  {verdict}", flush=True)
        results.append({"row": name, "value": value, "must": must, "aim": aim})
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)
