"""What users and their files get wrong with attend, attention-bench, copy-task figure and text-search."""

import json
import os
import shutil
import struct

import weights
from harness import BERT, Case

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


def embeddings(folder, rows):
    """What is wrong with the rows that text-search embed wrote."""
    data = (folder / "out").read_bytes()
    size = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:8 + size])["embeddings"]
    if entry["shape"] != [rows, 24] or entry["data_offsets"] != [0, rows * 96] or len(data) != 8 + size + rows * 96:
        return [f"expected {rows} rows, got {entry}"]
    values = struct.unpack(f"<{rows * 24}f", data[8 + size:])
    squares = [sum(x * x for x in values[i:i + 24]) for i in range(0, len(values), 24)]
    return [f"row {i} has a length of {square ** 0.5}" for i, square in enumerate(squares) if not abs(square - 1) < 1e-4]


def text_search():
    text = {"text": b"the key\nof a query\n"}
    label = lambda i: json.dumps({"text": f"the key {i}", "label": str(i % 2), "group": str(i)}) + "\n"
    labeled = {"labeled": "".join(map(label, range(9))).encode()}
    model = ["--model", str(BERT)]
    embed = ["embed", "--text-file", "text", "--out", "out"]
    table = ["table", "--labeled", "labeled", "--train", "5", "--test", "3", *model]
    compare = ["compare", "text", "--lengths", "8", *model]
    left = lambda folder: [f"there is {path.name}" for path in folder.iterdir()
                           if path.name not in ("text", "labeled", "file", "run", "model")]

    def case(name, arguments, code, message, files={**text, **labeled, "file": b"mine"}, after=left, **more):
        return Case(f"text-search {name}", arguments, code, message, files=files, after=after, program="text-search", **more)

    for word, message in {"": "unknown command", "embd": "did you mean 'embed'", "--foo": "unknown option",
                          LONG: "unknown command"}.items():
        yield case(f"command {word[:20]!r}", [word], 2, message, quiet=False)
    yield case("no command", [], 2, "expected a command", quiet=False)
    for arguments, message in (
        (embed, "--model"), ([*embed[:3], *model], "--out"), (["embed", "--out", "out", *model], "--text-file"),
        ([*embed, *model, "extra"], "unexpected argument 'extra'"), ([*embed, *model, "--atention", "full"], "--attention"),
        ([*embed, *model, "--model", ""], "--model"), ([*embed, *model, "--out", "."], "is a folder"),
        ([*embed, *model, "--out", "text"], "is the file that is read"), ([*embed, *model, "--out", "no/out"], "no folder"),
        ([*embed, *model, "--out", "/dev/full"], "regular file"), ([*embed, *model, "--device", "tpu"], "one of auto"),
        ([*embed, *model, "--precision", "bfloat16", "--device", "cpu"], "float32"),
        ([*embed, *model, "--attention", "full,full"], "--attention"),
        ([*embed, *model, "--attention", "shared-full"], "--attention"),
        ([*embed, *model, "--attention", "inducing-3"], "--attention"),
        ([*embed, *model, "--max-tokens", "513"], "3 to 512"), (["tokenize", "--text-file", "text"], "--model"),
        (["tokenize", *model], "--text-file"), (["index", *model, "--out", "o"], "PATH|file"),
        (["index", "text", "--out", "o"], "--model"), (["index", "none", *model, "--out", "o"], "none"),
        (["index", "text", *model], "--out"), (["index", "text", *model, "--out", "file"], "got a file"),
        (["query", "words"], "--index"), (compare[:4], "--model"), (["compare", *model], "PATH"),
        (["compare", "none", *model], "none"), ([*compare, "--lengths", "7"], "at least 8"),
        ([*compare, "--lengths", "16,8"], "lengths"), ([*compare, "--lengths", "8,x"], "lengths"),
        ([*compare, "--lengths", "513"], "512 positions"), ([*compare, "--lengths", "64"], "only 0 sequences of 64"),
        ([*compare, "--out", "file"], "unknown option '--out'"),
        ([*compare, "--exclude", ","], "--exclude"), (table[:7], "--model"), (["table", *model], "--labeled"),
        ([*table, "--train", "7"], "7 examples and 3 others"), ([*table, "--length", "513"], "--length: .* 512 positions"),
        ([*table, "--out", "file"], "got a file"),
    ):
        yield case(f"arguments {arguments[0]} {arguments[-3:]}", arguments, 2, message, quiet=arguments[0] != "tokenize")
    for spec, message in SPECS.items():
        yield case(f"embed --attention {spec[:30]!r}", [*embed, *model, f"--attention={spec}"], 2, message)
        yield case(f"compare --variants {spec[:30]!r}", [*compare, f"--variants={spec}"], 2, message)
        yield case(f"table --variants {spec[:30]!r}", [*table, f"--variants={spec}"], 2, message)
    for start, options in ((embed, {"--batch": ("0", "4097"), "--max-tokens": ("0", "2"), "--seed": ("-1",)}),
                           (compare, {"--sequences": ("1",), "--batch": ("0",)}),
                           (table, {"--length": ("7",), "--nearest": ("0",), "--seeds": ("0",)})):
        for option, outside in options.items():
            yield from numbers("text-search", [*start, *model], option, outside, text | labeled)

    # Texts: whatever bytes they are, a line is a row.
    words = b"the key of a query " * 600_000
    for name, content, rows in (
        ("nothing", b"", 0), ("a line's end", b"\n", 1), ("one character", b"x", 1), ("many empty lines", b"\n" * 100, 100),
        ("spaces", b" \t\r\n  ", 2), ("NUL", bytes(1000), 1), ("NUL in lines", b"\0\n\0a\0\n", 2),
        ("every byte", bytes(range(256)) * 20, 21), ("no UTF-8", b"\xff\xfe\xc0\x80\xed\xa0\x80\xf8\n\xe2\x82", 2),
        ("Windows's lines", b"a\r\nb\r\n", 2), ("more tokens than positions", words[:8000], 1),
        ("10 MB in one line", words[:10_000_000], 1), ("10 MB in one word", b"x" * 10_000_000, 1),
        ("accents without end", b"a" + b"\xcc\x81" * 1_000_000, 1), ("special tokens", b"[CLS] [SEP][PAD]\n[MASK]", 2),
    ):
        yield case(f"embed, a text: {name}", [*embed, *model], 0, "", {"text": content},
                   after=lambda folder, rows=rows: embeddings(folder, rows))
    for name, make, message in (("none", lambda p: None, "text: cannot be opened"),
                                ("a folder", lambda p: p.mkdir(), "cannot be read"),
                                ("a link to itself", lambda p: os.symlink(p.name, p), "cannot be opened")):
        before = lambda folder, make=make: make(folder / "text")
        yield case(f"embed, a text: {name}", [*embed, *model], 3, message, {}, before=before,
                   after=lambda folder: ["there is out"] if (folder / "out").exists() else [])

    # The model's folder.
    def damaged(name, change, message, command=embed):
        def before(folder):
            shutil.copytree(BERT, folder / "model")
            change(folder / "model")
        return case(f"{command[0]}, a model: {name}", [*command, "--model", "model"], 3, message, before=before,
                    quiet=command[0] != "tokenize")  # which has no --quiet

    def edit(file, change):
        return lambda model: (model / file).write_bytes(change((model / file).read_bytes()))

    def config(**values):
        return edit("config.json", lambda data: json.dumps({**json.loads(data), **values}).encode())

    for file in ("config.json", "model.safetensors", "vocab.txt"):
        remove = lambda model, file=file: (model / file).unlink()
        index = ["index", "text", "--out", "out"]
        for command in (embed, ["tokenize", "--text-file", "text"], compare[:4], table[:7], index):
            if command[0] != "tokenize" or file == "vocab.txt":
                yield damaged(f"no {file}", remove, f"model/{file}: cannot be opened", command)
        folder_for = lambda model, file=file: ((model / file).unlink(), (model / file).mkdir())
        yield damaged(f"a folder for {file}", folder_for, file)
        for name, content in (("empty", b""), ("zeroes", bytes(5000)), ("a picture", b"\x89PNG\r\n\x1a\n" + bytes(99))):
            yield damaged(f"{file}: {name}", edit(file, lambda _, content=content: content), f"model/{file}")
    yield damaged("no folder", lambda model: shutil.rmtree(model), "model/.*: cannot be opened")
    for size in (1, 8, 200, 3000):
        cut = edit("model.safetensors", lambda data, size=size: data[:size])
        yield damaged(f"weights cut off behind {size}", cut, "safetensors")
    for old, new, message in (
        (b"embeddings.word_embeddings.weight", b"embeddings.w0rd_embeddings.weight", "no tensor .*did you mean"),
        (b"[160,24]", b"[24,160]", r"expected numbers of shape \[160, 24\]"), (b"[160,24]", b"[160,25]", "safetensors"),
        (b'"F16"', b'"U16"', "not supported"), (b'"F16"', b'"F32"', "safetensors"), (b'"F16"', b'"F99"', "unknown"),
    ):
        replace = lambda data, old=old, new=new: data.replace(old, new)
        yield damaged(f"weights with {new}", edit("model.safetensors", replace), message)
    nan = lambda data: data[:-4] + struct.pack("<f", float("nan"))
    yield damaged("weights of NaN", edit("model.safetensors", nan), "element")
    for name, values, message in (
        ("another architecture", dict(model_type="roberta"), "expected .*bert.*, got .*roberta"),
        ("a decoder", dict(is_decoder=True), "is_decoder"),
        ("other positions", dict(position_embedding_type="relative_key"), "position"),
        ("more layers than weights", dict(num_hidden_layers=3), "model.safetensors"),
        ("more layers than memory", dict(num_hidden_layers=1024, intermediate_size=1 << 20), "too few for the sizes"),
        ("a vocabulary larger than memory", dict(vocab_size=1 << 20, hidden_size=1 << 20, num_attention_heads=1), "too few"),
        ("a size of 2^63", dict(hidden_size=1 << 63), "hidden_size"), ("a size below 0", dict(vocab_size=-1), "vocab_size"),
        ("heads that do not divide", dict(num_attention_heads=5), "no multiple of 5"),
        ("an activation", dict(hidden_act="swish"), "hidden_act"),
        ("no epsilon", dict(layer_norm_eps="small"), "layer_norm_eps"),
        ("fewer tokens than vocab.txt", dict(vocab_size=159), ""),
    ):
        yield damaged(f"config.json of {name}", config(**values), message)
    for name, change, message in (
        *((f"no {token}", lambda data, t=token: data.replace(t.encode() + b"\n", b"[other]\n"), token.strip("[]"))
          for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")),
        ("a token twice", lambda data: data.replace(b"query\n", b"key\n"), "key"),
        ("an empty line", lambda data: b"\n" + data, "line 1"),
        ("no UTF-8", lambda data: data.replace(b"query", b"\xff\xfe"), "UTF-8"),
        ("more tokens than the model", lambda data: data + b"more\n", "161 tokens; the model has embeddings for 160"),
        ("2 million tokens", lambda data: data + b"".join(b"%d~\n" % i for i in range(2_000_000)), "more than"),
    ):
        yield damaged(f"vocab.txt: {name}", edit("vocab.txt", change), f"vocab.txt.*{message}")
    for file, content in (("tokenizer_config.json", b"{"), ("tokenizer_config.json", b'{"do_lower_case": 1}'),
                          ("1_Pooling/config.json", b"[]"), ("1_Pooling/config.json", b'{"pooling_mode_cls_token": true}')):
        def put(model, file=file, content=content):
            (model / file).parent.mkdir(exist_ok=True)
            (model / file).write_bytes(content)
        yield damaged(f"{file}: {content}", put, file)

    # Texts with labels.
    good = labeled["labeled"]
    for name, content in (("no JSON", b"text\n"), ("a list", b"[]\n"), ("no text", b'{"label": "", "group": ""}\n'),
                          ("a number", b'{"text": 1, "label": "", "group": ""}\n'), ("an empty line", b"\n"),
                          ("zeroes", bytes(99)), ("cut off", good[:20])):
        yield case(f"table, labels: {name}", table, 3, "labeled, line 10", {"labeled": good + content})
    yield case("table, labels: none", table, 2, "got 0 in all", {"labeled": b""})
    yield case("table, labels: no file", table, 3, "labeled: cannot be opened", {})


def cases():
    for group in (attend(), text_search()):
        yield from group
