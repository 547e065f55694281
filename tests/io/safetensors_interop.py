#!/usr/bin/env python3
"""safetensors_interop.py PROGRAM: Cairn and the format's own Python package read each other's files.

PROGRAM is safetensors-copy. Random files go from the package through Cairn and back; damaged ones
must not be taken by Cairn where the package refuses them. Ends with 77 (skipped) where the package is not installed.
"""
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import numpy
    from safetensors import SafetensorError, deserialize
    from safetensors.numpy import save
except ImportError:
    print("skipped: Python's safetensors and NumPy are not installed")
    sys.exit(77)

dtypes = ["float32", "float64", "int32", "int64", "uint64", "uint8", "bool"]  # NumPy has no bfloat16
golden = pathlib.Path(__file__).parent.parent / "golden"


def copy(program, folder, files):
    """What Cairn makes of each file's bytes: bytes, or None if it refuses them."""
    arguments = []
    for i, data in enumerate(files):
        (folder / f"in{i}").write_bytes(data)
        (folder / f"out{i}").unlink(missing_ok=True)
        arguments += [folder / f"in{i}", folder / f"out{i}"]
    done = subprocess.run([program, *arguments], check=True, capture_output=True, text=True)
    outputs = [folder / f"out{i}" for i in range(len(files))]
    copied = [out.read_bytes() if out.exists() else None for out in outputs]
    assert done.stdout.count("\n") == copied.count(None), done.stdout
    return copied


def random_file(numbers):
    tensors = {}
    for i in range(numbers.randrange(6)):
        dtype = numpy.dtype(numbers.choice(dtypes))
        shape = [numbers.choice([0, 1, 2, 3, 5]) for _ in range(numbers.randrange(7))]
        data = numbers.randbytes(math.prod(shape) * dtype.itemsize)
        if dtype == bool:
            data = bytes(byte & 1 for byte in data)
        name = numbers.choice(["layers.0.weight", 'é \n"', "x" * 300, "\x1f"]) + str(i)
        tensors[name] = numpy.frombuffer(data, dtype).reshape(shape)
    # One entry at most: the package writes several in random order.
    return save(tensors, numbers.choice([None, {"format": "pt"}, {"": "ü\n"}]))


def damaged(numbers, data):
    data = bytearray(data)
    for _ in range(numbers.randrange(1, 4)):
        kind, at = numbers.randrange(4), numbers.randrange(len(data))
        if kind == 0:
            data[at] ^= 1 << numbers.randrange(8)
        elif kind == 1:
            data[at] = numbers.choice(b'0123456789{}[]",: ')
        elif kind == 2:
            del data[at]
        else:
            data.insert(at, numbers.choice(b'0123456789{}[]",: '))
        if not data:
            break
    # Half of them with the header's size put right again, to come further.
    if len(data) > 8 and numbers.randrange(2):
        end = data.rfind(b"}}") + 2
        data[:8] = max(end - 8, 0).to_bytes(8, "little")
    return bytes(data)


def main(program):
    numbers = random.Random(1)
    # In memory where that is possible: thousands of files are synced.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        folder = pathlib.Path(folder)
        files = [random_file(numbers) for _ in range(300)] + [(golden / "python.safetensors").read_bytes()]
        same = copy(program, folder, files)
        for i, (ours, theirs) in enumerate(zip(same, files)):
            assert ours == theirs, f"file {i} is not the same after Cairn wrote it"
        print(len(files), "files of the package's come back byte for byte")

        ours = (golden / "cairn.safetensors").read_bytes()
        read = {name: tensor for name, tensor in deserialize(ours)}
        assert list(copy(program, folder, [ours])) == [ours]
        assert len(read) == 10 and read["double"]["shape"] == [2, 1] and read["double"]["dtype"] == "F64", read
        assert bytes(read["bytes"]["data"]) == bytes([1, 2, 255]), read["bytes"]
        assert bytes(read["unsigned"]["data"]) == b"\xff" * 8 and read["unsigned"]["shape"] == [], read["unsigned"]
        print("the package reads what Cairn writes")

        files = [damaged(numbers, random_file(numbers)) for _ in range(3000)]
        taken = stricter = 0
        for data, result in zip(files, copy(program, folder, files)):
            try:
                theirs = deserialize(data)
            except SafetensorError:
                theirs = None
            assert result is None or theirs is not None, f"Cairn takes what the package refuses: {data[:400]}"
            if result is not None:
                taken += 1
                key = lambda item: item[0]
                again = sorted(deserialize(result), key=key)
                assert again == sorted(theirs, key=key), f"another content: {data[:400]}"
            stricter += result is None and theirs is not None
        print(f"of {len(files)} damaged files Cairn takes {taken}, and the package {stricter} more")
        assert taken > 50


main(sys.argv[1])
