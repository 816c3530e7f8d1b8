#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# runbook_test.sh ROOT: runbook.py passes a small tree, and names each fault that is planted.
set -eu
root=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

# tree: a page and code that agree
tree() {
    rm -rf "$tmp/tree"
    mkdir -p "$tmp/tree"/{docs/operate,engine/job,engine/driver,include/hearth}
    cd "$tmp/tree"
    cat >engine/job/health.h <<'P'
#define HEALTH_CHECKS(X) \
    X(node_lost, 1)      \
    X(no_room, 2)
P
    echo '    X(HEARTH_EIO, -111, "the system refused")' >include/hearth/error.h
    cat >engine/driver/some.c <<'P'
void some(void)
{
    hth_say(&n->log, HEARTH_LOG_WARN, "peer-lost", "node %s (%u, \"x\")", name(a, b), 1);
    hth_say(&n->log, HEARTH_LOG_DEBUG, "peer-busy", "x");
    hth_say(&n->log, rc ? HEARTH_LOG_ERROR : HEARTH_LOG_INFO,
            "engine-ends", "x");
    hth_say(&n->log, level, is ? "confined" : "unconfined", "x");
    driver_give_up(d, &why, "lock-lost", err);
    /* hth_say(&n->log, HEARTH_LOG_WARN, "in-a-comment", "x"); */
}
P
    printf '# Runbook\n\n## Part\n\nText.\n' >docs/operate/runbook.md
    for one in node_lost no_room HEARTH_EIO peer-lost engine-ends confined unconfined lock-lost \
        engine-crashed log-held-back; do
        printf '\n### %s\n\nMeaning.\n' "$one" >>docs/operate/runbook.md
    done
}

lint() {
    "$root/tests/lint/runbook.py" "$tmp/tree" >"$tmp/said" 2>&1
}

# shellcheck source=noticed.sh
. "$root/tests/lint/noticed.sh"

tree
lint || { echo "refused: a page that agrees with the code"; cat "$tmp/said"; bad=1; }
tree; printf '\n### peer-busy\n\nAn id at debug may have an entry.\n' >>docs/operate/runbook.md
lint || { echo "refused: an entry for a line at debug"; cat "$tmp/said"; bad=1; }

page=docs/operate/runbook.md code=engine/driver/some.c
for name in peer-lost engine-ends confined unconfined lock-lost; do
    tree; sed -i "/^### $name\$/,+2d" $page; says "no entry for $name, an event"
    tree; sed -i "s/\"$name\"/\"other\"/" $code; says "the code has no $name"
done
tree; sed -i '/^### no_room$/,+2d' $page; says 'no entry for no_room, a check'
tree; sed -i '/no_room/d; s/1)  *\\$/1)/' engine/job/health.h; says 'the code has no no_room'
tree; sed -i '/^### HEARTH_EIO$/,+2d' $page; says 'no entry for HEARTH_EIO, a code'
tree; sed -i 's/HEARTH_EIO/HEARTH_EOTHER/' include/hearth/error.h; says 'the code has no HEARTH_EIO'
tree; printf '\n### peer-lost\n\nTwice.\n' >>$page; says 'peer-lost has an entry in line'
tree; sed -i '/^### lock-lost$/,+2d' $page; printf '\n### lock-lost\n' >>$page; says 'has no text'
exit $bad
