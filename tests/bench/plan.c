/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_plan: who has what of a save of 16,384 nodes with 8 ranks each, found from their inventories: a
 * shard of each rank, with a copy on the next node. The limit is a bsearch() in the manifest for each entry.
 */
#include "bench.h"

#include "loader/plan/plan.h"
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 8u

static struct {
    const char *json;
    uint32_t nodes;
    unsigned rounds;
} arg = { .nodes = 16384, .rounds = 5 };

static struct hth_inventory *all;
static struct hth_manifest manifest;
static uint32_t *rank_node;

static void put(struct hth_seen_save *s, uint32_t rank)
{
    struct hth_seen_object *o = &s->object[s->objects++];

    o->id = manifest.object[rank].id;
    memcpy(o->digest, manifest.object[rank].digest, HTH_DIGEST);
}

static void make_manifest(void)
{
    uint32_t world = arg.nodes * RANKS;

    manifest = (struct hth_manifest){
        .save = { 9, 9, 9, 1 }, .world = world, .nodes = arg.nodes, .objects = world
    };
    manifest.object = calloc(world, sizeof(*manifest.object));
    rank_node = calloc(world, sizeof(*rank_node));
    if (!manifest.object || !rank_node)
        die("no memory");
    for (uint32_t r = 0; r < world; r++) {
        manifest.object[r] = (struct hth_object){
            .id = hth_object_id(r, 0), .owner = r, .data_len = (UINT64_C(1) << 34) + r % 7
        };
        memcpy(manifest.object[r].digest, &r, sizeof(r));
        rank_node[r] = r / RANKS;
    }
}

/* Of each node its own ranks' objects and those of the node before; all others still hold theirs. */
static void make_inventories(void)
{
    all = calloc(arg.nodes, sizeof(*all));
    for (uint32_t n = 0; all && n < arg.nodes; n++) {
        struct hth_seen_save *s = calloc(1, sizeof(*s));
        uint32_t before = n ? n - 1 : arg.nodes - 1, first = n ? before : n, next = n ? n : before;

        if (!s || !(s->object = calloc(2 * (size_t)RANKS, sizeof(*s->object))))
            die("no memory");
        s->id = manifest.save;
        for (uint32_t r = 0; r < RANKS; r++)
            put(s, first * RANKS + r);
        for (uint32_t r = 0; r < RANKS; r++)
            put(s, next * RANKS + r);
        all[n] = (struct hth_inventory){ .saves = 1, .save = s };
    }
}

/* In seconds. */
static double find_s(void)
{
    struct hth_sources *out = calloc(manifest.objects, sizeof(*out));
    double begin = now_s(), took;

    if (hth_sources_find(all, arg.nodes, rank_node, manifest.world, &manifest, out, NULL))
        die("an object is lost that two nodes have");
    took = now_s() - begin;
    for (uint32_t i = 0; i < manifest.objects; i++)
        if (out[i].count != 2)
            die("%u holders instead of two", out[i].count);
    free(out);
    return took;
}

static int by_id(const void *key, const void *object)
{
    uint64_t id = *(const uint64_t *)key, other = ((const struct hth_object *)object)->id;

    return id < other ? -1 : id > other;
}

static double search_s(void)
{
    double begin = now_s();

    for (uint32_t n = 0; n < arg.nodes; n++)
        for (uint32_t i = 0; i < all[n].save->objects; i++)
            if (!bsearch(&all[n].save->object[i].id, manifest.object, manifest.objects,
                        sizeof(*manifest.object), by_id))
                die("an entry that is in no manifest");
    return now_s() - begin;
}

int main(int argc, char **argv)
{
    static const struct option known[] = { { "json", 1, NULL, 'j' }, { "nodes", 1, NULL, 'm' },
        { "rounds", 1, NULL, 'n' }, { NULL, 0, NULL, 0 } };
    struct series find = { 0 }, search = { 0 };
    int c;

    while ((c = getopt_long(argc, argv, "", known, NULL)) >= 0) {
        if (c == 'j')
            arg.json = optarg;
        else if (c == 'm')
            arg.nodes = (uint32_t)strtoul(optarg, NULL, 10);
        else if (c == 'n')
            arg.rounds = (unsigned)strtoul(optarg, NULL, 10);
        else
            exit(2);
    }
    if (arg.nodes < 2 || arg.nodes > 16384 || !arg.rounds || arg.rounds > ROUNDS_MAX)
        die("usage: bench_plan [--nodes 2..16384] [--rounds 1..%d] [--json LINES]", ROUNDS_MAX);
    rows_open(arg.json, NULL);
    make_manifest();
    make_inventories();
    for (unsigned i = 0; i <= arg.rounds; i++) { /* the first one is warm-up */
        double a = search_s(), b = find_s(), objects = manifest.objects * 1e-6;

        if (!i)
            continue;
        series_add(&search, objects / a);
        series_add(&find, objects / b);
    }
    return row_say(&(struct row){ .name = "plan: who has what, 16,384 nodes x 8 ranks",
                   .limit_name = "bsearch() for each entry",
                   .rate = &find,
                   .limit = &search,
                   .unit = "M/s",
                   .want = 0.20 })
                   ? 3
                   : 0;
}
