/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics: the series of all jobs of this node. Each engine answers with its own families
 * (core/local/local.h: METRICS); here they get the labels `job` and `node`, and the series of one
 * family are put together, as the text format demands. All engines are asked at once, so a command
 * takes 2 s at most, however many do not answer.
 */
#include "metrics.h"

#include "core/base/root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX 256

struct one { /* a job */
    char name[256];
    int sock;  /* -1: no engine has been asked */
    int gone;  /* an engine was there, and has not ended in order */
    int known; /* it is a job with an engine, or one whose engine is gone */
    json_t *answer;
};

struct gathered {
    struct one one[JOBS_MAX];
    size_t count;
    unsigned long left_out;
    unsigned closed;  /* jobs that this user may not ask */
    json_t *families; /* name: {"type", "help", "text"} */
};

/* ---- Engines --------------------------------------------------------------------------------- */

static int64_t metrics_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

static int metrics_ask(
        struct gathered *g, const char *root, const char *name, int must, struct hearth_error *err)
{
    struct one *one = &g->one[g->count];
    int job = -1, rc = hth_job_check(name, err);

    rc = rc ? rc : job_open(root, name, &job, err);
    rc = rc ? rc : job_check(job, name, err);
    if (!rc && g->count == JOBS_MAX) {
        g->left_out++;
    } else if (!rc) {
        *one = (struct one){ .sock = engine_metrics_ask(job) };
        snprintf(one->name, sizeof(one->name), "%.255s", name);
        one->gone = one->sock == -ECONNREFUSED;
        one->known = one->sock >= 0 || one->gone || one->sock == -EAGAIN;
        g->count++;
        if (one->sock == -EACCES)
            rc = hth_fail(err, HEARTH_EIO, EACCES,
                    "job '%.64s' is another user's: ask as that user or as root", name);
    }
    g->closed += rc && err->native == EACCES;
    if (job >= 0)
        close(job);
    if (rc == HEARTH_ENOENT && must)
        hth_fail(err, rc, 0, "there is no job '%.64s' in %.300s", name, root);
    return must ? rc : HEARTH_OK;
}

static int metrics_ask_all(struct gathered *g, const char *root, struct hearth_error *err)
{
    char **names = NULL;
    int fd = -1, rc = hth_root_open(root, O_PATH, &fd, err);

    if (!rc && !(names = names_in(fd, root, err)))
        rc = err->code;
    for (size_t i = 0; !rc && names && names[i]; i++)
        (void)metrics_ask(g, root, names[i], 0, &(struct hearth_error){ 0 });
    names_free(names);
    if (fd >= 0)
        close(fd);
    return rc;
}

static void metrics_take_answers(struct gathered *g)
{
    int64_t until_ms = metrics_now_ms() + METRICS_WAIT_MS;

    for (size_t i = 0; i < g->count; i++) {
        struct one *one = &g->one[i];
        int64_t left_ms = until_ms - metrics_now_ms();
        char *text = one->sock < 0 ? NULL
                                   : engine_metrics_take(one->sock, left_ms > 0 ? (int)left_ms : 0);

        one->answer = text ? json_loads(text, 0, NULL) : NULL;
        free(text);
    }
}

/* ---- Families -------------------------------------------------------------------------------- */

static void metrics_put_label(FILE *to, const char *between, const char *key, const char *text)
{
    fprintf(to, "%s%s=\"", between, key);
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            fputc('\\', to);
        if (*text == '\n')
            fputs("\\n", to);
        else
            fputc(*text, to);
    }
    fputc('"', to);
}

static void metrics_put_value(FILE *to, const json_t *value)
{
    if (json_is_string(value)) /* an integer of 2^63 or more */
        fprintf(to, "} %s\n", json_string_value(value));
    else if (json_is_real(value))
        fprintf(to, "} %.3f\n", json_real_value(value));
    else
        fprintf(to, "} %" JSON_INTEGER_FORMAT "\n", json_integer_value(value));
}

/* sample: [suffix, labels, value] */
static void metrics_put_sample(
        FILE *to, const char *name, const char *job, const char *node, const json_t *sample)
{
    const char *suffix = json_string_value(json_array_get(sample, 0)), *key;
    json_t *labels = json_array_get(sample, 1), *text;

    fprintf(to, "%s%s{", name, suffix ? suffix : "");
    metrics_put_label(to, "", "job", job);
    if (node)
        metrics_put_label(to, ",", "node", node);
    json_object_foreach(labels, key, text)
    {
        if (json_is_string(text))
            metrics_put_label(to, ",", key, json_string_value(text));
    }
    metrics_put_value(to, json_array_get(sample, 2));
}

/* Adds the samples to the family of that name, which the first caller describes. */
static int metrics_add(struct gathered *g, const char *name, const char *type, const char *help,
        const char *job, const char *node, const json_t *samples)
{
    json_t *family = json_object_get(g->families, name);
    const json_t *sample;
    char *text = NULL;
    size_t len, i;
    FILE *to = open_memstream(&text, &len);
    int failed = !to;

    json_array_foreach(samples, i, sample)
    {
        if (to)
            metrics_put_sample(to, name, job, node, sample);
    }
    failed |= !to || fclose(to);
    if (!failed && !family) {
        family = json_pack("{s:s, s:s, s:[]}", "type", type, "help", help, "texts");
        failed |= json_object_set_new(g->families, name, family);
    }
    failed = failed ||
             json_array_append_new(json_object_get(family, "texts"), json_stringn(text, len));
    free(text);
    return failed ? HEARTH_ENOMEM : HEARTH_OK;
}

