/* SPDX-License-Identifier: Apache-2.0 */
/* The facts that a member sends of a save whose handle has ended, and what it keeps of the save,
 * until a head decides it and after. */
#include "member.h"

TestSuite(member_end, .init = begin, .fini = end);

static const struct hth_ranks of_one = { 1, { { 1, 1, 1 } } };

/* ---- No head decides ------------------------------------------------------------------------- */

/* One save is kept, and there is room for one more: rank 1 alone makes that one, and no head about
 * it comes until its handle has ended. */
static struct hth_save_id end_unknown(void)
{
    struct hth_save_id id;
    struct hth_held *held;

    (void)seal(own);
    give_list();
    must(hth_commit_begin(commit, 1, 10, &of_one, &id, NULL));
    held = pair_seal(p, 1, id, own, 4096, own);
    held->verified = 1;
    hth_commit_sealed(commit, hth_holdings_find(ctx, id), held);
    hth_commit_rank_done(commit, id, 1, 0);
    p->now_ms += ctx->opts.save_ms + 4 * (uint64_t)ctx->opts.dead_ms + 1;
    hth_commit_tick(commit);
    cr_assert(eq(u32, unknown, 1));
    return id;
}

static int code_of(struct hth_save_id id)
{
    enum hearth_level level;
    int degraded, code;
    char text[256];

    must(hth_commit_status(commit, id, &level, &degraded, &code, text));
    return code;
}

/* Perhaps no other node has received anything of the save, and it takes the room of every later
 * one. */
Test(member_end, says_that_a_save_which_ended_unknown_has_failed_until_a_head_decides_it)
{
    struct hth_save_id id = end_unknown(), next;
    struct hth_places map = { 0 };
    struct hearth_error err;

    cr_assert(ge(u32, heard(HTH_KIND_FAILED, 2 * SOON_MS), 3));
    must_fail(hth_commit_room(commit, 1, 11, NULL, &err), HEARTH_EBUSY);
    cr_assert(ne(ptr, strstr(err.text, "is undecided and takes the room"), NULL), "%s", err.text);
    cancelled = id;
    give_head(2, &map, &ctx->keep);
    cr_assert(eq(int, code_of(id), HEARTH_EFAILED));
    cr_assert(eq(u32, ends, 1), "its ranks have been told before");
    must(hth_commit_begin(commit, 1, 11, NULL, &next, NULL));
    (void)heard(HTH_KIND_FAILED, 50); /* what is on its way */
    cr_assert(zero(u32, heard(HTH_KIND_FAILED, SOON_MS)));
}

/* A head that did not come may have decided it. */
Test(member_end, is_unknown_where_a_newer_save_is_protected_and_a_head_before_was_missed)
{
    for (uint64_t position = 1; position <= 2; position++) {
        struct hth_keep keep = { .epoch = save.epoch, .serial = 2, .saves = 1 };
        struct hth_places map = { 0 };
        struct hth_save_id id;

        if (position == 2) {
            end();
            begin();
        }
        must(hth_commit_begin(commit, 1, 6, NULL, &id, NULL));
        keep.save[0] = (struct hth_save_id){ save.epoch, save.nonce, 9, 1 };
        give_head(position, &map, &keep);
        cr_assert(eq(int, code_of(id), position == 1 ? HEARTH_EFAILED : HEARTH_EUNKNOWN));
    }
}

/* Another rank has given it up. */
Test(member_end, a_begin_of_a_save_that_is_cancelled_waits_for_no_room)
{
    struct hth_save_id id = end_unknown(), next;
    struct hth_places map = { 0 };

    must_fail(hth_commit_room(commit, 1, 11, NULL, NULL), HEARTH_EBUSY);
    cancelled = (struct hth_save_id){ id.epoch, id.nonce, 11, 1 };
    give_head(2, &map, &ctx->keep);
    must(hth_commit_room(commit, 1, 11, NULL, NULL));
    must_fail(hth_commit_begin(commit, 1, 11, NULL, &next, NULL), HEARTH_EFAILED);
}

