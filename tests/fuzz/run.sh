#!/bin/bash
# run.sh SECONDS [TARGET...]: runs each fuzz target, or the named ones, for SECONDS, and prints its number of executions.
# Findings are kept in build/fuzz/findings/; then the exit code is 1. CAIRN_FUZZ_BIN: the folder of the programs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CAIRN_FUZZ_BIN:-$here/../../build/fuzz/bin}
findings=${CAIRN_FUZZ_FINDINGS:-$here/../../build/fuzz/findings}
[[ ${1:-} =~ ^[0-9]+$ ]] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
seconds=$1
shift
if [ $# = 0 ]; then
  for file in "$here"/*.cpp; do set -- "$@" "$(basename "$file" .cpp)"; done
fi
mkdir -p "$findings"
# An allocation of more than 100 MB fails: that is the longest header of a safetensors file.
export ASAN_OPTIONS=allocator_may_return_null=1:max_allocation_size_mb=100${ASAN_OPTIONS:+:$ASAN_OPTIONS}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

status=0
for target in "$@"; do
  mkdir "$scratch/$target"  # libFuzzer writes new inputs to its first folder
  code=0
  dictionary=()
  [ -f "$here/$target.dict" ] && dictionary=(-dict="$here/$target.dict")
  "$bin/fuzz-$target" -max_total_time="$seconds" -print_final_stats=1 -timeout=10 "${dictionary[@]}" \
    -artifact_prefix="$findings/$target-" "$scratch/$target" "$here/corpus/$target" >"$scratch/log" 2>&1 || code=$?
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$scratch/log")
  coverage=$(grep -oE 'cov: [0-9]+' "$scratch/log" | tail -1 || true)
  if [ "$code" = 0 ]; then
    echo "$target: ${executions:-0} executions in $seconds s, $coverage, no findings"
  else
    echo "$target: FOUND after ${executions:-?} executions, see $findings:"
    grep -vE '^#[0-9]+|^stat::' "$scratch/log" | tail -40
    status=1
  fi
done
exit $status
