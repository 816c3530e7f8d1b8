/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of holders, at a receiver. An OFFER is taken, refused for now or for ever, or answered
 * at once when the object is here; END lets a source of any fetch of that object be pulled from.
 */
#include "transfer_parts.h"

#include "replication/held/seal.h"

#include <string.h>

static int take_is_same(const struct hth_object *a, const struct hth_object *b)
{
    return a->data_len == b->data_len && a->table_len == b->table_len && a->strong == b->strong &&
           memcmp(a->digest, b->digest, HTH_DIGEST) == 0;
}

static void take_refuse(
        struct hth_ctx *ctx, uint32_t from, const struct hth_wire *w, int code, const char *text)
{
    hth_wire_nak(ctx, from, w->save, w->id, HTH_NAK_OFFER, code, text);
}

static void take_join(struct hth_fetch *f, uint32_t from, const struct hth_wire *w)
{
    struct source *s;

    if (!take_is_same(&f->object, &w->object)) {
        take_refuse(f->ctx, from, w, HEARTH_EEXIST, "another object of that id is being fetched");
        return;
    }
    s = hth_source_join(f, from);
    if (!s)
        return;
    s->offered = 1;
    if (s->state != SOURCE_NEW)
        return;
    if (!w->follows) {
        hth_source_ask(f, s);
        return;
    }
    s->state = SOURCE_ASKED;
    s->asked = 1;
    s->due_ms = hth_now_ms(&f->ctx->clock) + f->ctx->opts.retry_ms;
}

static void take_verified(void *self, struct hth_held_save *save, struct hth_held *held, int code,
        const struct hearth_error *err)
{
    struct hth_ctx *ctx = self;

    if (code != HEARTH_ECORRUPT || held->dropped)
        return; /* the copy is right: the next OFFER is answered with PULLED */
    hth_say(&ctx->log, HEARTH_LOG_WARN, "copy-bad", "%s", err->text);
    hth_held_condemn(ctx, save, held, "corrupt");
}

/* Answers an OFFER if an object of that id is here. */
static void take_answer(struct hth_ctx *ctx, uint32_t from, const struct hth_wire *w,
        struct hth_held_save *save, struct hth_held *held)
{
    struct hth_wire pulled = { .save = w->save, .id = w->id };

    if (held->state != HTH_HELD_SEALED || !held->slot) {
        take_refuse(ctx, from, w, HEARTH_EBUSY, "it is being written here");
    } else if (!take_is_same(&held->object, &w->object)) {
        take_refuse(ctx, from, w, HEARTH_EEXIST, "another object of that id is here");
    } else if (held->verified) {
        memcpy(pulled.digest, held->object.digest, HTH_DIGEST);
        hth_wire_say(ctx, from, HTH_MSG_PULLED, &pulled);
    } else if (!hth_job_runs(ctx, held)) {
        (void)hth_verify_start(ctx, save, held, take_verified, ctx, NULL);
    }
}

/* If no slot is free for the object, none is being made and none makes way, the offering node is
 * sent HEARTH_ENOSPC. */
static int take_no_room(
        struct hth_ctx *ctx, const struct hth_wire *w, int rc, const struct hearth_error *err)
{
    const struct hth_transfer_events *events = &ctx->transfer->events;
    struct hth_store *store = ctx->store;

    if (rc != HEARTH_ENOSPC &&
            (rc != HEARTH_EBUSY || store->ops->soon(store, hth_object_file_bytes(&w->object)) ||
                    hth_transfer_make_way(ctx)))
        return rc;
    if (events->no_room)
        events->no_room(events->self, w->save, rc, err->text);
    return HEARTH_ENOSPC;
}

static void take_offer(struct hth_ctx *ctx, uint32_t from, const struct hth_wire *w)
{
    const struct hth_transfer_events *events = &ctx->transfer->events;
    struct hth_fetch *f = hth_fetch_find(ctx, w->save, w->id);
    struct hth_held_save *save = hth_holdings_find(ctx, w->save);
    struct hth_held *held = save ? hth_held_find(save, w->id) : NULL;
    struct hearth_error err = { 0 };
    int rc;

    if (f) {
        take_join(f, from, w);
        return;
    }
    if (held) {
        take_answer(ctx, from, w, save, held);
        return;
    }
    if (hth_early_delays(ctx, from, w))
        return;
    rc = events->wanted ? events->wanted(events->self, from, w->save, &w->object) : HEARTH_OK;
    if (rc) {
        take_refuse(ctx, from, w, rc, rc == HEARTH_EBUSY ? "not now" : "not for this node");
        return;
    }
    rc = hth_fetch_new(ctx,
            &(struct hth_fetch_want){ .save = w->save,
                    .object = w->object,
                    .class = HTH_FETCH_REPLICA,
                    .deadline_ms = ctx->opts.save_ms },
            &f, &err);
    if (rc) {
        take_refuse(ctx, from, w, take_no_room(ctx, w, rc, &err), err.text);
        return;
    }
    f->by_offer = 1;
    take_join(f, from, w);
}

static int take_is_grant(const struct hth_grant *a, const struct hth_grant *b)
{
    return a->desc_len == b->desc_len && memcmp(a->desc, b->desc, a->desc_len) == 0;
}

static void take_end(struct hth_fetch *f, struct source *s, const struct hth_wire *w)
{
    if (s->state == SOURCE_OUT)
        return;
    if (!take_is_same(&f->object, &w->object)) {
        hth_source_out(f, s, HEARTH_ECORRUPT, "it holds another object under that id");
        return;
    }
    if (f->slice) {
        s->grant = w->grant;
        hth_slice_granted(f, s);
        return;
    }
    s->renew_ms = hth_now_ms(&f->ctx->clock) + RENEW_MS;
    if (s->state == SOURCE_GRANTED && take_is_grant(&s->grant, &w->grant))
        return; /* the grant is in use already */
    s->state = SOURCE_GRANTED;
    s->grant = w->grant;
    s->grants++;
    s->due_ms = HTH_NEVER;
}

void hth_fetch_message(struct hth_ctx *ctx, uint32_t from, uint16_t type, const struct hth_wire *w)
{
    if (type == HTH_MSG_OFFER) {
        take_offer(ctx, from, w);
        return;
    }
    if (type == HTH_MSG_READY) /* END follows at once, and has the table's digest */
        return;
    for (struct hth_fetch *f = ctx->transfer->fetches; f; f = f->next) {
        struct source *s = hth_fetch_runs(f) ? hth_source_find(f, from) : NULL;

        if (!s || f->object.id != w->id || hth_save_cmp(f->save, w->save) != 0)
            continue;
        if (type == HTH_MSG_END)
            take_end(f, s, w);
        else if (type == HTH_MSG_SUM)
            hth_slice_sum(f, s, w);
        else if (s->state == SOURCE_ASKED && w->code == HEARTH_EBUSY)
            hth_source_away(f, s, HEARTH_EBUSY);
        else if (w->code != HEARTH_EBUSY && (s->state == SOURCE_ASKED || s->state == SOURCE_AWAY))
            hth_source_out(f, s, HEARTH_EDENIED, w->text[0] ? w->text : "it refuses");
    }
}
