#!/usr/bin/env python3
"""Checks the two tables of nn/attention/EQUATIONS.md, equations and gradients: each file that a row names has the row's
tag once, each tag has its row, and each test exists."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = "nn/attention/EQUATIONS.md"
EQUATIONS, GRADIENTS = [*range(1, 13), 15, 16, 17], [1, 2, 3, 4, 5, 6, 9, 10, 11, 16, 17]  # 13 and 14 repeat 10 and 9


def tags(path):
    return re.findall(r"\[((?:eq|grad)\. \d+)\]", path.read_text())


def main():
    wrong = []
    parts = (ROOT / TABLE).read_text().split("## Gradients")
    rows = [[kind] + [cell.strip() for cell in line.strip("|").split("|")]
            for kind, part in zip(("eq.", "grad."), parts) for line in part.splitlines() if re.match(r"\| \d", line)]
    numbers = [(kind, int(number)) for kind, number, *_ in rows]
    if numbers != [("eq.", n) for n in EQUATIONS] + [("grad.", n) for n in GRADIENTS]:
        wrong.append(f"expected a row for each of the equations {EQUATIONS} and gradients {GRADIENTS}, in order")
    tests = "\n".join(path.read_text() for path in sorted(ROOT.glob("tests/**/*.cpp")))
    tests = re.sub(r'"\s*\n\s*"', "", tests)  # names of two lines
    for operation in re.findall(r'OPERATION\("(\w+)"\)', tests):  # a table (tests/ops/operation.h) makes these
        tests += "".join(f'TEST_CASE("{operation}: {what}")' for what in ("values", "gradient"))
    named = set()
    for kind, number, _, *cells, named_tests in rows:
        tag = f"{kind} {number}"
        for file in re.findall(r"[\w/.]+/[\w/.]+", " ".join(cells)):
            named.add((file, tag))
            count = tags(ROOT / file).count(tag) if (ROOT / file).is_file() else 0
            if count != 1:
                wrong.append(f"expected [{tag}] once in {file}, found it {count} times")
        for test in re.findall(r'"[^"]+"', named_tests) or [named_tests]:
            count = len(re.findall(rf"TEST_CASE\({re.escape(test)}[,)]", tests))
            if count != 1:
                wrong.append(f"[{tag}]: expected one test case {test}, found {count}")
    for folder in ("core", "cuda", "nn", "autograd", "tests"):
        for path in sorted((ROOT / folder).glob("**/*.*")):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
                file = str(path.relative_to(ROOT))
                wrong += [f"{file}: [{tag}] has no row" for tag in tags(path) if (file, tag) not in named]
    print("\n".join(f"{TABLE}: {line}" for line in wrong) or f"{len(rows)} rows, {len(named)} places")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
