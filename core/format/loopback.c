/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks' rows with nodes that listen on loopback, where no other machine reaches them. */
#include "epoch.h"

#include "core/base/bytes.h"
#include "core/base/fail.h"
#include <string.h>

#define NODE_AT     80u
#define LOOPBACK_AT 484u

struct place {
    const unsigned char *row; /* NULL: none */
    uint32_t rank, loopback;
};

static int place_differs(const struct place *a, const struct place *b)
{
    return a->row && b->row && (a->loopback ^ b->loopback) > HTH_LOOPBACK_LISTENS &&
           memcmp(a->row + NODE_AT, b->row + NODE_AT, HTH_NAME_MAX) != 0;
}

int hth_loopback_check(const unsigned char *table, uint32_t world, struct hearth_error *err)
{
    struct place first = { 0 }, other = { 0 }, listens = { 0 };
    const struct place *far;

    for (uint32_t i = 0; i < world; i++) {
        const unsigned char *row = table + (size_t)i * HTH_GATHER;
        struct place p = { .row = row, .rank = i, .loopback = hth_get32(row + LOOPBACK_AT) };

        if (p.loopback <= HTH_LOOPBACK_LISTENS)
            continue;
        if (!first.row)
            first = p;
        if (!other.row && place_differs(&first, &p))
            other = p;
        if (!listens.row && p.loopback & HTH_LOOPBACK_LISTENS)
            listens = p;
    }
    far = place_differs(&listens, &first) ? &first : &other;
    if (!place_differs(&listens, far))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, 0,
            "node '%.64s' (rank %u) listens on loopback, and node '%.64s' (rank %u) is "
            "elsewhere%s: set bind (HEARTH_BIND) on each node to an address that the others reach",
            (const char *)listens.row + NODE_AT, listens.rank, (const char *)far->row + NODE_AT,
            far->rank, far->loopback & HTH_LOOPBACK_LISTENS ? ", on a loopback of its own" : "");
}
