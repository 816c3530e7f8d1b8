#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# drawn_test.sh ROOT: `draw.py --check` names each picture that does not show what its text has.
set -eu
root=$1
command -v dot >/dev/null || { echo "skip: no dot (Debian's package graphviz)"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/docs/pictures"
bad=0

# pictures: one that shows what its text has
pictures() {
    rm -f "$tmp"/docs/pictures/*
    echo 'digraph one { a -> b [label="goes"]; c [fillcolor=red style=filled] }' \
        >"$tmp/docs/pictures/one.dot"
    "$root/docs/site/draw.py" "$tmp" >/dev/null
}

lint() { "$root/docs/site/draw.py" "$tmp" --check >"$tmp/said" 2>&1; }

# shellcheck source=noticed.sh
. "$root/tests/lint/noticed.sh"

pictures
lint || { echo "refused: a picture that shows what its text has"; cat "$tmp/said"; bad=1; }
for change in s/goes/comes/ 's/a -> b/b -> a/' s/red/blue/ 's/c \[/d [/' 's/-> b/-> b; a -> c/'; do
    pictures; sed -i "$change" "$tmp/docs/pictures/one.dot"; says 'does not show what one.dot has'
done
pictures; rm "$tmp/docs/pictures/one.svg"; says 'does not show what one.dot has'
pictures; rm "$tmp/docs/pictures/one.dot"; says 'one.svg: no text to make it from lies beside it'
pictures; echo 'digraph one {' >"$tmp/docs/pictures/one.dot"; says 'syntax error'
exit $bad
