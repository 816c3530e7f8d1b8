/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's choice from the members' inventories. */
#include "rig.h"

#include "core/format/plans.h"

enum { NODES = 3 };

static void begin(void)
{
    rig_open(NODES, 0);
}

TestSuite(choice, .init = begin, .fini = rig_close);

Test(choice, of_all_keep_records_the_last_decision_counts)
{
    struct hth_keep *ours = &p->node[0].ctx.keep;
    struct hth_keep said[NODES] = { rig_keep(5, 3), rig_keep(5, 9), rig_keep(4, 20) };

    for (uint32_t first = 0; first < NODES;
            first++) { /* whoever has it, and before or after others */
        hth_choice_join(choice);
        *ours = rig_keep(5, 4);
        for (uint32_t n = 0; n < NODES; n++)
            rig_tell(n, &said[(first + n) % NODES], NULL, 0);
        cr_assert(eq(u64, ours->epoch, 5));
        cr_assert(eq(u64, ours->serial, 9));
        cr_assert(eq(u64, ours->save[0].step, 90));
    }
}

Test(choice, our_own_keep_record_stays_where_nobody_has_a_later_one)
{
    struct hth_keep *ours = &p->node[0].ctx.keep;
    struct hth_keep said[NODES] = { rig_keep(5, 3), rig_keep(5, 9), rig_keep(4, 20) };

    hth_choice_join(choice);
    *ours = rig_keep(5, 10);
    for (uint32_t n = 0; n < NODES; n++)
        rig_tell(n, &said[n], NULL, 0);
    cr_assert(eq(u64, ours->serial, 10));
    cr_assert(eq(u64, ours->save[0].step, 100));
}

/* ---- No room
 * ------------------------------------------------------------------------------------- */

enum { OLDER = 1, NEWER = 2 }; /* steps of epoch 4; all nodes have the one object of each */

static struct hth_save_id save_of(uint64_t step)
{
    return (struct hth_save_id){ 4, 77, step, 1 };
}

/* The coordinator has its manifest. */
static void manifest_here(
        uint64_t step, struct hth_object *object, unsigned char digest[HTH_DIGEST])
{
    struct hth_held_save *s = hth_holdings_get(&p->node[0].ctx, save_of(step));
    struct hth_manifest m = { .save = save_of(step),
        .world = NODES,
        .nodes = NODES,
        .job = "pair",
        .objects = 1,
        .object = object };
    unsigned char *bytes = malloc(hth_manifest_bytes(&m));

    *object = (struct hth_object){ .id = step,
        .kind = HTH_OBJECT_SHARD,
        .data_len = 100,
        .table_len = 64,
        .name = "o",
        .digest = { (unsigned char)step } };
    must(hth_manifest_encode(&m, bytes, NULL));
    must(hth_held_set_manifest(&p->node[0].ctx, s, bytes, hth_manifest_bytes(&m), NULL));
    memcpy(digest, s->manifest.digest, HTH_DIGEST);
}

static int newer_is_lost, older_is_lost; /* its object is another one everywhere */
static uint32_t tries;                   /* jobs that have recovered NEWER */

/* Every node reports that it holds both saves, and has this record. */
static void say_both(const struct hth_keep *keep)
{
    struct hth_object object[2];
    struct hth_seen_object seen[2];
    struct hth_seen_save saves[2];

    for (int i = 0; i < 2; i++) {
        saves[i] = (struct hth_seen_save){
            .id = save_of(NEWER - (uint64_t)i), .has_manifest = 1, .objects = 1, .object = &seen[i]
        };
        manifest_here(NEWER - (uint64_t)i, &object[i], saves[i].manifest);
        seen[i].id = object[i].id;
        memcpy(seen[i].digest, object[i].digest, HTH_DIGEST);
    }
    seen[0].digest[0] ^= (unsigned char)newer_is_lost;
    seen[1].digest[0] ^= (unsigned char)older_is_lost;
    for (uint32_t n = 0; n < NODES; n++)
        rig_tell(n, keep, saves, 2);
}

/* And `kept` was PROTECTED. */
static void say_all(uint64_t kept)
{
    struct hth_keep keep = { .epoch = 4,
        .serial = 1,
        .saves = 1,
        .save = { save_of(kept) },
        .tried = save_of(NEWER),
        .tries = tries };

    say_both(&keep);
}

