#!/usr/bin/env python3
"""plant.py: is every small wrong change to the library noticed by a test?

`planted.txt` has changes made by hand, each with the test that must fail; `drawn.txt` has changes drawn by this program
(operators, indices, constants), which any test may notice. A change is a few lines, and a blank line ends it:

    # what is wrong
    file core/cpu/softmax.cpp         the file to change
    old  out[c] * (g[c] - mean)       stands exactly once in that file
    new  out[c] * g[c]                is put in its place
    test gradient of softmax          a Catch2 test case that must fail; drawn changes have none
    with core/cpu/optimizer.cpp       of a header: compile this source alone (may be given several times);
                                      otherwise all sources that include it are compiled
    equivalent the sum is empty       of a survivor: why no test can notice it. It is not tried, and counted apart

For each change the sources concerned are compiled with a copy of the changed file (the tree itself is not touched), linked
in front of the library, and tests run: the one named, or for a drawn change first those that have the file's or its
folder's name in their tags, file or folder, then all but the slow ones. A test that fails, crashes or exceeds its time
limit has caught the change. CUDA kernels run on the emulator: in a named test in forward, reverse and shuffled order, else
in shuffled order.

Prints a line for each change and a summary with the survivors. Exit codes: 0 all caught, 1 survivors or changes that do
not apply, 2 the command line, 3 the unchanged tree does not build or pass.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEYS = ("file", "old", "new", "test", "with", "equivalent")
TESTS, CUDA_TESTS = "bin/cairn-tests", "bin/cairn-cuda-tests"
APPS = ["bin/copy-task", "bin/attend", "bin/attention-bench", "bin/text-search"]
ORDERS = ("forward", "reverse", "shuffled")
# What is run for a drawn change that no related test has noticed.
REST = {TESTS: ["~[slow]~[gpu]"], CUDA_TESTS: ["[gpu]~[planted]~[host]~[program]"]}
LEAST_LIMIT = 120  # seconds; more where the unchanged tree takes more than a third of that

# ---------------------------------------------------------------------------------------------------- changes and tests


class Change:
    def __init__(self, name):
        self.name, self.title, self.sources = name, "", []
        self.file = self.old = self.new = self.test = self.equivalent = None

    def text(self):
        lines = [f"# {self.title}"] if self.title else []
        for key in ("file", "old", "new", "test", "equivalent"):
            if getattr(self, key):
                lines.append(f"{key:4} {getattr(self, key)}")
        return "\n".join(lines + [f"with {source}" for source in self.sources]) + "\n"

    def faults(self, tests):
        """Why it cannot be applied, as a list of lines."""
        if not (self.file and self.old and self.new):
            return ["expected file, old and new"]
        if not (ROOT / self.file).is_file():
            return [f"{self.file}: no such file"]
        lines = []
        count = (ROOT / self.file).read_text().count(self.old)
        if count != 1:
            lines.append(f"{self.file}: the old text stands there {count} times, expected once: {self.old}")
        if self.old == self.new:
            lines.append(f"{self.file}: the new text is the old one: {self.old}")
        if self.test and self.test not in tests:
            lines.append(f"{self.file}: no such test case: {self.test}")
        lines += [f"with {source}: no such file" for source in self.sources if not (ROOT / source).is_file()]
        return lines


def read_changes(path, letter):
    """The changes of a file, named p1, p2, ... or d1, d2, ..."""
    changes, open_ = [], False
    for number, line in enumerate(path.read_text().splitlines() if path.is_file() else [], 1):
        if not line.strip():
            open_ = False
            continue
        if not open_:
            changes.append(Change(f"{letter}{len(changes) + 1}"))
            open_ = True
        key, _, value = line.partition(" ")
        value = value.strip()
        if key == "#":
            changes[-1].title = value
        elif key == "with":
            changes[-1].sources.append(value)
        elif key in KEYS and getattr(changes[-1], key) is None:
            setattr(changes[-1], key, value)
        else:
            sys.exit(f"{path.name}: line {number}: expected one of {', '.join(KEYS)}, each once, got: {line}")
    return changes


class Test:
    def __init__(self, path, tags):
        self.path = path
        self.tags = re.findall(r"\[([^]]+)\]", tags)
        self.program = CUDA_TESTS if path.parts[1] == "cuda" or "gpu" in self.tags else TESTS
        # What a change is related by.
        self.words = {*self.tags, path.stem, path.parent.name}


def read_tests():
    """The test cases of the tree, by name."""
    string = r'"(?:[^"\\]|\\.)*"'
    case = re.compile(rf"\bTEST_CASE\(\s*({string}(?:\s*{string})*)\s*(?:,\s*({string}))?")
    joined = lambda text: "".join(part[1:-1] for part in re.findall(string, text or "")).replace('\\"', '"')
    tests = {}
    for path in sorted((ROOT / "tests").glob("**/*.cpp")):
        for name, tags in case.findall(path.read_text()):
            tests[joined(name)] = Test(path.relative_to(ROOT), joined(tags))
        for operation in re.findall(r'^OPERATION\("(.*?)"', path.read_text(), re.MULTILINE):  # four cases each
            for what, tags in (("values", ""), ("gradient", "[grad]"), ("CUDA in float32", "[gpu][parity][float32]"),
                               ("CUDA in bfloat16", "[gpu][parity][bfloat16]")):
                tests[f"{operation}: {what}"] = Test(path.relative_to(ROOT), f"[{operation}]{tags}")
    return tests


# -------------------------------------------------------------------------------------------------------------- building


def set_limits():
    """Of a process that a change may have made wild: no core dump, 12 GB of memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (12 << 30, 12 << 30))


