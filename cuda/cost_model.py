#!/usr/bin/env python3
"""A cost model that can be wrong: how long attention should take on a GPU, written before any of it ran on one.

`cuda/cost_model.py` writes its tables into cuda/README.md. With --check it only compares. With --loops NAME it prints the
loops of a kernel, which a `trips` line has to follow. It needs nvcc, c++filt, cuobjdump and nvdisasm. The last two come with
`pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm`. They are looked for in --tools DIR, in PATH, beside nvcc, and
among the packages of the Python that runs this.

A kernel's file states in its opening comment how often a warp passes through each loop of the machine code:

    // trips NAME<ARGUMENTS>: BLOCKS blocks, LAUNCHES launches, THREADS threads, without MNEMONIC, loops TREE

ARGUMENTS are those of the template for bfloat16. Where they depend on D, they name D, or there are two lines that name
64 and 128. All but BLOCKS may be missing. TREE has the trips of each loop, in the order of the code, counted from one
entry of the loop to its exit. The inner loops of a loop follow it in braces. A loop of 0 trips does not run (cuda/sass.py
says what else does not run then); its inner loops are not written.

The predicted time of a launch is LAUNCH plus the largest of these:
  memory     the bytes of the `cost` line, which are those of one launch, divided by the bandwidth
  throughput the instructions on the busiest multiprocessor, divided by its rate: for tensor cores, FP32, popcounts, special
             functions (as many a clock as popcounts), shared memory, and issue (one instruction a clock and scheduler)
  latency    the time of a warp that has the multiprocessor to itself (cuda/sass.py), times the number of waves. A wave is as
             many blocks as the GPU holds at a time, by registers and shared memory.
The model assumes that these overlap perfectly, that work is spread evenly, and that the L2 cache serves what is read again
for free. So it is rather too low there, and rather too high where both sides of a branch count.

cuda/found.tsv, if it exists, has the measured times for the columns "found" (--measured makes it from the results of
cuda/run_on_gpu.sh). A line has five columns, separated by tabs: subject, N, D, pass, microseconds. The subject is VARIANT,
or VARIANT:KERNEL for all launches of a kernel (VARIANT:STEM/KERNEL if two kernels of the variant have the name). The pass
of a variant is forward or forward+backward, that of a kernel forward or backward."""

import argparse
import concurrent.futures
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import sass
from yardstick import (BANDWIDTH, CLOCK, FLOAT32, GPU, LAUNCH, POPCOUNTS, ROOT, SCHEDULERS, SMS, TENSOR, Description,
                       compile_kernels, evaluate, fail, human, nvcc, problem, resident_blocks, write_between)

MARKERS = "<!-- predictions: written by cuda/cost_model.py -->", "<!-- end of predictions -->"
HMMA_FLOPS = 4096  # m16n8k16

# Clocks of a multiprocessor for an instruction of a warp, by pipe.
CLOCKS = {"tensor": HMMA_FLOPS * SMS * CLOCK / TENSOR, "float32": 64 * SMS * CLOCK / FLOAT32, "popcount": 32 / POPCOUNTS,
          "special": 32 / POPCOUNTS}

# What a call launches: {variant: {pass: [(stem/kernel, calls, changed sizes)]}}, from nn/attention, autograd/ops and the
# host's part of cuda/*.cu. How many launches a call makes is the kernel's own matter.
GROUPING = [("hash_codes/make_planes", 1, {}), ("hash_codes/make_codes", 1, {}), ("hamming_kmeans/cluster_queries", 1, {}),
            ("hamming_kmeans/update_centroids", 1, {}), ("hamming_kmeans/assign_queries", 1, {}), ("group/group_queries", 1, {}), ("segment_mean/reduce_cluster", 1, {})]


def full(sizes):
    return {"forward": [("attention/attend_mma", 1, sizes), ("attention/combine_splits", 1, sizes)],
            "backward": [("attention/output_states", 1, sizes), ("attention/query_gradient_mma", 1, sizes),
                         ("attention/add_splits", 1, sizes), ("attention/key_gradient_mma", 1, sizes)]}


