"""What systems get wrong: calls that fail, processes that are killed, checkpoints that rot, streams that are closed."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from harness import MODEL, RESUME, STEPS, TRAIN, Failure, Steps, changes, contents, fingerprint

START = [*TRAIN, "--out", "run", "--quiet"]
ENDLESS = ["train", *MODEL, "--iterations", "100000000", "--checkpoint-every", "3", "--out", "run", "--quiet"]
EVALUATE = ["evaluate", "--run", "run", "--sequences", "1", "--quiet"]

calls = []  # of START: (number, name, path)
allocations = 0  # of START


def look(bench):
    """Finds out which calls a training makes, and what cannot be tried here: need -> reason."""
    global allocations
    left_out = look.left_out = {"mount": "mounting a small disk is not allowed"}
    if not bench.root:
        left_out["root"] = "root alone can"
    no_file = bench.run(["--version"], bench.scratch, wrapper=["prlimit", "--fsize=0", "--"])
    if no_file.code == -signal.SIGXFSZ:  # the thread sanitizer's
        left_out["no file"] = "the sanitizer writes a file before the program begins"
    if os.uname().sysname != "Linux" or not bench.faults:
        left_out["faults"] = left_out["allocations"] = "no library to inject faults (--faults)"
        return left_out
    folder = bench.scratch / "look"
    folder.mkdir()
    result = bench.run(START, folder, environment=bench.fault("count", folder / "log"))
    if result.code != 0:
        raise Failure(f"with {bench.faults}: {result}")
    for line in (folder / "log").read_text().splitlines():
        number, name, *path = line.split(" ", 2)
        if number == "allocations":
            allocations = int(name)
        elif number != "threads":
            calls.append((int(number), name, path[0].replace(f"{folder.resolve()}/", "")))
    if len(calls) < 50:
        raise Failure(f"the library saw {len(calls)} calls of {' '.join(START)}")
    if problems := bench.same_as_never_stopped(folder / "run"):
        raise Failure(f"with {bench.faults}, a training is another: {problems}")
    if allocations == 0:
        left_out["allocations"] = "the sanitizer has its own allocator"
    return left_out


def spread(items, count):
    """So many of them, evenly, the first and the last included."""
    items = list(items)
    if count >= len(items) or count < 1:
        return items if count else []
    return [items[i * (len(items) - 1) // max(count - 1, 1)] for i in range(count)]


def in_window():
    """The calls that save: each time from the first into checkpoint.new/ to what brings the last rename to the disk."""
    inside, saving, rotated = [], False, False
    for number, name, path in calls:
        saving = saving or "checkpoint.new" in path
        rotated = saving and (rotated or is_rotation(name, path))
        if saving:
            inside.append(number)
        if rotated and name == "fsync":
            saving = False
    return inside


def is_rotation(name, path):
    return name == "rename" and path == "run/checkpoint.new -> run/checkpoint"


def nothing_lost(bench, folder, number):
    """What is wrong with the newest checkpoint of a training that ended at this call: it is the last that was complete
    then, every second step, or the next one."""
    saves = sum(is_rotation(name, path) for _, name, path in calls[: number - 1])
    if problems := contents(folder / "run"):
        return problems
    result = bench.run([*EVALUATE, "--json"], folder)
    if saves == 0 and result.code == 3:
        return bench.ended(result, (3,), "run")
    if problems := bench.ended(result, (0,)):
        return problems
    step = json.loads(result.out)["iterations"]
    return [] if step in (2 * saves,
                          2 * saves + 2) else [f"{saves} checkpoints were saved, but the newest is that of step {step}"]


# ---- calls that fail

def call_fails(numbers, what, codes, message=""):
    """Each of these calls of a training goes wrong; then it is resumed."""
    def check(bench, folder):
        problems = []
        for number in numbers:
            here = folder / str(number)
            here.mkdir()
            which = " ".join(map(str, calls[number - 1]))
            bench.tried.add((*calls[number - 1][1:], what.format("")))
            result = bench.run(START, here, environment=bench.fault(what.format(number)))
            found = bench.ended(result, codes, message, out=".*")
            if result.code == 0:
                found += bench.same_as_never_stopped(here / "run")
            else:
                found += nothing_lost(bench, here, number) + bench.resume(here)
            problems += [f"call {which}: {p}" for p in found]
            shutil.rmtree(here)
        return problems
    return check


# What each call may fail with.
ERRORS = {"open": ("EACCES", "ENOSPC", "EMFILE", "EROFS"), "write": ("ENOSPC", "EIO", "EFBIG", "EDQUOT"),
          "pwrite": ("ENOSPC", "EIO", "EFBIG", "EDQUOT"),
          "fsync": ("EIO", "ENOSPC"), "rename": ("EACCES", "EIO"), "mkdir": ("ENOSPC", "EROFS"),
          "unlink": ("EIO", "EACCES"), "rmdir": ("EIO",), "close": ("EIO", "ENOSPC"), "ftruncate": ("EIO",),
          "flock": ("EIO",)}


def failing_calls(every):
    kinds = {}
    for number, name, path in calls:
        kinds.setdefault(name, []).append(number)
    for name, numbers in kinds.items():
        for error in ERRORS.get(name, ("EIO",)):
            # A file that was brought to the disk is safe whatever close says, and a report that is not there need not
            # be removed.
            codes = (0, 1) if name in ("close", "unlink") else (1,)
            yield Steps(f"{name} fails with {error}, once",
                        call_fails(spread(numbers, len(numbers) // every or 1), f"fail:{{}}:{error}", codes),
                        needs="faults")
    everything = [number for number, _, _ in calls]
    for error in ("ENOSPC", "EIO", "EROFS"):
        yield Steps(f"every call fails with {error} from one on",
                    call_fails(spread(everything, max(1, 40 // every)), f"fail:{{}}+:{error}", (0, 1)), needs="faults")
    for name in ("write", "fsync", "open"):
        yield Steps(f"{name} is interrupted by a signal",
                    call_fails(spread(kinds[name], len(kinds[name]) // every or 1), "fail:{}:EINTR", (0,)),
                    needs="faults")
    yield Steps("write writes half",
                call_fails(spread(kinds["write"], len(kinds["write"]) // every or 1), "short:{}", (0,)), needs="faults")
    saves = [number for number, name, path in calls if name == "write" and "checkpoint.new" in path]
    yield Steps("write puts a wrong byte on the disk",
                call_fails(spread(saves, len(saves) // every or 1), "flip:{}", (1,), "cannot be read back"), needs="faults")


def request_fails(arguments, numbers, later, codes, run=True):
    """Each of these requests for memory fails."""
    def check(bench, folder):
        problems = []
        for number in numbers:
            here = folder / str(number)
            here.mkdir()
            training = arguments[0] == "train"
            if not training and run:
                bench.copy_run(here)
            what = f"alloc:{number}{'+' if later else ''}"
            result = bench.run(arguments, here, environment=bench.fault(what))
            found = bench.ended(result, codes, "" if 2 in codes or 3 in codes else "memory", out=".*")
            if training and "--out" in arguments:
                found += bench.same_as_never_stopped(here / "run") if result.code == 0 else bench.resume(here)
            problems += [f"CAIRN_FAULT={what}: {p}" for p in found]
            shutil.rmtree(here)
        return problems
    return check


def requests_of(bench, arguments, code):
    folder = bench.scratch / f"requests-{bench.processes}"
    folder.mkdir()
    bench.copy_run(folder)
    result = bench.run(arguments, folder, environment=bench.fault("count", folder / "log"))
    if result.code != code:
        raise Failure(f"{' '.join(arguments)}: {result}")
    return int((folder / "log").read_text().split()[-1])


def failing_requests(bench, every, left_out):
    many = lambda total, count: spread(range(1, total + 1), max(2, count // every))
    if "allocations" in left_out:
        for name in ("a training", "what follows in a training", "an evaluation", "an error"):
            yield Steps(f"a request for memory of {name} fails", None, needs="allocations")
        return
    # The first ones one by one: they are the command line's and the configuration's.
    first = list(range(1, max(2, 40 // every)))
    yield Steps("a request for memory of a training fails",
                request_fails(START, first + many(allocations, 80), False, (0, 4)),
                needs="allocations")
    yield Steps("all requests for memory of a training fail from one on",
                request_fails(START, first + many(allocations, 80), True, (4,)), needs="allocations")
    total = requests_of(bench, EVALUATE, 0)
    yield Steps("a request for memory of an evaluation fails", request_fails(EVALUATE, many(total, 60), False, (0, 4)),
                needs="allocations")
    # Requests of an error on its way out: that error or this one, but one line.
    for name, arguments, code in (("the usage", ["train", "--lenght", "3", "--quiet"], 2),
                                  ("a run", ["evaluate", "--run", "nothing", "--quiet"], 3)):
        total = requests_of(bench, arguments, code)
        for later in (False, True):
            fail = "all requests for memory fail" if later else "a request for memory fails"
            yield Steps(f"{fail} where {name} is wrong",
                        request_fails(arguments, many(total, 100), later, (code, 4)), needs="allocations")


# ---- kills

def killed(bench, folder, arguments, what, problems):
    """Whether the process was killed; else it ended well."""
    result = bench.run(arguments, folder, environment=bench.fault(what))
    if result.code == -signal.SIGKILL:
        bench.kills.append(what)
        return True
    problems += [f"CAIRN_FAULT={what}: {p}" for p in bench.ended(result, (0,))]
    return False


def kill_once(mode, number):
    what = f"{mode}:{number}"

    def check(bench, folder):
        problems = []
        bench.tried.add((*calls[number - 1][1:], mode))
        if not killed(bench, folder, START, what, problems):
            return problems + [f"CAIRN_FAULT={what}: was not killed"]
        return [f"CAIRN_FAULT={what}: {p}" for p in nothing_lost(bench, folder, number) + bench.resume(folder)]
    return check


def kill_again_and_again(seed, times, mode):
    """Killed, resumed, killed ..., as often as that; then it ends well."""
    def check(bench, folder):
        draw, problems, trail, arguments = random.Random(seed), [], [], START
        while sum(was_killed for _, was_killed in trail) < times and len(trail) < 50:
            number = draw.randint(1, 30)
            trail.append((number, killed(bench, folder, arguments, f"{mode}:{number}", problems)))
            arguments = [*RESUME, "--quiet"] if (folder / "run" / "config.json").exists() else START
        return [f"killed at {[number for number, was_killed in trail if was_killed]}: {p}"
                for p in problems + bench.resume(folder)]
    return check


def kills(count):
    inside = in_window()
    outside = [number for number, _, _ in calls if number not in set(inside)]
    repeated = 4 if count >= 40 else 0  # runs, each killed five times
    once = max(0, count - 5 * repeated - 1)  # and one from outside
    modes = ["kill", "power"]
    chosen = spread(inside, once * 3 // 4) + spread(outside, once - once * 3 // 4)
    for i in range(max(0, once - len(chosen))):  # more kills than calls: again, with power lost
        chosen.append(calls[i % len(calls)][0])
    seen = set()
    for i, number in enumerate(chosen):
        mode = modes[(i + i // 2) % 2]
        mode = modes[1 - modes.index(mode)] if (mode, number) in seen else mode
        seen.add((mode, number))
        _, name, path = calls[number - 1]
        yield Steps(f"killed ({mode} {i}) at call {number}, {name} {path}", kill_once(mode, number), kill=True,
                    needs="faults")
    for seed in range(repeated):
        yield Steps(f"killed five times, {seed}", kill_again_and_again(seed, 5, modes[seed % 2]), kill=True,
                    needs="faults")


# ---- signals, locks

def has_lines(run, count):
    path = Path(run) / "metrics.jsonl"
    return lambda: path.exists() and path.read_bytes().count(b"\n") >= count


def step_of(run):
    return json.loads((run / "checkpoint" / "checkpoint.json").read_text())["about"]["progress"]["step"]


def interrupted(number, more=(), then=2):
    """A signal in the middle of a training: saved, 130, and resumed as if nothing had been."""
    def check(bench, folder):
        run = folder / "run"
        process = bench.start([*ENDLESS, *more], folder)
        bench.wait(process, has_lines(run, 5), "the signal")
        process.send_signal(number)
        problems = bench.ended(bench.finish(process), (130,))
        if problems:
            return problems
        step = step_of(run)
        return bench.resume(folder, step + then, ["--iterations", str(step + then), "--checkpoint-every", "2"])
    return check


def interrupted_without_folder(number, arguments=None):
    def check(bench, folder):
        bench.copy_run(folder)
        process = bench.start(arguments or [w for w in ENDLESS if w not in ("--out", "run")], folder)
        # Nothing tells that it works, except that it catches the signal.
        caught = lambda: signal_is_caught(process.pid, number)
        bench.wait(process, caught, "it catches signals")
        process.send_signal(number)
        return bench.ended(bench.finish(process), (130,))
    return check


def signal_is_caught(process, number):
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
    mask = int(status.split("SigCgt:")[1].split()[0], 16)
    return bool(mask >> (number - 1) & 1)


def killed_from_outside(bench, folder):
    process = bench.start(ENDLESS, folder)
    run = folder / "run"
    bench.wait(process, has_lines(run, 20), "the signal")
    process.kill()
    process.communicate()
    bench.kills.append("from outside")
    steps = step_of(run) + 5
    return bench.resume(folder, steps, ["--iterations", str(steps), "--checkpoint-every", "2"])


def two_on_one_folder(bench, folder):
    run = bench.copy_run(folder)
    first = bench.start([*RESUME, "--quiet", "--iterations", "100000000", "--checkpoint-every", "0"], folder)
    problems = []
    try:
        bench.wait(first, has_lines(run, STEPS + 5), "the second run")
        for arguments in ([*RESUME, "--quiet"], START):
            problems += bench.ended(bench.run(arguments, folder), (2,), "another run")
        problems += bench.ended(bench.run(EVALUATE, folder), (0,))  # who only reads need not wait
        if first.poll() is not None:
            problems.append("the first run ended")
    finally:
        first.send_signal(signal.SIGTERM)
        result = bench.finish(first)
    return problems + bench.ended(result, (130,))


def read_while_saved(bench, folder):
    """Evaluated again and again while the run saves after every step: there is a checkpoint at any time."""
    first = bench.start([*ENDLESS, "--checkpoint-every", "1"], folder)
    problems = []
    try:
        bench.wait(first, has_lines(folder / "run", 5), "it is read")
        for _ in range(40):
            problems += bench.ended(bench.run(EVALUATE, folder), (0,))
    finally:
        first.send_signal(signal.SIGTERM)
        result = bench.finish(first)
    return problems + bench.ended(result, (130,))


def lock_left_behind(bench, folder):
    run = bench.copy_run(folder)
    (run / ".lock").write_bytes(b"12345\n")
    os.chmod(run / ".lock", 0o644)
    return bench.ended(bench.run([*RESUME, "--quiet"], folder), (0,))


def no_locks(error):
    """A file system without locks: said, and the training goes on."""
    def check(bench, folder):
        number = next(number for number, name, _ in calls if name == "flock")
        bench.tried.add((*calls[number - 1][1:], f"fail::{error}"))
        result = bench.run(START, folder, environment=bench.fault(f"fail:{number}:{error}"))
        problems = bench.ended(result, (0,), says="--out run: this file system has no locks .*\n", out=".*")
        return problems or bench.same_as_never_stopped(folder / "run")
    return check


def threads_missing(bench, folder):
    """Threads cannot be made from the first, second or third on: the same results."""
    arguments, problems, seen = ["--threads", "4", "--length", "64", "--iterations", "2", "--quiet"], [], []
    train = [w for w in TRAIN if w not in ("--iterations", str(STEPS))]
    for first in (4, 3, 2, 1):
        here = folder / str(first)
        here.mkdir()
        result = bench.run([*train, "--out", "run", *arguments], here,
                           environment=bench.fault(f"thread:{first}", here / "log"))
        problems += bench.ended(result, (0,), out=".*")
        if "\nthreads " not in (here / "log").read_text() or "\nthreads 0\n" in (here / "log").read_text():
            problems.append("no thread was asked for")
        seen.append((here / "run" / "checkpoint" / "weights.safetensors").read_bytes())
    return problems + (["results depend on the threads that there are"] if len(set(seen)) > 1 else [])


# ---- signals at a call

def interrupted_at(number, gap=None):
    """SIGINT in a call of a training, and where `gap` is given another one so many milliseconds later. Up to half a second
    counts as one signal; later the process ends there and then."""
    def check(bench, folder):
        log = folder / "log"
        what = f"interrupt:{number}" + ("" if gap is None else f":{gap}")
        bench.tried.add((*calls[number - 1][1:], what.replace(f":{number}", "")))
        result = bench.run(START, folder, environment=bench.fault(what, log))
        at_once = gap is not None and gap > 500
        caught = number > calls_before_signals()
        codes = (130,) if at_once and caught else (0, 130) if caught else (-signal.SIGINT,)
        problems = [] if result.code in codes else [f"expected exit code {codes}: {result}"]
        done = [line.split(" ", 1)[0] for line in log.read_text().splitlines()]
        if at_once and done[-1] != str(number):
            problems.append(f"went on until {done[-1]}")
        problems += nothing_lost(bench, folder, number) if at_once or not caught else []
        return [f"CAIRN_FAULT={what}: {p}" for p in problems + bench.resume(folder)]
    return check


def calls_before_signals():
    """The calls that a training makes before it catches signals: its folder and the lock."""
    return next(number for number, name, _ in calls if name == "flock")


def stopped_and_continued(bench, folder):
    """SIGTSTP and SIGCONT, with a terminal: the display goes on, and so does the training."""
    run, (reader, terminal) = folder / "run", os.openpty()
    process = bench.start([w for w in ENDLESS if w != "--quiet"], folder, stderr=terminal, process_group=0)
    shown = []

    def shows_more():
        os.set_blocking(reader, False)
        try:
            shown.append(os.read(reader, 65536))
        except BlockingIOError:
            return False
        return b"\r\x1b[K" in shown[-1]

    bench.wait(process, lambda: shows_more() and has_lines(run, 5)(), "SIGTSTP")
    process.send_signal(signal.SIGTSTP)
    bench.wait(process, lambda: state_of(process.pid) == "T", "it stops")
    while shows_more():
        pass
    recorded = (run / "metrics.jsonl").read_bytes().count(b"\n")
    process.send_signal(signal.SIGCONT)
    bench.wait(process, has_lines(run, recorded + 20), "it continues")
    bench.wait(process, shows_more, "it shows")
    process.send_signal(signal.SIGTERM)
    code = process.wait()
    os.close(terminal)
    process.stdout.close()
    shows_more()
    os.close(reader)
    problems = [] if code == 130 else [f"expected exit code 130, got {code}"]
    seconds = [json.loads(line)["seconds"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    if seconds != sorted(seconds):
        problems.append("the time of a step lies before that of an earlier one")
    if b"stopping after this step" not in b"".join(shown):
        problems.append(f"the display did not go on: {shown[-1]}")
    step = step_of(run)
    return problems + bench.resume(folder, step + 2, ["--iterations", str(step + 2), "--checkpoint-every", "2"])


def processor_time(process):
    ticks = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def state_of(process):
    return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]


def is_pending(process, number):
    """Has a signal been sent to the process that it has not yet taken?"""
    status = Path(f"/proc/{process}/status").read_text()
    return bool(int(re.search(r"^ShdPnd:\s*(\w+)", status, re.M)[1], 16) >> (number - 1) & 1)


def ignored_by_the_parent(bench, folder):
    """As under nohup, or in the background of a shell that is no terminal's: the training goes on."""
    run = folder / "run"
    process = bench.start(ENDLESS, folder, wrapper=["sh", "-c", 'trap "" INT HUP; exec "$@"', "sh"])
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGINT):
        bench.wait(process, has_lines(run, 5), "the signal")
        process.send_signal(number)
        recorded = (run / "metrics.jsonl").read_bytes().count(b"\n")
        bench.wait(process, has_lines(run, recorded + 50), "it went on")
    process.send_signal(signal.SIGTERM)
    return bench.ended(bench.finish(process), (130,))


