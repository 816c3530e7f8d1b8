/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator and its keep list: what is on it, with which copies, and what users wish of it.
 * Three nodes, each of which holds what the others own.
 */
#include "coordinator.h"

#include "core/local/wish.h"

enum { NODES = 3, KEEP = 3 };

static void open_rig(void)
{
    coordinator_open(NODES);
    ctx->opts.copies = 2;
    ctx->opts.keep = KEEP;
}

static void begin(void)
{
    open_rig();
    engine_start();
}

TestSuite(kept, .init = begin, .fini = coordinator_close);
TestSuite(chosen, .init = open_rig, .fini = coordinator_close);

static struct hth_keep list(void)
{
    return on_record(NULL).keep;
}

static void promise_now(uint32_t origin)
{
    struct hth_head h = on_record(NULL);

    promise(origin, h.map);
}

/* Every node promises all that is on the list, as all do until that is settled. */
static void promise_kept(void)
{
    struct hth_keep k = list();

    for (uint32_t i = k.saves; i-- > 0;) {
        save = k.save[i];
        for (uint32_t n = 0; n < NODES; n++)
            promise_now(n);
    }
}

static void protect(uint64_t step)
{
    save.step = step;
    done_and_held();
    promise_now(0);
    promise_now(1);
    cr_assert(zero(int, hth_save_cmp(list().save[0], save)), "step %u", (unsigned)step);
    promise_kept();
}

static void copy_lost(uint32_t origin, uint64_t store)
{
    unsigned char memory[8];

    hth_put64(memory, store);
    fact(origin, HTH_KIND_COPY_LOST, memory, sizeof(memory));
    hth_commit_tick(commit);
}

static uint64_t store_of(uint32_t node)
{
    return p->node[0].epoch.member[node].store;
}

/* ---- What is on it --------------------------------------------------------------------------- */

Test(kept, has_the_newest_in_front_and_no_more_than_are_kept)
{
    struct hth_keep k;

    for (uint64_t step = 5; step <= 8; step++)
        protect(step);
    k = list();
    cr_assert(eq(u32, k.saves, KEEP));
    for (uint32_t i = 0; i < KEEP; i++)
        cr_assert(eq(u64, k.save[i].step, 8 - i));
    cr_assert(zero(u32, k.degraded));
}

Test(kept, is_a_record_of_its_own_too)
{
    struct hth_store *s = p->node[0].store;
    struct hth_keep k;
    void *bytes;
    size_t len;

    protect(5);
    must(s->ops->record_get(s, "keep", &bytes, &len, NULL));
    must(hth_keep_decode(&k, bytes, len, NULL));
    free(bytes);
    cr_assert(eq(u64, k.serial, list().serial));
    cr_assert(eq(int, hth_keep_has(&k, save), 1));
}

Test(kept, a_save_that_some_hold_is_protected_and_degraded_until_all_do)
{
    struct hth_head h;

    done_and_held();
    promise_now(0);
    promise_now(2);
    h = on_record(NULL);
    cr_assert(eq(u32, h.keep.saves, 1));
    cr_assert(eq(u32, h.keep.degraded, 1));
    cr_assert(zero(int, h.settled));
    promise_now(1);
    h = on_record(NULL);
    cr_assert(zero(u32, h.keep.degraded));
    cr_assert(eq(int, h.settled, 1));
    cr_assert(eq(u64, h.keep.serial, 2));
}

/* Two pods on each of two machines: pod 0 has a copy on pod 1, and another on the other machine. */
Test(pods, a_save_that_one_machine_has_alone_is_not_protected)
{
    coordinator_open(4);
    ctx->opts.copies = 2;
    ctx->opts.min_copies = 1;
    for (uint32_t n = 0; n < 4; n++)
        p->node[0].epoch.member[n].machine = n < 2 ? 1 : 3;
    engine_start();
    done_and_held();
    promise_now(0);
    promise_now(1);
    promise_now(3);
    cr_assert(zero(u32, list().saves));
    promise_now(2);
    cr_assert(eq(u32, list().saves, 1));
    cr_assert(eq(u32, list().degraded, 1));
    coordinator_close();
}

