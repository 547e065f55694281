#!/usr/bin/env python3
"""Writes the labeled texts of `text-search compare --labeled`: Debian packages' long descriptions, labeled with their sections, in
groups of one source package.

    python3 apps/text_search/debian_sections.py sections.jsonl

Lists of packages are fetched with apt into a folder of their own (English descriptions in full, which an image's own lists
may lack), from the sources that this system names. Nothing of the system changes, and root is not needed.
"""
import hashlib
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
    (folder / "lists/partial").mkdir(parents=True)
    (folder / "cache").mkdir()
    settings = {"Dir::State::lists": folder / "lists", "Dir::Cache": folder / "cache", "Acquire::Languages": "en",
                "Acquire::GzipIndexes": "false", "APT::Sandbox::User": "root", "Dir::State": folder}
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    subprocess.run(["apt-get", "-qq", *options, "update"], check=True)
    return folder / "lists"


def long_description(text):
    """Behind the first line, which is the summary; a line of a dot is an empty one."""
    return "\n".join("" if line == "." else line for line in text.split("\n")[1:]).strip()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        lists = fetch(pathlib.Path(folder))
        descriptions = {}
        for path in sorted(lists.glob("*_main_i18n_Translation-en")):
            for fields in paragraphs(path.read_text(errors="replace")):
                descriptions[fields["Package"], fields["Description-md5"]] = fields.get("Description-en", "")
        packages = {}
        for path in sorted(lists.glob("*_main_binary-*_Packages")):
            for fields in paragraphs(path.read_text(errors="replace")):
                name = fields["Package"]
                text = long_description(descriptions.get((name, fields.get("Description-md5")), ""))
                if text and fields.get("Section"):
                    source = fields.get("Source", name).split(" ")[0]
                    packages[name] = {"text": text, "label": fields["Section"], "group": source}
    if not packages:
        sys.exit("debian_sections.py: error: apt found no packages with long descriptions; see /etc/apt/sources.list*")
    lines = "".join(json.dumps(packages[name]) + "\n" for name in sorted(packages))
    pathlib.Path(sys.argv[1]).write_text(lines)
    labels = {each["label"] for each in packages.values()}
    print(f"{sys.argv[1]}: {len(packages)} packages of {len(labels)} sections, sha256 {hashlib.sha256(lines.encode()).hexdigest()}")


if __name__ == "__main__":
    main()
