"""Runs the programs the way a case asks for and compares how it ended with what is documented."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Iterable, Optional
from xml.etree import ElementTree

try:
    import safetensors
except ImportError:  # its part is left out
    safetensors = None

# A model so small that a process takes some ten milliseconds.
MODEL = "--length 3 --layers 1 --heads 1 --head-size 4 --feed-forward 4 --batch 2 --threads 1".split()
STEPS = 6
BERT = Path(__file__).resolve().parent.parent / "golden" / "bert"  # 24 features, 160 tokens, 512 positions
TRAIN = ["train", *MODEL, "--iterations", str(STEPS), "--checkpoint-every", "2"]
RESUME = ["train", "--out", "run", "--resume"]

SANITIZER = re.compile(r"Sanitizer|runtime error:|terminate called|assertion|core dumped", re.I)
NO_MEMORY = re.compile(r"^==\d+==WARNING: \w+Sanitizer failed to allocate .*\n", re.M)
WATCHDOG = 600  # seconds after which a process hangs; nothing here depends on how fast it is


@dataclass
class Result:
    code: int  # negative: the signal that ended it
    out: str
    err: str
    program: str = "copy-task"

    def __str__(self):
        cut = lambda text: text if len(text) < 400 else text[:200] + " ... " + text[-200:]
        return f"exit code {self.code}, out {cut(self.out)!r}, err {cut(self.err)!r}"


@dataclass
class Case:
    """One thing that goes wrong. It runs in a folder of its own; with `run`, a finished run lies there as run/."""

    name: str
    arguments: list
    code: object = 2  # or several that are right
    message: str = ""  # regular expression for the error's line
    stdin: object = b""  # bytes; a path relative to the folder; None: closed
    out: str = ""  # regular expression for the whole of standard output
    says: str = ""  # regular expression for what it tells with --quiet although it ends with 0
    files: dict = field(default_factory=dict)  # name -> bytes, written before
    run: bool = False
    before: Optional[Callable[[Path], None]] = None  # prepares the folder
    after: Optional[Callable[[Path], Iterable[str]]] = None  # what else is wrong
    unchanged: bool = True  # the folder run/ is as it was before
    quiet: bool = True
    fault: bool = False  # not what the user typed, but the system
    ordinary_user: bool = False  # not as root
    environment: dict = field(default_factory=dict)
    wrapper: list = field(default_factory=list)  # in front of the program
    program: str = "copy-task"

    def codes(self):
        return self.code if isinstance(self.code, tuple) else (self.code,)


@dataclass
class Sweep:
    """Many variants of one bad input: each is contents for files in run/, and all end alike."""

    name: str
    arguments: list
    variants: list  # of (label, {path: bytes})
    code: object = 3
    message: str = ""
    previous: bool = False  # keep checkpoint.previous/


@dataclass
class Steps:
    """A fault that takes more than one process: `check` runs them and tells what is wrong."""

    name: str
    check: Callable  # (Bench, folder) -> list of problems
    needs: str = ""  # "faults": the preloaded library; "allocations": and that it sees them; "root"; "user";
    # "no file": a program that writes none before it begins
    kill: bool = False  # counts by how often processes are killed in it


def fingerprint(folder):
    """What is in a folder: names, kinds and bytes. The lock has none."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        if name == ".lock":
            continue
        if path.is_symlink():
            found[name] = "-> " + os.readlink(path)
        elif path.is_dir():
            found[name] = "folder"
        elif path.is_file():
            try:
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
            except PermissionError:
                found[name] = "unreadable"
        else:
            found[name] = "special"
    return found


def remove(folder):
    """Also what nobody may read."""
    for path, folders, _ in os.walk(folder):
        for name in folders:
            if not (Path(path) / name).is_symlink():
                os.chmod(Path(path) / name, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def changes(before, after):
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if not k.endswith(("seconds", "per_second"))}
    return value


def metrics_of(run):
    lines = (Path(run) / "metrics.jsonl").read_text().splitlines()
    return [without_times(json.loads(line)) for line in lines]


def contents(run):
    """What of a run's contents cannot be read. Behind the last whole record a crash may have left anything."""
    problems = []
    try:
        for line in (run / "metrics.jsonl").read_bytes().split(b"\n")[:-1]:
            json.loads(line)
    except FileNotFoundError:
        pass
    except ValueError as error:
        problems.append(f"metrics.jsonl: {error}")
    if (run / "report.html").is_file():
        try:
            ElementTree.parse(run / "report.html")
        except ElementTree.ParseError as error:
            problems.append(f"report.html: {error}")
    # A folder that is gone in part is what a rotation left that was stopped.
    for folder in (run / "checkpoint", run / "checkpoint.previous"):
        if safetensors and (folder / "checksums").is_file():
            for path in folder.glob("*.safetensors"):
                try:
                    safetensors.deserialize(path.read_bytes())
                except Exception as error:  # of whatever kind it has
                    problems.append(f"{folder.name}/{path.name}, read by Python's safetensors: {error}")
    return problems


