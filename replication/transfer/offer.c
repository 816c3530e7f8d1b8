/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The holder's side: it offers the objects that it has, and waits for requests.
 *
 *   offered:  OFFER [END] ──repeated──► PULLED: done(0)   NAK for ever: done(code)   both: gone
 *                  ▲          │ WANT: a grant, END
 *                  └──────────┘
 *   wanted:   WANT: grant, END ──► PULLED, RELEASE, peer down: gone      lease over: taken back
 *
 * Both begin when the slot's memory is registered: until then nothing is offered, and a node that
 * requests the object receives BUSY, and END when it can pull.
 *
 * A grant is of the object and of one connection, and all fetches of the node share it. It ends
 * when the node is through (PULLED, RELEASE, a NAK) or its connection gone, never before the node's
 * last pull; while it lasts the slot is leased. A WANT gets another grant if the connection or the
 * slot has changed. A node that has sent nothing for LEASE_MS does not pull (a node that pulls
 * repeats WANT). Then the grant is taken back: alone if this engine serves the pulls, otherwise
 * with the connection, since the network card reads by itself. When the save is freed, its pulls
 * are in vain. If this engine serves them, they end at once; otherwise slot and grant stay until
 * the node has learned of it too.
 */
#include "transfer_parts.h"

#include "core/format/table.h"
#include <stdlib.h>
#include <string.h>

#define OFFER_GRANTS 4u /* of an object to one node: connections, slots that it had */

/* One object and one node: offered until the node has pulled it, or only granted because the node
 * sent WANT. */
struct offer {
    struct hth_ctx *ctx;
    struct hth_save_id save;
    uint64_t object;
    uint32_t node;
    int offered;
    int wanted;               /* WANT was answered with BUSY: END must follow */
    int ranged;               /* the node has wanted a range too: PULLED does not end the offer */
    int over;                 /* its save is freed: only the node's RELEASE or PULLED is awaited */
    struct hth_reg_wait wait; /* for the memory to be registered */
    uint32_t granted;         /* grants in force, the newest last */
    struct hth_grant grant[OFFER_GRANTS];
    struct hth_slot *slot[OFFER_GRANTS]; /* leased */
    uint64_t due_ms;
    uint64_t lease_ms; /* over: until then */
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
    o->ctx = ctx;
    o->save = save;
    o->object = object;
    o->node = node;
    while (*at)
        at = &(*at)->next;
    *at = o;
    return o;
}

static void offer_grant_end(struct offer *o, uint32_t i)
{
    o->ctx->store->ops->unlease(o->ctx->store, o->slot[i]);
    o->granted--;
    for (; i < o->granted; i++) {
        o->grant[i] = o->grant[i + 1];
        o->slot[i] = o->slot[i + 1];
    }
}

/* The node does not use the grants any more. */
static void offer_ungrant(struct offer *o)
{
    while (o->granted) {
        hth_session_ungrant(o->ctx->session, &o->grant[0]);
        offer_grant_end(o, 0);
    }
    o->ranged = 0;
}

/* Ends the grants, even if the node still pulls. */
static void offer_revoke(struct offer *o)
{
    while (o->granted) {
        hth_session_revoke(o->ctx->session, &o->grant[0]);
        offer_grant_end(o, 0);
    }
    o->ranged = 0;
}

static void offer_free(struct offer *o)
{
    struct offer **at = &o->ctx->transfer->offers;

    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    hth_reg_leave(&o->wait);
    free(o);
}

static void offer_end(struct offer *o)
{
    offer_ungrant(o);
    offer_free(o);
}

static void offer_give_up(struct offer *o)
{
    offer_revoke(o);
    offer_free(o);
}

/* The offer is over, but its grants stay: the node may be reading ranges, or its network card may
 * be reading. */
static void offer_keep_granted(struct offer *o)
{
    o->offered = 0;
    o->done = NULL;
    o->due_ms = hth_now_ms(&o->ctx->clock) + LEASE_MS;
}

/* This node ends the offer. If the node still reads a range, the grants stay until RELEASE. */
static void offer_leave(struct offer *o)
{
    if (o->ranged && o->granted)
        offer_keep_granted(o);
    else
        offer_end(o);
}

/* The object is not here any more. */
static void offer_forget(struct offer *o)
{
    if (!o->granted || hth_session_revokes(o->ctx->session)) {
        offer_give_up(o);
        return;
    }
    hth_reg_leave(&o->wait);
    o->over = 1;
    o->ranged = 0;
    offer_keep_granted(o);
    o->lease_ms = o->due_ms;
    o->due_ms = hth_now_ms(&o->ctx->clock) + o->ctx->opts.retry_ms;
}