Test(kept, a_map_is_settled_when_every_save_of_it_is_with_its_holders)
{
    protect(5);
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    hth_commit_peer_up(commit, 1);
    hth_commit_tick(commit);
    save.step = 6;
    for (uint32_t n = 0; n < NODES; n++)
        say_done(n);
    hth_commit_tick(commit);
    for (uint32_t n = 0; n < NODES; n++)
        promise_now(n); /* which says that it holds the manifest, too */
    hth_commit_tick(commit);
    cr_assert(eq(u32, list().saves, 2));
    cr_assert(zero(int, on_record(NULL).settled),
            "the coordinator's node may be the only holder of step 5");
    promise_kept();
    cr_assert(eq(int, on_record(NULL).settled, 1));
    cr_assert(zero(u32, list().degraded));
}

/* ---- DONE, HELD, COMPLETE -------------------------------------------------------------------- */

static int has_manifest(void)
{
    const struct hth_held_save *s = hth_holdings_find(ctx, save);

    return s && s->has_manifest;
}

Test(kept, a_manifest_is_made_when_all_have_said_what_they_hold)
{
    for (uint32_t n = 0; n < NODES; n++) {
        cr_assert(zero(int, has_manifest()), "before node %u", n);
        say_done(n);
        hth_commit_tick(commit);
    }
    cr_assert(eq(int, has_manifest(), 1));
}

/* 1: COMPLETE was the last fact that the coordinator sent to this node, its own. */
static int said_complete(void)
{
    int said = p->node[0].kind == HTH_KIND_COMPLETE;

    p->node[0].kind = 0;
    return said;
}

static void say_held(uint32_t origin)
{
    fact(origin, HTH_KIND_HELD, NULL, 0);
    hth_commit_tick(commit);
}

Test(kept, complete_is_said_when_all_hold_the_manifest_and_again_to_who_missed_it)
{
    for (uint32_t n = 0; n < NODES; n++)
        say_done(n);
    hth_commit_tick(commit);
    for (uint32_t i = 0; i < 4; i++)
        say_held(1 + i % 2);
    cr_assert(zero(int, said_complete()), "node 0 has not said that it holds it");
    say_held(0);
    cr_assert(eq(int, said_complete(), 1));
    say_held(0);
    cr_assert(eq(int, said_complete(), 1));
}

Test(kept, nothing_is_protected_before_it_is_complete)
{
    ctx->opts.allow_degraded = 1;
    for (uint32_t n = 0; n < NODES; n++)
        say_done(n);
    hth_commit_tick(commit);
    hth_commit_peer_down(commit, 2);
    hth_commit_tick(commit);
    promise_now(0);
    promise_now(1);
    cr_assert(zero(u32, list().saves));
}

Test(kept, who_says_that_it_missed_a_head_is_told_the_newest)
{
    uint32_t before;

    protect(5);
    pair_run(p, 300);
    before = p->node[1].delivered;
    hth_commit_deliver(commit, 1, HTH_KIND_ALIVE, NULL, 0);
    cr_assert(pair_until(p, &p->node[1].delivered, before + 1, 1000));
    cr_assert(eq(u16, p->node[1].kind, HTH_KIND_HEAD));
}

Test(kept, with_each_heartbeat_it_says_which_head_is_the_newest)
{
    const struct pair_node *member = &p->node[1];
    uint64_t position;

    ctx->opts.heartbeat_ms = 100;
    protect(5);
    pair_run(p, 300);
    position = on_record(NULL).position;
    for (uint32_t i = 1; i <= 3; i++) {
        uint32_t before = member->heard[HTH_KIND_POSITION];

        p->now_ms += ctx->opts.heartbeat_ms;
        hth_commit_tick(commit);
        hth_commit_tick(commit);
        cr_assert(pair_until(p, &member->heard[HTH_KIND_POSITION], before + 1, 50));
        cr_assert(eq(u16, member->kind, HTH_KIND_POSITION));
        cr_assert(eq(u64, hth_get64(member->fact), position));
    }
}

