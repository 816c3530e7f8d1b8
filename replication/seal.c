/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealing what a rank has written, and verifying what is sealed: works on an object of this node.
 *
 *   seal:    checksums of all chunks ─► head, checks, digest of the table ─► block, final name
 *   verify:  table against the digest ─► checksums of all chunks against the table
 *   digest:  of a foreign file, which has neither; and what is in it
 *
 * The rank's items are foreign bytes: what does not decode fails the save, not the engine. The
 * slot is leased and the object pinned while a job runs; dropped meanwhile, it ends for nothing.
 */
#include "sums.h"
#include "transfer_parts.h"

#include "core/base/auth.h"
#include "core/format/table.h"
#include <stdlib.h>
#include <string.h>

struct job {
    struct hth_ctx *ctx;
    struct hth_held_save *save; /* pinned with held */
    struct hth_held *held;
    struct hth_slot *slot; /* leased */
    int sealing;
    int compare; /* digest: with what the manifest has */
    struct hth_foreign_look look;
    struct hth_object object; /* seal: as it will be */
    uint32_t items;
    uint64_t items_len;
    struct hth_sums sums;
    struct hth_work work;
    uint32_t *crc;
    int code;
    struct hearth_error err;
    hth_sealed_fn *done;
    void *self;
    struct job *next;
};

static unsigned char *table_of(const struct job *j)
{
    return j->slot->base + HTH_BLOCK + HTH_ALIGN(j->object.data_len);
}

static int job_new(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        hth_sealed_fn *done, void *self, struct job **out, struct hearth_error *err)
{
    struct job **at = &ctx->transfer->jobs;
    struct job *j = calloc(1, sizeof(*j));
    uint64_t chunks = HTH_CHUNKS(held->object.data_len);

    if (j)
        j->crc = malloc((chunks ? chunks : 1) * sizeof(*j->crc));
    if (!j || !j->crc) {
        free(j);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the checksums of an object");
    }
    j->ctx = ctx;
    j->save = save;
    j->held = held;
    j->slot = held->slot;
    j->object = held->object;
    j->done = done;
    j->self = self;
    hth_held_pin(save, held);
    ctx->store->ops->lease(ctx->store, j->slot);
    while (*at)
        at = &(*at)->next;
    *at = j;
    *out = j;
    return HEARTH_OK;
}

static void job_end(struct job *j)
{
    struct job **at = &j->ctx->transfer->jobs;

    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    if (j->held->dropped)
        j->code = hth_fail(&j->err, HEARTH_ECANCELED, 0, HTH_SAVE " object '%s': dropped meanwhile",
                HTH_SAVE_ARGS(j->save->id), j->object.name);
    j->ctx->store->ops->unlease(j->ctx->store, j->slot);
    if (j->done)
        j->done(j->self, j->save, j->held, j->code, &j->err);
    hth_held_unpin(j->save, j->held);
    free(j->crc);
    free(j);
}

int hth_job_runs(const struct hth_ctx *ctx, const struct hth_held *held)
{
    const struct job *j = ctx->transfer->jobs;

    while (j && j->held != held)
        j = j->next;
    return j != NULL || hth_raw_runs(ctx, held);
}

void hth_jobs_close(struct hth_ctx *ctx)
{
    struct job *j;

    while ((j = ctx->transfer->jobs)) {
        ctx->transfer->jobs = j->next;
        hth_held_unpin(j->save, j->held);
        free(j->crc);
        free(j);
    }
}

static void job_work(struct job *j, void (*run)(struct hth_work *), void (*done)(struct hth_work *))
{
    j->work = (struct hth_work){ .run = run, .done = done };
    j->ctx->workers.submit(j->ctx->workers.self, &j->work);
}

static void job_sums(struct job *j, void (*done)(struct hth_sums *))
{
    j->sums = (struct hth_sums){
        .ctx = j->ctx,
        .data = j->slot->base + HTH_BLOCK,
        .data_len = j->object.data_len,
        .crc = j->crc,
        .done = done,
    };
    hth_sums_start(&j->sums);
}

/* ---- Seal ---------------------------------------------------------------------------------------- */

static void finish_run(struct hth_work *work)
{
    struct job *j = hth_owner_of(struct job, work, work);
    uint64_t data_len = j->object.data_len;
    struct hth_table table;

    memset(j->slot->base + HTH_BLOCK + data_len, 0, HTH_ALIGN(data_len) - data_len);
    hth_table_finish(table_of(j), data_len, j->items, j->items_len, j->crc);
    j->code = hth_table_decode(&table, table_of(j), j->object.table_len, &j->err);
    if (!j->code)
        hth_digest(j->object.digest, table_of(j), j->object.table_len);
}

