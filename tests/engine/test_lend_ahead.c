/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that are lent before a rank asks, and saves that go from one process of a rank to another.
 * Said packet by packet to an engine in virtual time, by a process in the place of rank 0. */
#include "packets.h"

#include "core/format/ranks.h"

#include <string.h>

enum { OURS = 99990, HELPER, PEER };

#define STEP  100000u /* every rank of the world has long saved less */
#define BYTES (3 * HTH_BLOCK)

static struct hth_local_lent ahead; /* the last that came unasked */
static uint32_t aheads;
static uint32_t lent_late; /* slots lent for requests that had to wait */

static void hear(struct world *world, const struct letter *l)
{
    const struct hth_local_head *h = (const void *)l->bytes;

    (void)world;
    if (l->client == OURS && l->machine == 0 && !h->request && h->type == HTH_LOCAL_LENT) {
        memcpy(&ahead, h, sizeof(ahead));
        aheads++;
    } else if (l->client == OURS && l->machine == 0 && h->type == HTH_LOCAL_LENT) {
        lent_late++;
    }
}

static int attach(uint32_t client, uint64_t epoch, uint32_t helper)
{
    struct hth_local_attach m = { .version = hth_version_written(HTH_FORMAT_LOCAL),
        .world = 2,
        .pid = 4711,
        .helper = helper,
        .epoch = epoch,
        .nonce = w.rank[0].nonce,
        .ahead = !helper,
        .job = "sim" };

    return ask(client, &m, sizeof(m), HTH_LOCAL_ATTACH, 0, HTH_LOCAL_ATTACHED);
}

static int begin_of(uint64_t token, uint64_t step, uint64_t bytes, uint32_t attempt, uint32_t want)
{
    struct hth_local_begin m = {
        .step = step, .bytes = bytes, .attempt = attempt, .name = "object"
    };

    return ask(OURS, &m, sizeof(m), HTH_LOCAL_BEGIN, token, want);
}

/* A save of which the engine does not know the step yet; its token. */
static uint64_t begin(void)
{
    must(begin_of(0, UINT64_MAX, BYTES, 0, HTH_LOCAL_LENT));
    return heard.lent.head.token;
}

/* How many slots come unasked meanwhile. */
static uint32_t lent_ahead(void)
{
    uint32_t before = aheads;

    world_advance(&w, w.now_ms + 100);
    cr_assert(zero(int, w.why[0]), "%s", w.why);
    return aheads - before;
}

static void start(void)
{
    saving_open(&w, 1, 2);
    w.stranger = hear;
    node = world_node(&w, 0);
    hth_node_client_gone(node, w.rank[0].client); /* its place is ours */
    rank_due(&w.rank[1], HTH_NEVER);              /* the other one may have begun its next save */
    must(attach(OURS, w.rank[0].epoch, 0));
}

TestSuite(lend_ahead, .init = start, .fini = end);

/* The engine knows from the first how large they are. */
static void first_save(void)
{
    must(say(OURS, HTH_LOCAL_ABORT, begin(), HTH_LOCAL_OK));
    cr_assert(eq(u32, lent_ahead(), 1));
}

Test(lend_ahead, a_rank_begins_in_the_slot_that_it_was_lent_unasked)
{
    first_save();
    must(begin_of(ahead.head.token, STEP, BYTES, 1, HTH_LOCAL_SAVE_ID));
    cr_assert(ne(ptr, hth_node_lent(node, ahead.slot), NULL));
}

Test(lend_ahead, who_writes_is_lent_no_other)
{
    uint64_t first = begin();

    (void)begin();
    must(say(OURS, HTH_LOCAL_ABORT, first, HTH_LOCAL_OK));
    cr_assert(zero(u32, lent_ahead()));
}

Test(lend_ahead, a_save_that_does_not_fit_is_refused)
{
    first_save();
    must_fail(begin_of(ahead.head.token, STEP, ahead.capacity + 1, 1, HTH_LOCAL_SAVE_ID),
            HEARTH_EINVAL);
}

/* The workers clear the slot's pages until then. */
static uint64_t cold_until_ms;

