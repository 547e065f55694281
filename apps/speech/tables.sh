#!/bin/bash
# tables.sh DATA OUT [OPTIONS]: the trainings and comparisons for the paper's tables 1 and 2 and its figures 1a and 7a,
# with plain calls of the program speech. DATA: made by speech prepare. OUT: a folder for the runs and pages. OPTIONS go
# to every training and comparison, for example --device cuda. Call it again to continue where it stopped. SPEECH: the
# program (default: build/cpu/bin/speech). SHORTEN=4 makes a quarter of the steps, ONLY_FIRST=1 ends after table 1 for
# one seed, about twenty minutes on two cores. All takes two to three hours.
set -euo pipefail
[ $# -ge 2 ] || { sed -n 's/^# \?//p' "$0" | sed 1d | head -5 >&2; exit 2; }
data=$1 out=$2
options=("${@:3}")
speech=${SPEECH:-build/cpu/bin/speech}
shorten=${SHORTEN:-1}
mkdir -p "$out"
cd "$(dirname "$data")" && data=$PWD/$(basename "$data") && cd - >/dev/null

train() { # NAME ARGUMENTS: a run in OUT/NAME
  local run=$out/$1
  [ -e "$run/result.json" ] && return
  echo "$(date +%T) $1" >&2
  if [ -e "$run/config.json" ]; then
    "$speech" train --out "$run" --resume --quiet "${options[@]}"
  else
    "$speech" train --quick --data "$data" --out "$run" --quiet "${@:2}" "${options[@]}"
  fi
}
first() { # NAME ARGUMENTS: on single sentences, 320 positions on average
  train "$@" --iterations $((1600 / shorten))
}
tuned() { # NAME FROM ARGUMENTS: further, on three joined sentences, 960 positions
  train "$1" --init-from "$out/$2" --join 3 --batch-frames 6000 --shift-positions 0 --lr 1e-3 --warm-up 20 \
    --iterations $((500 / shorten)) "${@:3}"
}
compare() { # PAGE RUNS ARGUMENTS
  local runs=()
  for run in $2; do runs+=("$out/$run"); done
  "$speech" compare --runs "$(IFS=,; echo "${runs[*]}")" --out "$out/$1.html" "${@:3}" "${options[@]}" | tee "$out/$1.txt"
}

trained="full clustered-100 i-clustered-100 i-clustered-100:refine=1"
evaluated=full,oracle-top-32,clustered-25,clustered-100,i-clustered-25,i-clustered-100,i-clustered-100:refine=1,i-clustered-100:refine=2
evaluated+=,position-100:shift=true,i-position-100:shift=true  # clusters of neighbors, with borders that shift
evaluated+=,local-8,local-16,local-32,strided-18,strided-31,longformer-8
table_1() { # SEEDS: at 320 positions, and the same models at 960
  local runs=
  for attention in $trained; do for seed in $1; do runs+="$attention-$seed "; done; done
  runs+=none-1
  compare table-1-320 "$runs" --attention "$evaluated"
  compare table-1-960 "$runs" --attention "$evaluated" --join 3
}

# Table 1 for one seed
first none-1 --attention none
for attention in $trained; do first "$attention-1" --attention "$attention"; done
[ "${ONLY_FIRST:-}" = 1 ] && { table_1 1; exit; }
[ -e "$out/table-1-960.html" ] || table_1 1

# Table 1 at 960 positions, tuned; two more seeds
tuned none-1-tuned none-1 --attention none
runs=none-1-tuned
for seed in 1 2 3; do
  for attention in $trained; do
    first "$attention-$seed" --attention "$attention" --seed $seed
    tuned "$attention-$seed-tuned" "$attention-$seed" --attention "$attention" --seed $seed
    runs+=" $attention-$seed-tuned"
  done
  compare table-1-tuned "$runs" --attention "$evaluated"
done
table_1 "1 2 3"

# More clusters only in the tuning (the paper's appendix C.3), beside more from the start
first i-clustered-200-1 --attention i-clustered-200
tuned i-clustered-200-1-tuned i-clustered-200-1 --attention i-clustered-200
runs="i-clustered-100-1-tuned i-clustered-200-1-tuned"
for clusters in 200 300; do
  tuned i-clustered-$clusters-from-100-tuned i-clustered-100-1 --attention i-clustered-$clusters
  runs+=" i-clustered-$clusters-from-100-tuned"
done
compare more-clusters "$runs"
compare clusters-960 full-1 --join 3 --attention i-clustered-100,i-clustered-200,i-clustered-300,i-clustered-400

# Variants whose keys are the queries, beside the others: tables 1 and 2 and figure 7a, one seed
for attention in shared-full lsh-1 lsh-4; do first "$attention-1" --attention "$attention"; done
compare table-shared "full-1 shared-full-1 lsh-1-1 lsh-4-1 clustered-100-1 i-clustered-100-1" \
  --attention full,shared-full,lsh-1,lsh-4,clustered-100,clustered-200,i-clustered-100,i-clustered-200,oracle-top-32

# Is a window better because heads start by looking at neighbors? Heads that start at random distances
for seed in 1 2 3; do first "full-far-$seed" --attention full --init far --seed $seed; done
for positions in 320 960; do
  compare "table-far-$positions" "full-far-1 full-far-2 full-far-3" --attention "$evaluated" --join $((positions / 320))
done

# Figure 1a: from the full model of each size
runs=
for layers in 2 4 6; do
  from=full-1
  [ $layers = 4 ] || { from=full-$layers-layers; first $from --attention full --layers $layers; }
  for attention in full i-clustered-25 i-clustered-100 i-clustered-200; do
    tuned "$attention-$layers-layers-tuned" $from --attention "$attention" --layers $layers
    runs+=" $attention-$layers-layers-tuned"
  done
done
compare figure-1a "$runs"

# Errors at a mean length near 2,900, tuned for as many steps each
runs=
for attention in full i-clustered-100 i-clustered-200 i-clustered-400 local-32; do
  tuned "$attention-2900-tuned" full-1 --attention "$attention" --join 9 --batch-frames 9000
  runs+=" $attention-2900-tuned"
done
compare table-2900 "$runs"

# Speed at that length: the trainings' steps per second
for attention in full i-clustered-100; do
  train "$attention-long" --attention "$attention" --join 9 --batch-frames 9000 --shift-positions 0 --iterations $((24 / shorten)) --evaluate-every 1000
done