/* 1: the offer is over, and is kept only for its grants, under which the node may still read. */
static int offer_is_kept(const struct offer *o, uint64_t now)
{
    if (!o->over || now >= o->lease_ms)
        return 0;
    for (uint32_t i = 0; i < o->granted; i++)
        if (hth_session_stands(o->ctx->session, &o->grant[i]))
            return 1;
    return 0;
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

static void offer_ready(struct hth_reg_wait *wait, struct hth_region *region, int code,
        const struct hearth_error *err);

/* 1: there is room for one more grant. Grants of connections that have ended are dropped for
 * that. */
static int offer_has_room(struct offer *o)
{
    for (uint32_t i = o->granted; i-- > 0 && o->granted == OFFER_GRANTS;)
        if (!hth_session_stands(o->ctx->session, &o->grant[i]))
            offer_grant_end(o, i);
    return o->granted < OFFER_GRANTS;
}

/* HEARTH_EBUSY and o->wait.reg is set: offer_ready() runs when the memory is registered. */
static int offer_grant(struct offer *o, const struct hth_held *held)
{
    struct hth_ctx *ctx = o->ctx;
    struct hth_region *region;
    int rc;

    if (offer_is_granted(ctx, o, held))
        return HEARTH_OK;
    o->wait.ready = offer_ready;
    rc = hth_slot_region(ctx, held->slot, &o->wait, &region, NULL);
    if (!rc && !offer_has_room(o))
        rc = HEARTH_EBUSY;
    if (!rc)
        rc = hth_session_grant(ctx->session, o->node, region, 0,
                hth_object_file_bytes(&held->object), &o->grant[o->granted], NULL);
    if (rc)
        return rc;
    o->slot[o->granted++] = held->slot;
    ctx->store->ops->lease(ctx->store, held->slot);
    return HEARTH_OK;
}

/* Sends READY for the first chunks and END, since all chunks of a sealed object are final. */
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
        w.crc = held->slot->base + end - hth_proofs_bytes(object->data_len, object->strong);
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

/* Sends the offer, or waits until the memory is registered. */
static void offer_begin(struct offer *o, const struct hth_held *held)
{
    int rc = offer_grant(o, held);

    if (o->wait.reg)
        return;
    hth_point(&o->ctx->points, "offer");
    offer_say(o->ctx, o, held, o->granted && !rc);
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
    o->over = 0;
    if (o->offered)
        return HEARTH_OK;
    o->offered = 1;
    offer_begin(o, held);
    return HEARTH_OK;
}

static void offer_failed(struct offer *o, int code, const char *text)
{
    struct offer was = *o;

    if (o->wanted)
        hth_wire_nak(o->ctx, o->node, o->save, o->object, HTH_NAK_WANT, code, text);
    if (o->granted) /* a grant of the slot before: the node goes on with it */
        offer_keep_granted(o);
    else
        offer_end(o);
    if (was.offered && was.done)
        was.done(was.self, was.save, was.object, was.node, code, text);
}

/* The memory is registered, or cannot be registered. */
static void offer_ready(struct hth_reg_wait *wait, struct hth_region *region, int code,
        const struct hearth_error *err)
{
    struct offer *o = hth_owner_of(struct offer, wait, wait);
    struct hth_held *held = offer_held(o->ctx, o->save, o->object);

    (void)region;
    if (!held) {
        offer_forget(o);
    } else if (code && code != HEARTH_ECANCELED) {
        offer_failed(o, code, err->text);
    } else if (o->offered) {
        o->wanted = 0;
        offer_begin(o, held);
    } else if (!offer_grant(o, held)) {
        o->wanted = 0;
        o->due_ms = hth_now_ms(&o->ctx->clock) + LEASE_MS;
        offer_say_granted(o->ctx, o, held);
    } else if (!o->wait.reg && !o->granted) {
        offer_end(o); /* the connection has ended: the node sends WANT again */
    }
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
    int rc;

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
    rc = o ? offer_grant(o, held) : HEARTH_ENOMEM;
    if (rc && (!o || !o->wait.reg)) {
        offer_refuse(ctx, from, w, HEARTH_EBUSY, "no grant can be made");
        if (o && !o->offered && !o->granted)
            offer_end(o);
        return;
    }
    o->over = 0;
    o->wanted = rc != HEARTH_OK;
    o->ranged |= w->len != 0;
    if (rc) {
        offer_refuse(ctx, from, w, HEARTH_EBUSY, "its memory is being registered");
        return;
    }
    o->due_ms =
            hth_now_ms(&ctx->clock) + (o->offered ? 4 * (uint64_t)ctx->opts.retry_ms : LEASE_MS);
    offer_say_granted(ctx, o, held);
}

static void offer_on_pulled(struct hth_ctx *ctx, struct offer *o, const struct hth_wire *w)
{
    struct hth_held *held = offer_held(ctx, o->save, o->object);
    struct hth_tally_node *tally = hth_tally_of(&ctx->transfer->tally, o->node);
    struct offer was = *o;

    if (was.offered && held && memcmp(held->object.digest, w->digest, HTH_DIGEST) != 0) {
        hth_say(&ctx->log, HEARTH_LOG_WARN, "pulled-other",
                "node %" PRIu32 " has another '%s' of " HTH_SAVE, o->node, held->object.name,
                HTH_SAVE_ARGS(o->save));
        return;
    }
    if (was.offered && held && tally) {
        tally->given++;
        tally->given_bytes += held->object.data_len;
    }
    offer_leave(o);
    if (was.offered && was.done)
        was.done(was.self, was.save, was.object, was.node, HEARTH_OK, "");
}

/* If the node refuses for now, the offer is repeated. If it refuses for ever, the offer is over. */
static void offer_on_nak(struct hth_ctx *ctx, struct offer *o, const struct hth_wire *w)
{
    int never = w->code == HEARTH_EDENIED || w->code == HEARTH_EEXIST || w->code == HEARTH_EINVAL ||
                w->code == HEARTH_ECORRUPT;
    struct offer was = *o;

    if (o->over)
        offer_end(o);
    if (!was.offered)
        return;
    hth_say(&ctx->log, HEARTH_LOG_DEBUG, "offer-refused",
            "node %" PRIu32 " does not take object %" PRIx64 " of " HTH_SAVE ": %s", o->node,
            o->object, HTH_SAVE_ARGS(o->save), w->text);
    o->due_ms = hth_now_ms(&ctx->clock) + ctx->opts.retry_ms;
    if (never)
        offer_leave(o);
    else if (!o->ranged)
        offer_ungrant(o);
    if (!never && w->code != HEARTH_ENOSPC && w->code != HEARTH_EIO)
        return;
    if (was.done)
        was.done(was.self, was.save, was.object, was.node, w->code, w->text);
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
        offer_ungrant(o);
    else
        offer_end(o);
}

/* ---- Time and ends
 * ---------------------------------------------------------------------------- */

void hth_offers_peer_down(struct hth_ctx *ctx, uint32_t node)
{
    struct offer *next;

    for (struct offer *o = ctx->transfer->offers; o; o = next) {
        next = o->next;
        if (o->node != node)
            continue;
        if (!o->offered) {
            offer_give_up(o);
            continue;
        }
        offer_revoke(o);
        o->due_ms = hth_now_ms(&ctx->clock) + 4 * (uint64_t)ctx->opts.retry_ms;
    }
}

void hth_offers_peer_unreachable(struct hth_ctx *ctx, uint32_t node)
{
    struct offer *next;

    for (struct offer *o = ctx->transfer->offers; o; o = next) {
        next = o->next;
        if (o->node == node && o->offered)
            offer_forget(o);
    }
}

void hth_offers_forget(struct hth_ctx *ctx, const struct hth_save_id *save)
{
    struct offer *next;

    for (struct offer *o = ctx->transfer->offers; o; o = next) {
        next = o->next;
        if (save && hth_save_cmp(o->save, *save) != 0)
            continue;
        if (save)
            offer_forget(o);
        else
            offer_give_up(o);
    }
}

void hth_offers_tick(struct hth_ctx *ctx, uint64_t now)
{
    struct offer *next;

    for (struct offer *o = ctx->transfer->offers; o; o = next) {
        struct hth_held *held;

        next = o->next;
        if (now < o->due_ms || o->wait.reg)
            continue;
        held = offer_held(ctx, o->save, o->object);
        if (offer_is_kept(o, now))
            o->due_ms = now + ctx->opts.retry_ms;
        else if (!o->offered)
            offer_give_up(o);
        else if (!held)
            offer_forget(o);
        else
            offer_say(ctx, o, held, 0);
    }
}

uint64_t hth_offers_due_ms(const struct hth_ctx *ctx)
{
    uint64_t due = HTH_NEVER;

    for (const struct offer *o = ctx->transfer->offers; o; o = o->next)
        if (!o->wait.reg && o->due_ms < due)
            due = o->due_ms;
    return due;
}

void hth_offers_close(struct hth_ctx *ctx)
{
    struct offer *o;

    while ((o = ctx->transfer->offers)) {
        ctx->transfer->offers = o->next;
        hth_reg_leave(&o->wait);
        free(o);
    }
}
