/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The holder's side of an object that its rank still writes. Its first chunks are complete, and the
 * nodes that will hold a copy may pull them before the object is offered:
 *
 *   registered ──WRITING {chunks, grant}──► repeated, with more chunks ──NAK──► the grant ends
 *        └──────── given up: WRITING {0}, repeated ─────────────────────────────────┘
 *
 * A receiver counts nothing of that before it has the object's table: OFFER and END come as they do
 * without WRITING (offer.c). Each grant leases the slot, so that no other object lies in it while a
 * node may still read.
 */
#include "transfer_parts.h"

#include "core/format/table.h"

#include <stdlib.h>
#include <string.h>

/* A node that receives nothing for LEASE_MS gives its slot back and answers. */
#define SILENT_MS (LEASE_MS + RENEW_MS)

struct writing { /* one object and one node */
    struct hth_ctx *ctx;
    struct hth_save_id save;
    struct hth_object object; /* data_len: bytes of the file that the rank has asked for */
    uint32_t node, chunks;
    struct hth_slot *slot; /* leased while granted */
    struct hth_reg_wait wait;
    struct hth_grant grant;
    int granted;
    int over; /* nothing more is sent; the node may still read */
    uint64_t due_ms;
    uint64_t until_ms; /* over: the node's silence by then means that it does not read */
    struct writing *next;
};

static struct writing **writing_place(
        struct hth_ctx *ctx, struct hth_save_id save, uint64_t object, uint32_t node)
{
    struct writing **at = &ctx->transfer->writings;

    while (*at && ((*at)->node != node || (*at)->object.id != object ||
                          hth_save_cmp((*at)->save, save) != 0))
        at = &(*at)->next;
    return at;
}

/* used: the node may still read, so the grant is revoked. */
static void writing_end(struct writing **at, int used)
{
    struct writing *w = *at;

    *at = w->next;
    hth_reg_leave(&w->wait);
    if (w->granted) {
        if (used)
            hth_session_revoke(w->ctx->session, &w->grant);
        else
            hth_session_ungrant(w->ctx->session, &w->grant);
        w->ctx->store->ops->unlease(w->ctx->store, w->slot);
    }
    free(w);
}

static void writing_say(struct writing *w, uint32_t chunks)
{
    struct hth_wire m = { .save = w->save, .object = w->object, .count = chunks };

    if (chunks)
        m.grant = w->grant;
    hth_wire_say(w->ctx, w->node, HTH_MSG_WRITING, &m);
    w->due_ms = hth_now_ms(&w->ctx->clock) + 4 * (uint64_t)w->ctx->opts.retry_ms;
}

/* Where this engine serves the pulls, the grant ends at once. Otherwise the node's network card may
 * be reading: grant and lease stay until the NAK, for which WRITING {0} is repeated. Returns the
 * next place. */
static struct writing **writing_give_up(struct writing **at)
{
    struct writing *w = *at;

    if (w->over)
        return &w->next;
    if (w->granted)
        writing_say(w, 0);
    if (!w->granted || hth_session_revokes(w->ctx->session)) {
        writing_end(at, 1);
        return at;
    }
    w->over = 1;
    w->until_ms = hth_now_ms(&w->ctx->clock) + SILENT_MS;
    return &w->next;
}

static void writing_ready(struct hth_reg_wait *wait, struct hth_region *region, int code,
        const struct hearth_error *err);

/* 0: it was sent, or will be once the memory is registered. */
static int writing_go_on(struct writing *w)
{
    struct hth_region *region;
    int rc;

    if (hth_session_version(w->ctx->session, w->node) < HTH_VERSION_WRITING)
        return HEARTH_EUNSUPPORTED; /* or there is no connection */
    if (w->granted && hth_session_stands(w->ctx->session, &w->grant)) {
        writing_say(w, w->chunks);
        return HEARTH_OK;
    }
    if (w->granted)
        return HEARTH_EPEER; /* the object is pulled once it is offered */
    w->wait.ready = writing_ready;
    rc = hth_slot_region(w->ctx, w->slot, &w->wait, &region, NULL);
    if (rc)
        return w->wait.reg ? HEARTH_OK : rc;
    rc = hth_session_grant(
            w->ctx->session, w->node, region, 0, w->object.data_len, &w->grant, NULL);
    if (rc)
        return rc;
    w->granted = 1;
    w->ctx->store->ops->lease(w->ctx->store, w->slot);
    writing_say(w, w->chunks);
    return HEARTH_OK;
}

