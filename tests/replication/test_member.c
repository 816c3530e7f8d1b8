/* SPDX-License-Identifier: Apache-2.0 */
/* Which facts a member sends of a save, and when. */
#include "member.h"

TestSuite(member, .init = begin, .fini = end);

/* ---- PROMISE --------------------------------------------------------------------------------- */

Test(member, promises_when_all_that_is_assigned_to_it_is_here_and_says_so_until_it_has_an_effect)
{
    struct hth_object object[2] = { seal(copy)->object, seal(own)->object };

    give_manifest(object, 2);
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, SOON_MS), 3));
}

Test(member, does_not_promise_a_copy_that_is_not_here)
{
    struct hth_object object[2] = { seal(copy)->object, seal(own)->object };
    struct hth_held_save *s = hth_holdings_find(ctx, save);

    hth_held_drop(ctx, s, hth_held_find(s, copy));
    give_manifest(object, 2);
    cr_assert(zero(u32, heard(HTH_KIND_PROMISE, SOON_MS)));
    cr_assert(ge(u32, said[HTH_KIND_HELD], 4));
}

Test(member, does_not_promise_bytes_that_are_not_those_of_the_manifest)
{
    struct hth_object object[2] = { seal(copy)->object, seal(own)->object };

    object[0].digest[0] ^= 1;
    give_manifest(object, 2);
    cr_assert(zero(u32, heard(HTH_KIND_PROMISE, SOON_MS)));
}

Test(member, reads_what_an_earlier_engine_has_sealed_before_it_promises_it)
{
    struct hth_held *held = seal(copy);
    struct hth_object object[2] = { held->object, seal(own)->object };

    held->verified = 0;
    give_manifest(object, 2);
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, SOON_MS), 1));
}

Test(member, does_not_promise_what_has_become_wrong_under_an_earlier_engine)
{
    struct hth_held *held = seal(copy);
    struct hth_object object[2] = { held->object, seal(own)->object };

    held->verified = 0;
    held->slot->base[HTH_BLOCK + 8] ^= 1;
    give_manifest(object, 2);
    cr_assert(zero(u32, heard(HTH_KIND_PROMISE, SOON_MS)));
    cr_assert(eq(int, pair_logged(p, 1, "copy-lost"), 1));
}

Test(member, promises_a_copy_that_was_found_bad_no_more)
{
    struct hth_object object[2] = { seal(copy)->object, seal(own)->object };

    give_manifest(object, 2);
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, SOON_MS), 1));
    hth_commit_copy_lost(commit, save, copy, "its checksum is another");
    (void)heard(HTH_KIND_PROMISE, 50); /* what is on its way */
    cr_assert(zero(u32, heard(HTH_KIND_PROMISE, SOON_MS)));
}

/* The first head: node 2 is lost, and its place is ours. */
static void give_map(void)
{
    struct hth_note note = { .node = 2, .lost = 1 };
    struct hth_move move = { .rank = 2, .place = ctx->opts.copies, .node = 1, .was = 2 };
    struct hth_places map = { .notes = 1, .moves = 1, .note = &note, .move = &move };

    give_head(1, &map, &ctx->keep);
}

Test(member, promises_under_another_map_when_what_that_gives_it_is_here_too)
{
    struct hth_object object[3] = { seal(copy)->object, seal(own)->object, seal(other)->object };
    struct hth_held_save *s = hth_holdings_find(ctx, save);

    hth_held_drop(ctx, s, hth_held_find(s, other));
    give_manifest(object, 3);
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, SOON_MS), 1));
    give_map();
    cr_assert(eq(u32, ctx->lost[2], 1));
    (void)heard(HTH_KIND_PROMISE, 50);
    cr_assert(zero(u32, heard(HTH_KIND_PROMISE, SOON_MS)));
    (void)seal(other);
    hth_commit_replica(commit, save, other);
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, SOON_MS), 3));
}

Test(member, says_that_a_copy_is_lost_until_it_is_back_and_promises_it_then)
{
    struct hth_object object[2] = { seal(copy)->object, seal(own)->object };

    give_manifest(object, 2);
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, SOON_MS), 1));
    hth_commit_copy_lost(commit, save, copy, "its checksum is another");
    cr_assert(ge(u32, heard(HTH_KIND_COPY_LOST, SOON_MS), 4));
    (void)seal(copy);
    hth_commit_replica(commit, save, copy);
    (void)heard(HTH_KIND_COPY_LOST, 50);
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, SOON_MS), 3));
    cr_assert(zero(u32, heard(HTH_KIND_COPY_LOST, SOON_MS)));
}

