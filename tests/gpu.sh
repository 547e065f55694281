#!/bin/bash
# tests/gpu.sh [--out DIR] [--preset PRESET] [CMAKE ARGUMENT...]
# Runs every check that needs an NVIDIA GPU: builds the preset `cuda`, runs the tests of kernels (those in bfloat16 also
# under compute-sanitizer), times the ladder and attention, beside PyTorch where it is installed, and trains the copy
# task.
#
#   tests/gpu.sh --out result -DCMAKE_PREFIX_PATH=/opt/libraries
#
#   --out DIR        folder for the results: summary.txt, a log of each step, figures, the trained model (default:
#                    build/gpu of the repository)
#   --preset PRESET  cuda, or cuda-host to try this script without a GPU, at tiny sizes
#
# Each step prints a line at its end, also to summary.txt. Exit codes: 0 all passed, 1 a step failed, 2 usage.
set -uo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
PATH=$PATH:/usr/local/cuda/bin
fail() {
  echo "gpu.sh: error: $1" >&2
  exit 2
}
preset=cuda out=$PWD/build/gpu
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
[[ $out = /* ]] || out=$caller/$out

case $preset in
  cuda)
    configure=(-DCMAKE_CUDA_ARCHITECTURES=native)
    tests=(-L gpu)
    figure=(--batch 4 --heads 6 --precision bf16 --longest 5)  # seconds; a point takes at most five times as long
    training=(--quick) ;;
  cuda-host)
    configure=()
    tests=(-R "gpu: the ladder is timed")
    figure=(--lengths 16,32 --batch 1 --heads 2 --head-size 8 --repeat 1 --seconds 0)
    training=(--length 2 --layers 1 --heads 1 --head-size 8 --feed-forward 8 --batch 3 --iterations 6) ;;
  *) fail "--preset: expected cuda or cuda-host, got '$preset'" ;;
esac
[ ! -e "$out/copy-task" ] || fail "--out $out: has a training already; name another folder"
mkdir -p "$out" && : >"$out/summary.txt" || fail "--out $out: cannot be written to"
bin=build/$preset/bin failed=0

say() { echo "$1" | tee -a "$out/summary.txt"; }
# step NAME COMMAND...: runs the command for at most an hour, with its output in DIR/NAME.log.
step() {
  local name=$1 begun=$SECONDS code=0
  shift
  timeout --foreground --kill-after=60 3600 "$@" >"$out/$name.log" 2>&1 || code=$?
  if [ $code = 0 ]; then
    say "$name: passed, $((SECONDS - begun)) s"
  else
    say "$name: FAILED with $code after $((SECONDS - begun)) s, see $out/$name.log; its last line:"
    say "  $(grep . "$out/$name.log" | tail -n 1)"
    failed=1
  fi
  return $code
}
skip() { say "$1: skipped, $2"; }

step configure cmake --preset $preset "${configure[@]}" "$@" || exit 1
step build cmake --build --preset $preset --target attention-bench copy-task cairn-cuda-tests cairn-ladder || exit 1
missing=$(ldd "$bin/cairn-cuda-tests" | sed -n 's/ => not found//p' | xargs)
[ -z "$missing" ] || { say "libraries: FAILED, not found (add their folder to LD_LIBRARY_PATH): $missing"; exit 1; }
try="$bin/attention-bench run --device cuda --attention full --length 16 --batch 1 --repeat 1"
step device bash -c "nvidia-smi; $try" || exit 1
step tests ctest --preset $preset "${tests[@]}" --output-on-failure
for tool in memcheck racecheck synccheck initcheck; do
  if [ $preset = cuda ] && command -v compute-sanitizer >/dev/null; then
    step $tool compute-sanitizer --tool $tool --error-exitcode 9 "$bin/cairn-cuda-tests" "[bfloat16]"
  else
    skip $tool "there is no compute-sanitizer, or no GPU"
  fi
done
step ladder "$bin/cairn-ladder"
for what in attention layer; do
  step "figure-$what" "$bin/attention-bench" figure --device cuda --quiet --what $what \
    --attention full,clustered-100,i-clustered-100 "${figure[@]}" --out "$out/figure-$what"
done
if [ $preset = cuda ] && python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  step peers python3 apps/attention_bench/peers.py --device cuda --program "$bin"
else
  skip peers "python3 has no PyTorch with CUDA"
fi
step copy-task "$bin/copy-task" train --device cuda --quiet "${training[@]}" --out "$out/copy-task"
exit $failed