CENTROIDS = full({"N": "C"})
VARIANTS = {
    "full": full({}),
    "clustered-100": {
        "forward": [*GROUPING, *CENTROIDS["forward"], ("segment_mean/broadcast_rows", 1, {})],
        "backward": [("segment_mean/reduce_cluster", 1, {}), *CENTROIDS["backward"], ("segment_mean/broadcast_rows", 1, {})]},
    "i-clustered-100": {
        "forward": [*GROUPING, ("centroid_topk/scan_keys_mma", 1, {}), ("centroid_topk/choose_groups", 1, {}),
                    ("centroid_topk/sum_rest_mma", 1, {}), ("centroid_topk/finish_rows", 1, {}),
                    ("topk_attention/attend_top_mma", 1, {})],
        "backward": [("topk_attention/place_parts", 1, {}), ("topk_attention/member_gradient_mma", 1, {}),
                     ("topk_attention/topk_key_gradient", 1, {}), ("segment_mean/reduce_cluster", 1, {}),
                     ("centroid_topk/query_states", 1, {}), ("centroid_topk/query_gradient_mma", 1, {}),
                     ("centroid_topk/add_splits", 1, {}), ("centroid_topk/key_gradient_mma", 1, {}),
                     ("segment_mean/broadcast_rows", 1, {}), ("elementwise/map", 3, {})]},  # dq, dk, dv have two parts
}
PASSES = "forward", "forward+backward"
LENGTHS, HEADS = (1024, 4096, 16384, 65536), (64, 128)

# Published, for bfloat16, D = 64, without a mask: {N: (forward, backward)} in TFLOP/s, where 4 B H N^2 D operations count
# forward and 2.5 times as many backward.
PUBLISHED = {"FlashAttention-2": {4096: (321, 279), 16384: (324, 291)}, "cuDNN": {4096: (408, 417), 16384: (413, 433)},
             "FlashAttention-3": {4096: (476, 453), 16384: (497, 474)}}


def published(name, N, which):
    """Microseconds for D = 64; between two lengths at a speed between theirs, outside them at that of the nearest."""
    (n0, low), (n1, high) = PUBLISHED[name].items()
    share = min(1, max(0, math.log(N / n0) / math.log(n1 / n0)))
    sizes = problem(N)
    flops = 4 * sizes["B"] * sizes["H"] * N * N * sizes["D"]
    parts = [f / (a + share * (b - a)) / 1e6 for f, a, b in zip((flops, 2.5 * flops), low, high)]
    return parts[0] if which == "forward" else sum(parts)


def find_tool(name, folder):
    packages = [str(path) for place in sys.path for path in Path(place or ".").glob("nvidia/*/bin")]
    found = shutil.which(name, path=os.pathsep.join(
        [folder or "", os.environ.get("PATH", ""), str(Path(nvcc()).parent), *packages]))
    return found or fail(f"{name} was not found; pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm, and run this with "
                         "that Python or give their folder with --tools")


def parse_tree(text):
    """'2 {N/64 0} 1' as [(2, [(N/64, []), (0, [])]), (1, [])], numbers still texts."""
    stack = [[]]
    for token in re.findall(r"[{}]|[^\s{}]+", text):
        if token == "{":
            stack.append(stack[-1][-1][1])
        elif token == "}":
            stack.pop()
        else:
            stack[-1].append((token, []))
    return stack[0]


def numbers(tree, sizes):
    return [(evaluate(text, sizes), numbers(inner, sizes)) for text, inner in tree]


@dataclass
class Prediction:
    kernel: str
    blocks: int
    launches: int
    bytes: float  # of all launches
    inner: Counter  # instructions of the loop with the most work, by kind
    trips: float  # of that loop, by a warp
    seconds: float
    without_latency: float  # seconds, if latency did not count
    bound: str