def run(words, limit=None, **options):
    """(exit code, output); the code is None where the time limit was exceeded. All processes it started are ended."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True, stdin=subprocess.DEVNULL, preexec_fn=set_limits, **options)
    try:
        output, _ = process.communicate(timeout=limit)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Build:
    """A build folder of preset cuda-host with unchanged programs, and how to put changed ones in their place."""

    def __init__(self, folder):
        self.folder, self.changed, self.clean = folder, folder / "changed", folder / "clean"

    def make(self, log):
        # Programs may be those of a change: a run that was killed leaves them.
        for program in [TESTS, CUDA_TESTS, *APPS]:
            (self.folder / program).unlink(missing_ok=True)
        self.configure(log)
        self.call(log, ["cmake", "--build", str(self.folder), "--target", "cairn-tests", "cairn-cuda-tests"])
        self.clean.mkdir(exist_ok=True)
        for program in [TESTS, CUDA_TESTS, *APPS]:
            shutil.copy2(self.folder / program, self.clean)

    def configure(self, log):
        self.call(log, ["cmake", "--preset", "cuda-host", "-B", str(self.folder)])
        entries = json.loads((self.folder / "compile_commands.json").read_text())
        # Commands by object, and objects by source.
        self.commands = {self.object_of(entry): shlex.split(entry["command"]) for entry in entries}
        self.objects = {}
        for entry in entries:
            self.objects.setdefault(os.path.relpath(entry["file"], ROOT), []).append(self.object_of(entry))

    @staticmethod
    def object_of(entry):
        words = shlex.split(entry["command"])
        return words[words.index("-o") + 1]

    def call(self, log, words):
        code, output = run(words, cwd=ROOT)
        with log.open("a") as file:
            file.write(output)
        if code != 0:
            print(f"plant.py: failed: {shlex.join(words)}; see {log}", file=sys.stderr)
            sys.exit(3)

    def read_ninja(self):
        """After make(): which objects include a header, and how programs are linked."""
        ninja = lambda *words: subprocess.run(["ninja", "-C", str(self.folder), "-t", *words], check=True, text=True,
                                              capture_output=True).stdout
        self.includers, object_ = {}, None
        for line in ninja("deps").splitlines():
            if line and not line.startswith(" "):
                object_ = line.split(":")[0]
            elif line.strip().startswith(f"{ROOT}/"):
                self.includers.setdefault(line.strip()[len(str(ROOT)) + 1:], []).append(object_)
        self.links = {}
        for program in [TESTS, CUDA_TESTS, *APPS]:
            commands = [part for part in ninja("commands", program).splitlines()[-1].split(" && ")
                        if f" -o {program} " in part]
            self.links[program] = shlex.split(commands[-1])

    def objects_of(self, change):
        """The objects to compile for a change."""
        if change.sources:
            return [object_ for source in change.sources for object_ in self.objects[source][:1]]
        if change.file in self.objects:
            return self.objects[change.file][:1]  # those of a second program are of no interest
        return [object_ for object_ in self.includers.get(change.file, []) if object_ in self.commands]

    def command(self, change, object_, *more):
        words = list(self.commands[object_])
        words[words.index("-o") + 1] = str(self.changed / object_)
        words = [str(self.changed / change.file) if word == str(ROOT / change.file) else word for word in words]
        return [words[0], f"-I{self.changed}", "-w", *more, *words[1:]]

    def write(self, change):
        shutil.rmtree(self.changed, ignore_errors=True)
        target = self.changed / change.file
        target.parent.mkdir(parents=True)
        target.write_text((ROOT / change.file).read_text().replace(change.old, change.new))

    def compiles(self, change, *more):
        """Compiles a change. The compiler's first error, or None."""
        self.write(change)
        objects = self.objects_of(change)
        if not objects:
            return "no source of the build includes it"
        for object_ in objects:
            (self.changed / object_).parent.mkdir(parents=True, exist_ok=True)
            code, output = run(self.command(change, object_, *more), cwd=self.folder)
            if code != 0:
                return next((line for line in output.splitlines() if "error" in line), output[-300:])
        return None

    def link(self, change, programs):
        """Puts programs with the change in the place of the unchanged ones; returns those that contain it."""
        done = []
        for program in programs:
            words, contains = list(self.links[program]), False
            for object_ in self.objects_of(change):
                target = re.search(r"([^/]+)\.dir/", object_).group(1)
                if object_ in words:
                    words[words.index(object_)] = str(self.changed / object_)
                elif (place := next((i for i, word in enumerate(words) if word.endswith(f"lib{target}.a")), None)):
                    words.insert(place, str(self.changed / object_))
                else:
                    continue
                contains = True
            if not contains:
                continue
            code, output = run(words, cwd=self.folder)
            if code != 0:
                print(output, file=sys.stderr)
                sys.exit(3)
            done.append(program)
        return done

    def restore(self, programs):
        for program in programs:
            shutil.copy2(self.clean / pathlib.Path(program).name, self.folder / program)

    def run_tests(self, program, chosen, limit, orders=ORDERS):
        """Runs cases of a program until one fails. `chosen`: names, or one word of tags. Returns how the
        run ended, or None where all passed, and how many did."""
        if not chosen[0].startswith(("[", "~[")):
            chosen = [",".join(re.sub(r'([\\,\["])', r"\\\1", name) for name in chosen)]
        words = [str(self.folder / program), "-a", *chosen]
        ran = 0
        for order in orders if program == CUDA_TESTS else orders[:1]:
            code, output = run(words, limit, cwd=self.folder / "tests",
                               env={**os.environ, "CAIRN_HOST_CUDA_ORDER": order})
            if code is None:
                return f"more than {limit:.0f} s", 0
            if code != 0:
                failed = re.search(r"^-{20,}\n(.+)\n(?:.*\n)*?-{20,}\n(?:.*\n)*?.*FAILED:", output, re.M)
                return failed.group(1) if failed else f"ended with {code}", 0
            passed = re.search(r"All tests passed \(.* in (\d+) test case", output)
            ran = int(passed.group(1)) if passed else 0
        return None, ran


