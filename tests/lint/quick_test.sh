#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quick_test.sh [FOLDER...]: in a clone of the committed tree, with everything built: a bug is planted in one
# file of each folder, and `tests/run --quick` has to find it. A line for each: seconds and verdict. On
# demand: it takes half an hour; the result is recorded in tests/on-demand.md.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# FILE | sed expression that makes it wrong and lets it compile
bugs='
core/base/set.c                 | s/number + 1, hash }/number + 2, hash }/
core/format/keep.c              | s/k.serial = hth_read64(&r)/k.serial = 1 + hth_read64(\&r)/
core/local/packet.c             | s/return HTH_PACKET_GOT;/return HTH_PACKET_BAD;/
core/store/pool.c               | s/(!best || is_better(s, best, class, taker))/(!best || !is_better(s, best, class, taker))/
core/torch/header.c             | s/header_dimension(w, header->shape\[i\])/header_dimension(w, header->shape[0])/
core/foreign/items.c            | s/f.length = used + bytes;/f.length = bytes;/
transport/ids.c                 | s/<< 32 | (i + 1)/<< 32 | i/
transport/session/link.c        | s/link->state == LINK_OPEN ? link->version : HTH_VERSION_LOW/HTH_VERSION_LOW/
transport/loop/pull.c           | s/pull->len > grant->len - pull->roff/pull->len >= grant->len - pull->roff/
transport/ofi/pull.c            | s/\.left = len,/.left = len + 1,/
transport/ucx/pull.c            | s/hth_put64(ask + 24, p->len);/hth_put64(ask + 24, p->len \/ 2);/
replication/held/seal.c         | s/memcmp(digest, j->object.digest, HTH_DIGEST) != 0/memcmp(digest, j->object.digest, HTH_DIGEST) == 0/
replication/tree/tree.c         | s/(node - 1) \/ /(node) \/ /
replication/transfer/offer.c    | s/if (is_granted(ctx, o, held))/if (0)/; s/offer_is_granted(ctx, o, held)/0 \&\& offer_is_granted(ctx, o, held)/
replication/commit/placement.c  | s/ < copies + 1 \&\& level > 0/ < copies \&\& level > 0/
loader/plan/inventory.c         | s/HTH_DIGEST) == 0/HTH_DIGEST) != 0/
loader/restore/carry.c          | s/hth_save_cmp(p->keep\[i\], save) == 0/hth_save_cmp(p->keep[i], save) != 0/
loader/choice/candidate.c       | s/k->serial > ours->serial/k->serial < ours->serial/
loader/recover.c                | s/hth_choice_join(r->choice);/(void)r->choice;/
engine/reads/find.c                   | s/id.epoch == n->epoch.epoch/id.epoch != n->epoch.epoch/
daemon/main.c                   | s/EXIT_LOCKED = 3/EXIT_LOCKED = 0/
client/base/text.c              | s/HEARTH_COPIED, "COPIED"/HEARTH_COPIED, "SEALED"/
client/opts/told.c              | s/(const char \*)joined + told\[i\].told_at/(const char *)joined + told[i].at/
client/device/fold.c            | s/copy->width \*= copy->rows;/copy->width += copy->rows;/
client/link/events.c            | s/st->step = s->save.step;/st->step = s->save.epoch;/
client/slots/strided.c          | s/s->dst\[last\] == dst \* len/s->dst[last] != dst * len/
meeting/wire.c                  | s/k, GREETING_AT);/k, GREETING_AT - NONCE);/
client/join/join.c              | s/if (seen > g.highest_epoch)/if (seen < g.highest_epoch)/
client/save/handle.c            | s/level == HEARTH_COPIED ? s->copied : //
client/read/box.c               | s/slab.offset\[d\] = cut_end;/slab.offset[d] = cut->offset[d];/
cli/verify.c                    | s/r->good++/r->bad++/
include/hearth/version.h        | s/HEARTH_VERSION_NUMBER 1000/HEARTH_VERSION_NUMBER 1001/
'
git clone -q "$root" "$tmp/tree"
cd "$tmp/tree" || exit 2
if ! { cmake --preset debug && cmake --build build/debug -j2; } >"$tmp/log" 2>&1; then
    tail "$tmp/log"
    exit 2
fi

# What a right file of each kind says: nothing.
tests/run --quick core/base/set.c transport/ids.c loader/recover.c engine/reads/find.c client/read/box.c cli/verify.c daemon/main.c \
    include/hearth/version.h >"$tmp/right" 2>&1 || { echo "fails as it is:"; tail -n 20 "$tmp/right"; exit 1; }

# found_by LOG: the tests that failed. What format, arrows and names say of a planted bug does not count.
found_by() {
    sed -nE 's/^\t *[0-9]+ - ([^ ]+) \(.*/\1/p; s/^FAILED  (simulator),.*/\1/p' "$1" | paste -sd' '
}

bad=0 count=0 slowest=0
while IFS='|' read -r file edit; do
    file=$(echo "$file" | tr -d ' ')
    [ -n "$file" ] || continue
    [ $# = 0 ] || case " $* " in *" ${file%/*} "*) ;; *) continue ;; esac
    sed -i "$edit" "$file"
    if git diff --quiet; then
        echo "$file: no bug was planted"
        bad=1
        continue
    fi
    began=$SECONDS
    tests/run --quick "$file" >"$tmp/wrong" 2>&1
    took=$((SECONDS - began))
    by=$(found_by "$tmp/wrong")
    verdict="found by $by"
    [ -n "$by" ] || { bad=1; verdict='NOT FOUND'; }
    ! grep -q '^FAILED  build' "$tmp/wrong" || { bad=1; verdict='DOES NOT COMPILE'; }
    git checkout -q -- . # and the next build has both files to compile
    count=$((count + 1))
    [ $took -le $slowest ] || slowest=$took
    printf '%-32s %3d s  %s\n' "$file" $took "$verdict"
done <<<"$bugs"
echo "$count folders, the slowest in $slowest s"
[ $# != 0 ] || "$root/tests/record" tests/lint/quick_test.sh $bad "$count planted bugs, the slowest run took $slowest s"
exit $bad
