/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save is as slow as its last node. The coordinator's record names the node whose report came
 * last, and how far behind the median; that node's own record has the rank that was last there, the
 * phases, and the copy that took longest to come:
 *
 *     last to be sealed   ─► began late, wrote long (one rank or all), or sealed long; or a rank
 *                            waited for its slot, whose memory was not made
 *     last to have the manifest ─► a copy to this node, or from it to the coordinator's, took long
 *     last to promise     ─► a copy took long to come: the pair of its holder and this node
 *
 * If no node was far behind the others, the longest phase is named.
 */
#include "verdict.h"

#include <stdlib.h>
#include <string.h>

#define MEDIANS 256u /* saves that an engine remembers */

json_int_t found_number(const json_t *of, const char *key)
{
    return json_integer_value(json_object_get(of, key));
}

const char *found_words(const json_t *of, const char *key)
{
    const char *text = json_string_value(json_object_get(of, key));

    return text ? text : "";
}

json_int_t found_phase_ms(const json_t *row, const char *name)
{
    const json_t *phases = json_object_get(row, "phases");

    for (size_t i = 0; i < json_array_size(phases); i++) {
        const json_t *phase = json_array_get(phases, i);

        if (!strcmp(found_words(phase, "phase"), name))
            return found_number(phase, "to_ms") - found_number(phase, "from_ms");
    }
    return -1;
}

