/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalogue of what is here: saves newest first, their objects by id. It is small (a save has a
 * few objects per rank of the node), so lists do. A work on an object pins its list entries. An
 * entry that is dropped meanwhile leaves the lists at once, and is freed with the last pin.
 */
#include "holdings_parts.h"
#include "region.h"
#include "spans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hth_holdings_open(struct hth_ctx *ctx, struct hth_holdings **out, struct hearth_error *err)
{
    struct hth_holdings *h = calloc(1, sizeof(*h));

    (void)ctx;
    if (!h)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the catalogue of saves");
    *out = h;
    return HEARTH_OK;
}

struct hth_held_save *hth_holdings_first(struct hth_ctx *ctx)
{
    return ctx->holdings->first;
}

struct hth_held_save *hth_holdings_find(struct hth_ctx *ctx, struct hth_save_id save)
{
    struct hth_held_save *s = ctx->holdings->first;

    while (s && hth_save_cmp(s->id, save) != 0)
        s = s->next;
    return s;
}

struct hth_held_save *hth_holdings_get(struct hth_ctx *ctx, struct hth_save_id save)
{
    struct hth_held_save **at = &ctx->holdings->first, *s = hth_holdings_find(ctx, save);

    if (s)
        return s;
    s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->id = save;
    while (*at && hth_save_cmp((*at)->id, save) > 0)
        at = &(*at)->next;
    s->next = *at;
    *at = s;
    return s;
}

struct hth_held *hth_held_find(struct hth_held_save *save, uint64_t object)
{
    struct hth_held *h = save->held;

    while (h && h->object.id != object)
        h = h->next;
    return h;
}

struct hth_held *hth_held_add(struct hth_held_save *save, const struct hth_object *object,
        enum hth_held_state state, struct hth_slot *slot)
{
    struct hth_held **at = &save->held, *h = calloc(1, sizeof(*h));

    if (!h)
        return NULL;
    h->object = *object;
    h->state = state;
    h->slot = slot;
    while (*at && (*at)->object.id < object->id)
        at = &(*at)->next;
    h->next = *at;
    *at = h;
    return h;
}

void hth_record_manifest(struct hth_save_id save, char out[HTH_MANIFEST_NAME])
{
    hth_save_text(save, out);
    memcpy(out + HTH_SAVE_TEXT - 1, ".manifest", sizeof(".manifest"));
}

/* *m is decoded of buf, and taken over, also on failure. */
static int held_take_manifest(struct hth_held_save *save, struct hth_buf *buf,
        struct hth_manifest *m, struct hearth_error *err)
{
    int rc;

    if (hth_save_cmp(m->save, save->id) != 0) {
        rc = hth_fail(err, HEARTH_EINVAL, 0, "the manifest of " HTH_SAVE " is that of " HTH_SAVE,
                HTH_SAVE_ARGS(save->id), HTH_SAVE_ARGS(m->save));
        hth_manifest_fini(m);
        return rc;
    }
    save->manifest = *m;
    save->has_manifest = 1;
    save->manifest_buf = hth_buf_get(buf);
    save->manifest_bytes = buf->at;
    save->manifest_len = buf->len;
    return HEARTH_OK;
}

int hth_held_know_manifest(
        struct hth_held_save *save, struct hth_buf *buf, struct hearth_error *err)
{
    struct hth_manifest m;
    int rc = hth_manifest_decode(&m, buf->at, buf->len, err);

    return rc ? rc : held_take_manifest(save, buf, &m, err);
}

void hth_held_forget_manifest(struct hth_held_save *save)
{
    if (save->has_manifest)
        hth_manifest_fini(&save->manifest);
    hth_buf_put(save->manifest_buf);
    save->has_manifest = 0;
    save->manifest_buf = NULL;
    save->manifest_bytes = NULL;
    save->manifest_len = 0;
}

int hth_held_write_manifest(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_buf *buf,
        struct hth_manifest *m, struct hearth_error *err)
{
    char name[HTH_MANIFEST_NAME];
    int rc = held_take_manifest(save, buf, m, err);

