/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened to saves, noted as ranks ask and hear and as keep records are written; and the
 * judge of what engines remember (engine/state/history.h). A false word is P8.
 */
#include "world_parts.h"

#include "engine/state/history.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define ASKED_MS 3000u /* that a rank waits for the answer to BEGIN */
#define MACHINES 512u  /* in a larger world nothing is noted of what ranks do */

struct noted {
    struct hth_save_id id;
    uint32_t machine;  /* whose rank it was */
    uint64_t asked_ms; /* the first rank that has a slot for it sent BEGIN */
    uint64_t heard_ms; /* a rank heard its end; 0: none did */
};

struct begin_sent { /* a rank sent BEGIN; it may never have had an answer */
    uint64_t step, ms;
    uint32_t machine;
};

struct decision { /* PROTECTED, by some coordinator's record */
    struct hth_save_id id;
    int own; /* in the epoch that it was begun in; else a recovery had chosen it, or it is lost */
};

struct world_past {
    struct decision *decided;
    struct noted *noted;
    struct begin_sent *asked;
    size_t decisions, notes, asks;
};

struct world_past *past_open(void)
{
    struct world_past *past = calloc(1, sizeof(*past));

    if (!past)
        abort();
    return past;
}

void past_close(struct world_past *past)
{
    free(past->decided);
    free(past->noted);
    free(past->asked);
    free(past);
}

size_t past_bytes(const struct world_past *past)
{
    return malloc_usable_size(past->decided) + malloc_usable_size(past->noted) +
           malloc_usable_size(past->asked);
}

/* ---- What happens ---------------------------------------------------------------------------- */

static struct decision *past_decision(const struct world_past *past, struct hth_save_id id)
{
    for (size_t i = past->decisions; i-- > 0;)
        if (look_same(past->decided[i].id, id))
            return &past->decided[i];
    return NULL;
}

void past_decided(struct machine *x, const struct hth_save_id *keep, uint32_t saves)
{
    struct world_past *past = x->world->notes;
    const struct hth_ctx *ctx = x->node ? hth_node_ctx(x->node) : NULL;

    for (uint32_t i = 0; i < saves; i++) {
        int own = ctx && ctx->epoch && ctx->epoch->epoch == keep[i].epoch;
        struct decision *d = past_decision(past, keep[i]);

        if (d) {
            d->own |= own;
            continue;
        }
        past->decided = realloc(past->decided, (past->decisions + 1) * sizeof(past->decided[0]));
        if (!past->decided)
            abort();
        past->decided[past->decisions++] = (struct decision){ keep[i], own };
    }
}

void past_lost(const struct world *w)
{
    for (size_t i = 0; i < w->notes->decisions; i++)
        w->notes->decided[i].own = 0;
}

static struct noted *past_find(
        const struct world_past *past, uint32_t machine, struct hth_save_id id)
{
    for (size_t i = past->notes; i-- > 0;)
        if (past->noted[i].machine == machine && look_same(past->noted[i].id, id))
            return &past->noted[i];
    return NULL;
}

void past_asked(struct rank_state *r)
{
    struct world_past *past = r->world->notes;

    r->asked_ms = r->world->now_ms;
    if (r->world->machines > MACHINES)
        return;
    past->asked = realloc(past->asked, (past->asks + 1) * sizeof(past->asked[0]));
    if (!past->asked)
        abort();
    past->asked[past->asks++] = (struct begin_sent){ r->next, r->asked_ms, r->machine };
}

void past_begun(const struct rank_state *r)
{
    struct world_past *past = r->world->notes;
    struct noted *n = past_find(past, r->machine, r->save);

    if (r->world->machines > MACHINES)
        return;
    if (n) {
        n->asked_ms = r->asked_ms < n->asked_ms ? r->asked_ms : n->asked_ms;
        return;
    }
    past->noted = realloc(past->noted, (past->notes + 1) * sizeof(past->noted[0]));
    if (!past->noted)
        abort();
    past->noted[past->notes++] = (struct noted){ r->save, r->machine, r->asked_ms, 0 };
}

/* When the machine's first rank may have begun it: a rank whose BEGIN had no answer may have been
 * that, no longer ago than a rank waits for one. */
static uint64_t past_asked_ms(const struct world_past *past, const struct noted *n)
{
    uint64_t first = n->asked_ms;

    for (size_t i = 0; i < past->asks; i++) {
        const struct begin_sent *a = &past->asked[i];

        if (a->machine == n->machine && a->step == n->id.step && a->ms < first &&
                a->ms + ASKED_MS >= n->asked_ms)
            first = a->ms;
    }
    return first;
}

/* ---- What is remembered ---------------------------------------------------------------------- */

static void past_wrong(const struct machine *x, const struct history_save *s, const char *what)
{
    world_broken(x->world, "P8: the engine of machine %u remembers of step %llu, attempt %u, %s",
            x->index, (unsigned long long)s->id.step, s->id.attempt, what);
}

/* 0: both are known, and `a` was later than `b`. */
static int past_in_order(const struct history_save *s, enum hth_moment a, enum hth_moment b)
{
    return s->at_ms[a] == HISTORY_NOT || s->at_ms[b] == HISTORY_NOT || s->at_ms[a] <= s->at_ms[b];
}