/* A node that had a place keeps its copy until the map is settled, and may find it bad. */
Test(member, promises_again_though_a_copy_that_has_no_place_here_any_more_was_lost)
{
    struct hth_object object[3] = { seal(copy)->object, seal(own)->object, seal(other)->object };

    give_manifest(object, 3);
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, SOON_MS), 1));
    hth_commit_copy_lost(commit, save, other, "its checksum is another");
    (void)heard(HTH_KIND_COPY_LOST, 50);
    cr_assert(ge(u32, said[HTH_KIND_COPY_LOST], 1));
    (void)heard(HTH_KIND_PROMISE, SOON_MS);
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, SOON_MS), 3));
    cr_assert(zero(u32, heard(HTH_KIND_COPY_LOST, SOON_MS)));
}

Test(member, says_what_of_a_kept_save_was_lost_while_no_engine_ran)
{
    struct hth_object object[2] = { seal(copy)->object, seal(own)->object };
    struct hth_held_save *s = hth_holdings_find(ctx, save);

    give_manifest(object, 2);
    give_list();
    engine_again();
    cr_assert(zero(u32, heard(HTH_KIND_COPY_LOST, SOON_MS)));
    hth_held_drop(ctx, s, hth_held_find(s, copy));
    engine_again();
    cr_assert(ge(u32, heard(HTH_KIND_COPY_LOST, SOON_MS), 1));
}

/* Node 0 has not got it, and node 2 has no place any more. */
Test(member, asks_who_held_a_copy_before_for_it)
{
    struct hth_held *there = pair_seal(p, 2, save, copy, 4096, copy);
    struct hth_object object[2] = { there->object, seal(own)->object };
    struct hth_move move = { .rank = 0, .place = 0, .node = 1, .was = 2 };
    struct hth_places map = { .moves = 1, .move = &move };

    there->verified = 1;
    give_head(1, &map, &ctx->keep);
    give_manifest(object, 2);
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, 10 * SOON_MS), 1));
    cr_assert(pair_equal(p, 1, 2, save, copy));
}

/* Node 2 is fetching it too, and answers that it has not all of it yet. Node 0 had nothing when
 * node 1 asked first. */
Test(member, a_fetch_asks_again_who_had_nothing_while_no_source_gives)
{
    struct hth_held *there = pair_seal(p, 0, save, copy, 4096, copy);
    struct hth_object object[2] = { there->object, seal(own)->object };
    struct hth_move move = { .rank = 0, .place = 0, .node = 1, .was = 2 };
    struct hth_places map = { .moves = 1, .move = &move };

    hth_held_drop(&p->node[0].ctx, hth_holdings_find(&p->node[0].ctx, save), there);
    hth_held_add(hth_holdings_get(&p->node[2].ctx, save), object, HTH_HELD_RECEIVING, NULL);
    give_head(1, &map, &ctx->keep);
    give_manifest(object, 2);
    cr_assert(zero(u32, heard(HTH_KIND_PROMISE, 10 * SOON_MS)));
    pair_seal(p, 0, save, copy, 4096, copy)->verified = 1;
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, 10 * SOON_MS), 1));
    cr_assert(pair_equal(p, 1, 0, save, copy));
}

/* Of an engine that counts more of them, or one that lies. */
Test(member, a_move_of_a_rank_place_or_node_that_is_not_there_moves_nothing)
{
    struct hth_move move[] = { { .rank = 0, .place = 2, .node = 0 },
        { .rank = 1, .place = 0, .node = NODES }, { .rank = NODES, .place = 1, .node = 0 } };
    struct hth_places map = { .moves = 3, .move = move };
    uint32_t before[NODES], holder[HTH_COPIES_MAX];

    for (uint32_t r = 0; r < NODES; r++) {
        cr_assert(eq(u32, hth_commit_holders(commit, r, holder), 1));
        before[r] = holder[0];
    }
    give_head(1, &map, &ctx->keep);
    for (uint32_t r = 0; r < NODES; r++) {
        cr_assert(eq(u32, hth_commit_holders(commit, r, holder), 1), "rank %u", r);
        cr_assert(eq(u32, holder[0], before[r]), "rank %u", r);
    }
}