static int cold_for_a_while(struct hth_store *s, uint64_t bytes, uint32_t rank)
{
    (void)s, (void)bytes, (void)rank;
    return w.now_ms < cold_until_ms;
}

static void cold_for(uint64_t ms)
{
    struct hth_store *store = hth_node_ctx(node)->store;
    static struct hth_store_ops ops;

    ops = *store->ops;
    ops.cold = cold_for_a_while;
    store->ops = &ops;
    cold_until_ms = w.now_ms + ms;
}

Test(lend_ahead, a_slot_is_not_lent_ahead_before_workers_have_cleared_its_pages)
{
    uint64_t token = begin();

    cold_for(250);
    must(say(OURS, HTH_LOCAL_ABORT, token, HTH_LOCAL_OK));
    cr_assert(zero(u32, lent_ahead()));
    cold_until_ms = w.now_ms;
    world_advance(&w, w.now_ms + 5000); /* the engine looks again at its next event */
    cr_assert(eq(u32, aheads, 1));
}

/* The rank clears the pages itself, as it writes. */
Test(lend_ahead, a_rank_that_asks_meanwhile_is_lent_a_slot)
{
    cold_for(1000);
    must(begin_of(0, UINT64_MAX, BYTES, 0, HTH_LOCAL_LENT));
}

/* Another process of the rank has begun the step, or this one did and has forgotten. */
Test(lend_ahead, an_attempt_is_begun_once)
{
    first_save();
    must(begin_of(ahead.head.token, STEP, BYTES, 1, HTH_LOCAL_SAVE_ID));
    must(say(OURS, HTH_LOCAL_ABORT, ahead.head.token, HTH_LOCAL_OK));
    cr_assert(eq(u32, lent_ahead(), 1));
    (void)begin_of(ahead.head.token, STEP, BYTES, 1, HTH_LOCAL_SAVE_ID);
    cr_assert(eq(int, heard.error.code, HEARTH_ESTATE), "%s", heard.error.text);
}

Test(lend_ahead, what_a_rank_does_not_use_is_taken_back)
{
    uint64_t slot;

    first_save();
    slot = ahead.slot;
    (void)begin();
    cr_assert(heard.lent.slot == slot || hth_node_lent(node, slot) == NULL);
    must(say(OURS, HTH_LOCAL_ABORT, heard.lent.head.token, HTH_LOCAL_OK));
    must_fail(begin_of(ahead.head.token, STEP, BYTES, 1, HTH_LOCAL_SAVE_ID), HEARTH_ESTATE);
}

/* Seals and commits the slot that was lent last. */
static void hand_over(void)
{
    struct hth_local_seal m = {
        .slot = heard.lent.slot, .generation = heard.lent.generation, .data_len = 8
    };
    uint64_t token = heard.lent.head.token;

    must(ask(OURS, &m, sizeof(m), HTH_LOCAL_SEAL, token, HTH_LOCAL_OK));
    (void)say(OURS, HTH_LOCAL_COMMIT, token, HTH_LOCAL_OK);
}

/* Its first object has failed it. */
Test(lend_ahead, nothing_more_is_taken_of_a_save_that_has_failed)
{
    struct hth_local_seal m = { .data_len = 8 };

    must(begin_of(0, STEP, BYTES, 1, HTH_LOCAL_LENT));
    m.slot = heard.lent.slot;
    m.generation = heard.lent.generation + 1;
    must_fail(ask(OURS, &m, sizeof(m), HTH_LOCAL_SEAL, heard.lent.head.token, HTH_LOCAL_OK),
            HEARTH_EINVAL);
    world_advance(&w, w.now_ms + 100);
    m.generation--;
    must_fail(ask(OURS, &m, sizeof(m), HTH_LOCAL_SEAL, m.head.token, HTH_LOCAL_OK), HEARTH_EFAILED);
}

/* Saves that are not decided, until there is no room for another, though a slot is free. */
Test(lend_ahead, nothing_is_lent_where_a_begin_would_find_no_room)
{
    struct hth_store *store = hth_node_ctx(node)->store;
    struct hth_slot *other;
    uint32_t lent = 1;
    int rc;

    for (uint64_t step = STEP; !(rc = begin_of(0, step, BYTES, 1, HTH_LOCAL_LENT)); step++) {
        must(store->ops->take(store, BYTES, &other, NULL));
        store->ops->give(store, other);
        hand_over();
        lent = lent_ahead();
    }
    cr_assert(eq(int, rc, HEARTH_EBUSY), "%s", heard.error.text);
    cr_assert(zero(u32, lent));
}

