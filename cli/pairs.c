/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor --pairs: how fast each peer gives its bytes to this node, by the pulls that the engine of
 * this node has made in its epoch. Nothing is sent for it. While pulls from two peers are under
 * way, both have their part of the network, and their rates are lower.
 */
#include "checkup.h"

#include "core/local/local.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Less is not measured: times are of whole milliseconds. */
#define LEAST_MS    20
#define LEAST_BYTES (1 << 20)

struct pair {
    const char *node;
    json_int_t bytes, ms, retries, bad;
    json_int_t rate; /* bytes a second; -1: not known */
    int slow;
};

struct pairs {
    json_t *page;
    struct pair *pair; /* [count] */
    size_t count, known, slow;
    json_int_t median; /* of the rates; -1: there are fewer than two */
};

static json_int_t pair_number(const json_t *of, const char *key)
{
    return json_integer_value(json_object_get(of, key));
}

static void pair_read(struct pair *p, const json_t *row)
{
    const char *node = json_string_value(json_object_get(row, "node"));

    *p = (struct pair){ .node = node ? node : "",
        .bytes = pair_number(row, "pulled_bytes"),
        .ms = pair_number(row, "pull_ms"),
        .retries = pair_number(row, "retries"),
        .bad = pair_number(row, "bad"),
        .rate = -1 };
    if (p->ms >= LEAST_MS && p->bytes >= LEAST_BYTES)
        p->rate = (json_int_t)((double)p->bytes * 1000 / (double)p->ms);
}

/* The slowest first; those without a rate last. */
static int pair_compare(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;

    if ((x->rate < 0) != (y->rate < 0))
        return x->rate < 0 ? 1 : -1;
    return (x->rate > y->rate) - (x->rate < y->rate);
}

/* A peer is slow if it has less than half of the median. Of two, the faster one is the measure. */
static void pairs_judge(struct pairs *p)
{
    qsort(p->pair, p->count, sizeof(*p->pair), pair_compare);
    while (p->known < p->count && p->pair[p->known].rate >= 0)
        p->known++;
    p->median = p->known < 2 ? -1 : p->pair[p->known / 2].rate;
    for (size_t i = 0; i < p->known && p->median > 0; i++) {
        p->pair[i].slow = p->pair[i].rate < p->median / 2;
        p->slow += (size_t)p->pair[i].slow;
    }
}

static int pairs_ask(struct pairs *p, int job, struct hearth_error *err)
{
    char *text = engine_history(job, HTH_HISTORY_SAVES, 0, err);
    const json_t *rows;

    if (!text)
        return err->code;
    p->page = json_loads(text, 0, NULL);
    free(text);
    rows = json_object_get(p->page, "peers");
    if (!json_is_array(rows))
        return hth_fail(err, HEARTH_EPROTO, 0, "the engine's answer cannot be read");
    p->count = json_array_size(rows);
    p->pair = calloc(p->count + 1, sizeof(*p->pair));
    if (!p->pair)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %zu peers", p->count);
    for (size_t i = 0; i < p->count; i++)
        pair_read(&p->pair[i], json_array_get(rows, i));
    pairs_judge(p);
    return HEARTH_OK;
}

/* ---- for people ------------------------------------------------------------------------------ */

static const char *pair_rate(json_int_t rate, char out[40])
{
    char bytes[32];

    human(bytes, (uint64_t)rate);
    snprintf(out, 40, rate < 0 ? "-" : "%s/s", bytes);
    return out;
}

static void pairs_table(const struct pairs *p)
{
    static const char *const titles[] = { "PEER", "PULLED", "BUSY", "RATE", "RETRIES", "BAD", "" };
    struct grid g = { .columns = 7 };
    char text[40];

    grid_titles(&g, titles);
    for (size_t i = 0; i < p->count; i++) {
        const struct pair *one = &p->pair[i];

        grid_add(&g, "%s", one->node);
        human(text, (uint64_t)one->bytes);
        grid_add(&g, "%s", text);
        grid_add(&g, "%.1f s", (double)one->ms / 1000);
        grid_add(&g, "%s", pair_rate(one->rate, text));
        grid_add(&g, "%" JSON_INTEGER_FORMAT, one->retries);
        grid_add(&g, "%" JSON_INTEGER_FORMAT, one->bad);
        grid_add(&g, "%s", one->slow ? "slow" : "");
    }
    grid_print(&g, "lrrrrrl");
    grid_free(&g);
}

static void pairs_print(const struct pairs *p)
{
    const json_t *since = json_object_get(p->page, "peers_ms");
    const char *self = json_string_value(json_object_get(p->page, "node"));
    char age[32], rate[40];

    human_age(age, since ? json_integer_value(since) / 1000 : -1);
    say("node %s, pulls from each peer since its epoch began, %s ago\n\n", self ? self : "", age);
    if (!p->count) {
        puts("not known: nothing was pulled in this epoch");
        return;
    }
    pairs_table(p);
    puts("");
    for (size_t i = 0; i < p->slow; i++)
        say("at risk: pulls from %s have less than half of the median, %s\n"
            "    do:  on %s: hearth doctor     (link, MTU, load; then cable and switch)\n",
                p->pair[i].node, pair_rate(p->median, rate), p->pair[i].node);
    if (p->median < 0)
        puts("not known: fewer than two peers have given enough to compare them");
    else if (!p->slow)
        say("ok: no peer has less than half of the median, %s\n", pair_rate(p->median, rate));
}

/* ---- for programs ---------------------------------------------------------------------------- */

static json_t *pair_json(const struct pair *p)
{
    return json_pack("{s:o, s:I, s:I, s:o, s:I, s:I, s:b}", "node",
            json_text(p->node, strlen(p->node)), "pulled_bytes", p->bytes, "pull_ms", p->ms,
            "bytes_s", p->rate < 0 ? json_null() : json_integer(p->rate), "retries", p->retries,
            "bad", p->bad, "slow", p->slow);
}

static enum status pairs_json(const struct pairs *p)
{
    json_t *out = json_object(), *all = json_array();

    for (size_t i = 0; i < p->count; i++)
        json_array_append_new(all, pair_json(&p->pair[i]));
    json_object_set(out, "node", json_object_get(p->page, "node"));
    json_object_set(out, "peers_ms", json_object_get(p->page, "peers_ms"));
    json_object_set_new(
            out, "median_bytes_s", p->median < 0 ? json_null() : json_integer(p->median));
    json_object_set_new(out, "pairs", all);
    return print_json(out);
}

enum status doctor_pairs(const struct args *a)
{
    struct hearth_error err = { 0 };
    struct pairs p = { 0 };
    enum status status = STATUS_OK;
    int job = -1, rc;

    if (!a->root || !a->count)
        return complain_usage("doctor --pairs: name a job, and its root by --root or HEARTH_ROOT");
    rc = job_open(a->root, a->value[0], &job, &err);
    if (rc == HEARTH_ENOENT)
        job_unknown(a->root, a->value[0], &err);
    rc = rc ? rc : pairs_ask(&p, job, &err);
    if (rc)
        status = complain(&err);
    else if (a->json)
        status = pairs_json(&p);
    else
        pairs_print(&p);
    if (!status && p.slow)
        status = STATUS_WRONG;
    json_decref(p.page);
    free(p.pair);
    if (job >= 0)
        close(job);
    return status;
}