def second_signal_in_a_kernel(bench, folder):
    """A step that takes an hour: the first signal waits for its end, a second one does not. One that comes at once does."""
    long = ["train", *MODEL, "--attention", "full", "--batch", "1", "--length", "1000000", "--iterations", "1",
            "--out", "run"]
    process = bench.start(long, folder)
    try:
        bench.wait(process, lambda: (folder / "run" / "metrics.jsonl").exists(), "the step")
        begun = processor_time(process.pid)
        bench.wait(process, lambda: processor_time(process.pid) > begun + 0.5, "it computes")
        # From a whole tenth of a second of the program's clock on: who counts tenths finds no more than five.
        time.sleep(-time.monotonic() % 0.1)
        for pause in (0.0, 0.2, 0.35):
            bench.wait(process, lambda: not is_pending(process.pid, signal.SIGINT), "another signal")
            time.sleep(pause)
            if process.poll() is not None:
                return [f"ended after signals within half a second: {bench.finish(process)}"]
            process.send_signal(signal.SIGINT)
        result = bench.finish(process)
    finally:
        process.kill()
    problems = [] if result.code == 130 else [f"expected exit code 130: {result}"]
    return problems + ([] if result.err.count("stopping after this step") == 1 else [f"said otherwise: {result}"])


# ---- streams