Test(member_end, what_ended_unknown_and_was_protected_meanwhile_is_kept)
{
    struct hth_save_id id = end_unknown(), next;
    struct hth_keep keep = { .epoch = save.epoch, .serial = 2, .saves = 1, .save = { id } };
    struct hth_places map = { 0 };

    give_head(2, &map, &keep);
    cr_assert(eq(int, code_of(id), HEARTH_OK));
    cr_assert(eq(u32, ends, 1));
    cr_assert(hth_holdings_find(ctx, id) != NULL);
    must(hth_commit_begin(commit, 1, 11, NULL, &next, NULL));
    (void)heard(HTH_KIND_FAILED, 50);
    cr_assert(zero(u32, heard(HTH_KIND_FAILED, SOON_MS)));
}

/* While the coordinator is away a rank may try often. */
Test(member_end, says_no_more_of_a_refused_save_whose_handle_has_ended)
{
    struct hth_save_id next;

    (void)end_unknown();
    must_fail(hth_commit_begin(commit, 1, 11, NULL, &next, NULL), HEARTH_EBUSY);
    p->now_ms += ctx->opts.save_ms + 4 * (uint64_t)ctx->opts.dead_ms + 1;
    hth_commit_tick(commit);
    cr_assert(eq(u32, unknown, 2));
    (void)heard(HTH_KIND_FAILED, SOON_MS);
    cr_assert(le(u32, heard(HTH_KIND_FAILED, 4 * SOON_MS), 12), "of one save alone");
}

/* ---- Blobs of what is decided ---------------------------------------------------------------- */

static const struct hth_blob_id manifest = { HTH_BLOB_MANIFEST, { 7, 77, 5, 1 }, 0 };

static void give_cancel(void)
{
    struct hth_places map = { 0 };

    cancelled = save;
    give_head(1, &map, &ctx->keep);
}

static int manifest_is_here(void)
{
    size_t len;

    return hth_blob_find(ctx, &manifest, &len) != NULL;
}

/* The rank hands over its last object after the head has come. */
Test(member_end, does_not_follow_a_cancelled_save_again_when_its_rank_commits)
{
    struct hth_places map = { 0 };
    struct hth_save_id id;

    must(hth_commit_begin(commit, 1, save.step, NULL, &id, NULL));
    give_cancel();
    hth_commit_rank_done(commit, id, 1, 0);
    give_head(2, &map, &ctx->keep);
    cr_assert(eq(u32, ends, 1), "the ranks are told once");
    cr_assert(eq(int, pair_logged(p, 1, "save-cancelled"), 1));
}

Test(member_end, forgets_a_manifest_when_its_save_is_cancelled_that_it_holds_nothing_of)
{
    must(hth_blob_give(&p->node[0].ctx, &manifest, "bytes", 5, NULL));
    pair_run(p, SOON_MS);
    cr_assert(eq(int, manifest_is_here(), 1));
    give_cancel();
    cr_assert(zero(int, manifest_is_here()));
}

/* The node that brought the manifest has forgotten it, and would be asked again and again. */
Test(member_end, asks_no_more_for_a_manifest_that_was_on_its_way_when_its_save_was_cancelled)
{
    must(hth_blob_give(&p->node[0].ctx, &manifest, "bytes", 5, NULL));
    while (hth_blobs_due_ms(ctx) == HTH_NEVER && !manifest_is_here())
        cr_assert(pair_step(p));
    hth_blobs_forget(&p->node[0].ctx, save);
    pair_run(p, SOON_MS);
    cr_assert(zero(int, manifest_is_here()));
    cr_assert(ne(u64, hth_blobs_due_ms(ctx), HTH_NEVER), "it asks");
    give_cancel();
    pair_run(p, SOON_MS);
    cr_assert(eq(u64, hth_blobs_due_ms(ctx), HTH_NEVER));
}

Test(member_end, forgets_a_manifest_that_comes_when_its_save_is_cancelled)
{
    size_t len;
    const unsigned char *bytes;

    give_cancel();
    must(hth_blob_give(&p->node[0].ctx, &manifest, "bytes", 5, NULL));
    pair_run(p, SOON_MS);
    bytes = hth_blob_find(ctx, &manifest, &len);
    cr_assert(bytes != NULL);
    hth_commit_blob(commit, &manifest, bytes, len);
    cr_assert(zero(int, manifest_is_here()));
}

