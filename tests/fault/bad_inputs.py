"""What users and their files get wrong. Each entry ends with its documented exit code and one line."""

import json
import os
import struct
from pathlib import Path

import other_inputs
import weights
from harness import MODEL, RESUME, TRAIN, Case, Sweep, contents

TINY = ["train", *MODEL, "--iterations", "3"]
EVALUATE = ["evaluate", "--run", "run", "--sequences", "1"]
SHOW = ["show", "--run", "run"]
LONG = "x" * 120_000  # an argument may have 128 KiB


def folders():
    """--out and --resume."""
    yield Case("--resume without --out", [*TINY, "--resume"], 2, "--out")
    yield Case("--out with an empty name", [*TINY, "--out", ""], 2, "--out")
    yield Case("--out is a file", [*TINY, "--out", "file"], 2, "file", files={"file": b"mine"})
    yield Case("--out lies in a file", [*TINY, "--out", "file/run"], (1, 2), "file", files={"file": b"mine"})
    yield Case("--out is a device", [*TINY, "--out", "/dev/null"], 2, "/dev/null")
    yield Case("--out is a link to itself", [*TINY, "--out", "loop"], (1, 2), "loop",
               before=lambda f: os.symlink("loop", f / "loop"))
    yield Case("--out is a link to nothing", [*TINY, "--out", "link"], (1, 2), "link",
               before=lambda f: os.symlink("nothing/there", f / "link"))
    yield Case("--out has a name of 300 characters", [*TINY, "--out", "r" * 300], (1, 2), "--out|rrr")
    yield Case("--out has a name of 100 KB", [*TINY, "--out", LONG[:100_000]], (1, 2), "--out|xxx")
    yield Case("--out where nobody may write", [*TINY, "--out", "run"], 1, "run", ordinary_user=True, fault=True,
               before=lambda f: (f / "run").mkdir(mode=0o555))
    yield Case("--out in a folder where nobody may write", [*TINY, "--out", "locked/run"], 1, "locked/run", fault=True,
               ordinary_user=True, before=lambda f: (f / "locked").mkdir(mode=0o555))
    yield Case("--out holds a run", [*TINY, "--out", "run"], 2, "--resume", run=True)
    yield Case("--resume of nothing", RESUME, 3, "no run")
    yield Case("--resume of a file", [*RESUME[:2], "file", "--resume"], (2, 3), "file", files={"file": b"mine"})
    # A run that never got as far as a checkpoint may start again; the folder's other files are none of its business.
    for name, files in {"an empty folder": {}, "a folder that is no run": {"run/photo.png": b"\x89PNG"}}.items():
        yield Case(f"--resume of {name}", [*TINY, "--out", "run", "--resume"], (0, 3), "run", files=files, out=".*",
                   before=lambda f: (f / "run").mkdir(exist_ok=True), unchanged=False)
    other = {
        "length": "4", "batch": "3", "layers": "2", "heads": "2", "head-size": "5", "feed-forward": "5", "lr": "0.5",
        "dropout": "0.1", "attention-dropout": "0.1", "norm": "pre", "activation": "relu", "evaluate-every": "2",
        "stop-at": "0.5", "seed": "2", "attention": "full",
    }
    for name, value in other.items():
        key = name.replace("-", "_")
        yield Case(f"--resume with another {name}", [*RESUME, f"--{name}", value], 2, rf"differ: {key} \(", run=True)
    yield Case("--resume with --quick", [*RESUME, "--quick"], 2, r"differ: quick \(", run=True)
    yield Case("--resume with three other settings", [*RESUME, "--batch", "3", "--set", "seed=9", "--lr", "1"], 2,
               r"differ: batch \(2 in the run, 3 now\), lr \(.*\), seed \(1 in the run, 9 now\)", run=True)
    yield Case("--resume with another configuration", [*RESUME, "--config", "c.json"], 2, r"differ: length \(",
               run=True,
               files={"c.json": b'{"length": 9, "batch": 2}'})
    yield Case("--resume with fewer iterations than were made", [*RESUME, "--iterations", "2"], 2, "6 steps", run=True)
    for name in ("config.json", "metrics.jsonl", "report.html"):
        mine = {f"run/{name}": b'{"mine": 1}\n'}
        yield Case(f"--out has a {name} of somebody's", [*TINY, "--out", "run"], 2, f"has a {name}.*no.* checkpoint",
                   files=mine)
        yield Case(f"--resume of a folder with a {name} of somebody's", [*TINY, "--out", "run", "--resume"],
                   (2, 3), "unknown key 'mine'|choose another folder", files=mine,
                   after=lambda f, name=name: [] if (f / "run" / name).read_bytes() == b'{"mine": 1}\n' else ["changed"])
    for arguments, code in ((["--attention", "clusterd-3"], 2), (["--trace", "no/t.json"], 2), (["--lr", "x"], 2),
                            (["--layers", "1024", "--feed-forward", "1048576"], 4)):
        yield Case(f"{' '.join(arguments)} leaves no folder behind", [*TINY, *arguments, "--out", "new"], code,
                   after=lambda f: ["there is new/"] if (f / "new").exists() else [])
    yield Case("--resume of an empty folder leaves it empty", RESUME, 3, "no run yet",
               before=lambda f: (f / "run").mkdir(),
               after=lambda f: [str(p) for p in (f / "run").iterdir()])
    yield Case("--resume with a setting that is none", [*RESUME, "--length", "0"], 2, "--length", run=True)
    for name, more in {"threads": ["--threads", "2"], "checkpoint-every": ["--checkpoint-every", "1"], "device": [
            "--device", "cpu"], "iterations": ["--iterations",
                                               str(6)], "its own settings": TRAIN[1:], "nothing": []}.items():
        yield Case(f"--resume of a finished run with {name}", [*RESUME, *more], 0, run=True, out=".*6 steps.*")


