/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes that one fetch pulls from, and what it thinks of each. A source is asked (WANT) and
 * grants (END).
 *
 *   NEW ──WANT──► ASKED ──END──► GRANTED ──pull failed──► AWAY ──time──► ASKED
 *                   └──NAK, other bytes, two wrong pieces, node gone──► OUT
 */
#include "transfer_parts.h"

#include <stdio.h>
#include <stdlib.h>

#define SOURCES_MAX 64u /* of one fetch */

struct source *hth_source_find(struct hth_fetch *f, uint32_t node)
{
    for (uint32_t i = 0; i < f->sources; i++)
        if (f->source[i].node == node)
            return &f->source[i];
    return NULL;
}

struct source *hth_source_add(struct hth_fetch *f, uint32_t node)
{
    struct source *s = hth_source_find(f, node);

    if (s)
        return s;
    if (f->sources >= SOURCES_MAX)
        return NULL;
    s = realloc(f->source, (f->sources + 1) * sizeof(*s));
    if (!s)
        return NULL;
    f->source = s;
    s = &f->source[f->sources++];
    *s = (struct source){ .node = node, .bad_unit = UNIT_NONE };
    return s;
}

struct source *hth_source_join(struct hth_fetch *f, uint32_t node)
{
    struct source *s = hth_source_add(f, node);

    if (s && s->state == SOURCE_OUT && s->bad < HTH_BAD_MAX) {
        s->state = SOURCE_NEW;
        s->gone = 0;
    }
    return s;
}

static uint64_t source_now(const struct hth_fetch *f)
{
    return hth_now_ms(&f->ctx->clock);
}

/* `first` at the first strike, then twice as long each time, up to eight retries. */
static uint64_t source_backoff(const struct hth_fetch *f, const struct source *s, uint64_t first)
{
    uint64_t most = 8 * (uint64_t)f->ctx->opts.retry_ms;
    uint64_t wait = first << (s->strikes < 6 ? s->strikes : 6);

    return wait < most ? wait : most;
}

static void source_say_want(const struct hth_fetch *f, const struct source *s)
{
    struct hth_wire w = { .save = f->save, .id = f->object.id };

    if (!f->whole) {
        w.off = f->off;
        w.len = f->hi - f->off;
    }
    hth_wire_say(f->ctx, s->node, HTH_MSG_WANT, &w);
}

static void source_ask_sum(struct hth_fetch *f, struct source *s)
{
    struct hth_wire w = { .save = f->save, .id = f->object.id, .off = f->lo, .len = f->hi - f->lo };

    s->sum_asked = 1;
    hth_wire_say(f->ctx, s->node, HTH_MSG_SUM_WANT, &w);
}

static int source_may_batch(const struct hth_fetch *f, const struct source *s)
{
    return f->slice && !s->denied &&
           hth_session_version(f->ctx->session, s->node) >= HTH_VERSION_SLICES;
}

static int source_is_inline(const struct hth_fetch *f, const struct source *s)
{
    return source_may_batch(f, s) && f->hi - f->lo <= HTH_SLICE_INLINE;
}

/* Another slice of the object that has asked this node, or has its grant, which is for all fetches
 * of this node. NULL: none, or it is time to renew the grant. */
static const struct source *source_sharer(const struct hth_fetch *f, uint32_t node)
{
    uint64_t now_ms = hth_now_ms(&f->ctx->clock);

    for (struct hth_fetch *g = f->ctx->transfer->fetches; g; g = g->next) {
        const struct source *s = g != f && g->slice && hth_fetch_runs(g) &&
                                                 g->object.id == f->object.id &&
                                                 hth_save_cmp(g->save, f->save) == 0
                                         ? hth_source_find(g, node)
                                         : NULL;

        if (s && s->asked && !s->strikes && now_ms < s->renew_ms &&
                (s->state == SOURCE_ASKED || s->state == SOURCE_GRANTED))
            return s;
    }
    return NULL;
}

static int source_shares(struct hth_fetch *f, struct source *s)
{
    const struct source *other =
            source_may_batch(f, s) && !s->strikes ? source_sharer(f, s->node) : NULL;

    if (!other)
        return 0;
    s->grant = other->grant;
    s->has_grant = other->has_grant; /* 0: END comes for both */
    s->renew_ms = other->renew_ms;
    return 1;
}

void hth_source_ask_slice(struct hth_fetch *f, struct source *s)
{
    if (source_may_batch(f, s))
        s->queued = f->ctx->transfer->slices_queued = 1;
    else if (hth_session_version(f->ctx->session, s->node) >= HTH_VERSION_SUMS)
        source_ask_sum(f, s); /* else its version is not known before END comes */
}

void hth_source_ask(struct hth_fetch *f, struct source *s)
{
    int to_pull = !source_is_inline(f, s);

    s->state = SOURCE_ASKED;
    s->asked |= to_pull;
    s->has_grant = s->has_sum = s->sum_asked = 0;
    s->due_ms = source_now(f) + source_backoff(f, s, f->ctx->opts.retry_ms);
    if (to_pull && !(f->slice && source_shares(f, s)))
        hth_source_renew(f, s);
    if (f->slice)
        hth_source_ask_slice(f, s);
}

struct source *hth_source_first(struct hth_fetch *f)
{
    uint32_t able = 0, at;

    for (uint32_t i = 0; i < f->sources; i++)
        able += i <= f->ctx->opts.copies && source_may_batch(f, &f->source[i]);
    if (!able)
        return NULL;
    at = (uint32_t)(((f->object.id >> 32) + f->object.id + f->chunk0) % able);
    for (uint32_t i = 0; i < f->sources; i++)
        if (source_may_batch(f, &f->source[i]) && !at--)
            return &f->source[i];
    return NULL;
}

