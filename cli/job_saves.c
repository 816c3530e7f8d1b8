/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saves: the saves of a running job, newest first: those that it keeps, and those that its engine
 * remembers. Sizes are this node's; the state of a kept save is the one that ls and keep show.
 */
#include "field.h"
#include "running.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct one {
    struct hth_save_id id;
    const json_t *kept, *past; /* of STATUS and HISTORY; NULL: it is not there */
    uint64_t bytes;            /* on this node */
};

struct list {
    json_t *history; /* rows of all pages */
    struct save_row *here;
    struct one *one; /* [count] */
    size_t count;
};

static int list_read_history(struct list *l, int job, struct hearth_error *err)
{
    uint32_t skip = 0;
    size_t count;

    l->history = json_array();
    do {
        char *text = engine_history(job, HTH_HISTORY_SAVES, skip, err);
        json_t *page = text ? json_loads(text, 0, NULL) : NULL;
        json_t *rows = json_object_get(page, "saves");

        free(text);
        if (!json_is_array(rows)) {
            json_decref(page);
            return text ? hth_fail(err, HEARTH_EPROTO, 0, "the engine's answer cannot be read")
                        : err->code;
        }
        count = json_array_size(rows);
        json_array_extend(l->history, rows);
        json_decref(page);
        skip += HTH_HISTORY_PAGE;
    } while (count == HTH_HISTORY_PAGE);
    return HEARTH_OK;
}

/* The save's row, made where there is none. NULL: no memory, or the row names no save. */
static struct one *list_one(struct list *l, const json_t *row)
{
    struct hth_save_id id;

    if (hth_save_parse(field_text(row, "save"), &id))
        return NULL;
    for (size_t i = 0; i < l->count; i++)
        if (!hth_save_cmp(l->one[i].id, id))
            return &l->one[i];
    l->one[l->count] = (struct one){ .id = id };
    return &l->one[l->count++];
}

static int one_compare(const void *a, const void *b)
{
    return hth_save_cmp(((const struct one *)b)->id, ((const struct one *)a)->id);
}

static int list_fill(struct list *l, const json_t *status, struct hearth_error *err)
{
    const json_t *kept = json_object_get(status, "kept");
    struct one *one;

    l->one = calloc(json_array_size(kept) + json_array_size(l->history) + 1, sizeof(*l->one));
    if (!l->one)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the list of saves");
    for (size_t i = 0; i < json_array_size(kept); i++)
        if ((one = list_one(l, json_array_get(kept, i))))
            one->kept = json_array_get(kept, i);
    for (size_t i = 0; i < json_array_size(l->history); i++)
        if ((one = list_one(l, json_array_get(l->history, i))))
            one->past = json_array_get(l->history, i);
    for (size_t i = 0; i < l->count; i++)
        for (const struct save_row *s = l->here; s; s = s->next)
            if (s->own && !hth_save_cmp(s->id, l->one[i].id))
                l->one[i].bytes += s->bytes;
    qsort(l->one, l->count, sizeof(*l->one), one_compare);
    return HEARTH_OK;
}

/* One word. A save that was protected and is not kept any more was freed for newer ones. */
static const char *one_state(const struct one *o)
{
    const char *past = field_text(o->past, "state");

    if (o->kept)
        return kept_state(o->kept) ? kept_state(o->kept) : "not known";
    if (!strcmp(past, "protected") || !strcmp(past, "degraded"))
        return "freed";
    return !strcmp(past, "unknown") || !past[0] ? "not known" : past;
}

/* Seconds since it was protected, else since it began; -1: not known. */
static json_int_t one_age(const struct one *o)
{
    if (o->kept)
        return field_int(o->kept, "age_s");
    if (json_object_get(o->past, "since_ms"))
        return (json_int_t)time(NULL) - field_int(o->past, "since_ms") / 1000;
    return -1;
}

/* 1: it was protected, after *out_ms. */
static int one_took(const struct one *o, json_int_t *out_ms)
{
    const char *past = field_text(o->past, "state");

    if ((strcmp(past, "protected") != 0 && strcmp(past, "degraded") != 0) ||
            !json_is_integer(json_object_get(o->past, "ms")))
        return 0;
    *out_ms = field_int(o->past, "ms");
    return 1;
}

/* Copies in other failure domains. -1: not known. A save that is protected has as many as were
 * asked for. */
static json_int_t one_copies(const struct one *o, const json_t *status)
{
    const json_t *exact = json_object_get(o->kept, "copies");

    if (json_is_integer(exact))
        return json_integer_value(exact);
    if (o->kept && !strcmp(field_text(o->kept, "state"), "protected") &&
            json_is_object(json_object_get(status, "copies")))
        return field_int(json_object_get(status, "copies"), "asked");
    return -1;
}