/* As a recovery's coordinator gives on what it had to ask for. */
Test(member, takes_a_manifest_that_came_before_its_save_was_known_to_be_kept)
{
    struct hth_commit_events events = { .on_level = on_level };
    const struct hth_save_id old = { 6, 66, 4, 1 };
    struct hth_held *held = pair_seal(p, 1, old, own, 4096, own);
    struct hth_object object = held->object;
    struct hth_manifest m = {
        .save = old, .world = NODES, .nodes = NODES, .job = "pair", .objects = 1, .object = &object
    };
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, old, 0 };
    size_t len = hth_manifest_bytes(&m);
    unsigned char *bytes = malloc(len);

    cr_assert(bytes != NULL);
    held->verified = 1;
    must(hth_manifest_encode(&m, bytes, NULL));
    must(hth_blob_give(&p->node[0].ctx, &id, bytes, len, NULL));
    free(bytes);
    (void)heard(HTH_KIND_PROMISE, SOON_MS);
    cr_assert(hth_blob_find(ctx, &id, &len) != NULL);
    ctx->keep = (struct hth_keep){ .epoch = 6, .serial = 1, .saves = 1, .save = { old } };
    hth_commit_close(commit);
    must(hth_commit_open(ctx, &events, &commit, NULL));
    must(hth_commit_adopt(commit, NULL));
    must(hth_commit_join(commit, NULL));
    hth_commit_go(commit, old); /* which recovery chose: the ranks have accepted no loss */
    hth_commit_resume(commit);
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, SOON_MS), 1));
}

/* ---- The nodes to which it reports that it is there ------------------------------------------ */

Test(member, who_is_called_lost_says_that_it_is_there)
{
    struct hth_note note = { .node = 1, .lost = 1 };
    struct hth_places map = { .notes = 1, .note = &note };

    give_head(1, &map, &ctx->keep);
    cr_assert(ge(u32, heard(HTH_KIND_ALIVE, SOON_MS), 2));
}

Test(member, an_engine_that_is_new_asks_for_the_newest_head)
{
    engine_again();
    cr_assert(ge(u32, heard(HTH_KIND_ALIVE, SOON_MS), 2));
}

/* It is the one that it has on record. */
Test(member, an_engine_that_is_new_asks_no_more_when_it_has_been_told_the_newest_head)
{
    struct hth_places map = { 0 };

    give_head(1, &map, &ctx->keep);
    engine_again();
    cr_assert(ge(u32, heard(HTH_KIND_ALIVE, SOON_MS), 2));
    give_head(1, &map, &ctx->keep);
    (void)heard(HTH_KIND_ALIVE, 50);
    cr_assert(zero(u32, heard(HTH_KIND_ALIVE, 10 * SOON_MS)));
}

/* Without its map, which the node lacks, since it was made while the node was away. */
Test(member, a_head_that_this_node_cannot_take_is_answered_at_once)
{
    struct hth_places map = { 0 };
    struct hth_head head = { .epoch = save.epoch, .nonce = save.nonce, .position = 2, .mapped = 2 };
    unsigned char word[HTH_HEAD_BYTES];

    give_head(1, &map, &ctx->keep);
    (void)heard(HTH_KIND_ALIVE, 50);
    head.map[0] = 1;
    hth_head_encode(&head, NULL, 0, word);
    hth_commit_deliver(commit, 0, HTH_KIND_HEAD, word, hth_head_bytes(0));
    hth_commit_tick(commit);
    cr_assert(ge(u32, heard(HTH_KIND_ALIVE, 20), 1));
}

Test(member, says_which_node_it_does_not_reach)
{
    hth_commit_peer_down(commit, 2);
    cr_assert(ge(u32, heard(HTH_KIND_UNREACHABLE, SOON_MS), 1));
}

Test(member, nothing_is_confirmed_while_the_coordinator_is_silent)
{
    give_list();
    cr_assert(eq(int, (int)hth_commit_kept(commit, 0), HTH_KEPT_PROTECTED));
    hth_commit_peer_down(commit, 0);
    cr_assert(eq(int, (int)hth_commit_kept(commit, 0), HTH_KEPT_UNSURE));
    hth_commit_peer_up(commit, 0);
    cr_assert(eq(int, (int)hth_commit_kept(commit, 0), HTH_KEPT_PROTECTED));
}

/* ---- DONE, HELD, COPIED ---------------------------------------------------------------------- */

Test(member, says_done_until_the_manifest_comes)
{
    struct hth_save_id id;
    struct hth_held *held = seal(own);
    struct hth_object object = held->object;

    must(hth_commit_begin(commit, 1, save.step, NULL, &id, NULL));
    hth_commit_sealed(commit, hth_holdings_find(ctx, save), held);
    cr_assert(zero(u32, heard(HTH_KIND_DONE, SOON_MS)), "its rank may have more objects");
    hth_commit_rank_done(commit, id, 1, 0);
    cr_assert(ge(u32, heard(HTH_KIND_DONE, SOON_MS), 4));
    give_manifest(&object, 1);
    (void)heard(HTH_KIND_DONE, 50);
    cr_assert(zero(u32, heard(HTH_KIND_DONE, SOON_MS)));
}

