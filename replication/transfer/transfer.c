/* SPDX-License-Identifier: Apache-2.0 */
/* The front of the transfers: messages to the side they are for, time, joining and closing. */
#include "transfer_parts.h"

#include <stdlib.h>

int hth_transfer_open(struct hth_ctx *ctx, const struct hth_transfer_events *events,
        struct hth_transfer **out, struct hearth_error *err)
{
    struct hth_transfer *t = calloc(1, sizeof(*t));

    (void)ctx;
    if (!t)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the transfers");
    t->events = *events;
    *out = t;
    return HEARTH_OK;
}

void hth_transfer_pulled(struct hth_ctx *ctx, uint64_t *out_total, uint64_t *out_per_node)
{
    const struct hth_tally *tally = &ctx->transfer->tally;

    if (out_total)
        *out_total = tally->total;
    if (out_per_node && ctx->epoch)
        hth_tally_read(tally, out_per_node, ctx->epoch->nodes);
}

uint64_t hth_transfer_behind(const struct hth_ctx *ctx)
{
    uint64_t bytes = 0;

    for (const struct hth_fetch *f = ctx->transfer->fetches; f; f = f->next) {
        uint64_t left = f->left * HTH_CHUNK;

        if (f->whole && hth_fetch_runs(f))
            bytes += left < f->object.data_len ? left : f->object.data_len;
    }
    return bytes;
}

const struct hth_tally_node *hth_transfer_peers(const struct hth_ctx *ctx, uint32_t *out_count)
{
    *out_count = ctx->transfer->tally.nodes;
    return ctx->transfer->tally.node;
}

uint64_t hth_transfer_since_ms(const struct hth_ctx *ctx)
{
    return ctx->transfer->tally.since_ms;
}

static void transfer_on_bad(struct hth_ctx *ctx, uint32_t from, const struct hth_wire *w)
{
    const struct hth_transfer_events *events = &ctx->transfer->events;

    if (events->bad_copy)
        events->bad_copy(events->self, from, w->save, w->id, w->chunk);
}

static void slices_take(struct hth_ctx *ctx, uint32_t from, const struct hth_slice_said *said)
{
    for (struct hth_fetch *f = ctx->transfer->fetches; f; f = f->next) {
        struct source *s = f->slice && hth_fetch_runs(f) && f->object.id == said->w.id
                                   ? hth_source_find(f, from)
                                   : NULL;

        if (s && hth_save_cmp(f->save, said->w.save) == 0)
            hth_slice_said(f, s, said);
    }
}

static int slices_message(
        struct hth_ctx *ctx, uint32_t from, uint16_t type, const unsigned char *body, size_t len)
{
    struct hth_slices in;
    struct hth_slice_said said;

    if (hth_slices_decode(&in, type, body, len))
        return HEARTH_EPROTO;
    while (hth_slices_next(&in, &said)) {
        if (type == HTH_MSG_SLICES)
            slices_take(ctx, from, &said);
        else if (hth_sum_begin(ctx, from, &said.w, 1)) {
            said.w.chunk = HTH_SLICE_DENIED;
            hth_slices_say(ctx, from, &said.w, NULL);
        }
    }
    return in.bad || in.len ? HEARTH_EPROTO : HEARTH_OK;
}

/* A NAK goes to the side whose WANT or OFFER it answers. */
int hth_transfer_message(
        struct hth_ctx *ctx, uint32_t from, uint16_t type, const unsigned char *body, size_t len)
{
    struct hth_wire w;
    int many = type == HTH_MSG_SLICES_WANT || type == HTH_MSG_SLICES;

    if (!many && (type < HTH_MSG_OFFER || type > HTH_MSG_BAD) && type != HTH_MSG_SUM_WANT &&
            type != HTH_MSG_SUM && type != HTH_MSG_WRITING)
        return 0;
    if (!ctx->epoch || from >= ctx->epoch->nodes)
        return 1;
    if (many ? slices_message(ctx, from, type, body, len) : hth_wire_decode(&w, type, body, len)) {
        hth_say(&ctx->log, HEARTH_LOG_DEBUG, "transfer-nonsense",
                "node %" PRIu32 " sent a message of type %u and %zu bytes that is none", from, type,
                len);
        return 1;
    }
    if (type == HTH_MSG_BAD) {
        transfer_on_bad(ctx, from, &w);
        return 1;
    }
    if (type == HTH_MSG_SUM_WANT) {
        (void)hth_sum_begin(ctx, from, &w, 0);
        return 1;
    }
    if (many)
        ; /* done above, each slice by itself */
    else if (type == HTH_MSG_WRITING)
        hth_early_message(ctx, from, &w);
    else if (type == HTH_MSG_NAK && w.of == HTH_NAK_WRITING)
        hth_writing_unused(ctx, from, w.save, w.id);
    else if (type == HTH_MSG_OFFER || type == HTH_MSG_SUM || type == HTH_MSG_READY ||
             type == HTH_MSG_END || (type == HTH_MSG_NAK && w.of == HTH_NAK_WANT))
        hth_fetch_message(ctx, from, type, &w);
    else
        hth_offer_message(ctx, from, type, &w);
    hth_pump(ctx);
    hth_fetches_settle(ctx);
    return 1;
}