/* Another node has sent a fact about the save, and none of this node's ranks has begun it. */
Test(kept, a_save_that_takes_too_long_fails_whoever_has_begun_it)
{
    say_held(1);
    p->now_ms += ctx->opts.save_ms - 1;
    hth_commit_tick(commit);
    cr_assert(ne(u16, p->node[0].kind, HTH_KIND_FAILED));
    p->now_ms += 1;
    hth_commit_tick(commit);
    cr_assert(eq(u16, p->node[0].kind, HTH_KIND_FAILED));
}

/* ---- Copies that are lost -------------------------------------------------------------------- */

Test(kept, a_promise_is_void_when_its_copy_is_lost)
{
    done_and_held();
    promise_now(1);
    copy_lost(1, store_of(1));
    promise_now(0);
    cr_assert(zero(u32, list().saves));
    promise_now(1);
    cr_assert(eq(u32, list().saves, 1));
}

Test(kept, a_lost_copy_is_on_record_until_it_is_back)
{
    struct hth_head before, h;

    protect(5);
    protect(6);
    before = on_record(NULL);
    save.step = 5;
    copy_lost(1, store_of(1));
    h = on_record(NULL);
    cr_assert(eq(u64, h.position, before.position + 1));
    cr_assert(eq(u64, h.keep.serial, before.keep.serial + 1));
    cr_assert(eq(u32, h.keep.degraded, 2));
    cr_assert(zero(int, h.settled));
    promise_kept();
    h = on_record(NULL);
    cr_assert(zero(u32, h.keep.degraded));
    cr_assert(eq(int, h.settled, 1));
    cr_assert(eq(u64, h.keep.serial, before.keep.serial + 2));
}

Test(kept, a_loss_of_memory_before_this_one_says_nothing)
{
    struct hth_head before;

    protect(5);
    before = on_record(NULL);
    copy_lost(1, store_of(1) + 100);
    cr_assert(eq(u64, on_record(NULL).position, before.position));
}

Test(kept, a_word_of_a_lost_copy_that_has_no_such_length_is_none)
{
    struct hth_head before;
    unsigned char memory[9] = { 0 };

    protect(5);
    before = on_record(NULL);
    hth_put64(memory, store_of(1));
    fact(1, HTH_KIND_COPY_LOST, memory, sizeof(memory));
    hth_commit_tick(commit);
    cr_assert(eq(u64, on_record(NULL).position, before.position));
}

/* The save is off the list, and the engine gives its manifest to no node any more. */
Test(kept, of_what_is_released_nothing_is_given_out)
{
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, save, 0 };
    size_t len;

    for (id.save.step = 5; id.save.step <= 5 + KEEP; id.save.step++) {
        protect(id.save.step);
        cr_assert(ne(ptr, (void *)(uintptr_t)hth_blob_find(ctx, &id, &len), NULL));
    }
    hth_commit_deliver(commit, 0, HTH_KIND_HEAD, NULL, 0); /* our own */
    id.save.step = 5;
    cr_assert(eq(ptr, (void *)(uintptr_t)hth_blob_find(ctx, &id, &len), NULL));
    id.save.step = 6;
    cr_assert(ne(ptr, (void *)(uintptr_t)hth_blob_find(ctx, &id, &len), NULL));
}

Test(kept, a_lost_node_degrades_all_of_it)
{
    struct hth_keep before;

    protect(5);
    protect(6);
    before = list();
    hth_commit_peer_down(commit, 2);
    hth_commit_tick(commit);
    cr_assert(eq(u32, list().degraded, 3));
    cr_assert(eq(u64, list().serial, before.serial + 1));
    cr_assert(zero(int, on_record(NULL).settled), "no holder has promised under the new map");
}

/* ---- Wishes ---------------------------------------------------------------------------------- */

