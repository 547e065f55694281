"""The tables of peers.py on a GPU. PyTorch runs in a process of its own (peers_torch.py), ours in one for each cell."""
import importlib.util
import itertools
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import time

from peers_tables import OURS, PEERS, cell_lines, crossovers, tables, title

LAYER = {"heads": 6, "head_size": 64}
LAYER_AIMS = {8192: (1.5, 3.3), 32768: (4, 12)}  # of the layer's length: must, aim
HANGS = 90  # seconds after which a process is taken to hang


def serve(connection, device):
    import peers_torch

    peers_torch.serve(connection, device)


class Worker:
    """PyTorch in a process of its own: a crash, or a call that takes too long, costs one measurement."""

    def __init__(self, device, left):
        self.device, self.left, self.process, self.without_graph = device, left, None, set()
        self.machine = self.start()

    def start(self):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.device), daemon=True)
        self.process.start()
        theirs.close()
        return self.receive()

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.join()
        self.process = None

    def receive(self):
        try:
            if self.connection.poll(max(0, min(HANGS, self.left()))):
                return self.connection.recv()
            answer = {"error": "no time"}
        except (EOFError, OSError):
            answer = {"error": "crashed"}
        self.stop()
        return answer

    def measure(self, request):
        if not self.process:
            started = self.start()
            if "error" in started:
                return started
        try:
            self.connection.send({**request, "graph": request["peer"] not in self.without_graph})
        except OSError:
            self.stop()
            return {"error": "crashed"}
        answer = self.receive()
        if "no_graph" in answer:
            print(f"{request['peer']}: no CUDA graph: {answer['no_graph']}", file=sys.stderr)
            self.without_graph.add(request["peer"])
            self.stop()
            return self.measure(request)
        if answer.get("fatal"):
            self.stop()
        return answer


def run_ours(program, cell, specs, device, left):
    """Results by variant, of one process."""
    length, batch, features = cell["length"], cell["batch"], cell["heads"] * cell["head_size"]
    products = 14 * batch * features * length**2 if "full" in specs else 1
    same = {name: cell[name] for name in ("length", "batch", "heads", "what", "pass", "precision")}
    arguments = {"device": device, "attention": ",".join(specs), **same, "head-size": cell["head_size"],
                 "repeat": max(1, min(20, int(1e14 / products))), "seconds": 0.3}
    command = [os.path.join(program, "attention-bench"), "run", "--json", "--quiet", "--no-floor"]
    for name, value in arguments.items():
        command += [f"--{name}", str(value)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(0.1, min(HANGS, left())))
        if done.returncode == 0:
            found = json.loads(done.stdout.splitlines()[-1])
            return {spec: {"seconds": one["median_seconds"], "spread": one["spread"], "peak_bytes": one["peak_bytes"]}
                    for spec, one in zip(specs, found.get("results", [found]))}
        message = done.stderr.strip() or f"exit code {done.returncode}"
        failure = {"error": "out of memory" if "out of memory" in message else "failed", "message": message[-300:]}
    except subprocess.TimeoutExpired:
        return {spec: {"error": "no time"} for spec in specs}
    except Exception as error:
        failure = {"error": "failed", "message": f"{type(error).__name__}: {error}"[:300]}
    if len(specs) == 1:
        return {specs[0]: failure}
    return {spec: run_ours(program, cell, [spec], device, left)[spec] for spec in specs}


def summary(results):
    """One of several rounds: those that have a time, or else the first error."""
    good = [result for result in results if "seconds" in result]
    if not good:
        return results[0] if results else {"error": "no time"}
    times = [result["seconds"] for result in good]
    return {**good[-1], "seconds": statistics.median(times), "rounds": times}


def measure(cell, behind, program, worker, rounds, left, device):
    """Ours and the peers in turn, in several rounds while there is time for one in each of the `behind` next cells."""
    results = {name: [] for name in cell["ours"] + (cell["peers"] if worker else [])}
    for turn in range(rounds):
        start = time.monotonic()
        for spec, result in run_ours(program, cell, cell["ours"], device, left).items():
            results[spec].append(result)
        for peer in cell["peers"] if worker else []:
            if turn == 0 or "seconds" in results[peer][0]:
                request = {name: cell[name] for name in ("what", "length", "batch", "heads", "head_size", "precision")}
                results[peer].append(worker.measure({**request, "peer": peer, "both": cell["pass"] == "both"}))
        if left() < (time.monotonic() - start) * (behind + 1):
            break
    return {name: summary(found) for name, found in results.items()}


