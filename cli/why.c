/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why: what the engine of this node remembers of a save or a recovery: a bar for each phase beside
 * the median of the saves before it, the slowest nodes by name, and why it failed.
 */
#include "cli.h"

#include "core/local/local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR     32
#define MEDIANS 256u /* saves that an engine remembers */

struct why {
    int job;
    json_t *page;      /* with the entry */
    const json_t *row; /* in it; NULL: none was found */
    size_t at;         /* its place there */
};

static json_int_t number(const json_t *of, const char *key)
{
    return json_integer_value(json_object_get(of, key));
}

static const char *words(const json_t *of, const char *key)
{
    const char *text = json_string_value(json_object_get(of, key));

    return text ? text : "";
}

/* ---- What the engine has --------------------------------------------------------------------- */

static int why_is_of(const json_t *row, const uint64_t *step)
{
    struct hth_save_id id;

    return !step || (!hth_save_parse(words(row, "save"), &id) && id.step == *step);
}

/* Looks for the newest entry, or the newest of that step, page by page. */
static int why_find(struct why *w, uint32_t what, const uint64_t *step, struct hearth_error *err)
{
    const char *list = what == HTH_HISTORY_SAVES ? "saves" : "recoveries";
    const json_t *rows;
    uint32_t skip = 0;

    do {
        char *text = engine_history(w->job, what, skip, err);

        if (!text)
            return err->code;
        json_decref(w->page);
        w->page = json_loads(text, 0, NULL);
        free(text);
        rows = json_object_get(w->page, list);
        if (!json_is_array(rows))
            return hth_fail(err, HEARTH_EPROTO, 0, "the engine's answer cannot be read");
        for (w->at = 0; w->at < json_array_size(rows); w->at++) {
            w->row = json_array_get(rows, w->at);
            if (why_is_of(w->row, step))
                return HEARTH_OK;
        }
        w->row = NULL;
        skip += HTH_HISTORY_PAGE;
    } while (json_array_size(rows) == HTH_HISTORY_PAGE);
    return HEARTH_OK;
}