static int wish(enum hth_wish what, uint64_t step)
{
    static uint64_t number;
    unsigned char body[16 + SAVE] = { 0 };

    hth_put64(body, ++number);
    hth_put32(body + 8, (uint32_t)what);
    hth_put64(body + 16 + 16, step); /* epoch 0: the newest of the step */
    hth_commit_deliver(commit, 0, HTH_KIND_WISH, body, sizeof(body));
    hth_commit_tick(commit);
    cr_assert(eq(u16, p->node[0].kind, HTH_KIND_WISH_RESULT));
    cr_assert(eq(u64, hth_get64(p->node[0].fact), number));
    return (int)hth_get32(p->node[0].fact + 8);
}

Test(kept, a_pinned_save_has_its_place_before_newer_ones)
{
    struct hth_keep k;

    protect(5);
    must(wish(HTH_WISH_PIN, 5));
    for (uint64_t step = 6; step <= 9; step++)
        protect(step);
    k = list();
    cr_assert(eq(u32, k.saves, KEEP));
    cr_assert(eq(u64, k.save[1].step, 8));
    cr_assert(eq(u64, k.save[2].step, 5));
    cr_assert(eq(u32, k.pinned, 4));
}

Test(kept, the_last_place_is_not_pinned)
{
    for (uint64_t step = 5; step <= 7; step++)
        protect(step);
    must(wish(HTH_WISH_PIN, 5));
    must(wish(HTH_WISH_PIN, 6));
    cr_assert(eq(int, wish(HTH_WISH_PIN, 7), HEARTH_ESTATE));
    must(wish(HTH_WISH_UNPIN, 6));
    must(wish(HTH_WISH_PIN, 7));
}

Test(kept, with_fewer_places_than_pins_the_oldest_pin_goes)
{
    for (uint64_t step = 5; step <= 7; step++)
        protect(step);
    must(wish(HTH_WISH_PIN, 5));
    must(wish(HTH_WISH_PIN, 6));
    ctx->opts.keep = 2; /* as the next job may have it */
    protect(8);
    cr_assert(eq(u32, list().saves, 2));
    cr_assert(eq(u64, list().save[1].step, 6));
    cr_assert(eq(u32, list().pinned, 2));
}

Test(kept, what_is_released_is_off_the_list_and_the_newest_is_not)
{
    struct hth_keep before;

    protect(5);
    protect(6);
    before = list();
    cr_assert(eq(int, wish(HTH_WISH_RELEASE, 6), HEARTH_ESTATE));
    cr_assert(eq(int, wish(HTH_WISH_RELEASE, 4), HEARTH_ENOENT));
    cr_assert(eq(u64, list().serial, before.serial));
    must(wish(HTH_WISH_RELEASE, 5));
    cr_assert(eq(u32, list().saves, 1));
    cr_assert(eq(u64, list().serial, before.serial + 1));
}

Test(kept, a_wish_that_cannot_be_written_is_not_granted)
{
    protect(5);
    protect(6);
    refuses = 1;
    cr_assert(ne(int, wish(HTH_WISH_RELEASE, 5), HEARTH_OK));
    cr_assert(eq(u32, list().saves, 2));
}

Test(kept, who_wishes_something_of_a_save_that_is_not_kept_hears_which_are)
{
    const char *why = (const char *)p->node[0].fact + 12;

    cr_assert(eq(int, wish(HTH_WISH_PIN, 4), HEARTH_ESTATE));
    protect(5);
    protect(6);
    cr_assert(eq(int, wish(HTH_WISH_PIN, 4), HEARTH_ENOENT));
    must_say(why, "step 4 is not kept; there is: 6, 5");
}

Test(kept, a_mark_outlives_decisions)
{
    struct hth_save_id bad = save;

    protect(5);
    must(wish(HTH_WISH_BAD, 5));
    protect(6);
    ctx->keep.dropped = 3; /* as an earlier job left it */
    protect(7);
    cr_assert(eq(int, hth_keep_is_bad(&ctx->keep, bad), 1));
    cr_assert(eq(u64, list().dropped, 3));
}

