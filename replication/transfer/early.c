/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks of an object that a rank of another node still writes, at the receiver. They are pulled
 * into a free slot, and nothing of them counts: no other part of the engine can see them.
 *
 *   WRITING ─► slot, memory registered ─► pulls ──OFFER──► pulls end ─► the fetch takes the slot
 *                                           └─ freed, given up, silent, slot needed: slot back
 *
 * The fetch (fetch.c) then pulls the table, and compares the checksums of these chunks, which were
 * made as they came, with it. A chunk that was changed after it was pulled is pulled again.
 *
 * A save, a copy that counts, and a slot that is lent ahead come first: if they find no slot ready,
 * they take all of these slots back (hth_transfer_make_way()).
 */
#include "transfer_parts.h"

#include "core/base/crc.h"
#include "core/format/table.h"

#include <stdlib.h>
#include <string.h>

#define EARLY_PULLS 4u

struct early_pull {
    struct hth_session_pull pull;
    struct hth_work work;
    struct early *early;
    uint32_t unit;
    int busy;
};

struct early {
    struct hth_ctx *ctx;
    struct hth_save_id save;
    struct hth_object object;
    uint32_t node;
    struct hth_slot *slot;
    struct hth_region *region;
    struct hth_reg_wait wait;
    struct hth_grant grant;
    uint32_t chunks, cursor, busy; /* complete at the owner; asked for; under way */
    struct hth_early_chunks *got;
    int over;    /* the slot is given back, and leased until nothing is under way */
    int offered; /* no more pulls: `offer` is taken once nothing is under way */
    struct hth_wire offer;
    uint64_t look_ms, until_ms;
    struct early_pull pulls[EARLY_PULLS];
    struct early *next;
};

static struct early **early_place(struct hth_ctx *ctx, struct hth_save_id save, uint64_t object)
{
    struct early **at = &ctx->transfer->early;

    while (*at &&
            ((*at)->over || (*at)->object.id != object || hth_save_cmp((*at)->save, save) != 0))
        at = &(*at)->next;
    return at;
}

static void early_free(struct early *e)
{
    struct early **at = &e->ctx->transfer->early;

    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    hth_reg_leave(&e->wait);
    free(e->got);
    free(e);
}

/* Nothing is under way any more: the owner's grant is not used, and the slot is not written. */
static void early_done(struct early *e)
{
    if (e->ctx->epoch && e->save.epoch == e->ctx->epoch->epoch)
        hth_wire_nak(e->ctx, e->node, e->save, e->object.id, HTH_NAK_WRITING, HEARTH_ECANCELED, "");
    e->ctx->store->ops->unlease(e->ctx->store, e->slot);
}

/* The slot goes back at once. It is leased until nothing is under way, so the store gives it to
 * nobody before that. */
static void early_end(struct early *e)
{
    if (!e->over)
        e->ctx->store->ops->give(e->ctx->store, e->slot);
    e->over = 1;
    hth_reg_leave(&e->wait);
    if (e->busy || e->offered)
        return;
    early_done(e);
    early_free(e);
}

/* A pull or its sum has ended. The next tick, which is due at once, goes on. */
static void early_idle(struct early *e, struct early_pull *p)
{
    p->busy = 0;
    e->busy--;
    e->ctx->transfer->stirred = 1;
    if (e->over)
        early_end(e);
}

static void early_has(struct early *e, struct early_pull *p, uint32_t crc)
{
    e->got->crc[p->unit] = crc;
    e->got->here[p->unit] = 1;
    hth_tally_add(&e->ctx->transfer->tally, e->node, HTH_CHUNK);
    early_idle(e, p);
}

static void early_sum_run(struct hth_work *work)
{
    struct early_pull *p = hth_owner_of(struct early_pull, work, work);

    p->pull.crc =
            hth_crc32c(p->early->slot->base + HTH_BLOCK + (uint64_t)p->unit * HTH_CHUNK, HTH_CHUNK);
}

static void early_sum_done(struct hth_work *work)
{
    struct early_pull *p = hth_owner_of(struct early_pull, work, work);

    early_has(p->early, p, p->pull.crc);
}

static void early_pull_done(struct hth_session_pull *pull, int code)
{
    struct early_pull *p = hth_owner_of(struct early_pull, pull, pull);
    struct early *e = p->early;

    hth_tally_end(&e->ctx->transfer->tally, e->node, hth_now_ms(&e->ctx->clock));
    e->ctx->transfer->in_flight -= HTH_CHUNK;
    if (code) { /* the rest is pulled once the object is offered */
        e->chunks = 0;
        early_idle(e, p);
    } else if (pull->has_crc) {
        early_has(e, p, pull->crc);
    } else {
        p->work = (struct hth_work){ .run = early_sum_run, .done = early_sum_done };
        e->ctx->workers.submit(e->ctx->workers.self, &p->work);
    }
}