Test(lend_ahead, a_rank_of_an_older_epoch_is_lent_nothing)
{
    first_save();
    hth_node_client_gone(node, OURS);
    must(attach(OURS, w.rank[0].epoch - 1, 0));
    must(say(OURS, HTH_LOCAL_ABORT, begin(), HTH_LOCAL_OK)); /* its size is known again */
    cr_assert(zero(u32, lent_ahead()));
}

/* The slot is lent, and no save is begun in it: whatever else comes of its token is of no save. */
Test(lend_ahead, nothing_but_begin_makes_a_save_of_it)
{
    struct hth_local_set_step set = { .step = STEP, .attempt = 1 };
    struct hth_local_seal seal = { .data_len = 8 };

    first_save();
    seal.slot = ahead.slot;
    seal.generation = ahead.generation;
    must_fail(ask(OURS, &set, sizeof(set), HTH_LOCAL_SET_STEP, ahead.head.token, HTH_LOCAL_SAVE_ID),
            HEARTH_ESTATE);
    must_fail(ask(OURS, &seal, sizeof(seal), HTH_LOCAL_SEAL, ahead.head.token, HTH_LOCAL_OK),
            HEARTH_ESTATE);
    must_fail(say(OURS, HTH_LOCAL_COMMIT, ahead.head.token, HTH_LOCAL_OK), HEARTH_ESTATE);
    must(begin_of(ahead.head.token, STEP, BYTES, 1, HTH_LOCAL_SAVE_ID));
}

/* Else the save would be begun on all ranks, and no object of this one would ever be taken. */
Test(lend_ahead, a_begin_that_was_refused_is_not_begun_again)
{
    first_save();
    must_fail(begin_of(ahead.head.token, STEP, ahead.capacity + 1, 1, HTH_LOCAL_SAVE_ID),
            HEARTH_EINVAL);
    must_fail(begin_of(ahead.head.token, STEP, BYTES, 1, HTH_LOCAL_SAVE_ID), HEARTH_ESTATE);
}

/* ---- Room beside undecided saves ---------------------------------------------------------- */

/* From now on this node's memory has room for `slots` more slots. */
static void room_for(uint64_t slots)
{
    struct hth_store *store = hth_node_ctx(node)->store;

    hth_store_mem_room(store, hth_store_mem_used(store) + slots * ahead.capacity);
}

/* Rank `rank` alone begins a save. */
static int begin_alone(uint32_t client, uint32_t rank, uint64_t step)
{
    struct {
        struct hth_local_begin m;
        unsigned char run[HTH_RANK_RUN_BYTES];
    } packet = { .m = { .step = step, .bytes = BYTES, .name = "object" } };
    const struct hth_ranks alone = { .runs = 1, .run = { { rank, 1, 1 } } };

    hth_ranks_encode(&alone, packet.run);
    return ask(client, &packet, sizeof(packet.m) + sizeof(packet.run), HTH_LOCAL_BEGIN, 0,
            HTH_LOCAL_LENT);
}

/* Stages saves, of all ranks or of rank 0 alone, until the engine refuses one. Returns how many are
 * staged. */
static uint32_t stage_all_of(uint64_t token[16], int alone)
{
    uint32_t staged = 0;
    int rc = 0;

    while (staged < 16 && !(rc = alone ? begin_alone(OURS, 0, UINT64_MAX)
                                       : begin_of(0, UINT64_MAX, BYTES, 0, HTH_LOCAL_LENT)))
        token[staged++] = heard.lent.head.token;
    cr_assert(eq(int, rc, HEARTH_EBUSY), "%s", heard.error.text);
    return staged;
}

static uint32_t stage_all(uint64_t token[16])
{
    return stage_all_of(token, 0);
}

