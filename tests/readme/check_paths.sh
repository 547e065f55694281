#!/bin/sh
# check_paths: what documents name or link to exists. In the README, under "<!-- reading path -->", each numbered line
# names `file` and, in brackets behind it, (`text`) that must stand in that file; there are at most six.
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
# Every file or folder that a document names in backquotes with a slash exists (in cuda/README.md's predictions these are
# kernels).
status=0
for readme in *.md */*.md */*/*.md; do
  for name in $(sed '/<!-- predictions/,/<!-- end/d' "$readme" | grep -oE '`[a-z_]+/[A-Za-z0-9_./-]*`' | tr -d '`' | grep -vE '^build/|foo'); do
    [ -e "$name" ] || { echo "$readme: no such file: $name"; status=1; }
  done
  for link in $(grep -oE '\]\([^)#: ]+[)#]' "$readme" | tr -d '](#)'); do  # no addresses
    [ -e "$(dirname "$readme")/$link" ] || { echo "$readme: no such link: $link"; status=1; }
  done
done
[ "$(wc -l <README.md)" -le 150 ] || { echo "README.md: expected at most 150 lines"; status=1; }
exit $status
