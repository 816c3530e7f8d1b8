/* SPDX-License-Identifier: Apache-2.0 */
/* The saves under way, newest first, and what became of the last ones. */
#include "commit_state.h"

#include "core/base/bytes.h"

#include <stdio.h>
#include <stdlib.h>

void save_put(unsigned char *out, struct hth_save_id s)
{
    hth_put64(out, s.epoch);
    hth_put64(out + 8, s.nonce);
    hth_put64(out + 16, s.step);
    hth_put32(out + 24, s.attempt);
    hth_put32(out + 28, 0);
}

struct hth_save_id save_get(const unsigned char *in)
{
    return (struct hth_save_id){ hth_get64(in), hth_get64(in + 8), hth_get64(in + 16),
        hth_get32(in + 24) };
}

struct track *track_find(struct hth_commit *c, struct hth_save_id id)
{
    struct track *t = c->tracks;

    while (t && hth_save_cmp(t->id, id) != 0)
        t = t->next;
    return t;
}

struct track *track_get(struct hth_commit *c, struct hth_save_id id)
{
    struct track *t = track_find(c, id);
    struct track **at = &c->tracks;
    const struct hth_ctx *ctx = c->ctx;

    if (t)
        return t;
    t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->id = id;
    t->since_ms = hth_now_ms(&ctx->clock);
    t->repair_ms = HTH_NEVER;
    t->rank = calloc(c->locals ? c->locals : 1, 1);
    if (!t->rank) {
        free(t);
        return NULL;
    }
    while (*at && hth_save_cmp((*at)->id, id) > 0)
        at = &(*at)->next;
    t->next = *at;
    *at = t;
    return t;
}

void track_remove(struct hth_commit *c, struct track *t)
{
    struct track **at = &c->tracks;

    while (*at && *at != t)
        at = &(*at)->next;
    if (*at)
        *at = t->next;
    hth_draft_free(t->draft);
    free(t->rank);
    free(t->ranks);
    free(t);
}

static int ranks_differ(
        const struct hth_ranks *a, const struct hth_ranks *b, struct hearth_error *err)
{
    char one[80], other[80];

    if (hth_ranks_same(a, b))
        return HEARTH_OK;
    hth_ranks_say(a, one, sizeof(one));
    hth_ranks_say(b, other, sizeof(other));
    return hth_fail(err, HEARTH_EINVAL, 0,
            "ranks %s and ranks %s are named for one save: one of the two sets saves another step, or with "
            "other ranks",
            one, other);
}

int ranks_name(struct hth_ranks **known, struct hth_save_id id, const struct hth_ranks *ranks,
        struct hearth_error *err)
{
    uint32_t bits = ranks ? hth_ranks_bits(ranks) : 0;

    if (hth_attempt_set(id.attempt) != bits)
        return hth_fail(err, HEARTH_EPROTO, 0, HTH_SAVE " is not of the ranks that are named",
                HTH_SAVE_ARGS(id));
    if (!bits)
        return HEARTH_OK;
    if (*known)
        return ranks_differ(*known, ranks, err);
    *known = hth_ranks_copy(ranks);
    return *known ? HEARTH_OK : hth_fail(err, HEARTH_ENOMEM, 0, "a set of ranks");
}

int track_name(struct track *t, const struct hth_ranks *ranks, struct hearth_error *err)
{
    return ranks_name(&t->ranks, t->id, ranks, err);
}

int track_has(const struct hth_commit *c, const struct track *t, uint32_t i)
{
    if (!hth_attempt_set(t->id.attempt) || hth_breaks(c->ctx, HTH_BREAK_SET_DONE))
        return 1;
    return t->ranks && hth_ranks_have(t->ranks, c->local[i].rank);
}

int track_is_refused(const struct hth_commit *c, const struct track *t)
{
    return t->refusal.text[0] && hth_now_ms(&c->ctx->clock) < t->refusal.until_ms;
}

void track_note(
        const struct hth_commit *c, struct hth_save_id save, const struct hth_happened *happened)
{
    if (c->events.on_moment &&
            (happened->what == HTH_MOMENT_ENDED || head_fate(c, save) == FATE_OPEN))
        c->events.on_moment(c->events.self, save, happened);
}

void track_level(struct hth_commit *c, struct track *t, enum hearth_level level)
{
    if (t->level >= level)
        return;
    t->level = level;
    if (level == HEARTH_COMPLETE)
        track_note(c, t->id, &(struct hth_happened){ .what = HTH_MOMENT_COMPLETE });
    if (t->unknown)
        return;
    c->events.on_level(c->events.self, t->id, HTH_NODE_NONE, level, 0, HEARTH_OK, "");
}

