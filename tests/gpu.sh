#!/bin/bash
# tests/gpu.sh [--out DIR] [--preset PRESET] [CMAKE ARGUMENT...]
# All there is to find out on a machine with an NVIDIA GPU: builds the preset `cuda`, runs the tests of kernels and
# compute-sanitizer, times the ladder and attention, beside PyTorch where that is installed, and trains the copy task.
#
#   tests/gpu.sh --out result -DCMAKE_PREFIX_PATH=/opt/libraries
#
#   --out DIR        the folder of the results (build/gpu): a log of each step, figures, the trained model
#   --preset PRESET  cuda, or cuda-host to try this script without a GPU, at tiny sizes
#
# Each step prints a line. Exit codes: 0 all passed, 1 a step failed, 2 usage.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
fail() {
  echo "gpu.sh: error: $1" >&2
  exit 2
}
preset=cuda out=build/gpu
while [ $# -gt 0 ]; do
  case $1 in
    --out | --preset)
      [ $# -gt 1 ] || fail "$1: expected a value; see --help"
      declare "${1#--}=$2"
      shift 2 ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tests/gpu.sh
      exit 0 ;;
    -D* | -G*) break ;;
    *) fail "unknown option '$1'; see --help" ;;
  esac
done
mkdir -p "$out" || fail "--out $out: cannot be made a folder"

case $preset in
  cuda)
    configure=(-DCMAKE_CUDA_ARCHITECTURES=native)
    tests=(-L gpu)
    figure=(--batch 4 --heads 6 --precision bf16)
    training=(--quick) ;;
  cuda-host)
    configure=()
    tests=(-R "gpu: every step of the ladder")
    figure=(--lengths 16,32 --batch 1 --heads 2 --head-size 8 --repeat 1 --seconds 0)
    training=(--length 2 --layers 1 --heads 1 --head-size 8 --feed-forward 8 --batch 3 --iterations 6) ;;
  *) fail "--preset: expected cuda or cuda-host, got '$preset'" ;;
esac
bin=build/$preset/bin failed=0

# step NAME COMMAND...: runs it, with its output in DIR/NAME.log.
step() {
  local name=$1 begun=$SECONDS code=0
  shift
  "$@" >"$out/$name.log" 2>&1 || code=$?
  if [ $code = 0 ]; then
    echo "$name: passed, $((SECONDS - begun)) s"
  else
    echo "$name: FAILED with $code, $((SECONDS - begun)) s, see $out/$name.log"
    failed=1
  fi
  return $code
}
skip() { echo "$1: skipped, $2"; }

step configure cmake --preset $preset "${configure[@]}" "$@" || exit 1
step build cmake --build --preset $preset --target attention-bench copy-task cairn-cuda-tests cairn-ladder || exit 1
step tests ctest --preset $preset "${tests[@]}" --output-on-failure
for tool in memcheck racecheck synccheck initcheck; do
  if command -v compute-sanitizer >/dev/null; then
    step $tool compute-sanitizer --tool $tool --error-exitcode 9 "$bin/cairn-cuda-tests" \
      "memory goes to the device*,tensor cores multiply*,hamming_kmeans on CUDA takes pieces*"
  else
    skip $tool "compute-sanitizer is not here"
  fi
done
step ladder "$bin/cairn-ladder"
for what in attention layer; do
  step "figure-$what" "$bin/attention-bench" figure --device cuda --quiet --what $what \
    --attention full,clustered-100,i-clustered-100 "${figure[@]}" --out "$out/figure-$what"
done
if python3 -c 'import torch' 2>/dev/null; then
  step peers python3 apps/attention_bench/peers.py --device cuda --program "$bin"
else
  skip peers "python3 has no PyTorch"
fi
step copy-task "$bin/copy-task" train --device cuda --quiet "${training[@]}" --out "$out/copy-task"
exit $failed
