"""Reads a kernel's machine code (SASS) for cost_model.py. It finds the loops. For one pass through a loop it counts the
instructions by kind, and the clocks that a warp needs when it has the multiprocessor to itself.

Loops are the natural loops of the control flow graph. The targets of BRA.DIV are left out: only a warp whose lanes have
diverged runs them. Both sides of any other branch count, so the counts are rather too high. A `trips` line corrects the worst
of that. A loop of 0 trips does not run, and neither does code that is reached through that loop alone. The same holds
for code with the instruction that the line names after `without`.

A warp issues its instructions in order. The compiler writes two things into each instruction. The first is how many clocks
the next one has to wait, which covers arithmetic of fixed latency. The second is which of six barriers it sets and waits
for, which covers memory, shuffles and special functions. LATENCY states how long those take."""

import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field

# Which pipe an instruction goes to, by its beginning; all others are "integer". IMMA (m16n8k32 of bytes) has twice the operations
# of HMMA (m16n8k16 of bf16) at twice the rate, so both take equally long.
KINDS = {"tensor": ("HMMA", "IMMA"), "float32": ("FFMA", "FADD", "FMUL"), "special": ("MUFU", "F2I", "I2F", "F2F", "FRND"),
         "popcount": ("POPC",), "shared": ("LDS", "STS", "ATOMS", "SHFL"), "global": ("LD", "ST", "ATOMG", "RED", "ATOM")}
# Clocks from issue to result. Global memory takes about 40 (L1 cache), 270 (L2 cache) or 600. Asynchronous copies count as
# done: the kernels wait for them a tile later.
LATENCY = {"global": 300, "shared": 30, "special": 24, "popcount": 24, "integer": 24, "tensor": 33, "float32": 24}
BARRIER = 30  # __syncthreads, once the others are there
OPERANDS = 12  # until a load or store has read its registers


@dataclass
class Instruction:
    address: int
    text: str
    control: int
    name: str = ""
    kind: str = "integer"

    def __post_init__(self):
        self.name = re.sub(r"^@!?U?P\w+ +", "", self.text).split(" ")[0]
        for kind, beginnings in KINDS.items():
            if self.name.startswith(beginnings) and not self.name.startswith("LDC"):
                self.kind = kind
                break

    @property
    def shared_clocks(self):
        """Clocks of the multiprocessor's shared memory, which moves 128 bytes in each. An access of 8 or 16 bytes a lane
        counts as two clocks, because here several lanes mostly read the same bytes."""
        return 0 if self.kind != "shared" else 4 if ".M88.4" in self.name else 2 if re.search(r"\.(128|64)", self.name) else 1


@dataclass
class Loop:
    """Or all of a kernel, as a loop of one trip. `own`: its instructions outside its inner loops."""
    header: int  # block
    body: set = field(default_factory=set)
    inner: list = field(default_factory=list)
    own: list = field(default_factory=list)

    def all(self):
        return [self] + [loop for inner in self.inner for loop in inner.all()]

    def shape(self):
        return " ".join(f"{len(x.own)}" + (f" {{{x.shape()}}}" if x.inner else "") for x in self.inner)


@dataclass
class Pass:
    """What a warp does in one pass through a loop, without inner ones."""
    kinds: Counter
    shared_clocks: int
    lone_clocks: int  # by a warp alone

    @property
    def instructions(self):
        return sum(self.kinds.values())


def read_functions(cuobjdump, cubin):
    """{mangled name: [Instruction]} of a compiled file."""
    text = subprocess.run([cuobjdump, "-sass", str(cubin)], capture_output=True, text=True, check=True).stdout
    functions = {}
    for part in text.split("Function : ")[1:]:
        lines = re.findall(r"/\*([0-9a-f]{4,})\*/ +(.*?) *; +/\* 0x\w+ \*/\s+/\* 0x(\w+) \*/", part)
        functions[part.split()[0]] = [Instruction(int(at, 16), line, int(word, 16) >> 41) for at, line, word in lines]
    return functions


def blocks_of(code):
    """Basic blocks [[Instruction]], and the blocks that may follow each."""
    def target(x):
        return int(x.text.rsplit("0x", 1)[1].split()[0].rstrip(")"), 16) if x.name.startswith("BRA") else None

    starts = {code[0].address} | {target(x) for x in code if x.name.startswith("BRA")}
    starts |= {after.address for x, after in zip(code, code[1:]) if x.name.startswith(("BRA", "EXIT", "RET"))}
    blocks = []
    for x in code:
        if x.address in starts:
            blocks.append([])
        blocks[-1].append(x)
    number = {block[0].address: i for i, block in enumerate(blocks)}
    following = []
    for i, block in enumerate(blocks):
        last, after = block[-1], [i + 1] if i + 1 < len(blocks) else []
        leaves = last.name.startswith(("EXIT", "RET")) or last.name.startswith("BRA") and ".DIV" not in last.name
        sure = leaves and not last.text.startswith("@") and not re.search(r"BRA\S* !?U?P", last.text)
        goes = [number[target(last)]] if last.name.startswith("BRA") and ".DIV" not in last.name else []
        following.append(goes + ([] if sure else after))
    return blocks, following