static void saves_add(struct grid *g, const struct one *o, const json_t *status)
{
    json_int_t copies = one_copies(o, status), ms;
    char age[32], size[32], marks[80];
    uint32_t tries = hth_attempt_count(o->id.attempt);
    json_int_t asked = field_int(json_object_get(status, "copies"), "asked");

    if (tries > 1)
        grid_add(g, "%" PRIu64 ", try %" PRIu32, o->id.step, tries);
    else
        grid_add(g, "%" PRIu64, o->id.step);
    grid_add(g, "%s", one_state(o));
    if (copies >= 0)
        grid_add(g, "%lld", (long long)copies);
    else if (o->kept && !strcmp(field_text(o->kept, "state"), "degraded") && asked)
        grid_add(g, "below %lld", (long long)asked);
    else
        grid_add(g, "%s", "-");
    human_age(age, one_age(o));
    grid_add(g, "%s", age);
    if (one_took(o, &ms))
        grid_add(g, "%lld ms", (long long)ms);
    else
        grid_add(g, "%s", "-");
    human(size, o->bytes);
    grid_add(g, "%s", o->bytes ? size : "-");
    kept_marks(
            json_is_true(json_object_get(o->kept, "pinned")), field_int(o->kept, "tries"), marks);
    grid_add(g, "%s%s%s", marks, marks[0] && field_text(o->past, "reason")[0] ? ", " : "",
            field_text(o->past, "reason"));
}

static void saves_print(const struct list *l, const json_t *status)
{
    static const char *const titles[] = { "STEP", "STATE", "COPIES", "AGE", "TOOK", "HERE",
        "MARKS" };
    struct grid g = { .columns = 7 };

    if (!l->count) {
        puts("The job keeps no save, and its engine here remembers none.");
        return;
    }
    grid_titles(&g, titles);
    for (size_t i = 0; i < l->count; i++)
        saves_add(&g, &l->one[i], status);
    grid_print(&g, "rsrrrrl");
    grid_free(&g);
}

static json_t *saves_json_one(const struct one *o, const json_t *status)
{
    json_int_t copies = one_copies(o, status), ms;
    const char *reason = field_text(o->past, "reason");
    char id[HTH_SAVE_TEXT];

    hth_save_text(o->id, id);
    return json_pack("{s:s, s:o, s:I, s:s, s:o, s:o, s:o, s:I, s:b, s:I, s:o}", "save", id, "step",
            json_unsigned(o->id.step), "try", (json_int_t)hth_attempt_count(o->id.attempt), "state",
            one_state(o), "copies", copies < 0 ? json_null() : json_integer(copies), "age_s",
            one_age(o) < 0 ? json_null() : json_integer(one_age(o)), "ms",
            one_took(o, &ms) ? json_integer(ms) : json_null(), "bytes_here", (json_int_t)o->bytes,
            "pinned", json_is_true(json_object_get(o->kept, "pinned")), "tries",
            field_int(o->kept, "tries"), "reason",
            reason[0] ? json_text(reason, strlen(reason)) : json_null());
}

static enum status saves_json(const struct list *l, const struct running *job)
{
    json_t *rows = json_array();

    for (size_t i = 0; i < l->count; i++)
        json_array_append_new(rows, saves_json_one(&l->one[i], job->status));
    return print_json(json_pack("{s:o, s:s, s:o}", "job", json_text(job->name, strlen(job->name)),
            "node", field_text(job->status, "node"), "saves", rows));
}

enum status run_saves(const struct args *a)
{
    struct hearth_error err = { 0 };
    struct list l = { .history = NULL };
    struct running job;
    enum status status = STATUS_OK;
    int rc;

    if (!a->root)
        return complain_usage("saves needs --root, or HEARTH_ROOT set: the tmpfs that is Hearth's");
    rc = running_need(a->root, a->value[0], &job, &err);
    rc = rc ? rc : list_read_history(&l, job.fd, &err);
    rc = rc ? rc : saves_list(job.fd, job.name, NULL, &l.here, &err);
    rc = rc ? rc : list_fill(&l, job.status, &err);
    if (rc)
        status = complain(&err);
    else if (a->json)
        status = saves_json(&l, &job);
    else
        saves_print(&l, job.status);
    running_free(&job);
    saves_free(l.here);
    json_decref(l.history);
    free(l.one);
    return status ? status : remarks() ? STATUS_WRONG : STATUS_OK;
}
