#!/usr/bin/env python3
"""scaling.py: how data-parallel training should scale, from numbers that are stated here or given as options.

A step on one rank with b sequences takes  fixed + (launch + b * sequence) of forward + the same of backward.  Gradients are
summed in buckets. A bucket's sum starts when backward has reached its last gradient and the sum before is over. What of the
sums ends after backward is waited for. It prints the rows of the tables in nn/parallel/SCALING.md.

Example, for 8 ranks a machine (1 us and 10 GB/s within it), 5 us and 100 Gbit/s between machines, and a step of 1 ms + 32 * (0.2 ms + 0.4 ms):
  nn/parallel/scaling.py --step 1 0.2 0.4 --link 8 5 100
"""
import argparse
from dataclasses import dataclass
from math import ceil, log2

# The copy task's model of 4 layers: elements of each bucket (data_parallel.cpp: at least 1 MiB of float32), and how much of
# backward has run when its last gradient is there (measured by `copy-task train --trace`).
BUCKETS = [(298_763, 0.16), (296_640, 0.40), (296_448, 0.50), (296_640, 0.66), (296_640, 0.90), (298_752, 1.0)]


@dataclass
class Step:  # milliseconds
    fixed: float
    forward: tuple  # of the launches, of a sequence
    backward: tuple

    def compute(self, b):
        return self.fixed + sum(part[0] + b * part[1] for part in (self.forward, self.backward))

    def time(self, b, sum_time):
        """With the sums; and the part of their time that backward hides."""
        backward = self.backward[0] + b * self.backward[1]
        end = total = 0
        for elements, reached in BUCKETS:
            one = sum_time(4 * elements)
            end, total = max(end, reached * backward) + one, total + one
        waited = end - backward
        return self.compute(b) + waited, (1 - waited / total if total else 1)


@dataclass
class Link:
    name: str
    machine: int      # ranks on a machine
    inside: tuple     # microseconds a message, GB/s in one direction: within a machine
    between: tuple    # and between machines
    start: float = 0  # microseconds a sum, once

    def sum_time(self, algorithm, ranks, size):
        """Milliseconds to add up `size` bytes. log2 rounds up."""
        if ranks == 1:
            return 0
        machines = ceil(ranks / self.machine)
        here = min(ranks, self.machine)
        bandwidth = self.inside[1] if machines == 1 else min(self.inside[1], self.between[1])
        rounds = ceil(log2(here)) * self.inside[0] + ceil(log2(machines)) * self.between[0]  # one way
        transfer = size / bandwidth / 1e3  # microseconds
        if algorithm == "ring":  # each rank passes 2 (P - 1) pieces of 1/P on
            latency = 2 * (ranks - machines) * self.inside[0] + 2 * (machines - 1) * self.between[0]
            total = latency + 2 * (ranks - 1) / ranks * transfer
        elif algorithm == "halving":  # pieces of 1/2, 1/4, ... and back (Rabenseifner)
            total = 2 * rounds + 2 * (ranks - 1) / ranks * transfer
        elif algorithm == "binomial":  # all of it, up a tree and down again
            total = 2 * rounds + 2 * ceil(log2(ranks)) * transfer
        else:  # "tree": in small pieces, up and down two trees at once (NCCL), a chain within a machine
            total = 2 * ((here - 1) * self.inside[0] + ceil(log2(machines)) * self.between[0]) + 2 * transfer
        return (self.start + total) / 1e3


# Measured: one process, one thread, full attention, float32 (SCALING.md).
CPU = Step(4.1, (0, 1.25), (0, 2.49))
# Assumed, not measured: 2 us a launch and 33 TFLOP/s of float32 on an H100 (cuda/yardstick.py); 73 launches forward, 109
# backward and 2 of the optimizer; 2 FLOPs forward and 4 backward for each of the 64 tokens and 1,783,883 parameters.
GPU = Step(0.004, (0.146, 0.0069), (0.218, 0.0138))

ETHERNET = Link("10 Gbit/s Ethernet, a rank a machine", 1, (0, 1e9), (25, 1.25))
NVLINK = Link("NVLink, and 400 Gbit/s InfiniBand a GPU", 8, (1.2, 450), (8.5, 50), 4.4)


def table(step, link, algorithms, ranks, batch):
    print(f"\n{link.name}; {'weak: ' + str(batch) + ' sequences a rank' if batch > 0 else f'strong: {-batch} sequences in all'}\n")
    print("| algorithm | ranks | sequences a rank | sums | hidden | step | efficiency |\n|---|---|---|---|---|---|---|")
    for algorithm in algorithms:
        for p in ranks:
            b = batch if batch > 0 else -batch / p
            if b < 1:
                continue
            time, hidden = step.time(b, lambda size: link.sum_time(algorithm, p, size))
            sums = sum(link.sum_time(algorithm, p, 4 * n) for n, _ in BUCKETS)
            alone = step.compute(b) if batch > 0 else step.compute(-batch) / p
            print(f"| {algorithm} | {p} | {b:g} | {sums:.3g} ms | {100 * hidden:.0f}% | {time:.3g} ms | {100 * alone / time:.0f}% |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", nargs=3, type=float, metavar=("FIXED", "FORWARD", "BACKWARD"),
                        help="milliseconds of a step, and of each sequence")
    parser.add_argument("--link", nargs=3, type=float, metavar=("RANKS", "LATENCY", "GBITS"),
                        help="ranks a machine, microseconds a message and Gbit/s between machines")
    parser.add_argument("--ranks", nargs="+", type=int, default=[8, 64, 512])
    parser.add_argument("--batch", type=int, default=32, help="sequences a rank (weak scaling)")
    parser.add_argument("--total", type=int, default=512, help="sequences in all (strong scaling)")
    options = parser.parse_args()
    cases = [(CPU, ETHERNET, ["binomial", "halving", "ring"]), (GPU, NVLINK, ["tree"])]
    if options.step or options.link:
        step = Step(options.step[0], (0, options.step[1]), (0, options.step[2])) if options.step else CPU
        link = ETHERNET
        if options.link:
            machine, latency, bandwidth = options.link
            link = Link("your network", int(machine), (1, 10), (latency, bandwidth / 8))
        cases = [(step, link, ["binomial", "halving", "ring"])]
    for step, link, algorithms in cases:
        for batch in (options.batch, -options.total):
            table(step, link, algorithms, options.ranks, batch)


if __name__ == "__main__":
    main()