def commands():
    """evaluate and show."""
    for command in ("evaluate", "show"):
        start = [command, "--run"]
        if command != "show":
            yield Case(f"{command} without --run", [command], 2, "--run")
        yield Case(f"{command} --run with an empty name", [*start, ""], (2, 3), "--run")
        yield Case(f"{command} --run of nothing", [*start, "nothing"], 3, "nothing")
        yield Case(f"{command} --run of a file", [*start, "file"], 3, "file", files={"file": b""})
        yield Case(f"{command} --run of an empty folder", [*start, "empty"], 3, "empty",
                   before=lambda f: (f / "empty").mkdir())
        yield Case(f"{command} --run of a folder that is no run", [*start, "."], 3, "checkpoint",
                   files={"a.txt": b"hi"})
        yield Case(f"{command} --run of a checkpoint, not a run", [*start, "run/checkpoint"], 3, "", run=True)
        yield Case(f"{command} --run of a link to itself", [*start, "loop"], 3, "loop",
                   before=lambda f: os.symlink("loop", f / "loop"))
        yield Case(f"{command} --run of a run nobody may read", [*start, "run"], 3, "run", run=True, ordinary_user=True,
                   before=lambda f: [os.chmod(f / "run" / name, 0) for name in ("checkpoint", "checkpoint.previous")])
        yield Case(f"{command} with an unknown option", [*start, "run", "--foo"], 2, "unknown option '--foo'", run=True)
        for attention, message in {"clusterd-3": "did you mean 'clustered-3'", "shared-full": "keys",
                                   "clustered-0": "clusters", "full,,full": "", "full:x=1": "x"}.items():
            if command == "evaluate" or "," not in attention:
                yield Case(f"{command} --attention {attention}", [*start, "run", "--attention", attention], 2, message,
                           run=True)
    for option, values in {
        "--sequences": ("0", "-1", "1e3", "1048577", "", "nan"), "--threads": ("0", "4097", "two"),
        "--seed": ("-1", "1.5", "9223372036854775808", ""),
    }.items():
        for value in values:
            yield Case(f"evaluate {option} {value!r}", ["evaluate", "--run", "run", f"{option}={value}"], 2, option,
                       run=True)
    for arguments, message in (
        (["--length", "0"], "--length"), (["--length", "4097"], "--length"), (["--length", "3x"], "--length"),
        (["--example", "0"], "--example"), (["--example", "2147483648"], "--example"), (["--seed", "-1"], "--seed"),
        (["--layer", "1"], "--run"), (["--head", "1"], "--run"), (["--attention", "full"], "--run"),
    ):
        yield Case(f"show {' '.join(arguments)}", ["show", *arguments], 2, message)
    for arguments, message in (
        (["--length", "4"], "trained on 3"), (["--layer", "2"], "the model has 1"),
        (["--head", "2"], "the model has 1"),
        (["--layer", "0"], "--layer"), (["--head", "-1"], "--head"), (["--layer", "1025"], "--layer"),
        (["extra"], "SEQUENCE: symbol 1"),
    ):
        yield Case(f"show of a run {' '.join(arguments)}", [*SHOW, *arguments], 2, message, run=True)

