#!/usr/bin/env python3
"""Tests the programs against failing calls, kills, damaged files, signals and full disks. See README.md."""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
# A model so small that a process takes about ten milliseconds.
MODEL = ("--length 3 --layers 1 --heads 1 --head-size 4 --feed-forward 4 --batch 2 --threads 1 --checkpoint-every 2"
         " --sequences 8 --quiet")
TRAIN = f"copy-task train {MODEL} --iterations 6 --out run"
RESUME = "copy-task train --quiet --out run --resume"
ENDLESS = f"copy-task train {MODEL} --iterations 100000000 --out run"
EVALUATE = "copy-task evaluate --quiet --run run --sequences 1"
FIGURE = f"copy-task figure {MODEL[11:]} --iterations 3 --variants full,clustered-2 --lengths 3,4 --out run"
INDEX = ("text-search index texts --quiet --model \"$GOLDEN/bert\" --out index --batch 1 --passage-tokens 66"
         " --save-every 0 --threads 1")
ATTEND = ("attend --quiet --in \"$GOLDEN/attend/self.safetensors\" --attention full"
          " --out result.safetensors --picture w.svg")
WATCHDOG = 300  # seconds after which a process counts as hanging; no test depends on speed
TIMES = re.compile(r"seconds|per_second|peak_bytes|time")


@dataclass
class Target:
    """A command whose calls go wrong, one at a time. Then the command `again` must succeed and leave the same files as
    `command` without a fault."""

    name: str
    command: str
    again: str
    prepare: str = "true"  # a bash command, in an empty folder
    share: int = 1  # one in `share` of its calls is tried, because it takes long


TARGETS = (
    Target("a training", TRAIN, f"{RESUME} || {TRAIN}"),
    Target("a training that is resumed", f"{RESUME} --iterations 6", f"{RESUME} --iterations 6",
           TRAIN.replace("--iterations 6", "--iterations 3")),
    Target("a training resumed past a damaged checkpoint", f"{RESUME} --iterations 6", f"{RESUME} --iterations 6",
           TRAIN.replace("--iterations 6", "--iterations 4") + "; echo >>run/checkpoint/checksums", share=2),
    Target("a figure", FIGURE, FIGURE, share=6),
    Target("an index", INDEX, INDEX, "mkdir texts; echo one text >texts/a; echo another >texts/b"),
    Target("attention on tensors", ATTEND, ATTEND,
           "echo old >result.safetensors; echo old >w.svg"),
)
FAULTS = ("kill", "power", "fail:ENOSPC", "fail:EIO", "short")


class Bench:
    def __init__(self, programs, faults):
        self.scratch = Path(tempfile.mkdtemp(prefix="cairn-fault-"))
        self.faults = self.scratch / "faults.so"
        self.faults.symlink_to(faults)  # LD_PRELOAD cannot name a path with blanks
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8",
                            "GOLDEN": str(HERE.parent / "golden")}
        self.processes = 0

    def folder(self):
        return Path(tempfile.mkdtemp(dir=self.scratch))

    def run(self, command, folder, fault=None, log=None):
        """Runs a bash command. The fault is only in the last program that it starts."""
        self.processes += 1
        environment = dict(self.environment)
        if fault:
            environment.update(LD_PRELOAD=str(self.faults), CAIRN_FAULT=fault, CAIRN_FAULT_LOG=str(log or "/dev/null"))
            command = f"exec {command}"
        return subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=WATCHDOG)

    def must(self, command, folder, **how):
        ended = self.run(command, folder, **how)
        if ended.returncode:
            raise Failure(f"{command}: {outcome(ended)}")
        return ended


class Failure(Exception):
    """A check that failed, with the reason."""


def outcome(ended):
    return f"exit code {ended.returncode}, {ended.stderr[-400:]!r}"


def expect(condition, *what):
    if not condition:
        raise Failure(" ".join(map(str, what)))


