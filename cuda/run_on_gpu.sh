#!/bin/bash
# run_on_gpu.sh [OPTION...] [CMAKE ARGUMENT...]
# All there is to find out on a machine with an NVIDIA GPU, the most telling first: a smoke test, all tests of kernels, times
# beside PyTorch's, each kernel's time, the copy task, compute-sanitizer. Needs no network, and beside CUDA's libraries
# nothing but bash, coreutils, grep, sed and tar; python3 with PyTorch is used where it is there.
#
#   cuda/run_on_gpu.sh --pack gpu.tar.gz      here, with nvcc: builds the programs for sm_90 and packs them with this script
#   tar -xf gpu.tar.gz && cairn-gpu/run_on_gpu.sh --out result     there
#   cuda/run_on_gpu.sh --out result -DCMAKE_PREFIX_PATH=...        or there, in the tree: builds it first
#
#   --out DIR         the folder of results (build/cuda/gpu, or gpu-results in a pack): summary.md, logs, results.tar
#   --budget SECONDS  begin nothing that does not fit into these (570); the same call again goes on with what is missing
#   --parts "..."     of: smoke tests timing figure kernels copy-task sanitizer
#   --again           forget the results in --out
#   --tiny            sizes for the emulator, which is how this script is tested
#   --build DIR       with --pack: pack the programs of this build folder
#
# Each step's result is in the summary as soon as it ends. Exit codes: 0 all passed, 1 a step failed, 2 usage, 3 steps are left
# (call again), 4 something is missing here.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fail() { echo "run_on_gpu.sh: error: $2" >&2; exit "$1"; }
packed=yes root=$here out=gpu-results
if [ ! -d "$here/bin" ]; then packed='' root=$(dirname "$here") out=$root/build/cuda/gpu; fi
budget=570 parts="smoke tests timing figure kernels copy-task sanitizer" tiny='' again='' pack='' build=''
while [ $# -gt 0 ]; do
  case $1 in
    --out|--budget|--parts|--pack|--build)
      [ $# -gt 1 ] || fail 2 "$1: expected a value; see --help"
      declare "${1#--}=$2"
      shift 2 ;;
    --tiny) tiny=yes; shift ;;
    --again) again=yes; shift ;;
    -h|--help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$here/run_on_gpu.sh"; exit 0 ;;
    -D*|-G*) break ;;
    *) fail 2 "unknown option '$1'; see --help" ;;
  esac
done
case $budget in ''|*[!0-9]*) fail 2 "--budget: expected seconds, got '$budget'" ;; esac
for part in $parts; do
  case $part in
    smoke|tests|timing|figure|kernels|copy-task|sanitizer) ;;
    *) fail 2 "--parts: unknown part '$part'" ;;
  esac
done
programs="attention-bench copy-task cairn-cuda-tests cairn-ladder"

# ---------------------------------------------------------------------------------------------------------------- pack

configure() { # FOLDER ARGUMENT...
  (cd "$root" && PATH=$PATH:/usr/local/cuda/bin && cmake --preset cuda -B "$1" "${@:2}" &&
    cmake --build "$1" --target $programs)
}

