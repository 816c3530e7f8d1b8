/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Works on raw objects of this node, piece by piece on the workers:
 *
 *   put:    room ─► memory, copy of the content, digest ─► final name
 *   look:   mapped ─► digest ─► is it the one that it should be
 *   take:   mapped ─► digest ─► it is the one, and sealed
 *
 * The object is pinned while one runs; dropped meanwhile, it ends for nothing and leaves nothing.
 */
#include "jobs.h"
#include "sweep.h"

#include "core/base/auth.h"
#include <stdlib.h>
#include <string.h>

struct raw_job {
    struct hth_job job; /* first */
    struct hth_raw *raw;
    struct hth_content *content; /* put */
    int takes;
    struct hth_sweep sweep;
    struct hth_digesting digest;
};

static void raw_job_dispose(struct hth_job *job)
{
    struct raw_job *j = hth_owner_of(struct raw_job, job, job);

    job->ctx->store->ops->raw_close(job->ctx->store, j->raw);
    if (j->content)
        j->content->end(j->content);
    free(j);
}

static void raw_job_start(struct raw_job *j, struct hth_held_save *save, struct hth_held *held,
        int (*piece)(struct hth_sweep *, uint64_t, uint64_t), void (*done)(struct hth_sweep *))
{
    hth_job_begin(&j->job, save, held);
    hth_digest_begin(&j->digest);
    j->sweep = (struct hth_sweep){
        .ctx = j->job.ctx,
        .len = held->object.data_len,
        .piece = piece,
        .done = done,
        .vain = &held->dropped,
    };
    hth_sweep_start(&j->sweep);
}

static void raw_job_end(struct raw_job *j)
{
    const struct hth_job *job = &j->job;

    hth_job_end(&j->job);
    if (job->code && !job->held->dropped && job->held->state != HTH_HELD_SEALED)
        hth_held_drop(job->ctx, job->save, job->held);
    hth_job_free(&j->job);
}

/* ---- Put ------------------------------------------------------------------------------------- */

static int raw_put_piece(struct hth_sweep *sweep, uint64_t off, uint64_t len)
{
    struct raw_job *j = hth_owner_of(struct raw_job, sweep, sweep);
    struct hth_store *store = j->job.ctx->store;

    if (!len)
        return 0;
    j->job.code = store->ops->raw_back(store, j->raw, off, len, &j->job.err);
    if (!j->job.code && j->content->read(j->content, off, j->raw->base + off, len))
        j->job.code = hth_fail(&j->job.err, HEARTH_EPROTO, 0,
                "common object '%s' changed while it was read from its rank",
                j->job.held->object.name);
    if (!j->job.code)
        hth_digest_add(&j->digest, j->raw->base + off, len);
    return j->job.code;
}

static void raw_put_done(struct hth_sweep *sweep);

/* To free a content takes time that grows with its size, so a worker does it. */
static void raw_content_run(struct hth_work *work)
{
    struct raw_job *j = hth_owner_of(struct raw_job, sweep.work, work);

    j->content->end(j->content);
    j->content = NULL;
}

static void raw_content_done(struct hth_work *work)
{
    raw_put_done(&hth_owner_of(struct raw_job, sweep.work, work)->sweep);
}

static void raw_put_done(struct hth_sweep *sweep)
{
    struct raw_job *j = hth_owner_of(struct raw_job, sweep, sweep);
    struct hth_store *store = j->job.ctx->store;

    if (j->content) {
        sweep->work = (struct hth_work){ .run = raw_content_run, .done = raw_content_done };
        j->job.ctx->workers.submit(j->job.ctx->workers.self, &sweep->work);
        return;
    }
    if (!j->job.code && !j->job.held->dropped)
        j->job.code = store->ops->raw_seal(store, j->raw, &j->job.err);
    if (!j->job.code && !j->job.held->dropped) {
        hth_digest_end(&j->digest, j->job.held->object.digest);
        j->job.held->state = HTH_HELD_SEALED;
        j->job.held->verified = 1;
    }
    raw_job_end(j);
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
    j->job = (struct hth_job){ .ctx = ctx, .done = done, .self = self, .dispose = raw_job_dispose };
    j->content = content;
    rc = ctx->store->ops->raw_make(
            ctx->store, save->id, held->object.name, held->object.data_len, &j->raw, err);
    if (rc) {
        raw_job_dispose(&j->job);
        return rc;
    }
    held->state = HTH_HELD_SEALING;
    raw_job_start(j, save, held, raw_put_piece, raw_put_done);
    return HEARTH_OK;
}

/* ---- Look ------------------------------------------------------------------------------------ */

static int raw_look_piece(struct hth_sweep *sweep, uint64_t off, uint64_t len)
{
    struct raw_job *j = hth_owner_of(struct raw_job, sweep, sweep);

    if (len)
        hth_digest_add(&j->digest, j->raw->base + off, len);
    return 0;
}

static void raw_look_done(struct hth_sweep *sweep)
{
    struct raw_job *j = hth_owner_of(struct raw_job, sweep, sweep);
    unsigned char digest[HTH_DIGEST];

    hth_digest_end(&j->digest, digest);
    if (j->takes && !j->job.held->dropped) {
        memcpy(j->job.held->object.digest, digest, HTH_DIGEST);
        j->job.held->state = HTH_HELD_SEALED;
    } else if (memcmp(digest, j->job.held->object.digest, HTH_DIGEST) != 0)
        j->job.code = hth_fail(&j->job.err, HEARTH_ECORRUPT, 0,
                HTH_SAVE " '%s' of this node is not the one that its manifest names",
                HTH_SAVE_ARGS(j->job.save->id), j->job.held->object.name);
    if (!j->job.held->dropped)
        j->job.held->verified = !j->job.code;
    raw_job_end(j);
}

static int raw_look(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        int takes, hth_sealed_fn *done, void *self, struct hearth_error *err)
{
    struct raw_job *j = calloc(1, sizeof(*j));
    int rc;

    if (!j)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to look at a common object");
    j->job = (struct hth_job){ .ctx = ctx, .done = done, .self = self, .dispose = raw_job_dispose };
    j->takes = takes;
    rc = ctx->store->ops->raw_open(ctx->store, save->id, held->object.name, &j->raw, err);
    if (!rc && j->raw->len != held->object.data_len)
        rc = hth_fail(err, HEARTH_ECORRUPT, 0,
                HTH_SAVE " '%s' of this node has %" PRIu64 " bytes and should have %" PRIu64,
                HTH_SAVE_ARGS(save->id), held->object.name, j->raw->len, held->object.data_len);
    if (rc) {
        raw_job_dispose(&j->job);
        return rc;
    }
    if (takes)
        held->state = HTH_HELD_SEALING;
    raw_job_start(j, save, held, raw_look_piece, raw_look_done);
    return HEARTH_OK;
}

int hth_raw_look(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        hth_sealed_fn *done, void *self, struct hearth_error *err)
{
    return raw_look(ctx, save, held, 0, done, self, err);
}

int hth_raw_take(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        hth_sealed_fn *done, void *self, struct hearth_error *err)
{
    return raw_look(ctx, save, held, 1, done, self, err);
}