Test(lend_ahead, staged_saves_leave_the_room_of_their_copies)
{
    struct hth_store *store = hth_node_ctx(node)->store;
    uint64_t token[16];
    struct hth_slot *copy;
    uint32_t staged;

    first_save();
    room_for(6);
    staged = stage_all(token);
    cr_assert(gt(u32, staged, 1));
    cr_assert(ne(ptr,
                      strstr(heard.error.text, "saves are undecided or staged on node 'm0', and "
                                               "one more would take the room of their copies: "),
                      NULL),
            "%s", heard.error.text);
    for (uint32_t i = 0; i < staged; i++)
        must(store->ops->take(store, BYTES, &copy, NULL));
}

Test(lend_ahead, a_staged_save_that_ends_makes_room_for_the_next)
{
    struct hth_local_begin m = { .step = UINT64_MAX, .bytes = BYTES, .wait_ms = 1000 };
    uint64_t token[16];

    first_save();
    room_for(6);
    (void)stage_all(token);
    m.name[0] = 'o';
    must_fail(ask(OURS, &m, sizeof(m), HTH_LOCAL_BEGIN, 0, HTH_LOCAL_LENT), 1); /* not yet */
    world_advance(&w, w.now_ms + 300);
    lent_late = 0;
    must(say(OURS, HTH_LOCAL_ABORT, token[0], HTH_LOCAL_OK));
    world_advance(&w, w.now_ms + 300);
    cr_assert(eq(u32, lent_late, 1));
}

/* The other rank has begun the save, and its copy is here. */
Test(lend_ahead, a_save_that_another_rank_has_begun_is_counted_once)
{
    struct hth_store *store = hth_node_ctx(node)->store;
    uint64_t used;

    first_save();
    used = hth_store_mem_used(store);
    rank_due(&w.rank[1], w.now_ms);
    while (!w.why[0] && w.rank[1].step != R_WAIT)
        world_advance(&w, w.now_ms + 1);
    world_advance(&w, w.now_ms + 100);
    cr_assert(gt(u64, hth_store_mem_used(store), used));
    room_for(0);
    must(begin_of(0, UINT64_MAX, BYTES, 0, HTH_LOCAL_LENT));
}

/* Of a save of rank 0 alone no copy comes here. */
Test(lend_ahead, a_staged_save_of_some_ranks_takes_the_room_of_these_alone)
{
    uint64_t token[16];
    uint32_t of_all;

    first_save();
    room_for(8);
    of_all = stage_all(token);
    for (uint32_t i = 0; i < of_all; i++)
        must(say(OURS, HTH_LOCAL_ABORT, token[i], HTH_LOCAL_OK));
    cr_assert(gt(u32, stage_all_of(token, 1), of_all));
}

/* ---- From process to process ---------------------------------------------------------------- */

Test(lend_ahead, a_save_that_is_given_is_taken_by_who_has_its_secret)
{
    struct hth_local_give give = { .written = { .data_len = 8, .room = BYTES } };
    struct hth_local_take take = { 0 };
    uint64_t token = begin();

    must(attach(HELPER, w.rank[0].epoch, 1));
    must(ask(OURS, &give, sizeof(give), HTH_LOCAL_GIVE, token, HTH_LOCAL_GIVEN));
    memcpy(take.secret, heard.given.secret, sizeof(take.secret));
    take.secret[1] ^= 1;
    must_fail(ask(HELPER, &take, sizeof(take), HTH_LOCAL_TAKE, token, HTH_LOCAL_TAKEN),
            HEARTH_ENOENT);
    take.secret[1] ^= 1;
    must(ask(HELPER, &take, sizeof(take), HTH_LOCAL_TAKE, token, HTH_LOCAL_TAKEN));
    must_fail(ask(HELPER, &take, sizeof(take), HTH_LOCAL_TAKE, token, HTH_LOCAL_TAKEN),
            HEARTH_ENOENT);
}

/* ---- A rank that is behind ------------------------------------------------------------------ */

static void go_to(uint32_t rank)
{
    at_machine = w.member[rank];
    node = world_node(&w, at_machine);
}