static void past_judge_order(const struct machine *x, const struct history_save *s)
{
    int right = past_in_order(s, HTH_MOMENT_BEGUN, HTH_MOMENT_COMMITTED) &&
                past_in_order(s, HTH_MOMENT_COMMITTED, HTH_MOMENT_SEALED) &&
                past_in_order(s, HTH_MOMENT_OFFERED, HTH_MOMENT_COPIED) &&
                past_in_order(s, HTH_MOMENT_HELD, HTH_MOMENT_PROMISED);

    for (uint32_t i = 0; i < HTH_MOMENT_ENDED; i++)
        right &= past_in_order(s, (enum hth_moment)i, HTH_MOMENT_ENDED);
    if (!right)
        past_wrong(x, s, "moments in an order that cannot be");
}

static void past_judge_reports(const struct machine *x, const struct history_save *s)
{
    const struct history_reports *done = &s->reports[HISTORY_DONE];

    for (uint32_t i = HISTORY_DONE; i < HISTORY_REPORTS; i++) {
        const struct history_reports *r = &s->reports[i];

        if (r->count > r->due || (r->median_ms != HISTORY_NOT && r->median_ms > r->last.ms) ||
                r->before.ms > r->last.ms)
            past_wrong(x, s, "reports of nodes that cannot be");
    }
    if (done->count && s->at_ms[HTH_MOMENT_BEGUN] != HISTORY_NOT &&
            s->at_ms[HTH_MOMENT_ENDED] != HISTORY_NOT && !s->code && done->count != done->due)
        past_wrong(x, s, "PROTECTED, and not that all nodes were done");
}

/* An engine that is left behind in an epoch may cancel there what a recovery has chosen. Where the
 * user accepts a loss, a later epoch may cancel what is left of saves before it. */
static void past_judge_end(const struct machine *x, const struct history_save *s)
{
    const struct decision *decided = past_decision(x->world->notes, s->id);

    if (s->at_ms[HTH_MOMENT_ENDED] == HISTORY_NOT)
        return;
    if (!s->code && (s->level != HEARTH_PROTECTED || !decided))
        past_wrong(x, s, "PROTECTED, which no coordinator has written");
    if (s->code && s->code != HEARTH_EUNKNOWN && decided && decided->own)
        past_wrong(x, s, "a failure, and it was PROTECTED");
    if (s->code && !s->why[0])
        past_wrong(x, s, "a failure without its reason");
}

/* From the first begin to the end no more time has passed than between what a rank sent before and
 * heard afterwards. While an engine is blocked, its clock is ahead of ours. */
static void past_judge_time(const struct machine *x, const struct history_save *s)
{
    const struct noted *n = past_find(x->world->notes, x->index, s->id);
    uint32_t ms = history_between(s, HTH_MOMENT_BEGUN, HTH_MOMENT_ENDED);

    if (n && n->heard_ms && ms != HISTORY_NOT && !x->world->hits[WORLD_KIND_BLOCK] &&
            ms > (n->heard_ms - past_asked_ms(x->world->notes, n) + 2) * x->rate / 1000 + 1)
        past_wrong(x, s, "a longer time than it took");
}

static void past_judge_save(const struct machine *x, const struct history_save *s)
{
    past_judge_order(x, s);
    past_judge_reports(x, s);
    past_judge_end(x, s);
    past_judge_time(x, s);
}

/* Reports are of nodes that have to send them, and a recovery that has failed has its reason. */
static void past_judge_recovery(const struct machine *x, const struct history_recovery *r)
{
    const struct history_reports *reports[] = { &r->inventory, &r->vote };
    int wrong = 0;

    for (int i = 0; i < 2; i++)
        wrong |= (reports[i]->due && reports[i]->count > reports[i]->due) ||
                 (reports[i]->median_ms != HISTORY_NOT &&
                         reports[i]->median_ms > reports[i]->last.ms) ||
                 reports[i]->before.ms > reports[i]->last.ms ||
                 (r->ms != HISTORY_NOT && reports[i]->last.ms > r->ms);
    if (wrong)
        world_broken(x->world,
                "P8: the engine of machine %u remembers of a recovery reports that "
                "cannot be",
                x->index);
    if (r->ms != HISTORY_NOT && r->code && !r->why[0])
        world_broken(x->world,
                "P8: the engine of machine %u remembers a failed recovery without "
                "its reason",
                x->index);
}

void past_judge(struct machine *x)
{
    const struct history_recovery *r;
    const struct history *h = x->node ? hth_node_history(x->node) : NULL;
    const struct history_save *s;

    for (uint32_t i = 0; h && (s = history_save_at(h, i)); i++)
        past_judge_save(x, s);
    for (uint32_t i = 0; h && (r = history_recovery_at(h, i)); i++)
        past_judge_recovery(x, r);
}

/* The engine remembers the end as it reports it. An engine that was started since may not know of
 * the save. */
void past_heard(const struct rank_state *r, const struct hth_local_event *e)
{
    const struct machine *x = &r->world->machine[r->machine];
    struct noted *n = past_find(r->world->notes, r->machine, r->save);
    const struct history *h = x->node ? hth_node_history(x->node) : NULL;
    const struct history_save *s = NULL;

    if (!e->code && e->level < HEARTH_PROTECTED)
        return;
    if (n && !n->heard_ms && e->code != HEARTH_EUNKNOWN)
        n->heard_ms = r->world->now_ms;
    for (uint32_t i = 0; h && (s = history_save_at(h, i)) && !look_same(s->id, r->save); i++)
        ;
    if (!s || s->at_ms[HTH_MOMENT_ENDED] == HISTORY_NOT || e->code == HEARTH_EUNKNOWN ||
            s->code == HEARTH_EUNKNOWN)
        return;
    if ((e->code != 0) != (s->code != 0) || (e->code && strncmp(e->text, s->why, 199) != 0))
        past_wrong(x, s, "another end than its ranks hear");
}
