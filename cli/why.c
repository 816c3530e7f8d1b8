/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why: what the engines of this node, of the coordinator and of the slowest node remember of a save
 * or a recovery: in one line what was slowest, a bar for each phase here beside the median of the
 * saves before it, the last nodes by name, and why it failed.
 */
#include "verdict.h"

#include "core/local/local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR 32

struct why {
    int job;
    uint32_t what;            /* HTH_HISTORY_... */
    struct found here;        /* this node's */
    struct found coordinator; /* the coordinator's; page NULL: it is this node, or lost says why */
    struct found node;        /* of verdict_node() */
    struct hearth_error lost; /* the coordinator has not answered */
};

/* What an entry is found by; all empty: the newest. */
struct wanted {
    const uint64_t *step;
    const char *save;
    json_int_t epoch;
};

/* ---- What engines have ----------------------------------------------------------------------- */

static int why_is_wanted(const json_t *row, const struct wanted *want)
{
    struct hth_save_id id;

    if (want->save)
        return !strcmp(found_words(row, "save"), want->save);
    if (want->epoch)
        return found_number(row, "epoch") == want->epoch;
    return !want->step ||
           (!hth_save_parse(found_words(row, "save"), &id) && id.step == *want->step);
}

/* Page by page, of the engine here (node NULL) or of another one. f->row NULL: it is not there. */
static int why_find(const struct why *w, const char *node, const struct wanted *want,
        struct found *f, struct hearth_error *err)
{
    const char *list = w->what == HTH_HISTORY_SAVES ? "saves" : "recoveries";
    const json_t *rows;
    uint32_t skip = 0;

    do {
        char *text = node ? engine_elsewhere(w->job, HTH_NODE_NONE, node, HTH_LOCAL_HISTORY,
                                    w->what, skip, err)
                          : engine_history(w->job, w->what, skip, err);

        if (!text)
            return err->code;
        json_decref(f->page);
        f->page = json_loads(text, 0, NULL);
        free(text);
        rows = json_object_get(f->page, list);
        if (!json_is_array(rows))
            return hth_fail(err, HEARTH_EPROTO, 0, "the engine's answer cannot be read");
        for (f->at = 0; f->at < json_array_size(rows); f->at++) {
            f->row = json_array_get(rows, f->at);
            if (why_is_wanted(f->row, want))
                return HEARTH_OK;
        }
        f->row = NULL;
        skip += HTH_HISTORY_PAGE;
    } while (json_array_size(rows) == HTH_HISTORY_PAGE);
    return HEARTH_OK;
}

/* The coordinator's record of the same save or recovery, or of `want` where there is none here. */
static void why_ask_coordinator(struct why *w, const struct wanted *want)
{
    const char *node = found_words(w->here.page, "coordinator");
    const struct wanted same = {
        .save = w->what == HTH_HISTORY_SAVES ? found_words(w->here.row, "save") : NULL,
        .epoch = found_number(w->here.row, "epoch")
    };

    if (node[0] && strcmp(node, found_words(w->here.page, "node")) != 0)
        (void)why_find(w, node, w->here.row ? &same : want, &w->coordinator, &w->lost);
}

/* What has the reports of all nodes. */
static const struct found *why_judge(const struct why *w)
{
    return w->coordinator.row ? &w->coordinator : &w->here;
}

/* The record of the node that was slowest: one of those that are here, or that node's own. */
static const struct found *why_culprit(struct why *w)
{
    const char *node = verdict_node(why_judge(w));
    const struct wanted same = { .save = found_words(why_judge(w)->row, "save") };
    struct hearth_error err = { 0 };

    if (!node || !strcmp(node, found_words(w->here.page, "node")))
        return &w->here;
    if (!strcmp(node, found_words(w->coordinator.page, "node")))
        return &w->coordinator;
    (void)why_find(w, node, &same, &w->node, &err);
    return &w->node;
}

/* NULL: it failed, it waits for something, or nothing can be said. */
static json_t *why_verdict(struct why *w)
{
    const struct found *judge = why_judge(w);

    if (w->what != HTH_HISTORY_SAVES || json_object_get(judge->row, "error") ||
            !strcmp(found_words(judge->row, "state"), "undecided") || w->lost.code)
        return NULL;
    return verdict_of(judge, why_culprit(w));
}

