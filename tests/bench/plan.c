/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_plan: what the coordinator works out in a recovery of a large job, from made-up
 * inventories, and what that is beside a bare merge of the same ids; then the map that is made when
 * one node in a hundred is lost.
 *
 *   look   a candidate's manifest is decoded, and its objects are looked for   (a worker's)
 *   plan   written as it goes down and on record, and read again by this node  (a worker's)
 *   map    hth_remap()                                                         (the engine's thread)
 *
 * Each object is at its owner's and on the next one or two nodes; `LOST` nodes, all over the job,
 * have come back with nothing.
 */
#include "bench.h"

#include "core/base/auth.h"
#include "core/format/plans.h"
#include "loader/plan/plan.h"
#include "replication/commit/remap.h"
#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define LOST 64u

struct shape {
    uint32_t nodes, ranks, objects, copies; /* ranks of a node, objects of a rank */
    int moved; /* every rank is on another node now, so that all objects are pulled */
    double want;
};
static const struct shape shapes[] = {
    { 16384, 8, 1, 1, 0, 0.5 },
    { 16384, 8, 1, 2, 0, 0.5 },
    { 16384, 8, 1, 2, 1, 0 },
    { 1024, 8, 16, 1, 0, 0.5 },
    { 1024, 8, 16, 2, 0, 0.5 },
    { 1024, 8, 16, 2, 1, 0 },
};

static struct {
    const char *json;
    unsigned rounds;
} arg = { .rounds = 5 };

static struct job_of { /* made up, of one shape */
    const struct shape *shape;
    struct hth_inventory *all; /* [nodes] */
    struct hth_manifest manifest;
    unsigned char *bytes; /* the manifest's */
    uint32_t *rank_node;
    uint32_t entries; /* of all inventories */
    double inventory_mb;
} made;

static double used_mb(void)
{
    struct mallinfo2 m = mallinfo2();

    return (double)(m.uordblks + m.hblkhd) / (1 << 20);
}

static void *zeros(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);

    if (!p)
        die("no memory");
    return p;
}

/* ---- What is made up
 * ------------------------------------------------------------------------------ */

static void make_manifest(const struct shape *s)
{
    struct hth_manifest *m = &made.manifest;
    uint32_t world = s->nodes * s->ranks, count = world * s->objects;

    *m = (struct hth_manifest){
        .save = { 9, 9, 9, 1 }, .world = world, .nodes = s->nodes, .objects = count, .job = "bench"
    };
    m->object = zeros(count, sizeof(*m->object));
    made.rank_node = zeros(world, sizeof(*made.rank_node));
    for (uint32_t i = 0; i < count; i++) {
        struct hth_object *o = &m->object[i];
        uint32_t r = i / s->objects;

        *o = (struct hth_object){ .id = hth_object_id(r, i % s->objects),
            .owner = r,
            .kind = HTH_OBJECT_SHARD,
            .data_len = (UINT64_C(1) << 34) + i % 7,
            .table_len = 4096 };
        snprintf(o->name, sizeof(o->name), "shard_%u_%u", r, i % s->objects);
        memcpy(o->digest, &i, sizeof(i));
        made.rank_node[r] = (r / s->ranks + (s->moved ? s->nodes / 2 : 0)) % s->nodes;
    }
    made.bytes = zeros(1, hth_manifest_bytes(m));
    if (hth_manifest_encode(m, made.bytes, NULL))
        die("a manifest that cannot be");
}

static int is_lost(const struct shape *s, uint32_t node)
{
    return node % (s->nodes / LOST) == 1;
}

/* All that a node owns, in the order of the manifest. */
static void put(struct hth_seen_save *s, const struct shape *shape, uint32_t owner)
{
    uint32_t each = shape->ranks * shape->objects;
    struct hth_seen_run *last = s->runs ? &s->run[s->runs - 1] : NULL;

    if (last && last->first + last->count == owner * each)
        last->count += each;
    else
        s->run[s->runs++] = (struct hth_seen_run){ owner * each, each };
    made.entries += each;
}

static void make_inventory(const struct shape *shape, uint32_t node)
{
    struct hth_seen_save *s = zeros(1, sizeof(*s));
    uint32_t first = node < shape->copies ? 0 : node - shape->copies;

    s->id = made.manifest.save;
    s->has_manifest = 1;
    memcpy(s->manifest, made.manifest.digest, HTH_DIGEST);
    s->run = zeros(shape->copies + 1, sizeof(*s->run));
    for (uint32_t owner = first; owner <= node; owner++)
        put(s, shape, owner);
    for (uint32_t copy = node < shape->copies ? shape->copies - node : 0; copy > 0; copy--)
        put(s, shape, shape->nodes - copy);
    made.all[node] = (struct hth_inventory){ .saves = 1, .save = s };
}

static size_t inventory_bytes(uint32_t generations)
{
    struct hth_seen_save of[8];
    struct hth_inventory inv = { .saves = generations, .save = of };

    for (uint32_t i = 0; i < generations; i++)
        of[i] = *made.all[2].save;
    return hth_inventory_bytes(&inv);
}

static void make(const struct shape *s)
{
    double before;

    made = (struct job_of){ .shape = s };
    make_manifest(s);
    before = used_mb();
    made.all = zeros(s->nodes, sizeof(*made.all));
    for (uint32_t n = 0; n < s->nodes; n++)
        if (!is_lost(s, n))
            make_inventory(s, n);
    made.inventory_mb = used_mb() - before;
}

static void unmake(void)
{
    for (uint32_t n = 0; n < made.shape->nodes; n++)
        hth_inventory_fini(&made.all[n]);
    hth_manifest_fini(&made.manifest);
    free(made.all);
    free(made.bytes);
    free(made.rank_node);
}

/* ---- What the coordinator does
 * --------------------------------------------------------------------- */

/* A member reads the sources that were found: the same holders, and the same one first. */
static void check_plan(const unsigned char *bytes, size_t len, const struct hth_sources *sources)
{
    struct hth_sources got;
    struct hth_plan mine;

    if (hth_plan_decode(&mine, bytes, len, NULL) || mine.from.objects != made.manifest.objects)
        die("a plan that cannot be read");
    for (uint32_t i = 0; i < mine.from.objects; i++) {
        uint32_t sum = 0;

        hth_runs_get(&mine.from, i, &got);
        for (uint32_t k = 0; k < got.count; k++)
            sum += got.node[k] - (k < sources[i].count ? sources[i].node[k] : 0);
        if (sum || got.count != sources[i].count || got.node[0] != sources[i].node[0])
            die("a plan with other holders");
    }
    hth_plan_fini(&mine);
}

struct took_s {
    double find, look, plan, mb;
    size_t plan_len;
};

/* As a worker of the coordinator does it: loader/choice/background.c. */
static void choose(struct took_s *t)
{
    const struct shape *s = made.shape;
    struct hth_manifest m;
    double before = used_mb(), a = now_s(), b, c;
    struct hth_plan plan;
    struct hth_plans record;
    struct hth_sources *sources = zeros(made.manifest.objects, sizeof(*sources));
    unsigned char *bytes, *recorded, digest[HTH_DIGEST];

    if (hth_manifest_decode(&m, made.bytes, hth_manifest_bytes(&made.manifest), NULL))
        die("a manifest that cannot be read");
    b = now_s();
    if (hth_sources_find(made.all, s->nodes, made.rank_node, m.world, &m, sources, NULL))
        die("an object is lost that a node has");
    c = now_s();
    t->find = c - b;
    t->look = c - a;
    plan = (struct hth_plan){ .serial = 1, .chosen = m.save, .keeps = 1, .keep = { m.save } };
    memcpy(plan.manifest, m.digest, HTH_DIGEST);
    if (hth_runs_make(&plan.from, sources, m.objects, NULL))
        die("no memory");
    t->plan_len = hth_plan_bytes(&plan);
    bytes = zeros(1, t->plan_len);
    hth_plan_encode(&plan, bytes);
    hth_digest(digest, bytes, t->plan_len);
    record = (struct hth_plans){ .serial = 1, .plan = bytes, .plan_len = t->plan_len };
    recorded = zeros(1, hth_plans_bytes(&record));
    hth_plans_encode(&record, recorded);
    t->plan = now_s() - c;
    t->mb = used_mb() - before;
    check_plan(bytes, t->plan_len, sources);
    hth_plan_fini(&plan);
    hth_manifest_fini(&m);
    free(sources);
    free(bytes);
    free(recorded);
}

/* ---- The limit
 * --------------------------------------------------------------------------------------- */

struct entry {
    uint64_t id;
    uint32_t node;
};

static uint32_t merge_two(
        const struct entry *in, uint32_t at, uint32_t mid, uint32_t end, struct entry *out)
{
    uint32_t a = at, b = mid, n = 0;

    while (a < mid || b < end)
        out[n++] = b == end || (a < mid && in[a].id <= in[b].id) ? in[a++] : in[b++];
    return n;
}

/* The holders of all objects by nothing but a merge of all nodes' lists, two by two, and one walk
 * along the manifest. */
static double merge_s(void)
{
    uint32_t nodes = made.shape->nodes, runs = 0, n = 0;
    struct entry *in = zeros(made.entries, sizeof(*in)), *out = zeros(made.entries, sizeof(*out));
    uint32_t *run = zeros(nodes + 2, sizeof(*run));
    double begin = now_s();

    for (uint32_t i = 0; i < nodes; i++) {
        const struct hth_seen_save *s = made.all[i].save;

        for (uint32_t k = 0; s && k < s->runs; k++)
            for (uint32_t at = 0; at < s->run[k].count; at++)
                in[n++] = (struct entry){ made.manifest.object[s->run[k].first + at].id, i };
        run[++runs] = n;
    }
    while (runs > 1) {
        struct entry *swap = in;
        uint32_t left = 0;

        for (uint32_t i = 0; i < runs; i += 2) {
            uint32_t mid = run[i + 1], end = i + 2 <= runs ? run[i + 2] : mid;

            merge_two(in, run[i], mid, end, out + run[i]);
            run[++left] = end;
        }
        runs = left;
        in = out;
        out = swap;
    }
    n = 0;
    for (uint32_t i = 0; i < made.manifest.objects; i++) {
        uint32_t first = n;

        while (n < made.entries && in[n].id == made.manifest.object[i].id)
            n++;
        if (n == first)
            die("an object that is on no list");
    }
    begin = now_s() - begin;
    free(in);
    free(out);
    free(run);
    return begin;
}

/* ---- Rows
 * ---------------------------------------------------------------------------------------------- */

static int bench_choice(const struct shape *s)
{
    struct series find = { 0 }, merge = { 0 };
    struct took_s t = { 0 };
    char name[64];

    make(s);
    for (unsigned i = 0; i <= arg.rounds; i++) { /* the first one is warm-up */
        double limit = merge_s();

        choose(&t);
        if (!i)
            continue;
        series_add(&merge, made.manifest.objects * 1e-6 / limit);
        series_add(&find, made.manifest.objects * 1e-6 / t.find);
    }
    snprintf(name, sizeof(name), "plan: who has what, %u x %u x %u, %u cop%s%s", s->nodes, s->ranks,
            s->objects, s->copies, s->copies == 1 ? "y" : "ies", s->moved ? ", moved" : "");
    printf("%s: look %.0f ms, plan %.0f ms; inventories %.1f MB, %zu bytes a node, %zu with three "
           "generations; look and plan %.0f MB, the plan %zu bytes\n",
            name, 1e3 * t.look, 1e3 * t.plan, made.inventory_mb, inventory_bytes(1),
            inventory_bytes(3), t.mb, t.plan_len);
    unmake();
    return row_say(&(struct row){ .name = name,
            .limit_name = "a merge of the same ids",
            .rate = &find,
            .limit = &merge,
            .unit = "M/s",
            .want = s->want });
}

/* One node in a hundred is lost, then is back: maps a second. */
static void bench_map(uint32_t nodes, uint32_t ranks, uint32_t copies)
{
    struct hth_epoch e = { .epoch = 9, .nonce = 9, .world = nodes * ranks, .nodes = nodes };
    struct series rate = { 0 };
    struct hth_placement base;
    struct hth_places map;
    uint8_t *is = zeros(nodes, 1);
    uint32_t moved = 0, stuck;
    char name[64];

    e.member = zeros(nodes, sizeof(*e.member));
    e.rank_node = zeros(e.world, sizeof(*e.rank_node));
    for (uint32_t r = 0; r < e.world; r++)
        e.rank_node[r] = r / ranks;
    for (uint32_t n = 0; n < nodes; n++)
        e.member[n].domain[0] = 1 + n / 16;
    if (hth_placement_make(&base, &e, copies, 1, 0, NULL))
        die("no placement");
    hth_places_first(&map, e.epoch, e.nonce);
    for (unsigned i = 0; i <= 2 * arg.rounds; i++) {
        struct hth_remap in = {
            .epoch = &e, .base = &base, .last = &map, .settled = 1, .reach = is, .min_copies = 1
        };
        struct hth_move *move = NULL;
        uint32_t moves, now = 0;
        double begin;

        for (uint32_t n = 1; n < nodes; n += 100)
            is[n] = i % 2 ? HTH_REACHABLE : HTH_UNREACHABLE;
        begin = now_s();
        if (hth_remap(&in, &move, &moves, &now, &stuck) || stuck)
            die("no map");
        if (i && i % 2 == 0)
            series_add(&rate, 1 / (now_s() - begin));
        moved = i % 2 ? moved : now;
        free(map.move);
        map.move = move;
        map.moves = moves;
    }
    snprintf(name, sizeof(name), "plan: map of %u x %u, %u lost", nodes, ranks, (nodes + 98) / 100);
    printf("%s: %" PRIu32 " places move in %.1f ms\n", name, moved, 1e3 / series_median(&rate));
    row_say(&(struct row){ .name = name, .rate = &rate, .unit = "/s" });
    hth_places_fini(&map);
    hth_placement_fini(&base);
    free(e.member);
    free(e.rank_node);
    free(is);
}

int main(int argc, char **argv)
{
    static const struct option known[] = { { "json", 1, NULL, 'j' }, { "rounds", 1, NULL, 'n' },
        { NULL, 0, NULL, 0 } };
    int c, low = 0;

    while ((c = getopt_long(argc, argv, "", known, NULL)) >= 0) {
        if (c == 'j')
            arg.json = optarg;
        else if (c == 'n')
            arg.rounds = (unsigned)strtoul(optarg, NULL, 10);
        else
            exit(2);
    }
    if (!arg.rounds || arg.rounds > ROUNDS_MAX)
        die("usage: bench_plan [--rounds 1..%d] [--json LINES]", ROUNDS_MAX);
    rows_open(arg.json, NULL, 0);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        low |= bench_choice(&shapes[i]);
    bench_map(1024, 8, 1);
    bench_map(16384, 8, 1);
    bench_map(16384, 8, 2);
    return low ? 3 : 0;
}
