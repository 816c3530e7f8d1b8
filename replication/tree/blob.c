/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One blob at one node:
 *
 *   ASKING ──BLOB with a grant──► (MAKING ──►) PULLING ──all here──► CHECKING ──digest right──► HERE
 *     ▲ BLOB_WANT every retry       │ no room    │ pull failed         │ wrong
 *     └─────────────────────────────┴────────────┴─────────────────────┘
 *
 * MAKING is of raw objects: memory behind their file, on the workers. They are HERE under their
 * final name, and start HERE where one that is held is asked for.
 *
 * HERE serves: each child (or whoever wanted it) gets BLOB every retry until it says BLOB_DONE.
 * A blob is forgotten at once for everybody else, but its memory waits for its pull or its work.
 *
 *   BLOB_WANT, BLOB_DONE  {id}
 *   BLOB                  {id, u64 length, digest 32, u32 grant length, u32 zero, grant}
 *   id                    {u32 kind, u32 zero, save 32, u64 object}
 *
 * BLOB without a grant: there was no connection to grant to yet; the answer is BLOB_WANT.
 */
#include "blob_parts.h"

#include <stdlib.h>

int hth_blobs_open(struct hth_ctx *ctx, const struct hth_blob_events *events,
        struct hth_blobs **out, struct hearth_error *err)
{
    struct hth_blobs *blobs = calloc(1, sizeof(*blobs));

    (void)ctx;
    if (!blobs)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the blobs");
    blobs->events = *events;
    *out = blobs;
    return HEARTH_OK;
}

/* ---- Messages
 * ----------------------------------------------------------------------------------- */

int hth_blobs_message(
        struct hth_ctx *ctx, uint32_t from, uint16_t type, const unsigned char *body, size_t len)
{
    struct hth_reader r = { .at = body, .len = len };
    struct hth_blob_id id;

    if (type < HTH_MSG_BLOB || type > HTH_MSG_BLOB_DONE)
        return 0;
    if (!ctx->epoch)
        return 1;
    if (type == HTH_MSG_BLOB) {
        hth_blob_offered(ctx, from, &r);
        return 1;
    }
    id = hth_blob_id_read(&r);
    if (r.bad || len != ID_LEN)
        return 1;
    if (type == HTH_MSG_BLOB_WANT)
        hth_blob_wanted(ctx, from, &id);
    else
        hth_blob_taken(ctx, from, &id);
    return 1;
}

/* ---- Giving
 * ------------------------------------------------------------------------------------------ */

/* 1: the blob is here, or being made or pulled. */
static int blob_is_under_way(const struct blob *b)
{
    return b && (b->state == HERE || b->busy || b->state == PULLING); /* MAKING is busy */
}

static int blob_give_on(struct blob *b, int give_on)
{
    b->give_on |= give_on;
    hth_blob_serve_children(b);
    return HEARTH_OK;
}

/* buf: one user's, taken over in any case. */
static int blob_put(struct hth_ctx *ctx, const struct hth_blob_id *id, struct hth_buf *buf,
        int give_on, struct hearth_error *err)
{
    struct blob *b = buf ? hth_blob_get(ctx, id) : NULL;

    if (!b || hth_blob_empty(b)) {
        hth_buf_put(buf);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no room for a blob");
    }
    b->buf = buf;
    b->bytes = buf->at;
    b->len = b->at = buf->len;
    b->state = HERE;
    b->due_ms = HTH_NEVER;
    memcpy(b->digest, buf->digest, HTH_DIGEST);
    for (struct reader *r = b->readers; r; r = r->next)
        hth_blob_offer(b, r);
    return blob_give_on(b, give_on);
}

static int blob_check(const struct hth_blob_id *id, size_t len, struct hearth_error *err)
{
    if (len > BLOB_MAX || id->kind == HTH_BLOB_RAW)
        return hth_fail(err, HEARTH_EINVAL, 0, "%zu bytes are more than the %" PRIu64 " of a blob",
                len, BLOB_MAX);
    return HEARTH_OK;
}

static int blob_copy(struct hth_ctx *ctx, const struct hth_blob_id *id, const void *bytes,
        size_t len, int give_on, struct hearth_error *err)
{
    struct blob *b = hth_blob_look(ctx, id);
    int rc;

    if (blob_is_under_way(b))
        return blob_give_on(b, give_on);
    rc = blob_check(id, len, err);
    return rc ? rc : blob_put(ctx, id, hth_buf_of(bytes, len), give_on, err);
}

static int blob_keep(struct hth_ctx *ctx, const struct hth_blob_id *id, struct hth_buf *buf,
        int give_on, struct hearth_error *err)
{
    struct blob *b = hth_blob_look(ctx, id);
    int rc;

    if (blob_is_under_way(b))
        return blob_give_on(b, give_on);
    rc = blob_check(id, buf->len, err);
    return rc ? rc : blob_put(ctx, id, hth_buf_get(buf), give_on, err);
}

int hth_blob_give(struct hth_ctx *ctx, const struct hth_blob_id *id, const void *bytes, size_t len,
        struct hearth_error *err)
{
    return blob_copy(ctx, id, bytes, len, 1, err);
}

int hth_blob_serve(struct hth_ctx *ctx, const struct hth_blob_id *id, const void *bytes, size_t len,
        struct hearth_error *err)
{
    return blob_copy(ctx, id, bytes, len, 0, err);
}

