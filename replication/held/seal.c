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
#include "jobs.h"
#include "sums.h"

#include "core/base/auth.h"
#include "core/base/bytes.h"
#include "core/format/table.h"
#include <stdlib.h>
#include <string.h>

struct seal_job {
    struct hth_job job;    /* first */
    struct hth_slot *slot; /* leased */
    int compare;           /* digest: compare with the manifest's */
    struct hth_foreign_look look;
    struct hth_object object; /* seal: as it will be */
    struct hth_seal_part part;
    struct hth_sums sums;
    struct hth_work work;
    struct hth_proof *proof;  /* seal; NULL: the rank's sums are in the table */
    struct hth_proofs proofs; /* verify: of the table, once that is right */
};

static unsigned char *seal_table(const struct seal_job *j)
{
    return j->slot->base + HTH_BLOCK + HTH_ALIGN(j->object.data_len);
}

static void seal_job_dispose(struct hth_job *job)
{
    struct seal_job *j = hth_owner_of(struct seal_job, job, job);

    free(j->proof);
    free(j);
}

static int seal_job_new(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        hth_sealed_fn *done, void *self, struct seal_job **out, struct hearth_error *err)
{
    struct seal_job *j = calloc(1, sizeof(*j));

    if (!j)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a work on an object");
    j->job =
            (struct hth_job){ .ctx = ctx, .done = done, .self = self, .dispose = seal_job_dispose };
    j->slot = held->slot;
    j->object = held->object;
    hth_job_begin(&j->job, save, held);
    ctx->store->ops->lease(ctx->store, j->slot);
    *out = j;
    return HEARTH_OK;
}

static void seal_job_end(struct seal_job *j)
{
    j->job.ctx->store->ops->unlease(j->job.ctx->store, j->slot);
    hth_job_end(&j->job);
    hth_job_free(&j->job);
}

static void seal_job_work(
        struct seal_job *j, void (*run)(struct hth_work *), void (*done)(struct hth_work *))
{
    j->work = (struct hth_work){ .run = run, .done = done };
    j->job.ctx->workers.submit(j->job.ctx->workers.self, &j->work);
}

static void seal_job_sums(struct seal_job *j, void (*done)(struct hth_sums *))
{
    j->sums = (struct hth_sums){
        .ctx = j->job.ctx,
        .data = j->slot->base + HTH_BLOCK,
        .data_len = j->object.data_len,
        .proof = j->proof,
        .strong = j->object.strong,
        .proofs = j->proofs,
        .done = done,
    };
    hth_sums_start(&j->sums);
}

/* ---- Seal
 * ---------------------------------------------------------------------------------------- */

/* By the rank, of each chunk. */
static const unsigned char *seal_rank_sums(const struct seal_job *j)
{
    return seal_table(j) + HTH_TABLE_HEAD + j->part.items_len;
}

static int seal_not_as_copied(struct seal_job *j, uint64_t chunk)
{
    return hth_fail(&j->job.err, HEARTH_ECORRUPT, 0,
            HTH_SAVE " object '%s': chunk %" PRIu64 " is not as rank %" PRIu32
                     " of this node has copied it: look at the node's memory",
            HTH_SAVE_ARGS(j->job.save->id), j->object.name, chunk, j->object.owner);
}

/* Where integrity is strong, the engine has read the data for its SHA-256 after the rank copied it:
 * a bit that changed between would get a digest of its own, and no peer would find it. */
static int seal_as_copied(struct seal_job *j)
{
    const unsigned char *sums = seal_rank_sums(j);

    for (uint64_t c = 0; j->proof && j->part.summed && c < HTH_CHUNKS(j->object.data_len); c++)
        if (hth_get32(sums + 4 * c) != j->proof[c].crc)
            return seal_not_as_copied(j, c);
    return HEARTH_OK;
}