def cells_of(arguments, machine):
    """What is measured, the most telling first."""

    def cell(what, length, batch, precision="bf16", which="both", ours=("full",), peers=("cuDNN", "flash"), **more):
        return {"what": what, "length": length, "batch": batch, "precision": precision, "pass": which,
                "ours": list(ours), "peers": list(peers), **LAYER, **more}

    def batch(length):
        return max(1, arguments.tokens // length)

    def row(name, must, aim, *rest, **more):
        return cell(*rest, row=name, must=must, aim=aim, **more)

    # Groups by how many of their settings are not the first ones.
    lists = arguments.precisions, arguments.head_sizes, arguments.passes
    order = sorted(itertools.product(*lists), key=lambda one: sum(map(list.index, lists, one)))
    table = [cell("attention", length, arguments.batch, precision, which, OURS, PEERS, heads=arguments.heads,
                  head_size=size)
             for precision, size, which in order for length in arguments.lengths]
    rows = []
    if 4096 in arguments.lengths and 64 in arguments.head_sizes:
        rows.append(row("full attention, cuDNN's", 0.4, 0.7, "attention", 4096, batch(4096)))
    for length in filter(None, arguments.layer_lengths):
        must, aim = LAYER_AIMS.get(length, (None, None))
        rows.append(row("i-clustered-100 layer, cuDNN's layer", must, aim, "layer", length, batch(length),
                        ours=["i-clustered-100"]))
    if machine.get("authors") == "":
        for kind, aim in (("i-clustered", 10), ("clustered", 8)):
            rows.append(row(f"{kind}-100 attention, the authors'", 3, aim, "attention", 4096, batch(4096),
                            precision="float32", ours=[f"{kind}-100"], peers=[f"authors' {kind}"]))
    if machine.get("flash_kmeans") == "":
        rows.append(row("Hamming k-means, flash-kmeans", 1, 10, "cluster", 16384, batch(16384),
                        ours=["clustered-100"], peers=["flash-kmeans"]))
    return table[:1] + rows + table[1:]


def keep(file, result):
    """Whole, or not at all. A disk that is full does not end the run."""
    if not file:
        return
    try:
        with open(file + ".new", "w") as out:
            json.dump(result, out, indent=1)
        os.replace(file + ".new", file)
    except OSError as error:
        print(f"peers.py: {error}", file=sys.stderr)


def main(arguments, device="cuda"):
    if arguments.show:
        with open(arguments.show) as file:
            return print(tables(json.load(file)["cells"]))
    if not os.access(os.path.join(arguments.program, "attention-bench"), os.X_OK):
        sys.exit(f"peers.py: error: {arguments.program}/attention-bench: no such program; give its folder by --program")
    deadline = time.monotonic() + arguments.budget

    def left():
        return deadline - time.monotonic()

    worker = Worker(device, left) if importlib.util.find_spec("torch") else None
    machine = worker.machine if worker else {"error": "PyTorch is not installed"}
    if "error" in machine:
        print(f"the peers are left out: {machine['error']}", flush=True)
        if worker:
            worker.stop()
        worker = None
    else:
        others = {"authors": "the authors' code", "flash_kmeans": "flash-kmeans"}
        print(", ".join(f"{name} {value}" for name, value in machine.items() if name not in others))
        for name, code in others.items():
            if machine[name]:
                print(f"{code} is left out: {machine[name]}")
        print("peers: CUDA events around replays of a CUDA graph (graph), or around calls (calls), which take 20 ms or "
              "more or cannot be captured", flush=True)
    result = {"machine": machine, "arguments": vars(arguments), "cells": [], "crossovers": [], "left_out": []}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # tables, also when a time limit ends the run
    cells = cells_of(arguments, machine)
    try:
        for behind, cell in zip(reversed(range(len(cells))), cells):
            if left() <= 0:
                result["left_out"].append(title(cell))
                continue
            start = time.monotonic()
            cell["times"] = measure(cell, behind, arguments.program, worker, arguments.rounds, left, device)
            cell["took_seconds"] = time.monotonic() - start
            print(f"{cell_lines(cell)}\n  ({cell['took_seconds']:.1f} s, {max(0, left()):.0f} s left)", flush=True)
            result["cells"].append(cell)
            result["crossovers"] = crossovers(result["cells"])
            keep(arguments.json, result)
    finally:
        if worker:
            worker.stop()
        for name in result["left_out"]:
            print(f"left out, the {arguments.budget:.0f} seconds are over: {name}")
        keep(arguments.json, result)
        print("\n" + tables(result["cells"]), flush=True)
    if any(cell["times"][spec].get("error") == "failed" for cell in result["cells"] for spec in cell["ours"]):
        sys.exit(1)