def with_streams(shell, codes=(1,), quiet=True, expect_error=True, arguments=START):
    """A training whose standard streams a shell arranges. It goes on and saves."""
    def check(bench, folder):
        if arguments is not START:
            bench.copy_run(folder)
        words = arguments if quiet else [w for w in arguments if w != "--quiet"]
        result = bench.run(words, folder, wrapper=["sh", "-c", shell, "sh"])
        if expect_error:
            problems = bench.ended(result, codes, "standard output", out=".*", quiet=quiet)
        else:
            problems = [] if result.code in codes else [f"expected exit code {codes}: {result}"]
        if arguments is START:
            problems += bench.same_as_never_stopped(folder / "run") or bench.resume(folder)
        return problems
    return check


def broken_pipe(quiet):
    def check(bench, folder):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            process = bench.start(START if quiet else [w for w in START if w != "--quiet"], folder, stdout=writer)
        finally:
            os.close(writer)
        problems = bench.ended(bench.finish(process), (1,), "standard output", quiet=quiet)
        return problems + bench.same_as_never_stopped(folder / "run")
    return check


def files_are_not_streams(bench, folder):
    """With all three closed, what is meant for a stream must not end up in a file."""
    result = bench.run([w for w in START if w != "--quiet"], folder,
                       wrapper=["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"])
    problems = [] if result.code == 1 else [f"expected exit code 1: {result}"]
    return problems + bench.same_as_never_stopped(folder / "run") + bench.resume(folder)


