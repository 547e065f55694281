#!/usr/bin/env python3
"""Writes the labeled texts of `text-search compare --labeled`: Debian packages' long descriptions, labeled with their
sections, in groups of one source package.

    python3 apps/text_search/debian_sections.py sections.jsonl

Lists of packages are fetched with apt into a folder of their own (English descriptions in full, which an image's own lists
may lack), from the sources that this system names. Nothing of the system changes, and root is not needed.
"""
import json
import pathlib
import subprocess
import sys
import tempfile


def paragraphs(text):
    """The fields of each paragraph of a Debian control file; lines that begin with a space go on with the field above."""
    fields, name = {}, None
    for line in [*text.splitlines(), ""]:
        if not line:
            if fields:
                yield fields
            fields, name = {}, None
        elif line[0] == " " and name:
            fields[name] += "\n" + line[1:]
        else:
            name, _, value = line.partition(":")
            fields[name] = value.strip()


def fetch(folder):
    """The system's lists of packages, with English descriptions in full."""
    (folder / "lists/partial").mkdir(parents=True)
    settings = {"Dir::State": folder, "Dir::State::lists": folder / "lists", "Dir::Cache": folder, "Acquire::Languages": "en",
                "Acquire::GzipIndexes": "false", "APT::Sandbox::User": "root"}
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    subprocess.run(["apt-get", "-qq", *options, "update"], check=True)
    read = lambda pattern: [fields for path in sorted((folder / "lists").glob(pattern))
                            for fields in paragraphs(path.read_text(errors="replace"))]
    return read("*_main_i18n_Translation-en"), read("*_main_binary-*_Packages")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        translations, packages = fetch(pathlib.Path(folder))
    descriptions = {(each["Package"], each["Description-md5"]): each.get("Description-en", "") for each in translations}
    examples = {}
    for package in packages:
        name = package["Package"]
        lines = descriptions.get((name, package.get("Description-md5")), "").split("\n")[1:]  # without the summary
        text = "\n".join("" if line == "." else line for line in lines).strip()
        if text and package.get("Section"):
            group = package.get("Source", name).split(" ")[0]
            examples[name] = {"text": text, "label": package["Section"], "group": group}
    if not examples:
        sys.exit("debian_sections.py: error: apt found no packages with long descriptions; see /etc/apt/sources.list*")
    pathlib.Path(sys.argv[1]).write_text("".join(json.dumps(examples[name]) + "\n" for name in sorted(examples)))
    print(f"{sys.argv[1]}: {len(examples)} packages of {len({each['label'] for each in examples.values()})} sections")


if __name__ == "__main__":
    main()
