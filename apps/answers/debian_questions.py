#!/usr/bin/env python3
"""Writes questions about Debian packages for the program `answers`, as JSON lines.

    apps/answers/debian_questions.py --model MODEL questions.jsonl

A passage lists five packages, `name : description`, in random order. The question is the summary of one of them; the answer is
its name. Up to two of the others come from the same source package, the rest from the same section. No two packages have the
same description, and train, dev and test share no source package.

A line has the question, the entries (name and description), and which of them is the answer. `overlap` and `idf_overlap` say
whether the right entry shares most words with the question, counted, or weighted by their rarity in train; where k entries
share most, 1 / k.

text-search, which counts the tokens, must be on the PATH. apt downloads its lists of packages, with full English descriptions,
from the sources of this system into a temporary folder. It does not change the system and does not need root.
"""
import argparse
import collections
import email
import hashlib
import json
import math
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

ENTRIES, SIBLINGS, QUESTIONS_OF_SOURCE = 5, 2, 8
TOKENS, DESCRIPTION_TOKENS = range(300, 385), range(16, 121)  # of question, passage and special tokens; of a description
Package = collections.namedtuple("Package", "name source section summary description")


def replace(path, text):
    """Readers see the old file or the new one, also if two processes write it. A pipe or a device is written as it is."""
    beside = path.with_name(f"{path.name}.{random.SystemRandom().getrandbits(32)}.new")
    in_place = path.exists() and not path.is_file()
    (path if in_place else beside).write_text(text)
    if not in_place:
        beside.replace(path)


def apt_cache():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "lists/partial").mkdir(parents=True)
        settings = {"Dir::State": folder, "Dir::State::lists": f"{folder}/lists", "Dir::Cache": folder,
                    "Acquire::Languages": "en", "Acquire::GzipIndexes": "false", "APT::Sandbox::User": "root"}
        options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        subprocess.run(["apt-get", "-qq", *options, "update"], check=True)
        return subprocess.run(["apt-cache", *options, "show", "--no-all-versions", "?true"], check=True, capture_output=True,
                              text=True, errors="replace").stdout


def read_packages(shown):
    by_description = {}
    for paragraph in shown.split("\n\n"):
        fields = email.message_from_string(paragraph)
        summary, *lines = fields.get("Description-en", "").split("\n")
        description = " ".join("" if line == " ." else line.strip() for line in lines).strip()
        if description and "/" not in fields.get("Section", "/"):  # the sections of other components contain a slash
            source = fields.get("Source", fields["Package"]).split(" ")[0]
            package = Package(fields["Package"], source, fields["Section"], summary.strip(), description)
            by_description[description.lower()] = min(package, by_description.get(description.lower(), package))
    return sorted(by_description.values())


def token_counts(texts, model):
    lines = subprocess.run(["text-search", "tokenize", "--model", model, "--text-file", "-"], check=True,
                           input="".join(text + "\n" for text in texts), stdout=subprocess.PIPE, text=True).stdout
    return {text: line.count(",") - 1 for text, line in zip(texts, lines.splitlines())}  # without [CLS] and [SEP]


def words_of(text):
    return set(re.findall("[a-z0-9]+", text.lower()))


def right_share(question, entries, answer, weight):
    """1 if the right entry alone shares most words with the question, 1 / k if k entries do, else 0."""
    scores = [sum(map(weight, words_of(question) & words_of(" ".join(entry)))) for entry in entries]
    return round((scores[answer] == max(scores)) / scores.count(max(scores)), 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the folder of the model, whose tokens are counted")
    parser.add_argument("--index", type=pathlib.Path, help="what `apt-cache show` printed, instead of a download")
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    if not shutil.which("text-search"):
        sys.exit("debian_questions: error: text-search is not on the PATH; after a build: PATH=$PWD/build/cpu/bin:$PATH")
    packages = read_packages(options.index.read_text(errors="replace") if options.index else apt_cache())
    tokens = token_counts(sorted({text for p in packages for text in (p.name, p.summary, p.description)}), options.model)
    packages = [p for p in packages if tokens[p.description] in DESCRIPTION_TOKENS and p.summary]
    of_source, of_section = collections.defaultdict(list), collections.defaultdict(list)
    part_of = {}
    for p in packages:
        hashed = int(hashlib.sha256(p.source.encode()).hexdigest(), 16) % 40
        part_of[p] = "test" if hashed < 4 else "dev" if hashed == 4 else "train"
        of_source[p.source].append(p)
        of_section[part_of[p], p.section].append(p)
    counts = collections.Counter(word for p in packages if part_of[p] == "train" for word in words_of(p.name + " " + p.description))
    draw = random.Random(1)
    questions = collections.defaultdict(list)
    for source in sorted(of_source):
        for p in draw.sample(of_source[source], min(QUESTIONS_OF_SOURCE, len(of_source[source]))):
            siblings = [other for other in of_source[source] if other.summary != p.summary]
            others = [other for other in of_section[part_of[p], p.section] if other.source != source]
            for _ in range(50 if siblings and len(others) >= ENTRIES else 0):
                chosen = [p, *draw.sample(siblings, min(SIBLINGS, len(siblings)))]
                chosen += draw.sample(others, ENTRIES - len(chosen))
                total = 3 + tokens[p.summary] + sum(tokens[other.name] + 1 + tokens[other.description] for other in chosen)
                if total in TOKENS and [other.summary for other in chosen].count(p.summary) == 1:
                    break
            else:
                continue
            draw.shuffle(chosen)
            entries, answer = [(other.name, other.description) for other in chosen], chosen.index(p)
            questions[part_of[p]].append({
                "part": part_of[p], "source": source, "question": p.summary, "entries": entries, "answer": answer,
                "overlap": right_share(p.summary, entries, answer, lambda word: 1),
                "idf_overlap": right_share(p.summary, entries, answer, lambda word: math.log(len(packages) / (1 + counts[word])))})
    if len(questions) < 3:
        sys.exit("debian_questions: error: too few packages for the parts train, dev and test: does the list hold Debian's main?")
    replace(options.out, "".join(json.dumps(each) + "\n" for part in questions for each in questions[part]))
    for part, of_part in questions.items():
        found = [100 * sum(each[key] for each in of_part) / len(of_part) for key in ("overlap", "idf_overlap")]
        print(f"{part}: {len(of_part)} questions; word overlap finds {found[0]:.1f}%, weighted by rarity {found[1]:.1f}%")


if __name__ == "__main__":
    try:
        main()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"debian_questions: error: {error}")