# ---- disks

def file_size_limit(size):
    def check(bench, folder):
        result = bench.run(START, folder, wrapper=["prlimit", f"--fsize={size}", "--"])
        problems = bench.ended(result, (1,), "[Ff]ile too large|EFBIG|run", out=".*")
        return problems + bench.resume(folder)
    return check


def resumed_within_limit(bench, folder):
    """A run of three steps, resumed where its next checkpoint has no room: the one it has stays."""
    result = bench.run([*START, "--iterations", "2"], folder)
    problems = bench.ended(result, (0,), out=".*")
    before = fingerprint(folder / "run" / "checkpoint")
    result = bench.run([*RESUME, "--quiet", "--iterations", "6"], folder, wrapper=["prlimit", "--fsize=4096", "--"])
    problems += bench.ended(result, (1,), "too large", out=".*")
    if changed := changes(before, fingerprint(folder / "run" / "checkpoint")):
        problems.append(f"changed: {changed}")
    return problems


def full_disk(kilobytes):
    """A disk with so much room; afterwards it has more."""
    def check(bench, folder):
        run = folder / "run"
        run.mkdir()
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(run)],
                              capture_output=True)
        if made.returncode != 0:
            return []
        try:
            result = bench.run(START, folder)
            problems = bench.ended(result, (1,), "[Nn]o space left", out=".*")
            subprocess.run(["mount", "-o", "remount,size=8m", str(run)], check=True, capture_output=True)
            return problems + bench.resume(folder)
        finally:
            subprocess.run(["umount", "-l", str(run)], capture_output=True)
    return check


