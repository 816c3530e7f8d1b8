/* SPDX-License-Identifier: Apache-2.0 */
/* An object of an own rank that is lost before its save has a manifest: one without it would be
 * whole, and the save PROTECTED. */
#include "member.h"

TestSuite(member_lost, .init = begin, .fini = end);

/* The save is begun, and its one object sealed. */
static struct hth_held *begin_one(struct hth_save_id *out)
{
    struct hth_held *held = seal(own);

    must(hth_commit_begin(commit, 1, save.step, NULL, out, NULL));
    hth_commit_sealed(commit, hth_holdings_find(ctx, save), held);
    return held;
}

/* Put aside first, as a copy is that was looked at. */
static void lose(struct hth_save_id id, struct hth_held *held)
{
    hth_held_condemn(ctx, hth_holdings_find(ctx, id), held, "payload");
    hth_commit_copy_lost(commit, id, own, "chunk 0 of it is wrong");
}

Test(member_lost, an_object_that_is_wrong_fails_its_save)
{
    struct hth_save_id id;
    struct hth_held *held = begin_one(&id);

    lose(id, held);
    cr_assert(ge(u32, heard(HTH_KIND_FAILED, SOON_MS), 1));
}

Test(member_lost, an_object_that_is_wrong_after_done_fails_its_save)
{
    struct hth_save_id id;
    struct hth_held *held = begin_one(&id);

    hth_commit_rank_done(commit, id, 1, 1);
    cr_assert(ge(u32, heard(HTH_KIND_DONE, SOON_MS), 1));
    lose(id, held);
    cr_assert(ge(u32, heard(HTH_KIND_FAILED, SOON_MS), 1));
}

Test(member_lost, and_so_it_does_after_the_manifest_came)
{
    struct hth_save_id id;
    struct hth_held *held = begin_one(&id);
    struct hth_object object = held->object;

    hth_commit_rank_done(commit, id, 1, 1);
    give_manifest(&object, 1);
    (void)heard(HTH_KIND_DONE, 50);
    lose(id, held);
    cr_assert(ge(u32, heard(HTH_KIND_FAILED, SOON_MS), 1));
}

static void complete(struct hth_save_id id, const struct hth_held *held)
{
    struct hth_object object = held->object;
    unsigned char word[32] = { 0 };

    give_manifest(&object, 1);
    hth_put64(word, id.epoch);
    hth_put64(word + 8, id.nonce);
    hth_put64(word + 16, id.step);
    hth_put32(word + 24, id.attempt);
    hth_commit_deliver(commit, 0, HTH_KIND_COMPLETE, word, sizeof(word));
    cr_assert(eq(int, hth_holdings_find(ctx, id)->published, 1));
}

/* All nodes hold the manifest, and no holder is known to have pulled the object: no node could
 * promise the save, which would wait for that until its deadline. */
Test(member_lost, and_so_it_does_after_complete_where_no_copy_is_known)
{
    struct hth_save_id id;
    struct hth_held *held = begin_one(&id);

    hth_commit_rank_done(commit, id, 1, 1);
    complete(id, held);
    lose(id, held);
    cr_assert(ge(u32, heard(HTH_KIND_FAILED, SOON_MS), 1));
}

static void whole_again(struct hth_save_id id)
{
    struct hth_held *h;

    (void)heard(HTH_KIND_FAILED, 4 * SOON_MS);
    cr_assert(zero(u32, said[HTH_KIND_FAILED]));
    h = hth_held_find(hth_holdings_find(ctx, id), own);
    cr_assert(h && h->state == HTH_HELD_SEALED);
}

/* Fewer than min_copies have it, but one has. */
Test(member_lost, a_complete_save_does_not_fail_where_one_copy_is_known)
{
    struct hth_save_id id;
    struct hth_held *held;

    ctx->opts.copies = ctx->opts.min_copies = 2;
    must(hth_commit_join(commit, NULL));
    hth_commit_go(commit, (struct hth_save_id){ 0 });
    p->node[0].wanted = HEARTH_OK;
    p->node[2].wanted = HEARTH_EBUSY;
    held = begin_one(&id);
    hth_commit_rank_done(commit, id, 1, 1);
    (void)pair_until(p, &p->node[0].sealed, 1, SOON_MS);
    (void)heard(HTH_KIND_DONE, SOON_MS);
    cr_assert(eq(u32, held->copies, 1));
    complete(id, held);
    lose(id, held);
    whole_again(id);
}

static struct hth_save_id copied_and_complete(void)
{
    struct hth_save_id id;
    struct hth_held *held;

    p->node[2].wanted = HEARTH_OK;
    held = begin_one(&id);
    hth_commit_rank_done(commit, id, 1, 1);
    (void)heard(HTH_KIND_DONE, SOON_MS);
    cr_assert(eq(u32, copied, 1));
    complete(id, held);
    return id;
}

/* Holders told the engine before. This one does not offer a COMPLETE save, so it learns nothing. */
Test(member_lost, a_complete_save_does_not_fail_where_the_engine_was_started_again)
{
    struct hth_save_id id = copied_and_complete();

    engine_again();
    (void)heard(HTH_KIND_PROMISE, SOON_MS);
    lose(id, hth_held_find(hth_holdings_find(ctx, id), own));
    whole_again(id);
}

/* The node that had the only copy is lost: its copy counts no more. */
Test(member_lost, a_complete_save_fails_where_the_known_copy_was_lost_before)
{
    struct hth_note note = { .node = 2, .lost = 1 };
    struct hth_move move = { .rank = 1, .place = 0, .node = 0, .was = 2 };
    struct hth_places map = { .notes = 1, .moves = 1, .note = &note, .move = &move };
    struct hth_save_id id = copied_and_complete();

    pair_node_close(p, 2);
    give_head(1, &map, &ctx->keep);
    (void)heard(HTH_KIND_PROMISE, SOON_MS);
    lose(id, hth_held_find(hth_holdings_find(ctx, id), own));
    cr_assert(ge(u32, heard(HTH_KIND_FAILED, SOON_MS), 1));
}

Test(member_lost, done_is_not_said_without_an_object_that_was_handed_over)
{
    struct hth_save_id id;
    struct hth_held *held = begin_one(&id);

    hth_held_condemn(ctx, hth_holdings_find(ctx, id), held, "cut");
    hth_commit_rank_done(commit, id, 1, 1);
    cr_assert(zero(u32, heard(HTH_KIND_DONE, SOON_MS)));
    cr_assert(ge(u32, heard(HTH_KIND_FAILED, SOON_MS), 1));
}

Test(member_lost, done_is_not_said_again_without_it)
{
    struct hth_save_id id;
    struct hth_held *held = begin_one(&id);

    hth_commit_rank_done(commit, id, 1, 1);
    cr_assert(ge(u32, heard(HTH_KIND_DONE, SOON_MS), 1));
    hth_held_condemn(ctx, hth_holdings_find(ctx, id), held, "cut");
    (void)heard(HTH_KIND_DONE, 50);
    cr_assert(zero(u32, heard(HTH_KIND_DONE, SOON_MS)));
}