class Model:
    def __init__(self, tools, stems):
        cuobjdump = find_tool("cuobjdump", tools)
        os.environ["PATH"] += os.pathsep + str(Path(find_tool("nvdisasm", tools)).parent)

        def compile_one(stem):
            source = ROOT / "cuda" / f"{stem}.cu"
            return stem, Description(source), *compile_kernels(source, 90, lambda path: sass.read_functions(cuobjdump, path))

        with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count())) as pool:
            compiled = list(pool.map(compile_one, stems))
        self.descriptions = {stem: description for stem, description, _, _ in compiled}
        self.kernels = {(stem, each.kernel, each.arguments): (each, code[each.mangled])
                        for stem, _, found, code in compiled for each in found}
        self.codes, self.predicted = {}, {}
        for stem, description in self.descriptions.items():
            if missing := set(description.trips) - {kernel for where, kernel, _ in self.kernels if where == stem}:
                fail(f"cuda/{stem}.cu: trips of kernels that are not there: {', '.join(sorted(missing))}")

    def loops_of(self, name):
        return [f"{stem}/{kernel}<{arguments}>: {sass.Code(code).kernel.shape()}"
                for (stem, kernel, arguments), (_, code) in self.kernels.items() if name in (kernel, f"{stem}/{kernel}")]

    def find(self, name, D):
        """The trips line and the instantiation of a kernel for some D."""
        stem, kernel = name.split("/")
        lines = self.descriptions[stem].trips.get(kernel, [])
        if kernel not in self.descriptions[stem].costs or not lines:
            fail(f"cuda/{stem}.cu: {kernel} has no {'trips' if kernel in self.descriptions[stem].costs else 'cost'} line")
        for line in lines:
            arguments = re.sub(r"\bD\b", str(D), line.arguments)
            if len(lines) > 1 and str(D) not in arguments.split(", "):
                continue
            key = stem, kernel, arguments
            if key not in self.kernels:
                fail(f"cuda/{stem}.cu: a trips line names {kernel}<{arguments}>, which is not there")
            compiled, instructions = self.kernels[key]
            if key not in self.codes:
                self.codes[key] = sass.Code(instructions)
            return line, compiled, self.codes[key]
        fail(f"cuda/{stem}.cu: {kernel} has no trips line for D = {D}")

    def predict(self, name, changes, N, D):
        key = (name, tuple(changes.items()), N, D)
        if key not in self.predicted:
            self.predicted[key] = self.predict_new(name, changes, N, D)
        return self.predicted[key]

    def predict_new(self, name, changes, N, D):
        line, compiled, code = self.find(name, D)
        description = self.descriptions[name.split("/")[0]]
        sizes = problem(N, D)
        sizes |= {size: evaluate(text, sizes) for size, text in changes.items()}
        sizes = description.sizes(sizes)
        cost = description.costs[name.split("/")[1]]
        try:
            loops = code.run(numbers(parse_tree(line.loops), sizes), line.without)
        except ValueError as error:
            fail(f"cuda/{name.split('/')[0]}.cu: the trips of {name.split('/')[1]}<{compiled.arguments}> do not fit: {error}")
        blocks, launches = math.ceil(evaluate(line.blocks, sizes)), evaluate(line.launches or "1", sizes)
        threads = evaluate(line.threads or str(compiled.threads), sizes)
        resident = resident_blocks(compiled.registers, compiled.shared + 1024 * evaluate(cost.shared, sizes), threads)

        # On the multiprocessor that has the most blocks.
        waves = math.ceil(blocks / (SMS * resident))
        warps = (waves - 1) * resident + math.ceil((blocks - (waves - 1) * SMS * resident) / SMS)
        warps *= math.ceil(threads / 32)
        clocks, lone = Counter(), 0
        for trips, each in loops:
            lone += trips * each.lone_clocks
            clocks["issue"] += trips * warps * each.instructions / SCHEDULERS
            clocks["shared memory"] += trips * warps * each.shared_clocks
            for kind in CLOCKS:
                clocks[kind] += trips * warps * each.kinds[kind] * CLOCKS[kind]
        moved = evaluate(cost.bytes, sizes)
        times = {kind: count / CLOCK for kind, count in clocks.items()}
        times |= {"latency": waves * lone / CLOCK, "memory": moved / BANDWIDTH}
        bound = max(times, key=times.get)
        seconds, without_latency = (launches * (time + LAUNCH) for time in (
            times[bound], max(time for kind, time in times.items() if kind != "latency")))
        trips, inner = max(loops, key=lambda loop: loop[0] * loop[1].instructions)
        return Prediction(name, blocks, launches, launches * moved, inner.kinds, trips, seconds, without_latency,
                          bound if times[bound] > LAUNCH else "launch")

    def calls(self, variant, which, N, D):
        """[(calls, Prediction)] of a pass."""
        return [(calls, self.predict(name, changes, N, D))
                for one in which.split("+") for name, calls, changes in VARIANTS[variant][one]]

    def microseconds(self, variant, which, N, D):
        return sum(calls * x.seconds for calls, x in self.calls(variant, which, N, D)) * 1e6


