/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of objects that the same nodes have. Placement goes round the nodes, so the next run is
 * mostly the one before with each node a fixed step further on. That makes groups of runs as long
 * as each other:
 *
 *   groups up to the end, which must have come to all objects:
 *     runs | objects of each run | u8 holders, with DEALT | u8 mask: nodes that do not go by steps
 *     step of each other node: zigzag, from the run before, at each run of the group
 *     each run: the nodes in the mask
 *     DEALT: for each object which holder is asked first, in as many bits as that takes; padded to a byte
 *
 * Numbers without a length are LEB128, at most 32 bits. A holder that the run before lacked steps
 * from the last run that had as many, at first from 0. Not DEALT: the first node is asked first.
 */
#include "runs.h"

#include <stdlib.h>

#define DEALT       0x80u
#define OBJECTS_MAX (1u << 20)

/* ---- In memory
 * ---------------------------------------------------------------------------------- */

static int runs_node_cmp(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static uint32_t run_objects(const struct hth_runs *r, uint32_t i)
{
    return (i + 1 < r->runs ? r->run[i + 1].first : r->objects) - r->run[i].first;
}

static int runs_room(struct hth_runs *r, uint32_t objects, struct hearth_error *err)
{
    *r = (struct hth_runs){ .objects = objects };
    r->best = calloc(objects ? objects : 1, sizeof(*r->best));
    r->run = malloc(sizeof(*r->run));
    if (r->best && r->run)
        return HEARTH_OK;
    hth_runs_fini(r);
    return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the list of holders");
}

static int runs_add(struct hth_runs *r, const struct hth_run *run, struct hearth_error *err)
{
    struct hth_run *more;

    if (r->runs && !(r->runs & (r->runs - 1))) { /* full at each power of two */
        more = realloc(r->run, 2 * (size_t)r->runs * sizeof(*more));
        if (!more)
            return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the list of holders");
        r->run = more;
    }
    r->run[r->runs++] = *run;
    return HEARTH_OK;
}

/* Puts node k first. */
static void run_turn(struct hth_runs *r, uint32_t i, uint32_t k)
{
    struct hth_run *run = &r->run[i];
    uint32_t node = run->node[k], end = run->first + run_objects(r, i);

    memmove(run->node + 1, run->node, k * sizeof(run->node[0]));
    run->node[0] = node;
    for (uint32_t at = run->first; at < end; at++)
        r->best[at] = (uint8_t)(r->best[at] == k ? 0 : r->best[at] + (r->best[at] < k));
}

#define MISSES 4

/* Owners go up one by one: where the next one is among a run's nodes it comes first, wherever its
 * copies are, so that at least the first nodes go by steps. */
static void runs_align(struct hth_runs *r)
{
    uint32_t owner = 0, missed = 0;

    for (uint32_t i = 0; i < r->runs; i++, owner++) {
        const struct hth_run *run = &r->run[i];
        uint32_t k = 0;

        while (k < run->count && run->node[k] != owner)
            k++;
        if (k < run->count) {
            run_turn(r, i, k);
            missed = 0;
        } else if (++missed == MISSES) {
            owner = run->count ? run->node[0] : owner;
            missed = 0;
        }
    }
}

int hth_runs_make(struct hth_runs *out, const struct hth_sources *sources, uint32_t objects,
        struct hearth_error *err)
{
    struct hth_runs r;
    int rc = runs_room(&r, objects, err);

    for (uint32_t i = 0; i < objects && !rc; i++) {
        const struct hth_run *last = r.runs ? &r.run[r.runs - 1] : NULL;
        struct hth_run run = { .first = i, .count = sources[i].count };
        size_t bytes = run.count * sizeof(run.node[0]);

        memcpy(run.node, sources[i].node, bytes);
        qsort(run.node, run.count, sizeof(run.node[0]), runs_node_cmp);
        while (run.count && run.node[r.best[i]] != sources[i].node[0])
            r.best[i]++;
        if (!last || last->count != run.count || memcmp(last->node, run.node, bytes) != 0)
            rc = runs_add(&r, &run, err);
    }
    if (rc) {
        hth_runs_fini(&r);
        return rc;
    }
    runs_align(&r);
    *out = r;
    return HEARTH_OK;
}

void hth_runs_get(const struct hth_runs *r, uint32_t object, struct hth_sources *out)
{
    uint32_t lo = 0, hi = object < r->objects ? r->runs : 0, best;
    const struct hth_run *run;

    *out = (struct hth_sources){ 0 };
    while (lo + 1 < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (r->run[mid].first <= object)
            lo = mid;
        else
            hi = mid;
    }
    if (!hi || !r->run[lo].count)
        return;
    run = &r->run[lo];
    best = r->best[object];
    out->node[out->count++] = run->node[best];
    for (uint32_t k = 0; k < run->count; k++)
        if (k != best)
            out->node[out->count++] = run->node[k];
}

void hth_runs_fini(struct hth_runs *r)
{
    free(r->run);
    free(r->best);
    *r = (struct hth_runs){ 0 };
}

/* ---- As bytes
 * -------------------------------------------------------------------------------------- */

static void runs_write_number(struct hth_writer *w, uint32_t v)
{
    for (; v >= 0x80; v >>= 7)
        hth_write8(w, (uint8_t)(v | 0x80));
    hth_write8(w, (uint8_t)v);
}

static uint32_t runs_read_number(struct hth_reader *in)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 35; shift += 7) {
        const unsigned char *p = hth_read(in, 1);

        v |= p ? (uint64_t)(*p & 0x7f) << shift : 0;
        if (!p || !(*p & 0x80)) {
            in->bad |= v > UINT32_MAX;
            return (uint32_t)v;
        }
    }
    in->bad = 1;
    return 0;
}

