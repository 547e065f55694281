#!/bin/sh
# check_loop PROGRAM: the README's training loop prints six losses, and the last one says that it has learned.
set -eu
printed=$("$1")
echo "$printed"
echo "$printed" | awk '$1 == "loss" { count++; last = $2 } END { exit !(count == 6 && last < 0.1) }'