static void peer_attaches(void)
{
    struct hth_local_attach m = { .version = hth_version_written(HTH_FORMAT_LOCAL),
        .rank = 1,
        .world = 2,
        .pid = 4711,
        .epoch = w.rank[0].epoch,
        .nonce = w.rank[0].nonce,
        .job = "sim" };

    go_to(1);
    hth_node_client_gone(node, w.rank[1].client);
    must(ask(PEER, &m, sizeof(m), HTH_LOCAL_ATTACH, 0, HTH_LOCAL_ATTACHED));
}

/* Rank 1 has written what it has begun last; its copy comes here. Returns its token. */
static uint64_t peer_writes(void)
{
    struct hth_local_seal m = { .data_len = 8 };
    uint64_t token = heard.lent.head.token;

    m.slot = heard.lent.slot;
    m.generation = heard.lent.generation;
    must(ask(PEER, &m, sizeof(m), HTH_LOCAL_SEAL, token, HTH_LOCAL_OK));
    world_advance(&w, w.now_ms + 100);
    return token;
}

/* Rank 1 writes and commits a save on its node. */
static void peer_saves(uint64_t step)
{
    struct hth_local_begin b = { .step = step, .bytes = BYTES, .attempt = 1, .name = "object" };
    struct hth_local_head h;
    uint64_t token;

    must(ask(PEER, &b, sizeof(b), HTH_LOCAL_BEGIN, 0, HTH_LOCAL_LENT));
    token = peer_writes();
    (void)ask(PEER, &h, sizeof(h), HTH_LOCAL_COMMIT, token, HTH_LOCAL_OK);
    world_advance(&w, w.now_ms + 100);
    cr_assert(zero(int, w.why[0]), "%s", w.why);
}

/* Rank 1 has committed two saves. Both wait for rank 0, which stages the first of them in the room
 * that is left for it and its copy. */
Test(lend_ahead, the_save_that_others_wait_for_is_not_held_up)
{
    first_save();
    peer_attaches();
    peer_saves(STEP);
    peer_saves(STEP + 1);
    go_to(0);
    room_for(2);
    must(begin_of(0, UINT64_MAX, BYTES, 0, HTH_LOCAL_LENT));
    must(begin_of(0, STEP, BYTES, 1, HTH_LOCAL_LENT));
}

/* Rank 1 has begun a save of all ranks, and rank 0 stages others, of itself alone. */
Test(lend_ahead, a_staged_save_of_some_ranks_is_not_the_save_of_all_that_another_rank_has_begun)
{
    first_save();
    peer_attaches();
    peer_saves(STEP);
    go_to(0);
    must(begin_alone(OURS, 0, UINT64_MAX));
    room_for(0);
    must_fail(begin_alone(OURS, 0, UINT64_MAX), HEARTH_EBUSY);
    cr_assert(eq(int, strncmp(heard.error.text, "2 saves are undecided or staged", 31), 0), "%s",
            heard.error.text);
}

/* Rank 1 alone has begun a save, whose copy is here. */
Test(lend_ahead, the_first_save_of_a_rank_is_not_held_up_by_a_save_of_other_ranks)
{
    first_save();
    peer_attaches();
    must(begin_alone(PEER, 1, STEP));
    (void)peer_writes();
    go_to(0);
    room_for(0);
    must(begin_of(0, UINT64_MAX, BYTES, 0, HTH_LOCAL_LENT));
}

/* Each process counts its own requests, so the helper's number may be that of the BEGIN whose loan
 * it has taken. */
Test(lend_ahead, a_begin_that_is_forgotten_ends_no_loan_that_was_taken)
{
    struct hth_local_give give = { .written = { .data_len = 8, .room = BYTES } };
    struct hth_local_take take = { 0 };
    uint64_t token = begin(), number = request, slot = heard.lent.slot;

    must(attach(HELPER, w.rank[0].epoch, 1));
    must(ask(OURS, &give, sizeof(give), HTH_LOCAL_GIVE, token, HTH_LOCAL_GIVEN));
    memcpy(take.secret, heard.given.secret, sizeof(take.secret));
    must(ask(HELPER, &take, sizeof(take), HTH_LOCAL_TAKE, token, HTH_LOCAL_TAKEN));
    must(say(HELPER, HTH_LOCAL_FORGET, number, HTH_LOCAL_OK));
    cr_assert(ne(ptr, hth_node_lent(node, slot), NULL), "the helper still writes into it");
}
