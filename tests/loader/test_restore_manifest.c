/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest of a plan's save, on a member that has another one or none. */
#include "plans.h"

TestSuite(restore_manifest, .init = begin, .fini = rig_close);

static int holds_the_manifest(void)
{
    struct hth_held_save *s = hth_holdings_find(&p->node[MEMBER].ctx, chosen);

    return s && s->has_manifest &&
           !memcmp(s->manifest.digest, manifest + manifest_len - HTH_DIGEST, HTH_DIGEST);
}

Test(restore_manifest, a_manifest_that_is_not_here_is_pulled_before_anything_else)
{
    struct hth_object object = there(id_of[0]);
    uint32_t serial, out[HTH_PLAN_SOURCES];

    manifest_here = 0;
    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, &object, 1, 1);
    run(1000);
    cr_assert(zero(u32, votes()), "nobody has it");
    cr_assert(zero(u32, hth_restore_sources(restore, object.id, out)));
    hold_manifest(0); /* no node has offered it: the member asks for it */
    run(1000);
    cr_assert(zero(int, voted(&serial)));
    cr_assert(holds_the_manifest());
    cr_assert(pair_equal(p, 0, MEMBER, chosen, object.id));
    cr_assert(eq(u32, hth_restore_sources(restore, object.id, out), 1));
    cr_assert(zero(u32, out[0]));
}

Test(restore_manifest, a_manifest_that_is_here_is_asked_of_nobody)
{
    struct hth_object object = there(id_of[0]);

    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, &object, 1, 1);
    run(1000);
    cr_assert(ge(u32, votes(), 1));
    cr_assert(zero(u32, p->node[MEMBER].arrived));
}

Test(restore_manifest, another_manifest_of_that_save_is_not_taken)
{
    struct hth_object object = there(id_of[0]), other = object;
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, chosen, 0 };

    other.data_len++;
    manifest_here = 0;
    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, &other, 1, 1); /* which makes the bytes of another one */
    must(hth_blob_serve(&p->node[0].ctx, &id, manifest, manifest_len, NULL));
    give_plan_of(2, &object, 1, 1);
    run(1000);
    cr_assert(ge(u32, p->node[MEMBER].arrived, 1));
    cr_assert(zero(u32, votes()));
    hth_blobs_forget(&p->node[0].ctx, chosen);
    hold_manifest(0);
    run(1000);
    cr_assert(ge(u32, votes(), 1));
    cr_assert(holds_the_manifest());
}

/* As if it had come down the tree, of this object; a worker reads it. */
static void manifest_comes(const struct hth_object *object, uint32_t serial)
{
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, chosen, 0 };
    struct hth_ctx *ctx = &p->node[MEMBER].ctx;

    manifest_here = 0;
    ctx->opts.breaks = HTH_TEST_WORKER;
    give_plan_of(serial, object, 1, 1);
    must(hth_blob_give(ctx, &id, manifest, manifest_len, NULL));
    hth_restore_manifest(restore, &id);
    cr_assert(ne(ptr, ctx->drafts, NULL));
}

Test(restore_manifest, a_plan_waits_for_the_worker_that_reads_its_manifest)
{
    struct hth_object object = there(id_of[0]);

    must(hth_restore_start(restore, 60000, NULL));
    manifest_comes(&object, 1);
    cr_assert(zero(int, holds_the_manifest()), "the engine's own thread has read it");
    pair_works(p);
    cr_assert(holds_the_manifest());
    run(1000);
    cr_assert(ge(u32, votes(), 1));
    cr_assert(pair_equal(p, 0, MEMBER, chosen, object.id));
}

Test(restore_manifest, what_is_read_for_an_older_plan_is_left)
{
    struct hth_object object = there(id_of[0]), other = object;

    other.data_len++;
    must(hth_restore_start(restore, 60000, NULL));
    manifest_comes(&other, 1);
    give_plan_of(2, &object, 1, 1);
    pair_works(p);
    cr_assert(zero(ptr, p->node[MEMBER].ctx.drafts));
    cr_assert(zero(int, holds_the_manifest()));
    hold_manifest(0);
    run(1000);
    cr_assert(holds_the_manifest());
}

Test(restore_manifest, what_is_read_when_another_epoch_begins_is_left)
{
    struct hth_object object = there(id_of[0]);

    must(hth_restore_start(restore, 60000, NULL));
    manifest_comes(&object, 1);
    hth_restore_join(restore);
    pair_works(p);
    cr_assert(zero(ptr, p->node[MEMBER].ctx.drafts));
    cr_assert(zero(int, holds_the_manifest()));
}

Test(restore_manifest, another_manifest_that_is_here_gives_way_to_the_plans)
{
    struct hth_object object = there(id_of[0]), other = object;

    other.data_len++;
    must(hth_restore_start(restore, 60000, NULL));
    give_plan_of(1, &other, 1, 0);
    manifest_here = 0;
    give_plan_of(2, &object, 1, 1);
    cr_assert(zero(int, holds_the_manifest()));
    hold_manifest(0);
    run(1000);
    cr_assert(holds_the_manifest());
    cr_assert(pair_equal(p, 0, MEMBER, chosen, object.id));
}

/* A plan names the holders of the objects in the manifest's order. */
Test(restore_manifest, a_plan_of_another_number_of_objects_than_its_manifest_is_a_no)
{
    struct hth_object object[OBJECTS] = { there(id_of[0]), there(id_of[1]) };
    uint32_t serial;

    must(hth_restore_start(restore, 60000, NULL));
    plan_objects = 1;
    give_plan_of(1, object, OBJECTS, 1);
    plan_objects = 0;
    run(1000);
    cr_assert(eq(int, voted(&serial), HEARTH_EPROTO));
}