def can_mount(bench):
    probe = bench.scratch / "mount"
    probe.mkdir()
    if not bench.root or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(probe)],
                                        capture_output=True).returncode:
        return False
    subprocess.run(["umount", str(probe)], check=True)
    return True


def not_writable(prepare):
    """A run that root made, resumed by somebody else."""
    def check(bench, folder):
        result = bench.run([*START, "--iterations", "4"], folder)
        if result.code != 0:
            return [str(result)]
        run = folder / "run"
        prepare(run)
        before = fingerprint(run)
        result = bench.run([*RESUME, "--quiet", "--iterations", "6"], folder, user=True)
        problems = bench.ended(result, (1,), "run")
        changed = changes(before, fingerprint(run))
        return problems + [f"changed: {name}" for name in changed if "checkpoint" in name or "metrics" in name]
    return check


# ---- damage

def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def replace_by(make):
    def damage(path):
        path.unlink()
        make(path)
    return damage


DAMAGE = {
    "has one bit flipped": flip,
    "is cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "is empty": lambda path: path.write_bytes(b""),
    "has a byte too many": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "is zeroes": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "is missing": lambda path: path.unlink(),
    "is a folder": replace_by(lambda path: path.mkdir()),
    "is a link to itself": replace_by(lambda path: os.symlink(path.name, path)),
    "is a named pipe": replace_by(os.mkfifo),
}
FILES = ("weights.safetensors", "optimizer.safetensors", "checkpoint.json", "checksums")