int hth_blob_give_buf(struct hth_ctx *ctx, const struct hth_blob_id *id, struct hth_buf *buf,
        struct hearth_error *err)
{
    return blob_keep(ctx, id, buf, 1, err);
}

int hth_blob_serve_buf(struct hth_ctx *ctx, const struct hth_blob_id *id, struct hth_buf *buf,
        struct hearth_error *err)
{
    return blob_keep(ctx, id, buf, 0, err);
}

static void blob_forget(struct blob *b)
{
    hth_blob_readers_free(b);
    hth_blob_bury(b);
}

int hth_blob_fetch(
        struct hth_ctx *ctx, const struct hth_blob_id *id, uint32_t node, struct hearth_error *err)
{
    struct blob *b;

    if (!ctx->epoch || (node >= ctx->epoch->nodes && node != HTH_NODE_NONE) ||
            node == ctx->epoch->self)
        return hth_fail(err, HEARTH_EINVAL, 0, "node %" PRIu32 " is no node to fetch from", node);
    b = hth_blob_look(ctx, id);
    if (b && b->state == HERE && id->kind == HTH_BLOB_RAW && !hth_blob_held(ctx, id))
        blob_forget(b);
    b = hth_blob_get(ctx, id);
    if (!b)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a blob");
    b->give_on = 1;
    b->unasked = 0;
    if (b->state == HERE) {
        hth_blob_serve_children(b);
        return HEARTH_OK;
    }
    b->source = node;
    if (!b->busy && b->state == ASKING)
        hth_blob_ask(b);
    return HEARTH_OK;
}

const unsigned char *hth_blob_find(
        struct hth_ctx *ctx, const struct hth_blob_id *id, size_t *out_len)
{
    struct blob *b = hth_blob_look(ctx, id);

    if (!b || b->state != HERE)
        return NULL;
    *out_len = b->len;
    return b->bytes;
}

struct hth_buf *hth_blob_buf(struct hth_ctx *ctx, const struct hth_blob_id *id)
{
    struct blob *b = hth_blob_look(ctx, id);

    return b && b->state == HERE ? b->buf : NULL;
}

/* ---- Time and ends
 * -------------------------------------------------------------------------------------- */

void hth_blobs_forget(struct hth_ctx *ctx, struct hth_save_id save)
{
    struct blob *next;

    for (struct blob *b = ctx->blobs->first; b; b = next) {
        next = b->next;
        if (b->id.kind != HTH_BLOB_PLAN && hth_save_cmp(b->id.save, save) == 0)
            blob_forget(b);
    }
}

void hth_blobs_forget_if(struct hth_ctx *ctx,
        int (*over)(const void *self, struct hth_save_id save), const void *self)
{
    struct blob *next;

    for (struct blob *b = ctx->blobs->first; b; b = next) {
        next = b->next;
        if ((b->id.kind == HTH_BLOB_MANIFEST || b->id.kind == HTH_BLOB_RAW) &&
                over(self, b->id.save))
            blob_forget(b);
    }
}

void hth_blobs_join(struct hth_ctx *ctx)
{
    while (ctx->blobs->first)
        blob_forget(ctx->blobs->first);
}

void hth_blobs_peer_down(struct hth_ctx *ctx, uint32_t node)
{
    for (struct blob *b = ctx->blobs->first; b; b = b->next) {
        for (struct reader *r = b->readers; r; r = r->next)
            if (r->node == node)
                hth_blob_revoke(b, r);
        if (b->source == node)
            b->source = HTH_NODE_NONE; /* the parent may have it by now */
        if (b->state == ASKING)
            b->due_ms = hth_now_ms(&ctx->clock);
    }
}

static int reader_is_lost(const struct hth_ctx *ctx, uint32_t node)
{
    return ctx->lost && ctx->lost[node];
}

void hth_blobs_tick(struct hth_ctx *ctx)
{
    uint64_t now = hth_now_ms(&ctx->clock), children = hth_blobs_family(ctx);
    int news = children != ctx->blobs->family;

    ctx->blobs->family = children;
    for (struct blob *b = ctx->blobs->first; b && ctx->epoch; b = b->next) {
        if (news)
            hth_blob_serve_children(b);
        if (b->state == HERE) {
            for (struct reader *r = b->readers; r; r = r->next)
                if (!r->done && !reader_is_lost(ctx, r->node) && now >= r->due_ms)
                    hth_blob_offer(b, r);
        } else if (!b->busy && now >= b->due_ms) {
            if (b->state == PULLING)
                hth_blob_step(b);
            else
                hth_blob_ask(b);
        }
    }
}

uint64_t hth_blobs_due_ms(const struct hth_ctx *ctx)
{
    uint64_t due = HTH_NEVER;

    if (ctx->blobs->first && hth_blobs_family(ctx) != ctx->blobs->family)
        return hth_now_ms(&ctx->clock);
    for (const struct blob *b = ctx->blobs->first; b; b = b->next) {
        if (b->state != HERE && !b->busy && b->due_ms < due)
            due = b->due_ms;
        for (const struct reader *r = b->readers; r && b->state == HERE; r = r->next)
            if (!r->done && !reader_is_lost(ctx, r->node) && r->due_ms < due)
                due = r->due_ms;
    }
    return due;
}

void hth_blobs_close(struct hth_ctx *ctx)
{
    if (!ctx->blobs)
        return;
    hth_blob_list_free(&ctx->blobs->first);
    hth_blob_list_free(&ctx->blobs->dying);
    free(ctx->blobs);
    ctx->blobs = NULL;
}