static void seal_finish_run(struct hth_work *work)
{
    struct seal_job *j = hth_owner_of(struct seal_job, work, work);
    uint64_t data_len = j->object.data_len;
    struct hth_table table;

    if ((j->job.code = seal_as_copied(j)))
        return;
    memset(j->slot->base + HTH_BLOCK + data_len, 0, HTH_ALIGN(data_len) - data_len);
    hth_table_finish(
            seal_table(j), data_len, j->part.items, j->part.items_len, j->proof, j->object.strong);
    j->job.code = hth_table_decode(&table, seal_table(j), j->object.table_len, &j->job.err);
    if (j->job.code)
        j->job.code = hth_while(&j->job.err, HEARTH_EINVAL,
                "rank %" PRIu32 " has written '%s' of " HTH_SAVE " with wrong items",
                j->object.owner, j->object.name, HTH_SAVE_ARGS(j->job.save->id));
    else
        hth_digest(j->object.digest, seal_table(j), j->object.table_len);
}

static void seal_block_write(const struct seal_job *j)
{
    struct hth_block b = {
        .data_len = j->object.data_len,
        .signature = HTH_SIG_TENSORS,
        .own = 1,
        .save = j->job.save->id,
        .owner = j->object.owner,
        .object = j->object.id,
        .generation = j->slot->generation,
        .table_off = HTH_BLOCK + HTH_ALIGN(j->object.data_len),
        .table_len = j->object.table_len,
    };

    memcpy(b.table_digest, j->object.digest, HTH_DIGEST);
    memcpy(b.job, j->job.ctx->opts.job, sizeof(b.job));
    memcpy(b.name, j->object.name, sizeof(b.name));
    hth_block_encode(&b, j->slot->base);
}

static void seal_finish(struct seal_job *j)
{
    struct hth_store *store = j->job.ctx->store;

    if (!j->job.code && !j->job.held->dropped) {
        hth_point(&j->job.ctx->points, "seal");
        seal_block_write(j);
        j->job.code =
                store->ops->seal(store, j->slot, j->job.save->id, j->object.name, &j->job.err);
    }
    if (!j->job.held->dropped) {
        j->job.held->state = j->job.code ? HTH_HELD_LENT : HTH_HELD_SEALED;
        j->job.held->verified = !j->job.code;
        if (!j->job.code)
            j->job.held->object = j->object;
    }
    seal_job_end(j);
}

static void seal_finish_done(struct hth_work *work)
{
    seal_finish(hth_owner_of(struct seal_job, work, work));
}

static void seal_summed(struct hth_sums *sums)
{
    seal_job_work(hth_owner_of(struct seal_job, sums, sums), seal_finish_run, seal_finish_done);
}

static void seal_early_compared(struct hth_sums *sums)
{
    struct seal_job *j = hth_owner_of(struct seal_job, sums, sums);

    if (sums->wrong == HTH_SUMS_RIGHT) {
        seal_job_work(j, seal_finish_run, seal_finish_done);
        return;
    }
    j->job.code = seal_not_as_copied(j, sums->wrong);
    seal_finish(j);
}

/* Peers that have pulled these chunks while the rank wrote the others do not pull them again, and
 * would not find a bit that has changed here since. */
static void seal_early(struct seal_job *j)
{
    uint64_t bytes = (uint64_t)j->part.early * HTH_CHUNK;

    bytes = bytes < j->object.data_len ? bytes : j->object.data_len;
    j->sums = (struct hth_sums){
        .ctx = j->job.ctx,
        .data = j->slot->base + HTH_BLOCK,
        .data_len = bytes,
        .proofs = { .data_len = bytes, .crc = (const void *)seal_rank_sums(j) },
        .done = seal_early_compared,
    };
    hth_sums_start(&j->sums);
}

/* Memory for the checksums, if the engine makes them. */
static int seal_proof_new(const struct hth_ctx *ctx, const struct hth_seal_part *part,
        uint64_t data_len, struct hth_proof **out, struct hearth_error *err)
{
    *out = NULL;
    if (part->summed && !ctx->opts.strong)
        return HEARTH_OK;
    *out = malloc((HTH_CHUNKS(data_len) + 1) * sizeof(**out));
    return *out ? HEARTH_OK
                : hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the checksums of an object");
}

