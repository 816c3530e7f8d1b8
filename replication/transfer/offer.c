/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The holder's side: it says what it has and waits to be asked.
 *
 *   offered:  OFFER [END] ──repeated──► PULLED: done(0)   NAK for ever: done(code)   both: gone
 *                  ▲          │ WANT: a new grant, END
 *                  └──────────┘
 *   wanted:   WANT: grant, END ──► PULLED, RELEASE, peer down, lease over: gone
 *
 * A grant is of the object and of one connection, and all fetches of the node share it: to take it
 * back under a pull costs the connection, and with it all that comes over it. A WANT gets a new one
 * where the connection or the slot is another by now. The old ones last beside it, for what is
 * pulled under them; the oldest gives way. While granted the slot is leased.
 */
#include "transfer_parts.h"

#include "core/format/table.h"
#include <stdlib.h>
#include <string.h>

#define OFFER_GRANTS 4u     /* of an object to one node: connections, slots that it had */
#define LEASE_MS     60000u /* a grant that was wanted and never released */

/* One object and one node: offered until pulled, or just granted because the node wanted it. */
struct offer {
    struct hth_save_id save;
    uint64_t object;
    uint32_t node;
    int offered;
    int told;         /* `done` has heard that the node has no room */
    int ranged;       /* a range was wanted too: PULLED is not the end */
    uint32_t granted; /* grants that are good, the newest last */
    struct hth_grant grant[OFFER_GRANTS];
    struct hth_slot *slot[OFFER_GRANTS]; /* leased */
    uint64_t due_ms;
    hth_offered_fn *done;
    void *self;
    struct offer *next;
};

static struct offer *offer_find(
        struct hth_ctx *ctx, struct hth_save_id save, uint64_t object, uint32_t node)
{
    struct offer *o = ctx->transfer->offers;

    while (o && (o->node != node || o->object != object || hth_save_cmp(o->save, save) != 0))
        o = o->next;
    return o;
}

static struct offer *offer_get(
        struct hth_ctx *ctx, struct hth_save_id save, uint64_t object, uint32_t node)
{
    struct offer **at = &ctx->transfer->offers, *o = offer_find(ctx, save, object, node);

    if (o || !(o = calloc(1, sizeof(*o))))
        return o;
    o->save = save;
    o->object = object;
    o->node = node;
    while (*at)
        at = &(*at)->next;
    *at = o;
    return o;
}

static void offer_revoke_oldest(struct hth_ctx *ctx, struct offer *o)
{
    hth_session_revoke(ctx->session, &o->grant[0]);
    ctx->store->ops->unlease(ctx->store, o->slot[0]);
    o->granted--;
    memmove(o->grant, o->grant + 1, o->granted * sizeof(o->grant[0]));
    for (uint32_t i = 0; i < o->granted; i++)
        o->slot[i] = o->slot[i + 1];
}

static void offer_revoke(struct hth_ctx *ctx, struct offer *o)
{
    while (o->granted)
        offer_revoke_oldest(ctx, o);
}

static void offer_end(struct hth_ctx *ctx, struct offer *o)
{
    struct offer **at = &ctx->transfer->offers;

    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    offer_revoke(ctx, o);
    free(o);
}

/* The sealed object that is here and can be pulled; NULL: there is none. */
static struct hth_held *offer_held(struct hth_ctx *ctx, struct hth_save_id save, uint64_t object)
{
    struct hth_held_save *s = hth_holdings_find(ctx, save);
    struct hth_held *h = s ? hth_held_find(s, object) : NULL;

    return h && h->slot && h->state == HTH_HELD_SEALED ? h : NULL;
}

static int offer_is_granted(
        const struct hth_ctx *ctx, const struct offer *o, const struct hth_held *held)
{
    uint32_t last = o->granted - 1;

    return o->granted && o->slot[last] == held->slot &&
           hth_session_granted(ctx->session, o->node, &o->grant[last]);
}

static int offer_grant(struct hth_ctx *ctx, struct offer *o, const struct hth_held *held)
{
    struct hth_region *region;
    int rc;

    if (offer_is_granted(ctx, o, held))
        return HEARTH_OK;
    if (o->granted == OFFER_GRANTS)
        offer_revoke_oldest(ctx, o);
    rc = hth_held_region(ctx, held->slot, &region, NULL);
    if (!rc)
        rc = hth_session_grant(ctx->session, o->node, region, 0,
                hth_object_file_bytes(&held->object), &o->grant[o->granted], NULL);
    if (rc)
        return rc;
    o->slot[o->granted++] = held->slot;
    ctx->store->ops->lease(ctx->store, held->slot);
    return HEARTH_OK;
}

