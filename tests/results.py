#!/usr/bin/env python3
"""results.py: numbers are data. Checks the tables of pages against rows, and writes them.

1. A measured number is a row of the results.tsv beside its program: what was measured, value (with an interval, if there is one),
   unit, variant, commit, machine, date and command. What is not known stays empty.
2. A page's comment <!-- results.tsv: WHAT --> stands before a table. WHAT with the heading of a column is the `what` of its cells.
3. The table has a line for each variant that has such a row, in the order of the rows.
4. A line of other commits than the first line names them.
5. To change a number, change its row and call results.py --write. What it replaces is in git.

    tests/results.py [--programs build/cpu/bin]    prints what is wrong; exit code 1 if anything is
    tests/results.py --write [PAGE...]             writes the tables of the pages (default: all)
    tests/results.py --test                        changes a character of each table: is it found?

Checked as well: the program of a row's command is there, and its --help (a script's text) has every option of the command.
"""
import functools
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = "what value unit variant commit machine date command"
MARK = re.compile(r"(<!-- (\S*\.tsv): ?(.*?) ?-->\n)((?:\|.*\n)+)")
PROGRAMS = Path("build/cpu/bin")


def rows_of(path):
    head, *lines = path.read_text().splitlines()
    rows = [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]
    assert head == COLUMNS.replace(" ", "\t"), f"{path}: expected the columns {COLUMNS}"
    return rows


def table(page, name, what, head):
    """The lines of the table, whose heading is HEAD."""
    path = (page.parent / name).resolve()
    headings = [cell.strip() for cell in head.strip().strip("|").split("|")]
    lines = [headings, ["---"] * len(headings)]
    whats = [f"{what} {heading}".strip().replace("`", "") for heading in headings[1:]]
    rows = [row for row in rows_of(path) if row["what"] in whats]
    assert set(whats) == {row["what"] for row in rows}, f"no rows: {set(whats) - {row['what'] for row in rows}}"
    commits = {}
    for row in rows:
        commits.setdefault(row["variant"], []).append(row["commit"])
    first = set(next(iter(commits.values())))
    for variant, of in commits.items():
        label = variant if " " in variant else f"`{variant}`"
        others = "" if set(of) <= first else f" ({', '.join(sorted(set(of))) or 'commit not known'})"
        found = {row["what"]: row["value"] for row in rows if row["variant"] == variant}
        lines.append([label + others] + [found.get(cell, "") for cell in whats])
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |").replace("|  |", "| |") for line in lines)


def written(page, text):
    return MARK.sub(lambda mark: mark[1] + table(page, mark[2], mark[3], mark[4].split("\n")[0]), text)


@functools.cache
def options_of(program, subcommand):
    """What --help prints; None: no such program; "": not built."""
    if (ROOT / program).is_file():
        return (ROOT / program).read_text()
    if program not in {"cairn-tests", *(path.parent.name.replace("_", "-") for path in ROOT.glob("apps/*/main.cpp"))}:
        return None
    if not (PROGRAMS / program).is_file():
        return ""
    help_ = subprocess.run([PROGRAMS / program, *subcommand, "--help"], capture_output=True, text=True)
    return help_.stdout if help_.returncode == 0 else None


def command_fault(command):
    for part in filter(None, command.split(" && ")):
        program, *rest = shlex.split(part)
        help_ = options_of(program, tuple(rest[:1]) if rest and re.fullmatch("[a-z]+", rest[0]) else ())
        if help_ is None:
            return f"no such program: {part}"
        for option in re.findall(r"(?<!\S)--[a-z-]+", part):
            if help_ and not re.search(re.escape(option) + r"(?![a-z-])", help_):
                return f"no option {option}: {part}"


def row_faults(rows):
    seen = set()
    for row in rows:
        key = row["what"], row["variant"]
        if key in seen:
            yield f"{key}: two rows"
        seen.add(key)
        if fault := command_fault(row["command"]):
            yield fault
        if not re.fullmatch(r"[-+]?\d[\d,.e-]*( [\[(].+[\])])?", row["value"]):
            yield f"{key}: a value begins with a number: {row['value']}"
        if not re.fullmatch(r"(\d{4}-\d\d-\d\d)?", row["date"]):
            yield f"{key}: a date is 2026-11-27, or empty"


def faults(page, text):
    try:
        if text != written(page, text):
            yield "table and rows differ; correct the rows, then call tests/results.py --write"
    except (AssertionError, KeyError, OSError, ValueError) as error:
        yield str(error)


def tracked(pattern):
    return sorted(path for path in ROOT.rglob(pattern) if not {"build", ".git"} & set(path.relative_to(ROOT).parts))


def check():
    for page in tracked("*.md"):
        yield from (f"{page.relative_to(ROOT)}: {fault}" for fault in faults(page, page.read_text()))
    for path in tracked("results.tsv"):
        try:
            yield from (f"{path.relative_to(ROOT)}: {fault}" for fault in row_faults(rows_of(path)))
        except (AssertionError, ValueError) as error:
            yield f"{path.relative_to(ROOT)}: {error}"


def test():
    """The changes are in memory alone."""
    for page in tracked("*.md"):
        for mark in MARK.finditer(text := page.read_text()):
            at = max(i for i in range(*mark.span(4)) if text[i].isalnum())
            if not list(faults(page, text[:at] + ("1" if text[at] != "1" else "2") + text[at + 1:])):
                yield f"{page}: a changed character is not found: {text[at - 20:at + 1]}"
    if (PROGRAMS / "copy-task").is_file() and not command_fault("copy-task train --nosuch 1"):
        yield "not found: --nosuch"


def main(arguments):
    global PROGRAMS
    if arguments[:1] == ["--write"]:
        for page in map(Path, arguments[1:] or tracked("*.md")):
            page.write_text(written(page.resolve(), page.read_text()))
        return 0
    PROGRAMS = Path(arguments.pop(arguments.index("--programs") + 1) if "--programs" in arguments else ROOT / PROGRAMS)
    wrong = list(test() if "--test" in arguments else check())
    print("\n".join(wrong) or "nothing wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
