#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# picture_test.sh ROOT: picture.py names what is wrong in copies of the page, and of the tree.
# shellcheck disable=SC2016 # backquotes, as they stand in the page
set -eu
root=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
git -C "$root" ls-files '*.c' CMakeLists.txt docs/design/architecture.md docs/pictures/folders.dot |
    (cd "$root" && tar -cT -) | tar -xC "$tmp"
git -C "$tmp" init -q
git -C "$tmp" add -A
cp "$tmp/docs/design/architecture.md" "$tmp/page"
cp "$tmp/CMakeLists.txt" "$tmp/lists"
cp "$tmp/docs/pictures/folders.dot" "$tmp/drawing"
bad=0

lint() { "$root/tests/lint/picture.py" "$tmp" >"$tmp/said" 2>&1; }

# shellcheck source=noticed.sh
. "$root/tests/lint/noticed.sh"

# planted WORDS FILE SED: with that edit the lint fails, with these words.
planted() {
    sed -i "$3" "$tmp/$2"
    says "$1"
    cp "$tmp/page" "$tmp/docs/design/architecture.md"
    cp "$tmp/lists" "$tmp/CMakeLists.txt"
    cp "$tmp/drawing" "$tmp/docs/pictures/folders.dot"
}

lint || { echo "refused: the page as it is"; cat "$tmp/said"; bad=1; }
page=docs/design/architecture.md
planted 'no row for core/torch/' $page '/^| `core\/torch\/`/d'
planted 'core/torch/ stands on core/base, not on core/base core/format' $page \
    '/^| `core\/torch\/`/s/core\/base |$/core\/base, core\/format |/'
planted 'engine/state/ stands on' CMakeLists.txt \
    's/^hearth_folder(engine\/state core /hearth_folder(engine\/state client core /'
picture=docs/pictures/folders.dot
planted 'the picture lets core/base/ see core/format/' $picture \
    's/"core\/format" -> "core\/base"/"core\/base" -> "core\/format"/'
planted 'the picture lets loader/plan/ see replication/held/' $picture \
    's/"loader\/plan" -> .*/"loader\/plan" -> "replication\/held" [lhead="cluster_replication"]/'
planted 'client/save/ is not in the picture' $picture '/client\/save/d'
planted 'has no no_such()' $page 's/hearth_save_begin()/no_such()/'
planted 'client/save/gone.c has no' $page 's/client\/save\/save.c:/client\/save\/gone.c:/'
planted 'there is no walk' $page '/^| [0-9]* | `/d'
exit $bad
