/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest at a member: which thread reads the bytes that have come, and what becomes of it
 * when it is not needed any more. */
#include "member.h"

#include "core/format/table.h"
#include "replication/held/draft.h"

#include <stdio.h>

enum { MANY = 1000, FEW = 900 };

TestSuite(draft_member, .init = begin, .fini = end);

/* The manifest of so many objects of rank 2, of which nothing has its place here. */
static unsigned char *manifest_of(uint32_t objects, size_t *out_len)
{
    struct hth_manifest m = {
        .save = save, .world = NODES, .nodes = NODES, .job = "pair", .objects = objects
    };
    unsigned char *bytes;

    *out_len = hth_manifest_bytes(&m);
    bytes = malloc(*out_len);
    m.object = calloc(objects, sizeof(*m.object));
    cr_assert(bytes && m.object);
    for (uint32_t i = 0; i < objects; i++) {
        struct hth_object *o = &m.object[i];

        *o = (struct hth_object){ .id = UINT64_C(2) << 32 | (i + 1),
            .owner = 2,
            .kind = HTH_OBJECT_SHARD,
            .data_len = 4096,
            .table_len = HTH_TABLE_HEAD };
        snprintf(o->name, sizeof(o->name), "rank2-%u", i);
    }
    must(hth_manifest_encode(&m, bytes, NULL));
    hth_manifest_fini(&m);
    return bytes;
}

static void comes(const unsigned char *bytes, size_t len)
{
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, save, 0 };

    hth_commit_blob(commit, &id, bytes, len);
}

static void manifest_comes(uint32_t objects)
{
    size_t len;
    unsigned char *bytes = manifest_of(objects, &len);

    comes(bytes, len);
    free(bytes);
}

/* Objects in the manifest; 0: there is none. */
static uint32_t known(void)
{
    const struct hth_held_save *s = hth_holdings_find(ctx, save);

    return s && s->has_manifest ? s->manifest.objects : 0;
}

static void cancel(void)
{
    struct hth_head head;
    unsigned char word[HTH_HEAD_BYTES];

    give_head(1, &(struct hth_places){ 0 }, &ctx->keep);
    head = pair_head(p, 1, NULL);
    head.position = 2;
    head.cancels = 1;
    head.cancelled[0] = (struct hth_cancelled){ save, HEARTH_EIO, 0 };
    hth_head_encode(&head, NULL, 0, word);
    hth_commit_deliver(commit, 0, HTH_KIND_HEAD, word, hth_head_bytes(0));
    cr_assert(eq(u64, pair_head(p, 1, NULL).position, 2));
}

Test(draft_member, a_large_one_is_read_by_a_worker_and_then_said_to_be_held)
{
    manifest_comes(MANY);
    cr_assert(zero(u32, known()), "the engine's own thread has read it");
    cr_assert(ne(ptr, ctx->drafts, NULL));
    pair_works(p);
    cr_assert(eq(u32, known(), MANY));
    cr_assert(eq(u32, heard(HTH_KIND_HELD, SOON_MS) > 0, 1));
}

Test(draft_member, a_small_one_is_read_at_once)
{
    manifest_comes(FEW);
    cr_assert(eq(u32, known(), FEW));
}

Test(draft_member, it_is_read_once_however_often_it_comes)
{
    manifest_comes(MANY);
    manifest_comes(MANY);
    pair_works(p);
    cr_assert(zero(ptr, ctx->drafts));
    cr_assert(eq(u32, known(), MANY));
}

Test(draft_member, a_save_that_is_cancelled_meanwhile_has_none)
{
    manifest_comes(MANY);
    cancel();
    pair_works(p);
    cr_assert(zero(ptr, ctx->drafts));
    cr_assert(zero(ptr, hth_holdings_find(ctx, save)), "it is nobody's, and takes room");
}

Test(draft_member, a_job_that_ends_meanwhile_has_none)
{
    manifest_comes(MANY);
    hth_commit_stop(commit);
    pair_works(p);
    cr_assert(zero(ptr, ctx->drafts));
    cr_assert(zero(u32, known()));
}

/* The manifest that the engine before had received comes again. */
Test(draft_member, an_engine_that_is_new_reads_its_own)
{
    manifest_comes(MANY);
    engine_again();
    pair_works(p);
    cr_assert(zero(u32, known()));
    manifest_comes(MANY);
    pair_works(p);
    cr_assert(eq(u32, known(), MANY));
}

Test(draft_member, one_that_cannot_be_on_record_fails_its_save)
{
    manifest_comes(MANY);
    hth_store_mem_no_records(p->node[1].store, 1);
    pair_works(p);
    hth_store_mem_no_records(p->node[1].store, 0);
    cr_assert(zero(u32, known()));
    cr_assert(ge(u32, heard(HTH_KIND_FAILED, SOON_MS), 1));
}

/* Of what is kept it is wanted, whatever came first. */
Test(draft_member, one_that_is_no_good_is_pulled_again_where_its_save_is_kept)
{
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, save, 0 };
    size_t len;
    unsigned char *bytes = manifest_of(MANY, &len);

    bytes[len / 2] ^= 1;
    must(hth_blob_give(ctx, &id, bytes, len, NULL)); /* as if it had come */
    bytes[len / 2] ^= 1;
    must(hth_blob_give(&p->node[0].ctx, &id, bytes, len, NULL));
    free(bytes);
    ctx->keep = (struct hth_keep){ .epoch = save.epoch, .serial = 1, .saves = 1, .save = { save } };
    engine_again();
    for (uint64_t end_ms = p->now_ms + 20 * SOON_MS; !known() && p->now_ms < end_ms;)
        (void)heard(HTH_KIND_HELD, 10);
    cr_assert(eq(u32, known(), MANY));
    cr_assert(gt(int, pair_logged(p, 1, "manifest-failed"), 0));
}