static int found_compare(const void *a, const void *b)
{
    const json_int_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

json_int_t found_median(const struct found *f, const char *phase)
{
    const json_t *rows = json_object_get(f->page, "saves");
    json_int_t ms[MEDIANS], one;
    size_t count = 0;

    for (size_t i = f->at + 1; i < json_array_size(rows) && count < MEDIANS; i++) {
        const json_t *row = json_array_get(rows, i);

        if (!strcmp(found_words(row, "state"), "protected") &&
                (one = found_phase_ms(row, phase)) >= 0)
            ms[count++] = one;
    }
    if (!count)
        return -1;
    qsort(ms, count, sizeof(ms[0]), found_compare);
    return ms[count / 2];
}

/* ---- The verdict ----------------------------------------------------------------------------- */

const char *verdict_node(const struct found *coordinator)
{
    const json_t *slowest = json_object_get(coordinator->row, "slowest");
    json_int_t lag_ms = found_number(slowest, "lag_ms");

    return slowest && lag_ms * 4 >= found_number(coordinator->row, "ms")
                   ? found_words(slowest, "node")
                   : NULL;
}

static void verdict_phase(json_t *v, const char *phase, json_int_t ms, json_int_t median_ms)
{
    json_object_set_new(v, "phase", json_string(phase));
    if (ms >= 0)
        json_object_set_new(v, "ms", json_integer(ms));
    if (median_ms >= 0)
        json_object_set_new(v, "median_ms", json_integer(median_ms));
}

static void verdict_node_phase(json_t *v, const struct found *f, const char *phase)
{
    verdict_phase(v, phase, found_phase_ms(f->row, phase), found_median(f, phase));
}

/* Its ranks wrote long: one of them, or all. */
static void verdict_ranks(json_t *v, const struct found *f, json_int_t lag_ms)
{
    const json_t *written = json_object_get(f->row, "written");
    const json_t *last = json_object_get(written, "last");
    json_int_t behind = found_number(last, "ms") - found_number(written, "median_ms");

    if (!last || (found_number(written, "due") > 1 && behind * 2 < lag_ms))
        return;
    json_object_set_new(v, "kind", json_string("rank"));
    json_object_set(v, "rank", json_object_get(last, "rank"));
}

static void verdict_sealed(json_t *v, const struct found *f, json_int_t lag_ms)
{
    json_int_t write_ms = found_phase_ms(f->row, "write"), seal_ms = found_phase_ms(f->row, "seal");
    json_int_t slot_ms = found_number(json_object_get(f->row, "slot"), "ms");

    if (slot_ms > 0 && slot_ms * 2 >= lag_ms) { /* its ranks were not late: they had no slot */
        verdict_phase(v, "slot", slot_ms, -1);
        return;
    }
    if (write_ms < 0 || seal_ms < 0)
        return;
    if ((write_ms + seal_ms) * 2 < lag_ms) {
        verdict_phase(v, "begin", -1, -1);
        verdict_ranks(v, f, lag_ms);
    } else if (seal_ms > write_ms) {
        verdict_node_phase(v, f, "seal");
    } else {
        verdict_node_phase(v, f, "write");
        verdict_ranks(v, f, lag_ms);
    }
}

/* 1: the longest copy to the node of this record took most of the lag; from: by that node, or NULL.
 */
static int verdict_pair(json_t *v, const struct found *f, const char *from, json_int_t lag_ms)
{
    const json_t *pull = json_object_get(f->row, "pull");

    if (!pull || found_number(pull, "ms") * 2 < lag_ms ||
            (from && strcmp(from, found_words(pull, "node")) != 0))
        return 0;
    json_object_set_new(v, "kind", json_string("pair"));
    verdict_phase(v, "copy", found_number(pull, "ms"), -1);
    json_object_set(v, "node", json_object_get(f->page, "node"));
    json_object_set(v, "from", json_object_get(pull, "node"));
    json_object_set(v, "bytes", json_object_get(pull, "bytes"));
    return 1;
}

static void verdict_promised(json_t *v, const struct found *f, json_int_t lag_ms)
{
    if (!verdict_pair(v, f, NULL, lag_ms))
        verdict_node_phase(v, f, "promise");
}

/* The manifest to the node, or its report to the coordinator, was behind a copy on the same way. */
static void verdict_held(
        json_t *v, const struct found *coordinator, const struct found *f, json_int_t lag_ms)
{
    const char *name = found_words(f->page, "node");

    if (!verdict_pair(v, f, NULL, lag_ms) && !verdict_pair(v, coordinator, name, lag_ms))
        verdict_node_phase(v, f, "manifest");
}

/* No node was far behind: the longest phase of the record. */
static json_t *verdict_longest(const struct found *f)
{
    const json_t *phases = json_object_get(f->row, "phases");
    const char *name = NULL;
    json_int_t most = -1, ms;
    json_t *v;

    for (size_t i = 0; i < json_array_size(phases); i++) {
        const char *phase = found_words(json_array_get(phases, i), "phase");

        if ((ms = found_phase_ms(f->row, phase)) <= most)
            continue;
        most = ms;
        name = phase;
    }
    if (!name)
        return NULL;
    v = json_object();
    json_object_set_new(v, "kind", json_string("phase"));
    verdict_node_phase(v, f, name);
    return v;
}

json_t *verdict_of(const struct found *coordinator, const struct found *node)
{
    const char *name = verdict_node(coordinator), *report;
    const json_t *slowest = json_object_get(coordinator->row, "slowest");
    json_int_t lag_ms = found_number(slowest, "lag_ms");
    json_t *v;

    if (!name)
        return verdict_longest(coordinator);
    report = found_words(slowest, "report");
    v = json_object();
    json_object_set_new(v, "kind", json_string("node"));
    json_object_set_new(v, "node", json_string(name));
    json_object_set_new(v, "report", json_string(report));
    json_object_set_new(v, "lag_ms", json_integer(lag_ms));
    if (!node->row)
        return v;
    if (!strcmp(report, "sealed"))
        verdict_sealed(v, node, lag_ms);
    else if (!strcmp(report, "promised"))
        verdict_promised(v, node, lag_ms);
    else
        verdict_held(v, coordinator, node, lag_ms);
    return v;
}

/* ---- Its line -------------------------------------------------------------------------------- */

static void verdict_say_ms(const json_t *v)
{
    const json_t *ms = json_object_get(v, "ms"), *median = json_object_get(v, "median_ms");

    if (ms)
        say(" %" JSON_INTEGER_FORMAT " ms", json_integer_value(ms));
    if (median)
        say(" (median %" JSON_INTEGER_FORMAT " ms)", json_integer_value(median));
}

static void verdict_say_pair(const json_t *v)
{
    json_int_t ms = found_number(v, "ms"), bytes = found_number(v, "bytes");
    char size[32], rate[32];

    human(size, (uint64_t)bytes);
    human(rate, (uint64_t)(bytes * 1000 / (ms > 0 ? ms : 1)));
    say("%s -> %s: copy of %s in %" JSON_INTEGER_FORMAT " ms (%s/s)", found_words(v, "from"),
            found_words(v, "node"), size, ms, rate);
}

void verdict_say(const json_t *v)
{
    const char *kind = found_words(v, "kind"), *phase = found_words(v, "phase");

    if (!v)
        return;
    say("slowest: ");
    if (!strcmp(kind, "phase")) {
        say("phase %s,", phase);
        verdict_say_ms(v);
        say("; no node was far behind\n");
        return;
    }
    if (!strcmp(kind, "pair"))
        verdict_say_pair(v);
    else if (!strcmp(kind, "rank"))
        say("rank %" JSON_INTEGER_FORMAT " on node %s", found_number(v, "rank"),
                found_words(v, "node"));
    else
        say("node %s", found_words(v, "node"));
    if (!strcmp(phase, "begin"))
        say(": began late");
    else if (phase[0] && strcmp(kind, "pair") != 0)
        say(": %s", phase), verdict_say_ms(v);
    say("; %s %" JSON_INTEGER_FORMAT " ms after the median node\n", found_words(v, "report"),
            found_number(v, "lag_ms"));
}