def expect_error(ended, *codes, message=""):
    """Checks that a process ended with one of the codes and, unless that is 0 or 130, with one line."""
    expect(ended.returncode in codes, f"expected exit code {codes}, got {outcome(ended)}")
    if ended.returncode in (0, 130):
        return
    lines = ended.stderr.splitlines()
    expect(lines and re.match(r"[\w-]+: error: ", lines[-1]) and re.search(message, lines[-1]),
           f"expected one line that matches /{message}/, got {outcome(ended)}")


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if not TIMES.search(key)}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def contents(folder):
    """The contents of a folder's files by name, without times. Every file must be complete."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or path.name in (".lock", "checksums", "checkpoint.json"):
            continue
        if re.search(r"\.\d+\.new$", name):  # incomplete file of a killed process
            continue
        if path.suffix in (".html", ".svg"):
            ElementTree.parse(path)  # its times are not worth a parser
            found[name] = "whole"
        elif path.suffix == ".jsonl":
            found[name] = [without_times(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.suffix == ".json":
            found[name] = without_times(json.loads(path.read_text()))
        else:
            found[name] = hashlib.sha256(path.read_bytes().replace(bytes(folder), b"")).hexdigest()
    return found


def expect_same(folder, reference, what):
    mine = contents(folder)
    names = [name for name in sorted(mine.keys() | reference.keys())
             if mine.get(name) != reference.get(name) and "checkpoint.previous" not in name]
    expect(not names, f"{what}: differs from a run without a fault: {', '.join(names)}")


# ---- calls that fail, and kills

def target_cases(bench, target, every):
    """Yields test cases: pairs of a name and a function that raises Failure."""
    folder = bench.folder()
    bench.must(target.prepare, folder)
    log = folder / "log"
    bench.must(target.command, folder, fault="count", log=log)
    calls = log.read_text().splitlines()
    log.unlink()
    reference = contents(folder)

    def check(number, fault):
        here = bench.folder()
        bench.must(target.prepare, here)
        mode, _, error = fault.partition(":")
        what = f"{mode}:{number}" + (f":{error}" if error else "")
        ended = bench.run(target.command, here, fault=what)
        if mode in ("kill", "power"):
            expect(ended.returncode == -signal.SIGKILL, f"was not killed: {outcome(ended)}")
        else:
            expect_error(ended, 0, 1)
        expect_error(bench.run(target.again, here), 0)
        expect_same(here, reference, f"{what}, then again")
        shutil.rmtree(here)

    step = target.share * every
    for i, fault in enumerate(FAULTS):
        for number in range(1 + i % step, len(calls) + 1, step):  # different calls for each fault
            yield f"{target.name}, {fault} at call {calls[number - 1]}", lambda n=number, f=fault: check(n, f)


# ---- damage

DAMAGE = {
    "has one bit flipped": "python3 -c \"d = bytearray(open('F', 'rb').read()); d[len(d) // 2] ^= 1; open('F', 'wb').write(d)\"",
    "is cut in half": "truncate -s $(($(stat -c %s F) / 2)) F",
    "is empty": ": >F",
    "has a byte too many": "echo >>F",
    "is missing": "rm F",
    "is a folder": "rm F; mkdir F",
    "is a named pipe": "rm F; mkfifo F",
}


def damage_cases(bench, reference):
    def newest(damage):
        folder = bench.folder()
        bench.must(f"{TRAIN}; {damage}", folder)
        ended = bench.must(EVALUATE, folder)
        expect("the checkpoint of step 4 in run/checkpoint.previous is used" in ended.stderr, outcome(ended))
        bench.must(RESUME, folder)
        expect_same(folder, reference, "resumed")
        ended = bench.must(f"{damage}; {EVALUATE}", folder)  # the resumed run kept the good checkpoint
        expect("the checkpoint of step 4 in run/checkpoint.previous is used" in ended.stderr, outcome(ended))

    def both(damage):
        folder = bench.folder()
        bench.must(f"{TRAIN}; {damage}; {damage.replace('checkpoint/', 'checkpoint.previous/')}", folder)
        for command in (EVALUATE, RESUME):
            expect_error(bench.run(command, folder), 3, message="checkpoint/.*checkpoint.previous/.*train again")

    for file in ("weights.safetensors", "optimizer.safetensors", "checkpoint.json", "checksums"):
        for name, damage in DAMAGE.items():
            damage = damage.replace("F", f"run/checkpoint/{file}")
            yield f"{file} {name}", lambda d=damage: newest(d)
            yield f"{file} of both checkpoints {name}", lambda d=damage: both(d)


# ---- signals, folders, streams, disks

def lines_of(run):
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def start_endless(bench, folder):
    process = subprocess.Popen(ENDLESS.split(), cwd=folder, env=bench.environment, stdin=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    give_up = time.monotonic() + WATCHDOG
    while lines_of(folder / "run") < 5:
        expect(process.poll() is None and time.monotonic() < give_up, "ended or hung before its fifth step")
        time.sleep(0.002)
    return process


def expect_resumable(bench, folder):
    """Checks that a stopped run, resumed, equals a run that was never stopped."""
    saved = json.loads((folder / "run/checkpoint/checkpoint.json").read_text())["about"]["progress"]["step"]
    steps = f"--iterations {saved + 2 + saved % 2}"
    bench.must(f"{RESUME} {steps}", folder)
    whole = bench.folder()
    bench.must(TRAIN.replace("--iterations 6", steps), whole)
    (folder / "run/config.json").write_text((whole / "run/config.json").read_text())
    expect_same(folder, contents(whole), "resumed")


def stop_by_signal(bench, number):
    folder = bench.folder()
    process = start_endless(bench, folder)
    process.send_signal(number)
    process.communicate(timeout=WATCHDOG)
    expect(process.returncode == 130, f"expected exit code 130, got {process.returncode}")
    expect_resumable(bench, folder)


def stop_by_kill(bench):
    folder = bench.folder()
    process = start_endless(bench, folder)
    process.kill()
    process.communicate(timeout=WATCHDOG)
    expect_resumable(bench, folder)


def two_on_one_folder(bench):
    folder = bench.folder()
    process = start_endless(bench, folder)
    try:
        expect_error(bench.run(RESUME, folder), 2, message="another run is writing into this folder")
        bench.must(EVALUATE, folder)  # reading is allowed
    finally:
        process.kill()
        process.communicate()


def two_on_one_figure(bench):
    folder = bench.folder()
    command = ["bash", "-c", FIGURE]
    both = [subprocess.Popen(command, cwd=folder, env=bench.environment, stdout=subprocess.DEVNULL) for _ in range(2)]
    codes = [process.wait(timeout=WATCHDOG) for process in both]
    expect(codes == [0, 0], f"expected exit codes 0 and 0, got {codes}")
    alone = bench.folder()
    bench.must(FIGURE, alone)
    expect_same(folder, contents(alone), "two processes")


def with_stream(bench, shell, *codes):
    folder = bench.folder()
    expect_error(bench.run(f"{TRAIN} {shell}", folder), *codes, message="cannot write to standard output")
    bench.must(f"{RESUME} >/dev/null", folder)


def with_file_limit(bench, limit, reference):
    folder = bench.folder()
    expect_error(bench.run(f"ulimit -f {limit}; {TRAIN}", folder), 1, message="[Ff]ile too large")
    bench.must(f"{RESUME} || {TRAIN}", folder)
    expect_same(folder, reference, "without the limit")


def with_lacks(bench, error, reference):
    """A save goes on, says once what the file system lacks, and opens no private file."""
    folder = bench.folder()
    bench.must(f"umask 022; {TRAIN.replace('6 --out', '3 --out')}; chmod 666 run/checkpoint/*; chmod 600 run/config.json", folder)
    ended = bench.must(f"{RESUME} --iterations 6", folder, fault=f"lack:0:{error}")
    told = [ended.stderr.count(each) for each in ("has no locks", "owner and permissions", "after a loss of power")]
    mode = (folder / "run/config.json").stat().st_mode & 0o777
    expect(told == [1, 1, 1] and mode == 0o600, f"told {told} times, config.json has mode {mode:o}: {outcome(ended)}")
    expect_same(folder, reference, "with everything")


def system_cases(bench, reference):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        yield f"{signal.Signals(number).name} in a training", lambda n=number: stop_by_signal(bench, n)
    yield "a training is killed", lambda: stop_by_kill(bench)
    yield "two trainings in one folder", lambda: two_on_one_folder(bench)
    yield "two processes of one figure", lambda: two_on_one_figure(bench)
    yield "standard output is closed", lambda: with_stream(bench, ">&-", 1)
    yield "standard output is a full device", lambda: with_stream(bench, ">/dev/full", 1)
    yield "standard error is closed", lambda: with_stream(bench, "2>&-", 0)
    for error in ("EPERM", "ENOSYS", "EIO"):
        yield f"a file system without permissions and locks ({error})", lambda e=error: with_lacks(bench, e, reference)
    for limit in (1, 2, 4):
        yield f"files may have {limit} KB", lambda n=limit: with_file_limit(bench, n, reference)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, type=Path, help="copy-task; the other programs are in the same folder")
    parser.add_argument("--faults", required=True, type=Path, help="the library that injects faults")
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose name matches this expression")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="try every Nth call")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="processes at once")
    options = parser.parse_args()
    bench = Bench(options.program.resolve().parent, options.faults.resolve())
    failed = []

    def attempt(case):
        name, check = case
        try:
            check()
        except Exception as problem:  # any kind
            failed.append(name)
            print(f"FAILED: {name}\n    {type(problem).__name__}: {problem}", flush=True)

    try:
        whole = bench.folder()
        bench.must(TRAIN, whole)
        reference = contents(whole)
        cases = [*damage_cases(bench, reference), *system_cases(bench, reference)]
        for target in TARGETS:
            cases += target_cases(bench, target, options.every)
        cases = [case for case in cases if re.search(options.only, case[0])]
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(attempt, cases))
    finally:
        shutil.rmtree(bench.scratch, ignore_errors=True)
    print(f"fault: {len(cases)} cases, {bench.processes} processes, {len(failed)} did not end as documented")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