def take(results):
    """Writes cuda/found.tsv from a folder of results of cuda/run_on_gpu.sh."""
    lines = []
    peers = results / "peers.json"
    for cell in json.loads(peers.read_text())["cells"] if peers.exists() else []:
        if (cell["what"], cell["precision"], cell["batch"], cell.get("heads")) == ("attention", "bf16", 4, 6):
            which = {"both": "forward+backward", "forward": "forward"}[cell["pass"]]
            lines += [(variant, cell["length"], cell["head_size"], which, cell["times"][variant]["seconds"])
                      for variant in VARIANTS if "seconds" in cell["times"].get(variant, {})]
    for log in sorted((results / "logs").glob("kernels-*.log")):
        variant, D, N = re.fullmatch(r"kernels-(.+)-(\d+)-(\d+)", log.stem).groups()
        text = log.read_text().splitlines()[-1:]
        if variant not in VARIANTS or not text or not text[0].startswith("{"):
            continue
        for name, seconds in json.loads(text[0])["stages"].items():
            which, kernel = ("backward", name[10:]) if name.startswith("backward: ") else ("forward", name)
            if kernel in (known for known, _, _ in VARIANTS[variant][which]):
                lines.append((f"{variant}:{kernel}", N, D, which, seconds))
    if not lines:
        fail(f"{results}: no results of attention at B = 4, H = 6 in bf16")
    path = ROOT / "cuda/found.tsv"
    path.write_text("".join(f"{what}\t{N}\t{D}\t{which}\t{seconds * 1e6:.2f}\n" for what, N, D, which, seconds in lines))
    print(f"{path}: {len(lines)} times")


class Found:
    """Measured microseconds, as texts."""

    def __init__(self):
        path, self.times = ROOT / "cuda/found.tsv", {}
        for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
            fields = line.split("\t")
            if line.startswith("#") or not line.strip():
                continue
            try:
                what, N, D, which, time = fields[0], int(fields[1]), int(fields[2]), fields[3], float(fields[4])
            except (IndexError, ValueError):
                fail(f"cuda/found.tsv:{number}: expected what, N, D, pass and microseconds, separated by tabs")
            variant, _, kernel = what.partition(":")
            known = [name for one in VARIANTS.get(variant, {}) if not kernel or one == which
                     for name, _, _ in VARIANTS[variant][one] if kernel in ("", name, name.split("/")[-1])]
            if kernel and len(known) != 1 or which not in (("forward", "backward") if kernel else PASSES) or not known:
                fail(f"cuda/found.tsv:{number}: {what}, {which}: no such variant or kernel, or more than one: "
                     "write VARIANT:STEM/KERNEL")
            self.times[variant, known[0] if kernel else "", N, D, which] = f"{time:,.3g}" if time < 100 else f"{time:,.0f}"

    def get(self, *key):
        return self.times.get(key, "")


def instructions(counts):
    names = {"tensor": "HMMA", "float32": "FP32", "special": "special", "popcount": "POPC", "shared": "shared",
             "global": "global", "integer": "other"}
    mix = ", ".join(f"{counts[kind]} {name}" for kind, name in names.items() if counts[kind])
    return f"{sum(counts.values())}: {mix}" if counts else "-"


def kernel_table(model, found, N=4096, D=64):
    rows = ["| variant, pass | kernel | blocks | launches | bytes | instructions of the inner loop | its trips | predicted, us "
            "| bound by | found, us |", "|---|---|---|---|---|---|---|---|---|---|"]
    for variant in "full", "i-clustered-100":
        for which in "forward", "backward":
            for calls, x in model.calls(variant, which, N, D):
                if x.launches == 0:  # another kernel takes this shape
                    continue
                rows.append(f"| {variant} {which} | `{x.kernel}` | {x.blocks:,} | {calls * x.launches} | "
                            f"{human(calls * x.bytes, ['B', 'kB', 'MB', 'GB'])} | {instructions(x.inner)} | "
                            f"{x.trips:.4g} | {calls * x.seconds * 1e6:.3g} | {x.bound} | "
                            f"{found.get(variant, x.kernel, N, D, which)} |")
    return rows


def variant_table(model, found):
    names = list(PUBLISHED)
    rows = ["| D | N | pass | " + " | ".join(f"{v} | found" for v in VARIANTS) + " | " + " | ".join(names) + " |",
            "|---" * (3 + 2 * len(VARIANTS) + len(names)) + "|"]
    for D in HEADS:
        for N in LENGTHS:
            for which in PASSES:
                ours = [f"{model.microseconds(v, which, N, D):,.0f} | {found.get(v, '', N, D, which)}" for v in VARIANTS]
                theirs = [f"{published(v, N, which):,.0f}{'' if N in PUBLISHED[v] else '*'}" if D == 64 else "" for v in names]
                rows.append(f"| {D} | {N:,} | {which} | " + " | ".join(ours + theirs) + " |")
    return rows


