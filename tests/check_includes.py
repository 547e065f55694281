#!/usr/bin/env python3
"""check_includes.py: holds every #include to the line "**May include**: ..." of its folder's README.

A folder's rule is that of the nearest README above a file that has one. Its sentence has clauses, separated by
semicolons; names stand in backquotes:
  `core/`, `<xxhash.h>`               folders and headers of other libraries
  `<xxhash.h>` in .cpp files          in these files alone
  `<xxhash.h>` in `a.cpp` and `b.cpp`
  at no depth `core/tensor.h`         neither directly nor through other headers
Besides, a file may include what has the same rule, and the standard's and the system's headers.

Prints a line for each fault. Exit codes: 0 no fault, 1 faults.
"""
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["core", "autograd", "nn", "cuda", "apps"]
OTHERS = re.compile(r"(nlohmann|CLI|catch2)/|xxhash|utf8proc|sndfile|kiss_|cublas|cuda|mpi\.h")


@functools.cache
def rule(folder):
    """The folder and the sentence of the rule that holds in FOLDER."""
    readme = ROOT / folder / "README.md"
    line = readme.is_file() and re.search(r"\*\*May include\*\*: (.*?)\.\s", readme.read_text() + "\n", re.S)
    return (str(folder), " ".join(line[1].split())) if line else rule(folder.parent) if folder.name else ("", "")


@functools.cache
def includes(path):
    """What file PATH includes: paths from the root, and <headers>."""
    found = re.findall(r'^\s*#\s*include\s+(?:"([^"]+)"|(<[^>]+>))', (ROOT / path).read_text(), re.M)
    return [header or (f"{path.parent}/{ours}" if (ROOT / path.parent / ours).is_file() else ours) for ours, header in found]


@functools.cache
def reached(path):
    ours = {name for name in includes(path) if (ROOT / name).is_file()}
    return ours.union(*(reached(pathlib.Path(name)) for name in ours))


def permits(clause, path, name):
    what, _, where = clause.partition(" in ")
    names = re.findall(r"`([^`]+)`", what)
    if where and not ("`" + str(path) + "`" in where or ".cpp files" in where and path.suffix == ".cpp"):
        return False
    return name in names or any(folder.endswith("/") and name.startswith(folder) for folder in names)


def faults(path):
    folder, sentence = rule(path.parent)
    if not sentence:
        return [f"{path}: no README above it says what it may include"]
    clauses = sentence.split("; ")
    never = [c for c in clauses if c.startswith("at no depth")]
    lines = []
    for name in includes(path):
        alike = not name.startswith("<") and rule(pathlib.Path(name).parent)[0] == folder
        harmless = name.startswith("<") and not OTHERS.match(name[1:])
        if not (alike or harmless or any(permits(c, path, name) for c in clauses if c not in never)):
            lines.append(f"{path}: includes {name}, and {folder}/README.md says: {sentence}")
    for name in re.findall(r"`([^`]+)`", " ".join(never)):
        if name in reached(path):
            lines.append(f"{path}: includes something that includes {name}, and {folder}/README.md says: {sentence}")
    return lines


def main():
    files = [path.relative_to(ROOT) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
             if path.suffix in (".h", ".cpp", ".cu", ".cuh")]
    found = [line for path in files for line in faults(path)]
    print("\n".join(found) or f"{len(files)} files include what they may")
    return 1 if found or len(files) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