    if (rc)
        return rc;
    hth_record_manifest(save->id, name);
    rc = ctx->store->ops->record_put(ctx->store, name, buf->at, buf->len, err);
    if (rc) /* a manifest that could not be written is not used */
        hth_held_forget_manifest(save);
    return rc;
}

int hth_held_keep_manifest(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_buf *buf,
        struct hearth_error *err)
{
    struct hth_manifest m;
    int rc;

    if (save->has_manifest)
        return HEARTH_OK;
    rc = hth_manifest_decode(&m, buf->at, buf->len, err);
    return rc ? rc : hth_held_write_manifest(ctx, save, buf, &m, err);
}

int hth_held_set_manifest(struct hth_ctx *ctx, struct hth_held_save *save, unsigned char *bytes,
        size_t len, struct hearth_error *err)
{
    struct hth_buf *buf = hth_buf_of(bytes, len);
    int rc = buf ? hth_held_keep_manifest(ctx, save, buf, err)
                 : hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a manifest of %zu bytes", len);

    hth_buf_put(buf);
    free(bytes);
    return rc;
}

/* The store may unmap the slot now, so its region ends: no peer pulls from it any more. */
void hth_slot_condemn(struct hth_ctx *ctx, struct hth_slot *slot, const char *why)
{
    hth_slot_region_end(ctx, slot);
    ctx->store->ops->condemn(ctx->store, slot, why);
}

static void held_free(struct hth_held *held)
{
    hth_spans_forget(held);
    free(held);
}

static void held_unlink(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held)
{
    struct hth_held **at = &save->held;

    if (held->old)
        ctx->store->ops->give(ctx->store, held->old);
    held->old = NULL;
    while (*at && *at != held)
        at = &(*at)->next;
    if (*at)
        *at = held->next;
    held->next = NULL;
    held->slot = NULL;
    held->dropped = 1;
    if (!held->users)
        held_free(held);
}

void hth_held_drop(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held)
{
    /* it may be a file of a foreign container that is unlinked now */
    if (held->slot && !held->theirs && hth_save_foreign(save->id))
        hth_slot_region_end(ctx, held->slot);
    if (held->slot && !held->theirs)
        ctx->store->ops->give(ctx->store, held->slot);
    held_unlink(ctx, save, held);
}

void hth_found_wrong(struct hth_ctx *ctx, struct hth_save_id save, const struct hth_object *object,
        const char *what, const char *node)
{
    struct hth_wrong *w = &ctx->wrong;

    w->count++;
    w->last_ms = hth_now_ms(&ctx->clock);
    w->save = save;
    snprintf(w->text, sizeof(w->text), "%s of object '%.50s'%s%.64s", what, object->name,
            node ? ", as it came from node " : " on this node", node ? node : "");
}

void hth_held_condemn(
        struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held, const char *why)
{
    if (strcmp(why, "cut") != 0)
        hth_found_wrong(ctx, save->id, &held->object, "the copy", NULL);
    if (held->slot && !held->theirs)
        hth_slot_condemn(ctx, held->slot, why);
    held_unlink(ctx, save, held);
}

void hth_held_pin(struct hth_held_save *save, struct hth_held *held)
{
    save->users++;
    held->users++;
}

static void save_free(struct hth_held_save *save)
{
    hth_held_forget_manifest(save);
    free(save);
}

void hth_held_unpin(struct hth_held_save *save, struct hth_held *held)
{
    if (--held->users == 0 && held->dropped)
        held_free(held);
    if (--save->users == 0 && save->removed)
        save_free(save);
}

/* Drops all but the files of another program; 1: some of these files are left. */
static int save_drop_ours(struct hth_ctx *ctx, struct hth_held_save *save)
{
    struct hth_held *next;

    for (struct hth_held *h = save->held; h; h = next) {
        next = h->next;
        if (!h->theirs)
            hth_held_drop(ctx, save, h);
    }
    return save->held != NULL;
}