static uint32_t runs_zigzag(uint32_t step)
{
    return step << 1 ^ (step >> 31 ? UINT32_MAX : 0);
}

static uint32_t runs_unzigzag(uint32_t v)
{
    return v >> 1 ^ (v & 1 ? UINT32_MAX : 0);
}

/* How many bits name the holder of `count` that is asked first. */
static unsigned runs_width(uint32_t count)
{
    unsigned width = 0;

    while (count > 1u << width)
        width++;
    return width;
}

struct runs_group {
    uint32_t first, runs; /* of the list's */
    uint32_t objects, count;
    unsigned mask;
    uint32_t step[HTH_PLAN_SOURCES];
};

static int group_fits(const struct runs_group *g, const struct hth_runs *r, uint32_t i)
{
    return i < r->runs && r->run[i].count == g->count && run_objects(r, i) == g->objects;
}

static uint32_t group_step(const struct hth_runs *r, uint32_t i, uint32_t k)
{
    return r->run[i].node[k] - r->run[i - 1].node[k];
}

/* The nodes of the group's mask go by steps from run i on. */
static int group_is_even(const struct runs_group *g, const struct hth_runs *r, uint32_t i)
{
    if (!g->mask || !group_fits(g, r, i + 1) || !group_fits(g, r, i + 2))
        return 0;
    for (uint32_t k = 0; k < g->count; k++)
        if (g->mask & 1u << k && (group_step(r, i, k) != group_step(r, i + 1, k) ||
                                         group_step(r, i, k) != group_step(r, i + 2, k)))
            return 0;
    return 1;
}

static int group_goes_on(const struct runs_group *g, const struct hth_runs *r, uint32_t i)
{
    if (!group_fits(g, r, i) || group_is_even(g, r, i))
        return 0;
    for (uint32_t k = 0; k < g->count; k++)
        if (!(g->mask & 1u << k) && group_step(r, i, k) != g->step[k])
            return 0;
    return 1;
}

/* before[k]: node k of the last run that had one. */
static struct runs_group group_begin(
        const struct hth_runs *r, uint32_t i, const uint32_t before[HTH_PLAN_SOURCES])
{
    struct runs_group g = {
        .first = i, .runs = 1, .objects = run_objects(r, i), .count = r->run[i].count
    };
    int more = group_fits(&g, r, i + 1) && group_fits(&g, r, i + 2);

    for (uint32_t k = 0; k < g.count; k++) {
        g.step[k] = r->run[i].node[k] - before[k];
        if (more && group_step(r, i + 1, k) != g.step[k] &&
                group_step(r, i + 1, k) != group_step(r, i + 2, k))
            g.mask |= 1u << k;
    }
    while (group_goes_on(&g, r, i + g.runs))
        g.runs++;
    return g;
}

static void group_write_best(
        struct hth_writer *w, const uint8_t *best, uint32_t objects, uint32_t count)
{
    unsigned width = runs_width(count), bits = 0, held = 0;

    for (uint32_t i = 0; i < objects; i++) {
        held |= (unsigned)best[i] << bits;
        bits += width;
        for (; bits >= 8; bits -= 8, held >>= 8)
            hth_write8(w, (uint8_t)held);
    }
    if (bits)
        hth_write8(w, (uint8_t)held);
}