if [ -n "$pack" ]; then
  [ -z "$packed" ] || fail 2 "--pack: this is a pack already"
  most=62 # MB; a build folder of one's own may be larger, with sanitizers say
  if [ -n "$build" ]; then
    most=1000
  else
    build=$root/build/pack
    configure "$build" -DCAIRN_CPU=v3 -DCMAKE_CUDA_ARCHITECTURES=90-real -DCMAKE_EXE_LINKER_FLAGS=-s "$@" ||
      fail 1 "the build failed"
  fi
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/cairn-gpu/bin" "$work/cairn-gpu/lib"
  for program in $programs; do
    [ -x "$build/bin/$program" ] || fail 4 "--build $build: no program $program"
    cp "$build/bin/$program" "$work/cairn-gpu/bin"
    # The compiler's own libraries go along: a system there may have older ones.
    for library in $(ldd "$build/bin/$program" | sed -n 's/.* => \(.*\/lib\(stdc++\|gcc_s\)\.so[^ ]*\) .*/\1/p'); do
      cp -L "$library" "$work/cairn-gpu/lib"
    done
  done
  cp "$here/run_on_gpu.sh" "$root"/apps/attention_bench/peers*.py "$work/cairn-gpu"
  git -C "$root" describe --always --dirty >"$work/cairn-gpu/COMMIT" 2>/dev/null || echo unknown >"$work/cairn-gpu/COMMIT"
  tar -C "$work" -caf "$pack" cairn-gpu || fail 1 "$pack: cannot be written"
  size=$(($(stat -c %s "$pack") / 1000000))
  echo "$pack: $size MB, commit $(cat "$work/cairn-gpu/COMMIT")"
  [ $size -le $most ] || fail 1 "$pack: $size MB, more than $most; leave programs out or strip them"
  exit 0
fi

# ------------------------------------------------------------------------------------------------------------ programs

[ -z "$again" ] || rm -rf "$out"
mkdir -p "$out/steps" "$out/logs" || fail 1 "--out $out: cannot be made a folder"
out=$(cd "$out" && pwd)
if [ -n "$packed" ]; then
  bin=$here/bin peers=$here commit=$(cat "$here/COMMIT")
  export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
  bin=$root/build/cuda/bin peers=$root/apps/attention_bench
  commit=$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)
  echo "building, see $out/logs/build.log"
  configure "$root/build/cuda" -DCMAKE_CUDA_ARCHITECTURES=native "$@" >"$out/logs/build.log" 2>&1 ||
    fail 1 "the build failed: $(grep -m 1 -i error "$out/logs/build.log")"
fi
[ -e "$out/COMMIT" ] || echo "$commit" >"$out/COMMIT"
[ "$(cat "$out/COMMIT")" = "$commit" ] || fail 2 "$out has results of commit $(cat "$out/COMMIT"), this is $commit; see --again"
python=$(command -v python3 || true)
torch='' # where python3 has PyTorch
if [ -n "$python" ] && "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; then
  torch=yes
fi

# cuBLAS: of the major version that the programs were linked to, from the toolkit or from PyTorch's packages.
cublas=$(grep -a -o -m 1 'libcublas\.so\.[0-9]*' "$bin/attention-bench" | head -n 1)
if [ -n "$cublas" ]; then
  site=''
  [ -z "$python" ] || site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  found=''
  for folder in ${LD_LIBRARY_PATH//:/ } /usr/local/cuda/lib64 /usr/local/cuda*/targets/x86_64-linux/lib /usr/lib/x86_64-linux-gnu \
                "$site"/nvidia/*/lib; do
    [ -e "$folder/$cublas" ] || continue
    found=$folder
    break
  done
  [ -n "$found" ] || fail 4 "$cublas was not found: in LD_LIBRARY_PATH, in /usr/local/cuda, in PyTorch's packages"
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$found
  cublas=$(readlink -f "$found/$cublas")
fi
version=$("$bin/attention-bench" --version 2>&1) || fail 4 "the programs do not start: $version"
PATH=$PATH:/usr/local/cuda/bin

# --------------------------------------------------------------------------------------------------- what a step's log says
# Each reads the log from standard input and writes what the summary shows of it.

block() { echo '```'; cat; echo '```'; }
tables() { sed -n '/^|/p;/^[A-Z].*[^:]$/p'; }
test_totals() { grep -E 'test cases:|All tests passed|skipped' | sed 's/^/  - /'; }
sanitizer_totals() { grep -E 'ERROR SUMMARY|RACECHECK SUMMARY|not supported' | sed 's/^=* */  - /' | tail -n 2; }
# value KEY JSON: of an object on one line.
value() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" <<<"$2"; }
# figure KEY JSON: a number to four digits; null where there is none.
figure() {
  local found
  found=$(value "$@")
  if [ "$found" = null ]; then echo null; else printf %.4g "$found"; fi
}
stages() {
  local json
  json=$(tail -n 1)
  echo "  - seconds in all: $(value median_seconds "$json"); by kernel:"
  sed 's/.*"stages":{\([^}]*\)}.*/\1/; s/,/\n/g' <<<"$json" | tr -d '"' | sort -t : -k 1 | block
}
training() {
  local json
  json=$(tail -n 1)
  printf '  - masked accuracy %s after %s steps; %s steps/s; peak %s bytes\n' \
    "$(figure masked_accuracy "$json")" "$(value iterations "$json")" "$(figure steps_per_second "$json")" \
    "$(value peak_bytes "$json")"
}

# ---------------------------------------------------------------------------------------------------------------- plan

steps=() limits=() shows=() commands=()
# step PART/NAME SECONDS SHOW COMMAND...: the command may take so long; SHOW, one of the above, reads its log. BUDGET in the
# command stands for somewhat less than the seconds that it gets.
step() {
  case " $parts " in *" ${1%%/*} "*) ;; *) return ;; esac
  steps+=("$1") limits+=("$2") shows+=("$3")
  shift 3
  commands+=("${*@Q}")
}
kernel_tests() { step "$1" "$2" test_totals "$bin/cairn-cuda-tests" "$3"; }
measure() { step "$1" 40 "$2" "$bin/attention-bench" run --device cuda --quiet --no-floor --what attention "${@:3}"; }

