/* SPDX-License-Identifier: Apache-2.0 */
/* A member that cannot reach a node; and copies of kept saves, which go first. */
#include "member.h"

#include "core/base/bytes.h"

TestSuite(unreachable, .init = begin, .fini = end);
TestSuite(first, .init = begin, .fini = end);

/* ---- Nodes that it cannot reach -------------------------------------------------------------- */

/* Rank 2's copy is assigned here and not here; `was` had it before. Its owner is node 2. */
static void lack_copy_of(const struct hth_keep *keep, uint32_t was)
{
    struct hth_object object[2] = { seal(other)->object, seal(own)->object };
    struct hth_held_save *s = hth_holdings_find(ctx, save);
    struct hth_move move = { .rank = 2, .place = 0, .node = 1, .was = was };
    struct hth_places map = { .moves = 1, .move = &move };

    hth_held_drop(ctx, s, hth_held_find(s, other));
    give_head(1, &map, keep);
    give_manifest(object, 2);
}

static void lack_copy(uint32_t was)
{
    lack_copy_of(&ctx->keep, was);
}

static void give_pair(uint64_t position, uint32_t cut)
{
    struct hth_move move = { .rank = 2, .place = 0, .node = 1, .was = 1 };
    struct hth_pair_note pair = { .a = 1, .b = 2, .unreachable = cut };
    struct hth_places map = { .moves = 1, .move = &move, .pairs = 1, .pair = &pair };

    give_head(position, &map, &ctx->keep);
}

Test(unreachable, says_which_node_it_cannot_reach_and_has_a_place_with_until_the_map_has_the_pair)
{
    lack_copy(1);
    cr_assert(zero(u32, heard(HTH_KIND_UNREACHABLE, SOON_MS)));
    hth_commit_peer_down(commit, 2);
    cr_assert(ge(u32, heard(HTH_KIND_UNREACHABLE, 2 * SOON_MS), 3));
    cr_assert(eq(u8, p->node[0].fact[4], 1));
    give_pair(2, 1);
    (void)heard(HTH_KIND_UNREACHABLE, 50);
    cr_assert(zero(u32, heard(HTH_KIND_UNREACHABLE, SOON_MS)));
}

/* The coordinator knows which node has a source. */
Test(unreachable, says_so_though_another_holder_is_in_reach_and_nothing_is_lacking)
{
    struct hth_keep keep = { .epoch = save.epoch, .serial = 1, .saves = 1, .save = { save } };

    unsettled = 1;
    lack_copy_of(&keep, 0);
    hth_commit_peer_down(commit, 2);
    cr_assert(ge(u32, heard(HTH_KIND_UNREACHABLE, 2 * SOON_MS), 3));
}

Test(unreachable, takes_back_what_it_said_when_there_is_a_connection_again)
{
    hth_commit_peer_down(commit, 2);
    (void)heard(HTH_KIND_UNREACHABLE, SOON_MS);
    hth_commit_peer_up(commit, 2);
    cr_assert(ge(u32, heard(HTH_KIND_UNREACHABLE, 50), 1));
    cr_assert(eq(u8, p->node[0].fact[0], 2));
    cr_assert(zero(u8, p->node[0].fact[4]), "it can");
    cr_assert(zero(u32, heard(HTH_KIND_UNREACHABLE, 2 * SOON_MS)));
}

/* ---- Pulls that stall ------------------------------------------------------------------------ */

static void stall(uint64_t len)
{
    hth_commit_pulled(commit, 2, len, HEARTH_ETIMEOUT);
    (void)heard(HTH_KIND_UNREACHABLE, ctx->opts.retry_ms + 10);
}

Test(unreachable, says_which_node_it_cannot_pull_from_when_two_pulls_in_a_row_have_stalled)
{
    hth_commit_pulled(commit, 2, 4096, HEARTH_ETIMEOUT);
    hth_commit_pulled(commit, 2, 4096, HEARTH_ETIMEOUT); /* in the same moment */
    cr_assert(zero(u32, heard(HTH_KIND_UNREACHABLE, SOON_MS)));
    stall(8192);
    cr_assert(ge(u32, heard(HTH_KIND_UNREACHABLE, 2 * SOON_MS), 3));
    cr_assert(eq(u8, p->node[0].fact[0], 2));
    cr_assert(eq(u8, p->node[0].fact[4], 2));
}

