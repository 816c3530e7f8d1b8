/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two rings. A save's entry is found by its id, the newest first; an entry that is overwritten is
 * gone. Reports come one after the other, so the report with which half of them are here has the
 * median time: no list of reports is needed.
 */
#include "history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pulling {
    struct hth_save_id save; /* epoch 0: unused */
    uint64_t object, since_ms;
    char from[HTH_NAME_MAX + 1];
};

struct history {
    struct pulling pulling[HISTORY_PULLING];
    uint32_t pulls;             /* how many ever; gives the next place */
    uint64_t saves, recoveries; /* how many ever; gives the next place in the ring */
    uint64_t dropped;
    struct history_save save[HISTORY_SAVES];
    struct history_recovery recovery[HISTORY_RECOVERIES];
};

struct history *history_open(void)
{
    return calloc(1, sizeof(struct history));
}

void history_close(struct history *h)
{
    free(h);
}

/* ---- Reports --------------------------------------------------------------------------------- */

static uint32_t history_since(uint64_t first_ms, uint64_t now_ms)
{
    uint64_t ms = now_ms > first_ms ? now_ms - first_ms : 0;

    return ms < HISTORY_NOT ? (uint32_t)ms : HISTORY_NOT - 1;
}

/* Times of one entry never go back, whatever the clock does. */
static uint32_t history_later(uint32_t *latest_ms, uint32_t ms)
{
    *latest_ms = ms > *latest_ms ? ms : *latest_ms;
    return *latest_ms;
}

static void reports_begin(struct history_reports *r)
{
    *r = (struct history_reports){ .median_ms = HISTORY_NOT };
}

/* count 0: the caller does not count. A first report begins anew: earlier ones do not count any
 * more, as promises of an older map. */
static void reports_add(
        struct history_reports *r, const char *name, uint32_t count, uint32_t due, uint32_t ms)
{
    uint32_t so_far = r->count;

    if (count == 1)
        reports_begin(r);
    if (strncmp(r->last.name, name, HTH_NAME_MAX) != 0)
        r->before = r->last;
    r->count = count ? count : so_far + 1;
    r->due = due;
    snprintf(r->last.name, sizeof(r->last.name), "%.*s", HTH_NAME_MAX, name);
    r->last.ms = ms;
    if (r->median_ms == HISTORY_NOT && due && 2 * (uint64_t)r->count >= due)
        r->median_ms = ms;
}

/* ---- Saves ----------------------------------------------------------------------------------- */

static struct history_save *history_find(struct history *h, struct hth_save_id id)
{
    for (uint64_t i = 0; i < h->saves && i < HISTORY_SAVES; i++) {
        struct history_save *s = &h->save[(h->saves - 1 - i) % HISTORY_SAVES];

        if (hth_save_cmp(s->id, id) == 0)
            return s;
    }
    return NULL;
}

static struct history_save *history_get(
        struct history *h, struct hth_save_id id, uint64_t now_ms, uint64_t wall_ms)
{
    struct history_save *s = history_find(h, id);

    if (s)
        return s;
    s = &h->save[h->saves % HISTORY_SAVES];
    h->dropped += h->saves++ >= HISTORY_SAVES && s->at_ms[HTH_MOMENT_ENDED] == HISTORY_NOT;
    *s = (struct history_save){ .id = id, .first_ms = now_ms, .wall_ms = wall_ms };
    for (uint32_t i = 0; i < HTH_MOMENTS; i++)
        s->at_ms[i] = HISTORY_NOT;
    for (uint32_t i = 0; i < HISTORY_REPORTS; i++)
        reports_begin(&s->reports[i]);
    return s;
}

/* An outcome that was unknown may become known. */
static int history_end(struct history_save *s, const struct hth_happened *happened, uint32_t ms)
{
    if (s->at_ms[HTH_MOMENT_ENDED] != HISTORY_NOT &&
            (s->code != HEARTH_EUNKNOWN || happened->code == HEARTH_EUNKNOWN))
        return 0;
    s->at_ms[HTH_MOMENT_ENDED] = ms;
    s->level = happened->level;
    s->degraded = happened->degraded;
    s->code = happened->code;
    snprintf(s->why, sizeof(s->why), "%s", happened->code && happened->text ? happened->text : "");
    return 1;
}