/* Those that a slice has not asked yet are asked with the next tick. */
static void source_ask_others(struct hth_fetch *f)
{
    for (uint32_t i = 0; i < f->sources; i++)
        if (f->source[i].state == SOURCE_NEW)
            f->source[i].due_ms = 0;
}

void hth_source_late(struct hth_fetch *f, struct source *s)
{
    hth_fail(&f->cause, HEARTH_ETIMEOUT, 0, "node %" PRIu32 " does not answer", s->node);
    s->strikes++;
    source_ask_others(f);
    hth_source_ask(f, s);
}

void hth_source_renew(struct hth_fetch *f, struct source *s)
{
    s->renew_ms = source_now(f) + RENEW_MS;
    source_say_want(f, s);
}

void hth_source_away(struct hth_fetch *f, struct source *s, int code)
{
    uint64_t retry = f->ctx->opts.retry_ms;
    struct hth_tally_node *tally;

    if (s->state == SOURCE_OUT || s->state == SOURCE_AWAY || !hth_fetch_runs(f))
        return;
    hth_fail(&f->cause, code, 0, "node %" PRIu32 ": %s", s->node, hearth_strerror(code));
    s->state = SOURCE_AWAY;
    /* If a grant has ended, the source is asked again at once. A source that stalls is given
     * time. */
    s->due_ms = source_now(f) +
                (code == HEARTH_EDENIED && !s->strikes
                                ? 0
                                : source_backoff(f, s,
                                          code == HEARTH_ETIMEOUT ? 4 * retry : 1 + retry / 4));
    s->strikes++;
    if ((tally = hth_tally_of(&f->ctx->transfer->tally, s->node)))
        tally->retries++;
    source_ask_others(f);
    hth_say(&f->ctx->log, HEARTH_LOG_DEBUG, "source-away", HTH_SAVE " object '%s': %s",
            HTH_SAVE_ARGS(f->save), f->object.name, f->cause.text);
}

void hth_source_out(struct hth_fetch *f, struct source *s, int code, const char *text)
{
    if (s->state == SOURCE_OUT || !hth_fetch_runs(f))
        return;
    hth_fail(&f->cause, code, 0, "node %" PRIu32 ": %s", s->node, text);
    s->state = SOURCE_OUT;
    s->gone = code == HEARTH_EPEER;
    s->due_ms = HTH_NEVER;
    source_ask_others(f);
    hth_say(&f->ctx->log, HEARTH_LOG_DEBUG, "source-out", HTH_SAVE " object '%s': %s",
            HTH_SAVE_ARGS(f->save), f->object.name, f->cause.text);
}

static void source_unit_text(uint32_t unit, char out[32])
{
    if (unit == UNIT_TABLE)
        snprintf(out, 32, "its table");
    else if (unit == UNIT_BLOCK)
        snprintf(out, 32, "its block");
    else if (unit == UNIT_FILE)
        snprintf(out, 32, "the file");
    else
        snprintf(out, 32, "chunk %" PRIu32, unit);
}

/* Tells the source that its copy is wrong. The source then verifies its copy, and puts it aside if
 * it is damaged. */
static void source_say_bad(const struct hth_fetch *f, const struct source *s, uint32_t unit)
{
    struct hth_wire w = { .save = f->save, .id = f->object.id };

    w.chunk = unit < UNIT_FILE ? unit : UINT64_MAX;
    if (unit != UNIT_FILE)
        hth_wire_say(f->ctx, s->node, HTH_MSG_BAD, &w);
}

void hth_source_bad(struct hth_fetch *f, struct source *s, uint32_t unit, const char *what)
{
    struct hth_tally_node *tally = hth_tally_of(&f->ctx->transfer->tally, s->node);
    char text[200], name[32];

    source_unit_text(unit, name);
    s->bad++;
    if (tally)
        tally->bad++;
    s->bad_unit = unit;
    hth_found_wrong(f->ctx, f->save, &f->object, name,
            s->node < f->ctx->epoch->nodes ? f->ctx->epoch->member[s->node].node : "?");
    source_ask_others(f);
    snprintf(text, sizeof(text), "%s %.150s", name, what);
    hth_fail(&f->cause, HEARTH_ECORRUPT, 0, "node %" PRIu32 ": %s", s->node, text);
    hth_say(&f->ctx->log, HEARTH_LOG_WARN, "bad-chunk",
            HTH_SAVE " object '%s' from node %" PRIu32 ": %s", HTH_SAVE_ARGS(f->save),
            f->object.name, s->node, text);
    source_say_bad(f, s, unit);
    if (s->bad < HTH_BAD_MAX || s->state == SOURCE_OUT)
        return;
    hth_say(&f->ctx->log, HEARTH_LOG_WARN, "bad-peer",
            "node %" PRIu32 " gave %" PRIu32 " wrong pieces of '%s' of " HTH_SAVE
            " and is not asked for it any more: look at its memory",
            s->node, s->bad, f->object.name, HTH_SAVE_ARGS(f->save));
    hth_source_out(f, s, HEARTH_ECORRUPT, text);
}

/* 1: there is a source that has not given this unit wrongly (UNIT_NONE: any source). Without one,
 * all sources may be asked, because otherwise those that gave it wrongly would wait for each
 * other. */
int hth_sources_left(const struct hth_fetch *f, uint32_t bad_unit)
{
    for (uint32_t i = 0; i < f->sources; i++)
        if (f->source[i].state != SOURCE_OUT &&
                (bad_unit == UNIT_NONE || f->source[i].bad_unit != bad_unit))
            return 1;
    return 0;
}
