#!/usr/bin/env python3
"""check_sources.py BUILD: reads every source and header by itself, with the newest compilers here, and what it includes.

BUILD is a configured build folder without precompiled headers; its compile_commands.json tells how files are compiled.

clang-include-cleaner 18 or later (Debian: clang-tools-19) reads each file. So
  - each file compiles alone, headers too, and without warnings where BUILD makes them errors (CAIRN_WERROR);
  - each file includes the standard headers that it uses, because other systems' standard headers include other ones.
    VOCABULARY names the types of our interfaces: these may come through our own headers;
  - no file includes a standard header that it does not use.
Where there is a g++-N newer than the g++ of this system, that compiles all sources too, without making code.

Prints a line for each fault. Exit codes: 0 no fault, 1 faults, 77 no such clang here.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOCABULARY = {"cstddef", "cstdint", "functional", "initializer_list", "map", "memory", "optional", "set", "span", "string",
              "string_view", "utility", "vector"}
# What the tool asks for, and the headers that cannot do their work without it.
IMPLIED = {"elf.h": {"link.h"}, "ios": {"fstream", "iostream", "sstream"}, "ostream": {"fstream", "iostream", "sstream"},
           "ratio": {"chrono"}, "signal.h": {"csignal"}, "stdlib.h": {"cstdlib"}, "sys/types.h": {"sys/stat.h", "unistd.h"},
           "system_error": {"charconv", "filesystem"}, "time.h": {"csignal", "ctime"}}


def newest(name):
    """The newest NAME-VERSION in the path, as (version, command); (0, None) where there is none."""
    found = {}
    for folder in os.environ["PATH"].split(":"):
        for path in pathlib.Path(folder or ".").glob(name + "-*"):
            version = path.name[len(name) + 1:]
            if version.isdigit():
                found[int(version)] = str(path)
    return max(found.items(), default=(0, None))


def on_all_processors(function, items):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [line for lines in pool.map(function, items) for line in lines]


def diagnostics(text):
    return [line for line in text.splitlines() if re.search(r"(error|warning): ", line)]


def includes(name, quotes):
    """The headers that file NAME itself includes in such quotes."""
    text = (ROOT / name).read_text()
    return set(re.findall(rf"^\s*#\s*include {quotes[0]}([^{quotes[1]}]+){quotes[1]}", text, re.M))


def reachable(name, seen):
    """The standard headers that file NAME or one of our headers it includes, at any depth, names."""
    if name in seen or not (ROOT / name).is_file():
        return set()
    seen.add(name)
    return includes(name, "<>").union(*(reachable(header, seen) for header in includes(name, '""')))


def faults(cleaner, build, name):
    # (stable_sort of libstdc++ 12 uses what is deprecated.)
    run = subprocess.run([cleaner, "-p", build, "--extra-arg=-Wno-deprecated-declarations", "--print=changes", name],
                         cwd=ROOT, capture_output=True, text=True)
    if run.returncode != 0:
        return diagnostics(run.stderr) or [f"{name}: {run.stderr.strip()[-300:]}"]
    direct, through_ours, lines = includes(name, "<>"), reachable(name, set()), []
    for sign, header, line in re.findall(r"^([+-]) <([a-z_]+|(?:sys/)?[a-z]+\.h)>(?: @Line:(\d+))?", run.stdout, re.M):
        if sign == "-":
            lines.append(f"{name}:{line}: <{header}> is included and not used")
        elif not (header in VOCABULARY and header in through_ours) and not IMPLIED.get(header, set()) & direct:
            lines.append(f"{name}: <{header}> is used and not included")
    return lines


def portable(command):
    """A command's words that every compiler understands: no sanitizers."""
    sanitizing = ("-fsanitize", "-fno-sanitize", "-DCAIRN_HOST_CUDA_ASAN", "-DCAIRN_HOST_CUDA_TSAN")
    return [word for word in shlex.split(command) if not word.startswith(sanitizing)]


def compile_only(compiler, entry):
    words = portable(entry["command"])[1:]
    output = words.index("-o")
    del words[output:output + 2]
    run = subprocess.run([compiler, "-fsyntax-only", *words], cwd=entry["directory"], capture_output=True, text=True)
    return diagnostics(run.stderr)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    build = pathlib.Path(sys.argv[1]).resolve()
    version, cleaner = newest("clang-include-cleaner")
    if version < 18:
        print("check_sources: clang-include-cleaner 18 or later is not here (Debian: clang-tools-19)", file=sys.stderr)
        return 77
    entries = {entry["file"]: entry for entry in json.loads((build / "compile_commands.json").read_text())}
    listed = subprocess.run(["git", "--git-dir=.git", "--work-tree=.", "ls-files", "*.cpp", "*.cu", "*.h", "*.cuh"], cwd=ROOT,
                            check=True, capture_output=True, text=True).stdout.split()
    names = [name for name in listed if str(ROOT / name) in entries or name.endswith("h") and "tests/lessons" not in name]
    with tempfile.TemporaryDirectory() as database:
        commands = [{**entry, "command": shlex.join(portable(entry["command"]))} for entry in entries.values()]
        (pathlib.Path(database) / "compile_commands.json").write_text(json.dumps(commands))
        found = on_all_processors(lambda name: faults(cleaner, database, name), names)
    print(f"clang {version} read {len(names)} files")

    version, compiler = newest("g++")
    default = subprocess.run(["g++", "-dumpversion"], capture_output=True, text=True).stdout.split(".")[0]
    if version > int(default or 0):
        found += on_all_processors(lambda entry: compile_only(compiler, entry), entries.values())
        print(f"g++ {version} read {len(entries)} sources")
    else:
        print(f"no g++ here is newer than the system's own, {default}")
    print("\n".join(dict.fromkeys(found)) or "no faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