static struct early_pull *early_spare(struct early *e)
{
    for (uint32_t i = 0; i < EARLY_PULLS; i++)
        if (!e->pulls[i].busy)
            return &e->pulls[i];
    return NULL;
}

static int early_pull(struct early *e, struct early_pull *p)
{
    uint64_t at = HTH_BLOCK + (uint64_t)e->cursor * HTH_CHUNK;

    *p = (struct early_pull){ .pull = { .done = early_pull_done }, .early = e, .unit = e->cursor };
    if (hth_session_pull(
                e->ctx->session, e->node, &e->grant, at, e->region, at, HTH_CHUNK, &p->pull))
        return 0; /* the next pull that ends, or the next WRITING, begins here again */
    p->busy = 1;
    e->busy++;
    e->cursor++;
    hth_tally_begin(&e->ctx->transfer->tally, e->node, hth_now_ms(&e->ctx->clock));
    e->ctx->transfer->in_flight += HTH_CHUNK;
    return 1;
}

void hth_earlies_pump(struct hth_ctx *ctx, uint64_t budget)
{
    const struct hth_transfer *t = ctx->transfer;
    struct early_pull *p;

    for (struct early *e = t->early; e; e = e->next)
        while (!e->over && !e->offered && e->region && e->cursor < e->chunks &&
                t->in_flight + HTH_CHUNK <= budget && (p = early_spare(e)) && early_pull(e, p))
            ;
}

static void early_ready(struct hth_reg_wait *wait, struct hth_region *region, int code,
        const struct hearth_error *err)
{
    struct early *e = hth_owner_of(struct early, wait, wait);

    (void)err;
    e->region = region;
    e->ctx->transfer->stirred = 1;
    if (code)
        early_end(e);
}

static struct early *early_make(
        struct hth_ctx *ctx, uint32_t from, const struct hth_wire *w, struct hth_slot *slot)
{
    uint64_t chunks = (slot->capacity - HTH_BLOCK) / HTH_CHUNK;
    struct early *e = calloc(1, sizeof(*e));

    if (e)
        e->got = calloc(1, sizeof(*e->got) + chunks * (sizeof(e->got->crc[0]) + 1));
    if (!e || !e->got) {
        free(e);
        return NULL;
    }
    e->got->count = (uint32_t)chunks;
    e->got->here = (unsigned char *)(e->got->crc + chunks);
    e->ctx = ctx, e->save = w->save, e->object = w->object, e->node = from, e->slot = slot;
    e->look_ms = hth_now_ms(&ctx->clock);
    e->wait.ready = early_ready;
    e->next = ctx->transfer->early;
    ctx->transfer->early = e;
    return e;
}

/* A slot that is there: none is made, and none makes way, for chunks that do not count. */
static struct early *early_begin(struct hth_ctx *ctx, uint32_t from, const struct hth_wire *w)
{
    struct hth_store *store = ctx->store;
    struct hth_slot *slot;
    struct early *e;

    if (w->object.data_len <= HTH_BLOCK || !store->ops->ready(store, w->object.data_len) ||
            store->ops->take(store, w->object.data_len, &slot, NULL))
        return NULL;
    e = early_make(ctx, from, w, slot);
    if (!e) {
        store->ops->give(store, slot);
        return NULL;
    }
    store->ops->lease(store, slot);
    if (!hth_slot_region(ctx, slot, &e->wait, &e->region, NULL) || e->wait.reg)
        return e;
    early_end(e);
    return NULL;
}

/* 0: the save may still be kept, and the object belongs here and is not here. */
static int early_is_wanted(struct hth_ctx *ctx, uint32_t from, struct hth_save_id save,
        const struct hth_object *object)
{
    const struct hth_transfer_events *events = &ctx->transfer->events;
    struct hth_held_save *s = hth_holdings_find(ctx, save);

    if (save.epoch != ctx->epoch->epoch || save.nonce != ctx->epoch->nonce ||
            (s && hth_held_find(s, object->id)))
        return HEARTH_EDENIED;
    return events->early ? events->early(events->self, from, save, object) : HEARTH_OK;
}