def crossover(ours, theirs):
    """The shortest of some N, an eighth of an octave apart, from which on ours takes less time, as a text."""
    lengths = [64 * round(2 ** (i / 8) / 64) for i in range(8 * 8, 8 * 20 + 1)]
    slower = [N for N in lengths if ours(N) >= theirs(N)]
    if slower and slower[-1] == lengths[-1]:
        return "none"
    return f"{lengths[lengths.index(slower[-1]) + 1]:,}" if slower else "always"


def crossover_table(model):
    rows = ["| D | pass | variant | our full | " + " | ".join(PUBLISHED) + " |", "|---|---|---|---|" + "---|" * len(PUBLISHED)]
    for D in HEADS:
        for which in PASSES:
            for variant in "clustered-100", "i-clustered-100":
                def ours(N):
                    return model.microseconds(variant, which, N, D)
                others = [lambda N: model.microseconds("full", which, N, D)]
                others += [lambda N, name=name: published(name, N, which) for name in PUBLISHED] if D == 64 else []
                cells = [crossover(ours, other) for other in others] + [""] * (1 + len(PUBLISHED) - len(others))
                rows.append(f"| {D} | {which} | {variant} | " + " | ".join(cells) + " |")
    return rows


def slowest_table(model, N=4096, D=64):
    rows = ["| | forward | us | share | bound by | forward+backward | us | share | bound by |", "|---" * 9 + "|"]
    columns = []
    for which in PASSES:
        total, times, bounds = model.microseconds("i-clustered-100", which, N, D), Counter(), {}
        for calls, x in model.calls("i-clustered-100", which, N, D):
            times[x.kernel] += calls * x.seconds * 1e6
            bounds[x.kernel] = x.bound
        columns.append([f"`{name}` | {time:.0f} | {time / total:.0%} | {bounds[name]}" for name, time in times.most_common(5)])
    rows += [f"| {i} | {a} | {b} |" for i, (a, b) in enumerate(zip(*columns), 1)]
    less = [sum(calls * x.without_latency for calls, x in model.calls("i-clustered-100", which, N, D)) for which in PASSES]
    return rows + ["", f"If latency did not count, i-clustered-100 would take {less[0] * 1e6:.0f} us forward and "
                   f"{less[1] * 1e6:.0f} us forward+backward there."]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit 1 if cuda/README.md has other tables")
    parser.add_argument("--tools", default=os.environ.get("CAIRN_CUDA_TOOLS"), metavar="DIR",
                        help="where cuobjdump and nvdisasm are (or $CAIRN_CUDA_TOOLS)")
    parser.add_argument("--loops", nargs="+", metavar="NAME", help="print the loops of kernels, as their instructions")
    parser.add_argument("--measured", type=Path, metavar="DIR",
                        help="first write cuda/found.tsv from the results of cuda/run_on_gpu.sh (its --out)")
    options = parser.parse_args()
    if options.measured:
        take(options.measured)
    found = Found()
    stems = {name.split("/")[0] for passes in VARIANTS.values() for calls in passes.values() for name, _, _ in calls
             if "/" in name}
    try:
        model = Model(options.tools, sorted(stems))
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(map(str, error.cmd))} ended with {error.returncode}: {error.stderr.strip()[-200:]}")
    if options.loops:
        print("\n".join(line for name in options.loops for line in model.loops_of(name)))
        return
    release = re.search(r"release ([\d.]+)", subprocess.run([nvcc(), "--version"], capture_output=True, text=True).stdout)[1]
    table = "\n".join([
        f"Predicted for {GPU}; B = 4, H = 6, bfloat16, no mask, no dropout; machine code for sm_90 by nvcc {release}.",
        "A column \"found\" stays empty until somebody has measured (cuda/found.tsv).",
        "", "**The five kernels that hold i-clustered-100 back** (N = 4,096, D = 64):", "", *slowest_table(model),
        "", "**Variants.** Attention alone, without projections, in microseconds. The published times follow from",
        "published TFLOP/s for D = 64 and N = 4,096 and 16,384. `*`: computed with the speed at the nearer of the two.",
        "", *variant_table(model, found),
        "", "**Crossovers.** The N from which on a variant is predicted to take less time than full attention does (\"always\":",
        "from 256 on; \"none\": not up to 1,048,576).", "", *crossover_table(model),
        "", "**Kernels** at N = 4,096, D = 64. Times and bytes are those of all launches. Blocks are those that `trips` lines count:",
        "without those of topk_attention that find no task or sum up dm. The inner loop is the loop with the most instructions in",
        "all; its instructions are those of a warp in one pass.", "", *kernel_table(model, found)])
    write_between(MARKERS, table, options.check)


if __name__ == "__main__":
    main()
