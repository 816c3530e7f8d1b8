#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# spelling_test.sh ROOT: spelling.sh names a misspelled word in a page and in code, and no other.
set -eu
root=$1
command -v codespell >/dev/null || { echo "skip: no codespell"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
git init -q "$tmp"
echo 'A rank receives a table.' >"$tmp/page.md"
git -C "$tmp" add -A
"$root/tests/lint/spelling.sh" "$tmp" || { echo "refused: words that are right"; bad=1; }
for file in page.md code.c; do
	echo '/* A rank recieves a table. */' >"$tmp/$file"
	git -C "$tmp" add -A
	if "$root/tests/lint/spelling.sh" "$tmp" >"$tmp.said" 2>&1 ||
		! grep -q "$file.*recieves" "$tmp.said"; then
		echo "not noticed in $file"
		bad=1
	fi
	git -C "$tmp" rm -qf "$file"
done
rm -f "$tmp.said"
exit $bad
