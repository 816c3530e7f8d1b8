/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes that get a blob from this one: its children, and nodes that requested it. Each has a
 * grant of its own, and is offered the blob every retry until it has it.
 */
#include "blob_parts.h"

#include "tree.h"
#include <stdlib.h>

#define BLOB_LEN (ID_LEN + 48u)

/* The reader does not need its grant any more, or the bytes and their region go away. */
void hth_blob_revoke(struct blob *b, struct reader *r)
{
    if (r->granted)
        hth_session_ungrant(b->ctx->session, &r->grant);
    r->granted = 0;
}

void hth_blob_readers_free(struct blob *b)
{
    struct reader *r;

    while ((r = b->readers)) {
        b->readers = r->next;
        hth_blob_revoke(b, r);
        free(r);
    }
}

static struct reader *blob_reader(struct blob *b, uint32_t node)
{
    struct reader **at = &b->readers, *r;

    while (*at && (*at)->node != node)
        at = &(*at)->next;
    if (*at)
        return *at;
    r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->node = node;
    *at = r;
    return r;
}

static void blob_give_ready(struct blob *b, int code, const struct hearth_error *err)
{
    if (code) {
        hth_blob_failed(b, err); /* last: may forget it */
        return;
    }
    for (struct reader *r = b->readers; r; r = r->next)
        if (!r->done && !(b->ctx->lost && b->ctx->lost[r->node]))
            hth_blob_offer(b, r);
}

/* Sends BLOB to one reader, with a grant if there is a connection. If the bytes are not registered
 * yet, BLOB is sent when they are. */
void hth_blob_offer(struct blob *b, struct reader *r)
{
    unsigned char body[BLOB_LEN + HTH_DESC_MAX];
    struct hth_writer w = { .at = body, .cap = sizeof(body) };
    struct hth_ctx *ctx = b->ctx;

    r->due_ms = hth_now_ms(&ctx->clock) + ctx->opts.retry_ms;
    if (hth_blob_register(b, blob_give_ready))
        return;
    if (!r->granted && b->len)
        r->granted =
                !hth_session_grant(ctx->session, r->node, b->region, 0, b->len, &r->grant, NULL);
    hth_blob_id_write(&w, &b->id);
    hth_write64(&w, b->len);
    hth_write(&w, b->digest, HTH_DIGEST);
    hth_write32(&w, r->granted ? r->grant.desc_len : 0);
    hth_write32(&w, 0);
    if (r->granted)
        hth_write(&w, r->grant.desc, r->grant.desc_len);
    (void)hth_session_send(ctx->session, r->node, HTH_MSG_BLOB, body, w.len);
}

/* Offers the blob to children that have had no offer yet: all at the beginning, new ones after a
 * loss below this node. */
void hth_blob_serve_children(struct blob *b)
{
    uint32_t child[4 * HTH_TREE_DEGREE];
    uint32_t cap = sizeof(child) / sizeof(*child), n;

    if (!b->give_on || b->state != HERE || !b->ctx->epoch)
        return;
    n = hth_tree_children(b->ctx, b->ctx->epoch->self, child, cap);
    for (uint32_t i = 0; i < n && i < cap; i++) {
        struct reader *r = blob_reader(b, child[i]);

        if (r && !r->done && !r->due_ms)
            hth_blob_offer(b, r);
    }
}

/* A number that changes with the set of this node's children. */
uint64_t hth_blobs_family(const struct hth_ctx *ctx)
{
    uint32_t child[4 * HTH_TREE_DEGREE];
    uint32_t cap = sizeof(child) / sizeof(*child), n;
    uint64_t sum = 0;

    n = ctx->epoch ? hth_tree_children(ctx, ctx->epoch->self, child, cap) : 0;
    for (uint32_t i = 0; i < n && i < cap; i++) {
        sum ^= child[i] + UINT64_C(1);
        hth_splitmix64(&sum);
    }
    return sum;
}

/* A blob of the manifest of a save that this node holds. */
static struct blob *blob_from_held(struct hth_ctx *ctx, const struct hth_blob_id *id)
{
    const struct hth_held_save *s = hth_holdings_find(ctx, id->save);
    struct blob *b =
            s && s->has_manifest && s->manifest_len <= BLOB_MAX ? hth_blob_get(ctx, id) : NULL;

    if (!b)
        return NULL;
    b->buf = hth_buf_get(s->manifest_buf);
    b->bytes = b->buf->at;
    b->len = b->at = s->manifest_len;
    memcpy(b->digest, b->buf->digest, HTH_DIGEST);
    b->state = HERE;
    return b;
}

/* A blob of a raw object that this node holds, from its file. */
static struct blob *blob_from_store(struct hth_ctx *ctx, const struct hth_blob_id *id)
{
    const struct hth_held *h = hth_blob_held(ctx, id);
    struct hth_store *store = ctx->store;
    struct hth_raw *raw = NULL;
    struct blob *b = NULL;

    if (h && !store->ops->raw_open(store, id->save, h->object.name, &raw, NULL) &&
            raw->len == h->object.data_len)
        b = hth_blob_get(ctx, id);
    if (!b) {
        store->ops->raw_close(store, raw);
        return NULL;
    }
    b->raw = raw;
    b->bytes = raw->base;
    b->len = b->at = raw->len;
    memcpy(b->digest, h->object.digest, HTH_DIGEST);
    b->state = HERE;
    return b;
}

/* `from` requests the blob, so it has no grant that it can use, even if the grant that this node
 * gave looks good. */
void hth_blob_wanted(struct hth_ctx *ctx, uint32_t from, const struct hth_blob_id *id)
{
    struct blob *b = hth_blob_look(ctx, id);
    struct reader *r;

    if (!b)
        b = id->kind == HTH_BLOB_MANIFEST ? blob_from_held(ctx, id) : blob_from_store(ctx, id);
    r = b ? blob_reader(b, from) : NULL;
    if (!r)
        return; /* the reader asks again */
    hth_blob_revoke(b, r);
    r->done = 0;
    if (b->state == HERE)
        hth_blob_offer(b, r);
}

void hth_blob_taken(struct hth_ctx *ctx, uint32_t from, const struct hth_blob_id *id)
{
    struct blob *b = hth_blob_look(ctx, id);
    struct reader *r = b ? b->readers : NULL;

    while (r && r->node != from)
        r = r->next;
    if (!r)
        return;
    hth_blob_revoke(b, r);
    r->done = 1;
}