static uint32_t plan_keeps;
static int plan_keeps_older;

/* The save of the last plan that is on record, and the plan's serial. */
static uint64_t planned(uint32_t *out_serial)
{
    struct hth_store *store = p->node[0].store;
    struct hth_plan plan;
    struct hth_plans all;
    uint64_t step;
    void *bytes;
    size_t len;

    pair_works(p);
    must(store->ops->record_get(store, "plans", &bytes, &len, NULL));
    must(hth_plans_decode(&all, bytes, len, NULL));
    must(hth_plan_decode(&plan, all.plan, all.plan_len, NULL));
    *out_serial = all.serial;
    step = plan.chosen.step;
    plan_keeps = plan.keeps;
    plan_keeps_older = 0;
    for (uint32_t i = 0; i < plan.keeps; i++)
        plan_keeps_older |= plan.keep[i].step == OLDER;
    hth_plan_fini(&plan);
    free(bytes);
    return step;
}

static void vote(uint32_t node, uint32_t serial, int no)
{
    unsigned char body[8];

    hth_put32(body, serial);
    hth_put32(body + 4, (uint32_t)no);
    hth_choice_deliver(choice, node, HTH_KIND_VOTE, body, sizeof(body));
}

static void all_vote(uint32_t serial)
{
    for (uint32_t n = 0; n < NODES; n++)
        vote(n, serial, 0);
}

static void vote_no(uint32_t node, uint32_t serial, int code, const char *why)
{
    unsigned char body[8 + 100];

    hth_put32(body, serial);
    hth_put32(body + 4, (uint32_t)code);
    memcpy(body + 8, why, strlen(why));
    hth_choice_deliver(choice, node, HTH_KIND_VOTE, body, 8 + strlen(why));
    pair_works(p);
}

static void vote_no_room(uint32_t node, uint32_t serial)
{
    vote_no(node, serial, HEARTH_ENOSPC, "node n2: 1000 bytes do not fit");
}

/* As often as a plan is made. */
static void vote_no_reach(int code)
{
    uint32_t serial;

    for (int i = 0; i < 3; i++) {
        cr_assert(eq(u64, planned(&serial), NEWER));
        vote_no(2, serial, code, "node n2: all 1 sources failed: node 1: the node is gone");
    }
}

/* Its memory is there. Accepting a loss accepts what is lost. */
Test(choice, a_protected_save_that_is_out_of_reach_is_an_error_and_not_given_up)
{
    uint32_t serial;

    for (int accepts = 0; accepts < 2; accepts++) {
        hth_choice_join(choice);
        hth_restore_join(restore);
        if (accepts)
            hth_choice_accept_loss(choice);
        say_all(NEWER);
        pair_works(p);
        vote_no_reach(HEARTH_EPEER);
        cr_assert(eq(u64, planned(&serial), NEWER), "no other plan is made");
        cr_assert(eq(int, pair_logged(p, 0, "recovery-failed"), 1 + accepts));
        cr_assert(strstr(p->node[0].last, "out of reach") && strstr(p->node[0].last, "node n2"),
                "%s", p->node[0].last);
    }
}

Test(choice, a_save_that_cannot_be_had_is_passed_over_where_it_was_never_protected_or_is_not_whole)
{
    uint32_t serial;

    say_all(OLDER);
    pair_works(p);
    vote_no_reach(HEARTH_EPEER);
    cr_assert(eq(u64, planned(&serial), OLDER));
    hth_choice_join(choice);
    p->node[0].ctx.keep = (struct hth_keep){ 0 };
    say_all(NEWER);
    pair_works(p);
    vote_no_reach(HEARTH_ELOST);
    cr_assert(eq(u64, planned(&serial), OLDER));
}

Test(choice, a_save_that_was_never_protected_is_passed_over_for_want_of_room)
{
    uint32_t serial;

    say_all(OLDER);
    pair_works(p);
    cr_assert(eq(u64, planned(&serial), NEWER));
    vote_no_room(2, serial);
    cr_assert(eq(u64, planned(&serial), OLDER), "at the first no");
    cr_assert(zero(int, pair_logged(p, 0, "recovery-failed")));
}

