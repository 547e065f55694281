#!/usr/bin/env python3
"""Runs copy-task under mpirun. On 2 and 3 processes it computes the same as on one. It ends as documented when processes
are killed, interrupted or started with wrong options. Prints one line per case. Needs Open MPI and Linux.

Exit codes: 0 all cases passed, 1 a case failed, 77 Open MPI is not installed.
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
parser.add_argument("--without-mpi", type=Path, help="copy-task, built without MPI")
parser.add_argument("--only", default="", metavar="PATTERN", help="only cases whose name matches this regular expression")
options = parser.parse_args()
PROGRAM = options.program.resolve()
SCRATCH = Path(tempfile.mkdtemp(prefix="cairn-mpi-"))
# Waiting processes yield the processor, because there may be fewer processors than processes.
MPIRUN = "mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1".split()
SETTINGS = ("train --length 7 --layers 1 --heads 4 --feed-forward 64 --dropout 0.1 --attention-dropout 0.1 "
            "--evaluate-every 50 --sequences 64 --threads 1 --quiet").split()
MODEL = [PROGRAM, *SETTINGS, "--out", "run"]
SHORT = [*MODEL, "--iterations", 20]
RESUME = [PROGRAM, *"train --out run --resume --threads 1 --quiet".split()]
PATIENCE = 120  # seconds after which a job counts as hanging
JOBS = []  # of the current case


class Failure(Exception):
    """A failed case, with the reason."""


def expect(condition, *what):
    if not condition:
        raise Failure(" ".join(map(str, what)))


def on(count, command):
    return [*MPIRUN, "-np", count, *command]


class Job:
    """A command in a folder."""

    def __init__(self, folder, command):
        command = [str(word) for word in command]
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

    def __str__(self):
        return f"exit code {self.code}, out {self.out[-600:]!r}, err {self.err[-1200:]!r}: {self.text}"

    def wait_for_step(self, step, run):
        metrics = run / "metrics.jsonl"
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < step:
            expect(self.process.poll() is None, f"ended before step {step}: {self.text}")
            time.sleep(0.02)


def ranks():
    """Maps the rank of each live process of a job to its process id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes()
        except OSError:
            continue
        rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", environment)
        if rank and bytes(SCRATCH) in environment:
            found[int(rank[1])] = int(path.parent.name)
    return found


def folder():
    return Path(tempfile.mkdtemp(dir=SCRATCH))