Test(unreachable,
        a_pull_as_long_as_the_shortest_that_stalled_shows_that_it_can_and_a_shorter_one_does_not)
{
    stall(8192);
    stall(4096);
    hth_commit_pulled(commit, 2, 1000, HEARTH_OK);
    cr_assert(ge(u32, heard(HTH_KIND_UNREACHABLE, 2 * SOON_MS), 3));
    hth_commit_pulled(commit, 2, 4096, HEARTH_OK);
    (void)heard(HTH_KIND_UNREACHABLE, 50);
    cr_assert(zero(u32, heard(HTH_KIND_UNREACHABLE, 2 * SOON_MS)));
}

Test(unreachable, one_pull_that_stalls_between_others_that_come_is_not_said)
{
    for (int i = 0; i < 5; i++) {
        stall(4096);
        hth_commit_pulled(commit, 2, 4096, HEARTH_OK);
    }
    cr_assert(zero(u32, said[HTH_KIND_UNREACHABLE]));
}

Test(unreachable, pulls_from_the_coordinator_that_stall_are_said_too)
{
    for (int i = 0; i < 2; i++) {
        hth_commit_pulled(commit, 0, 4096, HEARTH_ETIMEOUT);
        (void)heard(HTH_KIND_UNREACHABLE, ctx->opts.retry_ms + 10);
    }
    cr_assert(ge(u32, heard(HTH_KIND_UNREACHABLE, 2 * SOON_MS), 3));
    cr_assert(zero(u8, p->node[0].fact[0]));
    cr_assert(eq(u8, p->node[0].fact[4], 2));
}

/* The map moves rank 1's copy from node 2 to node 0: nodes 1 and 2 have no rank's objects both. */
static void share_no_rank(void)
{
    struct hth_move move = { .rank = 1, .place = 0, .node = 0, .was = 0 };
    struct hth_places map = { .moves = 1, .move = &move };

    give_head(1, &map, &ctx->keep);
}

/* The coordinator sends words to node 2 by way of node 1. */
Test(unreachable, says_so_of_its_child_in_the_tree_though_they_share_no_ranks_objects)
{
    ctx->opts.tree_degree = 1;
    share_no_rank();
    hth_commit_peer_down(commit, 2);
    cr_assert(ge(u32, heard(HTH_KIND_UNREACHABLE, 2 * SOON_MS), 3));
}

Test(unreachable, says_once_that_it_has_no_connection_with_a_node_that_it_need_not_reach)
{
    share_no_rank();
    hth_commit_peer_down(commit, 2);
    cr_assert(eq(u32, heard(HTH_KIND_UNREACHABLE, 2 * SOON_MS), 1));
}

/* Its engine was killed and is back: it has the copy, and the other holder does not. */
Test(unreachable, a_node_that_was_away_is_dialled_though_another_holder_is_in_reach)
{
    lack_copy(0);
    hth_commit_peer_down(commit, 2);
    cr_assert(zero(int, hth_session_is_connected(ctx->session, 2)));
    (void)heard(HTH_KIND_UNREACHABLE, SOON_MS);
    cr_assert(eq(int, hth_session_is_connected(ctx->session, 2), 1));
}

Test(unreachable,
        tries_which_node_the_map_says_it_cannot_reach_and_says_when_it_can_until_the_map_has_it)
{
    give_pair(1, 1);
    cr_assert(zero(u32, heard(HTH_KIND_UNREACHABLE, 2 * ctx->opts.dead_ms - 10)));
    cr_assert(ge(u32, heard(HTH_KIND_UNREACHABLE, 5 * ctx->opts.dead_ms), 1));
    cr_assert(zero(u8, p->node[0].fact[4]), "it can");
    give_pair(2, 0);
    (void)heard(HTH_KIND_UNREACHABLE, 50);
    cr_assert(zero(u32, heard(HTH_KIND_UNREACHABLE, 5 * ctx->opts.dead_ms)));
}

static enum hth_loop_fault how; /* pulls from node 2 go */

