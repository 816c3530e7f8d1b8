#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pages_test.sh ROOT: pages.py passes a small tree of pages, and names each fault that is planted.
set -eu
root=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
git init -q "$tmp/tree"
bad=0

# tree: pages without a fault, with what may look like one
tree() {
    cd "$tmp/tree"
    rm -rf docs tests ./*.md
    mkdir -p docs/use tests
    cat >README.md <<'P'
# A library

See [use](docs/use/page.md#the-first-one-put-and-get), [why](tests/why.md),
the [code](code.c), and [elsewhere](https://example.org/#x).

```sh
apt-get install -y LONG
```
P
    cat >docs/use/page.md <<'P'
# Use

## The first one: `put` and get

Who can read my checkpoints? What does it cost? A log line `who asks` is code, and `nobody` too.

- A peer that requests one more is disconnected. See [above](#the-first-one-put-and-get).

| a table may have a line that is long | LONG |
|---|---|
P
    sed -i "s/LONG/$(printf 'x%.0s' {1..100})/" README.md docs/use/page.md
    echo '# Why' >tests/why.md
    : >code.c
    git add -A
}

lint() {
    git -C "$tmp/tree" add -A
    "$root/tests/lint/pages.py" "$tmp/tree" >"$tmp/said" 2>&1
}

# shellcheck source=noticed.sh
. "$root/tests/lint/noticed.sh"

tree
lint || { echo "refused: pages without a fault"; cat "$tmp/said"; bad=1; }

page=docs/use/page.md
tree; printf '\nA long line of text: %s\n' "$(printf 'x%.0s' {1..80})" >>$page
says 'columns, 100 are the most'
tree; printf '\n    code that is long: %s\n' "$(printf 'x%.0s' {1..100})" >>$page
says 'columns, 120 are the most'
tree; for _ in {1..251}; do echo; done >>$page; says '250 are the most'
tree; echo 'See [this](gone.md).' >>$page; says 'gone.md, which is not there'
tree; echo 'See [this](../../tests/why.md#because).' >>$page; says 'has no heading #because'
tree; echo 'See [this](#nowhere).' >>$page; says 'has no heading #nowhere'
tree; echo '# Alone' >docs/use/alone.md; says 'docs/use/alone.md: README.md leads to it by no link'
tree; echo '[each](b.md)' >docs/use/a.md; echo '[other](a.md)' >docs/use/b.md
says 'docs/use/a.md: README.md leads to it by no link'

# Each construction, in text, in an item, and in a table; on a page of tests/ it may stand.
"$root/tests/lint/pages.py" --words >"$tmp/words"
[ -s "$tmp/words" ] || { echo "no words"; bad=1; }
while IFS=$'\t' read -r remedy sentence; do
    tree; printf '| a | %s |\n\n%s\n\n- Before it. %s\n' "$sentence" "$sentence" "$sentence" >>$page
    says "$remedy"
    [ "$(grep -cF -- "$remedy" "$tmp/said")" = 3 ] || { echo "not three times: $sentence"; bad=1; }
    tree; printf '\n%s\n' "$sentence" >>tests/why.md; git add -A
    lint || { echo "refused on a page of tests/: $sentence"; cat "$tmp/said"; bad=1; }
done <"$tmp/words"

# The plain sentences pass.
tree
cat >>$page <<'P'

At most 64 pulls may be queued on a connection. A node accepts an unsolicited blob only from its
ancestors. A step that lacks a part is not a save. If the job dies between the two calls, recovery
returns the step before. With `allow_degraded`, a save with too few copies also counts as PROTECTED,
and is reported as DEGRADED. The most recently opened job's `linger_s` applies. Strides of empty
dimensions are ignored.
P
git add -A
lint || { echo "refused: plain sentences"; cat "$tmp/said"; bad=1; }
exit $bad
