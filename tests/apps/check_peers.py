#!/usr/bin/env python3
"""check_peers.py PROGRAMS: apps/attention_bench/peers.py, as far as it needs neither PyTorch nor a GPU.

PROGRAMS is the folder of our programs. Speed is not asserted.
"""
import argparse
import contextlib
import io
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


def missing():
    raise ImportError("no such package")


def failing():
    raise peers.OursFailed("attention-bench: error: no")


def check_measure():
    calls = []
    ours, theirs = iter([2.0, 1.0, 3.0]), iter([4.0, 6.0, 9.0])
    row = peers.Row("a row", lambda: calls.append("ours") or next(ours), lambda: lambda: None, must=3, aim=5)
    with mock.patch.object(peers, "seconds_of", lambda *_: calls.append("peer") or next(theirs)):
        result = peers.measure(row, settings())
    assert calls == ["ours", "peer"] * 3, calls
    expected = {"row": "a row", "device": "cpu", "threads": 1, "ours_seconds": 2.0, "peer_seconds": 6.0, "ratio": 3.0,
                "spread": 2.0, "must": 3, "aim": 5}  # of the ratios 2, 3 and 6
    assert result == expected, result
    assert peers.line(result).split() == ["a", "row", "2000.00", "6000.00", "3.00", "2.00", "3", "5", "met"]
    assert peers.line({**result, "must": 3.1}).endswith("NOT MET")
    assert peers.line({**result, "must": None, "aim": None}).split()[-2:] == ["-", "-"]


def run_main(*rows):
    """What main() prints with these rows, and its exit code."""
    out, err = io.StringIO(), io.StringIO()
    with mock.patch.object(peers, "rows", lambda _: list(rows)), \
            mock.patch.object(sys, "argv", ["peers.py", "--program", sys.argv[1], "--repeat", "1"]), \
            contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            peers.main()
        except SystemExit as end:
            return [json.loads(line) for line in out.getvalue().splitlines()], err.getvalue(), end.code
    raise AssertionError("main() did not end with an exit code")


def check_rows_go_on():
    good = peers.Row("good", lambda: 1.0, lambda: lambda: None)
    results, table, code = run_main(peers.Row("absent", lambda: 1.0, missing), good)
    assert code == 0 and [each["row"] for each in results] == ["absent", "good"], results
    assert "no such package" in results[0]["left_out"] and results[1]["ratio"] > 0, results
    assert table.count("left out: ") == 1 and results[0]["processor"] and results[0]["versions"]["ours"], table
    results, table, code = run_main(peers.Row("broken", failing, lambda: lambda: None), good)
    assert code == 1 and results[0]["problem"] == "attention-bench: error: no" and results[1]["ratio"] > 0, results
    assert "FAILED: attention-bench: error: no" in table, table


def check_list_of_rows():
    for device, count in (("cpu", 12), ("cuda", 6)):
        rows = peers.rows(settings(device))
        assert len({row.name for row in rows}) == len(rows) == count, rows
        assert all(row.must is None or row.must < row.aim for row in rows), rows


def check_ours():
    """Our programs take these options, and tell what is asked of them."""
    with mock.patch.dict(peers.TOKENS, cpu=512):
        rows = {row.name: row for row in peers.rows(settings())}
    for name in ("full-layer-512", "kmeans-16384", "copy-task-quick", "embed-128"):
        assert rows[name].ours() > 0, name


def check_without_torch():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "torch.py").write_text("raise ImportError('PyTorch is hidden')\n")
        command = [sys.executable, "-B", str(PEERS), "--program", sys.argv[1], "--rows"]
        environment = {**os.environ, "PYTHONPATH": folder}
        run = subprocess.run([*command, "kmeans-16384,embed-512"], capture_output=True, text=True, env=environment)
        assert run.returncode == 0, run
        results = [json.loads(line) for line in run.stdout.splitlines()]
        assert [each["row"] for each in results] == ["kmeans-16384", "embed-512"], run.stdout
        assert all("PyTorch is hidden" in each["left_out"] for each in results), run.stdout
        wrong = subprocess.run([*command, "kmeans"], capture_output=True, text=True, env=environment)
        assert wrong.returncode == 2 and "no row 'kmeans'" in wrong.stderr and "kmeans-16384" in wrong.stderr, wrong
        nowhere = subprocess.run([*command[:3], "--program", folder], capture_output=True, text=True, env=environment)
        assert nowhere.returncode == 2 and "no such program" in nowhere.stderr, nowhere


if __name__ == "__main__":
    check_measure()
    check_rows_go_on()
    check_list_of_rows()
    check_ours()
    check_without_torch()
