"""Calls that fail, and kills, in a training that is resumed and in the other programs. The same command again then ends
well, and what it leaves is what it leaves where nothing goes wrong."""

import json
import shutil
import signal
from dataclasses import dataclass, field
from typing import Callable

from faults import ERRORS, EVALUATE, PASSED_OVER, damaged_checksums, spread
from harness import BERT, MODEL, RESUME, STEPS, Failure, Steps, metrics_of, without_times


@dataclass
class Target:
    """A command whose calls go wrong, one at a time."""

    name: str
    arguments: list
    prepare: Callable  # (bench, folder): what lies there before
    lost: Callable  # (bench, folder, reference): what was lost of that, before the command is repeated
    same: Callable  # (bench, folder, reference): what differs from where nothing went wrong
    program: str = "copy-task"
    says: str = ""  # what it may tell with --quiet
    share: int = 1  # of its calls one in so many is tried, because it takes long
    calls: list = field(default_factory=list)  # (number, name, path)

    def run(self, bench, folder, **how):
        return bench.run([*self.arguments, "--quiet"], folder, program=self.program, **how)

    def make_reference(self, bench):
        """A folder in which nothing went wrong."""
        folder = bench.scratch / f"target {self.name}"
        folder.mkdir()
        self.prepare(bench, folder)
        log = folder.with_suffix(".log")
        result = self.run(bench, folder, environment=bench.fault("count", log))
        if problems := bench.ended(result, (0,), out=".*", says=self.says):
            raise Failure(f"{self.name}: {problems}")
        for line in log.read_text().splitlines():
            number, name, path = (line + " ").split(" ", 2)
            if number not in ("threads", "allocations"):
                self.calls.append((int(number), name, path.replace(f"{folder.resolve()}/", "").strip()))
        return folder


# ---- a training that is resumed

def usable(bench, folder, _):
    result = bench.run([*EVALUATE, "--json"], folder)
    problems = bench.ended(result, (0,), says=r"(run/checkpoint\b.*; the checkpoint of step \d+ in .* is used\n)?")
    if not problems and json.loads(result.out)["iterations"] not in (STEPS - 2, STEPS):
        problems = [f"the newest checkpoint is another: {result}"]
    return problems


def finished_run(bench, folder, _):
    return bench.same_as_never_stopped(folder / "run")


def stopped_run(bench, folder):
    shutil.copytree(bench.never_stopped(STEPS - 2), folder / "run")


def damaged_run(bench, folder):
    damaged_checksums(bench.copy_run(folder))


# ---- the grid

CELLS = ("full,length=3", "clustered-2,length=3")


def whole_page(path):
    text = path.read_text() if path.is_file() else ""
    return [] if text.rstrip().endswith("</html>") or text.rstrip().endswith("</svg>") else [f"{path.name} is not whole"]


def finished_grid(_, folder, reference):
    problems = []
    for cell in CELLS:
        mine, other = folder / "grid" / "cells" / cell, reference / "grid" / "cells" / cell
        for name in ("checkpoint/weights.safetensors", "checkpoint/optimizer.safetensors"):
            if (mine / name).read_bytes() != (other / name).read_bytes():
                problems.append(f"{cell}/{name} is another")
        if metrics_of(mine) != metrics_of(other):
            problems.append(f"{cell}/metrics.jsonl is another")
        problems += whole_page(mine / "report.html")
    read = lambda where: json.loads((where / "grid" / "figure.json").read_text())
    figures = lambda where: [without_times(cell) for cell in read(where)["cells"]]
    if figures(folder) != figures(reference):
        problems.append("figure.json is another")
    return problems + whole_page(folder / "grid" / "report.html") + whole_page(folder / "grid" / "figure.svg")


# ---- attend

OLD = b"what was there before"


def tensors_to_attend(bench, folder):
    result = bench.run(["--example", "q.safetensors", "--length", "5", "--quiet"], folder, program="attend")
    if result.code != 0:
        raise Failure(str(result))
    (folder / "result").write_bytes(OLD)
    (folder / "w.svg").write_bytes(OLD)


def old_or_new(_, folder, reference):
    found = lambda path: path.read_bytes() if path.is_file() else None
    return [f"{name} is neither what was there nor what was to be"
            for name in ("result", "w.svg") if found(folder / name) not in (OLD, found(reference / name))]