void outcome_put(struct hth_commit *c, struct hth_save_id id, enum hearth_level level, int degraded,
        int code, const char *text)
{
    struct outcome *o = NULL;

    for (uint32_t i = 0; i < OUTCOMES && !o; i++)
        if (hth_save_cmp(c->outcome[i].id, id) == 0)
            o = &c->outcome[i];
    if (!o)
        o = &c->outcome[c->outcomes++ % OUTCOMES];
    *o = (struct outcome){ .id = id, .degraded = degraded, .code = code };
    o->level = level ? level : HEARTH_WRITTEN; /* level 0: an unused entry */
    snprintf(o->text, sizeof(o->text), "%s", text);
    track_note(c, id,
            &(struct hth_happened){ .what = HTH_MOMENT_ENDED,
                    .level = o->level,
                    .degraded = degraded,
                    .code = code,
                    .text = o->text });
}

const struct outcome *outcome_find(const struct hth_commit *c, struct hth_save_id id)
{
    for (uint32_t i = 0; i < OUTCOMES; i++)
        if (c->outcome[i].level && hth_save_cmp(c->outcome[i].id, id) == 0)
            return &c->outcome[i];
    return NULL;
}

void track_end(struct hth_commit *c, struct track *t, enum hearth_level level, int degraded,
        int code, const char *text)
{
    struct hth_save_id id = t->id;
    int told = t->unknown;

    outcome_put(c, id, level, degraded, code, text);
    track_remove(c, t);
    if (!told)
        c->events.on_level(c->events.self, id, HTH_NODE_NONE, level, degraded, code, text);
}

/* This node's objects of the save take the room of other saves until a head names the save, and
 * the coordinator may never have received a fact of it: this node keeps reporting that the save has
 * failed. If this node holds nothing of it, the track ends. */
int track_unknown(struct hth_commit *c, struct track *t, const char *text)
{
    const struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);

    if (!s || s->removed || head_fate(c, t->id) != FATE_OPEN) {
        track_end(c, t, t->level, 0, HEARTH_EUNKNOWN, text);
        return 1;
    }
    t->unknown = 1;
    outcome_put(c, t->id, t->level, 0, HEARTH_EUNKNOWN, text);
    c->events.on_level(c->events.self, t->id, HTH_NODE_NONE, t->level, 0, HEARTH_EUNKNOWN, text);
    return 0;
}

/* ---- The ranks of this node --------------------------------------------------------------- */

/* An engine that was started again joins its epoch anew if the record of the epoch was damaged. It
 * then holds saves of this epoch. If it counted begins from 0, a begin would get the id of such a
 * save. */
static void locals_count(struct hth_commit *c)
{
    const struct hth_epoch *e = c->ctx->epoch;

    for (struct hth_held_save *s = hth_holdings_first(c->ctx); s; s = s->next)
        for (const struct hth_held *h = s->held; h; h = h->next)
            if (s->id.epoch == e->epoch && s->id.nonce == e->nonce)
                hth_commit_count(c, h->object.owner, s->id.step, s->id.attempt);
}

int locals_make(struct hth_commit *c, struct hearth_error *err)
{
    const struct hth_epoch *e = c->ctx->epoch;
    uint32_t n = 0;

    for (uint32_t r = 0; r < e->world; r++)
        n += e->rank_node[r] == e->self;
    free(c->local);
    c->locals = 0;
    c->local = calloc(n ? n : 1, sizeof(*c->local));
    if (!c->local)
        return hth_fail(err, HEARTH_ENOMEM, 0, "%" PRIu32 " ranks", n);
    for (uint32_t r = 0; r < e->world; r++)
        if (e->rank_node[r] == e->self)
            c->local[c->locals++] = (struct local_rank){ .rank = r };
    locals_count(c);
    return HEARTH_OK;
}

struct local_rank *local_find(struct hth_commit *c, uint32_t rank)
{
    for (uint32_t i = 0; i < c->locals; i++)
        if (c->local[i].rank == rank)
            return &c->local[i];
    return NULL;
}

void hth_commit_count(struct hth_commit *c, uint32_t rank, uint64_t step, uint32_t begun)
{
    struct local_rank *l = local_find(c, rank);

    if (l)
        hth_attempts_heard(&l->begun, step, begun);
}

void local_passes(struct local_rank *l, uint64_t step)
{
    l->passed = step > l->passed ? step : l->passed;
}

void hth_commit_passes(struct hth_commit *c, uint32_t rank, uint64_t step)
{
    struct local_rank *l = local_find(c, rank);

    if (c->running && l)
        local_passes(l, step);
}

uint32_t hth_commit_counted(const struct hth_commit *c, uint32_t rank, uint64_t *out_step)
{
    for (uint32_t i = 0; i < c->locals; i++)
        if (c->local[i].rank == rank && c->local[i].begun.sets) {
            *out_step = c->local[i].begun.step;
            return hth_attempts_last(&c->local[i].begun);
        }
    return 0;
}

int local_owns(const struct hth_ctx *ctx, const struct hth_held *h)
{
    return h->object.owner < ctx->epoch->world &&
           ctx->epoch->rank_node[h->object.owner] == ctx->epoch->self;
}