Test(member, does_not_say_done_before_all_that_was_written_is_sealed)
{
    struct hth_save_id id;
    uint64_t items_len;

    must(hth_commit_begin(commit, 1, save.step, NULL, &id, NULL));
    (void)pair_write(p, 1, save, own, 4096, own, &items_len);
    hth_commit_rank_done(commit, id, 1, 0);
    cr_assert(zero(u32, heard(HTH_KIND_DONE, SOON_MS)));
}

Test(member, does_not_say_done_before_all_its_ranks_have_committed)
{
    struct hth_save_id id;

    p->node[1].epoch.world = 4;
    must(hth_commit_join(commit, NULL));
    hth_commit_go(commit, (struct hth_save_id){ 0 });
    must(hth_commit_begin(commit, 1, save.step, NULL, &id, NULL));
    must(hth_commit_begin(commit, 3, save.step, NULL, &id, NULL));
    hth_commit_rank_done(commit, id, 1, 0);
    cr_assert(zero(u32, heard(HTH_KIND_DONE, SOON_MS)));
    hth_commit_rank_done(commit, id, 3, 0);
    cr_assert(ge(u32, heard(HTH_KIND_DONE, SOON_MS), 1));
}

/* ---- Some of the ranks ----------------------------------------------------------------------- */

static const struct hth_ranks of_one = { 1, { { 1, 1, 1 } } };
static const struct hth_ranks of_two = { 1, { { 1, 2, 2 } } }; /* 1 and 3 */
static const struct hth_ranks of_others = { 1, { { 0, 2, 2 } } };

/* Ranks 1 and 3 are this node's. */
static void in_a_world_of_four(void)
{
    p->node[1].epoch.world = 4;
    must(hth_commit_join(commit, NULL));
    hth_commit_go(commit, (struct hth_save_id){ 0 });
}

Test(member, of_a_save_of_some_ranks_it_says_done_when_these_have_committed)
{
    struct hth_save_id id;

    in_a_world_of_four();
    must(hth_commit_begin(commit, 1, 5, &of_one, &id, NULL));
    cr_assert(eq(u32, id.attempt, hth_ranks_bits(&of_one) | 1));
    hth_commit_rank_done(commit, id, 1, 0);
    cr_assert(ge(u32, heard(HTH_KIND_DONE, SOON_MS), 4));
    cr_assert(eq(u32, hth_get32(p->node[0].fact + 44), 1)); /* a run */
    cr_assert(eq(u32, hth_get32(p->node[0].fact + 48), 1)); /* from rank 1 on */
}

Test(member, of_a_save_of_two_of_its_ranks_it_waits_for_both)
{
    struct hth_save_id id;

    in_a_world_of_four();
    must(hth_commit_begin(commit, 1, 5, &of_two, &id, NULL));
    hth_commit_rank_done(commit, id, 1, 0);
    cr_assert(zero(u32, heard(HTH_KIND_DONE, SOON_MS)));
    must(hth_commit_begin(commit, 3, 5, &of_two, &id, NULL));
    hth_commit_rank_done(commit, id, 3, 0);
    cr_assert(ge(u32, heard(HTH_KIND_DONE, SOON_MS), 4));
}

Test(member, ranks_that_are_in_other_sets_too_agree_on_the_attempt)
{
    struct hth_save_id one, all, two;

    in_a_world_of_four();
    must(hth_commit_begin(commit, 1, 5, &of_one, &one, NULL));
    must(hth_commit_begin(commit, 1, 5, &of_two, &two, NULL));
    must(hth_commit_begin(commit, 1, 5, NULL, &all, NULL));
    cr_assert(eq(u32, all.attempt, 1));
    must(hth_commit_begin(commit, 3, 5, NULL, &one, NULL));
    cr_assert(zero(int, hth_save_cmp(one, all)));
    must(hth_commit_begin(commit, 3, 5, &of_two, &one, NULL));
    cr_assert(zero(int, hth_save_cmp(one, two)));
}

Test(member, a_rank_begins_no_save_that_it_takes_no_part_in)
{
    static const struct hth_ranks beyond = { 1, { { 1, 2, 3 } } }, all = { 1, { { 0, 4, 1 } } };
    struct hearth_error err;
    struct hth_save_id id;

    in_a_world_of_four();
    must_fail(hth_commit_begin(commit, 1, 5, &of_others, &id, &err), HEARTH_EINVAL);
    cr_assert(
            ne(ptr, strstr(err.text, "rank 1 begins a save that it does not take part in"), NULL));
    must_fail(hth_commit_begin(commit, 1, 5, &beyond, &id, NULL), HEARTH_EINVAL);
    must_fail(hth_commit_begin(commit, 1, 5, &all, &id, NULL), HEARTH_EINVAL);
    must(hth_commit_begin(commit, 1, 5, NULL, &id, NULL));
    cr_assert(eq(u32, id.attempt, 1), "what was refused for its set is no attempt");
}

