#!/bin/sh
# check_packages: where there is no apt-get, .ci/packages says in one line what it looked for, and ends with 4.
cd "$(dirname "$0")/../.." || exit
code=0
said=$(PATH=/nowhere /bin/sh .ci/packages 2>&1) || code=$?
echo "$said"
[ $code = 4 ] || { echo "expected exit code 4, got $code"; exit 1; }
[ "$(echo "$said" | wc -l)" = 1 ] || { echo "expected one line"; exit 1; }
for part in "packages: error: " nlohmann-json3-dev "Fedora: " "Arch: "; do
  case $said in *"$part"*) ;; *) echo "no '$part' in it"; exit 1 ;; esac
done