static void writing_ready(struct hth_reg_wait *wait, struct hth_region *region, int code,
        const struct hearth_error *err)
{
    struct writing *w = hth_owner_of(struct writing, wait, wait);

    (void)region, (void)err;
    if (code || writing_go_on(w))
        writing_end(writing_place(w->ctx, w->save, w->object.id, w->node), 0);
}

void hth_transfer_writing(struct hth_ctx *ctx, struct hth_save_id save,
        const struct hth_object *object, struct hth_slot *slot, uint32_t chunks, uint32_t node)
{
    struct writing **at, *w;

    if (!ctx->epoch || !chunks)
        return;
    at = writing_place(ctx, save, object->id, node);
    w = *at;
    if (w && (w->over || w->slot != slot || w->chunks >= chunks))
        return;
    if (!w) {
        if (!(w = *at = calloc(1, sizeof(*w))))
            return;
        *w = (struct writing){
            .ctx = ctx, .save = save, .object = *object, .node = node, .slot = slot
        };
        w->object.table_len = HTH_TABLE_HEAD; /* it is not known yet, and not 0 in a message */
    }
    w->chunks = chunks;
    if (!w->wait.reg && writing_go_on(w))
        writing_end(at, 0);
}

void hth_transfer_not_written(struct hth_ctx *ctx, struct hth_save_id save, uint64_t object)
{
    struct writing **at = &ctx->transfer->writings;

    while (*at) {
        struct writing *w = *at;

        if (w->object.id != object || hth_save_cmp(w->save, save) != 0)
            at = &w->next;
        else
            at = writing_give_up(at);
    }
}

void hth_writing_unused(
        struct hth_ctx *ctx, uint32_t from, struct hth_save_id save, uint64_t object)
{
    struct writing **at = writing_place(ctx, save, object, from);

    if (!*at || !(*at)->granted) /* the answer is to an earlier message */
        return;
    if ((*at)->over)
        writing_end(at, 0);
    else /* a WRITING that was under way meanwhile may have begun it anew */
        (void)writing_give_up(at);
}

void hth_writings_forget(struct hth_ctx *ctx, const struct hth_save_id *save)
{
    struct writing **at = &ctx->transfer->writings;

    while (*at) {
        if (save && hth_save_cmp((*at)->save, *save) != 0)
            at = &(*at)->next;
        else if (save)
            at = writing_give_up(at);
        else
            writing_end(at, 1);
    }
}

void hth_writings_peer_down(struct hth_ctx *ctx, uint32_t node)
{
    struct writing **at = &ctx->transfer->writings;

    while (*at) {
        if ((*at)->node == node)
            writing_end(at, 1);
        else
            at = &(*at)->next;
    }
}

/* 1: nothing is left to send to the node. */
static int writing_is_finished(struct writing *w, uint64_t now)
{
    if (!w->over)
        return writing_go_on(w) != HEARTH_OK;
    if (now >= w->until_ms || !hth_session_stands(w->ctx->session, &w->grant))
        return 1;
    writing_say(w, 0);
    return 0;
}

void hth_writings_tick(struct hth_ctx *ctx, uint64_t now)
{
    struct writing **at = &ctx->transfer->writings;

    while (*at) {
        struct writing *w = *at;

        if (now >= w->due_ms && !w->wait.reg && writing_is_finished(w, now))
            writing_end(at, 1);
        else
            at = &w->next;
    }
}

uint64_t hth_writings_due_ms(const struct hth_ctx *ctx)
{
    uint64_t due = HTH_NEVER;

    for (const struct writing *w = ctx->transfer->writings; w; w = w->next)
        if (!w->wait.reg && w->due_ms < due)
            due = w->due_ms;
    return due;
}

void hth_writings_close(struct hth_ctx *ctx)
{
    struct writing *w;

    while ((w = ctx->transfer->writings)) {
        ctx->transfer->writings = w->next;
        hth_reg_leave(&w->wait);
        free(w);
    }
}