Test(choice, a_protected_save_without_room_is_an_error_that_names_the_node)
{
    uint32_t serial, after;

    say_all(NEWER);
    pair_works(p);
    cr_assert(eq(u64, planned(&serial), NEWER));
    vote_no_room(2, serial);
    cr_assert(eq(u64, planned(&after), NEWER));
    cr_assert(eq(u32, after, serial), "no other plan is made");
    cr_assert(eq(int, pair_logged(p, 0, "recovery-failed"), 1));
    cr_assert(strstr(p->node[0].last, "step 2") && strstr(p->node[0].last, "node n2: 1000 bytes"),
            "%s", p->node[0].last);
}

/* ---- Marking by count
 * ----------------------------------------------------------------------------- */

Test(choice, a_save_is_passed_over_after_so_many_jobs_and_not_before)
{
    uint32_t serial;

    p->node[0].ctx.opts.bad_after = 3;
    tries = 2;
    say_all(NEWER);
    cr_assert(eq(u64, planned(&serial), NEWER));
    hth_choice_join(choice);
    p->node[0].ctx.keep = (struct hth_keep){ 0 };
    tries = 3;
    say_all(NEWER);
    cr_assert(eq(u64, planned(&serial), OLDER));
    cr_assert(eq(int, hth_keep_is_bad(&p->node[0].ctx.keep, save_of(NEWER)), 1));
    cr_assert(eq(int, pair_logged(p, 0, "bad-by-count"), 1));
}

Test(choice, ranks_that_recover_again_are_the_same_job)
{
    uint32_t serial;

    p->node[0].ctx.opts.bad_after = 3;
    tries = 3; /* the last of them is this one */
    hth_choice_same_job(choice);
    say_all(NEWER);
    cr_assert(eq(u64, planned(&serial), NEWER));
    cr_assert(eq(u32, p->node[0].ctx.keep.tries, 3));
}

Test(choice, a_save_is_not_marked_by_count_where_no_older_one_is_whole)
{
    uint32_t serial;

    p->node[0].ctx.opts.bad_after = 1;
    tries = 9;
    older_is_lost = 1;
    say_all(NEWER);
    cr_assert(eq(u64, planned(&serial), NEWER));
    cr_assert(eq(int, hth_keep_is_bad(&p->node[0].ctx.keep, save_of(NEWER)), 0));
    cr_assert(zero(int, pair_logged(p, 0, "bad-by-count")));
}

/* ---- Workers
 * --------------------------------------------------------------------------------------- */

static int is_planned(void)
{
    struct hth_store *store = p->node[0].store;
    void *bytes = NULL;
    size_t len;
    int rc = store->ops->record_get(store, "plans", &bytes, &len, NULL);

    free(bytes);
    return !rc;
}

/* Each work takes longer than it takes to be called lost. */
Test(choice, workers_choose_and_plan_and_heartbeats_do_not_wait_for_them)
{
    uint64_t begun_ms = p->now_ms;
    uint32_t serial;

    p->work_ms = 5000;
    say_all(OLDER);
    cr_assert(zero(int, is_planned()), "in the call of the last inventory");
    pair_run(p, 3 * p->work_ms - 1000);
    cr_assert(zero(int, is_planned()), "two saves to look at, and a plan");
    pair_run(p, 2000);
    cr_assert(is_planned());
    cr_assert(eq(u64, planned(&serial), NEWER));
    cr_assert(ge(u64, p->now_ms - begun_ms, 15000));
    for (uint32_t n = 0; n < NODES; n++)
        cr_assert(zero(u32, p->node[n].peer_downs), "node %u", n);
}

Test(choice, what_a_worker_still_looks_at_is_not_of_the_next_epoch)
{
    uint32_t serial;

    say_all(NEWER);
    hth_choice_join(choice);
    rig_tell(0, &(struct hth_keep){ 0 }, NULL, 0);
    pair_works(p);
    cr_assert(zero(int, is_planned()), "no other node has sent its inventory");
    p->node[0].epoch.epoch++;
    hth_choice_join(choice);
    say_all(OLDER);
    hth_choice_fail(choice, HEARTH_EPEER, "lost");
    pair_works(p);
    cr_assert(zero(int, is_planned()), "the epoch has failed");
    hth_choice_join(choice);
    say_all(NEWER);
    pair_works(p);
    cr_assert(eq(u64, planned(&serial), NEWER));
    cr_assert(eq(u32, serial, 1));
}