static int why_compare(const void *a, const void *b)
{
    const json_int_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static json_int_t why_phase_ms(const json_t *row, const char *name)
{
    const json_t *phase;
    size_t i;

    json_array_foreach(json_object_get(row, "phases"), i,
            phase) if (!strcmp(words(phase, "phase"), name)) return number(phase, "to_ms") -
            number(phase, "from_ms");
    return -1;
}

/* Of the phase in the saves before this one in the page that were protected; -1: there are none. */
static json_int_t why_median(const struct why *w, const char *name)
{
    const json_t *rows = json_object_get(w->page, "saves");
    json_int_t ms[MEDIANS], one;
    size_t count = 0;

    for (size_t i = w->at + 1; i < json_array_size(rows) && count < MEDIANS; i++) {
        const json_t *row = json_array_get(rows, i);

        if (!strcmp(words(row, "state"), "protected") && (one = why_phase_ms(row, name)) >= 0)
            ms[count++] = one;
    }
    if (!count)
        return -1;
    qsort(ms, count, sizeof(ms[0]), why_compare);
    return ms[count / 2];
}

/* ---- For people ------------------------------------------------------------------------------ */

static void why_bar(const json_t *phase, json_int_t whole, json_int_t median)
{
    json_int_t from = number(phase, "from_ms"), to = number(phase, "to_ms");
    char bar[BAR + 1];
    json_int_t a, b;

    whole = whole > 0 ? whole : 1;
    a = from * BAR / whole;
    b = (to * BAR + whole - 1) / whole;
    a = a < BAR ? a : BAR - 1;
    b = b > a ? b : a + 1;
    for (json_int_t i = 0; i < BAR; i++)
        bar[i] = i >= a && i < b ? '#' : ' ';
    bar[BAR] = '\0';
    say("%-9.9s |%s| %8" JSON_INTEGER_FORMAT " ms", words(phase, "phase"), bar, to - from);
    if (median >= 0)
        say("  (median %" JSON_INTEGER_FORMAT " ms)", median);
    say("\n");
}

static void why_bars(const struct why *w)
{
    const json_t *phases = json_object_get(w->row, "phases"), *phase;
    json_int_t whole = 0;
    size_t i;

    json_array_foreach(phases, i, phase) whole =
            number(phase, "to_ms") > whole ? number(phase, "to_ms") : whole;
    json_array_foreach(phases, i, phase)
            why_bar(phase, whole, why_median(w, words(phase, "phase")));
}

/* One line of a kind of report: how many nodes, the last and the one before it. */
static void why_reports(const struct why *w, const char *key)
{
    const json_t *r = json_object_get(w->row, key), *last = json_object_get(r, "last");
    const json_t *before = json_object_get(r, "before");
    const json_t *median = json_object_get(r, "median_ms");

    if (!r)
        return;
    say("%-9s ", key);
    if (number(r, "due"))
        say("%" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT "; ", number(r, "count"),
                number(r, "due"));
    say("last: %s at %" JSON_INTEGER_FORMAT " ms", words(last, "node"), number(last, "ms"));
    if (median)
        say(" (median %" JSON_INTEGER_FORMAT " ms)", json_integer_value(median));
    if (before)
        say("; before it: %s at %" JSON_INTEGER_FORMAT " ms", words(before, "node"),
                number(before, "ms"));
    say("\n");
}

static void why_elsewhere(const struct why *w)
{
    const char *node = words(w->page, "coordinator");

    if (node[0] && strcmp(node, words(w->page, "node")) != 0)
        say("The coordinator knows which node was slowest of all: ask on node %s.\n", node);
}

static void why_age(const struct why *w, char out[32])
{
    human_age(out, (int64_t)time(NULL) - number(w->row, "since_ms") / 1000);
}

static void why_save(const struct why *w)
{
    struct hth_save_id id = { 0 };
    char age[32], bytes[32];

    (void)hth_save_parse(words(w->row, "save"), &id);
    why_age(w, age);
    human(bytes, (uint64_t)number(w->row, "bytes"));
    say("step %" PRIu64 ", try %" PRIu32 "%s: %s", id.step, hth_attempt_count(id.attempt),
            hth_attempt_of(id.attempt), words(w->row, "state"));
    if (json_object_get(w->row, "ms"))
        say(" after %" JSON_INTEGER_FORMAT " ms", number(w->row, "ms"));
    say("; begun %s ago; %s of node %s\n", age, bytes, words(w->page, "node"));
    if (words(w->row, "reason")[0])
        say("reason: %s\n", words(w->row, "reason"));
    why_bars(w);
    why_reports(w, "copied");
    why_reports(w, "sealed");
    why_reports(w, "held");
    why_reports(w, "promised");
    why_elsewhere(w);
}

static void why_recovery(const struct why *w)
{
    char age[32], bytes[32];

    why_age(w, age);
    human(bytes, (uint64_t)number(w->row, "pulled_bytes"));
    say("recovery: %s", words(w->row, "state"));
    if (json_object_get(w->row, "ms"))
        say(" after %" JSON_INTEGER_FORMAT " ms", number(w->row, "ms"));
    say("; begun %s ago; %s pulled by node %s\n", age, bytes, words(w->page, "node"));
    if (words(w->row, "text")[0])
        say("%s\n", words(w->row, "text"));
    if (words(w->row, "reason")[0])
        say("reason: %s\n", words(w->row, "reason"));
    why_bars(w);
    why_reports(w, "inventory");
    why_reports(w, "vote");
    why_elsewhere(w);
}

/* ---- For programs ---------------------------------------------------------------------------- */

static enum status why_json(const struct why *w, const char *key)
{
    json_t *medians = json_object(), *out = json_object();
    const json_t *phase;
    size_t i;

    json_array_foreach(json_object_get(w->row, "phases"), i, phase)
    {
        json_int_t ms = why_median(w, words(phase, "phase"));

        if (ms >= 0)
            json_object_set_new(medians, words(phase, "phase"), json_integer(ms));
    }
    json_object_set(out, "node", json_object_get(w->page, "node"));
    json_object_set(out, "coordinator", json_object_get(w->page, "coordinator"));
    json_object_set(out, key, (json_t *)(uintptr_t)w->row);
    json_object_set_new(out, "medians_ms", medians);
    json_object_set(out, "peers", json_object_get(w->page, "peers"));
    return print_json(out);
}

static int why_step(const char *text, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || *end || errno ? HEARTH_EINVAL : HEARTH_OK;
}

static enum status why_show(const struct args *a, struct why *w)
{
    struct hearth_error err = { 0 };
    uint64_t step = 0;
    int rc;

    if (a->count == 2 && a->recovery)
        return complain_usage("why: --recovery takes no step");
    if (a->count == 2 && why_step(a->value[1], &step))
        return complain_usage("why: '%.64s' is not a step", a->value[1]);
    rc = why_find(w, a->recovery ? HTH_HISTORY_RECOVERIES : HTH_HISTORY_SAVES,
            a->count == 2 ? &step : NULL, &err);
    if (rc)
        return complain(&err);
    if (!w->row) {
        hth_fail(&err, HEARTH_ENOENT, 0, "the engine of node %.64s remembers no such %s",
                words(w->page, "node"), a->recovery ? "recovery" : "save");
        return complain(&err);
    }
    if (a->json)
        return why_json(w, a->recovery ? "recovery" : "save");
    if (a->recovery)
        why_recovery(w);
    else
        why_save(w);
    return STATUS_OK;
}

enum status run_why(const struct args *a)
{
    struct hearth_error err = { 0 };
    struct why w = { .job = -1 };
    enum status status;
    int rc;

    if (!a->root)
        return complain_usage("why: which root? give --root or HEARTH_ROOT");
    rc = job_open(a->root, a->value[0], &w.job, &err);
    rc = rc ? rc : job_check(w.job, a->value[0], &err);
    if (rc == HEARTH_ENOENT)
        hth_fail(&err, rc, 0, "there is no job '%.64s' in %.300s", a->value[0], a->root);
    status = rc ? complain(&err) : why_show(a, &w);
    json_decref(w.page);
    if (w.job >= 0)
        close(w.job);
    return status;
}
