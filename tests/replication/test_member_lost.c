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

/* All nodes hold the manifest, and no holder is known to have pulled the object: no node could
 * promise the save, which would wait for that until its deadline. */
Test(member_lost, and_so_it_does_after_complete_where_no_copy_is_known)
{
    unsigned char word[32] = { 0 };
    struct hth_save_id id;
    struct hth_held *held = begin_one(&id);
    struct hth_object object = held->object;

    hth_commit_rank_done(commit, id, 1, 1);
    give_manifest(&object, 1);
    hth_put64(word, id.epoch);
    hth_put64(word + 8, id.nonce);
    hth_put64(word + 16, id.step);
    hth_put32(word + 24, id.attempt);
    hth_commit_deliver(commit, 0, HTH_KIND_COMPLETE, word, sizeof(word));
    cr_assert(eq(int, hth_holdings_find(ctx, id)->published, 1));
    lose(id, held);
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
