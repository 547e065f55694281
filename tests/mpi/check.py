#!/usr/bin/env python3
"""Runs copy-task under mpirun: on 2 and 3 processes it computes what one does, and it ends as documented when processes
are killed, interrupted or started wrongly. One line a case. Needs Open MPI and Linux.

Exit codes: 0 all is well, 1 a case failed, 77 there is no Open MPI here.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--program", type=Path, required=True, help="copy-task, built with CAIRN_MPI=ON")
parser.add_argument("--without-mpi", type=Path, help="copy-task, built without")
parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose name matches this expression")
options = parser.parse_args()
PROGRAM = options.program.resolve()
SCRATCH = Path(tempfile.mkdtemp(prefix="cairn-mpi-"))

# Who waits leaves the processor to others: there may be fewer processors than processes.
MPIRUN = "mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1".split()
SETTINGS = ("train --length 7 --layers 1 --heads 4 --feed-forward 64 --dropout 0.1 --attention-dropout 0.1 "
            "--evaluate-every 50 --threads 1 --quiet").split()
MODEL = [PROGRAM, *SETTINGS]
SHORT = [*MODEL, "--iterations", "20"]
OUT = [*SHORT, "--out", "run"]
RESUME = [PROGRAM, *"train --out run --resume --threads 1 --quiet".split()]
PATIENCE = 120  # seconds after which a job hangs
CASES = []  # (name, function)
JOBS = []  # of the case that runs


class Failure(Exception):
    """What is wrong."""


def case(name, *arguments):
    def add(function):
        CASES.append((name, lambda: function(*arguments)))
        return function

    return add


def expect(condition, *what):
    if not condition:
        raise Failure(" ".join(map(str, what)))


class Job:
    """Commands in a folder, by mpirun: for each how many processes run it. Or one command by itself."""

    def __init__(self, folder, *parts, alone=(), options=()):
        command = [*MPIRUN, *options] if parts else [*alone]
        for ranks, words in parts:
            command += ["-np", ranks, *words, ":"]
        command = [str(word) for word in (command[:-1] if parts else command)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_COMM", "PMIX"))}
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", TMPDIR=str(SCRATCH))
        self.text = " ".join(command)
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
        JOBS.append(self)

    def end(self):
        try:
            self.out, self.err = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failure(f"hangs: {self.text}")
        self.code = self.process.returncode
        return self

    def succeeded(self):
        expect(self.end().code == 0, self)
        return self

    # The program tells of an error once, in one line, whatever mpirun says besides.
    def failed(self, code, pattern):
        expect(self.end().code == code, "expected exit code", code, "got", self)
        lines = [line for line in self.err.splitlines() if ": error: " in line]
        expect(len(lines) == 1 and re.search(pattern, lines[0]), f"expected one line like /{pattern}/, got", self)

    def __str__(self):
        return f"exit code {self.code}, out {self.out[-600:]!r}, err {self.err[-1200:]!r}: {self.text}"

    def ranks(self):
        """Rank -> process id, of those that live."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
                rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", (path / "environ").read_bytes())
            except OSError:
                continue
            if rank and state != "Z" and int(parent) == self.process.pid:
                found[int(rank[1])] = int(path.name)
        return found

    def wait_for_step(self, step, run):
        metrics, until = run / "metrics.jsonl", time.monotonic() + PATIENCE
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < step:
            expect(self.process.poll() is None, f"ended before step {step}: {self.text}")
            expect(time.monotonic() < until, f"did not reach step {step}: {self.text}")
            time.sleep(0.02)


def folder():
    return Path(tempfile.mkdtemp(dir=SCRATCH))


