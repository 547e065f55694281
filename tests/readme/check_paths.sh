#!/bin/sh
# check_paths: what the README's reading path and documentation name exists. Under "<!-- reading path -->" each numbered
# line names `file` and, in brackets behind it, (`text`) that must stand in that file; there are at most six.
set -eu
cd "$(dirname "$0")/../.."
steps=$(sed -n '/<!-- reading path -->/,/<!-- end -->/p' README.md | grep -E '^[0-9]+\. ')
count=$(echo "$steps" | wc -l)
[ "$count" -ge 2 ] && [ "$count" -le 6 ] || { echo "expected 2 to 6 places, got $count"; exit 1; }
echo "$steps" | while IFS= read -r step; do
  file=$(echo "$step" | sed -E 's/^[0-9]+\. `([^`]+)`.*/\1/')
  text=$(echo "$step" | sed -E 's/^[^(]*\(`([^`]+)`\).*/\1/')
  [ -f "$file" ] || { echo "no such file: $file"; exit 1; }
  grep -qF -- "$text" "$file" || { echo "$file does not contain '$text'"; exit 1; }
done
# Every file or folder that a README names in backquotes with a slash exists (in cuda/README.md's predictions these are
# kernels).
status=0
for readme in README.md */README.md */*/README.md; do
  for name in $(sed '/<!-- predictions/,/<!-- end/d' "$readme" | grep -oE '`[a-z_]+/[A-Za-z0-9_./-]*`' | tr -d '`' | grep -vE '^build/|foo'); do
    [ -e "$name" ] || { echo "$readme: no such file: $name"; status=1; }
  done
done
exit $status