# What is said of a damaged checkpoint, also with --quiet.
PASSED_OVER = (r"run/checkpoint\b.*; the checkpoint of step \d+ in run/checkpoint.previous is used, "
               r"and the damaged one is moved to run/checkpoint.damaged\n")


def damaged(damage, file, after=()):
    """The newest checkpoint cannot be used: the one before is, which is said; nothing is lost from there on."""
    def check(bench, folder):
        run = bench.copy_run(folder)
        damage(run / "checkpoint" / file if file else run / "checkpoint")
        before, is_there = fingerprint(run), os.path.lexists(run / "checkpoint")
        loud = [w for w in EVALUATE if w != "--quiet"]
        result = bench.run(loud, folder)
        problems = bench.ended(result, (0,), quiet=False)
        if file and not re.search(f"checkpoint/.*; the checkpoint of step {STEPS - 2} in .* is used", result.err):
            problems.append(f"does not say which checkpoint is damaged, and which is used: {result}")
        if changed := changes(before, fingerprint(run)):
            problems.append(f"evaluate changed {changed}")
        return problems + bench.resume(folder, says=PASSED_OVER if is_there else "")
    return check


def damaged_checksums(run):
    flip(run / "checkpoint" / "checksums")


def both_damaged(first, second, file):
    def check(bench, folder):
        run = bench.copy_run(folder)
        first(run / "checkpoint" / file), second(run / "checkpoint.previous" / file)
        before, problems = fingerprint(run), []
        for arguments in (EVALUATE, [*RESUME, "--quiet"], START):
            problems += bench.ended(bench.run(arguments, folder), (3,),
                                    "checkpoint/.*checkpoint.previous/.*or train again: --config run/config.json")
        if changed := changes(before, fingerprint(run)):
            problems.append(f"changed {changed}")
        return problems
    return check


