/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events: the last lines of the logs of engines, the oldest first: of this node's, of another
 * node's, or of all nodes', by the wall clock of each. top: how the job is, and the last lines of
 * this node's engine, again and again.
 */
#include "cli.h"

#include "core/local/local.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TOP_LINES 12u

struct events {
    json_t *lines;   /* each with its "node" */
    uint32_t silent; /* members that have not answered */
};

static const char *event_word(const json_t *of, const char *key)
{
    const char *text = json_string_value(json_object_get(of, key));

    return text ? text : "";
}

/* The number of lines in the page; -1: it cannot be read. */
static int events_add(struct events *e, const char *text)
{
    json_t *page = json_loads(text, 0, NULL), *lines = json_object_get(page, "events");
    int count = json_is_array(lines) ? (int)json_array_size(lines) : -1;

    for (int i = 0; i < count; i++) {
        json_t *line = json_array_get(lines, (size_t)i);

        json_object_set(line, "node", json_object_get(page, "node"));
        json_array_append(e->lines, line);
    }
    json_decref(page);
    return count;
}

/* All that the engine here (node NULL), or that node's, remembers. */
static int events_of(struct events *e, int job, const char *node, struct hearth_error *err)
{
    uint32_t skip = 0;
    int count;

    do {
        char *text =
                node ? engine_elsewhere(job, HTH_NODE_NONE, node, HTH_LOCAL_EVENTS, 0, skip, err)
                     : engine_events(job, skip, err);

        if (!text)
            return err->code;
        count = events_add(e, text);
        free(text);
        if (count < 0)
            return hth_fail(err, HEARTH_EPROTO, 0, "the engine's answer cannot be read");
        skip += HTH_EVENTS_PAGE;
    } while ((uint32_t)count == HTH_EVENTS_PAGE);
    return HEARTH_OK;
}

static void events_heard(
        void *self, uint32_t member, const char *text, const struct hearth_error *err)
{
    struct events *e = self;

    (void)member;
    if (text && events_add(e, text) >= 0)
        return;
    e->silent++;
    remark("%s", text ? "an engine's answer cannot be read" : err->text);
}

/* The newest page of each member. */
static int events_of_all(struct events *e, int job, struct hearth_error *err)
{
    char *text = engine_status(job);
    json_t *status = text ? json_loads(text, 0, NULL) : NULL;
    struct everywhere all = { .members = (uint32_t)json_integer_value(
                                      json_object_get(status, "members")),
        .type = HTH_LOCAL_EVENTS,
        .heard = events_heard,
        .self = e };

    free(text);
    json_decref(status);
    if (!status)
        return hth_fail(err, HEARTH_ENOENT, 0, "no engine runs on this job");
    return all.members ? engine_everywhere(job, &all, err) : events_of(e, job, NULL, err);
}

struct dated {
    json_int_t ms;
    json_t *line; /* borrowed */
};

static int events_compare(const void *a, const void *b)
{
    const struct dated *x = a, *y = b;

    return (x->ms > y->ms) - (x->ms < y->ms);
}

/* The oldest first; lines of one millisecond as they came. */
static void events_sort(json_t **lines)
{
    size_t count = json_array_size(*lines);
    struct dated *line = calloc(count + 1, sizeof(*line));
    json_t *sorted = json_array();

    for (size_t i = 0; line && i < count; i++) {
        line[i].line = json_array_get(*lines, count - 1 - i);
        line[i].ms = json_integer_value(json_object_get(line[i].line, "wall_ms"));
    }
    if (line)
        qsort(line, count, sizeof(*line), events_compare);
    for (size_t i = 0; line && i < count; i++)
        json_array_append(sorted, line[i].line);
    free(line);
    json_decref(*lines);
    *lines = sorted;
}

static void event_say(const json_t *line, int has_node)
{
    json_int_t ms = json_integer_value(json_object_get(line, "wall_ms"));
    time_t s = (time_t)(ms / 1000);
    char when[32] = "";
    struct tm tm;

    if (gmtime_r(&s, &tm))
        strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
    say("%s.%03dZ ", when, (int)(ms % 1000));
    if (has_node)
        say("%s ", event_word(line, "node"));
    say("%s %s %s\n", event_word(line, "level"), event_word(line, "event"),
            event_word(line, "text"));
}

static enum status events_show(const struct args *a, int job)
{
    struct events e = { .lines = json_array() };
    struct hearth_error err = { 0 };
    int rc = a->all ? events_of_all(&e, job, &err) : events_of(&e, job, a->node, &err);
    enum status status = rc ? complain(&err) : e.silent ? STATUS_WRONG : STATUS_OK;

    events_sort(&e.lines);
    if (!rc && a->json) {
        if (print_json(json_pack("{s:O}", "events", e.lines)))
            status = STATUS_SYSTEM;
    } else {
        for (size_t i = 0; !rc && i < json_array_size(e.lines); i++)
            event_say(json_array_get(e.lines, i), a->all);
    }
    json_decref(e.lines);
    return status;
}

static enum status events_job(
        const struct args *a, const char *name, enum status (*show)(const struct args *, int))
{
    struct hearth_error err = { 0 };
    int job = -1, rc;
    enum status status;

    if (!a->root)
        return complain_usage("%s: which root? give --root or HEARTH_ROOT", name);
    rc = job_open(a->root, a->value[0], &job, &err);
    rc = rc ? rc : job_check(job, a->value[0], &err);
    if (rc == HEARTH_ENOENT)
        job_unknown(a->root, a->value[0], &err);
    status = rc ? complain(&err) : show(a, job);
    if (job >= 0)
        close(job);
    return status;
}

enum status run_events(const struct args *a)
{
    if (a->all && a->node)
        return complain_usage("events: --node and --all cannot be given together");
    return events_job(a, "events", events_show);
}

/* ---- top ------------------------------------------------------------------------------------- */

static void top_say_health(const json_t *status)
{
    const json_t *health = json_object_get(status, "health");
    const json_t *checks = json_object_get(health, "checks");

    say("%s on node %s: %s\n", event_word(status, "job"), event_word(status, "node"),
            event_word(health, "state"));
    for (size_t i = 0; i < json_array_size(checks); i++)
        say("  %s: %s\n", event_word(json_array_get(checks, i), "name"),
                event_word(json_array_get(checks, i), "text"));
    say("%s\n\n", event_word(status, "state"));
}

static enum status top_show(const struct args *a, int job)
{
    struct events e = { .lines = json_array() };
    struct hearth_error err = { 0 };
    char *text = engine_status(job);
    json_t *status = text ? json_loads(text, 0, NULL) : NULL;
    int rc = status ? events_of(&e, job, NULL, &err)
                    : hth_fail(&err, HEARTH_ENOENT, 0, "no engine runs on this job");
    size_t count;

    (void)a;
    free(text);
    events_sort(&e.lines);
    count = json_array_size(e.lines);
    if (!rc)
        top_say_health(status);
    for (size_t i = count > TOP_LINES ? count - TOP_LINES : 0; !rc && i < count; i++)
        event_say(json_array_get(e.lines, i), 0);
    json_decref(e.lines);
    json_decref(status);
    return rc ? complain(&err) : STATUS_OK;
}

static enum status top_look(const struct args *a)
{
    return events_job(a, "top", top_show);
}

/* With --watch the caller repeats it already. */
enum status run_top(const struct args *a)
{
    struct args again = *a;

    again.watch = "";
    return a->watch ? top_look(a) : watch(top_look, &again);
}