static void block_write(const struct job *j)
{
    struct hth_block b = {
        .data_len = j->object.data_len,
        .signature = HTH_SIG_TENSORS,
        .own = 1,
        .save = j->save->id,
        .owner = j->object.owner,
        .object = j->object.id,
        .generation = j->slot->generation,
        .table_off = HTH_BLOCK + HTH_ALIGN(j->object.data_len),
        .table_len = j->object.table_len,
    };

    memcpy(b.table_digest, j->object.digest, HTH_DIGEST);
    memcpy(b.job, j->ctx->opts.job, sizeof(b.job));
    memcpy(b.name, j->object.name, sizeof(b.name));
    hth_block_encode(&b, j->slot->base);
}

static void seal_finish(struct job *j)
{
    struct hth_store *store = j->ctx->store;

    if (j->code)
        j->code = hth_while(&j->err, HEARTH_EINVAL,
                "rank %" PRIu32 " has written '%s' of " HTH_SAVE " with wrong items",
                j->object.owner, j->object.name, HTH_SAVE_ARGS(j->save->id));
    if (!j->code && !j->held->dropped) {
        hth_point(&j->ctx->points, "seal");
        block_write(j);
        j->code = store->ops->seal(store, j->slot, j->save->id, j->object.name, &j->err);
    }
    if (!j->held->dropped) {
        j->held->state = j->code ? HTH_HELD_LENT : HTH_HELD_SEALED;
        j->held->verified = !j->code;
        if (!j->code)
            j->held->object = j->object;
    }
    job_end(j);
}

static void finish_done(struct hth_work *work)
{
    seal_finish(hth_owner_of(struct job, work, work));
}

static void seal_summed(struct hth_sums *sums)
{
    job_work(hth_owner_of(struct job, sums, sums), finish_run, finish_done);
}

int hth_seal_start(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        uint32_t items, uint64_t items_len, hth_sealed_fn *done, void *self,
        struct hearth_error *err)
{
    uint64_t data_len = held->object.data_len, table_len, room;
    struct job *j;
    int rc;

    if (held->state != HTH_HELD_LENT || !held->slot)
        return hth_fail(err, HEARTH_ESTATE, 0, "'%s' of " HTH_SAVE " is not being written",
                held->object.name, HTH_SAVE_ARGS(save->id));
    room = held->slot->capacity - HTH_BLOCK;
    if (items_len % 8 || data_len > room || items_len > room ||
            HTH_ALIGN(data_len) + hth_table_bytes(data_len, items_len) > room)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "'%s' of " HTH_SAVE ": %" PRIu64 " bytes of data and %" PRIu64
                " of items do not fit in its slot of %" PRIu64,
                held->object.name, HTH_SAVE_ARGS(save->id), data_len, items_len,
                held->slot->capacity);
    table_len = hth_table_bytes(data_len, items_len);
    rc = hth_object_name_check(held->object.name, err);
    if (!rc)
        rc = job_new(ctx, save, held, done, self, &j, err);
    if (rc)
        return rc;
    j->sealing = 1;
    j->items = items;
    j->items_len = items_len;
    j->object.table_len = table_len;
    j->object.kind = HTH_OBJECT_SHARD;
    held->state = HTH_HELD_SEALING;
    job_sums(j, seal_summed);
    return HEARTH_OK;
}

/* ---- Verify --------------------------------------------------------------------------------------- */

static void bad(struct job *j, const char *what, uint64_t at)
{
    j->code = hth_fail(&j->err, HEARTH_ECORRUPT, 0,
            HTH_SAVE " object '%s': %s %" PRIu64 " of this node's copy is wrong",
            HTH_SAVE_ARGS(j->save->id), j->object.name, what, at);
}

static void verify_end(struct job *j)
{
    if (!j->held->dropped)
        j->held->verified = !j->code;
    job_end(j);
}

static void verify_summed(struct hth_sums *sums)
{
    struct job *j = hth_owner_of(struct job, sums, sums);
    const unsigned char *end = table_of(j) + j->object.table_len;
    uint32_t chunks = (uint32_t)HTH_CHUNKS(j->object.data_len), c = 0;
    const unsigned char *crc = end - (4 * (uint64_t)chunks + 7) / 8 * 8;

    while (c < chunks && memcmp(crc + 4 * (uint64_t)c, &j->crc[c], 4) == 0)
        c++;
    if (c < chunks)
        bad(j, "chunk", c);
    verify_end(j);
}

