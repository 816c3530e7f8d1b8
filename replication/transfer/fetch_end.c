/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fetches end. The outcome is known in hth_fetch_end() or hth_fetch_complete(); then the
 * catalogue is put in order at once, and the slot is kept by its lease until no pull and no work is
 * on it. Only then, in settle, sources and owner are notified, never in the call that had the
 * outcome.
 */
#include "transfer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Outcomes -------------------------------------------------------------------------------- */

void hth_fetch_keep_old(struct hth_fetch *f, int verified)
{
    f->ctx->store->ops->give(f->ctx->store, f->slot);
    f->held->slot = f->held->old;
    f->held->old = NULL;
    f->held->state = HTH_HELD_SEALED;
    f->held->verified = verified;
}

void hth_fetch_end(struct hth_fetch *f, int code, const char *text)
{
    if (!hth_fetch_runs(f))
        return;
    if (text)
        hth_fail(&f->err, code, 0, HTH_SAVE " object '%s': %.400s", HTH_SAVE_ARGS(f->save),
                f->object.name, text);
    f->phase = PHASE_ENDING;
    f->code = code;
    hth_reg_leave(&f->wait);
    if (!f->held || f->held->dropped)
        return;
    if (f->held->old)
        hth_fetch_keep_old(f, 0);
    else
        hth_held_drop(f->ctx, f->in, f->held);
}

void hth_fetch_complete(struct hth_fetch *f)
{
    struct hth_store *store = f->ctx->store;
    struct hth_slot *old;
    int rc;

    if (!f->whole) {
        f->phase = PHASE_ENDING;
        return;
    }
    if (f->held->dropped) {
        hth_fetch_end(f, HEARTH_ECANCELED, "it is not wanted any more");
        return;
    }
    old = f->held->old;
    f->held->old = NULL;
    if (old) /* the old copy had the name */
        hth_slot_condemn(f->ctx, old, "corrupt");
    rc = store->ops->seal(store, f->slot, f->save, f->object.name, &f->err);
    if (rc) {
        hth_held_drop(f->ctx, f->in, f->held);
        hth_fetch_end(f, rc, NULL);
        return;
    }
    f->held->object = f->object;
    f->held->state = HTH_HELD_SEALED;
    f->held->verified = 1;
    f->phase = PHASE_ENDING;
}

void hth_fetches_stop(struct hth_ctx *ctx, const struct hth_save_id *save, const char *why)
{
    for (struct hth_fetch *f = ctx->transfer->fetches; f; f = f->next)
        if (!save || hth_save_cmp(f->save, *save) == 0)
            hth_fetch_end(f, HEARTH_ECANCELED, why);
}

void hth_fetch_tidy(const struct hth_fetch *f)
{
    struct hth_held_save *save = f->made ? hth_holdings_find(f->ctx, f->save) : NULL;

    if (save && !save->held && !save->has_manifest && !save->users) {
        hth_fetches_stop(f->ctx, &f->save, "its save is freed");
        hth_holdings_free_save(f->ctx, save);
    }
}

/* ---- What is left when it has ended --------------------------------------------------------- */

/* 1: another fetch pulls from that node under the same grant. */
static int fetch_shares_grant(const struct hth_fetch *f, uint32_t node)
{
    for (struct hth_fetch *g = f->ctx->transfer->fetches; g; g = g->next) {
        const struct source *s = g != f && hth_fetch_runs(g) && g->object.id == f->object.id &&
                                                 hth_save_cmp(g->save, f->save) == 0
                                         ? hth_source_find(g, node)
                                         : NULL;

        if (s && s->asked)
            return 1;
    }
    return 0;
}

static void fetch_say_end(const struct hth_fetch *f)
{
    struct hth_wire w = { .save = f->save, .id = f->object.id };
    int pulled = f->whole && !f->code;

    memcpy(w.digest, f->object.digest, HTH_DIGEST);
    for (uint32_t i = 0; i < f->sources; i++) {
        const struct source *s = &f->source[i];

        if (!s->asked)
            continue;
        if (pulled)
            hth_wire_say(f->ctx, s->node, HTH_MSG_PULLED, &w);
        if (!pulled && s->offered)
            hth_wire_nak(f->ctx, s->node, f->save, f->object.id, HTH_NAK_OFFER,
                    f->code == HEARTH_ECANCELED ? HEARTH_EBUSY : f->code, f->err.text);
        else if (!fetch_shares_grant(f, s->node))
            /* also after PULLED: the node may have granted ranges of it meanwhile */
            hth_wire_say(f->ctx, s->node, HTH_MSG_RELEASE, &w);
    }
}

static void fetch_let_go(struct hth_fetch *f)
{
    struct hth_store *store = f->ctx->store;

    if (f->slot)
        store->ops->unlease(store, f->slot);
    if (f->old)
        store->ops->unlease(store, f->old);
    if (f->held)
        hth_held_unpin(f->in, f->held);
    f->held = NULL;
    f->old = NULL;
}

static void fetch_unlink(struct hth_fetch *f)
{
    struct hth_fetch **at = &f->ctx->transfer->fetches;

    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
}

void hth_fetch_free(struct hth_fetch *f)
{
    struct piece *p;

    while ((p = f->pieces)) {
        f->pieces = p->all;
        free(p);
    }
    if (f->held)
        hth_held_unpin(f->in, f->held);
    if (f->scratch)
        hth_scratch_give(f->scratch);
    hth_reg_leave(&f->wait);
    free(f->early);
    free(f->source);
    free(f->chunk);
    free(f);
}

