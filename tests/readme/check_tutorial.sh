#!/bin/sh
# check_tutorial.sh PROGRAM PAGE: the tutorial's program prints what the page says, but for the digits of losses, which fall;
# and Python, where it has the package safetensors, reads the weights that it saved.
set -eu
program=$1 page=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
block() { sed -n "/^\`\`\`$1/,/^\`\`\`/{/^\`\`\`/!p}" "$page"; }
no_digits() { sed '/^step/s/[0-9.]*$/.../'; }
"$program" >printed
no_digits <printed >found
block text | no_digits >expected
diff expected found
awk '/^step/ { if ($2 + 0 > step && last != "" && $4 >= last) exit 1; step = $2 + 0; last = $4 }' printed || {
  cat printed
  echo "a loss did not fall"
  exit 1
}
if python3 -c 'import safetensors.numpy' 2>/dev/null; then
  block python >read.py
  python3 read.py | grep "'output.weight': (2, 16)"
fi