void hth_holdings_free_save(struct hth_ctx *ctx, struct hth_held_save *save)
{
    struct hth_held_save **at = &ctx->holdings->first;
    char name[HTH_MANIFEST_NAME];
    int left;

    if (save->removed)
        return;
    left = save_drop_ours(ctx, save);
    hth_record_manifest(save->id, name);
    ctx->store->ops->remove(ctx->store, save->id);
    ctx->store->ops->record_remove(ctx->store, name);
    if (left) {
        hth_held_forget_manifest(save);
        return;
    }
    while (*at && *at != save)
        at = &(*at)->next;
    if (*at)
        *at = save->next;
    save->removed = 1;
    if (!save->users)
        save_free(save);
}

int hth_held_same(const struct hth_ctx *ctx, const struct hth_held *held, struct hearth_error *err)
{
    const struct hth_store_ops *ops = ctx->store->ops;

    return held->theirs && held->slot && ops->same ? ops->same(ctx->store, held->slot, err)
                                                   : HEARTH_OK;
}

/* The last epoch that this node wrote down, with or without saves of it. */
static void epoch_of_record(struct hth_ctx *ctx, uint64_t *out_epoch, uint64_t *out_nonce)
{
    struct hth_epoch e;
    void *bytes;
    size_t len;

    if (ctx->store->ops->record_get(ctx->store, "epoch", &bytes, &len, NULL))
        return;
    if (!hth_epoch_decode(&e, bytes, len, NULL)) {
        *out_epoch = e.epoch;
        *out_nonce = e.nonce;
        hth_epoch_fini(&e);
    }
    free(bytes);
}

/* An epoch number above HTH_EPOCH_BELIEVED counts only if the epoch has left a save here. Without a
 * save the number may be a false claim of one member. */
static int epoch_counts(struct hth_ctx *ctx, uint64_t epoch)
{
    struct hth_held_save *s = ctx->holdings->first;

    while (s && s->id.epoch != epoch)
        s = s->next;
    return epoch <= HTH_EPOCH_BELIEVED || s;
}

static void epoch_take_higher(uint64_t *epoch, uint64_t *nonce, uint64_t other, uint64_t its_nonce)
{
    if (other > HTH_EPOCH_MOST || other < *epoch || (other == *epoch && its_nonce < *nonce))
        return;
    *epoch = other;
    *nonce = its_nonce;
}

uint64_t hth_holdings_highest_epoch(struct hth_ctx *ctx, uint64_t *random)
{
    uint64_t epoch = 0, nonce = 0, other = 0, its_nonce = 0;

    if (!ctx->epoch) /* otherwise the record is of ctx->epoch, and as large as the job */
        epoch_of_record(ctx, &other, &its_nonce);
    if (epoch_counts(ctx, other))
        epoch_take_higher(&epoch, &nonce, other, its_nonce);
    if (ctx->epoch && epoch_counts(ctx, ctx->epoch->epoch))
        epoch_take_higher(&epoch, &nonce, ctx->epoch->epoch, ctx->epoch->nonce);
    epoch_take_higher(&epoch, &nonce, ctx->keep.epoch, 0);
    epoch_take_higher(&epoch, &nonce, ctx->keep.dropped, 0);
    for (struct hth_held_save *s = ctx->holdings->first; s; s = s->next)
        epoch_take_higher(&epoch, &nonce, s->id.epoch, s->id.nonce);
    return hth_epoch_seen(epoch, nonce, random);
}

void hth_holdings_close(struct hth_ctx *ctx)
{
    struct hth_held_save *s;
    struct hth_held *h;

    if (!ctx->holdings)
        return;
    while ((s = ctx->holdings->first)) {
        ctx->holdings->first = s->next;
        while ((h = s->held)) {
            s->held = h->next;
            held_free(h);
        }
        save_free(s);
    }
    hth_regs_close(ctx);
    free(ctx->holdings);
    ctx->holdings = NULL;
}