/* ---- What recovery came to ------------------------------------------------------------------- */

/* Of epoch 6: steps 9 and 8, of which 9 was chosen. */
static void recover_to(void)
{
    ctx->keep = (struct hth_keep){ .epoch = 6,
        .serial = 40,
        .saves = 2,
        .save = { { 6, 66, 9, 1 }, { 6, 66, 8, 1 } },
        .since_ms = { 1000, 900 },
        .pinned = 1,
        .bads = 1,
        .bad = { { 5, 55, 1, 1 } } };
    chosen = ctx->keep.save[0];
    save = chosen;
}

static void recover(void)
{
    recover_to();
    engine_start();
}

Test(chosen, the_list_that_recovery_came_to_is_the_first_head)
{
    struct hth_head h;

    recover();
    h = on_record(NULL);
    cr_assert(eq(u64, h.position, 1));
    cr_assert(eq(u32, h.keep.saves, 2));
    cr_assert(eq(u64, h.keep.epoch, 6));
    cr_assert(eq(u16, p->node[0].kind, HTH_KIND_HEAD));
}

Test(chosen, a_list_of_which_recovery_has_left_nothing_is_told_too)
{
    recover_to();
    ctx->keep.saves = ctx->keep.pinned = 0; /* the chosen save is on no list */
    engine_start();
    cr_assert(eq(u64, on_record(NULL).position, 1));
    cr_assert(eq(u16, p->node[0].kind, HTH_KIND_HEAD));
}

Test(chosen, the_list_that_recovery_came_to_is_tried_again_where_it_could_not_be_written)
{
    recover_to();
    engine_join();
    refuses = 1;
    hth_commit_go(commit, chosen);
    hth_commit_tick(commit);
    cr_assert(zero(u64, on_record(NULL).position));
    refuses = 0;
    p->now_ms += ctx->opts.retry_ms;
    hth_commit_tick(commit);
    cr_assert(eq(u64, on_record(NULL).position, 1));
    cr_assert(eq(u32, list().saves, 2));
}

Test(chosen, what_was_chosen_is_protected_again_with_its_age_its_pin_and_all_marks)
{
    struct hth_head h;

    recover();
    promise_now(0);
    cr_assert(eq(u64, list().epoch, 6));
    promise_now(2);
    h = on_record(NULL);
    cr_assert(eq(u64, h.keep.epoch, EPOCH));
    cr_assert(zero(int, hth_save_cmp(h.keep.save[0], chosen)));
    cr_assert(eq(u64, h.keep.since_ms[0], 1000));
    cr_assert(eq(u64, h.keep.since_ms[1], 900));
    cr_assert(eq(u32, h.keep.pinned, 1));
    cr_assert(eq(u32, h.keep.bads, 1));
    cr_assert(eq(u32, h.keep.degraded, 3), "the copies of the older save have not been counted");
    cr_assert(eq(int, hth_save_none(h.decided), 1), "of this epoch nothing is decided");
}

/* Nothing on the list could be had, and the ranks have begun anew. */
Test(chosen, what_was_lost_leaves_the_list_when_a_newer_save_is_protected)
{
    recover_to();
    chosen = (struct hth_save_id){ 0 };
    engine_start();
    cr_assert(eq(u32, list().saves, 2), "a node with the rest may come back");
    save = (struct hth_save_id){ EPOCH, NONCE, 1, 1 };
    done_and_held();
    promise_now(0);
    promise_now(1);
    cr_assert(eq(u32, list().saves, 1));
    cr_assert(zero(int, hth_save_cmp(list().save[0], save)));
}

Test(chosen, no_wish_is_granted_before_something_is_protected_in_this_epoch)
{
    recover();
    cr_assert(eq(int, wish(HTH_WISH_UNPIN, 9), HEARTH_ESTATE));
    promise_now(0);
    promise_now(2);
    must(wish(HTH_WISH_UNPIN, 9));
    cr_assert(zero(u32, list().pinned));
}