def initial_weights():
    """--init-from."""
    def case(name, run, message, *more, before=None):
        return Case(f"--init-from {name}", [*TINY, "--out", "tuned", "--init-from", run, *more], 3, message, run=True,
                    before=before, after=lambda f: ["tuned/ was made"] if (f / "tuned").exists() else [])

    yield case("of a run that is not there", "no", "--init-from no: there is no such folder")
    yield case("of a file", "run/config.json", "--init-from run/config.json: is a file")
    yield case("of a folder that is no run", ".", "--init-from .: the folder holds no checkpoint")
    yield case("of a damaged run", "run", "no usable checkpoint",
               before=only_newest(lambda f: (f / "run/checkpoint/checksums").write_bytes(b"")))
    for more in (["--heads", "2"], ["--head-size", "5"], ["--layers", "2"], ["--feed-forward", "5"]):
        yield case(f"of a run with other {more[0]}", "run", "--init-from: .*tensor .*give the options", *more)
    for attention in ("inducing-2", "shared-full"):
        yield case(f"of a run without the parameters of {attention}", "run", "--init-from: .*tensor", "--attention",
                   attention)


# ---- files

def headers(entries, data):
    """Weights that are none, as (name, file, message). `entries` and `data` are those of good ones."""
    def changed(index=0, **values):
        copy = [(name, dict(entry)) for name, entry in entries]
        for key, value in values.items():
            if value is None:
                del copy[index][1][key]
            else:
                copy[index][1][key] = value
        return copy

    good, names = weights.safetensors(entries, data), [name for name, _ in entries]
    text = good[8 : 8 + struct.unpack("<Q", good[:8])[0]]
    size = lambda n, rest=good[8:]: struct.pack("<Q", n) + rest
    first = entries[0][1]
    begin, end = first["data_offsets"]
    last_end = len(data)
    yield "empty", b"", "at least 8"
    yield "seven bytes", good[:7], "at least 8"
    yield "only the header's size", good[:8], "header"
    yield "a header of no bytes", struct.pack("<Q", 0) + data, "header"
    for n in (2**64 - 1, 2**63, 2**63 - 1, 10**8 + 1, 10**8, len(good), len(good) - 7):
        yield f"a header said to have {n} bytes", size(n), "header"
    yield "a header said to be one byte longer", size(len(text) + 1), "header"
    yield "a header said to be one byte shorter", size(len(text) - 1), "header"
    for header in ("[]", "null", "3", '"x"', " {}", "{", "}", "{]", "{}{}", "{} x", '{"a"}', "{,}", "{'a':1}", "\0\0",
                   "{}\0"):
        yield f"header {header!r}", weights.safetensors(header, data), "header"
    yield "a header not UTF-8", weights.safetensors(text.replace(b"weight", b"wei\xffht", 1), data), "header"
    yield "a header in UTF-16", weights.safetensors(text.decode().encode("utf-16-le"), data), "header"
    yield "a header with NaN", weights.safetensors(text.replace(b"[0", b"[NaN", 1), data), "header"
    yield "a header nested 100,000 deep", weights.safetensors('{"a":' + "[" * 100_000, data), "deep"
    yield "objects 1,000,000 deep", weights.safetensors('{"a":' * 1_000_000, data), "deep"
    yield "a header of 10 MB of blanks", weights.safetensors("{" + " " * 10_000_000, data), "header"
    yield "no tensors", weights.safetensors("{}", b""), "no tensor"
    yield "no tensors, but their bytes", weights.safetensors("{}", data), "belong to no tensor"
    yield "text", b"these are the weights\n" * 40, ""
    yield "a picture", b"\x89PNG\r\n\x1a\n" + bytes(1000), ""
    yield "an archive of Python's pickle", b"PK\x03\x04" + bytes(1000), ""

    yield "a name twice", weights.safetensors([*entries, (names[0], first)], data), "second time"
    yield "a key twice in an entry", weights.safetensors(text.replace(b'"dtype"', b'"dtype": "F32", "dtype"', 1),
                                                         data), "second time"
    for key in ("dtype", "shape", "data_offsets"):
        yield f"no {key}", weights.safetensors(changed(**{key: None}), data), "expected an object of dtype"
    yield "one key too many", weights.safetensors(changed(strides=[1]), data), "expected an object of dtype"
    for value in ([], None, 3, "F32", {}):
        yield f"an entry that is {value!r}", weights.safetensors([(names[0], value), *entries[1:]], data), "object"
    for value in (32, None, True, ["F32"], "", "f32", "F31", "F8_E4M3", "I8", "C64", "float32", "F32\n",
                  "x" * 100_000):
        yield f"dtype {str(value)[:20]!r}", weights.safetensors(
            [(names[0], {**first, "dtype": value}), *entries[1:]], data), "dtype"
    for value in ("I32", "F64", "BF16", "F16", "BOOL", "U64", "U8"):
        yield f"dtype {value} in the place of F32", weights.safetensors(changed(dtype=value), data), names[0]
    for value in (None, 4, "4", {}, [4.0, 12], [-4, -12], ["4"], [None], [[4]], [2**64], [2**63], [2**62, 4],
                  [2**32, 2**32],
                  [2**31] * 6, [1] * 7, [1] * 1000, [0, 2**63], [0, 2**62, 2**62], [2**61], [1e3], [True]):
        yield f"shape {str(value)[:40]}", weights.safetensors([(names[0], {**first, "shape": value}), *entries[1:]],
                                                              data), "shape|bytes|64 bits"
    for value in (first["shape"][::-1], [1, *first["shape"]], [], [0], first["shape"][:1], [sum(first["shape"])]):
        yield f"shape {value} in the place of {first['shape']}", weights.safetensors(changed(shape=value),
                                                                                     data), "shape"
    for value in (None, 0, "0,4", {}, [], [0], [0, 4, 8], [-4, 0], [0, -1], [0.0, 4.0], ["0", "4"], [end, begin],
                  [2**64, 2**64 + 4],
                  [2**64 - 4, 2**64], [2**63, 2**63 + 4], [0, len(data) + 1], [len(data), len(data) + end - begin],
                  [1, end + 1],
                  [begin, end - 1], [begin, end + 1], [0, 0], [True, end]):
        yield f"data_offsets {value}", weights.safetensors(
            [(names[0], {**first, "data_offsets": value}), *entries[1:]], data), "data_offsets|bytes|64 bits"
    second = entries[1][1]
    yield "two tensors with the same bytes", weights.safetensors(
        [*entries, ("twin", first)], data), "those of another tensor"
    yield "tensors that overlap", weights.safetensors(
        [(names[0], first), (names[1], {**second, "data_offsets": [o - 4 for o in second["data_offsets"]]}),
         *entries[2:]],
        data), "another tensor"
    hole = [(n, {**e, "data_offsets": [o + 8 * (i > 0) for o in e["data_offsets"]]}) for i,
            (n, e) in enumerate(entries)]
    yield "a gap between tensors", weights.safetensors(hole, data[:end] + bytes(8) + data[end:]), "belong to no tensor"
    behind = [(n, {**e, "data_offsets": [o + 8 for o in e["data_offsets"]]}) for n, e in entries]
    yield "a gap before the first", weights.safetensors(behind, bytes(8) + data), "belong to no tensor"
    yield "a byte behind the last", good + b"\0", "belong to no tensor"
    yield "a megabyte behind the last", good + bytes(1_000_000), "belong to no tensor"
    yield "a byte too few", good[:-1], "cut off|bytes"
    yield "no data", weights.safetensors(entries), "cut off|bytes"

    for index in (0, len(entries) // 2, len(entries) - 1):
        a, b = entries[index][1]["data_offsets"]
        rest = [(n, {**e, "data_offsets": [o - (b - a) * (o >= b) for o in e["data_offsets"]]}) for n, e in entries]
        yield f"without {names[index]}", weights.safetensors(rest[:index] + rest[index + 1 :],
                                                             data[:a] + data[b:]), "no tensor"
        yield f"{names[index]} under another name", weights.safetensors(
            [(n if i != index else n + "s", e) for i, (n, e) in enumerate(entries)], data), "did you mean"
    extra = {"dtype": "F32", "shape": [1], "data_offsets": [last_end, last_end + 4]}
    for name in ("extra", "encoder.layers.99.attention.query.weight", "__proto__", "../../etc/passwd", "a\nb",
                 "\x1b[31mred", "ﬁ"):
        yield f"a tensor too many, {name!r}", weights.safetensors([*entries, (name, extra)], data + bytes(4)), ""
    yield "a tensor without a name", weights.safetensors([*entries, ("", extra)], data + bytes(4)), "name"
    yield "a name with NUL", weights.safetensors([*entries, ("a\0b", extra)], data + bytes(4)), "name"
    yield "a name of a megabyte", weights.safetensors([*entries, ("n" * 1_000_000, extra)], data + bytes(4)), ""
    yield "100,000 tensors too many", weights.safetensors(
        [*entries, *((f"t{i}", {"dtype": "F32", "shape": [0], "data_offsets": [last_end, last_end]})
                     for i in range(100_000))],
        data), ""
    for value in ([], 3, None, "x", {"a": 1}, {"a": None}, {"a": {}}):
        yield f"metadata {value}", weights.safetensors([("__metadata__", value), *entries], data), "__metadata__"
    yield "metadata with a key twice", weights.safetensors(b'{"__metadata__":{"a":"b","a":"c"},' + text.strip()[1:],
                                                           data), "second time"

    for name, number in {"NaN": b"\0\0\xc0\x7f", "a signaling NaN": b"\1\0\x80\x7f", "infinity": b"\0\0\x80\x7f",
                         "minus infinity": b"\0\0\x80\xff"}.items():
        for place in (0, len(data) // 8 * 4, len(data) - 4):
            changed_data = data[:place] + number + data[place + 4 :]
            yield f"{name} at byte {place}", weights.safetensors(entries, changed_data), "not finite"


def rewriting(file, content):
    return lambda folder: weights.rewrite(folder / "run", {file: content})


def only_newest(prepare):
    """The checkpoint before would be used in the place of one that cannot be read."""
    import shutil

    def before(folder):
        shutil.rmtree(folder / "run" / "checkpoint.previous")
        prepare(folder)

    return before


def weight_files(reference):
    file = (reference / "checkpoint" / "weights.safetensors").read_bytes()
    for name, content, message in headers(*weights.parse(file)):
        yield Case(f"weights: {name}", EVALUATE, 3, f"weights.safetensors.*({message})", run=True,
                   before=only_newest(rewriting("weights.safetensors", content)))
    for name, make in {"a folder": lambda p: p.mkdir(), "a named pipe": os.mkfifo, "missing": lambda p: None,
                       "a link to itself": lambda p: os.symlink(p.name, p),
                       "a device": lambda p: os.symlink("/dev/zero", p)}.items():
        def before(folder, make=make):
            path = folder / "run" / "checkpoint" / "weights.safetensors"
            path.unlink()
            make(path)
        yield Case(f"weights: {name}", EVALUATE, 3, "weights.safetensors", run=True, before=only_newest(before))


def optimizer_files(reference):
    """States that no training was in: resumed, not evaluated."""
    entries, data = weights.parse((reference / "checkpoint" / "optimizer.safetensors").read_bytes())
    table = dict(entries)
    more = [*RESUME, "--iterations", "8"]

    def case(name, content, message):
        return Case(f"optimizer: {name}", more, 3, f"optimizer.safetensors.*({message})", run=True,
                    before=only_newest(rewriting("optimizer.safetensors", content)))

    def holding(name, value):
        begin, end = table[name]["data_offsets"]
        code = {("F32", 4): "<f", ("F64", 8): "<d", ("I64", 8): "<q", ("I32", 4): "<i", ("U64", 8): "<Q"}
        form = code.get((table[name]["dtype"], end - begin))
        packed = struct.pack(form, value) if form else b"\7" * (end - begin)
        return weights.safetensors(entries, data[:begin] + packed + data[end:])

    nan, inf = float("nan"), float("inf")
    for value in (nan, inf, -inf, -1.0):
        yield case(f"a learning rate of {value}", holding("state.learning_rate", value), "learning rate|not finite")
    for name in ("state.step", "state.skipped", "state.skipped_in_a_row"):
        if table[name]["dtype"] in ("I64", "I32"):
            yield case(f"{name} is negative", holding(name, -1), "negative|state")
    for name, _ in entries[:1] + entries[-1:]:
        index = [n for n, _ in entries].index(name)
        a, b = table[name]["data_offsets"]
        rest = [(n, {**e, "data_offsets": [o - (b - a) * (o >= b) for o in e["data_offsets"]]}) for n, e in entries]
        yield case(f"without {name}", weights.safetensors(rest[:index] + rest[index + 1 :], data[:a] + data[b:]),
                   "no tensor")
    yield case("a moment is NaN", weights.safetensors(entries, data[:-4] + b"\0\0\xc0\x7f"), "not finite")
    yield case("a moment is infinite", weights.safetensors(entries, data[:-4] + b"\0\0\x80\x7f"), "not finite")
    yield case("no tensors", weights.safetensors("{}"), "no tensor")
    yield case("empty", b"", "at least 8")
    yield case("the weights", (reference / "checkpoint" / "weights.safetensors").read_bytes(), "tensor")


def checkpoint_files(reference):
    """checkpoint.json as no program wrote it, its hash made right."""
    text = (reference / "checkpoint" / "checkpoint.json").read_text()

    def case(name, content, message="", arguments=EVALUATE, code=3):
        content = content if isinstance(content, bytes) else content.encode()
        return Case(f"checkpoint.json: {name}", arguments, code, message and f"checkpoint.*({message})", run=True,
                    before=only_newest(rewriting("checkpoint.json", content)))

    def edited(path, value):
        about = json.loads(text)
        *folders, last = path.split("/")
        inner = about
        for key in folders:
            inner = inner[key]
        if value is None:
            del inner[last]
        else:
            inner[last] = value
        return json.dumps(about, indent=2)

    for name, content in {
        "empty": "", "null": "null", "a list": "[]", "cut off": text[: len(text) // 2],
        "a comma too many": text.strip()[:-1] + ",}",
        "a key twice": text.replace('"version": 1', '"version": 1, "version": 1', 1),
        "not UTF-8": text.encode().replace(b"copy-task", b"c\xffpy", 1),
        "a NUL byte": text.encode() + b"\0", "nested 100,000 deep": "[" * 100_000,
        "NaN": text.replace('"step": 6', '"step": NaN'),
        "another program's": '{"name": "demo", "version": "1.0", "dependencies": {}}',
    }.items():
        yield case(name, content)
    for path in ("version", "files", "about", "files/weights.safetensors", "files/weights.safetensors/bytes",
                 "files/weights.safetensors/xxh128", "about/program", "about/configuration", "about/progress",
                 "about/progress/step", "about/progress/latest", "about/progress/metrics_bytes"):
        yield case(f"without {path}", edited(path, None), "", EVALUATE)
    for path, values in {
        "version": (0, 2, "1", [], 1e300), "files": ([], "x"), "files/weights.safetensors/bytes": ("x", -1, 1, 2**63),
        "files/weights.safetensors/xxh128": (0, "", "0" * 32), "about": ([], "x", {}),
        "about/program": ("attend", 3, []),
        "about/progress": ([], {}, "x"),
        "about/progress/step": (-1, "6", [], 1e300, 2**63, 6.5), "about/progress/seconds": ("x", []),
        "about/progress/stopped": ("x", 3), "about/progress/latest": ([], "x", {}),
        "about/progress/metrics_bytes": (-1, "x", 1e300), "about/progress/schedule": ("x", [{}]),
    }.items():
        for value in values:
            yield case(f"{path} is {json.dumps(value)}", edited(path, value), "", EVALUATE)
    for path, value in {
        "about/configuration": [], "about/configuration/length": "3", "about/configuration/attention": "clusterd-3",
        "about/configuration/norm": "middle", "about/configuration/heads": -1, "about/configuration/unknown": 1,
    }.items():
        yield case(f"{path} is {value!r}", edited(path, value))
        yield case(f"{path} is {value!r}, resumed", edited(path, value), "", RESUME)
    yield case("the state of another schedule, resumed", edited("about/progress/schedule", [0.1, None, 0]),
               "schedule: expected no state", [*RESUME, "--iterations", "8"])
    yield case("about/configuration/schedule has no state, resumed",
               edited("about/configuration/schedule", "plateau"), "drop_on_plateau", [*RESUME, "--iterations", "8"])
    for key, value in {"layers": 2, "head_size": 5, "feed_forward": 5}.items():
        yield case(f"weights of a model with another {key}", edited(f"about/configuration/{key}", value),
                   "weights.safetensors")
        yield case(f"weights of a model with another {key}, resumed", edited(f"about/configuration/{key}", value),
                   "weights.safetensors", [*RESUME, "--iterations", "8"])
    yield case("a model larger than memory",
               edited("about/configuration/head_size", 4096).replace('"heads": 1', '"heads": 1024'),
               "", code=(3, 4))
    yield case("a model larger than memory, resumed",
               edited("about/configuration/head_size", 4096).replace('"heads": 1', '"heads": 1024'), "",
               [*RESUME, "--iterations", "8"], (3, 4))


LOST = "run/metrics.jsonl: some records of the first 6 steps are lost; the run goes on without them\n"


def metric_files():
    """metrics.jsonl is what a person may edit. What it lost is told; nothing crashes."""
    for name, text in {
        "empty": b"", "cut off": None, "not UTF-8": b'{"step": "\xff"}\n', "no JSON": b"step,loss\n1,2\n",
        "NUL bytes": bytes(4096),
        "a list a line": b"[1]\n[2]\n", "no numbers": b'{"step": "one", "loss": {}, "result": 3}\n',
        "deep": b"[" * 100_000,
        "another result": b'{"result": {}}\n', "a result that is none": b'{"step": 1}\n{"result": []}\n',
        "a result without numbers": b'{"result": {"iterations": 6, "attention": 3, "loss": "x"}}\n',
        "a result of a megabyte": b'{"result": "' + b"x" * 1_000_000 + b'"}\n',
    }.items():
        def before(folder, text=text):
            path = folder / "run" / "metrics.jsonl"
            path.write_bytes(path.read_bytes()[:-20] if text is None else text)
        yield Case(f"metrics.jsonl: {name}, resumed", RESUME, (0, 3), "metrics.jsonl", run=True, before=before,
                   unchanged=False, out=".*", says=f"({LOST})?")


    def inside(folder):
        path = folder / "run" / "metrics.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:3]) + lines[3][:20])

    def gap_is_told(folder):
        page = (folder / "run" / "report.html").read_text()
        if "Of 8 steps metrics.jsonl has the records of 5 alone" not in page:
            yield "the report does not tell of the gap"
        yield from contents(folder / "run")

    yield Case("metrics.jsonl: cut inside a saved record, resumed", [*RESUME, "--iterations", "8"], 0, run=True,
               before=inside, unchanged=False, out=".*", after=gap_is_told,
               says=LOST)
    yield Case("metrics.jsonl: not a record, resumed", [*RESUME, "--iterations", "8"], 3, "metrics.jsonl", run=True,
               before=lambda f: (f / "run" / "metrics.jsonl").write_bytes(
                   b'{"step": "one", "loss": {}}\n' + bytes(2000)))

    def second_line(folder):
        path = folder / "run" / "metrics.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(lines[0] + b"x" + b"".join(lines[1:]))

    yield Case("metrics.jsonl: its second line is damaged", RESUME, 3, "metrics.jsonl: line 2", run=True,
               before=second_line)
    yield Case("metrics.jsonl is a folder", RESUME, 3,
               "metrics.jsonl: is a folder", run=True,
               before=lambda f: ((f / "run" / "metrics.jsonl").unlink(), (f / "run" / "metrics.jsonl").mkdir()))


def every_byte(reference, every):
    """Weights of every length below their own, and with every byte another."""
    checkpoint = reference / "checkpoint"
    good = (checkpoint / "weights.safetensors").read_bytes()
    data_at = len(good) - len(weights.parse(good)[1])
    right = lambda content: weights.in_checkpoint(reference, {"weights.safetensors": content})
    flipped = lambda content, i, bits: content[:i] + bytes([content[i] ^ bits]) + content[i + 1 :]
    lengths = range(0, len(good), every)
    yield Sweep("weights cut off at every byte", EVALUATE, [(f"{n} bytes", right(good[:n])) for n in lengths], 3,
                "weights.safetensors")
    header = range(0, data_at, every)
    yield Sweep("every byte of the weights' header inverted", EVALUATE,
                [(f"byte {i}", right(flipped(good, i, 255))) for i in header], 3,
                "weights.safetensors")
    yield Sweep("the lowest bit of every byte of the weights' header inverted", EVALUATE,
                [(f"byte {i}", right(flipped(good, i, 1))) for i in header], 3, "weights.safetensors")
    # Other numbers are still numbers, unless they are not finite.
    yield Sweep("every byte of the weights' numbers inverted", SHOW,
                [(f"byte {i}", right(flipped(good, i, 255))) for i in range(data_at, len(good), every)], (0, 3),
                "not finite")
    for name in ("weights.safetensors", "optimizer.safetensors", "checkpoint.json", "checksums"):
        content = (checkpoint / name).read_bytes()
        step = every * (1 if len(content) < 2000 else 4)
        for bits, which in ((255, "every byte"), (1, "the lowest bit of every byte")):
            yield Sweep(f"{which} of {name} inverted, its hash not made right", EVALUATE,
                        [(f"byte {i}", {f"checkpoint/{name}": flipped(content, i, bits)})
                         for i in range(0, len(content), step)], 3,
                        "damaged")
        yield Sweep(f"{name} cut off at every byte, its hash not made right", EVALUATE,
                    [(f"{n} bytes", {f"checkpoint/{name}": content[:n]}) for n in range(0, len(content), step)], 3,
                    "damaged")


def cases(bench):
    reference = bench.reference / "run"
    for group in (folders(), commands(), initial_weights(), weight_files(reference), optimizer_files(reference),
                  checkpoint_files(reference), metric_files(), other_inputs.cases()):
        yield from group


def sweeps(bench, every):
    yield from every_byte(bench.reference / "run", every)