const struct history_save *history_moment(struct history *h, struct hth_save_id save,
        const struct hth_happened *happened, const char *name, uint64_t now_ms, uint64_t wall_ms)
{
    static const uint32_t kind[] = { [HTH_MOMENT_COPIED] = HISTORY_COPIED,
        [HTH_MOMENT_NODE_DONE] = HISTORY_DONE,
        [HTH_MOMENT_NODE_HELD] = HISTORY_HELD,
        [HTH_MOMENT_NODE_PROMISED] = HISTORY_PROMISED,
        [HTH_MOMENT_RANK] = HISTORY_WRITTEN };
    struct history_save *s = history_get(h, save, now_ms, wall_ms);
    uint32_t ms = history_later(&s->latest_ms, history_since(s->first_ms, now_ms));

    if (happened->what == HTH_MOMENT_ENDED)
        return history_end(s, happened, ms) ? s : NULL;
    if (s->at_ms[HTH_MOMENT_ENDED] != HISTORY_NOT)
        return NULL;
    if (name)
        reports_add(&s->reports[kind[happened->what]], name, happened->count, happened->due, ms);
    if (happened->what < HTH_MOMENTS &&
            (s->at_ms[happened->what] == HISTORY_NOT || happened->what == HTH_MOMENT_COPIED ||
                    happened->what == HTH_MOMENT_PROMISED))
        s->at_ms[happened->what] = ms;
    if (happened->what == HTH_MOMENT_SEALED)
        s->bytes = happened->bytes;
    return NULL;
}

void history_slot(struct history *h, struct hth_save_id save, uint32_t rank, uint64_t ms)
{
    struct history_save *s = history_find(h, save);
    uint32_t waited = history_since(0, ms);

    if (!s || waited <= s->slot_ms)
        return;
    s->slot_rank = rank;
    s->slot_ms = waited;
}

static struct pulling *pulling_find(struct history *h, struct hth_save_id save, uint64_t object)
{
    for (struct pulling *p = h->pulling; p < h->pulling + HISTORY_PULLING; p++)
        if (p->save.epoch && p->object == object && hth_save_cmp(p->save, save) == 0)
            return p;
    return NULL;
}

void history_pull_begin(struct history *h, struct hth_save_id save, uint64_t object,
        const char *from, uint64_t now_ms)
{
    struct pulling *p = pulling_find(h, save, object);

    if (p)
        return; /* another holder offers it, or the same one again */
    p = &h->pulling[h->pulls++ % HISTORY_PULLING];
    *p = (struct pulling){ .save = save, .object = object, .since_ms = now_ms };
    snprintf(p->from, sizeof(p->from), "%.*s", HTH_NAME_MAX, from);
}

void history_pull_end(struct history *h, struct hth_save_id save, uint64_t object, uint64_t bytes,
        uint64_t now_ms)
{
    struct pulling *p = pulling_find(h, save, object);
    struct history_save *s = p ? history_find(h, save) : NULL;
    uint32_t ms = p ? history_since(p->since_ms, now_ms) : 0;

    if (s && s->at_ms[HTH_MOMENT_ENDED] == HISTORY_NOT &&
            (!s->pull.from.name[0] || ms > s->pull.from.ms)) {
        memcpy(s->pull.from.name, p->from, sizeof(p->from));
        s->pull.from.ms = ms;
        s->pull.bytes = bytes;
    }
    if (p)
        *p = (struct pulling){ 0 };
}

/* ---- Recoveries ------------------------------------------------------------------------------ */

static struct history_recovery *history_recovering(struct history *h)
{
    struct history_recovery *r = &h->recovery[(h->recoveries - 1) % HISTORY_RECOVERIES];

    return h->recoveries && r->ms == HISTORY_NOT ? r : NULL;
}

void history_recovery_begin(struct history *h, uint64_t epoch, uint64_t now_ms, uint64_t wall_ms)
{
    struct history_recovery *r = history_recovering(h);

    if (r)
        return;
    r = &h->recovery[h->recoveries++ % HISTORY_RECOVERIES];
    *r = (struct history_recovery){
        .epoch = epoch, .first_ms = now_ms, .wall_ms = wall_ms, .ms = HISTORY_NOT
    };
    reports_begin(&r->inventory);
    reports_begin(&r->vote);
}

void history_recovery_report(struct history *h, int vote, const char *name, uint32_t count,
        uint32_t due, uint64_t now_ms)
{
    struct history_recovery *r = history_recovering(h);

    if (r)
        reports_add(vote ? &r->vote : &r->inventory, name, count, due,
                history_later(&r->latest_ms, history_since(r->first_ms, now_ms)));
}