/* ---- Which one
 * ------------------------------------------------------------------------------------- */

static struct hth_keep both_kept(void)
{
    return (struct hth_keep){
        .epoch = 4, .serial = 1, .saves = 2, .save = { save_of(NEWER), save_of(OLDER) }
    };
}

static void start(void)
{
    must(hth_restore_start(restore, 60000, NULL));
}

Test(choice, what_is_kept_stays_kept_however_old)
{
    struct hth_keep keep = both_kept();
    uint32_t serial;

    start();
    say_both(&keep);
    cr_assert(eq(u64, planned(&serial), NEWER));
    cr_assert(eq(int, plan_keeps_older, 1));
    all_vote(serial);
    cr_assert(ge(u32, p->node[0].heard[HTH_KIND_GO], 1));
    cr_assert(eq(u32, p->node[0].ctx.keep.saves, 2));
}

/* `hearth rm` on the coordinator's machine alone: its list lacks the older one, and the others'
 * have it. */
Test(choice, a_kept_save_that_was_removed_on_one_node_stays_on_the_others)
{
    struct hth_keep keep = both_kept(), *ours = &p->node[0].ctx.keep;
    uint32_t serial;

    keep.pinned = 2;
    *ours = keep;
    hth_keep_leave(ours, 1);
    start();
    say_both(&keep);
    cr_assert(eq(u64, planned(&serial), NEWER));
    all_vote(serial);
    cr_assert(eq(u32, ours->saves, 2));
    cr_assert(eq(int, hth_keep_at(ours, save_of(OLDER)), 1));
    cr_assert(eq(u32, ours->pinned, 2));
}

Test(choice, a_save_that_is_marked_bad_is_passed_over)
{
    struct hth_keep keep = both_kept();
    uint32_t serial;

    keep.bads = 1;
    keep.bad[0] = save_of(NEWER);
    start();
    say_both(&keep);
    cr_assert(eq(u64, planned(&serial), OLDER));
    all_vote(serial);
    cr_assert(eq(u32, p->node[0].ctx.keep.saves, 1), "the list goes on from the chosen one");
    cr_assert(eq(u64, p->node[0].ctx.keep.save[0].step, OLDER));
}

Test(choice, the_save_that_is_asked_for_is_chosen)
{
    struct hth_keep keep = both_kept();
    uint32_t serial;

    hth_choice_want(choice, (struct hth_save_id){ .step = OLDER });
    start();
    say_both(&keep);
    cr_assert(eq(u64, planned(&serial), OLDER));
}

Test(choice, a_save_is_given_up_at_the_third_no)
{
    struct hth_keep keep = both_kept();
    uint32_t serial;

    start();
    say_both(&keep);
    for (uint32_t asked = 1; asked <= 3; asked++) {
        cr_assert(eq(u64, planned(&serial), NEWER));
        cr_assert(eq(u32, serial, asked));
        vote(1, serial, HEARTH_EIO);
    }
    cr_assert(eq(u64, planned(&serial), OLDER));
    all_vote(serial);
    cr_assert(eq(u32, p->node[0].ctx.keep.saves, 1));
}

/* A node with the rest may come back. Of older ones no more than there is room for. */
Test(choice, what_is_left_of_lost_saves_is_kept_where_a_loss_is_accepted)
{
    struct hth_keep keep = both_kept();
    uint32_t serial;

    newer_is_lost = older_is_lost = 1;
    for (uint32_t kept = 1; kept <= 2; kept++) {
        hth_choice_join(choice);
        p->node[0].ctx.opts.keep = kept;
        hth_choice_accept_loss(choice);
        start();
        say_both(&keep);
        cr_assert(zero(u64, planned(&serial)), "it begins with nothing");
        cr_assert(eq(u32, plan_keeps, kept));
        cr_assert(eq(int, plan_keeps_older, kept == 2));
        hth_restore_join(restore);
    }
    cr_assert(eq(int, pair_logged(p, 0, "loss-accepted"), 2));
}