/* The save's id does not name the ranks that take part: a new engine learns them from its ranks. */
Test(member, an_engine_that_is_new_says_nothing_of_a_save_whose_ranks_it_does_not_know)
{
    struct hth_save_id id;

    in_a_world_of_four();
    must(hth_commit_begin(commit, 1, 5, &of_one, &id, NULL));
    engine_again();
    hth_commit_rank_done(commit, id, 1, 0);
    cr_assert(zero(u32, heard(HTH_KIND_DONE, SOON_MS)));
    must_fail(hth_commit_rejoin(commit, 1, id, &of_two, NULL), HEARTH_EPROTO);
    must_fail(hth_commit_rejoin(commit, 1, id, NULL, NULL), HEARTH_EPROTO);
    must(hth_commit_rejoin(commit, 1, id, &of_one, NULL));
    hth_commit_rank_done(commit, id, 1, 0);
    cr_assert(ge(u32, heard(HTH_KIND_DONE, SOON_MS), 1));
    must(hth_commit_begin(commit, 1, 5, &of_one, &id, NULL));
    cr_assert(eq(u32, hth_attempt_count(id.attempt), 2), "it was counted");
}

/* Its node has no rank in the set: it learns of the save by its copies and the manifest. */
Test(member, promises_a_save_that_none_of_its_ranks_takes_part_in)
{
    struct hth_save_id of = save, id;
    struct hth_held *held;

    of.attempt = hth_ranks_bits(&(struct hth_ranks){ 1, { { 0, 1, 1 } } }) | 1;
    held = pair_seal(p, 1, of, copy, 4096, copy);
    held->verified = 1;
    give_manifest_of(of, &held->object, 1);
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, SOON_MS), 3));
    cr_assert(zero(u32, said[HTH_KIND_DONE]));
    must(hth_commit_begin(commit, 1, 5, NULL, &id, NULL));
}

/* Its ranks may have more objects: they say so again. */
Test(member, an_engine_that_is_new_says_done_when_its_ranks_have_come_back)
{
    (void)seal(own);
    engine_again();
    cr_assert(zero(u32, heard(HTH_KIND_DONE, SOON_MS)));
    must(hth_commit_rejoin(commit, 1, save, NULL, NULL));
    hth_commit_rank_done(commit, save, 1, 0);
    cr_assert(ge(u32, heard(HTH_KIND_DONE, SOON_MS), 1));
}

Test(member, says_nothing_more_of_a_save_that_is_decided)
{
    (void)seal(own);
    give_list();
    hth_commit_rank_done(commit, save, 1, 0);
    cr_assert(zero(u32, heard(HTH_KIND_DONE, SOON_MS)));
}

Test(member, does_not_say_held_without_each_common_object)
{
    struct hth_object object[2] = { seal(own)->object,
        { .id = raw, .owner = 2, .kind = HTH_OBJECT_RAW, .name = "common" } };

    give_manifest(object, 2);
    cr_assert(zero(u32, heard(HTH_KIND_HELD, SOON_MS)));
    cr_assert(zero(u32, said[HTH_KIND_PROMISE]));
}

/* Rank 1 hands its object over; `wanted` is the answer of the node that holds its copy to the
 * offer. */
static void hand_over(int wanted)
{
    struct hth_save_id id;
    struct hth_held *held = seal(own);

    p->node[2].wanted = wanted;
    must(hth_commit_begin(commit, 1, save.step, NULL, &id, NULL));
    hth_commit_sealed(commit, hth_holdings_find(ctx, save), held);
    hth_commit_rank_done(commit, id, 1, 0);
    (void)heard(HTH_KIND_DONE, SOON_MS);
}

Test(member, offers_what_its_ranks_wrote_to_who_has_its_place_now)
{
    struct hth_note note = { .node = 2, .lost = 1 };
    struct hth_move move = { .rank = 1, .place = 0, .node = 0, .was = 2 };
    struct hth_places map = { .notes = 1, .moves = 1, .note = &note, .move = &move };

    hand_over(HEARTH_EBUSY);
    cr_assert(zero(u32, p->node[0].sealed));
    give_head(1, &map, &ctx->keep);
    cr_assert(pair_until(p, &p->node[0].sealed, 1, SOON_MS));
}

