"""The yardstick of kernel_table.py and cost_model.py: one GPU and one problem. It also has what both need: to read what a
kernel's file says of its kernels, and to compile that file.

The opening comment of a file has lines of three kinds:

    // size splits: max(1,S//512)
    // cost scan_keys: e*B*H*(C+S)*D bytes, 2*B*H*C*S*D FLOPs, 27 KB shared
    // trips scan_keys<bfloat16>: B*H*splits blocks, 1 launches, 128 threads, without LDG.E.U16, loops S/64 {D/16 {4} 0}

`size` names a number that later lines of the file use. `cost` holds for every element type. `trips` holds for one
instantiation; cost_model.py explains it. A following comment line with four spaces before its text continues the line. A
remark in parentheses, which begins with a lower-case letter, may end it. Numbers are expressions of the sizes in problem()
and of the functions ceil, int, log, min and max."""

import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# An H100 (SXM). The rates are what a kernel can hope for. NVIDIA's data sheet has 3.35 TB/s, 67 TFLOP/s of FP32, and 989
# TFLOP/s of bf16 for wgmma, an instruction that these kernels do not use.
BANDWIDTH, TENSOR, FLOAT32 = 3.0e12, 300e12, 33e12  # bytes a second, operations a second of mma.sync bf16 and of FP32
POPCOUNTS = 16  # a clock and multiprocessor
LAUNCH = 2e-6  # seconds
SMS, SCHEDULERS, CLOCK = 132, 4, 1.755e9  # multiprocessors, schedulers of each, clocks a second
GPU = (f"an H100 ({BANDWIDTH / 1e12:.1f} TB/s, {TENSOR / 1e12:.0f} TFLOP/s of mma.sync bf16, {FLOAT32 / 1e12:.0f} TFLOP/s of "
       f"FP32, {POPCOUNTS} popcounts a clock and SM, {LAUNCH * 1e6:.0f} us a launch)")
# A multiprocessor of compute capability 9.0 (CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability"). Registers are given out to a warp by 256, shared memory by 128 bytes and 1 KB more to each block.
SM_REGISTERS, SM_WARPS, SM_BLOCKS, SM_SHARED = 65536, 64, 32, 228 * 1024


def fail(message):
    sys.exit(f"{Path(sys.argv[0]).name}: error: {message}")


def problem(N=4096, D=64):
    """The sizes of a layer of the paper: B batch, H heads, N queries, S keys, D and M head sizes, C clusters, k top keys,
    b hash bits, i Lloyd iterations, e bytes of an element, L rounds of lsh in chunks of c; R rows of F features, F4 those of the
    feed forward, V classes, n = R F elements, P parameters."""
    sizes = dict(B=4, H=6, N=N, S=N, D=D, M=D, C=100, k=32, b=63, i=10, e=2, L=4, c=32, V=32768)
    sizes["F"] = sizes["H"] * D
    sizes["F4"] = 4 * sizes["F"]
    sizes["R"] = sizes["B"] * N
    sizes["n"] = sizes["R"] * sizes["F"]
    sizes["P"] = 12 * sizes["F"] ** 2
    return sizes


def evaluate(text, sizes):
    functions = dict(ceil=math.ceil, int=int, log=math.log, min=min, max=max)
    try:
        return eval(text, {"__builtins__": functions}, sizes)
    except (ArithmeticError, NameError, SyntaxError, TypeError, ValueError) as error:
        fail(f"cannot evaluate '{text}': {error}")


@dataclass
class Cost:
    bytes: str
    flops: str
    tensor: bool
    shared: str  # KB


@dataclass
class Trips:
    arguments: str  # of the template
    blocks: str
    launches: str
    threads: str  # "": __launch_bounds__
    without: str
    loops: str


