#!/usr/bin/env python3
"""Trains with two builds of copy-task and compares every bit: losses, evaluations, weights and moments. A run that was
stopped and resumed, and a run on several threads, must also equal the uninterrupted run.

    tests/apps/same_bits.py OLD/bin/copy-task NEW/bin/copy-task      the same program twice checks its own resuming
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = "--length 5 --layers 2 --heads 2 --head-size 8 --feed-forward 32 --evaluate-every 5 --checkpoint-every 5 --quiet"
RUNS = {
    "full": "--attention full --iterations 20",
    "i-clustered with dropout": "--attention i-clustered-4:topk=3 --dropout 0.1 --attention-dropout 0.1 --iterations 20",
    # The rate falls before the run is stopped, and after.
    "plateau, clipping, decay": "--attention clustered-3 --schedule plateau --plateau-patience 0 --plateau-factor 0.9"
                                " --evaluate-every 1 --clip 0.5 --lr 1e-2 --weight-decay 0.1 --iterations 30",
    "pre-norm, relu": "--attention full --norm pre --activation relu --iterations 20",
}
PROCESSES = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]


def execute(words):
    ended = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"{' '.join(map(str, words))}: exit code {ended.returncode}\n{ended.stderr}")


def train(program, folder, options, before=()):
    execute([*before, program, "train", "--out", folder, *options.split()])
    return digest(folder)


def digest(run):
    """The results of a run by name, without times and file formats."""
    found = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if "step" in record:
            del record["seconds"]
            found[f"step {record['step']}"] = json.dumps(record, sort_keys=True)
    for name in ("weights", "optimizer"):
        for key, numbers in tensors(run / "checkpoint" / f"{name}.safetensors"):
            if not key.startswith("state."):  # the optimizer's counts show in its moments, and their form may change
                found[key] = hashlib.sha256(numbers).hexdigest()
    return found


def tensors(path):
    """Names and bytes of the tensors of a safetensors file."""
    file = path.read_bytes()
    data = 8 + int.from_bytes(file[:8], "little")
    for key, tensor in json.loads(file[8:data]).items():
        if key != "__metadata__":
            begin, end = tensor["data_offsets"]
            yield key, file[data + begin : data + end]


def difference(one, other):
    return next((key for key in [*one, *other] if one.get(key) != other.get(key)), None)


def has_mpi(program):
    words = [*PROCESSES, program, "train", *MODEL.split(), "--iterations", "0"]
    try:
        return subprocess.run(words, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def cases(old, new, folder):
    """Pairs of digests that must be equal, with a name."""
    for name, options in RUNS.items():
        whole = train(old, folder / f"{name}, old", f"{MODEL} {options}")
        yield name, whole, train(new, folder / f"{name}, new", f"{MODEL} {options}")
        for threads in (1, 2, 3):
            stopped = folder / f"{name}, {threads} threads"
            train(new, stopped, f"{MODEL} {options} --threads {threads} --iterations 10")
            rest = f"{options[options.index('--iterations'):]} --resume --quiet"
            yield f"{name}, resumed on {threads} threads", whole, train(new, stopped, rest)
    if has_mpi(old) and has_mpi(new):
        for more in ("", " --average-every 5"):
            options = f"{MODEL} {RUNS['full']}{more}"
            yield f"two processes{more}", train(old, folder / f"two, old{more}", options, PROCESSES), train(
                new, folder / f"two, new{more}", options, PROCESSES)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, expected, found in cases(*(Path(each).resolve() for each in sys.argv[1:]), Path(folder)):
            differs = difference(expected, found)
            failed += differs is not None
            print(f"{name}: " + (f"differs from {differs} on" if differs else "the same bits"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
