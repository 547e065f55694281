#!/usr/bin/env python3
"""lessons.py N --build DIR [--wrong]: lesson N is red with its holes, and green with the library's code.

With --wrong: the wrong answers of tests/lessons/NN.txt are red, with the words that name the mistake. A wrong answer has
a file, lines "- old" that stand in it, lines "+ new", and a line "= pattern", which the output of the check matches.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("number", type=int)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--wrong", action="store_true")
    options = parser.parse_args()
    folder = options.build / "tests/lessons"
    copies = folder / f"{options.number:02}"
    shutil.rmtree(copies, ignore_errors=True)
    failed = False

    def lesson(command, code, *patterns, more=(), red=()):
        nonlocal failed
        place = ["--build", options.build, "--folder", folder, *red]
        words = [ROOT / "apps/lessons/lesson", *place, command, str(options.number), *more]
        ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(f"{command}: {ended.stdout}", end="")
        missing = [pattern for pattern in patterns if not re.search(pattern, ended.stdout, re.S)]
        if ended.returncode != code or missing:
            print(f"FAILED: exit code {ended.returncode}, expected {code}; not found: {missing}")
            failed = True

    lesson("start", 0, "yours: .*then: ")
    page = next((ROOT / "apps/lessons").glob(f"{options.number:02}_*.md")).read_text()
    example = re.search(rf"`apps/lessons/lesson run {options.number} (.*?)`", page)
    if example:
        lesson("run", 1, r"^lesson: still to write: [^\n]*lesson check \d+\n$", more=["copy-task"])
    done = set()
    for files in re.findall(r"<!-- program: ([^|]*?) *(?:\||-->)", page):
        if set(files.split()) <= done:
            continue
        lesson("check", 1, r"^(?!.*(stopped by|it does not)).*red: .*still to write: ")
        for name in files.split():
            shutil.copyfile(ROOT / name, copies / name)
            done.add(name)
    lesson("check", 0, "green")
    # Each name of a page has a test, there or in the lesson's own program. (Catch2 passes over one wrong name among several.)
    for files, cases in re.findall(r"<!-- program: ([^|>]*?)\|[^|>]*\|\s*(.*?) *-->", page, re.S):
        stem = next(pathlib.Path(name).stem for name in files.split() if not name.endswith((".h", ".cuh")))
        programs = [path for path in (copies / stem, *(options.build / "bin").glob("cairn-*tests")) if path.is_file()]
        for case in re.split(r"\s*;\s*", " ".join(cases.split())):
            words = ["--list-tests", case.replace(",", "\\,")]
            listed = "".join(subprocess.run([path, *words], stdout=subprocess.PIPE, text=True).stdout for path in programs)
            if not re.search("^[1-9].* matching test case", listed, re.M):
                print(f"FAILED: no test has the name {case}")
                failed = True
    # The page's `run` runs the copies: here one that says so. In every test that is tried for lesson 6 alone, to save time.
    in_program = example and example[1].startswith("copy-task")
    if in_program and (options.wrong or options.number == 6) and (options.build / "bin/copy-task").is_file():
        name = next(name for name in sorted(done) if name.startswith(("core/cpu", "autograd")) and name.endswith(".cpp"))
        text = (copies / name).read_text()
        (copies / name).write_text(text + '\n#include <cstdio>\n[[maybe_unused]] static const int said = std::puts("it is yours");\n')
        more = [*example[1].split(), "--iterations", "2"]
        lesson("run", 1, r"^lesson: [^\n]* is not green as it stands; [^\n]*lesson check \d+ [^\n]*\n$", more=more)
        lesson("run", 1, "has no program nothing", more=["nothing"], red=["--red"])
        lesson("run", 0, "it is yours.*2 steps in", more=more, red=["--red"])
        (copies / name).write_text(text)
    blocks = (ROOT / f"tests/lessons/{options.number:02}.txt").read_text().strip().split("\n\n") if options.wrong else []
    for name, *lines in map(str.splitlines, blocks):
        old, new, pattern = ("\n".join(line[2:] for line in lines if line[0] == sign) for sign in "-+=")
        text = (ROOT / name).read_text()
        if text.count(old) != 1:
            print(f"FAILED: not once in {name}: {old}")
            failed = True
        (copies / name).write_text(text.replace(old, new))
        lesson("check", 1, pattern)
        (copies / name).write_text(text)
    return failed


if __name__ == "__main__":
    sys.exit(main())
