#!/bin/sh
# corpus.sh FOLDER: fetches the corpus of speech, and unpacks it into FOLDER/msu_ru_nsh_clunits (240 MB). It is the Debian
# package festvox-ru: 620 Russian sentences, read by one speaker, with the times of their phones (1.66 hours; Nickolay V.
# Shmyrev, BSD-like license). Needs apt-get with package lists (Debian and its derivatives), but not root.
# Exit codes: 0 done, 2 usage, 4 the package cannot be fetched here.
set -eu
if [ $# != 1 ]; then
  echo "usage: apps/speech/corpus.sh FOLDER" >&2
  exit 2
fi
voice=msu_ru_nsh_clunits
if [ -d "$1/$voice" ]; then
  echo "$1/$voice is there already"
  exit 0
fi
mkdir -p "$1"
unpacked=$(mktemp -d "$1/unpacked.XXXXXX")
chmod 755 "$unpacked"  # as root, apt-get downloads as another user
trap 'rm -rf "$unpacked"' EXIT
trap 'exit 130' INT TERM
if ! (cd "$unpacked" && apt-get download -q festvox-ru); then
  echo "corpus.sh: error: apt-get cannot download festvox-ru (180 MB): as root, run apt-get update; on other systems, fetch" \
    "https://packages.debian.org/festvox-ru and unpack usr/share/festival/voices/russian/$voice into $1/" >&2
  exit 4
fi
dpkg-deb -x "$unpacked"/festvox-ru_*.deb "$unpacked"
# Last: the folder is whole, or not there. Another process may have made it meanwhile.
mv "$unpacked/usr/share/festival/voices/russian/$voice" "$1/" || [ -d "$1/$voice" ]
echo "$1/$voice"
