/* SPDX-License-Identifier: Apache-2.0 */
/* Few nodes give bytes to a node, so a list is enough; without memory for it the total is still
 * right. */
#include "tally.h"

#include "transfer.h"

#include <stdlib.h>
#include <string.h>

struct hth_tally_node *hth_tally_of(struct hth_tally *t, uint32_t node)
{
    struct hth_tally_node *more;
    uint32_t i = 0;

    while (i < t->nodes && t->node[i].node != node)
        i++;
    if (i == t->nodes) {
        more = realloc(t->node, (i + 1) * sizeof(*more));
        if (!more)
            return NULL;
        t->node = more;
        t->node[t->nodes++] = (struct hth_tally_node){ .node = node };
    }
    return &t->node[i];
}

void hth_tally_add(struct hth_tally *t, uint32_t node, uint64_t bytes)
{
    struct hth_tally_node *n = hth_tally_of(t, node);

    t->total += bytes;
    if (!n)
        return;
    n->bytes += bytes;
    n->pulls++;
}

void hth_tally_begin(struct hth_tally *t, uint32_t node, uint64_t now_ms)
{
    struct hth_tally_node *n = hth_tally_of(t, node);

    if (n && !n->under_way++)
        n->under_way_since_ms = now_ms;
}

/* A pull of the epoch before has no row any more. */
void hth_tally_end(struct hth_tally *t, uint32_t node, uint64_t now_ms)
{
    struct hth_tally_node *n = hth_tally_of(t, node);

    if (n && n->under_way && !--n->under_way)
        n->pull_ms += now_ms - n->under_way_since_ms;
}

uint64_t hth_tally_pull_ms(const struct hth_tally_node *n, uint64_t now_ms)
{
    return n->pull_ms + (n->under_way ? now_ms - n->under_way_since_ms : 0);
}

void hth_tally_read(const struct hth_tally *t, uint64_t *out_bytes, uint32_t nodes)
{
    memset(out_bytes, 0, nodes * sizeof(*out_bytes));
    for (uint32_t i = 0; i < t->nodes; i++)
        if (t->node[i].node < nodes)
            out_bytes[t->node[i].node] = t->node[i].bytes;
}

void hth_tally_reset(struct hth_tally *t, uint64_t now_ms)
{
    t->since_ms = now_ms;
    t->total = 0;
    t->nodes = 0;
}

void hth_tally_fini(struct hth_tally *t)
{
    free(t->node);
    *t = (struct hth_tally){ 0 };
}
