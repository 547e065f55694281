#!/usr/bin/env python3
"""results.py: numbers are data. Checks the tables of pages against rows and claims, and writes them.

1. A measured number is a row of the results.tsv beside its program: what was measured, value (with an interval, if there is one),
   unit, variant, commit, machine, date and command. What is not known stays empty.
2. A page's comment <!-- results.tsv: WHAT --> stands before a table. WHAT with the heading of a column is the `what` of its cells.
3. The table has a line for each variant that has such a row, in the order of the rows.
4. A line of other commits than the first line names them.
5. To change a number, change its row and call results.py --write. What it replaces is in git.

nn/attention/claims.tsv has the claims of the paper and of our own, and the reviewers' questions. <!-- claims.tsv: WHERE --> stands
before a table of those whose `where` begins so; the headings are columns.

    tests/results.py [--programs build/cpu/bin]    prints what is wrong; exit code 1 if anything is
    tests/results.py --write [PAGE...]             writes the tables of the pages (default: all)
    tests/results.py --test                        plants mistakes in tables and claims: is each found?

Checked as well: the program of a command is there, and its --help (a script's text) has every option of the command. The page of a
claim is there, and has the claim's numbers, or the results.tsv beside it has them.
"""
import functools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = {"results.tsv": "what value unit variant commit machine date command",
           "claims.tsv": "claim where verdict numbers command page"}
VERDICTS = {"holds", "partly", "refuted", "untested", "tested"}  # untested: without a command and a page
MARK = re.compile(r"(<!-- (\S*\.tsv): ?(.*?) ?-->\n)((?:\|.*\n)+)")
PROGRAMS = Path("build/cpu/bin")
CLAIMS = ROOT / "nn/attention/claims.tsv"


def rows_of(path):
    head, *lines = path.read_text().splitlines()
    rows = [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]
    assert head == COLUMNS[path.name].replace(" ", "\t"), f"{path}: expected the columns {COLUMNS[path.name]}"
    return rows


def text_of(lines):
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |").replace("|  |", "| |") for line in lines)


def linked(claim, page):
    """The claim; its verdict is a link from PAGE to the claim's page, if that is another one."""
    if not claim["page"]:
        return claim
    link = os.path.relpath(ROOT / claim["page"], page.resolve().parent)
    verdict = claim["verdict"] if link == page.name else f"[{claim['verdict']}]({link})"
    return dict(claim, verdict=verdict, command=f"`{claim['command']}`")


def table(page, name, what, head):
    """The lines of the table, whose heading is HEAD."""
    path = (page.parent / name).resolve()
    headings = [cell.strip() for cell in head.strip().strip("|").split("|")]
    lines = [headings, ["---"] * len(headings)]
    if path.name == "claims.tsv":
        lines += [[linked(row, page)[heading] for heading in headings] for row in rows_of(path) if row["where"].startswith(what)]
        return text_of(lines)
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
    return text_of(lines)


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


def claim_faults(claims):
    for claim in claims:
        name, page = f"{claim['where']}: {claim['claim']}", ROOT / claim["page"]
        if claim["verdict"] not in VERDICTS:
            yield f"{name}: {claim['verdict']} is none of {sorted(VERDICTS)}"
        if (claim["verdict"] == "untested") == bool(claim["command"]) or bool(claim["command"]) != bool(claim["page"]):
            yield f"{name}: a command and a page, or untested"
        elif fault := command_fault(claim["command"]):
            yield fault
        elif claim["page"] and not page.is_file():
            yield f"{name}: no such page: {claim['page']}"
        elif claim["page"]:
            rows = page.parent / "results.tsv"
            there = MARK.sub("", page.read_text()) + (rows.read_text() if rows.is_file() else "")
            for number in re.findall(r"(?<![-\w.])\d+\.\d+|(?<![-\w.])\d+(?=%)", claim["numbers"]):
                if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", there):
                    yield f"{name}: {number} is neither on {claim['page']} nor in the rows beside it"


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
    for path in tracked("results.tsv") + [CLAIMS]:
        find = claim_faults if path == CLAIMS else row_faults
        try:
            yield from (f"{path.relative_to(ROOT)}: {fault}" for fault in find(rows_of(path)))
        except (AssertionError, ValueError) as error:
            yield f"{path.relative_to(ROOT)}: {error}"


def test():
    """The changes are in memory alone."""
    for page in tracked("*.md"):
        for mark in MARK.finditer(text := page.read_text()):
            at = max(i for i in range(*mark.span(4)) if text[i].isalnum())
            if not list(faults(page, text[:at] + ("1" if text[at] != "1" else "2") + text[at + 1:])):
                yield f"{page}: a changed character is not found: {text[at - 20:at + 1]}"
    good = next(claim for claim in rows_of(CLAIMS) if claim["verdict"] == "refuted" and "." in claim["numbers"])
    for wrong in ({"command": "nosuch"}, {"page": "nosuch.md"}, {"verdict": "so"}, {"numbers": "12.345"}, {"command": ""}):
        if not list(claim_faults([dict(good, **wrong)])):
            yield f"not found: {wrong}"
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
