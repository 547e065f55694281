#!/usr/bin/env python3
"""Tries to break copy-task the way users, disks and schedulers do. See README.md."""

import argparse
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bad_inputs
import faults
import targets
from harness import Bench, Failure, remove


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, type=Path, help="copy-task")
    parser.add_argument("--faults", type=Path, help="the library that injects faults; without it, those are left out")
    parser.add_argument("--only", default="", metavar="PATTERN",
                        help="cases whose name matches this regular expression")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of all bytes, calls and requests every Nth")
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="how many times a training is killed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="processes at once")
    parser.add_argument("--keep", action="store_true", help="keep the folders of cases that failed")
    parser.add_argument("--verbose", action="store_true", help="print each case")
    return parser.parse_args()


def main():
    options = arguments()
    bench = Bench(options.program.resolve(), options.faults and options.faults.resolve())
    started = time.monotonic()
    try:
        code = run(options, bench)
    finally:
        if not options.keep:
            remove(bench.scratch)
    print(f"{bench.processes:,} processes in {time.monotonic() - started:.0f} s", file=sys.stderr)
    return code


def run(options, bench):
    bench.make_reference()
    left_out = faults.look(bench)
    wanted = lambda case: re.search(options.only, case.name)
    work = []  # (kind, case, function of a folder)
    for case in filter(wanted, bad_inputs.cases(bench)):
        work.append(("fault" if case.fault else "input", case, lambda folder, c=case: bench.run_case(c, folder)))
    for sweep in filter(wanted, bad_inputs.sweeps(bench, options.every)):
        for i in range(0, len(sweep.variants), 100):
            part = sweep.variants[i : i + 100]
            work.append(("input", sweep, lambda folder, s=sweep, p=part: bench.run_sweep(s, p, folder)))
    skipped = {}
    for steps in filter(wanted, [*faults.cases(bench, options), *targets.cases(bench, options)]):
        if steps.needs in left_out:
            skipped.setdefault(left_out[steps.needs], []).append(steps)
        else:
            work.append(("kill" if steps.kill else "fault", steps, lambda folder, s=steps: s.check(bench, folder)))

    failed = {}  # name -> problems

    def attempt(number, kind, case, function):
        folder = bench.scratch / f"case-{number}"
        folder.mkdir()
        try:
            problems = function(folder)
        except Failure as failure:
            problems = [str(failure)]
        except Exception as error:  # a test that breaks is a failed one
            problems = [f"the test itself: {type(error).__name__}: {error}"]
        if problems:
            failed.setdefault(case.name, []).extend(problems)
        if options.verbose:
            print("FAILED" if problems else "ok", case.name, flush=True)
        if not (problems and options.keep):
            remove(folder)

    with ThreadPoolExecutor(options.jobs) as pool:
        for job in [pool.submit(attempt, i, *each) for i, each in enumerate(work)]:
            job.result()

    for name, problems in failed.items():
        print(f"FAILED: {name}")
        for problem in problems[:3]:
            print(f"    {problem}")
        if len(problems) > 3:
            print(f"    and {len(problems) - 3} more")
    for reason, cases in skipped.items():
        print(f"left out, {reason}: {', '.join(case.name for case in cases)}")
    names = lambda kind: {case.name for k, case, _ in work if k == kind}
    variants = sum(len(s.variants) for s in {id(c): c for _, c, _ in work if hasattr(c, "variants")}.values())
    counts = f"{len(names('input'))} bad inputs"
    if variants:
        counts += f" ({variants:,} mutated files among them)"
    counts += f", {len(names('fault'))} faults, {len(bench.kills)} kills"
    counts += f", {len(bench.tried)} pairs of a call and what goes wrong there"
    print(f"fault: {counts}: " + (f"{len(failed)} did not end as documented" if failed else "all ended as documented"))
    if not work:
        print("no case has such a name")
    return 1 if failed or not work else 0


if __name__ == "__main__":
    sys.exit(main())
