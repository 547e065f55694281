#!/usr/bin/env python3
"""check_peers.py PROGRAMS: tests apps/attention_bench/peers.py without PyTorch and without a GPU.

PROGRAMS is the folder of our programs. Speed is not asserted.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "apps" / "attention_bench" / "peers.py"
sys.path.insert(0, str(PEERS.parent))
import peers  # noqa: E402


def settings(device="cpu"):
    return argparse.Namespace(device=device, threads=1, repeat=3, program=pathlib.Path(sys.argv[1]),
                              model=ROOT / "tests" / "golden" / "bert")


def check_measure():
    calls = []
    ours, theirs = iter([2.0, 1.0, 3.0]), iter([4.0, 6.0, 9.0])
    with mock.patch.object(peers, "seconds_of", lambda *_: calls.append("peer") or next(theirs)):
        result = peers.measure(lambda: calls.append("ours") or next(ours), lambda: lambda: None, settings())
    assert calls == ["ours", "peer"] * 3, calls
    assert result == {"ours_seconds": 2.0, "peer_seconds": 6.0, "ratio": 3.0, "ratios": [2.0, 3.0, 6.0]}, result


def check_rows():
    for device, count in (("cpu", 26), ("cuda", 6)):
        rows = peers.rows(settings(device))
        assert len({name for name, *_ in rows}) == len(rows) == count, rows
        assert all(must < aim for *_, must, aim in rows), rows
    # Our programs accept these options and print a time.
    with mock.patch.dict(peers.TOKENS, cpu=512):
        ours = {name: ours for name, ours, *_ in peers.rows(settings())}
    for name in ("full-layer-512", "kmeans-16384", "copy-task-quick", "embed-128", "product-forward-384-1536"):
        assert ours[name]() > 0, name
    if (settings().program / "speech").exists():  # it needs libraries that may be missing
        assert peers.speech(settings(), 2, 30, 3, 4)() > 0


def check_without_torch():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "torch.py").write_text("raise ImportError('PyTorch is hidden')\n")
        command = [sys.executable, "-B", str(PEERS), "--program", sys.argv[1], "--rows"]
        environment = {**os.environ, "PYTHONPATH": folder}
        run = subprocess.run([*command, "kmeans-16384,copy-task"], capture_output=True, text=True, env=environment)
        assert run.returncode == 0, run
        results = [json.loads(line) for line in run.stdout.splitlines()]
        assert [each["row"] for each in results] == ["kmeans-16384", "copy-task"], run.stdout
        assert all("PyTorch is hidden" in each["left_out"] for each in results), run.stdout
        wrong = subprocess.run([*command, "kmeans"], capture_output=True, text=True, env=environment)
        assert wrong.returncode == 2 and "no row 'kmeans'" in wrong.stderr and "kmeans-16384" in wrong.stderr, wrong


if __name__ == "__main__":
    check_measure()
    check_rows()
    check_without_torch()
