#!/usr/bin/env python3
"""sass.py: what nvcc made of every kernel, as the table cuda/sass.tsv. Needs no GPU.

    tests/sass.py build/cuda/libcairn.a build/cuda/libcairn_ladder.a           writes the table
    tests/sass.py --check build/cuda/libcairn.a build/cuda/libcairn_ladder.a   fails where the libraries differ from the table

The libraries have code for sm_90 (-DCMAKE_CUDA_ARCHITECTURES=90-real). Code of another nvcc than the table's is not compared.
cuobjdump comes with the CUDA Toolkit, or from PyPI (nvidia-cuda-cuobjdump).

threads: of a block, at most. registers: of a thread. stack: its bytes of local memory, where spilled registers and local arrays lie.
shared: bytes of a block; sizes that only the launch knows are left out (k-means, reduce_cluster).
blocks: how many of them one multiprocessor of an H100 holds. instructions: of the kernel, with padding. loop: those of its longest
loop, with rare paths and the loops within it. block: those of the largest basic block in a loop.
"""
import collections
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "cuda/sass.tsv"
COLUMNS = "kernel threads registers stack shared blocks instructions loop block".split()
MOST_SHARED, TAKEN = 99 * 1024, 1024  # bytes of shared memory that every GPU with tensor cores has for a block, and CUDA takes
PLACES = [os.environ["PATH"], "/usr/local/cuda/bin", *(f"{place}/nvidia/cu13/bin" for place in sys.path)]


def output(command, *arguments):
    program = shutil.which(command, path=":".join(PLACES)) or sys.exit(f"sass.py: found no {command}")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


def short(name, symbol=""):
    """A demangled name without namespaces, result and parameters; it begins with the file if the kernel is in an unnamed namespace."""
    file = re.search(r"_GLOBAL__N__[0-9a-f]+_\d+_(\w+?)_cu_", symbol)
    name = re.sub(r"cairn::|gpu::|ladder::|\(anonymous namespace\)::|^void ", "", name)
    depth = 0
    for end, letter in enumerate(name + "("):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            break
    return (file[1] + ": " if file else "") + name[:end]


def longest(code):
    """Instructions of the longest loop and of the largest basic block in a loop, of code with (address, instruction)."""
    starts, loops = {code[0][0]}, []
    for (address, text), (following, _) in zip(code, code[1:]):
        if re.search(r"\b(BRA|BRX|EXIT|RET|CALL)\b", text):
            starts.add(following)
        if target := re.search(r"\bBRA\b.*\b0x([0-9a-f]+)", text):
            starts.add(int(target[1], 16))
            loops += [(int(target[1], 16), address)] if int(target[1], 16) < address else []
    blocks, start = collections.Counter(), 0
    for address, _ in code:
        start = address if address in starts else start
        blocks[start] += any(first <= address <= last for first, last in loops)
    return max((last - first) // 16 + 1 for first, last in loops or [(0, -16)]), max(blocks.values())


def table_of(libraries):
    dump = ["".join(output("cuobjdump", "-arch", "sm_90", option, library) for library in libraries)
            for option in ("-sass", "-res-usage", "-elf")]
    usage = {name: tuple(map(int, numbers)) for name, *numbers in
             re.findall(r"Function (\S+):\n\s*REG:(\d+) STACK:(\d+) SHARED:(\d+)", dump[1])}
    threads, kernel = {}, None
    for name, number in re.findall(r"^\.nv\.info\.(\S+)|EIATTR_MAX_THREADS\n.*\n\s*Value:\s*0x(\w+)", dump[2], re.M):
        kernel = name or kernel
        threads[kernel] = int(number or "400", 16)
    names = dict(zip(usage, output("c++filt", *usage).splitlines()))
    dynamic = {(f"{file}: " if "(anonymous" in kernel else "") + short(kernel): int(size) for file, kernel, size in re.findall(
        r"(\w+)\.cu\.o:\S* \w cairn::gpu::allowed<&\(?(.*?)\)?, (\d+)ul>$", output("nm", "-AC", *libraries), re.M)}
    rows = {}
    for name, text in re.findall(r"Function : (\S+)\n(.*?)\n\t\t\.\.\.", dump[0], re.S):
        code = [(int(address, 16), line) for address, line in re.findall(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", text, re.M)]
        registers, stack, shared = usage[name]
        kernel, warps = short(names[name], name), (threads[name] + 31) // 32
        begin = next((place for place, (_, line) in enumerate(code) if "ACQBULK" in line), 0)  # wait_for_earlier_launches()
        if any(re.search(r"\b(LDG|LD|STG|ST|LDGSTS|ATOM|ATOMG|RED|EXIT)\b", line) for _, line in code[:begin]):
            sys.exit(f"sass.py: {kernel} uses memory, or ends, before it waits for earlier launches")
        shared = max(shared - TAKEN, 0) + dynamic.get(kernel, 0)
        of_block = -(shared + TAKEN) // 128 * -128
        blocks = min(4 * (16384 // (32 * (-registers // 8 * -8))) // warps, 228 * 1024 // of_block, 64 // warps, 32)
        rows[kernel] = [threads[name], registers, stack, shared, blocks, len(code), *longest(code)]
    compiler = re.search(r"release [\d.]+, V([\d.]+)", dump[2])[1]
    return f"nvcc {compiler}, sm_90\n" + "".join("\t".join(map(str, line)) + "\n" for line in [
        COLUMNS, *([kernel, *rows[kernel]] for kernel in sorted(rows))])


def main(arguments):
    text = table_of([argument for argument in arguments if argument != "--check"])
    large = [line for line in text.splitlines()[2:] if int(line.split("\t")[4]) > MOST_SHARED]
    if arguments[0] != "--check":
        TABLE.write_text(text)
        return bool(large and print("more shared memory than every GPU has:", *large, sep="\n") is None)
    old, new = TABLE.read_text().splitlines(), text.splitlines()
    wrong = large + ([f"{'-' if line in old else '+'} {line}" for line in sorted({*old} ^ {*new})] if old[0] == new[0] else [])
    print(*wrong or [f"{len(new) - 2} kernels: " + ("as in the table" if old[0] == new[0] else f"not compared, {new[0]}")], sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
