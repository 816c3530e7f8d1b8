/* SPDX-License-Identifier: Apache-2.0 */
/* A blob on its way here: asked for, pulled part by part, checked, given on. */
#include "blob_parts.h"

#include "tree.h"
#include <stdlib.h>

#define AVOID 10u /* retries during which a node is not asked after a pull from it stalled */

/* 1: the node can send messages, but pulls from it fail: by the map, or because a pull has just
 * stalled. */
static int blob_avoids(const struct blob *b, uint32_t node)
{
    const struct hth_ctx *ctx = b->ctx;

    return hth_tree_is_unreachable(ctx, ctx->epoch->self, node) ||
           (b->avoid_ms && b->avoid == node && hth_now_ms(&ctx->clock) < b->avoid_ms);
}

/* A random other node that lives and may have it by now; HTH_NODE_NONE: no node is asked this
 * time. */
static uint32_t blob_other(const struct blob *b)
{
    struct hth_ctx *ctx = b->ctx;
    uint32_t node = (uint32_t)(hth_random_next(&ctx->random) % ctx->epoch->nodes);

    return blob_avoids(b, node) || (ctx->lost && ctx->lost[node]) ? HTH_NODE_NONE : node;
}

static uint32_t blob_whom(const struct blob *b)
{
    const struct hth_ctx *ctx = b->ctx;
    uint32_t node = b->source;

    if (node == HTH_NODE_NONE || (ctx->lost && ctx->lost[node]))
        node = hth_tree_parent(ctx, ctx->epoch->self);
    return node != HTH_NODE_NONE && blob_avoids(b, node) ? blob_other(b) : node;
}

void hth_blob_ask(struct blob *b)
{
    uint32_t node = blob_whom(b);

    b->state = ASKING;
    b->due_ms = hth_now_ms(&b->ctx->clock) + b->ctx->opts.retry_ms;
    if (node != HTH_NODE_NONE && node != b->ctx->epoch->self)
        hth_blob_say(b->ctx, &b->id, node, HTH_MSG_BLOB_WANT);
}

/* After a failure the next request waits a moment. */
static void blob_pause(struct blob *b)
{
    b->state = ASKING;
    b->due_ms = hth_now_ms(&b->ctx->clock) + 1 + b->ctx->opts.retry_ms / 8;
}

/* The blob cannot be had here now. The owner is notified, and may give up what the blob is part
 * of. */
static void blob_pull_failed(struct blob *b, const struct hearth_error *err)
{
    b->state = ASKING;
    b->due_ms = hth_now_ms(&b->ctx->clock) + b->ctx->opts.retry_ms;
    hth_blob_failed(b, err); /* last: may forget it */
}

/* Seals the raw object under its final name; from now on this node holds it. */
static int blob_raw_here(struct blob *b, struct hearth_error *err)
{
    struct hth_held_save *s = hth_holdings_find(b->ctx, b->id.save);
    const struct hth_object *o = hth_blob_named(b->ctx, &b->id);
    struct hth_held *h;
    int rc;

    if (hth_blob_held(b->ctx, &b->id))
        return HEARTH_OK; /* it came in another way */
    if (!s || !o)
        return hth_fail(err, HEARTH_ENOENT, 0, "the manifest of a common object is gone");
    rc = b->ctx->store->ops->raw_seal(b->ctx->store, b->raw, err);
    if (rc)
        return rc;
    h = hth_held_add(s, o, HTH_HELD_SEALED, NULL);
    if (!h)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for common object '%s'", o->name);
    h->verified = 1;
    return HEARTH_OK;
}

static void blob_here(struct blob *b)
{
    struct hth_blob_events *events = &b->ctx->blobs->events;
    struct hearth_error err;

    if (b->raw && blob_raw_here(b, &err)) {
        blob_pull_failed(b, &err);
        return;
    }
    b->state = HERE;
    b->due_ms = HTH_NEVER;
    for (struct reader *r = b->readers; r; r = r->next)
        hth_blob_offer(b, r); /* nodes that requested it before it came */
    hth_blob_serve_children(b);
    hth_blob_say(b->ctx, &b->id, b->puller, HTH_MSG_BLOB_DONE);
    events->arrived(events->self, &b->id, b->bytes, b->len); /* last: may forget it */
}