class Bench:
    def __init__(self, program, faults):
        self.program, self.faults = str(program), faults and str(faults)
        self.scratch = Path(tempfile.mkdtemp(prefix="cairn-fault-"))
        os.chmod(self.scratch, 0o755)
        self.reference = self.scratch / "reference"
        self.processes = 0
        self.kills = []  # what killed a training
        self.tried = set()  # (call and its file, what went wrong there)
        self.root = os.geteuid() == 0
        self.program_of_others = None  # a copy, because others may not enter root's folders
        if self.root:
            self.program_of_others = shutil.copy(self.program, self.scratch)
        self.lock = threading.Lock()
        self.finished = {}  # steps -> a run that was never stopped

    # ---- running

    def environment(self, more):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CAIRN_FAULT")}
        environment.update({"LC_ALL": "C.UTF-8"})
        for name in ("ASAN_OPTIONS", "TSAN_OPTIONS"):  # too much memory is the program's to report
            environment[name] = f"{environment.get(name, '')} allocator_may_return_null=1"
        return {**environment, **more}

    def fault(self, what, log=None):
        """The environment that injects a fault."""
        more = {"LD_PRELOAD": self.faults, "CAIRN_FAULT": what}
        if log:
            more["CAIRN_FAULT_LOG"] = str(log)
        return more

    def start(self, arguments, folder, stdin=subprocess.DEVNULL, environment={}, wrapper=(), user=False,
              program="copy-task", **streams):
        self.processes += 1
        program, ids = str(Path(self.program).parent / program), {}
        if user and self.root:
            program, ids = self.program_of_others, {"user": 65534, "group": 65534, "extra_groups": []}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        return subprocess.Popen(
            [*wrapper, program, *arguments], cwd=folder, stdin=stdin, env=self.environment(environment), **streams,
            **ids)

    def run(self, arguments, folder, stdin=b"", **how):
        """`stdin`: bytes, a file in the folder, or None for closed."""
        given, opened = None, None
        if stdin is None:
            how["wrapper"] = [*how.get("wrapper", ()), "sh", "-c", 'exec "$@" <&-', "sh"]
            source = subprocess.DEVNULL
        elif isinstance(stdin, bytes):
            source, given = (subprocess.PIPE, stdin) if stdin else (subprocess.DEVNULL, None)
        else:
            opened = source = os.open(Path(folder) / stdin, os.O_RDONLY)
        process = self.start(arguments, folder, source, **how)
        try:
            out, err = process.communicate(given, timeout=WATCHDOG)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += b"\n(hung, and was killed)"
        finally:
            if opened is not None:
                os.close(opened)
        text = lambda data: (data or b"").decode("utf-8", "backslashreplace")
        return Result(process.returncode, text(out), NO_MEMORY.sub("", text(err)), how.get("program", "copy-task"))

    def wait(self, process, condition, what):
        """Until `condition()`; a program that ends before is a problem."""
        give_up = time.monotonic() + WATCHDOG
        while not condition():
            if process.poll() is not None:
                raise Failure(f"ended with {process.returncode} before {what}")
            if time.monotonic() > give_up:
                process.kill()
                raise Failure(f"hangs before {what}")
            time.sleep(0.002)

    def finish(self, process):
        out, err = process.communicate(timeout=WATCHDOG)
        return Result(process.returncode, (out or b"").decode(), (err or b"").decode())

    # ---- judging

    def ended(self, result, codes, message="", out="", quiet=True, says=""):
        """What is wrong with how a process ended. `says`: what it may tell with --quiet, because it changes the
        result."""
        problems = []
        if result.code not in codes:
            problems.append(f"expected exit code {' or '.join(map(str, codes))}")
        if SANITIZER.search(result.err) or SANITIZER.search(result.out):
            problems.append("a sanitizer or the C++ runtime speaks")
        if result.code == 0:
            if f"{result.program}: error:" in result.err:
                problems.append("an error, and exit code 0")
            if quiet and not re.fullmatch(says, result.err):
                problems.append("expected nothing on standard error with --quiet")
        elif result.code != 130:
            lines = re.sub(f"^(?:{says})", "", result.err).split("\n")
            if lines[-1] != "" or (quiet and len(lines) != 2):
                problems.append("expected exactly one line on standard error")
            elif not lines[-2].startswith(f"{result.program}: error: "):
                problems.append(f"expected a line that begins '{result.program}: error: '")
            elif not re.search(message, lines[-2]):
                problems.append(f"expected a message like /{message}/")
            if len(result.err) > 4000 and quiet:
                problems.append(f"an error of {len(result.err)} characters")
            if not re.fullmatch(out, result.out, re.S):
                problems.append(f"expected standard output to be /{out}/")
        return [f"{'; '.join(problems)}: {result}"] if problems else []

    # ---- runs

    def make_reference(self):
        """The run that all others start from or are compared with."""
        folder = self.reference
        folder.mkdir()
        result = self.run([*TRAIN, "--out", "run", "--quiet"], folder)
        if result.code != 0:
            raise Failure(f"{' '.join(TRAIN)}: {result}")
        os.chmod(folder / "run", 0o755)

    def copy_run(self, folder):
        shutil.copytree(self.reference / "run", folder / "run")
        return folder / "run"

    def never_stopped(self, steps):
        """A run of so many steps in one go."""
        if steps == STEPS:
            return self.reference / "run"
        with self.lock:
            if steps not in self.finished:
                folder = self.scratch / f"never-stopped-{steps}"
                folder.mkdir()
                result = self.run([*TRAIN, "--out", "run", "--quiet", "--iterations", str(steps)], folder)
                if result.code != 0:
                    raise Failure(f"{steps} steps: {result}")
                self.finished[steps] = folder / "run"
            return self.finished[steps]

    def same_as_never_stopped(self, run, steps=STEPS):
        """What differs from a run of so many steps that was never stopped."""
        other, problems = self.never_stopped(steps), []
        for name in ("checkpoint/weights.safetensors", "checkpoint/optimizer.safetensors"):
            if not (run / name).is_file() or (run / name).read_bytes() != (other / name).read_bytes():
                problems.append(f"{name} is not that of a run never stopped")
        try:
            if metrics_of(run) != metrics_of(other):
                problems.append("metrics.jsonl is not that of a run never stopped")
        except (OSError, ValueError) as error:
            problems.append(f"metrics.jsonl: {error}")
        for name in ("report.html", "config.json"):
            if not (run / name).is_file():
                problems.append(f"no {name}")
        problems += contents(run)
        left = {path.name for path in run.iterdir()} & {"checkpoint.new", "config.json.new", "report.html.new"}
        return problems + [f"{name} is left" for name in sorted(left)]

    def resume(self, folder, steps=STEPS, more=(), says="", **how):
        """Continues the run in folder/run however it was left, and tells what differs from one never stopped."""
        started = (folder / "run" / "config.json").exists()  # before that, nothing of the run is known
        arguments = [*(RESUME if started else [*TRAIN, "--out", "run"]), "--quiet", *more]
        result = self.run(arguments, folder, **how)
        problems = self.ended(result, (0,), says=says)
        return [f"{' '.join(arguments)}: {p}" for p in problems] or self.same_as_never_stopped(folder / "run", steps)

    # ---- kinds of cases

    def run_case(self, case, folder):
        run = self.copy_run(folder) if case.run else folder / "run"
        for name, content in case.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        if case.before:
            case.before(folder)
        if case.ordinary_user and self.root:
            os.chmod(folder, 0o777)
        before = fingerprint(run)
        how = {"environment": case.environment, "wrapper": case.wrapper, "user": case.ordinary_user,
               "program": case.program}
        result = self.run([*case.arguments, *(["--quiet"] if case.quiet else [])], folder, case.stdin, **how)
        problems = self.ended(result, case.codes(), case.message, case.out, case.quiet, case.says)
        if case.unchanged and (changed := changes(before, fingerprint(run))):
            problems.append(f"changed in run/: {', '.join(changed)}")
        if case.after and not problems:
            problems += case.after(folder)
        return problems

    def run_sweep(self, sweep, variants, folder):
        run = self.copy_run(folder)
        if not sweep.previous:
            shutil.rmtree(run / "checkpoint.previous")
        problems, original, before = [], {}, fingerprint(run)
        codes = sweep.code if isinstance(sweep.code, tuple) else (sweep.code,)
        for label, files in variants:
            for name, content in files.items():
                original.setdefault(name, (run / name).read_bytes())
                (run / name).write_bytes(content)
            result = self.run([*sweep.arguments, "--quiet"], folder)
            problems += [f"{label}: {p}" for p in self.ended(result, codes, sweep.message)]
            for name, content in files.items():
                if (run / name).read_bytes() != content:
                    problems.append(f"{label}: {name} was changed")
                (run / name).write_bytes(original[name])
        if changed := changes(before, fingerprint(run)):
            problems.append(f"changed in run/: {', '.join(changed)}")
        return problems


class Failure(Exception):
    """A step that others need went wrong."""