const struct history_recovery *history_recovery_end(struct history *h, int code, const char *why,
        struct hth_save_id save, const struct hearth_recovery *info, uint64_t now_ms)
{
    struct history_recovery *r = history_recovering(h);

    if (!r)
        return NULL;
    r->ms = history_later(&r->latest_ms, history_since(r->first_ms, now_ms));
    r->code = code;
    if (code) {
        snprintf(r->why, sizeof(r->why), "%.255s", why);
    } else {
        r->save = save;
        r->info = *info;
    }
    return r;
}

uint32_t history_over(struct history *h, const char *why, uint64_t now_ms)
{
    uint32_t ended = 0;

    const struct hth_happened over = {
        .what = HTH_MOMENT_ENDED, .code = HEARTH_EUNKNOWN, .text = why
    };

    for (uint64_t i = 0; i < h->saves && i < HISTORY_SAVES; i++)
        if (h->save[i].at_ms[HTH_MOMENT_ENDED] == HISTORY_NOT)
            ended += history_moment(h, h->save[i].id, &over, NULL, now_ms, 0) != NULL;
    (void)history_recovery_end(h, HEARTH_ECANCELED, why, (struct hth_save_id){ 0 }, NULL, now_ms);
    return ended;
}

/* ---- Questions ------------------------------------------------------------------------------- */

uint64_t history_dropped(const struct history *h)
{
    return h->dropped;
}

const struct history_save *history_save_at(const struct history *h, uint32_t at)
{
    if (at >= h->saves || at >= HISTORY_SAVES)
        return NULL;
    return &h->save[(h->saves - 1 - at) % HISTORY_SAVES];
}

const struct history_recovery *history_recovery_at(const struct history *h, uint32_t at)
{
    if (at >= h->recoveries || at >= HISTORY_RECOVERIES)
        return NULL;
    return &h->recovery[(h->recoveries - 1 - at) % HISTORY_RECOVERIES];
}

uint32_t history_between(const struct history_save *s, enum hth_moment from, enum hth_moment to)
{
    uint32_t a = s->at_ms[from], b = s->at_ms[to];

    return a == HISTORY_NOT || b == HISTORY_NOT ? HISTORY_NOT : b > a ? b - a : 0;
}

uint32_t history_slowest(const struct history_save *s, uint32_t *out_lag_ms)
{
    uint32_t slowest = HISTORY_REPORTS;

    *out_lag_ms = 0;
    for (uint32_t i = HISTORY_DONE; i < HISTORY_REPORTS; i++) {
        const struct history_reports *r = &s->reports[i];
        uint32_t lag_ms = r->median_ms == HISTORY_NOT ? 0 : r->last.ms - r->median_ms;

        if (lag_ms <= *out_lag_ms)
            continue;
        *out_lag_ms = lag_ms;
        slowest = i;
    }
    return slowest;
}

static int history_saw(const struct history_save *s, uint64_t *out_ms)
{
    *out_ms = s->first_ms + s->at_ms[HTH_MOMENT_ENDED];
    return s->at_ms[HTH_MOMENT_ENDED] != HISTORY_NOT && !s->code &&
           s->at_ms[HTH_MOMENT_BEGUN] != HISTORY_NOT;
}

int history_protected_ms(
        const struct history *h, struct hth_save_id save, uint64_t *out_begun_ms, uint64_t *out_ms)
{
    const struct history_save *s;
    uint32_t i = 0;

    while ((s = history_save_at(h, i)) && hth_save_cmp(s->id, save) != 0)
        i++;
    if (!s || !history_saw(s, out_ms))
        return 0;
    *out_begun_ms = s->first_ms + s->at_ms[HTH_MOMENT_BEGUN];
    return 1;
}

static int history_ms_cmp(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

uint64_t history_interval_ms(const struct history *h)
{
    const struct history_save *s, *next = NULL;
    uint64_t ms[HISTORY_INTERVALS], at_ms, next_ms = 0;
    uint32_t count = 0;

    for (uint32_t i = 0; count < HISTORY_INTERVALS && (s = history_save_at(h, i)); i++) {
        if (!history_saw(s, &at_ms))
            continue;
        if (next && next->id.epoch == s->id.epoch && next->id.nonce == s->id.nonce)
            ms[count++] = next_ms > at_ms ? next_ms - at_ms : 0;
        next = s;
        next_ms = at_ms;
    }
    qsort(ms, count, sizeof(ms[0]), history_ms_cmp);
    return count ? ms[count / 2] : 0;
}