/* 1: pulls of the object are still under way although its slot was given back. The owner receives
 * the NAK when they have ended, not before: the grant must stand for as long. */
static int early_is_ending(struct hth_ctx *ctx, uint32_t from, const struct hth_wire *w)
{
    const struct early *e = ctx->transfer->early;

    while (e && (!e->over || e->node != from || e->object.id != w->id ||
                        hth_save_cmp(e->save, w->save) != 0))
        e = e->next;
    return e != NULL;
}

void hth_early_message(struct hth_ctx *ctx, uint32_t from, const struct hth_wire *w)
{
    struct early *e = *early_place(ctx, w->save, w->id);

    if (early_is_ending(ctx, from, w))
        return;
    if (e && e->node == from && !w->count) {
        early_end(e);
        return;
    }
    if (!e && w->count && !early_is_wanted(ctx, from, w->save, &w->object))
        e = early_begin(ctx, from, w);
    if (!e || e->node != from) { /* the grant is not used */
        hth_wire_nak(ctx, from, w->save, w->id, HTH_NAK_WRITING, HEARTH_EBUSY, "");
        return;
    }
    e->grant = w->grant;
    e->chunks = w->count < e->got->count ? w->count : e->got->count;
    e->until_ms = hth_now_ms(&ctx->clock) + LEASE_MS;
}

int hth_early_delays(struct hth_ctx *ctx, uint32_t from, const struct hth_wire *offer)
{
    struct early *e = *early_place(ctx, offer->save, offer->id);

    if (!e || !e->busy || e->node != from)
        return 0;
    e->offered = 1;
    e->offer = *offer;
    e->offer.follows = 0; /* END has come meanwhile, and is asked for again */
    return 1;
}

int hth_early_offer(struct hth_ctx *ctx, uint32_t *out_from, struct hth_wire *out)
{
    struct early *e = ctx->transfer->early;

    while (e && (!e->offered || e->busy))
        e = e->next;
    if (!e)
        return 0;
    *out_from = e->node;
    *out = e->offer;
    e->offered = 0;
    if (e->over)
        early_end(e);
    return 1;
}

struct hth_early_chunks *hth_early_take(struct hth_ctx *ctx, struct hth_save_id save,
        uint64_t object, uint64_t bytes, struct hth_slot **out)
{
    struct early *e = *early_place(ctx, save, object);
    struct hth_early_chunks *got;

    if (!e)
        return NULL;
    if (e->busy || e->slot->capacity < bytes) {
        early_end(e);
        return NULL;
    }
    *out = e->slot;
    got = e->got;
    e->got = NULL;
    early_done(e);
    early_free(e);
    return got;
}

/* Of this save and node; NULL and HTH_NODE_NONE: of all. */
static void earlies_end(struct hth_ctx *ctx, const struct hth_save_id *save, uint32_t node)
{
    struct early *next;

    for (struct early *e = ctx->transfer->early; e; e = next) {
        next = e->next;
        if ((!save || !hth_save_cmp(e->save, *save)) && (node == HTH_NODE_NONE || node == e->node))
            early_end(e);
    }
}

void hth_earlies_forget(struct hth_ctx *ctx, const struct hth_save_id *save)
{
    earlies_end(ctx, save, HTH_NODE_NONE);
}

void hth_earlies_peer_down(struct hth_ctx *ctx, uint32_t node)
{
    earlies_end(ctx, NULL, node);
}

int hth_transfer_make_way(struct hth_ctx *ctx)
{
    earlies_end(ctx, NULL, HTH_NODE_NONE);
    return ctx->transfer->early != NULL;
}

void hth_earlies_tick(struct hth_ctx *ctx, uint64_t now)
{
    struct early *next;

    for (struct early *e = ctx->transfer->early; e; e = next) {
        next = e->next;
        if (e->over || now < e->look_ms)
            continue;
        e->look_ms = now + 4 * (uint64_t)ctx->opts.retry_ms;
        if (now >= e->until_ms ||
                early_is_wanted(ctx, e->node, e->save, &e->object) == HEARTH_EDENIED)
            early_end(e);
    }
}

uint64_t hth_earlies_due_ms(const struct hth_ctx *ctx)
{
    uint64_t due = ctx->transfer->stirred ? 0 : HTH_NEVER;

    for (const struct early *e = ctx->transfer->early; e; e = e->next)
        if (!e->over && e->look_ms < due)
            due = e->look_ms;
    return due;
}

void hth_earlies_close(struct hth_ctx *ctx)
{
    while (ctx->transfer->early)
        early_free(ctx->transfer->early);
}
