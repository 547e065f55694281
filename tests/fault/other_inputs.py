"""What users and their files get wrong with attend, attention-bench and copy-task figure."""

import os
import struct

import weights
from harness import MODEL, Case

LONG = "x" * 100_000
SPECS = {"ful": "did you mean 'full'", "clusterd-3": "did you mean 'clustered-3'", "clustered": "", "clustered-0": "clusters",
         "clustered--1": "", "clustered-3:bits=65": "bits = 65", "clustered-3:": "", "i-clustered-3:tokp=3": "did you mean 'topk'",
         "full-3": "", "full,,full": "", "lsh-0": "", "full:x=1": "x", LONG: ""}


def numbers(program, start, option, outside, files):
    """A numeric option with every kind of text that is no such number."""
    for text in (*outside, "", "many", "1e3", "1.0", "0x10", "1 2", "--5", "٣", "99999999999999999999999", "nan"):
        yield Case(f"{program} {option} {text!r}", [*start, f"{option}={text}"], 2, option[2:].replace("-", "[-_]"),
                   files=files, program=program)


def floats(count):
    return struct.pack(f"<{count}f", *(i % 7 - 3 for i in range(count)))


def tensors(**shapes):
    """A safetensors file of float32 tensors; a value may also be (dtype, shape, bytes)."""
    header, data = [], b""
    for name, value in shapes.items():
        dtype, shape, content = value if isinstance(value, tuple) else ("F32", value, None)
        count = 1
        for size in shape:
            count *= size
        content = floats(count) if content is None else content
        header.append((name, {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}))
        data += content
    return weights.safetensors(header, data)


Q = [1, 4, 2, 4]  # batch, queries, heads, size
GOOD = dict(q=Q, k=Q, v=Q)


