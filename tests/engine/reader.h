/* SPDX-License-Identifier: Apache-2.0 */
/* A job of three nodes with one PROTECTED save, in virtual time, and a client that reads from
 * it. */
#ifndef HEARTH_TESTS_ENGINE_READER_H
#define HEARTH_TESTS_ENGINE_READER_H

#include "ours.h"

#include "replication/held/holdings.h"

static void (*adjusted)(uint32_t machine, struct hth_session_opts *session); /* NULL: all alike */

/* One save is PROTECTED, and no rank begins another. */
static inline void start_with(uint32_t data_max)
{
    struct world_opts o = { .seed = 1,
        .nodes = 3,
        .ranks_per_node = 1,
        .copies = 1,
        .keep = 1,
        .run_ms = 600000,
        .data_max = data_max,
        .adjust = adjusted };
    uint32_t rest = 0;

    alarm(60);
    world_open(&w, &o);
    while (!w.why[0] && (rest < w.ranks || w.count[WORLD_PROTECTED] < w.ranks)) {
        world_advance(&w, w.now_ms + 1);
        rest = 0;
        for (uint32_t r = 0; r < w.ranks; r++)
            if (w.rank[r].step == R_RUN && !hth_save_none(w.newest.id)) {
                rank_due(&w.rank[r], HTH_NEVER);
                rest++;
            }
    }
    world_advance(&w, w.now_ms + 500);
}

static inline void start(void)
{
    start_with(100);
}

static inline struct hth_held *object_at(uint32_t at, uint32_t owner, enum hth_object_kind kind)
{
    struct hth_held_save *s = hth_holdings_find(hth_node_ctx(world_node(&w, at)), w.newest.id);
    struct hth_held *h = s ? s->held : NULL;

    while (h && (h->object.kind != (uint32_t)kind ||
                        (kind == HTH_OBJECT_SHARD && h->object.owner != owner)))
        h = h->next;
    return h;
}

static inline struct hth_held *shard(uint32_t at, uint32_t owner)
{
    struct hth_held *h = object_at(at, owner, HTH_OBJECT_SHARD);

    cr_assert(ne(ptr, h, NULL), "node %u does not hold the object of rank %u", at, owner);
    return h;
}

static inline void range(const struct hth_object *o)
{
    struct hth_local_map m = { .object = o->id, .off = HTH_BLOCK, .len = o->data_len };

    m.save = hth_local_save_of(w.newest.id);
    say(&m, sizeof(m), HTH_LOCAL_RANGE);
}

/* A bit of its first chunk tips; the chunk as it was stays in `written`. */
static unsigned char written[4096];

static inline void tip(const struct hth_held *h)
{
    memcpy(written, h->slot->base + HTH_BLOCK, h->object.data_len);
    h->slot->base[HTH_BLOCK + 9] ^= 1;
}

/* 1: a copy with the bytes that its rank wrote, in another slot than the bad one. */
static inline int is_back(uint32_t at, uint32_t owner, const struct hth_slot *was)
{
    const struct hth_held *h = object_at(at, owner, HTH_OBJECT_SHARD);

    return h && h->state == HTH_HELD_SEALED && h->verified && h->slot != was &&
           !memcmp(written, h->slot->base + HTH_BLOCK, h->object.data_len);
}

#endif