def metrics_of(run):
    """The records of a run, without times."""
    times = ("seconds", "steps_per_second")
    drop = lambda x: {k: drop(v) for k, v in x.items() if k not in times} if isinstance(x, dict) else x
    return [drop(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses_of(run):
    return [record["loss"] for record in metrics_of(run) if "loss" in record]


def expect_losses(run, steps):
    """They are those of one process that was never stopped, but for rounding."""
    one = folder() / "run"
    Job(one.parent, alone=[*MODEL, "--iterations", steps, "--out", "run"]).succeeded()
    here, there = losses_of(run), losses_of(one)
    expect(len(here) == len(there) == steps, f"expected {steps} losses, got {len(here)} and {len(there)}")
    worst = max(abs(a - b) for a, b in zip(here, there))
    expect(worst <= 1e-4, f"losses differ by up to {worst}")


# ---- the numbers


def same_losses(ranks):
    where = folder()
    Job(where, (ranks, OUT)).succeeded()
    expect_losses(where / "run", 20)


for count in (2, 3):
    case(f"{count} processes: losses of one process", count)(same_losses)


@case("--average-every: interrupted between two averagings, it goes on with the same bits")
def averaged():
    runs = [folder() / "run", folder() / "run"]
    arguments = [*MODEL, "--iterations", 100, "--average-every", 10, "--checkpoint-every", 50, "--out", "run"]
    Job(runs[0].parent, (2, arguments)).succeeded()
    job = Job(runs[1].parent, (2, arguments))
    job.wait_for_step(13, runs[1])
    os.kill(job.ranks()[0], signal.SIGTERM)
    expect(job.end().code == 130, job)
    steps = len(losses_of(runs[1]))
    expect(steps % 10 == 0 and steps < 100, f"stopped behind step {steps}")
    Job(runs[1].parent, (2, RESUME)).succeeded()
    expect(metrics_of(runs[0]) == metrics_of(runs[1]), "other metrics")
    weights, others = [(run / "checkpoint" / "weights.safetensors").read_bytes() for run in runs]
    expect(weights == others, "other weights")


# ---- interruptions


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def killed(victim, ranks, later):
    where = folder()
    job = Job(where, (ranks, [*MODEL, "--iterations", 200, "--checkpoint-every", 20, "--out", "run"]))
    job.wait_for_step(50, where / "run")
    pids = job.ranks()
    os.kill(pids[victim], signal.SIGKILL)
    expect(job.end().code != 0, job)
    expect(not any(alive(pid) for pid in pids.values()), "a process is left")
    Job(where, (later, [*RESUME, "--iterations", 60])).succeeded()
    expect_losses(where / "run", 60)


case("rank 1 of 3 is killed, 2 continue", 1, 3, 2)(killed)
case("rank 0 of 2 is killed, 3 continue", 0, 2, 3)(killed)


@case("Ctrl-C: saved, and one process continues")
def interrupted():
    where = folder()
    # So long mpirun waits before it passes the signal on to the ranks, and then again before it kills them.
    job = Job(where, (3, [*MODEL, "--iterations", 1000000, "--checkpoint-every", 0, "--out", "run"]),
              options=["--mca", "odls_base_sigkill_timeout", "5"])
    job.wait_for_step(10, where / "run")
    job.process.send_signal(signal.SIGINT)
    job.end()
    expect(job.code != 0 and (where / "run" / "checkpoint").is_dir(), job)  # saved once, by the signal
    steps = len(losses_of(where / "run"))
    Job(where, alone=[*RESUME, "--iterations", steps + 5]).succeeded()
    expect(len(losses_of(where / "run")) == steps + 5, "the run did not continue from its last step")


# ---- started wrongly


def refused(code, message, *parts):
    where = folder()
    Job(where, *parts).failed(code, message)
    expect(not list(where.iterdir()), f"left in the folder: {list(where.iterdir())}")


BATCH = [*OUT, "--batch", 2, "--average-every", 10, "--evaluate-every", 50, "--checkpoint-every", 50]
for name, what in (
    ("figure", (2, "figure: is computed by one process, and 2 were started", (2, [PROGRAM, "figure", "--out", "x"]))),
    ("evaluate", (2, "evaluate: is computed by one process, and 3", (3, [PROGRAM, "evaluate", "--run", "run"]))),
    ("an option that all are given wrongly", (2, "^copy-task: error: .*--heds", (3, [*OUT, "--heds", 2]))),
    ("an option that one is given wrongly", (2, "^copy-task, rank 2: .*--heds", (2, SHORT), (1, [*SHORT, "--heds", 2]))),
    ("an --out that cannot be made", (1, "^copy-task: error: --out", (3, [*SHORT, "--out", "/proc/none"]))),
    ("--resume without a run", (3, "--out run: there is no run", (3, RESUME))),
    ("--average-every with too small a batch", (2, "each of the 3 processes, got 2", (3, BATCH))),
):
    case(f"refused: {name}", *what)(refused)

if (bench := PROGRAM.parent / "attention-bench").is_file():
    case("refused: attention-bench figure", 2, "figure: is computed by one", (2, [bench, "figure", "--out", "x"]))(refused)
if options.without_mpi:
    other = [options.without_mpi.resolve(), *SETTINGS, "--out", "run"]
    case("refused: a program without MPI", 2, "one of 3 processes, but .* without MPI", (3, other))(refused)


# ---- what the ranks tell and write


@case("rank 0 alone tells the result and sees the folder")
def own_folders():
    first, others = folder(), folder()
    for arguments in ([*OUT, "--json"], [*RESUME, "--json", "--iterations", 30]):
        job = Job(first, (1, ["-wdir", first, *arguments]), (2, ["-wdir", others, *arguments])).succeeded()
        expect(len(job.out.splitlines()) == 1 and "loss" in json.loads(job.out), "expected one object, once:", job)
        expect(job.err == "", "expected nothing on standard error:", job)
    expect_losses(first / "run", 30)
    expect(not list(others.iterdir()), "another rank has written")


def main():
    version = shutil.which("mpirun") and subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if not version or "Open MPI" not in version:
        print("there is no mpirun of Open MPI here")
        return 77
    ran = failures = 0
    for name, function in CASES:
        if not re.search(options.only, name):
            continue
        began, ran = time.monotonic(), ran + 1
        outcome = "ok"
        try:
            function()
        except (Failure, OSError, ValueError, KeyError) as error:
            outcome = f"FAILED: {error!r}"
            failures += 1
        for job in JOBS:
            if job.process.poll() is None:
                job.process.terminate()  # mpirun kills its processes
                job.process.communicate()
        JOBS.clear()
        print(f"{name}: {outcome} ({time.monotonic() - began:.1f} s)", flush=True)
    print(f"{ran} cases, {failures} failed")
    return 1 if failures or not ran else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)
