/* SPDX-License-Identifier: Apache-2.0 */
/* A blob on its way here: asked for, pulled part by part, checked, given on. */
#include "blob_parts.h"

#include <hearth/internal/core/auth.h>
#include <hearth/internal/replication/tree.h>
#include <stdlib.h>

#define owner_of(field, at) ((struct blob *)(void *)((char *)(at)-offsetof(struct blob, field)))

static uint32_t whom(const struct blob *b)
{
    const struct hth_ctx *ctx = b->ctx;

    if (b->source != HTH_NODE_NONE && !(ctx->down && ctx->down[b->source]))
        return b->source;
    return hth_tree_parent(ctx, ctx->epoch->self);
}

void hth_blob_ask(struct blob *b)
{
    uint32_t node = whom(b);

    b->state = ASKING;
    b->due_ms = hth_now_ms(&b->ctx->clock) + b->ctx->opts.retry_ms;
    if (node != HTH_NODE_NONE && node != b->ctx->epoch->self)
        hth_blob_say(b, node, HTH_MSG_BLOB_WANT);
}

/* What has just failed is not asked for in the same moment again. */
static void pause_asking(struct blob *b)
{
    b->state = ASKING;
    b->due_ms = hth_now_ms(&b->ctx->clock) + 1 + b->ctx->opts.retry_ms / 8;
}

static void here(struct blob *b)
{
    struct hth_blobs *blobs = b->ctx->blobs;

    b->state = HERE;
    b->due_ms = HTH_NEVER;
    for (struct reader *r = b->readers; r; r = r->next)
        hth_blob_offer(b, r); /* who wanted it before it came */
    hth_blob_serve_children(b);
    hth_blob_say(b, b->puller, HTH_MSG_BLOB_DONE);
    blobs->arrived(blobs->self, &b->id, b->bytes, b->len); /* last: may forget it */
}

static void check_run(struct hth_work *work)
{
    struct blob *b = owner_of(work, work);

    hth_digest(b->found, b->bytes, b->len);
}

static void check_done(struct hth_work *work)
{
    struct blob *b = owner_of(work, work);

    b->busy = 0;
    if (b->forgotten) {
        hth_blob_free(b);
        return;
    }
    if (memcmp(b->found, b->digest, HTH_DIGEST) == 0 || hth_breaks(b->ctx, HTH_BREAK_VERIFY)) {
        here(b);
        return;
    }
    hth_say(&b->ctx->log, HEARTH_LOG_WARN, "blob-bad",
            "node %" PRIu32 " gave " HTH_SAVE " blob %d with a wrong digest", b->puller,
            HTH_SAVE_ARGS(b->id.save), (int)b->id.kind);
    b->at = 0;
    pause_asking(b);
}

static void pull_done(struct hth_session_pull *pull, int code)
{
    struct blob *b = owner_of(pull, pull);

    b->busy = 0;
    if (b->forgotten) {
        hth_blob_free(b);
        return;
    }
    if (code) {
        pause_asking(b);
        return;
    }
    b->at += b->len - b->at < HTH_CHUNK ? b->len - b->at : HTH_CHUNK;
    hth_blob_step(b);
}

/* Pull the next part, or check the whole. */
void hth_blob_step(struct blob *b)
{
    uint64_t part = b->len - b->at < HTH_CHUNK ? b->len - b->at : HTH_CHUNK;
    struct hth_ctx *ctx = b->ctx;
    int rc;

    if (!part) {
        b->state = CHECKING;
        b->busy = 1;
        b->due_ms = HTH_NEVER;
        b->work = (struct hth_work){ .run = check_run, .done = check_done };
        ctx->workers.submit(ctx->workers.self, &b->work);
        return;
    }
    b->pull = (struct hth_session_pull){ .done = pull_done };
    rc = hth_session_pull(
            ctx->session, b->puller, &b->grant, b->at, b->region, b->at, part, &b->pull);
    b->busy = !rc;
    b->due_ms = rc ? hth_now_ms(&ctx->clock) + 1 + ctx->opts.retry_ms / 16 : HTH_NEVER;
    if (rc && rc != HEARTH_EBUSY)
        pause_asking(b);
}

/* Room for what BLOB says; what was pulled of other bytes counts for nothing. */
static int room(struct blob *b, uint64_t len, const unsigned char *digest)
{
    if (b->bytes && b->len == len && memcmp(b->digest, digest, HTH_DIGEST) == 0)
        return HEARTH_OK;
    if (b->region && hth_session_dereg(b->ctx->session, b->region))
        return HEARTH_EBUSY;
    b->region = NULL;
    free(b->bytes);
    b->at = 0;
    b->len = len;
    memcpy(b->digest, digest, HTH_DIGEST);
    b->bytes = malloc(len ? len : 1);
    if (!b->bytes)
        return HEARTH_ENOMEM;
    return len ? hth_session_reg(b->ctx->session, b->bytes, len, &b->region, NULL) : HEARTH_OK;
}

void hth_blob_offered(struct hth_ctx *ctx, uint32_t from, struct hth_reader *r)
{
    struct hth_blob_id id = hth_blob_id_read(r);
    uint64_t len = hth_read64(r);
    const unsigned char *digest = hth_read(r, HTH_DIGEST);
    struct hth_grant grant = { .desc_len = hth_read32(r) };
    const unsigned char *desc;
    struct blob *b;

    hth_read_zeros(r, 4);
    desc = grant.desc_len <= HTH_DESC_MAX ? hth_read(r, grant.desc_len) : NULL;
    if (r->bad || !desc || r->pos != r->len || len > BLOB_MAX)
        return;
    memcpy(grant.desc, desc, grant.desc_len);
    b = hth_blob_look(ctx, &id);
    if (b && b->state == HERE) {
        hth_blob_say(b, from, HTH_MSG_BLOB_DONE);
        return;
    }
    if (!b && (b = hth_blob_get(ctx, &id)))
        b->give_on = 1;
    if (!b || b->busy || b->state == PULLING)
        return;
    b->puller = from;
    if (!grant.desc_len && len) {
        b->due_ms = hth_now_ms(&ctx->clock) + ctx->opts.retry_ms;
        hth_blob_say(b, from, HTH_MSG_BLOB_WANT);
        return;
    }
    if (room(b, len, digest)) {
        b->due_ms = hth_now_ms(&ctx->clock) + ctx->opts.retry_ms;
        return;
    }
    b->grant = grant;
    b->state = PULLING;
    hth_blob_step(b);
}
