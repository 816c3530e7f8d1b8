/* SPDX-License-Identifier: Apache-2.0 */
/* What the coordinator makes of that which the members say they hold. */
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

/* ---- No room ------------------------------------------------------------------------------------- */

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

static int older_is_lost; /* its object is another one everywhere */
static uint32_t tries;    /* jobs that have recovered NEWER in vain, before the one that did last */

/* Every node says that it holds both saves, and that `kept` was PROTECTED. */
static void say_all(uint64_t kept)
{
    struct hth_keep keep = { .epoch = 4,
        .serial = 1,
        .saves = 1,
        .save = { save_of(kept) },
        .tried = save_of(NEWER),
        .tries = tries,
        .trying = 1 };
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
    seen[1].digest[0] ^= (unsigned char)older_is_lost;
    for (uint32_t n = 0; n < NODES; n++)
        rig_tell(n, &keep, saves, 2);
}

/* The save of the last plan that is on record, and the plan's serial. */
static uint64_t planned(uint32_t *out_serial)
{
    struct hth_store *store = p->node[0].store;
    struct hth_plan plan;
    struct hth_plans all;
    uint64_t step;
    void *bytes;
    size_t len;

    must(store->ops->record_get(store, "plans", &bytes, &len, NULL));
    must(hth_plans_decode(&all, bytes, len, NULL));
    must(hth_plan_decode(&plan, all.plan, all.plan_len, NULL));
    *out_serial = all.serial;
    step = plan.chosen.step;
    hth_plan_fini(&plan);
    free(bytes);
    return step;
}

static void vote_no_room(uint32_t node, uint32_t serial)
{
    static const char why[] = "node n2: 1000 bytes do not fit";
    unsigned char body[8 + sizeof(why)];

    hth_put32(body, serial);
    hth_put32(body + 4, (uint32_t)HEARTH_ENOSPC);
    memcpy(body + 8, why, sizeof(why));
    hth_choice_deliver(choice, node, HTH_KIND_VOTE, body, sizeof(body) - 1);
}

Test(choice, a_save_that_was_never_protected_is_passed_over_for_want_of_room)
{
    uint32_t serial;

    say_all(OLDER);
    cr_assert(eq(u64, planned(&serial), NEWER));
    vote_no_room(2, serial);
    cr_assert(eq(u64, planned(&serial), OLDER), "at the first no");
    cr_assert(zero(int, pair_logged(p, 0, "recovery-failed")));
}

Test(choice, a_protected_save_without_room_is_an_error_that_names_the_node)
{
    uint32_t serial, after;

    say_all(NEWER);
    cr_assert(eq(u64, planned(&serial), NEWER));
    vote_no_room(2, serial);
    cr_assert(eq(u64, planned(&after), NEWER));
    cr_assert(eq(u32, after, serial), "no other plan is made");
    cr_assert(eq(int, pair_logged(p, 0, "recovery-failed"), 1));
    cr_assert(strstr(p->node[0].last, "step 2") && strstr(p->node[0].last, "node n2: 1000 bytes"),
            "%s", p->node[0].last);
}

/* ---- Marking by count ----------------------------------------------------------------------------- */

Test(choice, a_save_is_passed_over_after_so_many_jobs_and_not_before)
{
    uint32_t serial;

    p->node[0].ctx.opts.bad_after = 3;
    tries = 1; /* and the last one, of which nobody has counted the end */
    say_all(NEWER);
    cr_assert(eq(u64, planned(&serial), NEWER));
    hth_choice_join(choice);
    p->node[0].ctx.keep = (struct hth_keep){ 0 };
    tries = 2;
    say_all(NEWER);
    cr_assert(eq(u64, planned(&serial), OLDER));
    cr_assert(eq(int, hth_keep_is_bad(&p->node[0].ctx.keep, save_of(NEWER)), 1));
    cr_assert(eq(int, pair_logged(p, 0, "bad-by-count"), 1));
}

Test(choice, ranks_that_recover_again_are_the_same_job)
{
    uint32_t serial;

    p->node[0].ctx.opts.bad_after = 3;
    tries = 2;
    hth_choice_same_job(choice);
    say_all(NEWER);
    cr_assert(eq(u64, planned(&serial), NEWER));
    cr_assert(eq(u32, p->node[0].ctx.keep.tries, 2));
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

/* ---- A manifest that is here ---------------------------------------------------------------------- */

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
    cr_assert(ne(ptr, (void *)(uintptr_t)hth_blob_find(ctx, &plan, &len), NULL));
    hth_manifest_fini(&read);
}