B=4 H=6 lengths="4096 1024 16384 65536" sizes="64 128" precisions="bf16 float32" passes="both forward" figure=''
model="--stop-at 0.995" models="full/float32 full/bf16 i-clustered-15/float32 i-clustered-15/bf16" repeat="--seconds 1" C=100
if [ -n "$tiny" ]; then
  B=1 H=2 lengths=32 sizes=16 precisions=bf16 passes=both figure="--lengths 16,32 --tokens 32 --heads 2 --head-size 16"
  model="--length 2 --layers 1 --heads 1 --head-size 8 --feed-forward 8 --batch 3 --iterations 6"
  models=i-clustered-15/bf16 repeat="--seconds 0 --repeat 1" C=5
fi

kernel_tests smoke/mma 30 "tensor cores multiply*"
kernel_tests smoke/memory 30 "memory goes to the device*"
kernel_tests smoke/launch 30 "a launch may ask*"

if [ -n "$tiny" ]; then
  kernel_tests tests/some 60 "numbers are rounded*"
else
  kernel_tests tests/parity-float32 90 "[parity][float32]"
  kernel_tests tests/parity-bfloat16 90 "[parity][bfloat16]"
  kernel_tests tests/training 90 "[training]"
  kernel_tests tests/rest 90 "[gpu]~[parity]~[training]~[program]~[host]~[planted]"
  step tests/ladder 60 block "$bin/cairn-ladder"
fi

# Attention by length, beside PyTorch's where that is here.
if [ -n "$torch" ]; then
  step timing/peers 400 tables "$python" "$peers/peers.py" --device cuda --program "$bin" --json "$out/peers.json" --budget BUDGET \
    ${tiny:+--lengths 32 --head-sizes 16 --batch 1 --heads 2 --rounds 1}
else
  for precision in $precisions; do for size in $sizes; do for length in $lengths; do for pass in $passes; do
    measure "timing/$precision-$size-$length-$pass" block --attention full,clustered-$C,i-clustered-$C --length "$length" \
      --batch $B --heads $H --head-size "$size" --precision "$precision" --pass "$pass" $repeat
  done; done; done; done
fi

# The paper's figure 4.
for what in attention layer; do
  step figure/$what 150 block "$bin/attention-bench" figure --device cuda --quiet --out "$out/figure-$what" --what $what \
    --precision bf16 --longest 1 $repeat --attention full,clustered-$C,i-clustered-$C $figure
done

# The time of each kernel, to be held against its prediction (cuda/README.md).
for attention in i-clustered-$C full clustered-$C; do for size in $sizes; do for length in $lengths; do
  measure "kernels/$attention-$size-$length" stages --attention $attention --stages --precision bf16 --length "$length" \
    --batch $B --heads $H --head-size "$size" --json $repeat
