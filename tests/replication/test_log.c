/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator and its log: made-up facts of two nodes, and what is on record when a head is
 * sent. */
#include "coordinator.h"

static void begin(void)
{
    coordinator_open(2);
    engine_start();
}

TestSuite(log, .init = begin, .fini = coordinator_close);

static int is_noted_lost(void)
{
    struct hth_places map;
    const struct hth_note *n;
    int lost;

    (void)on_record(&map);
    n = hth_places_note(&map, 1);
    lost = n && n->lost;
    hth_places_fini(&map);
    return lost;
}

/* Heads sent so far: the coordinator's own node receives them too. */
static uint32_t told(void)
{
    return p->node[0].kind == HTH_KIND_HEAD ? p->node[0].delivered : 0;
}

static void fail_it(void)
{
    unsigned char why[4 + 4] = { 0 };

    hth_put32(why, (uint32_t)HEARTH_EIO);
    memcpy(why + 4, "disk", 4);
    fact(1, HTH_KIND_FAILED, why, sizeof(why));
    hth_commit_tick(commit);
}

Test(log, cancelled_is_on_record_when_it_is_told)
{
    struct hth_head h;

    fail_it();
    h = on_record(NULL);
    cr_assert(eq(u64, h.position, 1));
    cr_assert(eq(u32, h.cancels, 1));
    cr_assert(zero(int, hth_save_cmp(h.cancelled[0].save, save)));
    cr_assert(eq(u32, told(), 1));
}

Test(log, what_cannot_be_written_is_not_told_and_is_tried_again)
{
    refuses = 1;
    fail_it();
    cr_assert(eq(u64, on_record(NULL).position, 0));
    cr_assert(eq(u32, told(), 0));
    cr_assert(ne(ptr, strstr(p->node[0].logged, "head-failed"), NULL));
    refuses = 0;
    p->now_ms += 1000;
    hth_commit_tick(commit);
    cr_assert(eq(u64, on_record(NULL).position, 1));
    cr_assert(ne(u32, told(), 0));
}

Test(log, what_cannot_be_written_is_tried_again_in_a_while_and_not_in_each_round)
{
    refuses = 1;
    fail_it();
    for (int i = 0; i < 20; i++)
        hth_commit_tick(commit);
    cr_assert(eq(int, pair_logged(p, 0, "head-failed"), 1));
    p->now_ms += ctx->opts.retry_ms;
    hth_commit_tick(commit);
    cr_assert(eq(int, pair_logged(p, 0, "head-failed"), 2));
}

static const char *waits_for(void)
{
    static char text[300];
    const char *at;

    hth_commit_text(commit, text, sizeof(text));
    at = strstr(text, "waits for ");
    return at ? at + strlen("waits for ") : text;
}

/* The holder repeats the reason in HELD, for as long as there is no room. */
Test(log, a_save_that_waits_for_a_copy_without_room_says_so)
{
    static const char why[] = "no room for a copy: 900 bytes do not fit";
    struct hth_head h = on_record(NULL);

    done_and_held();
    fact(1, HTH_KIND_HELD, why, sizeof(why) - 1);
    fact(0, HTH_KIND_HELD, NULL, 0);
    must_say(waits_for(), "the promise of node node0, node node1; node node1: no room for a copy: "
                          "900 bytes do not fit");
    fact(1, HTH_KIND_HELD, NULL, 0);
    must_say(waits_for(), "the promise of node node0, node node1");
    fact(1, HTH_KIND_HELD, why, sizeof(why) - 1);
    promise(1, h.map);
    must_say(waits_for(), "the promise of node node0");
}

/* Each look would begin the manifest again, until the save's deadline. */
Test(log, a_save_whose_manifest_cannot_be_written_fails_at_once_with_the_reason)
{
    struct hth_head h;

    refuses_manifests = 1;
    done_and_held();
    h = on_record(NULL);
    cr_assert(eq(u32, h.cancels, 1));
    cr_assert(zero(int, hth_save_cmp(h.cancelled[0].save, save)));
    cr_assert(eq(int, h.cancelled[0].code, HEARTH_ENOSPC));
    cr_assert(ne(ptr, strstr(h.why, "no room for a manifest"), NULL), "%s", h.why);
}

Test(log, a_cancelled_save_is_not_protected_by_the_next_engine)
{
    const unsigned char *map;
    struct hth_head h;

    fail_it();
    engine_again();
    h = on_record(NULL);
    map = h.map;
    done_and_held();
    promise(0, map);
    promise(1, map);
    cr_assert(eq(u64, on_record(NULL).position, 1));
    cr_assert(eq(u32, on_record(NULL).keep.saves, 0));
}