/* A member that cannot hold the manifest can never promise the save: the coordinator need not
 * wait. */
Test(member, says_at_once_that_it_cannot_keep_a_manifest)
{
    struct hth_object object[2] = { seal(copy)->object, seal(own)->object };
    struct hth_save_id id;

    must(hth_commit_begin(commit, 1, save.step, NULL, &id, NULL));
    hth_store_mem_no_records(p->node[1].store, 1);
    give_manifest(object, 2);
    hth_store_mem_no_records(p->node[1].store, 0);
    cr_assert(ge(u32, heard(HTH_KIND_FAILED, SOON_MS), 1));
    cr_assert(zero(u32, said[HTH_KIND_HELD]));
}

/* Nothing of it is PROTECTED yet, and may never be. */
Test(member, a_save_that_is_complete_has_its_name)
{
    struct hth_object object[2] = { seal(copy)->object, seal(own)->object };
    unsigned char word[32] = { 0 };

    hth_put64(word, save.epoch);
    hth_put64(word + 8, save.nonce);
    hth_put64(word + 16, save.step);
    hth_put32(word + 24, save.attempt);
    give_manifest(object, 2);
    hth_commit_deliver(commit, 0, HTH_KIND_COMPLETE, word, sizeof(word) - 1);
    cr_assert(zero(int, hth_holdings_find(ctx, save)->published));
    hth_commit_deliver(commit, 0, HTH_KIND_COMPLETE, word, sizeof(word));
    cr_assert(eq(int, hth_holdings_find(ctx, save)->published, 1));
}

static struct hth_save_id kept_again(struct hth_save_id newer)
{
    struct hth_object object[2] = { seal(copy)->object, seal(own)->object };

    if (newer.epoch) {
        (void)pair_seal(p, 1, newer, own, 4096, own);
        hth_holdings_find(ctx, newer)->published = 1;
    }
    unsettled = 1;
    give_list();
    give_manifest(object, 2);
    pair_run(p, SOON_MS);
    return save;
}

/* The save is kept, and came here after all other nodes had held it: COMPLETE is not sent again. */
Test(member, a_kept_save_that_comes_later_has_its_name)
{
    struct hth_save_id id = kept_again((struct hth_save_id){ 0 });

    cr_assert(eq(int, hth_holdings_find(ctx, id)->published, 1));
}

Test(member, a_newer_save_of_a_step_keeps_its_name)
{
    struct hth_save_id id = kept_again((struct hth_save_id){ 7, 77, 5, 2 });

    cr_assert(zero(int, hth_holdings_find(ctx, id)->published));
}

Test(member, says_copied_when_its_holder_has_the_copy)
{
    hand_over(HEARTH_OK);
    cr_assert(eq(u32, copied, 1));
    cr_assert(pair_equal(p, 1, 2, save, own));
}

/* From COPIED on the rank says nothing again. */
Test(member, says_copied_when_the_common_objects_of_the_rank_are_sealed)
{
    const struct hth_object o = { .id = 99, .owner = 1, .kind = HTH_OBJECT_RAW, .data_len = 4 };
    struct hth_held_save *s = hth_holdings_get(ctx, save);
    struct hth_held *common = hth_held_add(s, &o, HTH_HELD_SEALING, NULL);

    hand_over(HEARTH_OK);
    cr_assert(pair_equal(p, 1, 2, save, own));
    cr_assert(zero(u32, copied));
    common->state = HTH_HELD_SEALED;
    hth_commit_common(commit, s, common);
    cr_assert(eq(u32, copied, 1));
}

/* Rank 1's copies are to be at nodes 0 and 2, and node 2 has none yet. */
static void hand_over_to_two(void)
{
    ctx->opts.copies = ctx->opts.min_copies = 2;
    must(hth_commit_join(commit, NULL));
    hth_commit_go(commit, (struct hth_save_id){ 0 });
    p->node[0].wanted = HEARTH_OK;
    hand_over(HEARTH_EBUSY);
    (void)pair_until(p, &p->node[0].sealed, 1, SOON_MS);
    (void)heard(HTH_KIND_DONE, SOON_MS);
    cr_assert(eq(u32, hth_held_find(hth_holdings_find(ctx, save), own)->copies, 1));
    cr_assert(zero(u32, copied));
}

