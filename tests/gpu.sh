#!/bin/bash
# tests/gpu.sh [--out DIR] [--bin DIR] [--preset PRESET] [--patience N] [CMAKE ARGUMENT...]
# Runs every check that needs an NVIDIA GPU: the tests of kernels, compute-sanitizer, the times of the ladder and of
# attention, beside PyTorch and other people's code where Python has them, and a training of the copy task.
#
#   tests/gpu.sh --out result -DCMAKE_PREFIX_PATH=/opt/libraries
#
#   --out DIR        folder for the results: summary.txt, a log of each step, figures, the trained model (default:
#                    build/gpu of the repository)
#   --bin DIR        built programs, perhaps from another machine; without it, the preset is configured and built
#   --preset PRESET  cuda, or cuda-host to try this script without a GPU, at tiny sizes
#   --patience N     multiplies the limits of time (default 1; 30 for cuda-host)
#
# Each step prints its figures at its end, also to summary.txt. A step that fails or takes too long does not stop the
# others. Exit codes: 0 all passed, 1 a step failed, 2 usage.
#
# Without the build this takes at most 5 minutes, the sum of the limits. The four sanitizers run side by side, each in four
# processes, for at most two minutes.
set -uo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
PATH=$PATH:/usr/local/cuda/bin
fail() {
  echo "gpu.sh: error: $1" >&2
  exit 2
}
preset=cuda out=build/gpu bin='' patience=''
while [ $# -gt 0 ]; do
  case $1 in
    --out | --bin | --preset | --patience)
      [ $# -gt 1 ] || fail "$1: expected a value; see --help"
      declare "${1#--}=$2"
      [[ $1 = --preset || $1 = --patience || $2 = /* ]] || declare "${1#--}=$caller/$2"
      shift 2 ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tests/gpu.sh
      exit 0 ;;
    -D* | -G*) break ;;
    *) fail "unknown option '$1'; see --help" ;;
  esac
done
[[ $out = /* ]] || out=$PWD/$out

case $preset in
  cuda)
    configure=(-DCMAKE_CUDA_ARCHITECTURES=native)
    cases='[gpu]'
    few=4 many=32 short=4096 long=32768 kmeans=16384
    layer=(--lengths 512,4096,32768 --tokens 131072)
    size=(--heads 6 --head-size 64 --seconds 0.5)
    training=(--quick) ;;
  cuda-host)
    configure=()
    cases='[softmax][gpu],[sum][gpu],[clusters_of][gpu]'
    few=1 many=2 short=32 long=64 kmeans=64
    layer=(--lengths 16,32 --tokens 32)
    size=(--heads 2 --head-size 8 --feed-forward 16 --repeat 1 --seconds 0)
    training=(--length 2 --layers 1 --heads 1 --head-size 8 --feed-forward 8 --batch 3 --iterations 6)
    : "${patience:=30}" ;;
  *) fail "--preset: expected cuda or cuda-host, got '$preset'" ;;
esac
: "${patience:=1}"
[[ $patience =~ ^[1-9][0-9]*$ ]] || fail "--patience: expected a whole number from 1 on, got '$patience'"
[ -z "$bin" ] || [ -x "$bin/cairn-cuda-tests" ] || fail "--bin $bin: has no program cairn-cuda-tests"
[ ! -e "$out/copy-task" ] || fail "--out $out: has a training already; name another folder"
mkdir -p "$out" && : >"$out/summary.txt" || fail "--out $out: cannot be written to"

failed=0
declare -A process begun
say() { echo "$1" | tee -a "$out/summary.txt"; }
skip() { say "$1: skipped, $2"; }
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM
# begin NAME LIMIT COMMAND...: starts the command for at most LIMIT seconds, with its output in DIR/NAME.log.
begin() {
  begun[$1]=$SECONDS
  timeout --kill-after=5 $(($2 * patience)) "${@:3}" >"$out/$1.log" 2>&1 &
  process[$1]=$!
}
# finish NAME FIGURES: waits for it and prints the lines of its log that match FIGURES, a regular expression, if any.
finish() {
  local code=0 log=$out/$1.log
  wait "${process[$1]}" || code=$?
  case $code in
    0) say "$1: passed, $((SECONDS - begun[$1])) s" ;;
    124 | 137) say "$1: FAILED, stopped after $((SECONDS - begun[$1])) s (see --patience), its last line in $log:" ;;
    *) say "$1: FAILED with $code after $((SECONDS - begun[$1])) s, its last line in $log:" ;;
  esac
  [ $code = 0 ] || say "  $(grep . "$log" | tail -n 1)"
  [ -z "$2" ] || grep -E "$2" "$log" | head -n 30 | sed 's/^/  /' | tee -a "$out/summary.txt"
  [ $code = 0 ] || failed=1
  return $code
}
# step NAME LIMIT FIGURES COMMAND...
step() {
  begin "$1" "$2" "${@:4}"
  finish "$1" "$3"
}

if [ -z "$bin" ]; then
  bin=$PWD/build/$preset/bin
  step configure 3600 '' cmake --preset "$preset" "${configure[@]}" "$@" || exit 1
  step build 7200 '' cmake --build --preset "$preset" \
    --target attention-bench copy-task cairn-cuda-tests cairn-ladder || exit 1
fi
missing=$(ldd "$bin/cairn-cuda-tests" | sed -n 's/ => not found//p' | xargs)
[ -z "$missing" ] || { say "libraries: FAILED, not found (add their folder to LD_LIBRARY_PATH): $missing"; exit 1; }
say "commit $(git --git-dir=.git --work-tree=. describe --always --dirty 2>/dev/null || echo unknown), $(date -u +%F)"
bench=("$bin/attention-bench")
step device 15 '^NVIDIA' bash -c 'nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  exec "$0" run --device cuda --attention full --length 16 --batch 1 --repeat 1' "${bench[@]}" || exit 1

# The tests run in eight processes. Each takes every 32nd case, and then the next list. (They may have been built on another
# machine, so they are told where the programs and the repository are.)
export CAIRN_PROGRAMS=$bin CAIRN_SOURCE_DIR=$PWD
tests=("$bin/cairn-cuda-tests" --reporter compact --durations yes --warn NoTests)
names() {  # as Catch2 2 lists them, or else Catch2 3
  local found
  found=$("$bin/cairn-cuda-tests" --list-test-names-only "$1" 2>/dev/null)
  [ -n "$found" ] || found=$("$bin/cairn-cuda-tests" --list-tests --verbosity quiet "$1")
  echo "$found"
}
names "$cases" >"$out/cases.txt"
rm -f "$out"/cases.[0-9]*
split --number=r/32 --numeric-suffixes --elide-empty-files "$out/cases.txt" "$out/cases."
ls "$out"/cases.[0-9]* >"$out/lists.txt"
step tests 40 ' failed: |skipped|No test cases' xargs -a "$out/lists.txt" -P 8 -n 1 \
  bash -c '"$@" || exit 1' a-list "${tests[@]}" -f  # (at 255 xargs would stop)
say "  $(grep -cE '^[0-9.]+ s: ' "$out/tests.log") of $(wc -l <"$out/cases.txt") cases ended; the slowest, in s:"
say "$(grep -E '^[0-9.]+ s: ' "$out/tests.log" | sort -rn | head -n 3 | sed 's/^/    /')"

# compute-sanitizer. memcheck finds wrong addresses: all operations but two compositions of others, in bfloat16. The
# other tools run the operations whose kernels use shared memory or a workspace (but the optimizer, which takes long):
# races in bfloat16; barriers, and reads of unwritten memory, in float32.
tools=(memcheck racecheck synccheck initcheck)
declare -A checked=([memcheck]='[bfloat16]~[linear attention]~[lloyd]')
for stem in attention chunk_attention centroid_topk topk_attention hamming_kmeans hash_codes hash_buckets clusters_of \
  cluster_mean cluster_broadcast sum mean max argmax softmax layer_norm cross_entropy ctc_loss; do
  checked[racecheck]+="[$stem][bfloat16],"
  checked[synccheck]+="[$stem][float32],"
  checked[initcheck]+="[$stem][float32],"
done
if [ "$preset" = cuda ] && command -v compute-sanitizer >/dev/null; then
  for tool in "${tools[@]}"; do
    names "${checked[$tool]%,}" >"$out/$tool.txt"
    rm -f "$out/$tool".[0-9]*
    split --number=r/24 --numeric-suffixes --elide-empty-files "$out/$tool.txt" "$out/$tool."
    ls "$out/$tool".[0-9]* >"$out/$tool-lists.txt"
    begin "$tool" 120 xargs -a "$out/$tool-lists.txt" -P 4 -n 1 bash -c '"$@" || exit 1' a-list \
      compute-sanitizer --tool "$tool" --error-exitcode 9 "${tests[@]}" -f
  done
  for tool in "${tools[@]}"; do finish "$tool" ' failed: |SUMMARY: [1-9]'; done
else
  for tool in "${tools[@]}"; do
    skip "$tool" "there is no compute-sanitizer, or no GPU ($(names "${checked[$tool]%,}" | wc -l) cases)"
  done
fi

step ladder 10 . "$bin/cairn-ladder"
three=(--device cuda --precision bf16 --attention full,clustered-100,i-clustered-100 "${size[@]}")
for batch in $few $many; do
  for pass in forward both; do
    step "attention-$batch-$pass" 6 . "${bench[@]}" run --quiet --what attention --batch $batch --length $short \
      --pass $pass "${three[@]}"
  done
done
step attention-long 8 . "${bench[@]}" run --quiet --what attention --batch $few --length $long "${three[@]}"
step layer 14 '^length' "${bench[@]}" figure --what layer "${layer[@]}" "${three[@]}" --out "$out/layer"
step kmeans 5 . "${bench[@]}" run --quiet --what cluster --attention clustered-100 --batch 8 --length $kmeans \
  --device cuda "${size[@]}"
if [ "$preset" = cuda ] && python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  step peers 54 '^{' python3 apps/attention_bench/peers.py --device cuda --program "$bin" --repeat 1
else
  skip peers "python3 has no PyTorch with CUDA"
fi
step copy-task 10 'accuracy' "$bin/copy-task" train --device cuda --quiet "${training[@]}" --out "$out/copy-task"
exit $failed