/* READY for the first chunks and END: all chunks of a sealed object are final. */
static void offer_say_granted(
        struct hth_ctx *ctx, const struct offer *o, const struct hth_held *held)
{
    const struct hth_object *object = &held->object;
    uint64_t chunks = HTH_CHUNKS(object->data_len);
    uint64_t end = hth_object_file_bytes(object);
    struct hth_wire w = {
        .save = o->save,
        .id = o->object,
        .object = *object,
        .grant = o->grant[o->granted - 1],
        .count = (uint32_t)(chunks < HTH_WIRE_CHUNKS ? chunks : HTH_WIRE_CHUNKS),
    };

    if (object->kind == HTH_OBJECT_SHARD)
        w.crc = held->slot->base + end - (4 * chunks + 7) / 8 * 8;
    if (o->offered)
        hth_wire_say(ctx, o->node, HTH_MSG_READY, &w);
    hth_wire_say(ctx, o->node, HTH_MSG_END, &w);
}

static void offer_say(struct hth_ctx *ctx, struct offer *o, const struct hth_held *held, int ends)
{
    struct hth_wire w = { .save = o->save, .object = held->object, .follows = (uint32_t)ends };
    uint64_t wait = ctx->opts.retry_ms;

    o->due_ms = hth_now_ms(&ctx->clock) + (o->granted ? 4 * wait : wait);
    hth_wire_say(ctx, o->node, HTH_MSG_OFFER, &w);
    if (ends)
        offer_say_granted(ctx, o, held);
}

int hth_transfer_offer(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        uint32_t node, hth_offered_fn *done, void *self, struct hearth_error *err)
{
    struct offer *o;

    if (!ctx->epoch || node >= ctx->epoch->nodes || node == ctx->epoch->self)
        return hth_fail(err, HEARTH_EINVAL, 0, "node %" PRIu32 " is no node to offer to", node);
    if (held->state != HTH_HELD_SEALED || !held->slot)
        return hth_fail(err, HEARTH_ESTATE, 0,
                HTH_SAVE " object '%s' is offered before it is sealed", HTH_SAVE_ARGS(save->id),
                held->object.name);
    o = offer_get(ctx, save->id, held->object.id, node);
    if (!o)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an offer");
    o->done = done;
    o->self = self;
    if (o->offered)
        return HEARTH_OK;
    o->offered = 1;
    hth_point(&ctx->points, "offer");
    offer_say(ctx, o, held, o->granted || !offer_grant(ctx, o, held));
    return HEARTH_OK;
}

/* ---- What receivers say --------------------------------------------------------------------- */

static void offer_refuse(
        struct hth_ctx *ctx, uint32_t from, const struct hth_wire *w, int code, const char *text)
{
    hth_wire_nak(ctx, from, w->save, w->id, HTH_NAK_WANT, code, text);
}

static void offer_on_want(struct hth_ctx *ctx, uint32_t from, const struct hth_wire *w)
{
    struct hth_held_save *save = hth_holdings_find(ctx, w->save);
    struct hth_held *there = save ? hth_held_find(save, w->id) : NULL;
    struct hth_held *held = offer_held(ctx, w->save, w->id);
    uint64_t bytes = held ? hth_object_file_bytes(&held->object) : 0;
    struct offer *o;

    if (!held) {
        offer_refuse(ctx, from, w, there ? HEARTH_EBUSY : HEARTH_ENOENT,
                there ? "not sealed yet" : "not here");
        return;
    }
    if (w->off > bytes || w->len > bytes - w->off) {
        offer_refuse(ctx, from, w, HEARTH_EINVAL, "the object is shorter");
        return;
    }
    o = offer_get(ctx, w->save, w->id, from);
    if (!o || offer_grant(ctx, o, held)) {
        offer_refuse(ctx, from, w, HEARTH_EBUSY, "no grant can be made");
        if (o && !o->offered)
            offer_end(ctx, o);
        return;
    }
    o->due_ms =
            hth_now_ms(&ctx->clock) + (o->offered ? 4 * (uint64_t)ctx->opts.retry_ms : LEASE_MS);
    o->ranged |= w->len != 0;
    offer_say_granted(ctx, o, held);
}

/* The whole object is there, and a range of it is still being read: what it has lasts until then. */
static void offer_keep_granted(struct hth_ctx *ctx, struct offer *o)
{
    o->offered = 0;
    o->done = NULL;
    o->due_ms = hth_now_ms(&ctx->clock) + LEASE_MS;
}