static void blob_sweep(struct blob *b, enum state state,
        int (*piece)(struct hth_sweep *, uint64_t, uint64_t), void (*done)(struct hth_sweep *))
{
    b->state = state;
    b->busy = 1;
    b->due_ms = HTH_NEVER;
    b->sweep = (struct hth_sweep){
        .ctx = b->ctx, .len = b->len, .piece = piece, .done = done, .vain = &b->forgotten
    };
    hth_sweep_start(&b->sweep);
}

static int blob_check_piece(struct hth_sweep *s, uint64_t off, uint64_t len)
{
    struct blob *b = hth_owner_of(struct blob, sweep, s);

    if (len)
        hth_digest_add(&b->sum, b->bytes + off, len);
    return 0;
}

static void blob_check_done(struct hth_sweep *s)
{
    struct blob *b = hth_owner_of(struct blob, sweep, s);

    b->busy = 0;
    if (b->forgotten) {
        hth_blob_free(b);
        return;
    }
    hth_digest_end(&b->sum, b->found);
    if (memcmp(b->found, b->digest, HTH_DIGEST) == 0 || hth_breaks(b->ctx, HTH_BREAK_VERIFY)) {
        blob_here(b);
        return;
    }
    hth_say(&b->ctx->log, HEARTH_LOG_WARN, "blob-bad",
            "node %" PRIu32 " gave " HTH_SAVE " blob %d with a wrong digest", b->puller,
            HTH_SAVE_ARGS(b->id.save), (int)b->id.kind);
    b->at = 0;
    blob_pause(b);
}

static void blob_pull_done(struct hth_session_pull *pull, int code)
{
    struct blob *b = hth_owner_of(struct blob, pull, pull);

    b->busy = 0;
    if (b->forgotten) {
        hth_blob_free(b);
        return;
    }
    if (code == HEARTH_ETIMEOUT) {
        b->avoid = b->puller;
        b->avoid_ms = hth_now_ms(&b->ctx->clock) + AVOID * (uint64_t)b->ctx->opts.retry_ms;
    }
    if (code) {
        blob_pause(b);
        return;
    }
    b->at += b->len - b->at < HTH_CHUNK ? b->len - b->at : HTH_CHUNK;
    hth_blob_step(b);
}

/* Pulls the next part, or checks the whole. */
void hth_blob_step(struct blob *b)
{
    uint64_t part = b->len - b->at < HTH_CHUNK ? b->len - b->at : HTH_CHUNK;
    struct hth_ctx *ctx = b->ctx;
    int rc;

    if (!part) {
        hth_digest_begin(&b->sum);
        blob_sweep(b, CHECKING, blob_check_piece, blob_check_done);
        return;
    }
    b->pull = (struct hth_session_pull){ .done = blob_pull_done };
    rc = hth_session_pull(
            ctx->session, b->puller, &b->grant, b->at, b->region, b->at, part, &b->pull);
    b->busy = !rc;
    b->due_ms = rc ? hth_now_ms(&ctx->clock) + 1 + ctx->opts.retry_ms / 16 : HTH_NEVER;
    if (rc && rc != HEARTH_EBUSY)
        blob_pause(b);
}

static void blob_pull_ready(struct blob *b, int code, const struct hearth_error *err)
{
    if (!code) {
        hth_blob_step(b);
        return;
    }
    (void)hth_blob_empty(b);
    blob_pull_failed(b, err);
}

/* The memory is there: pulls begin when it is registered. */
static void blob_begin(struct blob *b)
{
    struct hearth_error err;

    b->state = PULLING;
    b->due_ms = HTH_NEVER;
    switch (hth_blob_register(b, blob_pull_ready)) {
    case HEARTH_OK:
        hth_blob_step(b);
        break;
    case HEARTH_ENOMEM:
        hth_fail(&err, HEARTH_ENOMEM, 0, "no memory for the registration of a blob");
        blob_pull_ready(b, err.code, &err);
        break;
    }
}

static int blob_make_piece(struct hth_sweep *s, uint64_t off, uint64_t len)
{
    struct blob *b = hth_owner_of(struct blob, sweep, s);

    return b->ctx->store->ops->raw_back(b->ctx->store, b->raw, off, len, &b->err);
}

static void blob_make_done(struct hth_sweep *s)
{
    struct blob *b = hth_owner_of(struct blob, sweep, s);

    b->busy = 0;
    if (b->forgotten) {
        hth_blob_free(b);
    } else if (s->code) {
        (void)hth_blob_empty(b);
        blob_pull_failed(b, &b->err);
    } else {
        blob_begin(b);
    }
}

