#!/usr/bin/env python3
"""Trains the quick copy task with every attention variant, and compares with what variants.tsv beside it expects.

    apps/copy_task/check_variants.py --program build/cpu/bin/copy-task

Two to three minutes a variant on one core, --jobs of them at a time. Prints what each reached, and exits with 1 if one is
not where it is expected.
"""
import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys


def expected():
    """(specification, least, most, why) of each line."""
    lines = (pathlib.Path(__file__).parent / "variants.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [(spec, float(least), float(most), why) for spec, least, most, found, why in rows]


def train(program, spec):
    command = [program, "train", "--quick", "--attention", spec, "--seed", "1", "--threads", "1", "--device", "cpu", "--json", "--quiet"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"check_variants.py: error: {' '.join(command)}: exit code {result.returncode}: {result.stderr.strip()}")
    return json.loads(result.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="copy-task")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time")
    arguments = parser.parse_args()
    rows = expected()
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = pool.map(lambda row: train(arguments.program, row[0]), rows)
        for (spec, least, most, why), result in zip(rows, results):
            found = result["masked_accuracy"]
            good = least <= found <= most
            failures += not good
            print(f"{spec:28} masked accuracy {found:.4f} after {result['iterations']:4} steps, expected {least} to {most}"
                  f"{'' if good else '   <-- NOT AS EXPECTED'}   ({why})", flush=True)
    if failures:
        sys.exit(f"check_variants.py: {failures} of {len(rows)} are not as expected")


main()
