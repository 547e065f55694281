#!/usr/bin/env python3
"""Checks nn/attention/EQUATIONS.md: each file that a row names has that equation's tag once, each tag has its row, and
each test exists."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = "nn/attention/EQUATIONS.md"


def tags(path):
    return re.findall(r"\[eq\. (\d+)\]", path.read_text())


def main():
    wrong = []
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")]
            for line in (ROOT / TABLE).read_text().splitlines() if re.match(r"\| \d", line)]
    if [row[0] for row in rows] != [str(n) for n in range(1, 18)]:
        wrong.append("expected a row for each of the equations 1 to 17, in order")
    tests = "\n".join(path.read_text() for path in sorted(ROOT.glob("tests/**/*.cpp")))
    named = set()
    for number, _, cpu, cuda, reference, test in rows:
        for file in re.findall(r"[\w/.]+/[\w/.]+", f"{cpu} {cuda} {reference}"):
            named.add((file, number))
            count = tags(ROOT / file).count(number) if (ROOT / file).is_file() else 0
            if count != 1:
                wrong.append(f"equation {number}: expected [eq. {number}] once in {file}, found it {count} times")
        count = tests.count(f"TEST_CASE({test},") + tests.count(f"TEST_CASE({test})")
        if count != 1:
            wrong.append(f"equation {number}: expected one test case {test}, found {count}")
    for folder in ("core", "cuda", "nn", "autograd", "tests"):
        for path in sorted((ROOT / folder).glob("**/*.*")):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
                file = str(path.relative_to(ROOT))
                wrong += [f"{file}: [eq. {n}] has no row" for n in tags(path) if (file, n) not in named]
    print("\n".join(f"{TABLE}: {line}" for line in wrong) or f"{len(rows)} equations, {len(named)} places")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
