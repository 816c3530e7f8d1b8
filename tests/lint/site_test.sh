#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# site_test.sh ROOT: `docs/build --strict` builds a small tree of pages, and fails with each fault
# that is planted.
set -eu
root=$1
"$root/docs/build" --prepare || exit $?
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

# tree: pages without a fault
tree() {
    rm -rf "$tmp/tree"
    mkdir "$tmp/tree"
    cd "$tmp/tree"
    mkdir -p docs/use docs/pictures docs/man deploy core include/hearth
    cp -r "$root/docs/build" "$root/docs/site" docs
    cp "$root/deploy/packages" deploy
    echo '#define HEARTH_VERSION "1.2.3"' >include/hearth/version.h
    echo 'int x;' >core/a.h
    printf '# A library\n\nSee [all pages](docs/README.md), [core](core/README.md).\n' >README.md
    printf '# Core\n\n[up](../docs/use/page.md#the-first-one-put-and-get), [code](a.h)\n' \
        >core/README.md
    printf '# Pages\n\n## Questions\n\n[a](use/page.md)\n\n## Use it\n\n[use](use/page.md)\n' \
        >docs/README.md
    printf '%s\n' '.TH P 1 "" "A 1" "A"' '.SH NAME' 'p, q \\- do it' '.SH DESCRIPTION' \
        'Reads a zebra.' >docs/man/p.1
    printf '%s\n' '.TH R 3 "" "A 1" "A"' '.SH NAME' 'r \\- call it' '.SH "SEE ALSO"' '.BR q (1)' \
        >docs/man/r.3
    echo '<svg xmlns="http://www.w3.org/2000/svg"></svg>' >docs/pictures/one.svg
    cat >docs/use/page.md <<'P'
# Use

## The first one: `put` and get

See [above](#the-first-one-put-and-get), [core](../../core/README.md),
[elsewhere](https://example.org/#x), [p(1)](../man/p.1).

![a picture](../pictures/one.svg)
P
}

build() {
    HEARTH_SITE_VENV=${HEARTH_SITE_VENV:-$root/build/site-venv} docs/build "$@" >"$tmp/said" 2>&1
}

lint() { build --strict; }

# shellcheck source=noticed.sh
. "$root/tests/lint/noticed.sh"

page=docs/use/page.md
tree
lint || { echo "refused: pages without a fault"; cat "$tmp/said"; bad=1; }
for file in index.html searchindex.js docs/use/page.html _images/one.svg; do
    [ -s build/site/$file ] || { echo "there is no build/site/$file"; bad=1; }
done
grep -q 'Use it' build/site/index.html ||
    { echo "the site has no section of docs/README.md"; bad=1; }
find build/site/_downloads -name a.h | grep -q . || { echo "a linked header is not there"; bad=1; }

man=build/site/build/site-man
grep -q 'href="[./]*build/site-man/p.1.html"' build/site/docs/use/page.html ||
    { echo "a link to a manual page does not lead to its HTML"; bad=1; }
grep -q 'href="p.1.html"><b>q</b>(1)' $man/r.3.html || { echo "q(1) is no link in r(3)"; bad=1; }
grep -q zebra build/site/searchindex.js || { echo "manual pages are not in the search"; bad=1; }

tree; echo '[x](../man/gone.1)' >>$page; says "'../man/gone.1'"
tree; echo '[x](gone.md)' >>$page; says "cross-reference target not found: 'gone.md'"
says "cross-reference target not found: 'gone.md'" # and again, of the same tree
build || { echo "without --strict it is no failure"; cat "$tmp/said"; bad=1; }
tree
printf '[%s](%s)\n\n' x ../README.md#nowhere y '#nothing' z ../../core/gone.h >>$page
echo '![w](gone.svg)' >>$page
says "'nowhere'"
for one in "'nothing'" "'../../core/gone.h'" "gone.svg"; do
    grep -qF -- "$one" "$tmp/said" || { echo "not noticed: $one"; bad=1; }
done
tree; echo '# Alone' >docs/use/alone.md; echo '[alone](alone.md)' >>$page
says "alone.md: WARNING: document isn't included in any toctree"
exit $bad
