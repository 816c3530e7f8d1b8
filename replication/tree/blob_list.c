/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blobs that this node knows, in the order in which they became known: each by its id, with its
 * bytes. The names of blobs are written and read here too.
 */
#include "blob_parts.h"

#include <stdlib.h>

#define BLOBS_MAX 4096u

static int blob_id_same(const struct hth_blob_id *a, const struct hth_blob_id *b)
{
    return a->kind == b->kind && a->object == b->object && hth_save_cmp(a->save, b->save) == 0;
}

struct blob *hth_blob_look(struct hth_ctx *ctx, const struct hth_blob_id *id)
{
    struct blob *b = ctx->blobs->first;

    while (b && !blob_id_same(&b->id, id))
        b = b->next;
    return b;
}

struct blob *hth_blob_get(struct hth_ctx *ctx, const struct hth_blob_id *id)
{
    struct blob **at = &ctx->blobs->first, *b = hth_blob_look(ctx, id);

    if (b)
        return b;
    if (ctx->blobs->count >= BLOBS_MAX || !(b = calloc(1, sizeof(*b))))
        return NULL;
    b->id = *id;
    b->ctx = ctx;
    b->source = HTH_NODE_NONE;
    b->due_ms = HTH_NEVER;
    while (*at)
        at = &(*at)->next;
    *at = b;
    ctx->blobs->count++;
    return b;
}

static void blob_unlist(struct blob **list, const struct blob *b)
{
    while (*list && *list != b)
        list = &(*list)->next;
    if (*list)
        *list = b->next;
}

static void blob_bytes_end(struct blob *b)
{
    if (b->raw)
        b->ctx->store->ops->raw_close(b->ctx->store, b->raw);
    hth_buf_put(b->buf);
    b->raw = NULL;
    b->buf = NULL;
    b->bytes = NULL;
}

/* Reports the failure to the owner of the blobs, which may give up the save or plan of the blob. */
void hth_blob_failed(struct blob *b, const struct hearth_error *err)
{
    struct hth_blob_events *events = &b->ctx->blobs->events;

    events->failed(events->self, &b->id, err);
}

static void blob_registered(struct hth_reg_wait *wait, struct hth_region *region, int code,
        const struct hearth_error *err)
{
    struct blob *b = hth_owner_of(struct blob, wait, wait);

    b->busy = 0;
    b->region = region;
    if (code)
        b->reg = NULL;
    if (b->forgotten)
        hth_blob_free(b);
    else
        b->ready(b, code, err);
}

int hth_blob_register(struct blob *b, hth_blob_ready_fn *ready)
{
    if (b->region || !b->len)
        return HEARTH_OK;
    if (b->reg)
        return HEARTH_EBUSY;
    b->ready = ready;
    b->wait.ready = blob_registered;
    b->reg = hth_reg_begin(b->ctx, b->bytes, b->len, &b->wait);
    b->busy = b->reg != NULL;
    return b->reg ? HEARTH_EBUSY : HEARTH_ENOMEM;
}

int hth_blob_empty(struct blob *b)
{
    if (b->reg && hth_reg_drop(b->reg))
        return HEARTH_EBUSY;
    b->reg = NULL;
    b->region = NULL;
    blob_bytes_end(b);
    b->at = 0;
    return HEARTH_OK;
}

static void blob_gone(void *self)
{
    struct blob *b = self;

    blob_unlist(&b->ctx->blobs->dying, b);
    blob_bytes_end(b);
    free(b);
}

void hth_blob_free(struct blob *b)
{
    if (b->reg)
        hth_reg_end(b->reg, blob_gone, b);
    else
        blob_gone(b);
}

void hth_blob_bury(struct blob *b)
{
    struct hth_blobs *blobs = b->ctx->blobs;

    blob_unlist(&blobs->first, b);
    blobs->count--;
    b->forgotten = 1;
    b->next = blobs->dying;
    blobs->dying = b;
    if (!b->busy)
        hth_blob_free(b);
}

void hth_blob_list_free(struct blob **list)
{
    struct blob *b;
    struct reader *r;

    while ((b = *list)) {
        *list = b->next;
        while ((r = b->readers)) {
            b->readers = r->next;
            free(r);
        }
        blob_bytes_end(b);
        free(b);
    }
}

const struct hth_object *hth_blob_named(struct hth_ctx *ctx, const struct hth_blob_id *id)
{
    const struct hth_held_save *s = hth_holdings_find(ctx, id->save);

    return s && s->has_manifest ? hth_manifest_find(&s->manifest, id->object) : NULL;
}

struct hth_held *hth_blob_held(struct hth_ctx *ctx, const struct hth_blob_id *id)
{
    struct hth_held_save *s = hth_holdings_find(ctx, id->save);
    struct hth_held *h =
            s && id->kind == HTH_BLOB_RAW && !s->removed ? hth_held_find(s, id->object) : NULL;

    return h && h->object.kind == HTH_OBJECT_RAW && h->state == HTH_HELD_SEALED ? h : NULL;
}

/* ---- Ids on the wire ------------------------------------------------------------------------- */

void hth_blob_id_write(struct hth_writer *w, const struct hth_blob_id *id)
{
    hth_write32(w, id->kind);
    hth_write32(w, 0);
    hth_write_save(w, id->save);
    hth_write64(w, id->object);
}

struct hth_blob_id hth_blob_id_read(struct hth_reader *r)
{
    struct hth_blob_id id;

    id.kind = (enum hth_blob_kind)hth_read32(r);
    hth_read_zeros(r, 4);
    id.save = hth_read_save(r);
    id.object = hth_read64(r);
    if (id.kind < HTH_BLOB_MANIFEST || id.kind > HTH_BLOB_MAP)
        r->bad = 1;
    return id;
}

void hth_blob_say(struct hth_ctx *ctx, const struct hth_blob_id *id, uint32_t node, uint16_t type)
{
    unsigned char body[ID_LEN];
    struct hth_writer w = { .at = body, .cap = sizeof(body) };

    hth_blob_id_write(&w, id);
    (void)hth_session_send(ctx->session, node, type, body, w.len);
}
