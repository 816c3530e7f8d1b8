/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest at the coordinator: which thread makes it, and what becomes of it when it is not
 * needed any more. */
#include "coordinator.h"

#include "core/format/table.h"
#include "replication/held/draft.h"

#include <stdio.h>

enum { NODES = 3, PART = 60, MANY = 400, FEW = 100 }; /* objects: in a message; of each node */

static void begin(void)
{
    coordinator_open(NODES);
    engine_start();
}

TestSuite(draft, .init = begin, .fini = coordinator_close);

static void put_save(unsigned char *out)
{
    hth_put64(out, save.epoch);
    hth_put64(out + 8, save.nonce);
    hth_put64(out + 16, save.step);
    hth_put32(out + 24, save.attempt);
    hth_put32(out + 28, 0);
}

/* DONE of this node with so many objects. */
static void done_of(uint32_t origin, uint32_t objects)
{
    uint32_t parts = (objects + PART - 1) / PART;

    for (uint32_t part = 0; part < parts; part++) {
        unsigned char body[SAVE + 16 + PART * HTH_MANIFEST_OBJECT] = { 0 };
        uint32_t count = part + 1 < parts ? PART : objects - part * PART;

        put_save(body);
        hth_put32(body + SAVE, part);
        hth_put32(body + SAVE + 4, parts);
        hth_put32(body + SAVE + 8, count);
        for (uint32_t i = 0; i < count; i++) {
            struct hth_object o = { .id = (uint64_t)origin << 32 | (part * PART + i + 1),
                .owner = origin,
                .kind = HTH_OBJECT_SHARD,
                .data_len = 4096,
                .table_len = HTH_TABLE_HEAD };

            snprintf(o.name, sizeof(o.name), "rank%u-%u", origin, part * PART + i);
            hth_object_encode(&o, body + SAVE + 16 + i * HTH_MANIFEST_OBJECT);
        }
        hth_commit_deliver(commit, origin, HTH_KIND_DONE, body,
                SAVE + 16 + (size_t)count * HTH_MANIFEST_OBJECT);
    }
}

/* All nodes have sent DONE, and the coordinator has looked at it. */
static void all_done(uint32_t objects)
{
    for (uint32_t n = 0; n < NODES; n++)
        done_of(n, objects);
    hth_commit_tick(commit);
}

static void works_and_tick(void)
{
    pair_works(p);
    hth_commit_tick(commit);
}

/* Objects in the manifest; 0: there is none. */
static uint32_t made(void)
{
    const struct hth_held_save *s = hth_holdings_find(ctx, save);

    return s && s->has_manifest ? s->manifest.objects : 0;
}

static int is_given(void)
{
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, save, 0 };
    size_t len;

    return hth_blob_find(ctx, &id, &len) != NULL;
}

static void cancel(void)
{
    unsigned char code[4];

    hth_put32(code, HEARTH_EIO);
    fact(1, HTH_KIND_FAILED, code, sizeof(code));
    hth_commit_tick(commit);
    cr_assert(eq(u32, on_record(NULL).cancels, 1));
}

/* Neither known, nor given, nor on record; nor does anybody still have it. */
static void no_manifest(void)
{
    char name[HTH_SAVE_TEXT + 16];
    void *bytes;
    size_t len;

    cr_assert(zero(u32, made()));
    cr_assert(zero(int, is_given()));
    cr_assert(zero(ptr, ctx->drafts));
    hth_save_text(save, name);
    strcat(name, ".manifest");
    must_fail(real->record_get(p->node[0].store, name, &bytes, &len, NULL), HEARTH_ENOENT);
}

Test(draft, a_large_one_is_made_by_a_worker)
{
    all_done(MANY);
    cr_assert(zero(u32, made()), "the engine's own thread has made it");
    cr_assert(zero(int, is_given()));
    works_and_tick();
    cr_assert(eq(u32, made(), NODES * MANY));
    cr_assert(eq(int, is_given(), 1));
}

Test(draft, a_small_one_waits_for_no_worker)
{
    all_done(FEW);
    cr_assert(eq(u32, made(), NODES * FEW));
    cr_assert(eq(int, is_given(), 1));
}