int hth_seal_start(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        const struct hth_seal_part *part, hth_sealed_fn *done, void *self, struct hearth_error *err)
{
    uint64_t data_len = held->object.data_len, items_len = part->items_len, table_len, room;
    struct hth_proof *proof;
    struct seal_job *j = NULL;
    int rc;

    if (held->state != HTH_HELD_LENT || !held->slot)
        return hth_fail(err, HEARTH_ESTATE, 0, "'%s' of " HTH_SAVE " is not being written",
                held->object.name, HTH_SAVE_ARGS(save->id));
    room = held->slot->capacity - HTH_BLOCK;
    if (items_len % 8 || data_len > room || items_len > room ||
            HTH_ALIGN(data_len) + hth_table_bytes(data_len, items_len, ctx->opts.strong) > room)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "'%s' of " HTH_SAVE ": %" PRIu64 " bytes of data and %" PRIu64
                " of items do not fit in its slot of %" PRIu64,
                held->object.name, HTH_SAVE_ARGS(save->id), data_len, items_len,
                held->slot->capacity);
    table_len = hth_table_bytes(data_len, items_len, ctx->opts.strong);
    if ((rc = hth_object_name_check(held->object.name, err)))
        return rc;
    if ((rc = seal_proof_new(ctx, part, data_len, &proof, err)))
        return rc;
    rc = seal_job_new(ctx, save, held, done, self, &j, err);
    if (!j) {
        free(proof);
        return rc;
    }
    j->proof = proof;
    j->part = *part;
    j->object.table_len = table_len;
    j->object.strong = ctx->opts.strong;
    j->object.kind = HTH_OBJECT_SHARD;
    held->state = HTH_HELD_SEALING;
    if (j->proof)
        seal_job_sums(j, seal_summed);
    else
        seal_early(j);
    return HEARTH_OK;
}

/* ---- Verify
 * --------------------------------------------------------------------------------------- */

int hth_block_check(const struct hth_ctx *ctx, struct hth_save_id save,
        const struct hth_object *object, const unsigned char *block, struct hearth_error *err)
{
    struct hth_block b;
    int rc = hth_block_decode(&b, block, HTH_BLOCK, hth_object_file_bytes(object), err);

    if (rc)
        return rc;
    if (!b.own || hth_save_cmp(b.save, save) != 0 || b.object != object->id ||
            b.owner != object->owner || b.data_len != object->data_len ||
            b.table_len != object->table_len || strcmp(b.name, object->name) != 0 ||
            strcmp(b.job, ctx->opts.job) != 0 ||
            memcmp(b.table_digest, object->digest, HTH_DIGEST) != 0)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "the block is that of another object");
    return HEARTH_OK;
}

static void verify_bad(struct seal_job *j, const char *what, uint64_t at)
{
    j->job.code = hth_fail(&j->job.err, HEARTH_ECORRUPT, 0,
            HTH_SAVE " object '%s': %s %" PRIu64 " of this node's copy is wrong",
            HTH_SAVE_ARGS(j->job.save->id), j->object.name, what, at);
}

static void verify_end(struct seal_job *j)
{
    if (!j->job.held->dropped)
        j->job.held->verified = !j->job.code;
    seal_job_end(j);
}

static void verify_summed(struct hth_sums *sums)
{
    struct seal_job *j = hth_owner_of(struct seal_job, sums, sums);

    if (sums->wrong != HTH_SUMS_RIGHT)
        verify_bad(j, "chunk", sums->wrong);
    verify_end(j);
}

static void verify_table_run(struct hth_work *work)
{
    struct seal_job *j = hth_owner_of(struct seal_job, work, work);
    unsigned char digest[HTH_DIGEST];
    struct hth_table table;

    hth_digest(digest, seal_table(j), j->object.table_len);
    if (memcmp(digest, j->object.digest, HTH_DIGEST) != 0 ||
            hth_table_decode(&table, seal_table(j), j->object.table_len, NULL) ||
            table.data_len != j->object.data_len || table.strong != j->object.strong)
        verify_bad(j, "the table, at byte", HTH_BLOCK + HTH_ALIGN(j->object.data_len));
    else if (hth_block_check(j->job.ctx, j->job.save->id, &j->object, j->slot->base, NULL))
        verify_bad(j, "the block, at byte", 0);
    else
        j->proofs = table.proofs;
}

