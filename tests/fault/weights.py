"""Makes safetensors files and checkpoints by hand, also such as no program would write, with hashes that are right."""

import ctypes
import ctypes.util
import json
import struct


class _Hash(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def _library():
    name = ctypes.util.find_library("xxhash") or "libxxhash.so.0"  # libxxhash-dev, which the build needs, brings it
    library = ctypes.CDLL(name)
    library.XXH3_128bits.restype = _Hash
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return library


_xxhash = _library()


def xxh128(data):
    digest = _xxhash.XXH3_128bits(data, len(data))
    return f"{digest.high:016x}{digest.low:016x}"


def safetensors(header, data=b""):
    """A file with this header: text, bytes, or pairs of a name and an entry, in which names may be there twice."""
    if isinstance(header, list):
        header = "{" + ",".join(f"{json.dumps(name)}:{json.dumps(entry)}" for name, entry in header) + "}"
    if isinstance(header, str):
        header = header.encode()
    return struct.pack("<Q", len(header)) + header + data


def parse(file):
    """The header as pairs of a name and an entry, and the data."""
    (size,) = struct.unpack("<Q", file[:8])
    return list(json.loads(file[8 : 8 + size]).items()), file[8 + size :]


TENSOR_FILES = ("weights.safetensors", "optimizer.safetensors")


def with_hashes(checkpoint, files):
    """All files of a checkpoint after `files`, by name, took the place of some, hashes and sizes made right.
    A checkpoint.json among them is taken as it is."""
    tensors = {name: files.get(name, (checkpoint / name).read_bytes()) for name in TENSOR_FILES}
    if "checkpoint.json" in files:
        text = files["checkpoint.json"]
    else:
        about = json.loads((checkpoint / "checkpoint.json").read_text())
        about["files"] = {name: {"bytes": len(data), "xxh128": xxh128(data)} for name, data in tensors.items()}
        text = json.dumps(about, indent=2).encode() + b"\n"
    sums = {"checkpoint.json": text, **tensors}
    checksums = "".join(f"{xxh128(data)}  {name}\n" for name, data in sums.items()).encode()
    return {**tensors, "checkpoint.json": text, "checksums": checksums}


def in_checkpoint(folder, files):
    """The same for a run's newest checkpoint, by path in the run; only what differs from what is there."""
    checkpoint = folder / "checkpoint"
    made = with_hashes(checkpoint, files)
    return {f"checkpoint/{name}": data for name, data in made.items() if data != (checkpoint / name).read_bytes()}


def rewrite(folder, files):
    for name, data in in_checkpoint(folder, files).items():
        (folder / name).write_bytes(data)