/* ---- For people ------------------------------------------------------------------------------ */

static void why_bar(const json_t *phase, json_int_t whole, json_int_t median)
{
    json_int_t from = found_number(phase, "from_ms"), to = found_number(phase, "to_ms");
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
    say("%-9.9s |%s| %8" JSON_INTEGER_FORMAT " ms", found_words(phase, "phase"), bar, to - from);
    if (median >= 0)
        say("  (median %" JSON_INTEGER_FORMAT " ms)", median);
    say("\n");
}

static void why_bars(const struct found *f)
{
    const json_t *phases = json_object_get(f->row, "phases"), *phase;
    json_int_t whole = 0;
    size_t i;

    json_array_foreach(phases, i, phase) whole =
            found_number(phase, "to_ms") > whole ? found_number(phase, "to_ms") : whole;
    json_array_foreach(phases, i, phase)
            why_bar(phase, whole, found_median(f, found_words(phase, "phase")));
}

static void why_last(const char *what, const json_t *last)
{
    if (json_object_get(last, "rank"))
        say("%s: rank %" JSON_INTEGER_FORMAT, what, found_number(last, "rank"));
    else
        say("%s: %s", what, found_words(last, "node"));
    say(" at %" JSON_INTEGER_FORMAT " ms", found_number(last, "ms"));
}

/* One line of a kind of report: how many nodes, the last and the one before it. */
static void why_reports(const struct found *f, const char *key)
{
    const json_t *r = json_object_get(f->row, key), *last = json_object_get(r, "last");
    const json_t *before = json_object_get(r, "before");
    const json_t *median = json_object_get(r, "median_ms");

    if (!r)
        return;
    say("%-9s ", key);
    if (found_number(r, "due"))
        say("%" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT "; ", found_number(r, "count"),
                found_number(r, "due"));
    why_last("last", last);
    if (median)
        say(" (median %" JSON_INTEGER_FORMAT " ms)", json_integer_value(median));
    if (before)
        why_last("; before it", before);
    say("\n");
}

static void why_age(const struct found *f, char out[32])
{
    human_age(out, (int64_t)time(NULL) - found_number(f->row, "since_ms") / 1000);
}

/* Reports of all nodes: of this record, if it is the coordinator's, or of the coordinator's. */
static void why_all_nodes(const struct why *w, const struct found *f, const char *const keys[])
{
    const char *node = found_words(w->here.page, "coordinator");

    if (w->lost.code) {
        say("The coordinator, node %s, does not answer: %s.\n", node, w->lost.text);
        return;
    }
    if (w->coordinator.page && !w->coordinator.row) {
        say("The coordinator, node %s, remembers nothing of it.\n", node);
        return;
    }
    if (f != why_judge(w))
        say("node %s, the coordinator:\n", node);
    for (size_t i = 0; keys[i]; i++)
        why_reports(why_judge(w), keys[i]);
}

static void why_first_line(const struct found *f)
{
    if (json_object_get(f->row, "ms"))
        say(" after %" JSON_INTEGER_FORMAT " ms", found_number(f->row, "ms"));
}

static void why_save(const struct why *w, const struct found *f, const json_t *verdict)
{
    static const char *const keys[] = { "sealed", "held", "promised", NULL };
    struct hth_save_id id = { 0 };
    char age[32], bytes[32];

    (void)hth_save_parse(found_words(f->row, "save"), &id);
    why_age(f, age);
    human(bytes, (uint64_t)found_number(f->row, "bytes"));
    say("step %" PRIu64 ", try %" PRIu32 "%s: %s", id.step, hth_attempt_count(id.attempt),
            hth_attempt_of(id.attempt), found_words(f->row, "state"));
    why_first_line(f);
    say("; begun %s ago; %s of node %s\n", age, bytes, found_words(f->page, "node"));
    if (found_words(f->row, "reason")[0])
        say("reason: %s\n", found_words(f->row, "reason"));
    if (found_words(why_judge(w)->row, "waits_for")[0])
        say("waits for %s\n", found_words(why_judge(w)->row, "waits_for"));
    verdict_say(verdict);
    why_bars(f);
    why_reports(f, "written");
    why_reports(f, "copied");
    why_all_nodes(w, f, keys);
}

