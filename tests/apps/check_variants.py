#!/usr/bin/env python3
"""Trains the quick copy task with every attention variant, and compares with the ranges in apps/copy_task/variants.tsv.

    tests/apps/check_variants.py build/cpu/bin/copy-task

Takes one to two minutes per variant on two cores. Prints each result, and exits with 1 if one is outside its range.
"""
import json
import pathlib
import subprocess
import sys
import tempfile


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = (pathlib.Path(__file__).parents[2] / "apps/copy_task/variants.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.argv[1], "figure", "--quick", "--iterations", "4000", "--lengths", "31", "--device", "cpu", "--json",
                   "--variants", ",".join(row[0] for row in rows), "--out", folder]
        ended = subprocess.run(command, stdout=subprocess.PIPE)
    if ended.returncode:
        sys.exit(ended.returncode)
    failures = 0
    for (spec, least, most, _, why), cell in zip(rows, json.loads(ended.stdout)["cells"]):
        found = cell["masked_accuracy"]
        good = float(least) <= found <= float(most)
        failures += not good
        print(f"{spec:16} masked accuracy {found:.4f} after {cell['iterations']:4} steps, expected {least} to {most}"
              f"{'' if good else '   <-- NOT AS EXPECTED'}   ({why})")
    if failures:
        sys.exit(f"check_variants.py: {failures} of {len(rows)} are not as expected")


main()