class Description:
    """What a kernel's file says of itself: costs {kernel: Cost}, trips {kernel: [Trips]}."""

    LINE = re.compile(r"^// +(size|cost|trips) (\w+)(?:<(.+?)>)?: (.*(?:\n//    .*)*)", re.M)
    COST = re.compile(r"(.+?) bytes, (.+?) (tensor )?FLOPs(?:, (.+) KB shared)?")
    TRIPS = re.compile(r"(.+?) blocks(?:, (.+?) launches)?(?:, (.+?) threads)?(?:, without ([\w.]+))?(?:, loops (.+))?")

    def __init__(self, source):
        self.costs, self.trips, self.named = {}, {}, {}
        for kind, name, arguments, text in self.LINE.findall(source.read_text().split("#include")[0]):
            text = re.sub(r" \([a-z].*", "", re.sub(r"\n//", "", text), flags=re.S)  # without the remark
            text = " ".join(text.split())
            match = {"size": re.compile(r"(.+)"), "cost": self.COST, "trips": self.TRIPS}[kind].fullmatch(text)
            if not match:
                fail(f"{source}: cannot read the line '{kind} {name}: {text}'")
            if kind == "size":
                self.named[name] = text
            elif kind == "cost":
                self.costs[name] = Cost(match[1], match[2], bool(match[3]), match[4] or "0")
            else:
                self.trips.setdefault(name, []).append(Trips(arguments, *match.groups("")))

    def sizes(self, sizes):
        """The problem's sizes, and those that the file names."""
        sizes = dict(sizes)
        for name, text in self.named.items():
            sizes[name] = evaluate(text, sizes)
        return sizes


@dataclass
class Instantiation:
    """A kernel for some template arguments, as nvcc compiled it."""
    kernel: str
    arguments: str
    mangled: str
    registers: int
    shared: int  # static, bytes
    spills: int
    threads: int  # __launch_bounds__


def nvcc():
    found = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(found, os.X_OK):
        fail("nvcc was not found; install the CUDA Toolkit or add it to PATH")
    return found


def compile_kernels(source, arch, read_cubin=None):
    """The instantiations of a file for one architecture, and read_cubin(path of the compiled file)."""
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc(), "-std=c++20", "--expt-relaxed-constexpr", "-O3", "-I", str(ROOT), "-DCAIRN_HAS_CUDA=1", "-Xptxas",
                   "-v", f"-arch=sm_{arch}", "--keep", "--keep-dir", folder, "-c", str(source), "-o", f"{folder}/object"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            fail(f"{' '.join(command)}:\n{result.stderr}")
        ptx = next(Path(folder).glob("*.ptx")).read_text()
        read = read_cubin(next(Path(folder).glob("*.cubin"))) if read_cubin else None
    threads = {name: int(count) for name, count in re.findall(r"\.entry (\w+)\([^{]*?\.maxntid (\d+)", ptx)}
    found, spills = [], 0
    for line in result.stderr.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            mangled = match[1]
        elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spills = int(match[1]) + int(match[2])
        elif match := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found.append(Instantiation("", "", mangled, int(match[1]), int(shared[1]) if shared else 0, spills,
                                       threads.get(mangled, 1024)))
    names = "\n".join(each.mangled for each in found)
    plain = subprocess.run(["c++filt"], input=names, capture_output=True, text=True).stdout.splitlines()
    for each, name in zip(found, plain):
        name = re.sub(r"\(anonymous namespace\)::|cairn::|gpu::|^void ", "", name)
        each.kernel, each.arguments = re.match(r"(\w+)(?:<(.*?)>)?\(", name).groups("")
    return found, read


def resident_blocks(registers, shared, threads):
    """How many blocks a multiprocessor has at a time."""
    warps = -(-threads // 32)
    by_registers = SM_REGISTERS // (-(-32 * registers // 256) * 256) // warps
    by_shared = SM_SHARED // (-(-int(shared) // 128) * 128 + 1024)
    return min(SM_BLOCKS, SM_WARPS // warps, by_registers, by_shared)


def write_between(markers, table, check):
    """Puts the table between two markers of cuda/README.md, or ends with 1 unless it stands there."""
    readme, (begin, end) = ROOT / "cuda/README.md", markers
    text = readme.read_text()
    before, rest = text.split(begin)
    new = f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"
    if check and new != text:
        sys.exit(f"{Path(sys.argv[0]).name}: cuda/README.md has other tables; run cuda/{Path(sys.argv[0]).name}")
    if not check:
        readme.write_text(new)


def human(value, units):
    for unit in units:
        if value < 1000:
            return f"{value:.3g} {unit}".rstrip()
        value /= 1000
    return f"{value * 1000:.3g} {units[-1]}"
