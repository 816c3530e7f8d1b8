/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that went bad after they were looked at, found by whoever reads them, in virtual time. */
#include "check.h"
#include "raws.h"
#include "world_parts.h"

#include "replication/held/holdings.h"

#include <string.h>
#include <unistd.h>

#define OURS 99999u /* a client that is no rank of the world */
#define FAR  2u     /* a node that holds nothing of rank 0: copies go to the next node */
#define SOON 4000u  /* ms: more than looking, telling and fetching take */

static struct world w;
static uint64_t request;
static uint32_t node; /* where it asks */

static union {
    struct hth_local_head head;
    struct hth_local_error error;
} heard;

static void hear(struct world *world, const struct letter *l)
{
    (void)world;
    if (l->client == OURS && l->machine == node)
        memcpy(&heard, l->bytes, l->len < sizeof(heard) ? l->len : sizeof(heard));
}

static void say(void *message, uint32_t len, enum hth_local_type type)
{
    struct hth_local_head head = { len, type, ++request, 0 };

    memcpy(message, &head, sizeof(head));
    heard.head = (struct hth_local_head){ 0 };
    hth_node_request(world_node(&w, node), OURS, message, len, NULL);
    machine_due(&w.machine[node], 0);
    world_advance(&w, w.now_ms + 1);
}

static void wait_for(enum hth_local_type type)
{
    for (uint64_t until = w.now_ms + SOON; !heard.head.type && w.now_ms < until && !w.why[0];)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(u32, heard.head.type, (uint32_t)type), "%s",
            heard.head.type == HTH_LOCAL_ERROR ? heard.error.text : "nothing was heard");
}

static void attach(uint32_t at)
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
static void start(void)
{
    struct world_opts o = { .seed = 1,
        .nodes = 3,
        .ranks_per_node = 1,
        .copies = 1,
        .keep = 1,
        .run_ms = 600000,
        .data_max = 100 };
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

static void end(void)
{
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    world_close(&w);
}

TestSuite(doubt, .init = start, .fini = end);

static struct hth_held *object_at(uint32_t at, uint32_t owner, enum hth_object_kind kind)
{
    struct hth_held_save *s = hth_holdings_find(hth_node_ctx(world_node(&w, at)), w.newest.id);
    struct hth_held *h = s ? s->held : NULL;

    while (h && (h->object.kind != (uint32_t)kind ||
                        (kind == HTH_OBJECT_SHARD && h->object.owner != owner)))
        h = h->next;
    return h;
}

static struct hth_held *shard(uint32_t at, uint32_t owner)
{
    struct hth_held *h = object_at(at, owner, HTH_OBJECT_SHARD);

    cr_assert(ne(ptr, h, NULL), "node %u does not hold the object of rank %u", at, owner);
    return h;
}

static void bad_of(struct hth_save_id save, uint64_t object, uint64_t chunk)
{
    struct hth_local_bad m = { .object = object, .chunk = chunk };

    m.save = hth_local_save_of(save);
    say(&m, sizeof(m), HTH_LOCAL_BAD);
}

static void bad(uint64_t object, uint64_t chunk)
{
    bad_of(w.newest.id, object, chunk);
}

static void range(const struct hth_object *o)
{
    struct hth_local_map m = { .object = o->id, .off = HTH_BLOCK, .len = o->data_len };

    m.save = hth_local_save_of(w.newest.id);
    say(&m, sizeof(m), HTH_LOCAL_RANGE);
}

/* A bit of its first chunk tips; the chunk as it was stays in `written`. */
static unsigned char written[4096];

static void tip(const struct hth_held *h)
{
    memcpy(written, h->slot->base + HTH_BLOCK, h->object.data_len);
    h->slot->base[HTH_BLOCK + 9] ^= 1;
}

/* 1: a copy with the bytes that its rank wrote, in another slot than the bad one. */
static int is_back(uint32_t at, uint32_t owner, const struct hth_slot *was)
{
    const struct hth_held *h = object_at(at, owner, HTH_OBJECT_SHARD);

    return h && h->state == HTH_HELD_SEALED && h->verified && h->slot != was &&
           !memcmp(written, h->slot->base + HTH_BLOCK, h->object.data_len);
}

Test(doubt, a_chunk_that_a_rank_finds_wrong_is_read_from_a_peer_and_its_copy_brought_back)
{
    struct hth_held *h = shard(1, 1);
    const struct hth_slot *was = h->slot;
    struct hth_object o = h->object;

    attach(1);
    tip(h);
    bad(o.id, 0);
    wait_for(HTH_LOCAL_OK);
    range(&o);
    wait_for(HTH_LOCAL_BYTES);
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(int, is_back(1, 1, was), 1)); /* and the old one is no slot of the pool any more */
    cr_assert(ge(u32, look_copies(&w, w.newest.id, UINT32_MAX), 2));
}

