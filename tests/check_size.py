#!/usr/bin/env python3
"""check_size.py: counts lines of code and the words of pages, and fails where a total is more than 2% above its number.

Lines of code are those of tracked files that end with .h .cpp .cu .cuh .py .sh, without blank lines and lines that are only
a comment. Words are those of tracked .md files, but for tables of figures and the pages in TEXTBOOKS.

Prints the lines of each folder (of two levels) and the totals. Exit codes: 0 within the limits, 1 beyond one, or git cannot
list the files.
"""
import collections
import pathlib
import re
import subprocess
import sys

# The numbers last reached. Lower them as work goes on. Raise one only with a reason in the commit.
# Lately, outside tests: 500 lines for the paper's tables on speech (`speech compare`, tables.sh), 420 for the paper's table 4
# (`answers`), 1000 for the lessons and their meter. Words: results of a GPU, of speech and of `answers`; words of CUDA in the glossary.
NUMBERS = {"lines outside tests": 26150, "lines in tests": 16222, "words of pages": 19850, "words of lessons": 6860}
LIMITS = {what: number * 102 // 100 for what, number in NUMBERS.items()}

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh"}
TEXTBOOKS = {"nn/TUTORIAL.md", "core/READING.md"}  # and apps/lessons/, which has a limit of its own


def tracked_files():
    listed = subprocess.run(["git", "--git-dir=.git", "--work-tree=.", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE,
                            text=True, check=True)
    paths = [pathlib.Path(name) for name in listed.stdout.split("\0") if name]
    return [path for path in paths if (ROOT / path).is_file()]


def lines_of_code(path):
    comment = "#" if path.suffix in {".py", ".sh"} else "//"
    lines = [line.strip() for line in path.read_text().splitlines()]
    return sum(bool(line) and not line.startswith(comment) for line in lines)


def holds_figures(table):
    """Does at least half of the cells behind a row's name begin with a digit? TABLE has its head and the line below it."""
    cells = [cell.strip() for row in table[2:] for cell in row.strip().strip("|").split("|")[1:]]
    return 2 * sum(bool(re.match(r"[-+<]?\d", cell)) for cell in cells) >= len(cells) > 0


def words(text):
    count, table = 0, []
    for line in text.splitlines() + [""]:
        if line.startswith("|"):
            table.append(line)
            continue
        if not holds_figures(table):
            count += sum(len(row.split()) for row in table)
        table = []
        count += len(line.split())
    return count


def main():
    lines = collections.Counter()
    totals = dict.fromkeys(LIMITS, 0)
    for path in tracked_files():
        if path.suffix in SOURCES:
            count = lines_of_code(ROOT / path)
            lines["/".join(path.parts[:-1][:2])] += count
            totals["lines in tests" if path.parts[0] == "tests" else "lines outside tests"] += count
        elif path.suffix == ".md" and path.parts[:2] == ("apps", "lessons"):
            seen = re.sub(r"<!--.*?-->", "", (ROOT / path).read_text(), flags=re.S)  # by a reader
            totals["words of lessons"] += words(seen)
        elif path.suffix == ".md" and str(path) not in TEXTBOOKS:
            totals["words of pages"] += words((ROOT / path).read_text())
    for folder, count in sorted(lines.items()):
        print(f"{folder:22}{count:8,}")
    for what, count in totals.items():
        print(f"{what:22}{count:8,}  (limit {LIMITS[what]:,})")
    beyond = [what for what, count in totals.items() if count > LIMITS[what]]
    for what in beyond:
        print(f"check_size.py: {what}: {totals[what]:,}, expected at most {LIMITS[what]:,}; take something out, or raise the "
              "limit with a reason in the commit", file=sys.stderr)
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
