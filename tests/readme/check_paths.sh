#!/bin/sh
# check_paths: checks that what documents name or link to exists, and the reading paths of core/READING.md. A heading
# "## ..., at most N lines" begins a path. Each stop, "1. `file` (`text`): ...", names a file and a text in it. The files of a
# path have at most N lines together.
set -eu
cd "$(dirname "$0")/../.."
status=0
fail() {
  echo "core/READING.md: $1"
  status=1
}
paths=0 path='' stops=0 lines=0 limit=0
end_path() {
  [ -z "$path" ] || [ "$stops" -gt 0 ] || fail "no stops: $path"
  [ "$lines" -le "$limit" ] || fail "$lines lines: $path"
}
while IFS= read -r line; do
  case $line in
    '## '*', at most '*' lines')
      end_path
      path=${line#'## '} limit=$(echo "${line##*at most }" | tr -cd 0-9) paths=$((paths + 1)) stops=0 lines=0
      ;;
    [0-9]*'. '*)
      file=$(echo "$line" | sed -E 's/^[0-9]+\. `([^`]+)`.*/\1/')
      text=$(echo "$line" | sed -E 's/^[^(]*\(`([^`]+)`\).*/\1/')
      stops=$((stops + 1))
      [ -f "$file" ] || { fail "no such file: $file"; continue; }
      grep -qF -- "$text" "$file" || fail "$file does not contain '$text'"
      lines=$((lines + $(wc -l <"$file")))
      ;;
  esac
done <core/READING.md
end_path
[ "$paths" -eq 3 ] || fail "expected 3 paths, got $paths"
# Every file or folder that a document names in backquotes with a slash exists.
for readme in *.md */*.md */*/*.md; do
  for name in $(grep -oE '`[a-z_]+/[A-Za-z0-9_./-]*`' "$readme" | tr -d '`' | grep -vE '^build/|foo'); do
    [ -e "$name" ] || { echo "$readme: no such file: $name"; status=1; }
  done
  for link in $(grep -oE '\]\([^)#: ]+[)#]' "$readme" | tr -d '](#)'); do  # no addresses
    [ -e "$(dirname "$readme")/$link" ] || { echo "$readme: no such link: $link"; status=1; }
  done
done
[ "$(wc -l <README.md)" -le 150 ] || { echo "README.md: expected at most 150 lines"; status=1; }
exit $status
