#!/usr/bin/env python3
"""Writes the table of kernels into cuda/README.md: `cuda/kernel_table.py`, or `--check` to see whether it is up to date
without writing, or `--arch 90 cuda/softmax.cu ...` to print the rows of some files.

Threads of a block (__launch_bounds__), registers, shared memory and spills are what nvcc says (-Xptxas -v), the largest over
a kernel's instantiations. Bytes and FLOPs, and dynamic shared memory where there is any, are what the kernel's file says
of itself, in lines of its opening comment such as

    // cost softmax_rows: 2*e*R*cols bytes, 4*R*cols FLOPs
    // cost attend: e*B*H*(N+S)*(D+M) bytes, 2*B*H*N*S*(D+M) FLOPs, 27 KB shared

evaluated for the problem below. Occupancy follows from these: the share of a multiprocessor's threads that as many
blocks as fit have, the least over the instantiations. The floor is the larger of bytes / bandwidth and FLOPs / arithmetic
of an H200 (NVIDIA's data sheet: 4.8 TB/s; 67 TFLOP/s in float32, 989 in bfloat16 on tensor cores, which a line asks for
with "tensor FLOPs")."""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
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
# A multiprocessor of compute capability 9.0 (CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability"). Registers are given out to a warp by 256, shared memory by 128 bytes and 1 KB more to each block.
SM_REGISTERS, SM_WARPS, SM_BLOCKS, SM_SHARED = 65536, 64, 32, 228 * 1024

COST = re.compile(r"^//\s+cost (\w+): (.+?) bytes, (.+?) (tensor )?FLOPs(?:, (\d+) KB shared)?(?=$| \()", re.M)


def nvcc():
    found = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(found, os.X_OK):
        sys.exit("kernel_table.py: error: nvcc was not found; install the CUDA Toolkit or add it to PATH")
    return found


def occupancy(registers, shared, threads):
    """The share of a multiprocessor's threads that are those of its blocks."""
    warps = -(-threads // 32)
    by_registers = SM_REGISTERS // (-(-32 * registers // 256) * 256) // warps
    by_shared = SM_SHARED // (-(-shared // 128) * 128 + 1024)
    return min(SM_BLOCKS, SM_WARPS // warps, by_registers, by_shared) * warps / SM_WARPS


def compile_one(source, arch, dynamic):
    """{kernel: (registers, shared, spills, threads, -occupancy)} of a file for one architecture; `dynamic`: the dynamic shared
    memory of its kernels."""
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc(), "-std=c++20", "--expt-relaxed-constexpr", "-O3", "-I", str(ROOT), "-DCAIRN_HAS_CUDA=1", "-Xptxas",
                   "-v", f"-arch=sm_{arch}", "--keep", "--keep-dir", folder, "-c", str(source), "-o", f"{folder}/object"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"kernel_table.py: error: {' '.join(command)}:\n{result.stderr}")
        ptx = next(Path(folder).glob("*.ptx")).read_text()
    threads = {name: int(count) for name, count in re.findall(r"\.entry (\w+)\([^{]*?\.maxntid (\d+)", ptx)}
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
    for name, (mangled, figures) in zip(plain, found.items()):
        name = re.sub(r"\(anonymous namespace\)::", "", name)
        kernel = re.search(r"(\w+)(?:<|\()", re.sub(r"^void ", "", name).split("gpu::", 1)[-1])[1]
        block = threads.get(mangled, 1024)
        figures += (block, -occupancy(figures[0], figures[1] + dynamic.get(kernel, 0), block))
        merged[kernel] = tuple(map(max, figures, merged.get(kernel, figures)))
    return merged


def evaluate(text):
    return eval(text, {"__builtins__": {}}, PROBLEM)


def human(value, units):
    for unit in units:
        if value < 1000:
            return f"{value:.3g} {unit}".rstrip()
        value /= 1000
    return f"{value * 1000:.3g} {units[-1]}"


def rows_of(source, archs):
    costs = {match[1]: match for match in COST.finditer(source.read_text())}
    dynamic = {kernel: 1024 * int(cost[5]) for kernel, cost in costs.items() if cost[5]}
    by_arch = {arch: compile_one(source, arch, dynamic) for arch in archs}
    rows = []
    for kernel, (registers, shared, _, threads, occupied) in by_arch[archs[-1]].items():
        spilled = {arch: by_arch[arch][kernel][2] for arch in archs if kernel in by_arch[arch]}
        spills = ", ".join(f"{bytes_} B on {arch}" for arch, bytes_ in spilled.items() if bytes_) or "none"
        row = (f"| `{source.stem}` | `{kernel}` | {threads} | {registers} | {shared + dynamic.get(kernel, 0)} | {spills} |"
               f" {-100 * occupied:.0f}% |")
        if kernel in costs:
            _, moved, work, tensor, _ = costs[kernel].groups()
            moved, work = evaluate(moved), evaluate(work)
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
        f"Threads a block, registers, shared memory (bytes) and occupancy for sm_{archs[-1]}, spills for "
        f"sm_{', '.join(map(str, archs))}; bytes, FLOPs and the floor in microseconds on an H200, for {size}. Not measured.",
        "", "| stem | kernel | threads | registers | shared | spills | occupancy | bytes moved | FLOPs | floor, us |",
        "|---|---|---|---|---|---|---|---|---|---|", *rows])
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
