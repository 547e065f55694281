#!/usr/bin/env python3
"""Writes the table of kernels into cuda/README.md: `cuda/kernel_table.py`, or `--check` to see whether it is up to date
without writing, or `--arch 90 cuda/softmax.cu ...` to print the rows of some files.

Threads of a block (__launch_bounds__), registers, shared memory and spills are what nvcc says (-Xptxas -v), the largest over
a kernel's instantiations. Bytes and FLOPs, and dynamic shared memory where there is any, are what the kernel's file says
of itself, in lines of its opening comment such as

    // cost softmax_short: 2*e*R*cols bytes, 4*R*cols FLOPs
    // cost attend: e*B*H*(N+S)*(D+M) bytes, 2*B*H*N*S*(D+M) FLOPs, 27 KB shared

evaluated for the problem of yardstick.py. Occupancy follows from these: the share of a multiprocessor's threads that as many
blocks as fit have, the least over the instantiations. The floor is the larger of bytes / bandwidth and FLOPs / arithmetic
of the GPU of yardstick.py; a line asks for tensor cores with "tensor FLOPs"."""

import argparse
import concurrent.futures
import os
from pathlib import Path

from yardstick import (BANDWIDTH, FLOAT32, GPU, ROOT, SM_WARPS, TENSOR, Description, compile_kernels, evaluate, fail, human,
                       problem, resident_blocks, write_between)

MARKERS = "<!-- kernels: written by cuda/kernel_table.py -->", "<!-- end of kernels -->"


def compile_one(source, arch, dynamic):
    """{kernel: (registers, shared, spills, threads, -occupancy)} of a file for one architecture; `dynamic`: the dynamic shared
    memory of its kernels."""
    merged = {}
    for each in compile_kernels(source, arch)[0]:
        warps = -(-each.threads // 32)
        occupied = warps * resident_blocks(each.registers, each.shared + dynamic.get(each.kernel, 0), each.threads)
        figures = (each.registers, each.shared, each.spills, each.threads, -occupied / SM_WARPS)
        merged[each.kernel] = tuple(map(max, figures, merged.get(each.kernel, figures)))
    return merged


def rows_of(source, archs):
    description = Description(source)
    sizes, costs = description.sizes(problem()), description.costs
    dynamic = {kernel: int(1024 * evaluate(cost.shared, sizes)) for kernel, cost in costs.items()}
    by_arch = {arch: compile_one(source, arch, dynamic) for arch in archs}
    rows = []
    for kernel, (registers, shared, _, threads, occupied) in by_arch[archs[-1]].items():
        spilled = {arch: by_arch[arch][kernel][2] for arch in archs if kernel in by_arch[arch]}
        spills = ", ".join(f"{bytes_} B on {arch}" for arch, bytes_ in spilled.items() if bytes_) or "none"
        row = (f"| `{source.stem}` | `{kernel}` | {threads} | {registers} | {shared + dynamic.get(kernel, 0)} | {spills} |"
               f" {-100 * occupied:.0f}% |")
        if kernel in costs:
            moved, work = evaluate(costs[kernel].bytes, sizes), evaluate(costs[kernel].flops, sizes)
            floor = max(moved / BANDWIDTH, work / (TENSOR if costs[kernel].tensor else FLOAT32))
            row += f" {human(moved, ['B', 'kB', 'MB', 'GB'])} | {human(work, ['', 'k', 'M', 'G', 'T'])} |"
            row += f" {floor * 1e6:.3g} |"
        else:
            row += " - | - | - |"
        rows.append(row)
    if missing := (set(costs) | set(description.trips)) - set(by_arch[archs[-1]]):
        fail(f"{source}: costs or trips of kernels that are not there: {', '.join(sorted(missing))}")
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
    size = ", ".join(f"{name} = {value:,}" for name, value in problem().items())
    table = "\n".join([
        f"Threads a block, registers, shared memory (bytes) and occupancy for sm_{archs[-1]}, spills for "
        f"sm_{', '.join(map(str, archs))}; bytes, FLOPs and the floor in microseconds on {GPU}; for {size} (`problem` in "
        "cuda/yardstick.py says what they are). Threads, registers, static shared memory, spills and occupancy are the worst of "
        "all instantiations; the rest is for bfloat16 and these sizes. Not measured.",
        "", "| stem | kernel | threads | registers | shared | spills | occupancy | bytes moved | FLOPs | floor, us |",
        "|---|---|---|---|---|---|---|---|---|---|", *rows])
    if options.sources:
        print(table)
        return
    write_between(MARKERS, table, options.check)
    print(f"{len(rows)} kernels")


if __name__ == "__main__":
    main()