static struct hth_loop_verdict path(void *arg, enum hth_loop_kind kind, uint32_t from, uint32_t to,
        const void *bytes, size_t len)
{
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };

    (void)arg, (void)from, (void)bytes;
    if (kind == HTH_LOOP_PULL && to == 2 && len > 1000)
        v.fault = how;
    return v;
}

/* Messages of node 2 come all the while. */
Test(unreachable,
        a_pair_whose_pulls_stalled_can_again_when_a_pull_has_come_and_not_when_it_is_connected)
{
    struct hth_keep keep = { .epoch = save.epoch, .serial = 1, .saves = 1, .save = { save } };
    struct hth_object object[2] = { seal(own)->object,
        pair_seal(p, 2, save, other, 4096, other)->object };
    struct hth_pair_note pair = { .a = 1, .b = 2, .unreachable = 1 };
    struct hth_places map = { .pairs = 1, .pair = &pair };

    how = HTH_LOOP_STALL;
    hth_loop_net_script(p->net, path, NULL);
    give_manifest(object, 2);
    give_head(1, &map, &keep);
    cr_assert(zero(u32, heard(HTH_KIND_UNREACHABLE, 12 * ctx->opts.dead_ms)));
    cr_assert(eq(int, hth_session_is_connected(ctx->session, 2), 1));
    how = HTH_LOOP_NONE;
    cr_assert(ge(u32, heard(HTH_KIND_UNREACHABLE, 60000 + ctx->opts.dead_ms), 1));
    cr_assert(zero(u8, p->node[0].fact[4]), "it can");
}

/* ---- What is kept goes before what is undecided ---------------------------------------------- */

static const struct hth_save_id later = { 7, 77, 6, 1 }, last = { 7, 77, 7, 1 };

static struct hth_held *seal_of(uint32_t node, struct hth_save_id of, uint64_t id)
{
    struct hth_held *held = pair_seal(p, node, of, id, 4096, id);

    held->verified = 1;
    return held;
}

/* The save is kept, and not settled: rank 2's copy has its place here, and node 2 alone has it. */
static void keep_unsettled(void)
{
    struct hth_object object[2] = { seal_of(2, save, other)->object, seal(own)->object };
    struct hth_keep keep = { .epoch = save.epoch, .serial = 1, .saves = 1, .save = { save } };
    struct hth_move move = { .rank = 2, .place = 0, .node = 1, .was = 2 };
    struct hth_places map = { .moves = 1, .move = &move };

    unsettled = 1;
    give_head(1, &map, &keep);
    give_manifest(object, 2);
}

static void no_more_room(void)
{
    hth_store_mem_room(p->node[1].store, 1);
}

Test(first, a_copy_of_an_undecided_save_stays_and_one_of_a_kept_save_is_pulled_when_there_is_room)
{
    struct hth_object object[2] = { seal_of(0, later, copy)->object,
        seal_of(1, later, own)->object };

    (void)seal_of(1, later, copy);
    keep_unsettled();
    no_more_room();
    give_manifest_of(later, object, 2);
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, 2 * SOON_MS), 1), "of what is undecided");
    cr_assert(pair_equal(p, 1, 0, later, copy));
    cr_assert(eq(ptr, pair_held(p, 1, save, other), NULL));
    hth_store_mem_room(p->node[1].store, 0);
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, 10 * SOON_MS), 1), "of what is kept");
    cr_assert(pair_equal(p, 1, 2, save, other));
}

/* The copy of the kept save has no slot: copies of undecided saves wait, and not for ever. */
Test(first,
        no_copy_of_an_undecided_save_is_taken_before_the_kept_save_has_a_slot_or_its_tries_are_over)
{
    struct hth_object object[1] = { seal_of(1, last, own)->object };

    keep_unsettled();
    no_more_room();
    (void)heard(HTH_KIND_PROMISE, SOON_MS / 2);
    cr_assert(eq(int, hth_commit_offer_wanted(commit, 0, last, &object[0]), HEARTH_EBUSY));
    (void)heard(HTH_KIND_PROMISE, 4 * SOON_MS);
    cr_assert(eq(ptr, pair_held(p, 1, save, other), NULL));
    must(hth_commit_offer_wanted(commit, 0, last, &object[0]));
}