Test(member, counts_a_holder_once_though_it_is_offered_the_copy_by_another_map_again)
{
    struct hth_places map;

    hand_over_to_two();
    hth_places_first(&map, save.epoch, save.nonce);
    map.forerunner[31] = 1;
    give_head(1, &map, &ctx->keep);
    (void)heard(HTH_KIND_DONE, SOON_MS);
    cr_assert(eq(u32, hth_held_find(hth_holdings_find(ctx, save), own)->copies, 1));
    cr_assert(zero(u32, copied));
    p->node[2].wanted = HEARTH_OK;
    (void)heard(HTH_KIND_DONE, SOON_MS);
    cr_assert(eq(u32, copied, 1));
}

Test(member, counts_no_copy_of_a_holder_that_is_lost)
{
    struct hth_note note = { .node = 0, .lost = 1 };
    struct hth_places map = { .notes = 1, .note = &note };

    hand_over_to_two();
    give_head(1, &map, &ctx->keep);
    p->node[2].wanted = HEARTH_OK;
    (void)heard(HTH_KIND_DONE, SOON_MS);
    cr_assert(eq(u32, p->node[2].sealed, 1));
    cr_assert(zero(u32, copied));
}

Test(member, does_not_say_copied_while_its_holder_has_no_room)
{
    hand_over(HEARTH_EBUSY);
    cr_assert(zero(u32, copied));
}

/* ---- Offers ---------------------------------------------------------------------------------- */

Test(member, takes_copies_of_those_whose_holder_it_is_and_of_nobody_else)
{
    struct hth_object object = { .id = copy, .owner = 0, .kind = HTH_OBJECT_SHARD };

    must(hth_commit_offer_wanted(commit, 0, save, &object));
    object.owner = 2;
    must_fail(hth_commit_offer_wanted(commit, 2, save, &object), HEARTH_EDENIED);
}

Test(member, takes_no_copy_that_is_not_as_strong_as_the_ranks_have_agreed)
{
    struct hth_object object = { .id = copy, .owner = 0, .kind = HTH_OBJECT_SHARD };
    struct hth_save_id older = save;

    p->node[1].ctx.opts.strong = 1;
    must_fail(hth_commit_offer_wanted(commit, 0, save, &object), HEARTH_EDENIED);
    object.strong = 1;
    must(hth_commit_offer_wanted(commit, 0, save, &object));
    older.epoch--; /* is what its manifest says */
    object.strong = 0;
    cr_assert(ne(int, hth_commit_offer_wanted(commit, 0, older, &object), HEARTH_EDENIED));
}

Test(member, takes_no_copy_before_recovery_has_ended)
{
    struct hth_object object = { .id = copy, .owner = 0, .kind = HTH_OBJECT_SHARD };

    hth_commit_stop(commit);
    must_fail(hth_commit_offer_wanted(commit, 0, save, &object), HEARTH_EBUSY);
}

/* ---- begin ----------------------------------------------------------------------------------- */

Test(member, gives_each_save_of_one_step_another_id)
{
    struct hth_save_id first, again, next;

    must(hth_commit_begin(commit, 1, 5, NULL, &first, NULL));
    must(hth_commit_begin(commit, 1, 5, NULL, &again, NULL));
    must(hth_commit_begin(commit, 1, 6, NULL, &next, NULL));
    cr_assert(eq(u32, first.attempt, 1));
    cr_assert(eq(u32, again.attempt, 2));
    cr_assert(eq(u32, next.attempt, 1));
}

Test(member, begins_no_step_before_the_last_and_none_that_is_no_step)
{
    struct hth_save_id id;

    must(hth_commit_begin(commit, 1, 6, NULL, &id, NULL));
    must_fail(hth_commit_begin(commit, 1, 5, NULL, &id, NULL), HEARTH_ESTATE);
    must_fail(hth_commit_begin(commit, 0, 7, NULL, &id, NULL), HEARTH_ESTATE); /* of another node */
    must_fail(hth_commit_begin(commit, 1, HTH_STEP_MAX + 1, NULL, &id, NULL), HEARTH_EINVAL);
    must(hth_commit_begin(commit, 1, HTH_STEP_MAX, NULL, &id, NULL));
}

Test(member, has_room_for_one_save_more_than_it_keeps)
{
    struct hth_save_id id;

    for (uint64_t step = 1; step <= ctx->opts.keep + 1; step++) {
        must(hth_commit_room(commit, 1, step, NULL, NULL));
        must(hth_commit_begin(commit, 1, step, NULL, &id, NULL));
        cr_assert(hth_holdings_get(ctx, id) != NULL);
    }
    must_fail(hth_commit_room(commit, 1, 9, NULL, NULL), HEARTH_EBUSY);
    must_fail(hth_commit_begin(commit, 1, 9, NULL, &id, NULL), HEARTH_EBUSY);
}