/* It is not decided, and those below this node may need it: a head says so. */
Test(member_end, gives_on_a_manifest_though_its_own_ranks_have_heard_the_last_of_the_save)
{
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, end_unknown(), 0 };
    size_t len;
    const unsigned char *bytes;

    must(hth_blob_give(&p->node[0].ctx, &id, "bytes", 5, NULL));
    pair_run(p, SOON_MS);
    bytes = hth_blob_find(ctx, &id, &len);
    cr_assert(bytes != NULL);
    hth_commit_blob(commit, &id, bytes, len);
    cr_assert(hth_blob_find(ctx, &id, &len) != NULL);
}

/* ---- What recovery ruled out ----------------------------------------------------------------- */

/* Of steps 9 and 8 of an earlier epoch, which this node's list names, 8 was chosen, and another
 * node still gives out the manifest of 9. */
Test(member_end, what_recovery_ruled_out_holds_no_room_after_go)
{
    struct hth_commit_events events = { .on_level = on_level };
    const struct hth_save_id gone = { 6, 66, 9, 1 }, chosen = { 6, 66, 8, 1 };
    struct hth_object o = { .id = copy, .kind = HTH_OBJECT_SHARD, .data_len = 4096 };

    hth_commit_close(commit);
    ctx->keep = (struct hth_keep){ .epoch = 6, .serial = 2, .saves = 2, .save = { gone, chosen } };
    must(hth_commit_open(ctx, &events, &commit, NULL));
    must(hth_commit_join(commit, NULL));
    (void)pair_seal(p, 1, chosen, own, 4096, own);
    hth_commit_go(commit, chosen);
    give_manifest_of(gone, &o, 1);
    cr_assert(hth_holdings_find(ctx, gone) == NULL);
    must_fail(hth_commit_offer_wanted(commit, 0, gone, &o), HEARTH_EDENIED);
    must(hth_commit_room(commit, 1, 1, NULL, NULL));
}

/* This node's list names step 9 of an earlier epoch. Recovery has found no whole save, and
 * the ranks have accepted the loss; another node still offers the manifest of step 9. */
Test(member_end, what_is_lost_is_not_fetched_after_the_ranks_have_accepted_the_loss)
{
    struct hth_commit_events events = { .on_level = on_level };
    const struct hth_save_id gone = { 6, 66, 9, 1 };
    struct hth_object o = { .id = copy, .kind = HTH_OBJECT_SHARD, .data_len = 4096 };
    struct hth_save_id id;

    hth_commit_close(commit);
    ctx->keep = (struct hth_keep){ .epoch = 6, .serial = 2, .saves = 1, .save = { gone } };
    must(hth_commit_open(ctx, &events, &commit, NULL));
    must(hth_commit_join(commit, NULL));
    hth_commit_go(commit, (struct hth_save_id){ 0 });
    give_manifest_of(gone, &o, 1);
    cr_assert(hth_holdings_find(ctx, gone) == NULL);
    must(hth_commit_begin(commit, 1, 10, NULL, &id, NULL));
    must(hth_commit_room(commit, 1, 11, NULL, NULL));
}

/* ---- Another program makes the directory meanwhile --------------------------------------- */

static const struct hth_store_ops *real;
static struct hth_store_ops ops; /* the store's, except vacant() and publish() */
static int taken;

static int vacant(struct hth_store *s, struct hth_save_id id, struct hearth_error *err)
{
    (void)s, (void)id;
    return taken ? hth_fail(err, HEARTH_EEXIST, 0, "step-5_ckpt is not Hearth's") : HEARTH_OK;
}

static int publish(struct hth_store *s, struct hth_save_id id, struct hearth_error *err)
{
    int rc = vacant(s, id, err);

    return rc ? rc : real->publish(s, id, err);
}