/* Its slot is enough: a source may come later. */
Test(first, copies_of_undecided_saves_do_not_wait_for_bytes_of_a_kept_save)
{
    struct hth_object object[1] = { seal_of(1, last, own)->object };

    keep_unsettled();
    hth_held_drop(&p->node[2].ctx, hth_holdings_find(&p->node[2].ctx, save),
            pair_held(p, 2, save, other));
    cr_assert(eq(int, hth_commit_offer_wanted(commit, 0, last, &object[0]), HEARTH_EBUSY));
    (void)heard(HTH_KIND_PROMISE, SOON_MS / 2);
    must(hth_commit_offer_wanted(commit, 0, last, &object[0]));
}

static void complete(struct hth_save_id id)
{
    unsigned char word[32] = { 0 };

    hth_put64(word, id.epoch);
    hth_put64(word + 8, id.nonce);
    hth_put64(word + 16, id.step);
    hth_put32(word + 24, id.attempt);
    hth_commit_deliver(commit, 0, HTH_KIND_COMPLETE, word, sizeof(word));
}

/* For longer than tries of kept saves may last on any node. */
static void refuse_for_long(void)
{
    uint64_t end_ms = p->now_ms + 9 * ctx->opts.retry_ms + 4 * (uint64_t)ctx->opts.dead_ms;

    while (p->now_ms < end_ms) {
        hth_commit_no_room(commit, later, HEARTH_ENOSPC, "it does not fit");
        (void)heard(HTH_KIND_FAILED, ctx->opts.retry_ms);
    }
}

static void later_has_no_slot(void)
{
    struct hth_object object[2] = { seal_of(0, later, copy)->object,
        seal_of(1, later, own)->object };

    no_more_room();
    give_manifest_of(later, object, 2);
}

/* The map may be settled only when the undecided save has ended. */
Test(first, an_undecided_save_without_a_slot_fails_when_the_tries_of_a_kept_one_are_over)
{
    keep_unsettled();
    later_has_no_slot();
    complete(later);
    refuse_for_long();
    cr_assert(ge(u32, said[HTH_KIND_FAILED], 1));
}

/* The kept save is whole here, and lacks a slot elsewhere, which the undecided save may have. */
Test(first, an_undecided_save_without_a_slot_fails_also_where_the_kept_one_is_whole)
{
    keep_unsettled();
    (void)heard(HTH_KIND_PROMISE, 2 * SOON_MS);
    cr_assert(pair_equal(p, 1, 2, save, other));
    later_has_no_slot();
    complete(later);
    refuse_for_long();
    cr_assert(ge(u32, said[HTH_KIND_FAILED], 1));
}

/* Its ranks still write, and other holders may be enough. */
Test(first, an_undecided_save_that_is_not_complete_does_not_fail_for_a_kept_one)
{
    keep_unsettled();
    later_has_no_slot();
    refuse_for_long();
    cr_assert(zero(u32, said[HTH_KIND_FAILED]));
}

/* Vain tries are those in which the manifest is here: without it nothing is known to be lacking. */
Test(first, a_kept_save_whose_manifest_comes_late_has_its_tries)
{
    struct hth_object object[2] = { seal_of(2, save, other)->object, seal(own)->object };
    struct hth_object later_object[1] = { seal_of(1, last, own)->object };
    struct hth_keep keep = { .epoch = save.epoch, .serial = 1, .saves = 1, .save = { save } };
    struct hth_move move = { .rank = 2, .place = 0, .node = 1, .was = 2 };
    struct hth_places map = { .moves = 1, .move = &move };

    unsettled = 1;
    give_head(1, &map, &keep);
    (void)heard(HTH_KIND_PROMISE, 5 * SOON_MS);
    no_more_room();
    give_manifest(object, 2);
    for (int i = 0; i < 2; i++) {
        cr_assert(
                eq(int, hth_commit_offer_wanted(commit, 0, last, &later_object[0]), HEARTH_EBUSY));
        (void)heard(HTH_KIND_PROMISE, SOON_MS / 2);
        cr_assert(eq(ptr, pair_held(p, 1, save, other), NULL));
    }
}