def attended(_, folder, reference):
    return [f"{name} is another" for name in ("result", "w.svg", "q.safetensors")
            if (folder / name).read_bytes() != (reference / name).read_bytes()]


# ---- text-search embed, table

ONE_THREAD = ["--model", str(BERT), "--threads", "1"]


def texts_to_embed(_, folder):
    (folder / "text").write_text("".join(f"line {i} of the text\n" for i in range(40)))
    (folder / "rows").write_bytes(OLD)


def old_or_new_rows(_, folder, reference):
    rows = (folder / "rows").read_bytes()
    return [] if rows in (OLD, (reference / "rows").read_bytes()) else ["rows is neither what was there nor what was to be"]


def same_rows(_, folder, reference):
    return [] if (folder / "rows").read_bytes() == (reference / "rows").read_bytes() else ["rows is another"]


def texts_with_labels(_, folder):
    example = lambda i: json.dumps({"text": f"the {('key', 'query')[i % 2]} {i}", "label": str(i % 2), "group": str(i)})
    (folder / "labeled").write_text("".join(example(i) + "\n" for i in range(20)))


def cells_of(folder):
    try:
        lines = (folder / "table/cells.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return {}
    return {cell["key"]: cell["right"] for cell in map(json.loads, lines)}


def right_cells(_, folder, reference):
    return [f"cell {key} is another" for key, right in cells_of(folder).items() if cells_of(reference).get(key) != right]


def same_table(_, folder, reference):
    def accuracies(where):
        variants = json.loads((where / "table/table.json").read_text())["variants"]
        return [{**variant, "seconds_per_token": 0} for variant in variants]
    return (["table.json is another"] if accuracies(folder) != accuracies(reference) else []) + \
        (["cells are missing"] if cells_of(folder) != cells_of(reference) else [])


# ---- attention-bench

def measured(_, folder, __):
    problems = whole_page(folder / "bench" / "report.html") + whole_page(folder / "bench" / "figure.svg")
    points = json.loads((folder / "bench" / "figure.json").read_text())["points"]
    rows = (folder / "bench" / "figure.csv").read_text().splitlines()
    return problems + ([] if len(points) == 2 and len(rows) == 3 else [f"measured {points}"])


# ---- text-search index

INDEX = ["index", "texts", "--model", str(BERT), "--out", "index", "--batch", "2", "--passage-tokens", "24",
         "--threads", "1"]


def texts_that_changed(bench, folder):
    """An index, and what has changed in its files since."""
    texts = folder / "texts"
    texts.mkdir()
    for name, lines in {"a": 3, "b": 6, "c": 2, "d": 3}.items():
        (texts / name).write_text("".join(f"line {i} of {name}\n" for i in range(lines)))
    result = bench.run([*INDEX, "--quiet"], folder, program="text-search")
    if result.code != 0:
        raise Failure(str(result))
    (texts / "b").write_text("".join(f"another line {i}\n" for i in range(20)))
    (texts / "c").unlink()
    (texts / "e").write_text("a new file\n")


def still_answers(bench, folder, _):
    result = bench.run(["query", "line", "--index", "index", "--quiet"], folder, program="text-search")
    return bench.ended(result, (0,), out=".*texts/.*")


def same_index(_, folder, reference):
    left = {path.name for path in (folder / "index").iterdir()} - {".lock", "passages.jsonl", "embeddings.safetensors"}
    passages = lambda where: (where / "index/passages.jsonl").read_text().replace(str(where.resolve()), "")
    embeddings = lambda where: (where / "index/embeddings.safetensors").read_bytes()
    rows = lambda data: data[8 + int.from_bytes(data[:8], "little"):]  # the header has a hash of the paths
    return [f"{name} is left" for name in left] + \
        [f"{what} are others" for what, get in (("passages", passages), ("embeddings", lambda w: rows(embeddings(w))))
         if get(folder) != get(reference)]


nothing = lambda *_: []

TARGETS = (
    Target("a training that is resumed", [*RESUME, "--iterations", str(STEPS)], stopped_run, usable, finished_run,
           share=3),
    Target("a training resumed past a damaged checkpoint", RESUME, damaged_run, usable, finished_run,
           says=f"({PASSED_OVER})?", share=6),
    Target("copy-task figure", ["figure", "--out", "grid", "--lengths", "3", *MODEL[2:], "--variants", "full,clustered-2",
                                "--iterations", "2", "--evaluate-every", "2"], nothing, nothing, finished_grid, share=12),
    Target("attend", ["--in", "q.safetensors", "--attention", "clustered-2", "--grad", "--out", "result", "--picture",
                      "w.svg", "--threads", "1"], tensors_to_attend, old_or_new, attended, program="attend"),
    Target("text-search embed", ["embed", "--text-file", "text", "--out", "rows", "--batch", "1", *ONE_THREAD],
           texts_to_embed, old_or_new_rows, same_rows, program="text-search"),
    Target("text-search table", ["table", "--labeled", "labeled", "--variants", "clustered-2", "--seeds", "1", "--length",
                                 "8", "--train", "12", "--test", "6", "--out", "table", *ONE_THREAD],
           texts_with_labels, right_cells, same_table, program="text-search"),
    Target("attention-bench figure", ["figure", "--out", "bench", "--attention", "full", "--lengths", "8,16", "--tokens",
                                      "16", "--heads", "1", "--head-size", "4", "--repeat", "1", "--seconds", "0",
                                      "--threads", "1"], nothing, nothing, measured, program="attention-bench",
           share=16),
    Target("text-search index", INDEX, texts_that_changed, still_answers, same_index, program="text-search"),
)


def goes_wrong(target, reference, numbers, what):
    """Each of these calls goes wrong; then the same command again."""
    killing = what.startswith(("kill", "power"))
    harmless = what.startswith("short") or what.endswith("EINTR")
    codes = (-signal.SIGKILL,) if killing else (0,) if harmless else (0, 1)

    def check(bench, folder):
        problems = []
        for number in numbers:
            here = folder / str(number)
            here.mkdir()
            target.prepare(bench, here)
            _, name, path = target.calls[number - 1]
            bench.tried.add((target.name, name, path, what.format("")))
            result = target.run(bench, here, environment=bench.fault(what.format(number)))
            if killing:
                found = [] if result.code in codes else [f"was not killed: {result}"]
                bench.kills.append(what.format(number))
            else:
                found = bench.ended(result, codes, out=".*", says=target.says)
            if result.code != 0:
                found += target.lost(bench, here, reference)
                if not killing and "+" not in what and (left := list(here.glob("*.tmp"))):
                    found.append(f"left {left}")
                again = target.run(bench, here)
                found += bench.ended(again, (0,), out=".*", says=target.says)
            found = found or target.same(bench, here, reference)
            problems += [f"call {number} {name} {path}, {what.format(number)}: {p}" for p in found]
            shutil.rmtree(here)
        return problems
    return check


def sites(calls):
    """Calls by number, those first that name another file than all before."""
    seen, first, rest = set(), [], []
    for number, name, path in calls:
        (rest if (name, path) in seen else first).append(number)
        seen.add((name, path))
    return first, rest


def sample(calls, every):
    """One in so many of them, of as many files as possible."""
    first, rest = sites(calls)
    count = max(1, len(calls) // every)
    return spread(first, count) + spread(rest, count - len(first)) if count > len(first) else spread(first, count)


def cases(bench, options):
    for target in TARGETS:
        if not bench.faults:
            yield Steps(f"calls that fail in {target.name}", None, needs="faults")
            continue
        reference = target.make_reference(bench)
        every = options.every * (target.share if options.every > 1 else 1)
        kinds = {}
        for call in target.calls:
            kinds.setdefault(call[1], []).append(call)
        wrong = {}  # what goes wrong -> the calls that it may go wrong at
        for name, calls in kinds.items():
            for error in ERRORS.get(name, ("EIO",)):
                wrong.setdefault(f"fail:{{}}:{error}", []).extend(calls)
            if name in ("write", "pwrite", "fsync", "open"):
                wrong.setdefault("fail:{}:EINTR", []).extend(calls)
        wrong["short:{}"] = [*kinds.get("write", ()), *kinds.get("pwrite", ())]
        for what in ("fail:{}+:ENOSPC", "kill:{}", "power:{}"):
            wrong[what] = target.calls
        if options.every > 20:  # with sanitizers
            wrong = dict(list(wrong.items())[::4])
        for what, calls in wrong.items():
            yield Steps(f"{target.name}, {what.replace(':{}', '')} at calls",
                        goes_wrong(target, reference, sample(sorted(calls), every), what), needs="faults",
                        kill=what.startswith(("kill", "power")))