def leftovers(prepare, code=0, message="", loses_result=False):
    """Something lies in the run's folder that a crash or a person left. Training goes on all the same."""
    def check(bench, folder):
        result = bench.run([*START, "--iterations", "4"], folder)
        if result.code != 0:
            return [str(result)]
        run = folder / "run"
        # As if the run had been stopped after its fourth step.
        lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        (run / "metrics.jsonl").write_bytes(b"".join(lines[:4]))
        prepare(run)
        if code == 0:
            return bench.resume(folder, STEPS, ["--iterations", "6"], says=f"({PASSED_OVER})?")
        return bench.ended(bench.run([*RESUME, "--quiet", "--iterations", "6"], folder), (code,), message, out=".*")
    return check


def junk(run, name):
    (run / name / "deep" / "er").mkdir(parents=True)
    (run / name / "deep" / "file").write_bytes(b"junk")


LEFT = {
    "an empty checkpoint.new/": lambda run: (run / "checkpoint.new").mkdir(),
    "a checkpoint.new/ with other things": lambda run: junk(run, "checkpoint.new"),
    "a checkpoint.new that is a file": lambda run: (run / "checkpoint.new").write_bytes(b"junk"),
    "a checkpoint.new that links to itself": lambda run: os.symlink("checkpoint.new", run / "checkpoint.new"),
    "a complete checkpoint.new/": lambda run: shutil.copytree(run / "checkpoint", run / "checkpoint.new"),
    "a checkpoint.new/ and no checkpoint/": lambda run: os.rename(run / "checkpoint", run / "checkpoint.new"),
    "a checkpoint.damaged/": lambda run: junk(run, "checkpoint.damaged"),
    "a damaged checkpoint/ beside a checkpoint.damaged/": lambda run: (
        junk(run, "checkpoint.damaged"), flip(run / "checkpoint" / "checksums")),
    "a checkpoint.previous that is a file": lambda run: (
        shutil.rmtree(run / "checkpoint.previous"), (run / "checkpoint.previous").write_bytes(b"junk")),
    "no checkpoint.previous/": lambda run: shutil.rmtree(run / "checkpoint.previous"),
    "a checkpoint/ with files of somebody's": lambda run: (run / "checkpoint" / "notes.txt").write_bytes(b"mine"),
    "no config.json": lambda run: (run / "config.json").unlink() or (run / "config.json").write_bytes(b""),
    "half a report beside": lambda run: (run / "report.html.new").write_bytes(b"<html"),
    "a config.json.new": lambda run: (run / "config.json.new").write_bytes(b"{"),
    "a record behind the checkpoint's": lambda run: (run / "metrics.jsonl").open("ab").write(b'{"step":5}\n'),
    "half a record": lambda run: (run / "metrics.jsonl").open("ab").write(b'{"step":5,"lo'),
    "binary behind the records": lambda run: (run / "metrics.jsonl").open("ab").write(bytes(range(256)) * 100),
    "no report.html": lambda run: (run / "report.html").unlink(),
    "a report.html of somebody's": lambda run: (run / "report.html").write_bytes(b"mine"),
}


def in_its_place(name, code, message=""):
    """A folder that is not empty where the run has a file: said, in one line."""
    def prepare(run):
        if (run / name).exists():
            (run / name).unlink()
        junk(run, name)
    return leftovers(prepare, code, message)


