/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator's word on a member: COMPLETE, PROTECTED, CANCELLED, ASSIGN. It may come twice, late
 * or not at all; of these only PROTECTED and CANCELLED free anything.
 */
#include "commit_state.h"
#include "release.h"

#include "core/base/bytes.h"

#include <string.h>

/* ---- The coordinator's word ----------------------------------------------------------------- */

static void word_free(struct hth_commit *c, struct hth_held_save *s)
{
    hth_point(&c->ctx->points, "free");
    hth_save_release(c->ctx, s);
}

static void word_free_older(struct hth_commit *c, struct hth_save_id than)
{
    struct hth_held_save *next;

    for (struct hth_held_save *s = hth_holdings_first(c->ctx); s; s = next) {
        next = s->next;
        if (s->removed || hth_save_cmp(s->id, than) >= 0 ||
                (hth_keep_has(&c->ctx->keep, s->id) && !hth_breaks(c->ctx, HTH_BREAK_FREE_EARLY)))
            continue;
        word_free(c, s);
    }
}

void word_complete(struct hth_commit *c, struct hth_save_id save)
{
    struct track *t = track_find(c, save);
    struct hth_held_save *s = hth_holdings_find(c->ctx, save);
    struct hearth_error err;

    if (!t || !s || t->complete)
        return;
    t->complete = 1;
    if (!s->published && c->ctx->store->ops->publish(c->ctx->store, save, &err))
        hth_say(&c->ctx->log, HEARTH_LOG_WARN, "publish-failed", "%s", err.text);
    else
        s->published = 1;
    track_level(c, t, HEARTH_COMPLETE);
    if (hth_breaks(c->ctx, HTH_BREAK_FREE_EARLY))
        word_free_older(c, save);
}

void word_protected(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    struct hth_keep keep;
    struct track *next;
    int degraded;

    if (len != HTH_KEEP_BYTES || hth_keep_decode(&keep, bytes, HTH_KEEP_BYTES, NULL) ||
            (keep.epoch != c->ctx->epoch->epoch && !hth_breaks(c->ctx, HTH_BREAK_FENCE)) ||
            keep.saves == 0)
        return;
    degraded = hth_keep_degraded(&keep, 0);
    if (kept_write(c, &keep))
        return;
    word_complete(c, keep.save[0]);
    word_free_older(c, keep.save[0]);
    for (struct track *t = c->tracks; t; t = next) {
        int order = hth_save_cmp(t->id, keep.save[0]);

        next = t->next;
        if (order == 0)
            track_end(c, t, HEARTH_PROTECTED, degraded, HEARTH_OK, "");
        else if (order < 0)
            track_end(c, t, t->level, 0, HEARTH_EFAILED, "a newer save was protected first");
    }
    if (outcome_find(c, keep.save[0]) && outcome_find(c, keep.save[0])->code == HEARTH_EUNKNOWN)
        outcome_put(c, keep.save[0], HEARTH_PROTECTED, (int)degraded, HEARTH_OK, "");
}

void word_cancelled(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    struct hth_save_id save;
    struct hth_held_save *s;
    struct track *t;
    char text[200];
    int code;

    if (len < SAVE_BYTES + 4 || len > SAVE_BYTES + 4 + sizeof(text) - 1)
        return;
    save = save_get(bytes);
    code = (int)hth_get32(bytes + SAVE_BYTES);
    memcpy(text, bytes + SAVE_BYTES + 4, len - SAVE_BYTES - 4);
    text[len - SAVE_BYTES - 4] = '\0';
    if (hth_keep_has(&c->ctx->keep, save) ||
            (outcome_find(c, save) && outcome_find(c, save)->code == 0))
        return; /* it was PROTECTED: a late or wrong word */
    s = hth_holdings_find(c->ctx, save);
    if (s && !s->removed)
        word_free(c, s);
    t = track_find(c, save);
    hth_say(&c->ctx->log, HEARTH_LOG_WARN, "save-cancelled", HTH_SAVE ": %s (%s)",
            HTH_SAVE_ARGS(save), text, hearth_strerror(code));
    if (t)
        track_end(c, t, t->level, 0, HEARTH_EFAILED, text);
    else if (!outcome_find(c, save))
        outcome_put(c, save, HEARTH_WRITTEN, 0, HEARTH_EFAILED, text);
}

/* ---- Holders that change --------------------------------------------------------------------- */

/* The newest save that is kept, with what is assigned now. */
static void word_promise_again(struct hth_commit *c)
{
    const struct hth_ctx *ctx = c->ctx;
    struct track *t;

    if (!c->running || !ctx->keep.saves || ctx->keep.epoch != ctx->epoch->epoch)
        return;
    t = track_get(c, ctx->keep.save[0]);
    if (!t)
        return;
    t->recovered = t->complete = 1;
    t->level = HEARTH_PROTECTED;
}

void word_assign(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    struct hth_reader r = { bytes, len, 0, 0 };
    uint32_t serial = hth_read32(&r);
    uint32_t lost = hth_read32(&r);
    uint32_t count = hth_read32(&r);
    uint32_t degraded = hth_read32(&r);
    struct hth_ctx *ctx = c->ctx;
    struct track *t;
    struct track *next;

    if (r.bad || len != 16 + 4 * (size_t)lost + 12 * (size_t)count ||
            (serial <= c->serial && !hth_is_coordinator(ctx)))
        return;
    c->serial = serial;
    if (degraded && ctx->keep.epoch == ctx->epoch->epoch)
        kept_degraded(c);
    for (uint32_t n = 0; n < ctx->epoch->nodes && !hth_is_coordinator(ctx); n++)
        ctx->down[n] = 0;
    for (uint32_t i = 0; i < lost; i++) {
        uint32_t node = hth_read32(&r);

        if (node < ctx->epoch->nodes && node != ctx->epoch->self)
            ctx->down[node] = 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct override o = { hth_read32(&r), hth_read32(&r), hth_read32(&r) };

        holders_set(c, &o);
    }
    word_promise_again(c);
    for (t = c->tracks; t; t = next) {
        struct hth_held_save *s = hth_holdings_find(ctx, t->id);

        next = t->next;
        t->repair_ms = hth_now_ms(&ctx->clock);
        for (struct hth_held *h = s ? s->held : NULL; h; h = h->next)
            if (!s->has_manifest && local_owns(ctx, h) && h->state == HTH_HELD_SEALED && h->slot)
                member_offer(c, s, h);
        member_check(c, t);
    }
}