Test(log, enough_promises_protect_and_settle)
{
    struct hth_head h = on_record(NULL);

    done_and_held();
    promise(0, h.map);
    cr_assert(eq(u64, on_record(NULL).position, 0));
    promise(1, h.map);
    h = on_record(NULL);
    cr_assert(eq(u64, h.position, 1));
    cr_assert(eq(u32, h.keep.saves, 1));
    cr_assert(zero(int, hth_save_cmp(h.keep.save[0], save)));
    cr_assert(zero(int, hth_save_cmp(h.decided, save)));
    cr_assert(eq(int, h.settled, 1));
}

/* One of two parts, which has an object; the other has none. */
static void say_part(uint32_t part)
{
    struct hth_object o = {
        .kind = HTH_OBJECT_SHARD, .data_len = 1000, .table_len = 72, .name = "object"
    };
    unsigned char more[16 + HTH_MANIFEST_OBJECT] = { 0 };

    hth_put32(more, part);
    hth_put32(more + 4, 2);
    hth_put32(more + 8, !part);
    hth_object_encode(&o, more + 16);
    fact(0, HTH_KIND_DONE, more, part ? 16 : sizeof(more));
}

Test(log, a_part_of_a_report_that_comes_twice_counts_once)
{
    const struct hth_held_save *s;

    say_part(0);
    say_part(0);
    say_part(1);
    say_done(1);
    hth_commit_tick(commit);
    s = hth_holdings_find(ctx, save);
    cr_assert(s && s->has_manifest);
    cr_assert(eq(u32, s->manifest.objects, 1));
}

/* An engine that dies in between has written the one and not the other. */
Test(log, of_head_and_keep_record_the_newer_list_counts)
{
    struct hth_head h = on_record(NULL);

    done_and_held();
    promise(0, h.map);
    promise(1, h.map);
    h = on_record(NULL);
    ctx->keep.serial--;
    ctx->keep.saves = 0;
    engine_again();
    cr_assert(eq(u64, ctx->keep.serial, h.keep.serial));
    cr_assert(eq(u32, ctx->keep.saves, 1));
    ctx->keep.serial++;
    engine_again();
    cr_assert(eq(u64, ctx->keep.serial, h.keep.serial + 1));
}

/* The same who are lost and the same places, and yet another map. */
Test(log, a_promise_under_an_older_map_does_not_count)
{
    struct hth_head first = on_record(NULL), now;

    done_and_held();
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    hth_commit_peer_up(commit, 1);
    hth_commit_tick(commit);
    now = on_record(NULL);
    cr_assert(eq(u64, now.position, 2));
    promise(0, now.map);
    promise(1, first.map);
    cr_assert(eq(u32, on_record(NULL).keep.saves, 0));
    promise(1, now.map);
    cr_assert(eq(u32, on_record(NULL).keep.saves, 1));
}

Test(log, no_promise_outlives_its_map)
{
    struct hth_head now = on_record(NULL);

    done_and_held();
    promise(0, now.map);
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    hth_commit_peer_up(commit, 1);
    hth_commit_tick(commit);
    now = on_record(NULL);
    promise(1, now.map);
    cr_assert(eq(u32, on_record(NULL).keep.saves, 0));
    promise(0, now.map);
    cr_assert(eq(u32, on_record(NULL).keep.saves, 1));
}

Test(log, a_promise_of_who_is_lost_does_not_count)
{
    struct hth_head h;

    done_and_held();
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    h = on_record(NULL);
    promise(0, h.map);
    promise(1, h.map);
    cr_assert(eq(u32, on_record(NULL).keep.saves, 0));
}

Test(log, the_next_engine_knows_who_is_lost_and_goes_on_from_there)
{
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    cr_assert(is_noted_lost());
    engine_again();
    cr_assert(eq(u32, p->node[0].ctx.lost[1], 1));
    hth_commit_peer_up(commit, 1);
    hth_commit_tick(commit);
    cr_assert(eq(u64, on_record(NULL).position, 2));
    cr_assert(zero(int, is_noted_lost()));
}