static void fetch_tell(struct hth_fetch *f)
{
    const struct hth_transfer_events *events = &f->ctx->transfer->events;

    if (f->code)
        hth_say(&f->ctx->log,
                f->code == HEARTH_ECANCELED || f->code == HEARTH_EUNSUPPORTED ? HEARTH_LOG_DEBUG
                                                                              : HEARTH_LOG_WARN,
                "fetch-failed", "%s", f->err.text);
    if (f->done)
        f->done(f->self, f, f->code, &f->err);
    else if (f->by_offer && !f->code && events->sealed)
        events->sealed(events->self, f->save, f->object.id);
}

static void fetch_settle(struct hth_fetch *f)
{
    int keep = !f->whole && !f->code;

    fetch_say_end(f);
    fetch_let_go(f);
    if (keep) {
        f->phase = PHASE_KEPT;
        fetch_tell(f); /* may release it */
        return;
    }
    fetch_unlink(f);
    if (f->code)
        hth_fetch_tidy(f);
    fetch_tell(f);
    hth_fetch_free(f);
}

void hth_fetches_settle(struct hth_ctx *ctx)
{
    struct hth_transfer *t = ctx->transfer;
    struct hth_fetch *f;

    if (t->settling)
        return;
    t->settling = 1;
    do {
        f = t->fetches;
        while (f && (f->phase != PHASE_ENDING || f->busy))
            f = f->next;
        if (f)
            fetch_settle(f);
    } while (f);
    t->settling = 0;
}

void hth_fetch_cancel(struct hth_fetch *f)
{
    hth_fetch_end(f, HEARTH_ECANCELED, "canceled");
}

const unsigned char *hth_fetch_bytes(struct hth_fetch *f)
{
    return f->base ? f->base + (f->off - f->lo) : NULL;
}

int hth_fetch_sum(const struct hth_fetch *f, uint32_t *out)
{
    *out = f->sum;
    return f->slice;
}

struct hth_slot *hth_fetch_slot(struct hth_fetch *f)
{
    return f->slot;
}

void hth_fetch_release(struct hth_fetch *f)
{
    if (f->phase != PHASE_KEPT)
        return; /* a whole object's fetch frees itself */
    fetch_unlink(f);
    hth_fetch_free(f);
}

void hth_fetches_close(struct hth_ctx *ctx)
{
    struct hth_fetch *f;

    while ((f = ctx->transfer->fetches)) {
        ctx->transfer->fetches = f->next;
        hth_fetch_free(f);
    }
}

/* ---- Time ------------------------------------------------------------------------------------ */

static void fetch_too_late(struct hth_fetch *f)
{
    char text[HEARTH_ERROR_TEXT];
    uint32_t node = HTH_NODE_NONE;

    for (uint32_t i = 0; i < f->sources && node == HTH_NODE_NONE; i++)
        if (f->source[i].state != SOURCE_OUT)
            node = f->source[i].node;
    snprintf(text, sizeof(text),
            "not here after %" PRIu32 " ms, waiting for node %" PRIu32 "%s%.300s",
            f->deadline_after_ms, node, f->cause.code ? "; last failure: " : "", f->cause.text);
    hth_fetch_end(f, HEARTH_ETIMEOUT, text);
}

static void fetch_source_tick(struct hth_fetch *f, struct source *s, uint64_t now)
{
    if ((s->state == SOURCE_NEW || s->state == SOURCE_AWAY) && now >= s->due_ms) {
        hth_source_ask(f, s);
    } else if (s->state == SOURCE_ASKED && now >= s->due_ms) {
        hth_source_late(f, s);
    } else if (s->state == SOURCE_GRANTED) {
        if (now >= s->due_ms)
            s->due_ms = HTH_NEVER;
        if (now >= s->renew_ms)
            hth_source_renew(f, s);
    }
}

void hth_fetches_tick(struct hth_ctx *ctx, uint64_t now)
{
    for (struct hth_fetch *f = ctx->transfer->fetches; f; f = f->next) {
        if (hth_fetch_runs(f) && f->held && f->held->dropped)
            hth_fetch_end(f, HEARTH_ECANCELED, "it is not wanted any more");
        if (hth_fetch_runs(f) && now >= f->deadline_ms)
            fetch_too_late(f);
        for (uint32_t i = 0; i < f->sources && hth_fetch_runs(f) && f->base; i++)
            fetch_source_tick(f, &f->source[i], now);
    }
}

uint64_t hth_fetches_due_ms(const struct hth_ctx *ctx)
{
    uint64_t due = HTH_NEVER;

    for (const struct hth_fetch *f = ctx->transfer->fetches; f; f = f->next) {
        if ((f->phase == PHASE_ENDING && !f->busy) || (hth_fetch_runs(f) && f->stirred) ||
                (!f->base && ctx->transfer->scratches.given))
            return hth_now_ms(&ctx->clock);
        if (!hth_fetch_runs(f))
            continue;
        if (f->deadline_ms < due)
            due = f->deadline_ms;
        for (uint32_t i = 0; i < f->sources && f->base; i++) {
            const struct source *s = &f->source[i];

            if (s->state != SOURCE_OUT && s->due_ms < due)
                due = s->due_ms;
            if (s->state == SOURCE_GRANTED && s->renew_ms < due)
                due = s->renew_ms;
        }
    }
    return due;
}