# --------------------------------------------------------------------------------------------------------- trying changes


def related(change, tests):
    """Names of cases, those that are likely to notice a drawn change first: by its file's name, then by its folder's."""
    path = pathlib.Path(change.file)
    groups, seen = [], set()
    for word in (path.stem, path.parent.name):
        names = [name for name, test in tests.items() if name not in seen and not {"slow", "planted"} & set(test.tags) and
                 (test.program == CUDA_TESTS or path.parts[0] != "cuda") and
                 (any(each.startswith(word) for each in test.words) or (path.parts[0] == "cuda" and "parity" in test.tags))]
        seen.update(names)
        groups.append(names)
    return groups


class Trial:
    def __init__(self, build, tests):
        self.build, self.tests = build, tests
        self.usual = {}  # seconds of cases that the unchanged tree passes

    def limit(self, key):
        return max(LEAST_LIMIT, 3 * self.usual.get(key, 0))

    def baseline(self, changes):
        """The unchanged tree passes what changes are to fail."""
        names = sorted({change.test for change in changes if change.test})
        started = time.monotonic()
        for name in names:
            self.usual[name] = self.passes(self.tests[name].program, [name], 1)
        if any(not change.test for change in changes):
            for program, chosen in REST.items():
                self.usual[program] = self.passes(program, chosen, orders=ORDERS[-1:])
        print(f"the unchanged tree passes in {time.monotonic() - started:.0f} s", flush=True)

    def passes(self, program, chosen, expected=None, orders=ORDERS):
        started = time.monotonic()
        failed, ran = self.build.run_tests(program, chosen, 3600, orders)
        if failed or (expected and ran != expected) or ran == 0:
            print(f"plant.py: the unchanged tree fails: {chosen}: {failed or f'{ran} cases ran'}", file=sys.stderr)
            sys.exit(3)
        return time.monotonic() - started

    def run(self, change):
        """("caught", by what), ("survived", "") or ("does not compile", the error)."""
        if error := self.build.compiles(change):
            return "does not compile", error
        if change.test:
            test = self.tests[change.test]
            apps = APPS if test.path.parts[1] == "apps" or "program" in test.tags else []
            steps = [(test.program, [change.test], self.limit(change.test), ORDERS)]
        else:
            apps = APPS
            steps = [(program, names, self.limit(program), ORDERS[-1:]) for group in related(change, self.tests)
                     for program in REST
                     if (names := [name for name in group if self.tests[name].program == program])]
            steps += [(program, chosen, self.limit(program), ORDERS[-1:]) for program, chosen in REST.items()]
        programs = self.build.link(change, sorted({step[0] for step in steps}) + apps)
        try:
            for program, chosen, limit, orders in steps:
                failed, _ = self.build.run_tests(program, chosen, limit, orders)
                if failed:
                    return "caught", failed
            return "survived", ""
        finally:
            self.build.restore(programs)