Test(log, a_sign_of_life_is_newer_than_what_the_note_quotes)
{
    hth_commit_sign_of_life(commit, 1, 4, 10);
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    hth_commit_sign_of_life(commit, 1, 4, 10);
    hth_commit_sign_of_life(commit, 1, 3, 99);
    hth_commit_tick(commit);
    cr_assert(is_noted_lost());
    hth_commit_sign_of_life(commit, 1, 4, 11);
    hth_commit_tick(commit);
    cr_assert(zero(int, is_noted_lost()));
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    hth_commit_sign_of_life(commit, 1, 5, 1); /* its engine's next life */
    hth_commit_tick(commit);
    cr_assert(zero(int, is_noted_lost()));
}

Test(log, a_note_quotes_for_the_next_engine_too)
{
    hth_commit_sign_of_life(commit, 1, 4, 10);
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    engine_again();
    hth_commit_sign_of_life(commit, 1, 4, 9); /* from before, and late */
    hth_commit_tick(commit);
    cr_assert(is_noted_lost());
    hth_commit_sign_of_life(commit, 1, 4, 11);
    hth_commit_tick(commit);
    cr_assert(zero(int, is_noted_lost()));
}

Test(log, a_map_begins_with_the_name_of_its_forerunner)
{
    struct hth_head before = on_record(NULL);
    struct hth_places map;

    for (int i = 0; i < 3; i++) {
        hth_commit_peer_down(commit, 1);
        hth_commit_tick(commit);
        (void)on_record(&map);
        cr_assert(zero(int, memcmp(map.forerunner, before.map, HTH_DIGEST)));
        hth_places_fini(&map);
        hth_commit_peer_up(commit, 1);
        hth_commit_tick(commit);
        before = on_record(NULL);
    }
}

Test(log, a_decision_forgets_no_name_of_a_newer_save)
{
    struct hth_head h = on_record(NULL);
    struct hth_save_id newer;

    must(hth_commit_begin(commit, 0, 6, NULL, &newer, NULL));
    hth_commit_fail(commit, newer, HEARTH_EIO, "no");
    hth_commit_deliver(commit, 0, p->node[0].kind, p->node[0].fact, p->node[0].len);
    done_and_held();
    promise(0, h.map);
    promise(1, h.map);
    h = on_record(NULL);
    cr_assert(eq(u32, h.keep.saves, 1));
    cr_assert(eq(u32, h.cancels, 1));
    cr_assert(zero(int, hth_save_cmp(h.cancelled[0].save, newer)));
}

/* At most sixteen names. A name of a save that a node may have promised is not replaced by one that
 * no node has promised. */
Test(log, names_of_cancelled_saves_are_bounded)
{
    struct hth_head h;
    struct hth_save_id id;

    done_and_held();
    fail_it();
    for (uint64_t step = 6; step < 40; step++) {
        must(hth_commit_begin(commit, 0, step, NULL, &id, NULL));
        hth_commit_fail(commit, id, HEARTH_EIO, "no");
        hth_commit_deliver(commit, 0, p->node[0].kind, p->node[0].fact, p->node[0].len);
        hth_commit_tick(commit);
    }
    h = on_record(NULL);
    cr_assert(eq(u32, h.cancels, HTH_HEAD_CANCELLED));
    cr_assert(zero(int, hth_save_cmp(h.cancelled[0].save, save)));
    cr_assert(eq(u64, h.cancelled[HTH_HEAD_CANCELLED - 1].save.step, 39));
}

/* Memory that was promised in it may be another one by now. */
Test(log, what_was_said_in_an_older_epoch_counts_in_none_after_it)
{
    struct hth_head h = on_record(NULL);

    done_and_held();
    promise(0, h.map);
    p->node[0].epoch.epoch++;
    must(hth_commit_join(commit, NULL));
    hth_commit_go(commit, chosen);
    h = on_record(NULL);
    promise(1, h.map);
    cr_assert(zero(u32, on_record(NULL).keep.saves));
}

/* 1: it is given out by pull. */
static int map_is_given(void)
{
    struct hth_head h = on_record(NULL);
    struct hth_blob_id id = { HTH_BLOB_MAP, { h.epoch, h.nonce, h.mapped, 0 }, 0 };
    size_t len;

    return hth_blob_find(ctx, &id, &len) != NULL;
}

Test(log, a_map_that_is_too_large_for_a_message_is_given_by_pull_and_no_other_is)
{
    hth_commit_peer_down(commit, 1);
    hth_commit_tick(commit);
    cr_assert(is_noted_lost());
    cr_assert(zero(int, map_is_given()));
    ctx->opts.breaks = HTH_TEST_BLOB; /* every map is */
    hth_commit_peer_up(commit, 1);
    hth_commit_tick(commit);
    cr_assert(zero(int, is_noted_lost()));
    cr_assert(eq(int, map_is_given(), 1));
}
