#!/usr/bin/env python3
"""Runs the shell sessions in a file, and compares what the programs print and their exit codes.

    $ copy-task trian          a command for bash; all commands of a file run in one temporary folder; $SOURCE is the
                               folder of the sources
    copy-task: error: ...      its output, with standard error; "..." stands for any text within a line
    [2]                        its exit code, unless it is 0

Lines with less indentation are comments. --write writes the actual output into the file; read the difference then.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

INDENT = "    "


def blocks(text):
    """Pairs: a comment or command, and the expected output of the command."""
    found = []
    for line in text.splitlines():
        if line.startswith(INDENT) and not line.startswith(INDENT + "$ ") and found:
            found[-1][1].append(line.removeprefix(INDENT))
        else:
            found.append((line, []))
    return found


def run(command, folder, programs):
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "NO_COLOR": "1",
                   "SOURCE": str(Path(__file__).resolve().parents[2])}
    # After the time limit, exit code 124; timeout(1) ends the programs too.
    ended = subprocess.run(["timeout", "120", "bash", "-c", command], cwd=folder, env=environment,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = ended.stdout.decode(errors="replace").splitlines()
    return lines + ([f"[{ended.returncode}]"] if ended.returncode else [])


def matches(expected, printed):
    pattern = "\n".join(".*".join(re.escape(part) for part in line.split("...")) for line in expected)
    return re.fullmatch(pattern, "\n".join(printed)) is not None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", required=True, type=Path, help="the folder that they are in")
    parser.add_argument("--write", action="store_true", help="write down what was printed")
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    sessions = blocks(options.file.read_text())
    failed = 0
    text = []
    with tempfile.TemporaryDirectory() as folder:
        for line, expected in sessions:
            text.append(line)
            if not line.startswith(INDENT + "$ "):
                continue
            printed = run(line.removeprefix(INDENT + "$ "), folder, options.programs.resolve())
            same = matches(expected, printed)
            text += [INDENT + each for each in (expected if same else printed)]
            if not same:
                failed += 1
                print(line.strip(), "expected:", *expected, "printed:", *printed, "", sep="\n")
    if options.write:
        options.file.write_text("\n".join(text) + "\n")
    print(f"{len([line for line, _ in sessions if line.startswith(INDENT)])} commands, {failed} not as written")
    return 1 if failed and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
