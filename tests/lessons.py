#!/usr/bin/env python3
"""lessons.py N --build DIR [--wrong]: lesson N is red with its holes, and green with the library's code.
lessons.py desk --build DIR: what a teacher uses.

With --wrong: the wrong answers of tests/lessons/NN.txt are red, with the words that name the mistake. A wrong answer has
a file, lines "- old" that stand in it, lines "+ new", and a line "= pattern", which the output of the check matches.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


# A tree for learners has no answers; lesson 10 is done there, and its folder is checked here, in this edition and an older one.
def desk(build):
    tree = build.resolve() / "tests/lessons/desk"
    shutil.rmtree(tree, ignore_errors=True)
    copies, wrong = tree / "build/lessons", []

    def lesson(root, *words):
        words = [root / "apps/lessons/lesson", "--folder", copies, *words]
        ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=root)
        print(*words[3:], ":", ended.stdout[:500])
        return ended.stdout

    def expect(what, holds):
        if not holds:
            print(f"FAILED: {what}")
            wrong.append(what)

    lesson(ROOT, "export", tree)
    expect("a folder that exists is refused", re.match("lesson: .* is there", lesson(ROOT, "export", tree)))
    expect("no right answers among the wrong ones", not list(tree.glob("tests/lessons/*.txt")))
    for name in subprocess.run(["grep", "-rl", r"\[lesson [0-9]", ROOT / "apps", ROOT / "autograd", ROOT / "core", ROOT / "cuda", ROOT / "nn"],
                               stdout=subprocess.PIPE, text=True).stdout.splitlines():
        name, hole = pathlib.Path(name).relative_to(ROOT), r"\[lesson \d[^\n]*\n(.*?)lesson \d+\]"
        ours, theirs = (re.findall(hole, (root / name).read_text(), re.S) for root in (ROOT, tree))
        expect(f"{name} has holes alone", name.suffix == ".md" or all(a != b for a, b in zip(ours, theirs, strict=True)))
    lesson(tree, "start", "10")
    expect("a hole is red", lesson(tree, "check", "10").startswith("red: ") and "still to write" in lesson(tree, "check", "10"))
    puzzle = "apps/lessons/10_threads.cu"
    shutil.copyfile(ROOT / puzzle, copies / "10" / puzzle)
    expect("the answer is green", "green" in lesson(tree, "check", "10"))
    lesson(tree, "hint", "10")
    of_10 = {"lesson": 10, "title": "Threads and blocks", "green": True, "hints": 1, "changed": [], "says": ""}
    results = json.loads(lesson(ROOT, "--build", build, "check", "all", "--json"))
    expect("10 is green here", of_10 in [{key: result[key] for key in of_10} for result in results])
    expect("others were not started", {result["green"] for result in results if result["lesson"] != 10} == {None})
    state = copies / "10/state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"edition": {puzzle: "another"}}))
    expect("an older edition", re.search("changed since you started: " + puzzle, lesson(ROOT, "--build", build, "check", "10")))
    expect("the list says so", re.search("10  Threads .*green; has changed since", lesson(ROOT, "list")))
    return bool(wrong)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("number")
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--wrong", action="store_true")
    options = parser.parse_args()
    if options.number == "desk":
        return desk(options.build)
    options.number = int(options.number)
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
    # The page's `run` runs the copies: here one that says so. In every test that is tried for lesson 4 alone, to save time.
    in_program = example and example[1].startswith("copy-task")
    if in_program and (options.wrong or options.number == 4) and (options.build / "bin/copy-task").is_file():
        name = next(name for name in sorted(done) if name.startswith(("core/cpu", "autograd")) and name.endswith(".cpp"))
        text = (copies / name).read_text()
        (copies / name).write_text(text + '\n#include <cstdio>\n[[maybe_unused]] static const int said = std::puts("it is yours");\n')
        more = [*re.sub(" --iterations [0-9]+", "", example[1]).split(), "--iterations", "2"]
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
