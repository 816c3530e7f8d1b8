#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# model_test.sh ROOT: model.py names what differs between code, models and their table, in copies of them.
# shellcheck disable=SC2016 # backquotes, as they stand in the page
set -eu
root=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/docs" "$tmp/replication/tree" "$tmp/transport/session"
cp -r "$root/docs/model" "$tmp/docs"
cp "$root/replication/tree/tree.h" "$tmp/replication/tree"
cp "$root/transport/session/frame.h" "$tmp/transport/session"
bad=0

lint() { "$root/tests/lint/model.py" "$tmp" >"$tmp/said" 2>&1; }

# shellcheck source=noticed.sh
. "$root/tests/lint/noticed.sh"

# planted WORDS FILE SED: with that edit the lint fails, with these words.
planted() {
    cp "$tmp/$2" "$tmp/kept"
    sed -i "$3" "$tmp/$2"
    cmp -s "$tmp/$2" "$tmp/kept" && { echo "nothing is edited: $3"; bad=1; }
    says "$1"
    cp "$tmp/kept" "$tmp/$2"
}

lint || { echo "refused: as they are"; cat "$tmp/said"; bad=1; }
page=docs/model/README.md tree=replication/tree/tree.h
planted 'HTH_KIND_MORE of the code has no row' $tree \
    's/^    HTH_KIND_ALIVE = /    HTH_KIND_MORE = 31,\n&/'
planted 'HTH_KIND_ALIVE is not in the code' $tree '/^    HTH_KIND_ALIVE = /d'
planted 'HTH_MSG_MORE of the code has no row' transport/session/frame.h \
    's/^    HTH_MSG_PULLED = /    HTH_MSG_MORE = 63,\n&/'
planted 'HTH_KIND_ALIVE of the code has no row' $page '/^| `HTH_KIND_ALIVE`/d'
planted 'HTH_KIND_ALIVE has two rows' $page '/^| `HTH_KIND_ALIVE`/p'
planted 'HTH_KIND_ALIVE is not named by log.pml' docs/model/log.pml 's/HTH_KIND_ALIVE/the loss/'
planted 'HTH_KIND_ECHO is named by log.pml; its row does not say so' docs/model/log.pml \
    's/HTH_KIND_ALIVE/& HTH_KIND_ECHO/'
planted 'HTH_KIND_NONE of hearth.pml has no row' docs/model/hearth.pml \
    's/HTH_KIND_PLAN/& HTH_KIND_NONE/'
planted 'HTH_KIND_ECHO: its row does not say where' $page \
    's/^\(| `HTH_KIND_ECHO` | outside |\).*/\1 |/'
planted "HTH_KIND_ECHO: 'nowhere' is neither" $page \
    's/^\(| `HTH_KIND_ECHO` |\) outside /\1 nowhere /'
planted 'HTH_KIND_ALIVE is in the code; its row says that it is not' $page \
    's/^\(| `HTH_KIND_ALIVE` | `log.pml`\) /\1, not in the code /'
exit $bad