def attend():
    good = {"q.safetensors": tensors(**GOOD)}
    start = ["--in", "q.safetensors", "--attention", "full"]

    def case(name, arguments, code, message, files=good, **more):
        return Case(f"attend, {name}", arguments, code, message, files=files, program="attend", **more)

    for arguments, message in (
        ([], "--in"), (["--in", "q.safetensors"], "--attention"), (["extra"], "unexpected argument 'extra'"),
        (["--foo"], "unknown option '--foo'"), (["--attenton", "full"], "did you mean '--attention'"),
        (["--grad=1"], "takes no value"), (["--in", ""], "--in"),
        ([*start, "--out", ""], "--out"), ([*start, "--out", "."], "is a folder"),
        ([*start, "--out", "/dev/null"], "regular file"), ([*start, "--out", "no/r"], "there is no folder no"),
        ([*start, "--out", "q.safetensors"], "is the file that --in reads"),
        ([*start, "--picture", "no/w.svg"], "there is no folder"), ([*start, "--picture", "."], "is a folder"),
        ([*start, "--picture", "r", "--out", "r"], "is the file of --out"), ([*start, "--head", "1"], "--picture"),
        ([*start, "--length", "3"], "--example"), ([*start, "--picture", "w.svg", "--head", "3"], "there are 2"),
        ([*start[:2], "--attention", "full,clustered-2"], "--compare or --picture"),
        ([*start[:2], "--attention", "full,clustered-2", "--compare", "full", "--out", "r"], "one file"),
        ([*start, "--compare", "ful"], "--compare"), ([*start, "--device", "tpu"], "one of auto"),
        ([*start, "--precision", "bf16", "--device", "cpu"], "float32"), ([*start, "--precision", "half"], "one of"),
        (["--example", "e", "--in", "q.safetensors"], "leave out"), (["--example", "e", "--grad"], "leave out"),
        (["--example", "."], "is a folder"), (["--example", "no/e"], "no folder"), (["--example", ""], "--example"),
        ([*start[:2], "--attention", "shared-full"], None),
    ):
        if message is not None:
            yield case(f"arguments {arguments}", arguments, 2, message)
    for spec, message in SPECS.items():
        yield case(f"--attention {spec[:30]!r}", [*start[:2], f"--attention={spec}"], 2, message)
        if "," not in spec:
            yield case(f"--compare {spec[:30]!r}", [*start, f"--compare={spec}"], 2, message)
    for option, outside in {"--repeat": ("0", "1001", "-1"), "--threads": ("0", "4097"), "--seed": ("-1",),
                            "--head": ("0", "-1")}.items():
        yield from numbers("attend", [*start, "--picture", "w.svg"], option, outside, good)
    yield from numbers("attend", ["--example", "e"], "--length", ("0", "1048577"), {})

    # Files: 3 where the file is bad, 2 where its tensors do not fit together.
    for name, content, message in (
        ("nothing", None, "q.safetensors"), ("empty", b"", "at least 8"), ("text", b"these are tensors\n" * 9, ""),
        ("a picture", b"\x89PNG\r\n\x1a\n" + bytes(100), ""), ("zeroes", bytes(4096), ""),
        ("no tensors", weights.safetensors("{}"), "q"), ("cut off", tensors(**GOOD)[:-5], "cut off|bytes"),
        ("a byte too many", tensors(**GOOD) + b"x", "belong to no tensor"), ("no q", tensors(k=Q, v=Q), "q"),
        ("no v", tensors(q=Q, k=Q), "v"), ("q of integers", tensors(**{**GOOD, "q": ("I32", Q, bytes(128))}), "float32"),
        ("k in double", tensors(**{**GOOD, "k": ("F64", Q, bytes(256))}), "like q"),
        ("lengths in floats", tensors(**GOOD, key_lengths=[1]), "int32 or int64"),
        ("lengths beyond", tensors(**GOOD, key_lengths=("I32", [1], struct.pack("<i", 5))), "from 0 to 4"),
        ("lengths below", tensors(**GOOD, query_lengths=("I64", [1], struct.pack("<q", -1))), "from 0 to 4"),
        ("a mask of floats", tensors(**GOOD, mask=[4, 4]), "boolean|bool"),
        ("labels below", tensors(**GOOD, labels=("I32", [1, 2, 4], struct.pack("<8i", *[-2] * 8))), "from -1"),
        ("planes of integers", tensors(**GOOD, planes=("I32", [8, 5], bytes(160))), "float32"),
        ("grad_out of integers", tensors(**GOOD, grad_out=("I32", Q, bytes(128))), "float32"),
        ("points of integers", tensors(**GOOD, points=("I32", [2, 3, 4], bytes(96))), "float32"),
    ):
        files = {} if content is None else {"q.safetensors": content}
        yield case(f"a file: {name}", start, 3, message, files)
        yield case(f"a file, compared: {name}", [*start[:2], "--compare", "full"], 3, message, files)
    for name, content, message in (
        ("q of three axes", tensors(**{**GOOD, "q": [4, 2, 4]}), "four axes"),
        ("v of another batch", tensors(**{**GOOD, "v": [2, 4, 2, 4]}), "B and H"),
        ("v of other heads", tensors(**{**GOOD, "v": [1, 4, 1, 4]}), "B and H"),
        ("k of another size", tensors(**{**GOOD, "k": [1, 4, 2, 3]}), r"\[B, S, H, D\]"),
        ("k longer than v", tensors(**{**GOOD, "k": [1, 5, 2, 4]}), r"\[B, S, H, D\]"),
        ("lengths for two", tensors(**GOOD, key_lengths=("I32", [2], bytes(8))), r"\[B\]"),
        ("a mask that does not fit", tensors(**GOOD, mask=("BOOL", [3, 4], bytes(12))), "broadcast"),
        ("a gradient that does not fit", tensors(**GOOD, grad_out=[1, 4, 2, 3]), "N, H, M"),
        ("planes for another size", tensors(**GOOD, planes=[8, 4]), "bits, D"),
        ("65 planes", tensors(**GOOD, planes=[65, 5]), "1 to 64"),
        ("labels for others", tensors(**GOOD, labels=("I32", [1, 2, 3], bytes(24))), "B, H, N"),
    ):
        yield case(f"tensors that do not fit: {name}", start, 2, message, {"q.safetensors": content})
    yield case("tensors that do not fit: points for others", [*start[:-1], "inducing-3"], 2, r"expected \[2, 3, 4\]",
               {"q.safetensors": tensors(**GOOD, points=[1, 3, 4])})
    yield case("a variant without keys", start, 2, "needs keys", {"q.safetensors": tensors(q=Q, v=Q)})
    for name, make, message in (("a folder", lambda p: p.mkdir(), "is a folder"), ("a named pipe", os.mkfifo, "regular"),
                                ("a link to itself", lambda p: os.symlink(p.name, p), ""),
                                ("a device", lambda p: os.symlink("/dev/zero", p), "regular")):
        yield case(f"a file: {name}", start, 3, message, {}, before=lambda f, make=make: make(f / "q.safetensors"))


