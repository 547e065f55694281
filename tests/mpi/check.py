#!/usr/bin/env python3
"""Runs copy-task under mpirun: on 2, 3 and 4 processes it computes what one does, and it ends as documented when
processes are killed, stopped, interrupted or started wrongly. One line a case. Needs Open MPI and Linux.

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

MODEL = "train --length 7 --layers 1 --heads 4 --feed-forward 64 --evaluate-every 50 --threads 1 --quiet".split()
ENDLESS = [*MODEL, "--iterations", "1000000", "--checkpoint-every", "20", "--out", "run"]
STEPS = 200
ATTENTIONS = ("full", "i-clustered-15")
PATIENCE = 120  # seconds after which a job hangs
CASES = []  # (name, function)
JOBS = []  # of the case that runs


class Failure(Exception):
    """What is wrong."""


class Skipped(Exception):
    """Why a case cannot run here."""


def case(name, *arguments):
    def add(function):
        CASES.append((name, lambda: function(*arguments)))
        return function

    return add


def expect(condition, *what):
    if not condition:
        raise Failure(" ".join(map(str, what)))


class Job:
    """A command that runs in a folder. `parts`: what stands behind mpirun, one list a colon; none: no mpirun."""

    def __init__(self, parts, folder=".", program=None, options=(), wrapper=(), **environment):
        command = [*wrapper]
        if parts:
            command += ["mpirun", "--oversubscribe", "--bind-to", "none", *options]
        for i, (ranks, arguments) in enumerate(parts or [(1, options)]):
            command += [":"] * (i > 0) + (["-np", str(ranks)] if parts else [])
            if arguments and arguments[0] == "-wdir":
                command += arguments[:2]
                arguments = arguments[2:]
            if not arguments or not str(arguments[0]).startswith("/"):
                command.append(str(program or PROGRAM))
            command += map(str, arguments)
        everything = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_COMM", "PMIX", "CAIRN_"))}
        everything.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", TMPDIR=str(SCRATCH),
                          **environment)
        self.text = " ".join(command)
        self.process = subprocess.Popen(command, cwd=folder, env=everything, stdin=subprocess.DEVNULL,
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
        self.end()
        expect(self.code == 0, self)
        return self

    # The program tells of an error once, in one line, whatever mpirun says besides.
    def failed(self, code, pattern):
        self.end()
        lines = [line for line in self.err.splitlines() if line.startswith("copy-task")]
        expect(self.code in (code if isinstance(code, tuple) else (code,)), "expected exit code", code, "got", self)
        expect(len(lines) == 1 and re.search(pattern, lines[0]), f"expected one line like /{pattern}/, got", self)
        return self

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

    def kill(self):
        for pid in self.ranks().values():
            os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.communicate()

    def wait_for_step(self, step, run):
        metrics, until = Path(run) / "metrics.jsonl", time.monotonic() + PATIENCE
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < step:
            if self.process.poll() is not None:
                raise Failure(f"ended before step {step}: {self.end()}")
            if time.monotonic() > until:
                raise Failure(f"did not reach step {step}: {self.text}")
            time.sleep(0.02)


def mpirun(ranks, arguments, folder=".", **how):
    return Job([(ranks, arguments)], folder, **how)


def alone(arguments, folder=".", **how):
    return Job([], folder, options=arguments, **how)


def metrics_of(run):
    """The records of a run, without times."""
    times = ("seconds", "steps_per_second")
    drop = lambda x: {k: drop(v) for k, v in x.items() if k not in times} if isinstance(x, dict) else x
    return [drop(json.loads(line)) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]


def losses_of(run):
    return [record["loss"] for record in metrics_of(run) if "loss" in record]


def expect_same_run(run, other):
    expect(metrics_of(run) == metrics_of(other), "metrics differ:", next(
        ((a, b) for a, b in zip(metrics_of(run), metrics_of(other)) if a != b), "one is longer"))
    for name in ("weights.safetensors", "optimizer.safetensors"):
        same = (Path(run) / "checkpoint" / name).read_bytes() == (Path(other) / "checkpoint" / name).read_bytes()
        expect(same, f"{name} differs")


def one_process(attention, ordered):
    """The folder of a run of one process that was never stopped."""
    run = SCRATCH / f"one-{attention}-{ordered}"
    if not run.exists():
        alone([*settings(attention, ordered), "--out", str(run)]).succeeded()
    return run


def settings(attention, ordered):
    steps = STEPS if ordered else 20
    return [*MODEL, "--attention", attention, "--iterations", str(steps), *["--ordered"] * ordered]


def folder():
    return Path(tempfile.mkdtemp(dir=SCRATCH))


# ---- the numbers


def unordered(attention, ranks):
    run = folder() / "run"
    mpirun(ranks, [*settings(attention, False), "--out", str(run)]).succeeded()
    there, here = losses_of(run), losses_of(one_process(attention, False))
    expect(len(there) == len(here) == 20, "expected 20 losses")
    worst = max(abs(a - b) for a, b in zip(there, here))
    expect(worst <= 1e-4, f"losses differ by up to {worst}")


def ordered(attention, ranks):
    run = folder() / "run"
    mpirun(ranks, [*settings(attention, True), "--out", str(run)]).succeeded()
    expect(sum("evaluation" in record for record in metrics_of(run)) == STEPS // 50, "expected evaluations")
    expect_same_run(run, one_process(attention, True))


for attention in ATTENTIONS:
    for ranks in (2, 3, 4):
        case(f"{attention}, {ranks} ranks: losses of one process", attention, ranks)(unordered)
        case(f"{attention}, {ranks} ranks, ordered: bits of one process", attention, ranks)(ordered)


# ---- interruptions


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def expect_end(pids, seconds):
    until = time.monotonic() + seconds
    while left := [pid for pid in pids if alive(pid)]:
        expect(time.monotonic() < until, f"{len(left)} processes are left after {seconds} s")
        time.sleep(0.05)


def resumed(where, ranks, attention):
    arguments = ["train", "--out", "run", "--resume", "--threads", "1", "--quiet", "--iterations", str(STEPS)]
    (mpirun(ranks, arguments, where) if ranks > 1 else alone(arguments, where)).succeeded()
    expect_same_run(where / "run", one_process(attention, True))


def killed(attention, victim, ranks, later):
    where = folder()
    job = mpirun(ranks, [*settings(attention, True), "--checkpoint-every", "20", "--out", "run"], where)
    job.wait_for_step(50, where / "run")
    pids = job.ranks()
    os.kill(pids[victim], signal.SIGKILL)
    expect_end(pids.values(), 60)
    expect(job.end().code != 0, job)
    expect((where / "run" / "checkpoint" / "checksums").is_file(), "the last checkpoint is gone")
    resumed(where, later, attention)


case("rank 1 of 3 is killed, 2 continue", "i-clustered-15", 1, 3, 2)(killed)
case("rank 0 of 2 is killed, 4 continue", "full", 0, 2, 4)(killed)


@case("SIGTERM to rank 0 alone: saved, 130, resumed")
def interrupted():
    where = folder()
    job = mpirun(3, [*settings("full", True), "--checkpoint-every", "0", "--out", "run"], where)
    job.wait_for_step(10, where / "run")
    os.kill(job.ranks()[0], signal.SIGTERM)
    job.end()
    expect(job.code == 130 and "Interrupted" in job.out, job)
    steps = len(losses_of(where / "run"))
    expect(steps < STEPS, f"all {steps} steps were made")
    resumed(where, 2, "full")


def interrupted_by_mpirun(number):
    where = folder()
    # So long it waits before it passes the signal on to the ranks, and then again before it kills them.
    job = mpirun(3, ENDLESS, where, options=["--mca", "odls_base_sigkill_timeout", "5"])
    job.wait_for_step(10, where / "run")
    job.process.send_signal(number)
    job.end()
    expect(job.code != 0, job)
    expect("Interrupted" in job.out, job)
    steps = len(losses_of(where / "run"))
    mpirun(2, ["train", "--out", "run", "--resume", "--quiet", "--iterations", str(steps + 20)], where).succeeded()
    expect(len(losses_of(where / "run")) == steps + 20, "the run did not continue from its last step")


for number in (signal.SIGTERM, signal.SIGINT):
    case(f"{number.name} to mpirun: saved, resumable", number)(interrupted_by_mpirun)


def stopped(victim):
    where = folder()
    job = mpirun(3, ENDLESS, where, CAIRN_WATCHDOG="3")
    job.wait_for_step(30, where / "run")
    pids = job.ranks()
    os.kill(pids[victim], signal.SIGSTOP)
    job.failed(1, "has waited 3 s for the others")
    expect_end(pids.values(), 60)
    expect((where / "run" / "checkpoint" / "checksums").is_file(), "the last checkpoint is gone")


for victim in (0, 2):
    case(f"rank {victim} of 3 is stopped: the watchdog", victim)(stopped)


@case("all ranks are stopped for longer than the watchdog waits, and go on")
def all_stopped():
    where = folder()
    job = mpirun(3, ENDLESS, where, CAIRN_WATCHDOG="2")
    job.wait_for_step(30, where / "run")
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in job.ranks().values():
            os.kill(pid, number)
        time.sleep(3 if number == signal.SIGSTOP else 0)
    job.wait_for_step(len(losses_of(where / "run")) + 30, where / "run")


@case("a rank is stopped during an evaluation for longer than the watchdog waits: not counted")
def slow_evaluation():
    where = folder()
    job = mpirun(2, [*SHORT, "--ordered", "--length", "63", "--out", "run"], where, CAIRN_WATCHDOG="2")
    while not (where / "run" / "checkpoint" / "checksums").is_file():  # behind it comes the last evaluation
        expect(job.process.poll() is None, "ended before it was stopped")
        time.sleep(0.005)
    victim = job.ranks()[1]
    os.kill(victim, signal.SIGSTOP)
    time.sleep(4)
    expect(job.process.poll() is None, "the watchdog counted an evaluation")
    os.kill(victim, signal.SIGCONT)
    job.succeeded()


# ---- figures

FIGURE = ("figure --quick --variants full,clustered-5,i-clustered-5 --lengths 5,7 --layers 1 --heads 2 --feed-forward 32 "
          "--evaluate-every 50 --threads 1 --quiet --json --out figure --iterations").split()


def cells_of(text):
    found = [(cell["attention"], cell["length"], cell["iterations"], cell["loss"]) for cell in json.loads(text)["cells"]]
    expect(len(found) == 6, "expected 6 cells, got", len(found))
    return found


@case("figure: 3 ranks train what one process trains")
def figure():
    there, here = mpirun(3, [*FIGURE, "20"], folder()).succeeded(), alone([*FIGURE, "20"], folder()).succeeded()
    expect(cells_of(there.out) == cells_of(here.out), "other results:", there.out, here.out)


@case("figure: a rank is killed, finished cells stay, the same command goes on")
def figure_killed():
    where = folder()
    job = mpirun(2, [*FIGURE, "400"], where)
    while not (finished := list((where / "figure" / "cells").glob("*/report.html"))):
        expect(job.process.poll() is None, "ended before a rank was killed")
        time.sleep(0.005)
    kept = {path: path.stat().st_mtime_ns for path in finished}
    pids = job.ranks()
    os.kill(pids[1], signal.SIGKILL)
    expect_end(pids.values(), 60)
    expect(job.end().code != 0, job)
    expect(len(list((where / "figure" / "cells").glob("*/report.html"))) < 6, "all cells were finished")
    cells_of(mpirun(3, [*FIGURE, "400"], where).succeeded().out)
    expect(all(path.stat().st_mtime_ns == time for path, time in kept.items()), "a finished cell was trained again")


@case("figure: a rank that does not see --out")
def figure_apart():
    (here := folder() / "here").mkdir()
    (there := folder() / "there").mkdir()
    parts = [(1, ["-wdir", str(here), *FIGURE, "20"]), (1, ["-wdir", str(there), *FIGURE, "20"])]
    Job(parts).failed(2, "not seen by rank 1; give a folder on a file system that all processes share")


@case("attention-bench figure: 2 ranks share the lengths")
def bench_figure():
    program = PROGRAM.parent / "attention-bench"
    if not program.is_file():
        raise Skipped("attention-bench is not built")
    arguments = ("figure --attention full,clustered-5 --lengths 16,32,64 --tokens 64 --heads 2 --head-size 8 --repeat 5 "
                 "--quiet --json --out figure").split()
    where = folder()
    points = json.loads(mpirun(2, arguments, where, program=program).succeeded().out)["points"]
    names = [(point["length"], point["attention"]) for point in points]
    expect(names == [(n, a) for n in (16, 32, 64) for a in ("full", "clustered-5")], "other points:", names)
    expect(all(point["repetitions"] == 5 for point in points), points)
    expect(not (where / "figure" / ".shares").exists(), "shares are left")


# ---- started wrongly

SHORT = [*MODEL, "--iterations", "20"]


def refused(code, message, *parts, left=(), **how):
    where = folder()
    Job(list(parts), where, **how).failed(code, message)
    found = {path.name for path in where.iterdir()}
    expect(found == set(left), f"left in the folder: {found}")


def other_program():
    other = folder() / "copy-task"
    shutil.copy(PROGRAM, other)
    with open(other, "ab") as file:
        file.write(b"x")
    refused(2, "rank 0 has program .* rank 1 has program", (1, [*SHORT, "--out", "run"]),
            (1, [str(other), *SHORT, "--out", "run"]))


OUT = [*SHORT, "--out", "run"]
case("another seed on a rank", 2, "rank 0 has seed 1, rank 1 has seed 2", (1, OUT), (2, [*OUT, "--seed", "2"]))(refused)
case("another attention on a rank", 2, 'rank 2 has attention "full"', (2, OUT),
     (1, [*OUT, "--attention", "full"]))(refused)
case("another program on a rank")(other_program)
case("--resume on one rank only", 2, "rank 0 has --resume 0, rank 1 has --resume 1", (1, OUT),
     (1, [*OUT, "--resume"]))(refused)
case("an option that only one rank is given wrongly", 2, "copy-task, rank 2: error: --layers", (2, OUT),
     (1, [*OUT, "--layers", "0"]))(refused)
case("an option that all are given wrongly", 2, "^copy-task: error: .*--heds", (4, [*OUT, "--heds", "2"]))(refused)
case("a batch smaller than the ranks", 2, "--batch 2: .*3 processes", (3, [*OUT, "--batch", "2"]))(refused)
case("a command for one process", 2, "evaluate: runs as one process, and 3 were started",
     (3, ["evaluate", "--run", "run"]))(refused)
case("an --out that cannot be made", 1, "^copy-task: error: --out /proc/none",
     (3, [*SHORT, "--out", "/proc/none"]))(refused)
case("--resume without a run", 3, "--resume: there is no run in run", (3, [*OUT, "--resume"]))(refused)


@case("a program without MPI")
def without_mpi():
    if not WITHOUT_MPI:
        raise Skipped("no --without-mpi")
    where = folder()
    mpirun(4, OUT, where, program=WITHOUT_MPI).failed(2, "one of 4 processes, but this program was built without MPI")
    expect(not list(where.iterdir()), "something was written")


@case("Open MPI's library is missing")
def missing_library():
    where, program = folder(), PROGRAM.read_bytes()
    expect(program.count(b"libmpi.so.40\0") == 1, "the program does not need libmpi.so.40")
    (other := folder() / "copy-task").write_bytes(program.replace(b"libmpi.so.40\0", b"libmpi.so.99\0"))
    other.chmod(0o755)
    job = alone(OUT, where, program=other).end()
    expect(job.code == 127 and "libmpi.so.99: cannot open shared object file" in job.err, job)
    expect(not list(where.iterdir()), "something was written")


@case("a disk that is full")
def full_disk():
    if os.geteuid() != 0:
        raise Skipped("only root mounts")
    where = folder()
    mount = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=200k none {where} && exec "$@"', "sh"]
    if subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
        raise Skipped("cannot mount here")
    job = mpirun(3, [*SHORT, "--out", str(where / "run")], wrapper=mount)
    job.failed(1, "^copy-task: error: .*No space left on device")


# ---- what the ranks tell and write


@case("one JSON object")
def one_json():
    job = mpirun(3, [*SHORT, "--json"]).succeeded()
    lines = job.out.splitlines()
    expect(len(lines) == 1 and json.loads(lines[0])["iterations"] == 20, "expected one object, once:", job)
    expect(job.err == "", "expected nothing on standard error:", job)


@case("only rank 0 sees the folder")
def own_folders():
    first, others = folder(), folder()
    for arguments in (OUT, ["train", "--out", "run", "--resume", "--iterations", "30", "--quiet", "--threads", "1"]):
        Job([(1, ["-wdir", str(first), *arguments]), (2, ["-wdir", str(others), *arguments])]).succeeded()
    expect(len(losses_of(first / "run")) == 30, "expected 30 steps")
    expect(not list(others.iterdir()), "another rank has written")


@case("two network namespaces")
def network():
    if os.geteuid() != 0 or not shutil.which("ip"):
        raise Skipped("needs root and iproute2")
    spaces, where = [f"cairn-{os.getpid()}-{i}" for i in (1, 2)], folder()
    addresses, links = ["10.213.77.1", "10.213.77.2"], [f"cairn{os.getpid()}{i}" for i in "ab"]
    sh = lambda line: subprocess.run(line.split(), capture_output=True, text=True, check=True)
    try:
        try:
            for space in spaces:
                sh(f"ip netns add {space}")
            sh(f"ip link add {links[0]} netns {spaces[0]} type veth peer name {links[1]} netns {spaces[1]}")
            for space, link, address in zip(spaces, links, addresses):
                sh(f"ip -n {space} address add {address}/24 dev {link}")
                sh(f"ip -n {space} link set {link} up")
                sh(f"ip -n {space} link set lo up")
        except subprocess.CalledProcessError as error:
            raise Skipped(f"no network namespaces here: {error.stderr.strip()}")
        agent = where / "agent"  # in the place of ssh: agent ADDRESS COMMAND...
        agent.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {spaces[1]} unshare --uts '
                         'sh -c \'hostname second; exec sh -c "$*"\' sh "$@"\n')
        agent.chmod(0o755)
        first = ["ip", "netns", "exec", spaces[0], "unshare", "--uts", "sh", "-c", 'hostname first; exec "$@"', "sh"]
        options = ["--host", ",".join(f"{address}:2" for address in addresses), "--map-by", "node"]
        for name, value in (("plm_rsh_agent", agent), ("btl", "tcp,self"), ("pml", "ob1"),
                            ("btl_tcp_if_include", "10.213.77.0/24"), ("oob_tcp_if_include", "10.213.77.0/24")):
            options += ["--mca", name, str(value)]
        machines = mpirun(4, ["/bin/hostname"], where, options=options, wrapper=first).succeeded().out.split()
        expect(sorted(machines) == ["first"] * 2 + ["second"] * 2, "expected two machines:", machines)
        arguments = [*settings("i-clustered-15", True), "--out", "run"]
        mpirun(4, arguments, where, options=options, wrapper=first).succeeded()
        expect_same_run(where / "run", one_process("i-clustered-15", True))
    finally:
        for space in spaces:  # their links go with them
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)


def main():
    global PROGRAM, WITHOUT_MPI, SCRATCH
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True, help="copy-task, built with CAIRN_MPI=ON")
    parser.add_argument("--without-mpi", type=Path, help="copy-task, built without")
    parser.add_argument("--only", default="", metavar="PATTERN",
                        help="cases whose name matches this regular expression")
    parser.add_argument("--keep", action="store_true", help="keep the folders")
    options = parser.parse_args()
    version = shutil.which("mpirun") and subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if not version or "Open MPI" not in version:
        print("there is no mpirun of Open MPI here")
        return 77
    PROGRAM, WITHOUT_MPI = options.program.resolve(), options.without_mpi and options.without_mpi.resolve()
    SCRATCH = Path(tempfile.mkdtemp(prefix="cairn-mpi-"))
    ran = failures = 0
    try:
        for name, function in CASES:
            if not re.search(options.only, name):
                continue
            began, ran = time.monotonic(), ran + 1
            try:
                function()
                outcome = "ok"
            except Skipped as reason:
                outcome = f"skipped ({reason})"
            except (Failure, OSError, ValueError, KeyError) as error:
                outcome = f"FAILED: {type(error).__name__ if not isinstance(error, Failure) else ''} {error}"
                failures += 1
            for job in JOBS:
                if job.process.poll() is None:
                    job.kill()
            JOBS.clear()
            print(f"{name}: {outcome} ({time.monotonic() - began:.1f} s)", flush=True)
    finally:
        if options.keep:
            print(f"kept: {SCRATCH}")
        else:
            shutil.rmtree(SCRATCH, ignore_errors=True)
    print(f"{ran} cases, {failures} failed" if ran else "no case has such a name")
    return 1 if failures or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