/* The choice does not depend on whether that save is whole, and its manifest may never come. */
Test(choice, what_is_older_than_the_chosen_and_on_no_list_is_not_waited_for)
{
    struct hth_keep keep = { .epoch = 4, .serial = 1, .saves = 1, .save = { save_of(NEWER) } };
    struct hth_object object;
    struct hth_seen_object seen;
    struct hth_seen_save saves[2] = {
        { .id = save_of(NEWER), .has_manifest = 1, .objects = 1, .object = &seen },
        { .id = save_of(OLDER), .has_manifest = 1, .manifest = { 1 } },
    };
    uint32_t serial;

    manifest_here(NEWER, &object, saves[0].manifest);
    seen.id = object.id;
    memcpy(seen.digest, object.digest, HTH_DIGEST);
    start();
    for (uint32_t n = 0; n < NODES; n++)
        rig_tell(n, &keep, saves, 2);
    cr_assert(eq(u64, planned(&serial), NEWER));
}

Test(choice, at_the_deadline_whoever_has_not_voted_for_a_save_is_named)
{
    uint32_t serial;

    start();
    say_all(NEWER);
    (void)planned(&serial);
    vote(1, serial, 0);
    hth_choice_late(choice);
    must_say(p->node[0].last, "no vote from node node0, node node2");
}

Test(choice, a_loss_that_nobody_accepts_is_an_error_that_names_the_save)
{
    struct hth_keep keep = both_kept();

    newer_is_lost = older_is_lost = 1;
    start();
    say_both(&keep);
    pair_works(p);
    cr_assert(zero(int, is_planned()));
    cr_assert(eq(int, pair_logged(p, 0, "recovery-failed"), 1));
    cr_assert(ne(ptr, strstr(p->node[0].last, "step 2 was protected and cannot be had"), NULL),
            "%s", p->node[0].last);
}

/* `hearth rm` takes a save off the list of its node alone, under the same serial. */
Test(choice, a_loss_is_given_up_when_no_list_names_the_save_and_not_before)
{
    struct hth_keep keep = both_kept(), removed = { .epoch = keep.epoch, .serial = keep.serial };
    uint32_t serial;

    for (uint32_t names = 0; names <= NODES; names++) { /* NODES: none does */
        hth_choice_join(choice);
        p->node[0].ctx.keep = names == 0 ? keep : removed;
        start();
        for (uint32_t n = 0; n < NODES; n++)
            rig_tell(n, n == names ? &keep : &removed, NULL, 0);
        pair_works(p);
        cr_assert(eq(int, is_planned(), names == NODES), "only node %u's list names it", names);
        cr_assert(eq(u64, pair_logged(p, 0, "recovery-failed"), names < NODES ? names + 1 : NODES));
        if (names == NODES)
            cr_assert(zero(u64, planned(&serial)), "it begins with nothing");
        hth_restore_join(restore);
    }
}

/* ---- GO
 * --------------------------------------------------------------------------------------------- */

static const struct hth_store_ops *real;

static int no_keep_record(struct hth_store *s, const char *name, const void *bytes, size_t len,
        struct hearth_error *err)
{
    if (!strcmp(name, "keep"))
        return hth_fail(err, HEARTH_ENOSPC, 0, "no room for a keep record");
    return real->record_put(s, name, bytes, len, err);
}

Test(choice, go_is_not_said_where_its_keep_list_cannot_be_written)
{
    struct hth_store *store = p->node[0].store;
    struct hth_store_ops ops = *store->ops;
    uint32_t serial;

    real = store->ops;
    ops.record_put = no_keep_record;
    start();
    say_all(NEWER);
    (void)planned(&serial);
    store->ops = &ops;
    all_vote(serial);
    store->ops = real;
    cr_assert(zero(u32, p->node[0].heard[HTH_KIND_GO]));
    cr_assert(eq(u32, p->node[0].heard[HTH_KIND_EPOCH_FAILED], 1));
}