def cases(bench, options):
    every, left_out = options.every, look.left_out
    if not calls:
        yield Steps("calls that fail and kills", None, needs="faults")
    yield from failing_calls(every) if calls else []
    yield from failing_requests(bench, every, left_out)
    yield from kills(options.kills) if calls else []

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        name = signal.Signals(number).name
        yield Steps(f"{name} in a training", interrupted(number))
        yield Steps(f"{name} in a training that saves every step", interrupted(number, ["--checkpoint-every", "1"], 3))
        yield Steps(f"{name} in a training that saves at the end only",
                    interrupted(number, ["--checkpoint-every", "0"], 1))
        yield Steps(f"{name} in a training that is not kept", interrupted_without_folder(number))
        yield Steps(f"{name} in an evaluation", interrupted_without_folder(number, [
            "evaluate", "--run", "run", "--sequences", "1048576", "--quiet"]))
    saving, last = in_window(), [number for number, _, path in calls if "report.html" in path]
    for number in spread(saving, max(2, 12 // every)) + spread(last[1:], max(1, 4 // every)) if calls else []:
        _, name, path = calls[number - 1]
        yield Steps(f"SIGINT at call {number}, {name} {path}", interrupted_at(number), needs="faults")
        yield Steps(f"SIGINT at call {number}, {name} {path}, and once more", interrupted_at(number, 600), needs="faults")
    for gap in (0, 100, 250, 400, 550, 700, 1000):
        yield Steps(f"SIGINT twice, {gap} ms apart", interrupted_at(saving[len(saving) // 2], gap) if calls else None,
                    needs="faults")
    yield Steps("SIGTSTP and SIGCONT in a training with a terminal", stopped_and_continued)
    yield Steps("SIGINT and SIGHUP that the parent ignores", ignored_by_the_parent)
    yield Steps("a second SIGINT in a step of an hour", second_signal_in_a_kernel)
    for error in ("ENOLCK", "ENOTSUP", "ENOSYS", "EINVAL"):
        yield Steps(f"flock fails with {error}", no_locks(error), needs="faults")
    yield Steps("threads that cannot be made", threads_missing, needs="faults")
    yield Steps("killed from outside", killed_from_outside, kill=True)
    yield Steps("two runs on one folder", two_on_one_folder)
    yield Steps("a run is read while it saves", read_while_saved)
    yield Steps("a lock that nobody holds", lock_left_behind)

    yield Steps("standard output is closed", with_streams('exec "$@" >&-'))
    yield Steps("standard output is closed, with progress", with_streams('exec "$@" >&-', quiet=False))
    yield Steps("standard output is a full device", with_streams('exec "$@" >/dev/full'))
    yield Steps("standard output can only be read", with_streams('exec "$@" 1</dev/null'))
    yield Steps("standard output is a pipe nobody reads", broken_pipe(True))
    yield Steps("standard output is a pipe nobody reads, with progress", broken_pipe(False))
    yield Steps("standard input is closed", with_streams('exec "$@" <&-', (0,)))
    yield Steps("standard error is closed", with_streams('exec "$@" 2>&-', (0,), False, False))
    yield Steps("standard error is a full device", with_streams('exec "$@" 2>/dev/full', (0,), False, False))
    yield Steps("standard output and error are closed", with_streams('exec "$@" >&- 2>&-', (1,), False, False))
    yield Steps("all standard streams are closed", files_are_not_streams)
    for command in (EVALUATE, ["show", "--run", "run"],
                    ["show", "--run", "run", "0", "1", "2", "3", "0", "1", "2", "M"],
                    ["train", "--help"], ["--version"], [*RESUME, "--json"]):
        for name, shell in {"closed": 'exec "$@" >&-', "a full device": 'exec "$@" >/dev/full'}.items():
            yield Steps(f"standard output of {' '.join(command[:2])} is {name}",
                        with_streams(shell, arguments=command, quiet=False))

    for size in (0, 100, 1000, 2000, 4096, 4967):
        yield Steps(f"files may have {size} bytes", file_size_limit(size), needs="" if size else "no file")
    yield Steps("a resumed run's files may have 4096 bytes", resumed_within_limit)
    if can_mount(bench):
        for kilobytes in (4, 8, 16, 20, 24, 32, 40):
            yield Steps(f"the disk has {kilobytes} KB", full_disk(kilobytes), needs="root")
    else:
        yield Steps("the disk is full", None, needs="mount")
    for name, prepare in {
        "the run": lambda run: None,
        "the metrics": lambda run: (os.chmod(run, 0o777), os.chmod(run / ".lock", 0o666)),
    }.items():
        yield Steps(f"{name} may not be written", not_writable(prepare), needs="root")

    for file in FILES:
        for name, damage in DAMAGE.items():
            yield Steps(f"{file} of the newest checkpoint {name}", damaged(damage, file))
            yield Steps(f"{file} of both checkpoints {name}", both_damaged(damage, damage, file))
    yield Steps("one checkpoint is cut, the other has a bit flipped",
                both_damaged(DAMAGE["is cut in half"], flip, FILES[0]))
    yield Steps("the newest checkpoint is gone", damaged(shutil.rmtree, ""))
    yield Steps("the newest checkpoint is an empty folder", damaged(lambda p: (shutil.rmtree(p), p.mkdir()), ""))
    yield Steps("the newest checkpoint is a file", damaged(lambda p: (shutil.rmtree(p), p.write_bytes(b"x")), ""))
    yield Steps("the newest checkpoint is a link to itself",
                damaged(lambda p: (shutil.rmtree(p), os.symlink(p.name, p)), ""))
    yield Steps("the newest checkpoint is a link to nothing",
                damaged(lambda p: (shutil.rmtree(p), os.symlink("nothing", p)), ""))
    for name, prepare in LEFT.items():
        yield Steps(f"there is {name}", leftovers(prepare))
    for name, code in {"metrics.jsonl": 3, "report.html": 1, "config.json": 1, "config.json.new": 1,
                       ".lock": 1}.items():
        yield Steps(f"{name} is a folder", in_its_place(name, code))