/* Makes the memory for the length and digest that BLOB names. Parts pulled of other bytes are
 * dropped. */
static void blob_make(struct blob *b, uint64_t len, const unsigned char *digest)
{
    struct hth_store *store = b->ctx->store;
    struct hearth_error err;

    if ((b->bytes || b->raw) && b->len == len && memcmp(b->digest, digest, HTH_DIGEST) == 0) {
        blob_begin(b);
        return;
    }
    b->state = ASKING;
    b->due_ms = hth_now_ms(&b->ctx->clock) + b->ctx->opts.retry_ms;
    if (hth_blob_empty(b))
        return;
    b->len = len;
    memcpy(b->digest, digest, HTH_DIGEST);
    if (b->id.kind != HTH_BLOB_RAW) {
        b->buf = hth_buf_new(len, digest);
        b->bytes = b->buf ? b->buf->at : NULL;
        if (b->bytes)
            blob_begin(b);
    } else if (store->ops->raw_make(store, b->id.save, hth_blob_named(b->ctx, &b->id)->name, len,
                       &b->raw, &err)) {
        blob_pull_failed(b, &err);
    } else {
        b->bytes = b->raw->base;
        blob_sweep(b, MAKING, blob_make_piece, blob_make_done);
    }
}

/* 1: the length is plausible. A peer's message alone must not make this node allocate a large
 * amount of memory: a raw object must be as its manifest names it. */
static int blob_is_plausible(
        struct hth_ctx *ctx, const struct hth_blob_id *id, uint64_t len, const void *digest)
{
    const struct hth_object *o;

    if (id->kind != HTH_BLOB_RAW)
        return len <= BLOB_MAX;
    o = hth_blob_named(ctx, id);
    return o && o->kind == HTH_OBJECT_RAW && len <= HTH_RAW_MAX && len == o->data_len &&
           memcmp(digest, o->digest, HTH_DIGEST) == 0;
}

/* 1: an unsolicited blob is accepted: its sender is an ancestor in the tree, and the limits of
 * unsolicited blobs hold. Otherwise a member could make this node allocate memory for any blob that
 * it names, or use up the places for requested blobs. */
static int blob_may_come(const struct hth_ctx *ctx, uint32_t from, uint64_t len)
{
    uint32_t node = ctx->epoch->self, count = 0;
    uint64_t bytes = len;

    while (node != 0 && (node = hth_tree_above(ctx, node)) != from)
        continue;
    for (const struct blob *b = ctx->blobs->first; b; b = b->next) {
        count += b->unasked != 0;
        bytes += b->unasked ? b->len : 0;
    }
    if (node == from && from != ctx->epoch->self && count < UNASKED_MAX && bytes <= UNASKED_BYTES)
        return 1;
    hth_say(&ctx->log, HEARTH_LOG_DEBUG, "blob-unasked",
            "node %" PRIu32 " offers a blob that was not requested", from);
    return 0;
}

static struct blob *blob_new(
        struct hth_ctx *ctx, const struct hth_blob_id *id, uint32_t from, uint64_t len)
{
    struct blob *b = blob_may_come(ctx, from, len) ? hth_blob_get(ctx, id) : NULL;

    if (b)
        b->unasked = b->give_on = 1;
    return b;
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
    if (r->bad || !desc || r->pos != r->len)
        return;
    memcpy(grant.desc, desc, grant.desc_len);
    b = hth_blob_look(ctx, &id);
    if (b ? b->state == HERE : hth_blob_held(ctx, &id) != NULL) {
        hth_blob_say(ctx, &id, from, HTH_MSG_BLOB_DONE);
        return;
    }
    if (!blob_is_plausible(ctx, &id, len, digest))
        return;
    if (!b)
        b = blob_new(ctx, &id, from, len);
    if (!b || b->busy || b->state == PULLING)
        return;
    /* no pull from this node; but the blob exists, so another node is asked */
    if (blob_avoids(b, from)) {
        b->due_ms = b->due_ms == HTH_NEVER ? hth_now_ms(&ctx->clock) : b->due_ms;
        return;
    }
    b->puller = from;
    if (!grant.desc_len && len) {
        b->due_ms = hth_now_ms(&ctx->clock) + ctx->opts.retry_ms;
        hth_blob_say(ctx, &id, from, HTH_MSG_BLOB_WANT);
        return;
    }
    b->grant = grant;
    blob_make(b, len, digest);
}