done; done; done

for name in $models; do
  step "copy-task/${name/\//-}" 120 training "$bin/copy-task" train --device cuda --attention "${name%/*}" \
    --precision "${name#*/}" $model --quiet --json
done

# Memory, races, barriers and reads of what nobody wrote, in every variant at small shapes.
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck synccheck initcheck; do
    step sanitizer/$tool 90 sanitizer_totals compute-sanitizer --tool $tool --error-exitcode 9 "$bin/cairn-cuda-tests" \
      "memory goes to the device*,tensor cores multiply*,a warp loads*,every attention variant gives the same bits*"
  done
else
  step sanitizer/none 5 block "$BASH" -c 'echo "compute-sanitizer is not here"'
fi

# ------------------------------------------------------------------------------------------------------------- summary

gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
left=0
summarize() {
  local entry part=''
  left=0
  {
    echo "# On a GPU: ${gpu:-none, but the emulator}"
    echo
    echo "$(date -u +%F), commit $commit, \`$version\`${cublas:+, ${cublas##*/}}, by cuda/run_on_gpu.sh${tiny:+ --tiny}"
    for entry in "${steps[@]}"; do
      if [ "${entry%%/*}" != "$part" ]; then
        part=${entry%%/*}
        printf '\n## %s\n\n' "$part"
      fi
      if [ -e "$out/steps/${entry/\//-}.md" ]; then
        cat "$out/steps/${entry/\//-}.md"
      else
        echo "- ${entry#*/}: not run yet"
        left=$((left + 1))
      fi
    done
    echo
    if [ $left = 0 ]; then echo "Complete."; else echo "$left steps are left: the same call again goes on."; fi
  } >"$out/summary.tmp"
  mv "$out/summary.tmp" "$out/summary.md"
}

# run INDEX SECONDS: a step, for at most so long; leaves its part of the summary, unless it was cut short by the budget.
run() {
  local entry=${steps[$1]} code=0 begun=$SECONDS
  local name=${entry/\//-}
  echo "== $entry"
  eval "timeout -k 5 $2 ${commands[$1]//BUDGET/$(($2 * 5 / 6))}" >"$out/logs/$name.log" 2>&1 || code=$?
  if [ $code = 124 ] && [ "$2" -lt "${limits[$1]}" ]; then return; fi
  {
    case $code in
      0) echo "- ${entry#*/}: passed, $((SECONDS - begun)) s" ;;
      124 | 137) echo "- ${entry#*/}: **stopped** after $2 s" ;;
      *) echo "- ${entry#*/}: **failed** ($code), $((SECONDS - begun)) s" ;;
    esac
    ${shows[$1]} <"$out/logs/$name.log"
    [ $code = 0 ] || tail -n 12 "$out/logs/$name.log" | block
  } >"$out/steps/$name.tmp"
  mv "$out/steps/$name.tmp" "$out/steps/$name.md"
  cat "$out/steps/$name.md"
}

summarize
for ((i = 0; i < ${#steps[@]}; ++i)); do
  seconds=$((budget - SECONDS))
  [ ! -e "$out/steps/${steps[i]/\//-}.md" ] || continue
  [ $((2 * seconds)) -ge "${limits[i]}" ] || continue # less than half its time is left: for the next call
  run $i $((seconds < limits[i] ? seconds : limits[i]))
  summarize
done
for log in "$out"/logs/*; do # all of it fits into 16 MB
  [ -e "$log" ] && [ "$(stat -c %s "$log")" -gt 200000 ] || continue
  tail -c 200000 "$log" >"$log.tail" && mv "$log.tail" "$log"
done
tar -C "$out" --exclude results.tar -cf "$out/results.tar" .
echo "$out/summary.md"
if grep -q -F -e '**failed' -e '**stopped' "$out/summary.md"; then exit 1; fi
[ $left = 0 ] || exit 3
