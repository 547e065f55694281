#!/usr/bin/env python3
"""Writes labeled texts for `text-search compare --labeled`: the long descriptions of Debian packages. The label is the
section, and the group is the source package.

    apps/text_search/debian_sections.py sections.jsonl

apt downloads its lists of packages, with full English descriptions, from the sources of this system into a temporary folder.
It does not change the system and does not need root.
"""
import email
import json
import pathlib
import subprocess
import sys
import tempfile


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "lists/partial").mkdir(parents=True)
        settings = {"Dir::State": folder, "Dir::State::lists": f"{folder}/lists", "Dir::Cache": folder,
                    "Acquire::Languages": "en", "Acquire::GzipIndexes": "false", "APT::Sandbox::User": "root"}
        options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        subprocess.run(["apt-get", "-qq", *options, "update"], check=True)
        shown = subprocess.run(["apt-cache", *options, "show", "--no-all-versions", "?true"], check=True, capture_output=True,
                               text=True, errors="replace").stdout
    examples = {}
    for paragraph in shown.split("\n\n"):
        package = email.message_from_string(paragraph)
        lines = package.get("Description-en", "").split("\n")[1:]  # without the summary
        text = "\n".join("" if line == " ." else line[1:] for line in lines).strip()
        if text and "/" not in package.get("Section", "/"):  # the sections of other components contain a slash
            group = package.get("Source", package["Package"]).split(" ")[0]
            examples[package["Package"]] = {"text": text, "label": package["Section"], "group": group}
    pathlib.Path(sys.argv[1]).write_text("".join(json.dumps(examples[name]) + "\n" for name in sorted(examples)))
    print(f"{sys.argv[1]}: {len(examples)} packages of {len({each['label'] for each in examples.values()})} sections")


if __name__ == "__main__":
    main()