def dominators(following):
    """For each block that is reached, the set of blocks through which every way to it leads."""
    order, seen, stack = [], {0}, [(0, iter(following[0]))]
    while stack:
        block, rest = stack[-1]
        for other in rest:
            if other not in seen:
                seen.add(other)
                stack.append((other, iter(following[other])))
                break
        else:
            order.append(block)
            stack.pop()
    before = {block: [] for block in order}
    for block in order:
        for other in following[block]:
            before[other].append(block)
    found, changed = {0: {0}}, True
    while changed:
        changed = False
        for block in reversed(order[:-1]):
            sets = [found[other] for other in before[block] if other in found]
            new = set.intersection(*sets) | {block}
            if found.get(block) != new:
                found[block], changed = new, True
    return found, before


class Code:
    """A kernel's loops."""

    def __init__(self, instructions):
        self.blocks, following = blocks_of(instructions)
        self.dominators, before = dominators(following)
        self.passes = {}
        loops = {}
        for block in self.dominators:
            for header in set(following[block]) & self.dominators[block]:
                body = loops.setdefault(header, Loop(header, {header})).body
                stack = [block]
                while stack:
                    if (other := stack.pop()) not in body:
                        body.add(other)
                        stack += before[other]
        self.kernel = Loop(-1, set(self.dominators))
        for loop in sorted(loops.values(), key=lambda loop: (-len(loop.body), loop.header)):
            parent = self.kernel
            while outer := next((x for x in parent.inner if loop.header in x.body), None):
                parent = outer
            parent.inner.append(loop)
        for loop in self.kernel.all():
            loop.inner.sort(key=lambda inner: inner.header)
            loop.own = self.own(loop, set())

    def own(self, loop, dead):
        blocks = loop.body - dead - set().union(*(inner.body for inner in loop.inner))
        return [x for block in sorted(blocks) for x in self.blocks[block]]

    def run(self, trips, without):
        """[(how often a warp passes through in all, Pass)] of the loops that run, and of the code outside loops. `trips`:
        [(trips, [of inner loops])] in the order of the code; 0 means that the loop and its inner loops do not run.
        `without`: an instruction. A block that has it does not run, unless every way to some loop leads through it."""
        total, never = {-1: 1}, set()

        def assign(loop, numbers, outer):
            if len(numbers) != len(loop.inner):
                raise ValueError(f"the code has the loops {self.kernel.shape()} (instructions of each, without inner ones)")
            for inner, (count, inside) in zip(loop.inner, numbers):
                if count == 0:
                    never.add(inner.header)
                else:
                    total[inner.header] = outer * count
                    assign(inner, inside, outer * count)

        assign(self.kernel, trips, 1)
        loops = self.kernel.all()
        if (key := (frozenset(never), without)) not in self.passes:
            needed = set().union(*(self.dominators[loop.header] for loop in loops[1:]))
            never |= {i for i, block in enumerate(self.blocks) if without and i not in needed
                      and any(x.name == without for x in block)}
            dead = {block for block in self.dominators if self.dominators[block] & never}
            self.passes[key] = {loop.header: one_pass(self.own(loop, dead)) for loop in loops}
        return [(total[header], each) for header, each in self.passes[key].items() if header in total]


def one_pass(code):
    clock, ready, begun = 0, [0] * 6, 0
    for _ in range(2):  # the second pass finds results of the first on their way, as in a loop
        begun = clock
        for x in code:
            for i in range(6):
                if x.control >> 11 >> i & 1:
                    clock = max(clock, ready[i])
            if x.name.startswith("BAR"):
                clock += BARRIER
            sets, reads = x.control >> 5 & 7, x.control >> 8 & 7
            if sets < 6 and not x.name.startswith(("LDGSTS", "LDGDEPBAR")):
                ready[sets] = clock + LATENCY[x.kind]
            if reads < 6:
                ready[reads] = max(ready[reads], clock + OPERANDS)
            clock += x.control & 15
    return Pass(Counter(x.kind for x in code), sum(x.shared_clocks for x in code), clock - begun)
