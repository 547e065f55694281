#!/bin/bash
# dry_run.sh BUILD: cuda/run_on_gpu.sh as on a machine with a GPU and nothing else. The emulator's programs of BUILD are packed
# and unpacked into a chroot that holds bash, coreutils, grep, sed, tar, glibc and /dev/null: no python3, no /proc, no
# network. There the script is killed in the middle, begun again, and ends with a full summary.
# Exit codes: 0 as it should be, 1 not, 77 without the right to make a chroot.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root/dev" "$work/root/tmp" "$work/root/bin"
if [ "$(id -u)" != 0 ] || ! chroot / /bin/true || ! mknod -m 666 "$work/root/dev/null" c 1 3; then
  echo "skipped: making a chroot needs root"
  exit 77
fi

# take FILE: the program, with its libraries.
take() {
  cp -L "$1" "$work/root/bin/"
  local library
  for library in $(ldd "$1" | grep -o '/[^ ]*'); do
    mkdir -p "$work/root$(dirname "$library")"
    cp -L "$library" "$work/root$library"
  done
}
for program in bash grep sed tar; do take "$(type -P $program)"; done
for program in basename cat chmod cp cut date dirname env head id ls mkdir mktemp mv readlink rm sleep sort stat tail timeout \
               touch tr true uname wc; do
  take "$(type -P $program)"
done
# What else of glibc the programs need (the pack has the compiler's own libraries).
for library in $(ldd "$1/bin/copy-task" | grep -o '/[^ ]*' | grep -v -e 'libstdc++' -e 'libgcc_s'); do
  mkdir -p "$work/root$(dirname "$library")"
  cp -L "$library" "$work/root$library"
done

"$source/cuda/run_on_gpu.sh" --pack "$work/pack.tar" --build "$1"
tar -C "$work/root" -xf "$work/pack.tar"
summary=$work/root/result/summary.md
call=("$(type -P chroot)" "$work/root" /bin/env -i PATH=/bin /bin/bash /cairn-gpu/run_on_gpu.sh --out /result --tiny)

# Killed, with all that it started, once four steps have passed.
setsid "${call[@]}" &
for ((i = 0; i < 600; ++i)); do
  if [ -e "$summary" ] && [ "$(grep -c ': passed' "$summary")" -ge 4 ]; then break; fi
  sleep 0.1
done
kill -KILL -- "-$!" || true
code=0
wait "$!" 2>/dev/null || code=$?
[ $code = 137 ] || { echo "killed after four steps: expected 137, got $code"; exit 1; }
grep -q 'steps are left' "$summary" || { echo "killed in the middle, it left no summary that says so"; exit 1; }
"${call[@]}" >"$work/second" || { echo "begun again: exit code $?"; cat "$summary"; exit 1; }
if grep -q '^== smoke/' "$work/second"; then echo "begun again, it ran steps that had passed"; exit 1; fi
grep -q '^== copy-task/' "$work/second" || { echo "begun again, it did not run what was missing"; exit 1; }
cat "$summary"
for part in smoke tests timing figure kernels copy-task sanitizer; do
  grep -q "^## $part\$" "$summary" || { echo "the summary has no part $part"; exit 1; }
done
grep -q '^Complete\.$' "$summary" || { echo "the summary is not complete"; exit 1; }
grep -q 'masked accuracy' "$summary" || { echo "no training in the summary"; exit 1; }
[ "$(stat -c %s "$work/root/result/results.tar")" -le 16000000 ] || { echo "results.tar is too large"; exit 1; }
tar -tf "$work/root/result/results.tar" ./summary.md >/dev/null || { echo "no summary in results.tar"; exit 1; }
# A third call has nothing to do.
"${call[@]}" >"$work/third" || { echo "a third call: exit code $?"; exit 1; }
if grep -q '^==' "$work/third"; then echo "a third call ran steps again"; exit 1; fi
# Nor are results of different commits put together.
echo another >"$work/root/result/COMMIT"
code=0
"${call[@]}" >"$work/fourth" 2>&1 || code=$?
[ $code = 2 ] || { echo "results of another commit: expected exit code 2, got $code"; cat "$work/fourth"; exit 1; }