static void table_run(struct hth_work *work)
{
    struct job *j = hth_owner_of(struct job, work, work);
    unsigned char digest[HTH_DIGEST];
    struct hth_table table;

    hth_digest(digest, table_of(j), j->object.table_len);
    if (memcmp(digest, j->object.digest, HTH_DIGEST) != 0 ||
            hth_table_decode(&table, table_of(j), j->object.table_len, NULL) ||
            table.data_len != j->object.data_len)
        bad(j, "the table, at byte", HTH_BLOCK + HTH_ALIGN(j->object.data_len));
    else if (hth_block_check(j->ctx, j->save->id, &j->object, j->slot->base, NULL))
        bad(j, "the block, at byte", 0);
}

static void table_done(struct hth_work *work)
{
    struct job *j = hth_owner_of(struct job, work, work);

    if (j->code || j->held->dropped)
        verify_end(j);
    else
        job_sums(j, verify_summed);
}

/* ---- Verify what has no table ------------------------------------------------------------------- */

static void digest_run(struct hth_work *work)
{
    struct job *j = hth_owner_of(struct job, work, work);

    hth_digest(j->object.digest, j->slot->base, j->object.data_len);
    j->look = j->held->look;
    j->code =
            hth_foreign_look(&j->look, j->object.name, j->slot->base, j->object.data_len, &j->err);
}

/* What the file must be; NULL: whatever it is. */
static const unsigned char *expected(const struct job *j)
{
    const struct hth_object *o = j->save->has_manifest && j->compare
                                         ? hth_manifest_find(&j->save->manifest, j->object.id)
                                         : NULL;

    if (o)
        return o->digest;
    return j->held->theirs ? NULL : j->held->object.digest;
}

static void digest_done(struct hth_work *work)
{
    struct job *j = hth_owner_of(struct job, work, work);
    const unsigned char *want = expected(j);

    if (j->code)
        hth_while(&j->err, j->code, HTH_SAVE " object '%s'", HTH_SAVE_ARGS(j->save->id),
                j->object.name);
    else if (want && memcmp(j->object.digest, want, HTH_DIGEST) != 0)
        j->code = hth_fail(&j->err, HEARTH_ECORRUPT, 0,
                HTH_SAVE " object '%s': this node's copy is not what it was",
                HTH_SAVE_ARGS(j->save->id), j->object.name);
    if (!j->code && !j->held->dropped) {
        j->held->object = j->object;
        j->held->look = j->look;
    }
    verify_end(j);
}

static int digest_start(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        int compare, hth_sealed_fn *done, void *self, struct hearth_error *err)
{
    struct job *j = NULL;
    int rc = job_new(ctx, save, held, done, self, &j, err);

    if (!j)
        return rc;
    j->compare = compare;
    job_work(j, digest_run, digest_done);
    return HEARTH_OK;
}

static void nothing(struct hth_work *work)
{
    (void)work;
}

static void believed(struct hth_work *work)
{
    verify_end(hth_owner_of(struct job, work, work));
}

int hth_verify_start(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        hth_sealed_fn *done, void *self, struct hearth_error *err)
{
    struct job *j = NULL;
    int rc;

    if (held->object.kind == HTH_OBJECT_RAW && held->state == HTH_HELD_SEALED)
        return hth_raw_look(ctx, save, held, done, self, err);
    if (held->state != HTH_HELD_SEALED || !held->slot ||
            hth_object_file_bytes(&held->object) > held->slot->capacity)
        return hth_fail(err, HEARTH_ESTATE, 0, "'%s' of " HTH_SAVE " is not sealed here",
                held->object.name, HTH_SAVE_ARGS(save->id));
    if (held->object.kind == HTH_OBJECT_FOREIGN)
        return digest_start(ctx, save, held, 1, done, self, err);
    rc = job_new(ctx, save, held, done, self, &j, err);
    if (!j)
        return rc;
    if (hth_breaks(ctx, HTH_BREAK_VERIFY))
        job_work(j, nothing, believed);
    else
        job_work(j, table_run, table_done);
    return HEARTH_OK;
}

int hth_digest_start(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        hth_sealed_fn *done, void *self, struct hearth_error *err)
{
    if (held->object.kind != HTH_OBJECT_FOREIGN || held->state != HTH_HELD_SEALED || !held->slot)
        return hth_fail(err, HEARTH_ESTATE, 0, "'%s' of " HTH_SAVE " is no foreign file",
                held->object.name, HTH_SAVE_ARGS(save->id));
    return digest_start(ctx, save, held, 0, done, self, err);
}