/* Common to step 8, and of rank 0, whose node is new: only node 2 has it. */
static const struct hth_object common = {
    .id = 99, .owner = 0, .kind = HTH_OBJECT_RAW, .data_len = 4, .name = "common"
};

static void know_common(uint32_t node, const struct hth_object *o)
{
    struct hth_ctx *of = &p->node[node].ctx;
    struct hth_object copy = *o;
    struct hth_manifest m = { .save = { 6, 66, 8, 1 },
        .world = NODES,
        .nodes = NODES,
        .job = "pair",
        .objects = 1,
        .object = &copy };
    unsigned char *bytes = malloc(hth_manifest_bytes(&m));

    cr_assert(bytes != NULL);
    must(hth_manifest_encode(&m, bytes, NULL));
    must(hth_held_set_manifest(
            of, hth_holdings_get(of, m.save), bytes, hth_manifest_bytes(&m), NULL));
}

static void have_common(uint32_t node, const struct hth_object *o)
{
    struct hth_save_id old = { 6, 66, 8, 1 };
    struct hth_held_save *s = hth_holdings_find(&p->node[node].ctx, old);

    must(raw_put(p->node[node].store, old, o->name, "data", 4, NULL));
    hth_held_add(s, o, HTH_HELD_SEALED, NULL)->verified = 1;
}

static int common_comes(uint64_t ms)
{
    struct hth_save_id old = { 6, 66, 8, 1 };

    for (uint64_t end_ms = p->now_ms + ms; p->now_ms < end_ms; hth_commit_tick(commit))
        if (!pair_step(p))
            p->now_ms += 10;
    return raw_is(p->node[0].store, old, common.name, "data", 4);
}

Test(chosen, a_coordinator_that_is_new_has_what_is_common_to_an_older_kept_save_from_whoever_has_it)
{
    struct hth_object o = common;

    hth_digest(o.digest, "data", 4);
    know_common(0, &o);
    know_common(2, &o);
    have_common(2, &o);
    recover();
    cr_assert(eq(int, common_comes(5000), 1));
}

/* ---- Marking by count ------------------------------------------------------------------------ */

/* Two jobs have recovered it, the second of which runs and has begun a save. */
static void try_again(void)
{
    recover_to();
    ctx->keep.tried = chosen;
    ctx->keep.tries = 2;
    engine_start();
    hth_commit_tick(commit);
    promise_now(0); /* of the chosen save, which is not a save of this job */
    promise_now(1);
    cr_assert(eq(u32, hth_keep_tries(&ctx->keep, chosen), 2));
    save = (struct hth_save_id){ EPOCH, NONCE, 10, 1 };
    done_and_held();
    cr_assert(eq(u32, hth_keep_tries(&ctx->keep, chosen), 2), "it is not decided");
}

static void no_save_is_tried(void)
{
    struct hth_keep k = list();

    cr_assert(eq(int, hth_save_none(k.tried), 1));
    cr_assert(eq(int, hth_save_none(ctx->keep.tried), 1));
    cr_assert(zero(u32, k.tries));
}

Test(chosen, a_job_whose_first_save_is_protected_ends_the_count_of_tries)
{
    try_again();
    promise_now(0);
    promise_now(1);
    cr_assert(zero(int, hth_save_cmp(list().save[0], save)));
    no_save_is_tried();
}

Test(chosen, a_job_whose_first_save_is_cancelled_ends_the_count_of_tries_on_every_node)
{
    struct hth_keep before;
    unsigned char code[4];

    try_again();
    before = list();
    hth_put32(code, HEARTH_ENOSPC);
    fact(1, HTH_KIND_FAILED, code, sizeof(code));
    hth_commit_tick(commit);
    cr_assert(eq(u32, on_record(NULL).cancels, 1));
    no_save_is_tried();
    cr_assert(gt(u64, list().serial, before.serial), "a recovery takes the newer list");
}