static void offer_on_pulled(struct hth_ctx *ctx, struct offer *o, const struct hth_wire *w)
{
    struct hth_held *held = offer_held(ctx, o->save, o->object);
    struct offer was = *o;

    if (was.offered && held && memcmp(held->object.digest, w->digest, HTH_DIGEST) != 0) {
        hth_say(&ctx->log, HEARTH_LOG_WARN, "pulled-other",
                "node %" PRIu32 " has another '%s' of " HTH_SAVE, o->node, held->object.name,
                HTH_SAVE_ARGS(o->save));
        return;
    }
    if (o->ranged && o->granted)
        offer_keep_granted(ctx, o);
    else
        offer_end(ctx, o);
    if (was.offered && was.done)
        was.done(was.self, was.save, was.object, was.node, HEARTH_OK);
}

/* Not now: it hears the offer again. Never: it is over. */
static void offer_on_nak(struct hth_ctx *ctx, struct offer *o, const struct hth_wire *w)
{
    int never = w->code == HEARTH_EDENIED || w->code == HEARTH_EEXIST || w->code == HEARTH_EINVAL ||
                w->code == HEARTH_ECORRUPT;
    struct offer was = *o;

    if (!o->offered)
        return;
    hth_say(&ctx->log, HEARTH_LOG_DEBUG, "offer-refused",
            "node %" PRIu32 " does not take object %" PRIx64 " of " HTH_SAVE ": %s", o->node,
            o->object, HTH_SAVE_ARGS(o->save), w->text);
    o->due_ms = hth_now_ms(&ctx->clock) + ctx->opts.retry_ms;
    if (never)
        offer_end(ctx, o);
    else
        offer_revoke(ctx, o);
    if (!never && (w->code != HEARTH_ENOSPC || was.told))
        return;
    if (!never)
        o->told = 1;
    if (was.done)
        was.done(was.self, was.save, was.object, was.node, w->code);
}

void hth_offer_message(struct hth_ctx *ctx, uint32_t from, uint16_t type, const struct hth_wire *w)
{
    struct offer *o;

    if (type == HTH_MSG_WANT) {
        offer_on_want(ctx, from, w);
        return;
    }
    o = offer_find(ctx, w->save, w->id, from);
    if (!o)
        return;
    if (type == HTH_MSG_PULLED)
        offer_on_pulled(ctx, o, w);
    else if (type == HTH_MSG_NAK)
        offer_on_nak(ctx, o, w);
    else if (o->offered) /* RELEASE */
        offer_revoke(ctx, o);
    else
        offer_end(ctx, o);
}

/* ---- Time and ends ---------------------------------------------------------------------------- */

void hth_offers_peer_down(struct hth_ctx *ctx, uint32_t node)
{
    struct offer *next;

    for (struct offer *o = ctx->transfer->offers; o; o = next) {
        next = o->next;
        if (o->node != node)
            continue;
        if (!o->offered) {
            offer_end(ctx, o);
            continue;
        }
        offer_revoke(ctx, o);
        o->due_ms = hth_now_ms(&ctx->clock) + 4 * (uint64_t)ctx->opts.retry_ms;
    }
}

void hth_offers_forget(struct hth_ctx *ctx, const struct hth_save_id *save)
{
    struct offer *next;

    for (struct offer *o = ctx->transfer->offers; o; o = next) {
        next = o->next;
        if (!save || hth_save_cmp(o->save, *save) == 0)
            offer_end(ctx, o);
    }
}

void hth_offers_tick(struct hth_ctx *ctx, uint64_t now)
{
    struct offer *next;

    for (struct offer *o = ctx->transfer->offers; o; o = next) {
        struct hth_held *held;

        next = o->next;
        if (now < o->due_ms)
            continue;
        held = offer_held(ctx, o->save, o->object);
        if (!held || !o->offered)
            offer_end(ctx, o);
        else
            offer_say(ctx, o, held, 0);
    }
}

uint64_t hth_offers_due_ms(const struct hth_ctx *ctx)
{
    uint64_t due = HTH_NEVER;

    for (const struct offer *o = ctx->transfer->offers; o; o = o->next)
        if (o->due_ms < due)
            due = o->due_ms;
    return due;
}

void hth_offers_close(struct hth_ctx *ctx)
{
    struct offer *o;

    while ((o = ctx->transfer->offers)) {
        ctx->transfer->offers = o->next;
        free(o);
    }
}
