#!/usr/bin/env python3
"""check_peers.py [PROGRAMS]: the GPU's part of apps/attention_bench/peers.py.

Without PROGRAMS: what it makes of results, and its process for PyTorch with a module in PyTorch's place.
With PROGRAMS, a folder with an attention-bench that knows --device cuda: a whole run at tiny sizes. Speed is not
asserted.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "apps" / "attention_bench"
if str(FOLDER) not in sys.path:  # it is in the process for PyTorch, behind the folder of FAKE
    sys.path.insert(0, str(FOLDER))

FAKE = """
import os, time
def serve(connection, device):
    connection.send({"torch": "fake"})
    while True:
        request = connection.recv()
        if request["peer"] == "crashes":
            os._exit(1)
        if request["peer"] == "hangs":
            time.sleep(600)
        if request["peer"] == "no graph" and request["graph"]:
            connection.send({"no_graph": "refused"})
        connection.send({"seconds": 1.0, "graph": request["graph"]})
"""


def cell(length, precision="bf16", which="both", row=None, **seconds):
    times = {name.replace("_", "-"): {"seconds": s, "peak_bytes": 2_000_000} for name, s in seconds.items() if s}
    return {"what": "attention", "length": length, "batch": 4, "heads": 6, "head_size": 64, "precision": precision,
            "pass": which, "ours": ["full", "clustered-100"], "peers": ["flash", "materialized"], "times": times,
            "row": row}


def check_tables():
    import peers_tables as t

    line = {n: n**2 * 1e-9 for n in (512, 1024, 4096)}
    assert abs(t.crossover(line, {n: n * 2000e-9 for n in line}) - 2000) < 1e-6
    assert t.crossover(line, {n: n * 100e-9 for n in line}) == 512
    assert t.crossover(line, {n: n * 9999e-9 for n in line}) is None
    assert abs(t.crossover(line, {512: 1e-9, 1024: 1, 4096: 1e-9}) - 1024) > 1  # the last crossing counts
    assert t.crossover(line, {n: n * 1024e-9 for n in (1024, 4096)}) == 1024  # as fast at 1024
    assert t.crossover({}, line) is None and t.crossover_text({}, line) == "-"
    assert t.crossover_text(line, {n: n * 100e-9 for n in line}) == "512 or less"
    assert t.crossover_text(line, {n: n * 9999e-9 for n in line}) == "not up to 4,096"
    assert t.crossover_text(line, {n: n * 2000e-9 for n in line}) == "2,000"

    slow = cell(4096, full=2e-3, clustered_100=1e-3, flash=1e-3)
    slow["times"]["materialized"] = {"error": "out of memory", "message": "CUDA\nout of memory"}
    fast = cell(1024, full=1e-4, clustered_100=4e-4, flash=2e-4, materialized=8e-4)
    assert math.isclose(t.rate(slow, "full"), 3.5 * 4 * 24 * 4096**2 * 64 / 2e-3 * 1e-12)
    assert t.rate(slow, "clustered-100") is None and t.rate(slow, "materialized") is None
    assert t.ratios(slow, "flash") == "0.5 / 1" and t.ratios(slow, "materialized") == "- / -"
    text = t.cell_lines(slow)
    assert "out of memory CUDA out of memory" in text and "0.5 / 1" in text, text
    aim = {**cell(4096, row="an aim", full=2e-3, flash=1e-3), "must": 0.4, "aim": 0.7}
    text = t.tables([slow, aim, fast])
    for line in ("| full | 100 (225) | 2,000 (180) |", "| flash | 2 / 0.5 | 0.5 / 1 |",
                 "| clustered-100 | 2,580 | not up", "| materialized | 2 | out of memory |",
                 "2,000 | 1,000 | 0.5 | 0.4 | 0.7 | met |"):
        assert line in text, (line, text)
    assert t.verdict(0.3, 0.4) == "NOT MET" and t.verdict(0.3, None) == "-"
    assert "1,024 or less" in t.tables([slow, fast])  # than materialized, which has but one length
    assert t.tables([]) == ""


def check_worker():
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "peers_torch.py").write_text(FAKE)
        sys.path.insert(0, folder)
        import peers_cuda

        deadline = [time.monotonic() + 60]
        worker = peers_cuda.Worker("cuda", lambda: deadline[0] - time.monotonic())
        assert worker.machine == {"torch": "fake"}
        assert worker.measure({"peer": "works"}) == {"seconds": 1.0, "graph": True}
        assert worker.measure({"peer": "crashes"}) == {"error": "crashed"}
        assert worker.measure({"peer": "no graph"}) == {"seconds": 1.0, "graph": False}
        deadline[0] = time.monotonic() + 0.5
        assert worker.measure({"peer": "hangs"}) == {"error": "no time"}
        deadline[0] = time.monotonic() + 60
        assert worker.measure({"peer": "works"})["seconds"] == 1
        worker.stop()
    assert peers_cuda.summary([{"seconds": 1}, {"error": "x"}, {"seconds": 3}])["seconds"] == 2
    assert peers_cuda.summary([{"error": "x"}, {"error": "y"}]) == {"error": "x"}


def check_run(programs):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "peers.json")
        command = [sys.executable, str(FOLDER / "peers.py"), "--device", "cuda",
                   *("--program", programs, "--lengths", "32,64", "--head-sizes", "16", "--batch", "1", "--heads", "2"),
                   *("--layer-lengths", "32", "--tokens", "32", "--rounds", "1", "--json", file)]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
        result = json.loads(pathlib.Path(file).read_text())
        assert len(result["cells"]) == 9 and not result["left_out"], run.stdout
        for one in result["cells"]:
            for spec in one["ours"]:
                assert one["times"][spec]["seconds"] > 0 and one["times"][spec]["peak_bytes"] > 0, one
        assert "The length from which" in run.stdout
        if "error" in result["machine"]:  # no PyTorch here, or no GPU
            assert f"the peers are left out: {result['machine']['error']}\n" in run.stdout, run.stdout
        shown = subprocess.run([*command[:4], "--show", file], capture_output=True, text=True)
        assert shown.returncode == 0 and shown.stdout.strip() in run.stdout, shown

        spent = subprocess.run([*command, "--budget", "0"], capture_output=True, text=True)
        assert spent.returncode == 0 and spent.stdout.count("left out, the 0 seconds are over: ") == 9, spent
        missing = subprocess.run([*command[:4], "--program", folder], capture_output=True, text=True)
        assert missing.returncode == 1 and missing.stderr.startswith("peers.py: error: "), missing


if __name__ == "__main__":
    if len(sys.argv) > 1:
        check_run(sys.argv[1])
    else:
        check_tables()
        check_worker()