Test(member, counts_a_ranks_begins_up_and_never_down)
{
    uint64_t step;

    hth_commit_count(commit, 1, 5, 3);
    hth_commit_count(commit, 1, 5, 2);
    cr_assert(eq(u32, hth_commit_counted(commit, 1, &step), 3));
    hth_commit_count(commit, 1, 4, 9);
    hth_commit_count(commit, 1, 6, 0); /* it does not count */
    hth_commit_count(commit, 2, 6, 1); /* no rank of ours */
    cr_assert(eq(u32, hth_commit_counted(commit, 1, &step), 3));
    cr_assert(eq(u64, step, 5));
    hth_commit_count(commit, 1, 6, 1);
    cr_assert(eq(u32, hth_commit_counted(commit, 1, &step), 1), "of each step anew");
    cr_assert(eq(u64, step, 6));
}

Test(member, goes_on_with_no_save_that_a_newer_one_has_overtaken)
{
    struct hth_save_id older = save;

    older.step--;
    give_list();
    must_fail(hth_commit_rejoin(commit, 1, older, NULL, NULL), HEARTH_EFAILED);
    must(hth_commit_rejoin(commit, 1, save, NULL, NULL)); /* it is on the list */
    older.nonce++;
    must_fail(hth_commit_rejoin(commit, 1, older, NULL, NULL), HEARTH_EUNKNOWN);
}

Test(member, a_foreign_container_that_was_chosen_is_no_save_to_follow)
{
    enum hearth_level level;
    int degraded, code;
    char text[256];

    hth_commit_go(commit, hth_save_of_foreign(3));
    must_fail(hth_commit_status(commit, hth_save_of_foreign(3), &level, &degraded, &code, text),
            HEARTH_ENOENT);
}

/* ---- POSITION -------------------------------------------------------------------------------- */

Test(member, asks_for_a_head_that_it_has_missed_as_soon_as_it_hears_of_it)
{
    unsigned char now[8] = { 0 };

    hth_commit_deliver(commit, 0, HTH_KIND_POSITION, now, sizeof(now));
    cr_assert(eq(u32, heard(HTH_KIND_ALIVE, SOON_MS), 0));
    now[0] = 1;
    hth_commit_deliver(commit, 0, HTH_KIND_POSITION, now, sizeof(now));
    hth_commit_tick(commit);
    cr_assert(ge(u32, heard(HTH_KIND_ALIVE, SOON_MS), 1));
}

/* Each node on the way might be called lost by then. */
Test(member, vouches_for_what_it_knows_while_it_hears_that_it_is_the_newest)
{
    unsigned char now[8] = { 0 };
    struct hth_places map = { 0 };
    uint64_t ago_ms;

    ctx->opts.heartbeat_ms = 200;
    hth_commit_deliver(commit, 0, HTH_KIND_POSITION, now, sizeof(now));
    p->now_ms += ctx->opts.dead_ms;
    cr_assert(eq(int, hth_commit_as_of(commit, &ago_ms), 1));
    cr_assert(eq(u64, ago_ms, ctx->opts.dead_ms));
    p->now_ms += 3 * ctx->opts.heartbeat_ms;
    cr_assert(zero(int, hth_commit_as_of(commit, &ago_ms)));
    give_head(1, &map, &ctx->keep);
    cr_assert(eq(int, hth_commit_as_of(commit, &ago_ms), 1), "by a head as well");
    p->now_ms += ctx->opts.dead_ms + 3 * ctx->opts.heartbeat_ms;
    cr_assert(zero(int, hth_commit_as_of(commit, &ago_ms)));
    hth_commit_deliver(commit, 0, HTH_KIND_POSITION, now, sizeof(now));
    cr_assert(eq(int, hth_commit_as_of(commit, &ago_ms), 1));
    cr_assert(zero(u64, ago_ms));
}

/* Names of cancelled saves are bounded: what is older than the oldest of them is decided. */
Test(member, a_save_that_ends_for_want_of_names_is_not_said_to_have_met_a_protected_one)
{
    struct hth_keep none = { 0 };
    struct hth_places map;
    struct hth_save_id begun;
    enum hearth_level level;
    int degraded, code;
    char text[256];

    must(hth_commit_begin(commit, 1, 6, NULL, &begun, NULL));
    hth_places_first(&map, save.epoch, save.nonce);
    map.forerunner[31] = 1;
    decided = (struct hth_save_id){ save.epoch, save.nonce, 9, 1 };
    give_head(1, &map, &none);
    must(hth_commit_status(commit, begun, &level, &degraded, &code, text));
    cr_assert(eq(int, code, HEARTH_EFAILED));
    cr_assert(ne(ptr, strstr(text, "many newer saves were cancelled"), NULL), "%s", text);
}