def metrics_of(run):
    """The records of a run without times."""
    times = ("seconds", "steps_per_second")
    drop = lambda x: {k: drop(v) for k, v in x.items() if k not in times} if isinstance(x, dict) else x
    return [drop(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses_of(run):
    return [record["loss"] for record in metrics_of(run) if "loss" in record]


def expect_losses(run, steps):
    """Expects the losses of one uninterrupted process, up to rounding."""
    one = folder()
    Job(one, [*MODEL, "--iterations", steps]).succeeded()
    here, there = losses_of(run), losses_of(one / "run")
    expect(len(here) == len(there) == steps, f"expected {steps} losses, got {len(here)} and {len(there)}")
    worst = max(abs(a - b) for a, b in zip(here, there))
    expect(worst <= 1e-4, f"losses differ by up to {worst}")


def same_losses(count):
    where = folder()
    Job(where, on(count, SHORT)).succeeded()
    expect_losses(where / "run", 20)


def averaged():
    runs = [folder() / "run", folder() / "run"]
    command = on(2, [*MODEL, "--iterations", 100, "--average-every", 10, "--checkpoint-every", 50])
    Job(runs[0].parent, command).succeeded()
    job = Job(runs[1].parent, command)
    job.wait_for_step(13, runs[1])
    os.kill(ranks()[0], signal.SIGTERM)
    expect(job.end().code == 130, job)
    steps = len(losses_of(runs[1]))
    expect(steps % 10 == 0 and steps < 100, f"stopped after step {steps}")
    Job(runs[1].parent, on(2, RESUME)).succeeded()
    expect(metrics_of(runs[0]) == metrics_of(runs[1]), "the metrics differ")
    weights, others = [(run / "checkpoint" / "weights.safetensors").read_bytes() for run in runs]
    expect(weights == others, "the weights differ")


def killed(victim, count, later):
    where = folder()
    job = Job(where, on(count, [*MODEL, "--iterations", 200, "--checkpoint-every", 20]))
    job.wait_for_step(50, where / "run")
    os.kill(ranks()[victim], signal.SIGKILL)
    expect(job.end().code != 0, job)
    expect(not ranks(), "a process is still running")
    Job(where, on(later, [*RESUME, "--iterations", 60])).succeeded()
    expect_losses(where / "run", 60)


def each_resumed(where, more=()):
    """The folder and job of 1, 2 and 3 processes that resume the run of a folder, each a copy of it."""
    for count in (1, 2, 3):
        copy = folder()
        shutil.copytree(where / "run", copy / "run")
        yield copy, Job(copy, on(count, [*RESUME, "--json", *more])).end()


def interrupted():
    where = folder()
    # mpirun waits this long before it sends the signal to the ranks, and again before it kills them.
    patient = ["--mca", "odls_base_sigkill_timeout", 5]
    job = Job(where, [*MPIRUN, *patient, "-np", 3, *MODEL, "--iterations", 1000000, "--checkpoint-every", 0])
    job.wait_for_step(10, where / "run")
    job.process.send_signal(signal.SIGINT)
    job.end()
    expect(job.code != 0 and (where / "run" / "checkpoint").is_dir(), job)  # the signal caused the only save
    steps = len(losses_of(where / "run"))
    last = []  # losses of the steps after the interruption
    for copy, later in each_resumed(where, ["--iterations", steps + 5]):
        expect(later.code == 0 and len(losses_of(copy / "run")) == steps + 5, later)
        last.append(losses_of(copy / "run")[steps:])
    expect(all(abs(a - b) <= 1e-4 for a, *others in zip(*last) for b in others), f"the losses differ: {last}")


def finished():
    where = folder()
    first = json.loads(Job(where, [*SHORT, "--json"]).succeeded().out)
    for _, job in each_resumed(where):
        expect(job.code == 0 and json.loads(job.out) == first and job.err == "",
               "expected the result of the finished run:", job)


def diverged():
    """From its last checkpoint, it diverges again at the same step."""
    where = folder()
    job = Job(where, on(2, [*MODEL, "--iterations", 50, "--checkpoint-every", 5, "--lr", "1e6"])).end()
    expect(job.code == 5, "expected to diverge:", job)
    steps = len(losses_of(where / "run"))
    for copy, later in each_resumed(where):
        lines = [line for line in later.err.splitlines() if ": error: " in line]
        expect(later.code == 5 and len(lines) == 1 and "diverged" in lines[0], later)
        expect(len(losses_of(copy / "run")) == steps, f"expected {steps} steps, as before:", later)


def refused(code, pattern, command):
    """Expects the program to report the error once, in one line. mpirun may print more lines."""
    where = folder()
    job = Job(where, command).end()
    lines = [line for line in job.err.splitlines() if ": error: " in line]
    expect(job.code == code and len(lines) == 1 and re.search(pattern, lines[0]),
           f"expected exit code {code} and one line like /{pattern}/, got", job)
    expect(not list(where.iterdir()), f"left in the folder: {list(where.iterdir())}")


def own_folders():
    first, others = folder(), folder()
    for command in ([*SHORT, "--json"], [*RESUME, "--json", "--iterations", 30]):
        job = Job(first, [*on(1, ["-wdir", first, *command]), ":", "-np", 2, "-wdir", others, *command]).succeeded()
        expect(len(job.out.splitlines()) == 1 and "loss" in json.loads(job.out), "expected one object, once:", job)
        expect(job.err == "", "expected nothing on standard error:", job)
    expect_losses(first / "run", 30)
    expect(not list(others.iterdir()), "another rank has written")


WRONG = [*SHORT, "--heds", 2]
CASES = [
    ("2 processes: losses of one process", same_losses, 2),
    ("3 processes: losses of one process", same_losses, 3),
    ("--average-every: interrupted between two averages, it continues bit for bit", averaged),
    ("rank 1 of 3 is killed, 2 processes continue", killed, 1, 3, 2),
    ("rank 0 of 2 is killed, 3 processes continue", killed, 0, 2, 3),
    ("Ctrl-C: saved, and 1 to 3 processes continue", interrupted),
    ("a finished run has its result on 1 to 3 processes", finished),
    ("a diverged run diverges again on 1 to 3 processes", diverged),
    ("only rank 0 prints the result and uses the folder", own_folders),
    ("refused: figure", refused, 2, "figure: runs as one process, and 2 were started",
     on(2, [PROGRAM, "figure", "--out", "x"])),
    ("refused: a wrong option for all ranks", refused, 2, "^copy-task: error: .*--heds", on(3, WRONG)),
    ("refused: a wrong option for one rank", refused, 2, "^copy-task, rank 2: .*--heds",
     [*on(2, [PROGRAM, *"train --quiet".split()]), ":", "-np", 1, *WRONG]),  # without --out
    ("refused: --resume without a run", refused, 3, "--out run: there is no run", on(3, RESUME)),
    ("refused: --average-every with too small a batch", refused, 2, "each of the 3 processes, got 2",
     on(3, [*SHORT, "--batch", 2, "--average-every", 10, "--evaluate-every", 50, "--checkpoint-every", 50])),
]
if options.without_mpi:
    CASES.append(("refused: a program without MPI", refused, 2, "one of 3 processes, but .* without MPI",
                  on(3, [options.without_mpi.resolve(), *SETTINGS, "--out", "run"])))


def main():
    version = shutil.which("mpirun") and subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if not version or "Open MPI" not in version:
        print("Open MPI's mpirun is not installed")
        return 77
    cases = [case for case in CASES if re.search(options.only, case[0])]
    failures = 0
    for name, function, *arguments in cases:
        began, outcome = time.monotonic(), "ok"
        try:
            function(*arguments)
        except (Failure, OSError, ValueError, KeyError) as error:
            outcome = f"FAILED: {error!r}"
            failures += 1
        for job in JOBS:
            if job.process.poll() is None:
                job.process.terminate()  # mpirun kills its processes
                job.process.communicate()
        JOBS.clear()
        print(f"{name}: {outcome} ({time.monotonic() - began:.1f} s)", flush=True)
    print(f"{len(cases)} cases, {failures} failed")
    return 1 if failures or not cases else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)