Test(draft, it_is_begun_once)
{
    all_done(MANY);
    for (uint32_t n = 0; n < NODES; n++) {
        done_of(n, MANY); /* members repeat it until there is a manifest */
        hth_commit_tick(commit);
    }
    cr_assert(ne(ptr, ctx->drafts, NULL));
    pair_works(p);
    cr_assert(zero(ptr, ctx->drafts));
    hth_commit_tick(commit);
    cr_assert(eq(u32, made(), NODES * MANY));
}

Test(draft, the_tick_that_gives_it_is_due_when_it_is_ready)
{
    all_done(MANY);
    cr_assert(gt(u64, hth_commit_due_ms(commit), p->now_ms));
    pair_works(p);
    cr_assert(le(u64, hth_commit_due_ms(commit), p->now_ms));
}

Test(draft, a_save_that_fails_meanwhile_has_none)
{
    all_done(MANY);
    cancel();
    works_and_tick();
    no_manifest();
}

/* The draft was ready, but the save fails before the tick that would have given it. */
Test(draft, a_save_that_fails_when_it_is_ready_has_none)
{
    all_done(MANY);
    pair_works(p);
    cancel();
    no_manifest();
}

Test(draft, a_job_that_ends_meanwhile_has_none)
{
    all_done(MANY);
    hth_commit_stop(commit);
    works_and_tick();
    no_manifest();
}

Test(draft, the_next_epoch_has_none)
{
    all_done(MANY);
    p->node[0].epoch.epoch++;
    must(hth_commit_join(commit, NULL));
    hth_commit_go(commit, (struct hth_save_id){ 0 });
    works_and_tick();
    no_manifest();
}

/* The new engine gathers again the facts that the one before had received. */
Test(draft, an_engine_that_is_new_makes_its_own)
{
    all_done(MANY);
    engine_again();
    works_and_tick();
    no_manifest();
    all_done(MANY);
    works_and_tick();
    cr_assert(eq(u32, made(), NODES * MANY));
}

/* As if its threads had been stopped first: the result never arrives, and its memory is freed. */
Test(draft, an_engine_may_end_while_a_worker_has_it)
{
    all_done(MANY);
    cr_assert(ne(ptr, ctx->drafts, NULL));
    p->works = NULL;
    p->works_end = &p->works;
}

static void hear(void *self)
{
    ++*(int *)self;
}

Test(draft, who_gave_it_up_hears_no_more_of_it)
{
    static unsigned char bytes[1000 * HTH_MANIFEST_OBJECT]; /* a worker's, and no manifest */

    for (int given_up = 0; given_up < 2; given_up++) {
        struct hth_buf *buf = hth_buf_of(bytes, sizeof(bytes));
        int heard = 0;
        struct hth_draft *d = hth_draft_read(ctx, buf, hear, &heard);

        hth_buf_put(buf);
        cr_assert(zero(int, hth_draft_ended(d)));
        if (given_up)
            hth_draft_free(d);
        pair_works(p);
        cr_assert(eq(int, heard, !given_up));
        cr_assert(zero(ptr, ctx->drafts));
        if (!given_up)
            hth_draft_free(d);
    }
}

Test(draft, what_cannot_be_on_record_is_cancelled)
{
    all_done(MANY);
    refuses_manifests = 1;
    works_and_tick();
    cr_assert(eq(u32, on_record(NULL).cancels, 1));
    cr_assert(ne(ptr, strstr(on_record(NULL).why, "no room for a manifest"), NULL));
    cr_assert(zero(u32, made()));
}

Test(draft, a_report_that_makes_no_sense_is_the_end_of_its_save)
{
    unsigned char body[SAVE + 16 + HTH_MANIFEST_OBJECT] = { 0 };

    put_save(body);
    hth_put32(body + SAVE + 4, 1);
    hth_put32(body + SAVE + 8, 1);
    done_of(0, FEW);
    done_of(1, FEW);
    hth_commit_deliver(commit, 2, HTH_KIND_DONE, body, sizeof(body));
    hth_commit_tick(commit);
    cr_assert(eq(u32, on_record(NULL).cancels, 1));
    cr_assert(ne(ptr, strstr(on_record(NULL).why, "makes no sense"), NULL));
    no_manifest();
}