static void group_write(struct hth_writer *w, const struct hth_runs *r, const struct runs_group *g)
{
    const uint8_t *best = r->best + r->run[g->first].first;
    uint32_t objects = g->runs * g->objects, dealt = 0;

    for (uint32_t i = 0; i < objects; i++)
        dealt |= best[i];
    runs_write_number(w, g->runs);
    runs_write_number(w, g->objects);
    hth_write8(w, (uint8_t)(g->count | (dealt ? DEALT : 0)));
    hth_write8(w, (uint8_t)g->mask);
    for (uint32_t k = 0; k < g->count; k++)
        if (!(g->mask & 1u << k))
            runs_write_number(w, runs_zigzag(g->step[k]));
    for (uint32_t i = g->first; i < g->first + g->runs; i++)
        for (uint32_t k = 0; k < g->count; k++)
            if (g->mask & 1u << k)
                runs_write_number(w, r->run[i].node[k]);
    if (dealt)
        group_write_best(w, best, objects, g->count);
}

void hth_runs_write(struct hth_writer *w, const struct hth_runs *r)
{
    uint32_t before[HTH_PLAN_SOURCES] = { 0 };

    for (uint32_t i = 0; i < r->runs;) {
        struct runs_group g = group_begin(r, i, before);

        group_write(w, r, &g);
        i += g.runs;
        memcpy(before, r->run[i - 1].node, g.count * sizeof(before[0]));
    }
}

static int run_has(const struct hth_run *run, uint32_t count, uint32_t node)
{
    for (uint32_t k = 0; k < count; k++)
        if (run->node[k] == node)
            return 1;
    return 0;
}

static int group_read_head(struct hth_reader *in, struct runs_group *g, unsigned *out_dealt)
{
    const unsigned char *p;

    g->runs = runs_read_number(in);
    g->objects = runs_read_number(in);
    p = hth_read(in, 2);
    g->count = p ? p[0] & ~DEALT : 0;
    *out_dealt = p ? p[0] & DEALT : 0;
    g->mask = p ? p[1] : 0;
    if (in->bad || !g->runs || !g->objects || g->count > HTH_PLAN_SOURCES || g->mask >> g->count ||
            (*out_dealt && g->count < 2))
        return HEARTH_EPROTO;
    for (uint32_t k = 0; k < g->count; k++)
        if (!(g->mask & 1u << k))
            g->step[k] = runs_unzigzag(runs_read_number(in));
    return in->bad ? HEARTH_EPROTO : HEARTH_OK;
}

static int group_read_best(struct hth_reader *in, uint8_t *best, uint32_t objects, uint32_t count)
{
    unsigned width = runs_width(count), bits = 0, held = 0;

    for (uint32_t i = 0; i < objects; i++) {
        if (bits < width) {
            const unsigned char *p = hth_read(in, 1);

            held |= (p ? *p : 0u) << bits;
            bits += 8;
        }
        best[i] = (uint8_t)(held & ((1u << width) - 1));
        held >>= width;
        bits -= width;
        if (in->bad || best[i] >= count)
            return HEARTH_EPROTO;
    }
    return HEARTH_OK;
}

/* The next group; `at` is the first object that it has, and then the next one's. */
static int group_read(struct hth_reader *in, struct hth_runs *r, uint32_t *at,
        uint32_t before[HTH_PLAN_SOURCES], struct hearth_error *err)
{
    struct runs_group g = { 0 };
    uint32_t first = *at;
    unsigned dealt;
    int rc = group_read_head(in, &g, &dealt);

    if (!rc && (uint64_t)g.runs * g.objects > r->objects - first)
        rc = HEARTH_EPROTO;
    for (uint32_t i = 0; i < g.runs && !rc; i++, *at += g.objects) {
        struct hth_run run = { .first = *at, .count = g.count };

        for (uint32_t k = 0; k < g.count; k++) {
            before[k] = g.mask & 1u << k ? runs_read_number(in) : before[k] + g.step[k];
            if (in->bad || run_has(&run, k, before[k]))
                return HEARTH_EPROTO;
            run.node[k] = before[k];
        }
        rc = runs_add(r, &run, err);
    }
    if (!rc && dealt)
        rc = group_read_best(in, r->best + first, *at - first, g.count);
    return rc;
}

int hth_runs_read(
        struct hth_reader *in, uint32_t objects, struct hth_runs *out, struct hearth_error *err)
{
    uint32_t before[HTH_PLAN_SOURCES] = { 0 }, at = 0;
    struct hth_runs r;
    int rc = objects > OBJECTS_MAX ? HEARTH_EPROTO : runs_room(&r, objects, err);

    if (rc == HEARTH_ENOMEM)
        return rc;
    while (!rc && at < objects)
        rc = group_read(in, &r, &at, before, err);
    if (!rc && (in->bad || in->pos != in->len))
        rc = HEARTH_EPROTO;
    if (rc && objects <= OBJECTS_MAX)
        hth_runs_fini(&r);
    if (rc == HEARTH_EPROTO)
        return hth_fail(err, rc, 0, "byte %zu: the list of holders cannot be decoded", in->pos);
    if (!rc)
        *out = r;
    return rc;
}
