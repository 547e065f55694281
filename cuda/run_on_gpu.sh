#!/bin/bash
# run_on_gpu.sh [--out DIR] [--steps "build test sanitizer copy-task timing"] [CMAKE ARGUMENT...]
# All there is to try on a machine with an NVIDIA GPU, in one command and without a network:
#   build      preset cuda for the GPU at hand; further arguments go to cmake (-DCMAKE_PREFIX_PATH=...)
#   test       the whole test suite, on both devices
#   sanitizer  compute-sanitizer's memcheck, racecheck and synccheck over the tests of the kernels, where it runs
#   copy-task  the copy task at the paper's settings: full and i-clustered-15, in float32 and bf16
#   timing     steps of the copy task on both devices, and the kernels of cuda/ladder
# Writes DIR/summary.md (build/cuda/gpu by default), with the commit and the GPU, and DIR/*.log. Steps that were run before
# keep their part of the summary. Ends with 1 if a step failed.
set -uo pipefail
cd "$(dirname "$0")/.."
out=build/cuda/gpu steps="build test sanitizer copy-task timing"
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    -h|--help) sed -n '2,11s/^# \?//p' "$0"; exit 0 ;;
    *) break ;;
  esac
done
mkdir -p "$out/parts"
out=$(realpath "$out") failed=0
bin=$PWD/build/cuda/bin
PATH=$PATH:/usr/local/cuda/bin

# part NAME: the step's section of the summary, from standard input.
part() { { echo "## $1"; echo; cat; echo; } >"$out/parts/$1.md"; }
# tried NAME COMMAND...: runs it into NAME.log, and says how it ended and how long it took.
tried() {
  local name=$1 start=$SECONDS code=0
  shift
  "$@" >"$out/$name.log" 2>&1 || code=$?
  echo "- \`$*\`: $([ $code = 0 ] && echo passed || echo "**failed ($code)**"), $((SECONDS - start)) s"
  return $code
}

build() {
  tried configure cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=native -DCAIRN_WERROR=ON "$@" &&
    tried build cmake --build --preset cuda
}

test_() {
  # What is no test of the GPU is done on the CPU, where thousands of processes need not start CUDA each.
  local code=0 where
  tried test-cpu env CUDA_VISIBLE_DEVICES= ctest --preset cuda -LE gpu || code=1
  tried test-gpu ctest --preset cuda -L gpu || code=1
  for where in cpu gpu; do sed -n '/tests passed/,$p' "$out/test-$where.log" | sed 's/^/    /'; done
  return $code
}

sanitizer() {
  command -v compute-sanitizer >/dev/null || { echo "not here: left out"; return 0; }
  local code=0 tool
  for tool in memcheck racecheck synccheck; do
    # The first call tells whether this machine lets it run at all.
    if ! compute-sanitizer --tool $tool "$bin/cairn-cuda-tests" "memory goes to the device*" >"$out/$tool.log" 2>&1 &&
       grep -qi "not supported\|internal sanitizer error\|unable to\|failed to initialize" "$out/$tool.log"; then
      echo "- $tool: this machine does not let it run: $(grep -i -m1 'error\|not supported' "$out/$tool.log")"
      continue
    fi
    tried $tool timeout 900 compute-sanitizer --tool $tool --error-exitcode 9 "$bin/cairn-cuda-tests" \
      "~[host]~[planted]~more elements*" || code=1
    grep "ERROR SUMMARY\|RACECHECK SUMMARY" "$out/$tool.log" | sed 's/^=* */    /'
  done
  return $code
}

copy_task() {
  local code=0 attention precision
  echo "| attention | precision | masked accuracy | steps | replayed | seconds | steps/s | peak MB |"
  echo "|---|---|---|---|---|---|---|---|"
  for attention in full i-clustered-15; do
    for precision in float32 bf16; do
      local log=$out/copy-task-$attention-$precision.log
      "$bin/copy-task" train --device cuda --precision $precision --attention $attention --stop-at 0.995 --json \
        >"$log" 2>&1 || code=1
      tail -1 "$log" | python3 -c "
import json, sys
r = json.loads(sys.stdin.read())
print(f'| $attention | $precision | {r[\"masked_accuracy\"]:.4f} | {r[\"iterations\"]} | {r[\"graph_replays\"]} '
      f'| {r[\"seconds\"]:.0f} | {r[\"steps_per_second\"]:.1f} | {r[\"peak_bytes\"] / 1e6:.0f} |')
sys.exit(r['masked_accuracy'] < 0.99)" || { code=1; echo "| $attention | $precision | **failed**, see $(basename "$log") |||||| "; }
    done
  done
  return $code
}

timing() {
  echo "| steps/s, length 31 and 255 | cpu | cuda float32 | cuda tf32 | cuda bf16 |"
  echo "|---|---|---|---|---|"
  local attention length how
  for attention in full clustered-15 i-clustered-15; do
    for length in 31 255; do
      printf '| %s, %s |' $attention $length
      for how in "cpu float32" "cuda float32" "cuda tf32" "cuda bf16"; do
        local steps=200
        [ "${how% *}" = cpu ] && steps=20
        "$bin/copy-task" train --device "${how% *}" --precision "${how#* }" --attention $attention --length $length \
          --iterations $steps --evaluate-every 1000000 --json 2>/dev/null | tail -1 |
          python3 -c "import json, sys; print(f' {json.loads(sys.stdin.read())[\"steps_per_second\"]:.1f} |', end='')" ||
          printf ' failed |'
      done
      echo
    done
  done
  echo
  [ -x "$bin/cairn-ladder" ] && "$bin/cairn-ladder" | sed 's/^/    /'
}

run() {
  local name=$1 started=$SECONDS
  shift
  echo "== $name"
  "$@" >"$out/parts/$name.tmp" || { failed=1; echo "$name failed" >&2; }
  part "$name" <"$out/parts/$name.tmp"
  rm "$out/parts/$name.tmp"
  cat "$out/parts/$name.md"
  echo "($((SECONDS - started)) s)"
}

for step in $steps; do
  case $step in
    build) run build build "$@" ;;
    test) run test test_ ;;
    sanitizer) run sanitizer sanitizer ;;
    copy-task) run copy-task copy_task ;;
    timing) run timing timing ;;
    *) echo "run_on_gpu.sh: unknown step $step" >&2; exit 2 ;;
  esac
  [ "$step" = build ] && [ $failed = 1 ] && break
done

{
  echo "# On a GPU: $(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)"
  echo
  echo "$(date -u +%Y-%m-%d), commit $(git describe --always --dirty 2>/dev/null || echo unknown)," \
    "driver $(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1)," \
    "$(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/CUDA \1/p'), by cuda/run_on_gpu.sh"
  echo
  for step in build test sanitizer copy-task timing; do
    if [ -f "$out/parts/$step.md" ]; then cat "$out/parts/$step.md"; else printf '## %s\n\nnot run\n\n' $step; fi
  done
} >"$out/summary.md"
echo "$out/summary.md"
exit $failed