def try_all(changes, build, tests):
    log = build.folder / "planted.log"
    build.folder.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    print(f"building {build.folder} (the first time takes as long as any build); its output: {log}", flush=True)
    started = time.monotonic()
    build.make(log)
    build.read_ninja()
    print(f"built in {time.monotonic() - started:.0f} s", flush=True)
    trial = Trial(build, tests)
    to_try = [change for change in changes if not change.equivalent]
    trial.baseline(to_try)
    results = {}
    started = time.monotonic()
    for number, change in enumerate(to_try, 1):
        begun = time.monotonic()
        results[change], by = trial.run(change)
        if change.test and by and change.test.startswith(by):
            by = ""  # by the test that is named
        line = (ROOT / change.file).read_text().split(change.old)[0].count("\n") + 1
        print(f"[{number:3}/{len(to_try)}] {results[change]:8} {time.monotonic() - begun:5.0f} s  {change.name} "
              f"{change.file}:{line} {change.title or change.new}" + (f"  <- {by}" if by else ""), flush=True)
    bad = [change for change in to_try if results[change] != "caught"]
    if bad:
        print("\nnot caught:\n")
        for change in bad:
            print(f"# {results[change]}: {change.name}\n{change.text()}")
    print(f"{len(to_try) - len(bad)} of {len(to_try)} changes caught in {(time.monotonic() - started) / 60:.0f} minutes, "
          f"{sum(result == 'survived' for result in results.values())} survived, "
          f"{sum(result == 'does not compile' for result in results.values())} do not compile; "
          f"{len(changes) - len(to_try)} argued equivalent")
    return 1 if bad else 0


# --------------------------------------------------------------------------------------------------------- drawing changes

AREAS = {"core/cpu": ["core/cpu/*.cpp"], "cuda": ["cuda/*.cu"], "autograd": ["autograd/*.cpp", "autograd/ops/*.cpp"],
         "nn": ["nn/*.cpp", "nn/*/*.cpp"]}
# Binary operators stand between blanks (clang-format), types and templates do not.
OPERATORS = {"+": "-", "-": "+", "*": "+", "/": "*", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
             "&&": "||", "||": "&&", "+=": "-=", "-=": "+="}
WORDS = {"min": "max", "max": "min", "true": "false", "false": "true", "begin": "end", "end": "begin", "first": "second",
         "second": "first", "rows": "cols", "cols": "rows"}
INDICES = {"i": "j", "j": "i", "b": "h", "h": "b", "D": "M", "M": "D", "N": "S", "S": "N", "q": "k", "k": "q",
           "dq": "dk", "dk": "dq"}
# Lines that say nothing about results: types, messages, traces, seeds, the sizes of tasks, tiles and workspaces.
PASSED_OVER = re.compile(r'^\s*(//|#|using |template|namespace|struct |class |case |public:|private:|const auto \[)|"|'
                         r"static_assert|INSTANTIATE|constexpr|parallel_for|parallel_tasks|__launch_bounds__|launch\(|"
                         r"trace::|fetch|reserve|\.take\(|operator|RandomStream random|\\$")
CHECKING = re.compile(r"\b(check\w*(<\w+>)?|expect|fail|throw)\b")