def attention_bench():
    small = ["--length", "8", "--tokens", "8", "--heads", "1", "--head-size", "4", "--feed-forward", "4", "--repeat", "1",
             "--threads", "1", "--no-floor", "--attention", "full"]
    run, figure = ["run", *small], ["figure", "--out", "bench", "--lengths", "8", "--repeat", "1", "--seconds", "0"]

    def case(name, arguments, message, code=2, **more):
        return Case(f"attention-bench, {name}", arguments, code, message, program="attention-bench", **more)

    for word, message in {"": "unknown command", "rum": "did you mean 'run'", "--foo": "unknown option", "RUN": "unknown",
                          LONG: "unknown command"}.items():
        yield case(f"command {word[:20]!r}", [word], message, quiet=False)
    yield case("no command", [], "expected a command", quiet=False)
    for arguments, message in (
        ([*run, "extra"], "unexpected argument"), ([*run, "--lenght", "3"], "did you mean '--length'"),
        ([*run, "--what", "everything"], "one of"), ([*run, "--pass", "back"], "one of"),
        ([*run, "--what", "cluster"], "does not cluster"), ([*run, "--batch", "many"], "or max"),
        ([*run, "--batch", "0"], "or max"), ([*run, "--batch", ""], None), ([*run, "--batch", "1.5"], "or max"),
        ([*run, "--batch", "-1"], "or max"), ([*run, "--device", "tpu"], "one of"), ([*run, "--stages=2"], "no value"),
        ([*run, "--precision", "tf32", "--device", "cpu"], "float32"), (["figure"], "--out"),
        (["figure", "--out", ""], "--out"), ([*figure, "--lengths", "8,4"], "larger"),
        ([*figure, "--lengths", "8,x"], "lengths"), ([*figure, "--lengths", ","], "lengths"),
        ([*figure, "--lengths", "0"], "lengths"), ([*figure, "--lengths", "8,8"], "larger"),
        ([*figure, "--lengths", "99999999999999999999"], "lengths"), ([*figure, "--attention", ","], ""),
        ([*figure, "--longest", "-1"], "longest"), ([*figure, "--longest", "x"], "longest"),
        (["figure", "--out", "file"], "got a file"),
    ):
        if message is not None:
            yield case(f"arguments {arguments[-3:]}", arguments, message, files={"file": b"mine"})
    for spec, message in SPECS.items():
        yield case(f"run --attention {spec[:30]!r}", [*run, f"--attention={spec}"], message)
        yield case(f"figure --attention {spec[:30]!r}", [*figure, f"--attention={spec}"], message)
    for option, outside in {"--length": ("0", "-1"), "--tokens": ("0",), "--heads": ("0", "1025"), "--head-size": ("0", "4097"),
                            "--feed-forward": ("0", "1048577"), "--repeat": ("0",), "--threads": ("0", "4097")}.items():
        yield from numbers("attention-bench", run, option, outside, {})
    for text in ("-1", "1000001", "nan", "inf", "x", ""):
        yield case(f"--seconds {text!r}", [*run, f"--seconds={text}"], "seconds")
    yield case("more heads than memory", [*run, "--heads", "1024", "--head-size", "4096", "--tokens", "1000000000",
                                          "--batch", "1000000"], "out of memory", 4)


def figure():
    start = ["figure", "--out", "grid", "--lengths", "3", *MODEL[2:], "--iterations", "1"]
    none = lambda folder: ["there is grid/"] if (folder / "grid").exists() else []

    def case(name, arguments, message, code=2, **more):
        return Case(f"figure, {name}", arguments, code, message, after=none, **more)

    for arguments, message in (
        (start[:1] + start[3:], "--out"), ([*start, "extra"], "unexpected argument"), ([*start, "--out", ""], "--out"),
        ([*start, "--length", "3"], "unknown option"), ([*start, "--lengths", "5,3"], "larger"),
        ([*start, "--lengths", ""], "lengths"), ([*start, "--lengths", "0"], "lengths"),
        ([*start, "--lengths", "3,x"], "lengths"), ([*start, "--lengths", "1048577"], "lengths"),
        ([*start, "--variants", ""], "--variants"), ([*start, "--variants", ","], "--variants"),
        ([*start, "--resume"], "unknown option"), ([*start, "--config", "no.json"], "no.json"),
        ([*start, "--set", "variants"], "key=value"), ([*start, "--set", "lenghts=3"], "did you mean 'lengths'"),
        ([*start, "--out", "file"], "got a file"), ([*start, "--norm", "middle"], "one of"),
        ([*start, "--device", "tpu"], "one of"),
    ):
        yield case(f"arguments {arguments[-3:]}", arguments, message, files={"file": b"mine"})
    for spec, message in SPECS.items():
        if spec != "full,,full":
            yield case(f"--variants {spec[:30]!r}", [*start, f"--variants=full,{spec}"], message)
    for option in ("--batch", "--layers", "--heads", "--iterations", "--evaluate-every"):
        for text in ("-1", "", "x", "1e3", "99999999999999999999"):
            yield case(f"{option} {text!r}", [*start, f"{option}={text}"], option[2:].replace("-", "[-_]"))
    yield case("a model larger than memory", [*start, "--layers", "1024", "--feed-forward", "1048576"], "out of memory", 4)


def cases():
    for group in (attend(), attention_bench(), figure()):
        yield from group
