/* SPDX-License-Identifier: Apache-2.0 */
/* A job of three nodes with one PROTECTED save, in virtual time, and somebody who reads of it. */
#ifndef HEARTH_TESTS_ENGINE_READER_H
#define HEARTH_TESTS_ENGINE_READER_H

#include "check.h"
#include "world_parts.h"

#include "replication/held/holdings.h"

#include <string.h>
#include <unistd.h>

#define OURS 99999u /* a client that is no rank of the world */
#define SOON 4000u  /* ms: more than looking, telling and fetching take */

static struct world w;
static uint64_t request;
static uint32_t node; /* where it asks */

static union {
    struct hth_local_head head;
    struct hth_local_error error;
    struct hth_local_mapped mapped;
    struct hth_local_bytes bytes;
    struct hth_local_lent lent;
    struct hth_local_event event;
} heard; /* the last answer */
static uint32_t answers;

static inline void hear(struct world *world, const struct letter *l)
{
    (void)world;
    if (l->client != OURS || l->machine != node)
        return;
    memcpy(&heard, l->bytes, l->len < sizeof(heard) ? l->len : sizeof(heard));
    answers++;
}

static inline void say(void *message, uint32_t len, enum hth_local_type type)
{
    struct hth_local_head head = { len, type, ++request, 0 };

    memcpy(message, &head, sizeof(head));
    heard.head = (struct hth_local_head){ 0 };
    hth_node_request(world_node(&w, node), OURS, message, len, NULL);
    machine_due(&w.machine[node], 0);
    world_advance(&w, w.now_ms + 1);
}

static inline void wait_for(enum hth_local_type type)
{
    for (uint64_t until = w.now_ms + SOON; !heard.head.type && w.now_ms < until && !w.why[0];)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(u32, heard.head.type, (uint32_t)type), "%s",
            heard.head.type == HTH_LOCAL_ERROR ? heard.error.text : "nothing was heard");
}

static inline void attach(uint32_t at)
{
    struct hth_local_attach m = { .version = hth_version_written(HTH_FORMAT_LOCAL),
        .rank = at,
        .world = w.ranks,
        .helper = 1,
        .job = "sim" };

    node = at;
    say(&m, sizeof(m), HTH_LOCAL_ATTACH);
    wait_for(HTH_LOCAL_ATTACHED);
}

/* One save is PROTECTED, and nobody begins another. */
static inline void start_with(uint32_t data_max)
{
    struct world_opts o = { .seed = 1,
        .nodes = 3,
        .ranks_per_node = 1,
        .copies = 1,
        .keep = 1,
        .run_ms = 600000,
        .data_max = data_max };
    uint32_t rest = 0;

    alarm(60);
    world_open(&w, &o);
    w.stranger = hear;
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

static inline void end(void)
{
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    world_close(&w);
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