static int metrics_add_one(struct gathered *g, const char *name, const char *help,
        const struct one *one, const char *check, int value)
{
    json_t *samples = check ? json_pack("[[s,{s:s},i]]", "", "name", check, value)
                            : json_pack("[[s,{},i]]", "", value);
    int rc =
            samples ? metrics_add(g, name, "gauge", help, one->name, NULL, samples) : HEARTH_ENOMEM;

    json_decref(samples);
    return rc;
}

static int metrics_add_answer(struct gathered *g, const struct one *one)
{
    const char *node = json_string_value(json_object_get(one->answer, "node"));
    const json_t *family;
    int rc = HEARTH_OK;
    size_t i;

    json_array_foreach(json_object_get(one->answer, "families"), i, family)
    {
        const char *name = json_string_value(json_object_get(family, "name"));
        const char *type = json_string_value(json_object_get(family, "type"));
        const char *help = json_string_value(json_object_get(family, "help"));

        if (!rc && name && type && help && node)
            rc = metrics_add(
                    g, name, type, help, one->name, node, json_object_get(family, "samples"));
    }
    return rc;
}

static int metrics_add_job(struct gathered *g, const struct one *one)
{
    int rc;

    if (!one->known)
        return HEARTH_OK;
    rc = metrics_add_one(g, "hearth_up",
            "1: the engine of the job on this node answers. 0: an engine should run and does not.",
            one, NULL, one->answer != NULL);
    rc = rc ? rc
            : metrics_add_one(g, "hearth_check",
                      "State of a named check: 0 well, 1 at risk, 2 "
                      "broken.",
                      one, "engine_gone", one->gone ? 2 : 0);
    return rc ? rc : metrics_add_answer(g, one);
}

/* ---- Text ------------------------------------------------------------------------------------ */

/* The name of a counter's family is without _total in OpenMetrics, and with it in the older
 * format. */
static int metrics_name_len(const char *name, const char *type, int openmetrics)
{
    size_t len = strlen(name), end = strlen("_total");

    if (openmetrics && !strcmp(type, "counter") && len > end && !strcmp(name + len - end, "_total"))
        len -= end;
    return (int)len;
}

static void metrics_put_families(FILE *to, const json_t *families, int openmetrics)
{
    const json_t *family, *text;
    const char *name;
    size_t i;

    json_object_foreach((json_t *)(uintptr_t)families, name, family)
    {
        const char *type = json_string_value(json_object_get(family, "type"));
        int len = metrics_name_len(name, type, openmetrics);

        fprintf(to, "# HELP %.*s %s\n# TYPE %.*s %s\n", len, name,
                json_string_value(json_object_get(family, "help")), len, name, type);
        json_array_foreach(json_object_get(family, "texts"), i, text)
                fputs(json_string_value(text), to);
    }
    if (openmetrics)
        fputs("# EOF\n", to);
}

static char *metrics_print(const struct gathered *g, int openmetrics)
{
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);

    if (!to)
        return NULL;
    metrics_put_families(to, g->families, openmetrics);
    if (g->left_out)
        note("%lu jobs are left out: %d are shown at most", g->left_out, JOBS_MAX);
    if (g->closed)
        note("%u jobs are left out: they are other users'", g->closed);
    if (!fclose(to))
        return text;
    free(text);
    return NULL;
}

static int metrics_is_any(const struct gathered *g)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->one[i].known)
            return 1;
    return 0;
}

static char *metrics_gather(struct gathered *g, const char *root, char *const *jobs, int count,
        int openmetrics, struct hearth_error *err)
{
    int rc = count ? HEARTH_OK : metrics_ask_all(g, root, err);
    char *text = NULL;

    for (int i = 0; !rc && i < count; i++)
        rc = metrics_ask(g, root, jobs[i], 1, err);
    metrics_take_answers(g); /* closes what was opened, too */
    if (!rc && g->closed && !metrics_is_any(g))
        rc = hth_fail(err, HEARTH_EIO, EACCES,
                "%u jobs of %.300s are other users': whether their engines run is not known; ask "
                "as their users or as root",
                g->closed, root);
    if (rc)
        return NULL;
    for (size_t i = 0; !rc && i < g->count; i++)
        rc = metrics_add_job(g, &g->one[i]);
    text = rc ? NULL : metrics_print(g, openmetrics);
    if (!text)
        hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the metrics");
    return text;
}

char *metrics_text(
        const char *root, char *const *jobs, int count, int openmetrics, struct hearth_error *err)
{
    struct gathered *g = calloc(1, sizeof(*g));
    char *text = NULL;

    if (g)
        g->families = json_object();
    if (g && g->families)
        text = metrics_gather(g, root, jobs, count, openmetrics, err);
    else
        hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the metrics");
    for (size_t i = 0; g && i < g->count; i++)
        json_decref(g->one[i].answer);
    if (g)
        json_decref(g->families);
    free(g);
    return text;
}

enum status run_metrics(const struct args *a)
{
    struct hearth_error err = { 0 };
    char *text;

    if (!a->root)
        return complain_usage("metrics: which root? give --root or HEARTH_ROOT");
    text = metrics_text(a->root, a->value, a->count, 0, &err);
    if (!text)
        return complain(&err);
    fputs(text, stdout);
    free(text);
    return STATUS_OK;
}