void hth_transfer_peer_down(struct hth_ctx *ctx, uint32_t node)
{
    hth_offers_peer_down(ctx, node);
    hth_writings_peer_down(ctx, node);
    hth_earlies_peer_down(ctx, node);
    for (struct hth_fetch *f = ctx->transfer->fetches; f; f = f->next)
        for (uint32_t i = 0; i < f->sources; i++)
            if (f->source[i].node == node)
                hth_source_out(f, &f->source[i], HEARTH_EPEER, "the node is gone");
    hth_pump(ctx);
    hth_fetches_settle(ctx);
}

void hth_transfer_peer_unreachable(struct hth_ctx *ctx, uint32_t node)
{
    hth_offers_peer_unreachable(ctx, node);
    hth_earlies_peer_down(ctx, node);
    for (struct hth_fetch *f = ctx->transfer->fetches; f; f = f->next) {
        struct source *s =
                f->whole && f->class < HTH_FETCH_RECOVERY ? hth_source_find(f, node) : NULL;

        if (!s)
            continue;
        hth_source_out(f, s, HEARTH_EPEER, "by the map it cannot be reached");
        f->stirred = 1; /* the next tick checks which sources are left */
    }
}

void hth_transfer_join(struct hth_ctx *ctx)
{
    struct hth_transfer *t = ctx->transfer;

    hth_offers_forget(ctx, NULL);
    hth_writings_forget(ctx, NULL);
    hth_earlies_forget(ctx, NULL);
    hth_sums_join(ctx);
    hth_slices_forget(ctx);
    hth_fetches_stop(ctx, NULL, "its epoch is over");
    for (struct hth_fetch *f = t->fetches; f; f = f->next)
        for (uint32_t i = 0; i < f->sources; i++)
            f->source[i].asked = 0; /* in the new epoch the node numbers mean other nodes */
    hth_tally_reset(&t->tally, hth_now_ms(&ctx->clock));
}

void hth_transfer_forget(struct hth_ctx *ctx, struct hth_save_id save)
{
    hth_offers_forget(ctx, &save);
    hth_writings_forget(ctx, &save);
    hth_earlies_forget(ctx, &save);
    hth_fetches_stop(ctx, &save, "its save is freed");
}

/* Offers that have waited for pulls of early.c. */
static void transfer_take_offers(struct hth_ctx *ctx)
{
    struct hth_wire offer;
    uint32_t from;

    ctx->transfer->stirred = 0;
    while (hth_early_offer(ctx, &from, &offer))
        if (ctx->epoch && offer.save.epoch == ctx->epoch->epoch &&
                offer.save.nonce == ctx->epoch->nonce)
            hth_fetch_message(ctx, from, HTH_MSG_OFFER, &offer);
}

void hth_transfer_tick(struct hth_ctx *ctx)
{
    uint64_t now = hth_now_ms(&ctx->clock);

    hth_regs_tick(ctx);
    hth_offers_tick(ctx, now);
    hth_writings_tick(ctx, now);
    hth_earlies_tick(ctx, now);
    transfer_take_offers(ctx);
    hth_fetches_tick(ctx, now);
    hth_scratches_tick(ctx, now);
    hth_fetches_room(ctx);
    hth_slices_ask(ctx);
    hth_slices_send(ctx);
    hth_pump(ctx);
    hth_fetches_settle(ctx);
}

uint64_t hth_transfer_due_ms(const struct hth_ctx *ctx)
{
    uint64_t due = hth_offers_due_ms(ctx), fetches = hth_fetches_due_ms(ctx);
    uint64_t regs = hth_regs_due_ms(ctx), scratches = hth_scratches_due_ms(ctx);
    uint64_t writings = hth_writings_due_ms(ctx), early = hth_earlies_due_ms(ctx);

    if (ctx->transfer->slices_queued || ctx->transfer->slices_said)
        return hth_now_ms(&ctx->clock);
    due = fetches < due ? fetches : due;
    due = scratches < due ? scratches : due;
    due = writings < due ? writings : due;
    due = early < due ? early : due;
    return regs < due ? regs : due;
}

void hth_transfer_close(struct hth_ctx *ctx)
{
    struct hth_transfer *t = ctx->transfer;

    if (!t)
        return;
    hth_offers_close(ctx);
    hth_writings_close(ctx);
    hth_earlies_close(ctx);
    hth_sums_close(ctx);
    hth_slices_forget(ctx);
    hth_fetches_close(ctx);
    hth_scratches_close(ctx);
    hth_tally_fini(&t->tally);
    free(t);
    ctx->transfer = NULL;
}