static void why_recovery(const struct why *w, const struct found *f)
{
    static const char *const keys[] = { "inventory", "vote", NULL };
    char age[32], bytes[32];

    why_age(f, age);
    human(bytes, (uint64_t)found_number(f->row, "pulled_bytes"));
    say("recovery: %s", found_words(f->row, "state"));
    why_first_line(f);
    say("; begun %s ago; %s pulled by node %s\n", age, bytes, found_words(f->page, "node"));
    if (found_words(f->row, "text")[0])
        say("%s\n", found_words(f->row, "text"));
    if (found_words(f->row, "reason")[0])
        say("reason: %s\n", found_words(f->row, "reason"));
    why_bars(f);
    why_all_nodes(w, f, keys);
}

/* ---- For programs ---------------------------------------------------------------------------- */

static enum status why_json(
        const struct why *w, const struct found *f, const char *key, const json_t *verdict)
{
    const json_t *phases = json_object_get(f->row, "phases");
    json_t *medians = json_object(), *out = json_object();

    for (size_t i = 0; i < json_array_size(phases); i++) {
        const char *phase = found_words(json_array_get(phases, i), "phase");
        json_int_t ms = found_median(f, phase);

        if (ms >= 0)
            json_object_set_new(medians, phase, json_integer(ms));
    }
    json_object_set(out, "node", json_object_get(f->page, "node"));
    json_object_set(out, "coordinator", json_object_get(w->here.page, "coordinator"));
    json_object_set(out, key, (json_t *)(uintptr_t)f->row);
    if (w->coordinator.row && f != &w->coordinator)
        json_object_set(out, "at_coordinator", (json_t *)(uintptr_t)w->coordinator.row);
    if (w->lost.code)
        json_object_set_new(out, "coordinator_error", json_string(w->lost.text));
    if (verdict)
        json_object_set(out, "slowest", (json_t *)(uintptr_t)verdict);
    json_object_set_new(out, "medians_ms", medians);
    json_object_set(out, "peers", json_object_get(f->page, "peers"));
    return print_json(out);
}

static int why_step(const char *text, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || *end || errno ? HEARTH_EINVAL : HEARTH_OK;
}

/* Of this node, or of the coordinator, if the engine here remembers nothing. */
static enum status why_print(const struct args *a, struct why *w, const struct found *f)
{
    json_t *verdict = why_verdict(w);
    enum status status = STATUS_OK;

    if (a->json)
        status = why_json(w, f, a->recovery ? "recovery" : "save", verdict);
    else if (a->recovery)
        why_recovery(w, f);
    else
        why_save(w, f, verdict);
    json_decref(verdict);
    return status;
}

static enum status why_show(const struct args *a, struct why *w)
{
    struct hearth_error err = { 0 };
    uint64_t step = 0;
    struct wanted want = { .step = a->count == 2 ? &step : NULL };
    int rc;

    if (a->count == 2 && a->recovery)
        return complain_usage("why: --recovery takes no step");
    if (a->count == 2 && why_step(a->value[1], &step))
        return complain_usage("why: '%.64s' is not a step", a->value[1]);
    w->what = a->recovery ? HTH_HISTORY_RECOVERIES : HTH_HISTORY_SAVES;
    rc = why_find(w, NULL, &want, &w->here, &err);
    if (rc)
        return complain(&err);
    why_ask_coordinator(w, &want);
    if (!w->here.row && !w->coordinator.row) {
        hth_fail(&err, HEARTH_ENOENT, 0, "the engine of node %.64s remembers no such %s%s%.120s",
                found_words(w->here.page, "node"), a->recovery ? "recovery" : "save",
                w->lost.code ? "; the coordinator does not answer: " : "", w->lost.text);
        return complain(&err);
    }
    if (!w->here.row && !a->json)
        say("node %s remembers nothing of it; node %s, the coordinator:\n",
                found_words(w->here.page, "node"), found_words(w->coordinator.page, "node"));
    return why_print(a, w, w->here.row ? &w->here : &w->coordinator);
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
        job_unknown(a->root, a->value[0], &err);
    status = rc ? complain(&err) : why_show(a, &w);
    json_decref(w.here.page);
    json_decref(w.coordinator.page);
    json_decref(w.node.page);
    if (w.job >= 0)
        close(w.job);
    return status;
}