def sites(path):
    """(line, changed line) for whatever may be changed in a file, where the line stands once in it."""
    text, checking = path.read_text(), False
    for line in text.splitlines():
        checking = checking or CHECKING.search(line) is not None
        skipped = checking or PASSED_OVER.search(line) or text.count(line.strip()) != 1
        checking = checking and not line.rstrip().endswith((";", "{", "}"))
        if skipped:
            continue
        code = line.split("//")[0].rstrip()
        for match in re.finditer(r"(?<= )(\S{1,2})(?= )|\b[A-Za-z_]\w*\b|(?<![\w.])\d+(?![\w.])", code):
            word = match.group()
            new = OPERATORS.get(word) or WORDS.get(word) or INDICES.get(word)
            if code.lstrip().startswith("for (") and (word in INDICES or word in ("+=", "-=")):
                continue  # it would never end
            if word.isdigit():
                new = {"0": "1", "1": "2"}.get(word, str(int(word) - 1))
            if new:
                yield line.strip(), (line[:match.start()] + new + line[match.end():]).strip()


def draw(seed, each, build, drawn):
    """Replaces drawn changes that no longer apply, and draws until there are `each` of every area."""
    log = build.folder / "planted.log"
    build.folder.mkdir(parents=True, exist_ok=True)
    build.configure(log)
    numbers, result = random.Random(seed), []
    for area, patterns in AREAS.items():
        paths = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
        names = {str(path.relative_to(ROOT)) for path in paths}
        chosen = [change for change in drawn if change.file in names and not change.faults({})]
        possible = [(path, *site) for path in paths for site in sites(path)]
        print(f"{area}: {len(chosen)} of {each} still apply, {len(possible)} possible", flush=True)
        while len(chosen) < each:
            path, old, new = possible.pop(numbers.randrange(len(possible)))
            change = Change("")
            change.file, change.old, change.new = str(path.relative_to(ROOT)), old, new
            if any((other.file, other.old) == (change.file, old) for other in chosen):
                continue
            if change.file in build.objects and build.compiles(change, "-fsyntax-only") is None:
                chosen.append(change)
        result += sorted(chosen, key=lambda change: change.file)
    (HERE / "drawn.txt").write_text("\n".join(change.text() for change in result))


# ------------------------------------------------------------------------------------------------------------------- main


def select(changes, wanted):
    """Changes by name (p3), range of names (p1-p20), or part of the file's name."""
    if not wanted:
        return changes
    names, chosen = [change.name for change in changes], set()
    for word in wanted:
        first, _, last = word.partition("-")
        if first in names and (last or first) in names:
            chosen.update(names[names.index(first):names.index(last or first) + 1])
        else:
            found = [change.name for change in changes if change.file and word in change.file]
            if not found:
                print(f"plant.py: no change '{word}': expected a name such as p3, a range such as p1-p20 or part of a "
                      "file's name", file=sys.stderr)
                sys.exit(2)
            chosen.update(found)
    return [change for change in changes if change.name in chosen]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", help="changes to try: p3, p1-p20, d7, or part of a file's name (all)")
    parser.add_argument("--check", action="store_true", help="only check that every change still applies; builds nothing")
    parser.add_argument("--list", action="store_true", help="only list the changes")
    parser.add_argument("--draw", type=int, metavar="SEED", help="replace drawn changes that no longer apply, in drawn.txt")
    parser.add_argument("--each", type=int, default=15, help="with --draw: how many of each area (%(default)s)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "planted",
                        help="build folder, kept for the next time (build/planted)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what it has started
    build, tests = Build(options.build.resolve()), read_tests()
    planted, drawn = read_changes(HERE / "planted.txt", "p"), read_changes(HERE / "drawn.txt", "d")
    if options.draw is not None:
        draw(options.draw, options.each, build, drawn)
        return 0
    changes = select(planted + drawn, options.which)
    if options.list:
        for change in changes:
            print(f"{change.name:4} {change.file}: {change.title or change.new}")
        return 0
    faults = [f"{change.name}: {fault}" for change in changes for fault in change.faults(tests)]
    faults += [f"{change.name}: expected a test" for change in changes if change in planted and not change.test]
    print("".join(f"{fault}\n" for fault in faults), end="")
    if options.check or faults:
        print(f"{len(changes)} changes, {len(faults)} faults" +
              ("; after an edit, give the new old text, or for d.. run plant.py --draw SEED" if faults else ""))
        return 1 if faults or not changes else 0
    return try_all(changes, build, tests)


if __name__ == "__main__":
    sys.exit(main())