static void verify_table_done(struct hth_work *work)
{
    struct seal_job *j = hth_owner_of(struct seal_job, work, work);

    if (j->job.code || j->job.held->dropped)
        verify_end(j);
    else
        seal_job_sums(j, verify_summed);
}

/* ---- Verify what has no table
 * ------------------------------------------------------------------- */

static void digest_run(struct hth_work *work)
{
    struct seal_job *j = hth_owner_of(struct seal_job, work, work);

    hth_digest(j->object.digest, j->slot->base, j->object.data_len);
    j->look = j->job.held->look;
    j->job.code = hth_foreign_look(
            &j->look, j->object.name, j->slot->base, j->object.data_len, &j->job.err);
}

/* The digest that the file must have; NULL: any. */
static const unsigned char *digest_expected(const struct seal_job *j)
{
    const struct hth_object *o = j->job.save->has_manifest && j->compare
                                         ? hth_manifest_find(&j->job.save->manifest, j->object.id)
                                         : NULL;

    if (o)
        return o->digest;
    return j->job.held->theirs ? NULL : j->job.held->object.digest;
}

static void digest_done(struct hth_work *work)
{
    struct seal_job *j = hth_owner_of(struct seal_job, work, work);
    const unsigned char *want = digest_expected(j);
    struct hearth_error changed;

    if (!j->job.held->dropped && hth_held_same(j->job.ctx, j->job.held, &changed)) {
        j->job.err = changed; /* the bytes may be neither the old nor the new */
        j->job.code = changed.code;
    }
    if (j->job.code)
        hth_while(&j->job.err, j->job.code, HTH_SAVE " object '%s'", HTH_SAVE_ARGS(j->job.save->id),
                j->object.name);
    else if (want && memcmp(j->object.digest, want, HTH_DIGEST) != 0)
        j->job.code = hth_fail(&j->job.err, HEARTH_ECORRUPT, 0,
                HTH_SAVE " object '%s': this node's copy is not what it was",
                HTH_SAVE_ARGS(j->job.save->id), j->object.name);
    if (!j->job.code && !j->job.held->dropped) {
        j->job.held->object = j->object;
        j->job.held->look = j->look;
    }
    verify_end(j);
}

static int digest_start(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        int compare, hth_sealed_fn *done, void *self, struct hearth_error *err)
{
    struct seal_job *j = NULL;
    int rc = seal_job_new(ctx, save, held, done, self, &j, err);

    if (!j)
        return rc;
    j->compare = compare;
    seal_job_work(j, digest_run, digest_done);
    return HEARTH_OK;
}

static void verify_nothing(struct hth_work *work)
{
    (void)work;
}

static void verify_believed(struct hth_work *work)
{
    verify_end(hth_owner_of(struct seal_job, work, work));
}

int hth_verify_start(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        hth_sealed_fn *done, void *self, struct hearth_error *err)
{
    struct seal_job *j = NULL;
    int rc;

    if (held->object.kind == HTH_OBJECT_RAW && held->state == HTH_HELD_SEALED)
        return hth_raw_look(ctx, save, held, done, self, err);
    if (held->state != HTH_HELD_SEALED || !held->slot ||
            hth_object_file_bytes(&held->object) > held->slot->capacity)
        return hth_fail(err, HEARTH_ESTATE, 0, "'%s' of " HTH_SAVE " is not sealed here",
                held->object.name, HTH_SAVE_ARGS(save->id));
    if (held->object.kind == HTH_OBJECT_FOREIGN)
        return digest_start(ctx, save, held, 1, done, self, err);
    rc = seal_job_new(ctx, save, held, done, self, &j, err);
    if (!j)
        return rc;
    if (hth_breaks(ctx, HTH_BREAK_VERIFY))
        seal_job_work(j, verify_nothing, verify_believed);
    else
        seal_job_work(j, verify_table_run, verify_table_done);
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
