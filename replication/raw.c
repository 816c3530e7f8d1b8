/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Works on raw objects of this node, piece by piece on the workers:
 *
 *   put:    room ─► memory, copy of the content, digest ─► final name
 *   look:   mapped ─► digest ─► is it the one that it should be
 *
 * The object is pinned while one runs; dropped meanwhile, it ends for nothing and leaves nothing.
 */
#include "sweep.h"
#include "transfer_parts.h"

#include "core/base/auth.h"
#include <stdlib.h>
#include <string.h>

struct raw_job {
    struct hth_ctx *ctx;
    struct hth_held_save *save; /* pinned with held */
    struct hth_held *held;
    struct hth_raw *raw;
    struct hth_content *content; /* put */
    struct hth_sweep sweep;
    struct hth_digesting digest;
    int code;
    struct hearth_error err;
    hth_sealed_fn *done;
    void *self;
    struct raw_job *next;
};

static void job_free(struct raw_job *j)
{
    j->ctx->store->ops->raw_close(j->ctx->store, j->raw);
    if (j->content)
        j->content->end(j->content);
    free(j);
}

static void job_start(struct raw_job *j, struct hth_held_save *save, struct hth_held *held,
        int (*piece)(struct hth_sweep *, uint64_t, uint64_t), void (*done)(struct hth_sweep *))
{
    struct raw_job **at = &j->ctx->transfer->raws;

    j->save = save;
    j->held = held;
    hth_held_pin(save, held);
    while (*at)
        at = &(*at)->next;
    *at = j;
    hth_digest_begin(&j->digest);
    j->sweep = (struct hth_sweep){
        .ctx = j->ctx,
        .len = held->object.data_len,
        .piece = piece,
        .done = done,
        .vain = &held->dropped,
    };
    hth_sweep_start(&j->sweep);
}

static void job_end(struct raw_job *j)
{
    struct raw_job **at = &j->ctx->transfer->raws;

    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    if (j->held->dropped)
        j->code = hth_fail(&j->err, HEARTH_ECANCELED, 0, HTH_SAVE " object '%s': dropped meanwhile",
                HTH_SAVE_ARGS(j->save->id), j->held->object.name);
    if (j->done)
        j->done(j->self, j->save, j->held, j->code, &j->err);
    if (j->code && !j->held->dropped && j->held->state != HTH_HELD_SEALED)
        hth_held_drop(j->ctx, j->save, j->held);
    hth_held_unpin(j->save, j->held);
    job_free(j);
}

int hth_raw_runs(const struct hth_ctx *ctx, const struct hth_held *held)
{
    const struct raw_job *j = ctx->transfer->raws;

    while (j && j->held != held)
        j = j->next;
    return j != NULL;
}

void hth_raws_close(struct hth_ctx *ctx)
{
    struct raw_job *j;

    while ((j = ctx->transfer->raws)) {
        ctx->transfer->raws = j->next;
        hth_held_unpin(j->save, j->held);
        job_free(j);
    }
}

/* ---- Put ------------------------------------------------------------------------------------- */

static int put_piece(struct hth_sweep *sweep, uint64_t off, uint64_t len)
{
    struct raw_job *j = hth_owner_of(struct raw_job, sweep, sweep);
    struct hth_store *store = j->ctx->store;

    if (!len)
        return 0;
    j->code = store->ops->raw_back(store, j->raw, off, len, &j->err);
    if (!j->code && j->content->read(j->content, off, j->raw->base + off, len))
        j->code = hth_fail(&j->err, HEARTH_EPROTO, 0,
                "common object '%s' changed while it was read from its rank", j->held->object.name);
    if (!j->code)
        hth_digest_add(&j->digest, j->raw->base + off, len);
    return j->code;
}

static void put_done(struct hth_sweep *sweep);

/* To free a content takes as long as it is large, as everything here. */
static void content_run(struct hth_work *work)
{
    struct raw_job *j = hth_owner_of(struct raw_job, sweep.work, work);

    j->content->end(j->content);
    j->content = NULL;
}

static void content_done(struct hth_work *work)
{
    put_done(&hth_owner_of(struct raw_job, sweep.work, work)->sweep);
}

static void put_done(struct hth_sweep *sweep)
{
    struct raw_job *j = hth_owner_of(struct raw_job, sweep, sweep);
    struct hth_store *store = j->ctx->store;

    if (j->content) {
        sweep->work = (struct hth_work){ .run = content_run, .done = content_done };
        j->ctx->workers.submit(j->ctx->workers.self, &sweep->work);
        return;
    }
    if (!j->code && !j->held->dropped)
        j->code = store->ops->raw_seal(store, j->raw, &j->err);
    if (!j->code && !j->held->dropped) {
        hth_digest_end(&j->digest, j->held->object.digest);
        j->held->state = HTH_HELD_SEALED;
        j->held->verified = 1;
    }
    job_end(j);
}

int hth_raw_put(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        struct hth_content *content, hth_sealed_fn *done, void *self, struct hearth_error *err)
{
    struct raw_job *j = calloc(1, sizeof(*j));
    int rc;

    if (!j) {
        content->end(content);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a common object");
    }
    *j = (struct raw_job){ .ctx = ctx, .content = content, .done = done, .self = self };
    rc = ctx->store->ops->raw_make(
            ctx->store, save->id, held->object.name, held->object.data_len, &j->raw, err);
    if (rc) {
        job_free(j);
        return rc;
    }
    held->state = HTH_HELD_SEALING;
    job_start(j, save, held, put_piece, put_done);
    return HEARTH_OK;
}

/* ---- Look ------------------------------------------------------------------------------------ */

static int look_piece(struct hth_sweep *sweep, uint64_t off, uint64_t len)
{
    struct raw_job *j = hth_owner_of(struct raw_job, sweep, sweep);

    if (len)
        hth_digest_add(&j->digest, j->raw->base + off, len);
    return 0;
}

static void look_done(struct hth_sweep *sweep)
{
    struct raw_job *j = hth_owner_of(struct raw_job, sweep, sweep);
    unsigned char digest[HTH_DIGEST];

    hth_digest_end(&j->digest, digest);
    if (memcmp(digest, j->held->object.digest, HTH_DIGEST) != 0)
        j->code = hth_fail(&j->err, HEARTH_ECORRUPT, 0,
                HTH_SAVE " '%s' of this node is not the one that its manifest names",
                HTH_SAVE_ARGS(j->save->id), j->held->object.name);
    if (!j->held->dropped)
        j->held->verified = !j->code;
    job_end(j);
}

int hth_raw_look(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        hth_sealed_fn *done, void *self, struct hearth_error *err)
{
    struct raw_job *j = calloc(1, sizeof(*j));
    int rc;

    if (!j)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to look at a common object");
    *j = (struct raw_job){ .ctx = ctx, .done = done, .self = self };
    rc = ctx->store->ops->raw_open(ctx->store, save->id, held->object.name, &j->raw, err);
    if (!rc && j->raw->len != held->object.data_len)
        rc = hth_fail(err, HEARTH_ECORRUPT, 0,
                HTH_SAVE " '%s' of this node has %" PRIu64 " bytes and should have %" PRIu64,
                HTH_SAVE_ARGS(save->id), held->object.name, j->raw->len, held->object.data_len);
    if (rc) {
        job_free(j);
        return rc;
    }
    job_start(j, save, held, look_piece, look_done);
    return HEARTH_OK;
}