Test(choice, who_has_missed_go_or_the_plan_is_told_again)
{
    const struct hth_keep none = { 0 };
    const uint32_t *heard = p->node[1].heard;
    uint32_t serial;

    start();
    say_all(NEWER);
    (void)planned(&serial);
    rig_tell(1, &none, NULL, 0); /* again: its engine is new */
    cr_assert(pair_until(p, &heard[HTH_KIND_PLAN], 1, 1000));
    all_vote(serial);
    cr_assert(pair_until(p, &heard[HTH_KIND_GO], 1, 1000));
    vote(1, serial, 0);
    cr_assert(pair_until(p, &heard[HTH_KIND_GO], 2, 1000));
}

Test(choice, an_engine_that_is_new_asks_for_the_inventories)
{
    start();
    say_all(NEWER);
    rig_stop();
    rig_start(0);
    start();
    rig_tell(0, &(struct hth_keep){ 0 }, NULL, 0);
    hth_choice_tick(choice, p->now_ms);
    cr_assert(pair_until(p, &p->node[1].heard[HTH_KIND_ASK_INVENTORY], 1, 1000));
}

/* ---- A manifest that is here
 * ---------------------------------------------------------------------- */

/* Node 2 reports its objects by runs, of another manifest than the others': the coordinator asks it
 * for lists. */
Test(choice, a_node_with_another_manifest_is_asked_for_lists)
{
    struct hth_keep keep = { .epoch = 4, .serial = 1, .saves = 1, .save = { save_of(NEWER) } };
    struct hth_seen_run run = { 0, 1 };
    struct hth_object object;
    struct hth_seen_object seen;
    struct hth_seen_save save = { .id = save_of(NEWER), .has_manifest = 1 }, other;
    uint32_t serial;

    manifest_here(NEWER, &object, save.manifest);
    rig_tell(0, &keep, &save, 1);
    rig_tell(1, &keep, &save, 1);
    other = save;
    other.manifest[0] ^= 1;
    other.runs = 1;
    other.run = &run;
    /* An inventory that node 2 sends before it has received the question is answered by the same
     * question. */
    for (int again = 0; again < 2; again++) {
        p->node[2].kind = 0;
        rig_tell(2, &keep, &other, 1);
        pair_works(p);
        for (int i = 0; i < 100 && p->node[2].kind != HTH_KIND_ASK_INVENTORY; i++)
            pair_step(p);
        cr_assert(eq(u16, p->node[2].kind, HTH_KIND_ASK_INVENTORY));
        cr_assert(eq(sz, p->node[2].len, 8));
        cr_assert(zero(int, hth_restore_ended(restore)), "its objects are not known to be lost");
    }
    seen.id = object.id;
    memcpy(seen.digest, object.digest, HTH_DIGEST);
    other.runs = 0;
    other.objects = 1;
    other.object = &seen;
    rig_tell(2, &keep, &other, 1);
    cr_assert(eq(u64, planned(&serial), NEWER));
}

Test(choice, a_manifest_that_came_before_the_inventories_is_not_waited_for)
{
    struct hth_ctx *ctx = &p->node[0].ctx;
    struct hth_manifest m = {
        .save = { 5, 77, 10, 1 }, .world = NODES, .nodes = NODES, .job = "pair"
    };
    struct hth_manifest read;
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, m.save, 0 };
    struct hth_blob_id plan = hth_restore_plan_id(ctx, 1);
    struct hth_seen_save seen = { .id = m.save, .has_manifest = 1 };
    struct hth_keep none = { 0 };
    unsigned char bytes[1024];
    size_t len;

    must(hth_manifest_encode(&m, bytes, NULL));
    must(hth_manifest_decode(&read, bytes, hth_manifest_bytes(&m), NULL));
    must(hth_blob_serve(ctx, &id, bytes, hth_manifest_bytes(&m), NULL));
    memcpy(seen.manifest, read.digest, HTH_DIGEST);
    for (uint32_t n = 0; n < NODES; n++)
        rig_tell(n, &none, &seen, 1);
    hth_choice_tick(choice, p->now_ms);
    pair_works(p);
    cr_assert(ne(ptr, (void *)(uintptr_t)hth_blob_find(ctx, &plan, &len), NULL));
    hth_manifest_fini(&read);
}