static void share_the_directory(void)
{
    begin();
    real = ctx->store->ops;
    ops = *real;
    ops.vacant = vacant;
    ops.publish = publish;
    ctx->store->ops = &ops;
    taken = 0;
}

static void share_no_more(void)
{
    ctx->store->ops = real;
    end();
}

TestSuite(shared, .init = share_the_directory, .fini = share_no_more);

static void hold_all(void)
{
    struct hth_object object[2] = { seal(copy)->object, seal(own)->object };

    give_manifest(object, 2);
}

static void must_say_both(void)
{
    const char *why = (const char *)p->node[0].fact + 36;

    cr_assert(ge(u32, heard(HTH_KIND_FAILED, SOON_MS), 1));
    cr_assert(ne(ptr, strstr(why, "step-5_ckpt is not Hearth's"), NULL), "%s", why);
}

Test(shared, a_save_whose_place_is_taken_before_it_is_held_fails_and_is_not_promised)
{
    uint32_t before = said[HTH_KIND_PROMISE];

    taken = 1;
    hold_all();
    must_say_both();
    cr_assert(eq(u32, said[HTH_KIND_PROMISE], before));
}

Test(shared, a_save_whose_place_is_taken_before_it_is_complete_fails)
{
    unsigned char word[32] = { 0 };

    hold_all();
    cr_assert(ge(u32, heard(HTH_KIND_PROMISE, SOON_MS), 1));
    taken = 1;
    hth_put64(word, save.epoch);
    hth_put64(word + 8, save.nonce);
    hth_put64(word + 16, save.step);
    hth_put32(word + 24, save.attempt);
    hth_commit_deliver(commit, 0, HTH_KIND_COMPLETE, word, sizeof(word));
    cr_assert(zero(int, hth_holdings_find(ctx, save)->published));
    must_say_both();
}

/* Recovery has chosen step 8 of an earlier epoch. It was not published here, and no head of this
 * epoch has decided it yet. */
Test(shared, a_save_that_recovery_chose_does_not_fail_where_its_place_is_taken)
{
    struct hth_commit_events events = { .on_level = on_level };
    const struct hth_save_id chosen = { 6, 66, 8, 1 };
    struct hth_held *held;

    hth_commit_close(commit);
    ctx->keep = (struct hth_keep){ .epoch = 6, .serial = 2, .saves = 1, .save = { chosen } };
    must(hth_commit_open(ctx, &events, &commit, NULL));
    must(hth_commit_join(commit, NULL));
    held = pair_seal(p, 1, chosen, own, 4096, own);
    held->verified = 1;
    taken = 1;
    hth_commit_go(commit, chosen);
    give_manifest_of(chosen, &held->object, 1);
    cr_assert(zero(int, hth_holdings_find(ctx, chosen)->published));
    cr_assert(zero(u32, heard(HTH_KIND_FAILED, 2 * SOON_MS)), "%s",
            (const char *)p->node[0].fact + 36);
    cr_assert(ge(u32, said[HTH_KIND_PROMISE], 1));
}

/* ---- The epoch is joined anew ---------------------------------------------------------------- */

/* The engine was started again, and its record of the epoch is damaged: it joins the epoch as one
 * that it has never been in, and its rank may not count its begins. */
Test(member_end, no_save_of_an_epoch_that_is_joined_anew_gets_the_id_of_one_that_is_here)
{
    const struct hth_save_id of_others = { 7, 77, 9, 1 }, of_before = { 6, 66, 8, 1 };
    struct hth_save_id id;
    uint64_t step;

    (void)seal(own);
    (void)pair_seal(p, 1, of_others, other, 4096, other);
    (void)pair_seal(p, 1, of_before, own, 4096, own);
    ctx->opts.keep = 4;
    hth_commit_close(commit);
    engine_start();
    cr_assert(eq(u32, hth_commit_counted(commit, 1, &step), save.attempt));
    cr_assert(eq(u64, step, save.step), "the rank has begun that step, and no later one");
    must(hth_commit_begin(commit, 1, save.step, NULL, &id, NULL));
    cr_assert(eq(u32, id.attempt, save.attempt + 1));
}
