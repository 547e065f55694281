#!/usr/bin/env python3
"""Writes the table of kernels into cuda/README.md: `cuda/kernel_table.py`, or `--check` to see whether it is up to date
without writing, or `--arch 90 cuda/softmax.cu ...` to print the rows of some files.

Registers, shared memory and spills are what nvcc says (-Xptxas -v), the largest over a kernel's instantiations. Bytes and
FLOPs are what the kernel's file says of itself, in lines of its opening comment such as

    // cost softmax_rows: 2*e*R*cols bytes, 4*R*cols FLOPs

evaluated for the problem below. The floor is the larger of bytes / bandwidth and FLOPs / arithmetic of an H200 (NVIDIA's
data sheet: 4.8 TB/s; 67 TFLOP/s in float32, 989 in bfloat16 on tensor cores, which a line asks for with "tensor FLOPs")."""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- kernels: written by cuda/kernel_table.py -->", "<!-- end of kernels -->"

# A layer of the paper's size on long sequences: B batch, H heads, N queries, S keys, D and M head sizes, C clusters, k top
# keys, b hash bits, e bytes of an element, L rounds of lsh in chunks of c; R rows of F features, F4 those of the feed
# forward, V classes, n = R F elements, P parameters.
PROBLEM = dict(B=4, H=8, N=4096, S=4096, D=64, M=64, C=100, k=32, b=63, e=2, L=4, c=32, F=512, F4=2048, V=32768)
PROBLEM["R"] = PROBLEM["B"] * PROBLEM["N"]
PROBLEM["n"] = PROBLEM["R"] * PROBLEM["F"]
PROBLEM["P"] = 12 * PROBLEM["F"] * PROBLEM["F"]
BANDWIDTH, FLOAT32, TENSOR = 4.8e12, 67e12, 989e12

COST = re.compile(r"^//\s+cost (\w+): (.+?) bytes, (.+?) (tensor )?FLOPs", re.M)


def nvcc():
    found = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(found, os.X_OK):
        sys.exit("kernel_table.py: error: nvcc was not found; install the CUDA Toolkit or add it to PATH")
    return found


def compile_one(source, arch):
    """{kernel: (registers, shared, spills)} of a file for one architecture."""
    command = [nvcc(), "-std=c++20", "--expt-relaxed-constexpr", "-O3", "-I", str(ROOT), "-DCAIRN_HAS_CUDA=1",
               "-Xptxas", "-v", f"-arch=sm_{arch}", "-c", str(source), "-o", "/dev/null"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"kernel_table.py: error: {' '.join(command)}:\n{result.stderr}")
    names, spills, found = [], 0, {}
    for line in result.stderr.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            names.append(match[1])
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spills = int(match[1]) + int(match[2])
        elif match := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found[names[-1]] = (int(match[1]), int(shared[1]) if shared else 0, spills)
    plain = subprocess.run(["c++filt"], input="\n".join(found), capture_output=True, text=True).stdout.splitlines()
    merged = {}
    for name, figures in zip(plain, found.values()):
        name = re.sub(r"\(anonymous namespace\)::", "", name)
        kernel = re.search(r"(\w+)(?:<|\()", re.sub(r"^void ", "", name).split("gpu::", 1)[-1])[1]
        merged[kernel] = tuple(map(max, figures, merged.get(kernel, (0, 0, 0))))
    return merged


def human(value, units):
    for unit in units:
        if value < 1000:
            return f"{value:.3g} {unit}".rstrip()
        value /= 1000
    return f"{value * 1000:.3g} {units[-1]}"


def rows_of(source, archs):
    costs = {match[1]: match for match in COST.finditer(source.read_text())}
    by_arch = {arch: compile_one(source, arch) for arch in archs}
    rows = []
    for kernel, (registers, shared, _) in by_arch[archs[-1]].items():
        spilled = {arch: by_arch[arch].get(kernel, (0, 0, 0))[2] for arch in archs}
        spills = ", ".join(f"{bytes_} B on {arch}" for arch, bytes_ in spilled.items() if bytes_) or "none"
        row = f"| `{source.stem}` | `{kernel}` | {registers} | {shared} | {spills} |"
        if kernel in costs:
            _, moved, work, tensor = costs[kernel].groups()
            moved, work = (eval(text, {"__builtins__": {}}, PROBLEM) for text in (moved, work))
            floor = max(moved / BANDWIDTH, work / (TENSOR if tensor else FLOAT32))
            row += f" {human(moved, ['B', 'kB', 'MB', 'GB'])} | {human(work, ['', 'k', 'M', 'G', 'T'])} |"
            row += f" {floor * 1e6:.3g} |"
        else:
            row += " - | - | - |"
        rows.append(row)
    missing = set(costs) - set(by_arch[archs[-1]])
    if missing:
        sys.exit(f"kernel_table.py: error: {source}: costs of kernels that are not there: {', '.join(sorted(missing))}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", type=int, action="append", help="75, 80, 90; all of them by default")
    parser.add_argument("--check", action="store_true", help="exit 1 if cuda/README.md has another table")
    parser.add_argument("sources", nargs="*", type=Path, help="print the rows of these files alone")
    options = parser.parse_args()
    archs = sorted(options.arch or [75, 80, 90])
    sources = options.sources or sorted(ROOT.glob("cuda/*.cu"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = [row for rows in pool.map(lambda source: rows_of(source, archs), sources) for row in rows]
    size = ", ".join(f"{name} = {value:,}" for name, value in PROBLEM.items())
    table = "\n".join([
        f"Registers, static shared memory (bytes; dynamic comes on top) and spills as nvcc has them for sm_{archs[-1]}, spills for "
        f"sm_{', '.join(map(str, archs))}; bytes, FLOPs and the floor in microseconds on an H200, for {size}. Not measured.",
        "", "| stem | kernel | registers | shared | spills | bytes moved | FLOPs | floor, us |",
        "|---|---|---|---|---|---|---|---|", *rows])
    if options.sources:
        print(table)
        return
    readme = ROOT / "cuda/README.md"
    text = readme.read_text()
    before, rest = text.split(BEGIN)
    new = f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}"
    if options.check:
        sys.exit(0 if new == text else "kernel_table.py: cuda/README.md has another table; run cuda/kernel_table.py")
    readme.write_text(new)
    print(f"{readme}: {len(rows)} kernels")


if __name__ == "__main__":
    main()
