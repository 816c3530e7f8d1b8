/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace: one save over all nodes, as trace events for Perfetto or Chrome: a process for each node,
 * a complete event for each phase. Times are by each node's wall clock. A node that has not
 * answered, or remembers nothing of the save, is named.
 */
#include "verdict.h"

#include "core/local/local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AROUND 8u /* an engine may remember so many newer saves more than the one here */

struct trace {
    const char *save;
    json_t *events; /* "traceEvents" */
    uint32_t nodes, missing;
};

static int trace_step(const char *text, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || *end || errno;
}

/* ---- One node -------------------------------------------------------------------------------- */

static void trace_process(const struct trace *t, uint32_t member, const char *node)
{
    json_array_append_new(
            t->events, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", "process_name", "ph", "M",
                               "pid", (int)member, "tid", 0, "args", "name", node));
    json_array_append_new(t->events,
            json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "name", "process_sort_index", "ph", "M",
                    "pid", (int)member, "tid", 0, "args", "sort_index", (int)member));
}

static void trace_phase(
        const struct trace *t, uint32_t member, int line, json_int_t since_ms, const json_t *phase)
{
    json_int_t from_ms = found_number(phase, "from_ms"), to_ms = found_number(phase, "to_ms");

    json_array_append_new(t->events,
            json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:I}", "name", found_words(phase, "phase"),
                    "cat", "save", "ph", "X", "pid", (int)member, "tid", line, "ts",
                    (since_ms + from_ms) * 1000, "dur", (to_ms - from_ms) * 1000));
}

/* Whose report of a kind was the last at the coordinator. */
static void trace_last(const struct trace *t, uint32_t member, const json_t *row, const char *key)
{
    const json_t *last = json_object_get(json_object_get(row, key), "last");
    char name[120];

    if (!last)
        return;
    snprintf(name, sizeof(name), "last %s: %.64s", key, found_words(last, "node"));
    json_array_append_new(t->events,
            json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:s}", "name", name, "cat", "report", "ph",
                    "i", "pid", (int)member, "tid", 0, "ts",
                    (found_number(row, "since_ms") + found_number(last, "ms")) * 1000, "s", "p"));
}

static void trace_row(const struct trace *t, uint32_t member, const json_t *row)
{
    const json_t *phases = json_object_get(row, "phases");

    for (size_t i = 0; i < json_array_size(phases); i++)
        trace_phase(
                t, member, (int)i + 1, found_number(row, "since_ms"), json_array_get(phases, i));
    trace_last(t, member, row, "sealed");
    trace_last(t, member, row, "held");
    trace_last(t, member, row, "promised");
}

static void trace_heard(
        void *self, uint32_t member, const char *text, const struct hearth_error *err)
{
    struct trace *t = self;
    json_t *page = text ? json_loads(text, 0, NULL) : NULL, *rows = json_object_get(page, "saves");
    const json_t *row = NULL;

    for (size_t i = 0; i < json_array_size(rows) && !row; i++)
        if (!strcmp(found_words(json_array_get(rows, i), "save"), t->save))
            row = json_array_get(rows, i);
    if (row) {
        t->nodes++;
        trace_process(t, member, found_words(page, "node"));
        trace_row(t, member, row);
    } else {
        t->missing++;
        if (page)
            remark("node %.64s remembers nothing of this save", found_words(page, "node"));
        else
            remark("%s", text ? "an engine's answer cannot be read" : err->text);
    }
    json_decref(page);
}

/* ---- The save -------------------------------------------------------------------------------- */

/* The newest save of that step that the engine here or, if it has none, the coordinator's has. */
static int trace_find(int job, uint64_t step, int coordinator, struct found *f, uint32_t *out_at,
        struct hearth_error *err)
{
    uint32_t skip = 0;
    size_t rows;

    do {
        char *text = coordinator ? engine_elsewhere(job, HTH_NODE_NONE, "", HTH_LOCAL_HISTORY,
                                           HTH_HISTORY_SAVES, skip, err)
                                 : engine_history(job, HTH_HISTORY_SAVES, skip, err);
        struct hth_save_id id;

        if (!text)
            return err->code;
        json_decref(f->page);
        f->page = json_loads(text, 0, NULL);
        free(text);
        rows = json_array_size(json_object_get(f->page, "saves"));
        for (f->at = 0; f->at < rows; f->at++) {
            f->row = json_array_get(json_object_get(f->page, "saves"), f->at);
            *out_at = skip + (uint32_t)f->at;
            if (!hth_save_parse(found_words(f->row, "save"), &id) && id.step == step)
                return HEARTH_OK;
        }
        f->row = NULL;
        skip += HTH_HISTORY_PAGE;
    } while (rows == HTH_HISTORY_PAGE);
    return HEARTH_OK;
}

static int trace_members(int job, uint32_t *out)
{
    char *text = engine_status(job);
    json_t *status = text ? json_loads(text, 0, NULL) : NULL;

    *out = (uint32_t)found_number(status, "members");
    free(text);
    json_decref(status);
    return *out ? HEARTH_OK : HEARTH_ESTATE;
}

static enum status trace_print(const struct trace *t)
{
    json_t *out = json_pack("{s:O, s:s, s:{s:s, s:s}}", "traceEvents", t->events, "displayTimeUnit",
            "ms", "otherData", "save", t->save, "clock",
            "the times of a node are by its own wall clock; clocks of nodes differ");
    enum status status = print_json(out);

    return status ? status : t->missing ? STATUS_WRONG : STATUS_OK;
}

static enum status trace_show(int job, uint64_t step)
{
    struct trace t = { .events = json_array() };
    struct everywhere all = {
        .type = HTH_LOCAL_HISTORY, .what = HTH_HISTORY_SAVES, .heard = trace_heard, .self = &t
    };
    struct hearth_error err = { 0 };
    struct found f = { 0 };
    enum status status;
    uint32_t at = 0;
    int rc = trace_find(job, step, 0, &f, &at, &err);

    if (!rc && !f.row)
        rc = trace_find(job, step, 1, &f, &at, &err);
    if (!rc && !f.row)
        rc = hth_fail(&err, HEARTH_ENOENT, 0,
                "neither the engine here nor the coordinator's remembers a save of step %" PRIu64,
                step);
    if (!rc && trace_members(job, &all.members))
        rc = hth_fail(&err, HEARTH_ESTATE, 0, "the engine here is in no epoch: no rank has joined");
    t.save = found_words(f.row, "save");
    all.skip = at > AROUND ? at - AROUND : 0;
    rc = rc ? rc : engine_everywhere(job, &all, &err);
    status = rc ? complain(&err) : trace_print(&t);
    json_decref(t.events);
    json_decref(f.page);
    return status;
}

enum status run_trace(const struct args *a)
{
    struct hearth_error err = { 0 };
    enum status status;
    int job = -1, rc;
    uint64_t step;

    if (!a->root)
        return complain_usage("trace: which root? give --root or HEARTH_ROOT");
    if (!a->save)
        return complain_usage("trace: which save? give --save STEP");
    if (trace_step(a->save, &step))
        return complain_usage("trace: '%.64s' is not a step", a->save);
    rc = job_open(a->root, a->value[0], &job, &err);
    rc = rc ? rc : job_check(job, a->value[0], &err);
    if (rc == HEARTH_ENOENT)
        job_unknown(a->root, a->value[0], &err);
    status = rc ? complain(&err) : trace_show(job, step);
    if (job >= 0)
        close(job);
    return status;
}