Test(doubt, a_copy_that_is_right_after_all_stays)
{
    struct hth_held *h = shard(1, 1);
    const struct hth_slot *was = h->slot;

    attach(1);
    bad(h->object.id, 0);
    wait_for(HTH_LOCAL_OK);
    h = shard(1, 1);
    cr_assert(eq(ptr, h->slot, (void *)(uintptr_t)was));
    cr_assert(eq(int, h->verified, 1));
}

Test(doubt, a_copy_is_lent_to_nobody_while_it_is_looked_at)
{
    struct hth_held *h = shard(1, 1);

    attach(1);
    w.machine[1].slow_ms = 1000;
    bad(h->object.id, 0);
    world_advance(&w, w.now_ms + 500);
    cr_assert(eq(int, h->verified, 0));
    cr_assert(zero(u32, heard.head.type), "it is answered before it has been looked at");
    wait_for(HTH_LOCAL_OK);
    cr_assert(eq(int, h->verified, 1));
}

/* Rank 0's object of a save that has no manifest there yet, whole at node 1. */
static struct hth_held *undecided(struct hth_save_id *out)
{
    for (struct hth_held_save *s = hth_holdings_first(hth_node_ctx(world_node(&w, 1))); s;
            s = s->next)
        for (struct hth_held *h = s->held; h; h = h->next)
            if (!s->has_manifest && h->object.owner == 0 && h->object.kind == HTH_OBJECT_SHARD &&
                    h->state == HTH_HELD_SEALED && h->verified) {
                *out = s->id;
                return h;
            }
    return NULL;
}

Test(doubt, a_copy_that_was_looked_at_while_its_save_came_is_promised_after_all)
{
    const struct hth_keep *keep = &hth_node_ctx(world_node(&w, 0))->keep;
    struct hth_save_id save;
    struct hth_held *h;

    attach(1);
    for (uint32_t r = 0; r < w.ranks; r++)
        rank_due(&w.rank[r], 0);
    while (!(h = undecided(&save)) && !w.why[0])
        world_advance(&w, w.now_ms + 1);
    w.machine[1].slow_ms = 1000;
    bad_of(save, h->object.id, 0);
    w.machine[1].slow_ms = 0;
    for (uint64_t until = w.now_ms + SOON; w.now_ms < until && !hth_keep_has(keep, save);)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, hth_keep_has(keep, save), 1));
}

Test(doubt, a_node_that_gave_a_wrong_chunk_to_another_brings_its_copy_back)
{
    struct hth_held *h = shard(1, 0); /* gives the chunk, as its owner gives the table */
    const struct hth_slot *was = h->slot;
    struct hth_object o = h->object;

    cr_assert(eq(ptr, object_at(FAR, 0, HTH_OBJECT_SHARD), NULL));
    attach(FAR);
    tip(h);
    range(&o);
    wait_for(HTH_LOCAL_BYTES); /* the owner's */
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(int, is_back(1, 0, was), 1));
}

Test(doubt, a_common_object_is_back_when_its_rank_hears_of_it)
{
    unsigned char want[WORLD_COMMON_MAX];
    uint64_t len = world_common(want, rank_tag(w.lineage, w.newest.id.attempt), w.newest.id.step);

    for (uint32_t at = 0; at < w.opts.nodes; at++) { /* that of the rank that gave it too */
        struct hth_store *store = w.machine[at].store;
        const struct hth_held *h = object_at(at, 0, HTH_OBJECT_RAW);
        struct hth_raw *raw = NULL;

        cr_assert(ne(ptr, (void *)(uintptr_t)h, NULL));
        attach(at);
        must(store->ops->raw_open(store, w.newest.id, WORLD_COMMON, &raw, NULL));
        ((unsigned char *)(uintptr_t)raw->base)[0] ^= 1;
        store->ops->raw_close(store, raw);
        cr_assert(eq(int, raw_is(store, w.newest.id, WORLD_COMMON, want, len), 0));
        bad(h->object.id, HTH_BAD_TABLE);
        wait_for(HTH_LOCAL_OK);
        cr_assert(eq(int, raw_is(store, w.newest.id, WORLD_COMMON, want, len), 1), "node %u", at);
        hth_node_client_gone(world_node(&w, at), OURS);
    }
}

Test(doubt, what_is_not_here_is_answered_at_once)
{
    attach(FAR);
    bad(shard(0, 0)->object.id, 0);
    wait_for(HTH_LOCAL_OK);
    bad(UINT64_C(0x123456789), 7);
    wait_for(HTH_LOCAL_OK);
}
