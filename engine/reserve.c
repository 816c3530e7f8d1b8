/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots are made ahead of the saves that will want them: at joining, for as many bytes as each rank
 * said that its part has; where a rank said none, as large as what it has just written.
 */
#include "reserve.h"

#include "loan.h"
#include "node_state.h"
#include "replication/held/slots.h"

#include <stdlib.h>

#define EXTRA_SLOTS 1024u /* for readers and repair together */

void reserve_no_sizes(struct hth_node *n)
{
    n->not_foreseen = 0;
    free(n->shard_bytes);
    n->shard_bytes = NULL;
}

int reserve_sizes(
        struct hth_node *n, const unsigned char *table, uint32_t world, struct hearth_error *err)
{
    reserve_no_sizes(n);
    for (uint32_t r = 0; r < world; r++) {
        uint64_t bytes = hth_gather_shard_bytes(table + (size_t)r * HTH_GATHER);

        if (bytes && !n->shard_bytes)
            n->shard_bytes = calloc(world, sizeof(*n->shard_bytes));
        if (bytes && !n->shard_bytes)
            return hth_fail(err, HEARTH_ENOMEM, 0, "%" PRIu32 " ranks", world);
        if (bytes)
            n->shard_bytes[r] = bytes;
    }
    return HEARTH_OK;
}

uint64_t reserve_said(const struct hth_node *n, uint32_t rank)
{
    return n->shard_bytes && rank < n->epoch.world ? n->shard_bytes[rank] : 0;
}

/* Slots for keep + 1 saves of what our ranks own and we hold for others, and one largest each. */
int reserve_slots(struct hth_node *n, struct hearth_error *err)
{
    const struct hth_epoch *e = &n->epoch;
    uint32_t generations = n->ctx.opts.keep + 1;
    uint64_t *bytes = !n->shard_bytes ? NULL
                                      : calloc((size_t)(e->world + 1) * generations + EXTRA_SLOTS,
                                                sizeof(*bytes));
    uint32_t holder[HTH_COPIES_MAX];
    uint64_t largest = 0;
    uint64_t extra = n->opts.lease_bytes + n->opts.spare_bytes;
    size_t count = 0;
    int rc;

    hth_point(&n->ctx.points, "reserve");
    if (!n->shard_bytes)
        return HEARTH_OK; /* nobody has said any */
    if (!bytes)
        return hth_fail(err, HEARTH_ENOMEM, 0, "reservation");
    for (uint32_t r = 0; r < e->world; r++) {
        uint32_t copies = hth_commit_holders(n->commit, r, holder);
        int here = e->rank_node[r] == e->self;

        for (uint32_t i = 0; i < copies; i++)
            here |= holder[i] == e->self;
        if (!here || !n->shard_bytes[r])
            continue;
        largest = n->shard_bytes[r] > largest ? n->shard_bytes[r] : largest;
        for (uint32_t g = 0; g < generations; g++)
            bytes[count++] = n->shard_bytes[r];
    }
    for (uint32_t g = 0; g < generations && largest; g++)
        bytes[count++] = largest;
    for (uint32_t i = 0; i < EXTRA_SLOTS && largest && extra; i++) {
        bytes[count++] = largest;
        extra = extra > largest ? extra - largest : 0;
    }
    rc = count ? hth_slots_reserve(&n->ctx, bytes, count, err) : HEARTH_OK;
    free(bytes);
    return rc;
}

/* What BEGIN will ask for again; of copies what their offers will. */
static uint64_t reserve_asked_for(
        const struct hth_node *n, struct hth_save_id save, const struct hth_held *h)
{
    uint32_t index = (uint32_t)h->object.id;

    for (const struct loan *l = n->loans; l; l = l->next)
        if (l->has_id && !hth_save_cmp(l->save, save) && l->rank == h->object.owner &&
                index < l->objects)
            return l->object[index].asked;
    return h->state == HTH_HELD_SEALED ? hth_object_file_bytes(&h->object) : 0;
}

static size_t reserve_sizes_of(
        const struct hth_node *n, const struct hth_held_save *s, uint64_t *out, size_t max)
{
    size_t count = 0;

    for (const struct hth_held *h = s->held; h; h = h->next) {
        uint64_t bytes = h->object.kind == HTH_OBJECT_SHARD ? reserve_asked_for(n, s->id, h) : 0;

        if (!bytes || h->object.owner >= n->epoch.world || reserve_said(n, h->object.owner))
            continue; /* no slot, not whole yet, or reserved when its rank joined */
        for (uint32_t g = 0; g <= n->ctx.opts.keep && count < max; g++)
            out[count++] = bytes;
    }
    return count;
}

void reserve_ahead(struct hth_node *n, struct hth_save_id save)
{
    const struct hth_held_save *s = hth_holdings_find(&n->ctx, save);
    size_t max = 0, count;
    struct hearth_error err;
    uint64_t *bytes;

    for (const struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        max += n->ctx.opts.keep + 1;
    bytes = max ? calloc(max, sizeof(*bytes)) : NULL;
    count = bytes ? reserve_sizes_of(n, s, bytes, max) : 0;
    if (count && n->env.store->ops->foresee(n->env.store, bytes, count, &err) && !n->not_foreseen) {
        n->not_foreseen = 1;
        hth_say(&n->ctx.log, HEARTH_LOG_WARN, "not-foreseen",
                "slots of the next save are not made ahead, so that it will be slow: %s", err.text);
    }
    free(bytes);
}

void reserve_close(struct hth_node *n)
{
    free(n->shard_bytes);
    n->shard_bytes = NULL;
}
