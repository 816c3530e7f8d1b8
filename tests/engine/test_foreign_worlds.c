/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Foreign containers as a cluster may be left with them, made by dice: of each file its rank's own
 * copy and a replica on the next node, each whole, torn, of another save of that step, or away; and
 * on each node a `.metadata` of any of these. A model of twenty lines computes what must be chosen.
 * It has the list of how the files were made, and shares nothing with the engine.
 */
#include "check.h"
#include "world_parts.h"

#include "core/base/bytes.h"
#include "core/foreign/foreign.h"
#include "core/torch/header.h"
#include "replication/held/holdings.h"
#include <hearth/metadata.h>
#include <hearth/read.h>
#include <hearth/save.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NODES_MAX 4u
#define RANKS_MAX (2 * NODES_MAX)
#define STEPS     3u
#define WORLDS    1000u
#define FILE_MAX  8192u
#define ITEMS     3u

/* Saves of one step. The second has the same items as the first, the others have not. */
enum version { AWAY = -2, TORN = -1, NEWEST, SAME_ITEMS, OTHER_SHAPE, OTHER_LENGTH, VERSIONS };
enum format { TENSORS, NO_SIGNATURE }; /* the second: as ml-flashpoint wrote it up to v0.0.4 */

struct copies {
    enum version own, replica;
};

struct cluster {
    uint32_t nodes, ranks_per_node;
    enum format format;
    int moved; /* each rank to the node that has its replica; its own copy is known by its link */
    struct copies file[STEPS][RANKS_MAX];                              /* of rank */
    enum version metadata[STEPS][NODES_MAX], common[STEPS][NODES_MAX]; /* on node */
};

#define COMMON "common.pt"

struct choice {
    uint32_t step;                                  /* 0: none */
    enum version file[RANKS_MAX], metadata, common; /* AWAY: on no node */
};

static uint32_t ranks_of(const struct cluster *c)
{
    return c->nodes * c->ranks_per_node;
}

static uint32_t home_of(const struct cluster *c, uint32_t rank)
{
    return rank / c->ranks_per_node;
}

static uint32_t copy_of(const struct cluster *c, uint32_t rank, int own)
{
    return (home_of(c, rank) + (own == c->moved)) % c->nodes;
}

static struct world w;
static uint64_t dice;

static uint32_t roll(uint32_t sides)
{
    dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(dice >> 33) % sides;
}

/* ---- Saves
 * ------------------------------------------------------------------------------------- */

struct shape {
    uint32_t ndim;
    int64_t dim[2];
};

static struct shape shape_of(enum version v, uint32_t item)
{
    if (item == 0)
        return v == OTHER_SHAPE ? (struct shape){ 2, { 3, 2 } } : (struct shape){ 2, { 2, 3 } };
    return v == OTHER_LENGTH ? (struct shape){ 1, { 5 } } : (struct shape){ 1, { 4 } };
}

static uint64_t payload_of(enum version v, uint32_t item)
{
    struct shape s = shape_of(v, item);

    if (item == ITEMS - 1) /* a byte item */
        return 7;
    return 4 * (uint64_t)(s.dim[0] * (s.ndim == 2 ? s.dim[1] : 1));
}

/* Item `item` of a file, at `at` where there is a place; its length. */
static uint64_t item_put(unsigned char *at, enum format f, enum version v, uint32_t item, int fill)
{
    struct shape s = shape_of(v, item);
    struct hth_header h = { .dtype = HEARTH_FLOAT32, .ndim = s.ndim };
    unsigned char head[HTH_HEADER_MAX];
    size_t n = 0;

    memcpy(h.shape, s.dim, s.ndim * sizeof(s.dim[0]));
    if (f == TENSORS && item < ITEMS - 1)
        n = hth_header_encode(&h, head);
    if (at) {
        memcpy(at, head, n);
        memset(at + n, fill, payload_of(v, item));
    }
    return n + payload_of(v, item);
}

static size_t object_make(
        unsigned char out[FILE_MAX], enum format f, uint32_t step, uint32_t rank, enum version v)
{
    int fill = (int)(1 + step * 64 + rank * 8 + (uint32_t)v);
    uint64_t len = 0;

    memset(out, 0, FILE_MAX);
    for (uint32_t i = 0; i < ITEMS; i++)
        len += item_put(out + HTH_BLOCK + len, f, v, i, fill);
    hth_put64(out, len);
    if (f == TENSORS)
        memcpy(out + 8, "MLF_TENS", 8);
    return HTH_BLOCK + len;
}

static void name_of(char out[40], uint32_t rank)
{
    snprintf(out, 40, "__%u__0_src%u.distcp", rank, rank);
}

static void *metadata_make(const struct cluster *c, enum version v, size_t *out_len)
{
    struct hearth_metadata_writer *md;
    char name[40], key[16];
    void *bytes;

    must(hearth_metadata_write(v == NEWEST ? "newest" : "older", NULL, &md, NULL));
    for (uint32_t r = 0; r < ranks_of(c); r++) {
        uint64_t at = 0;

        name_of(name, r);
        for (uint32_t i = 0; i < ITEMS; i++) {
            uint64_t len = item_put(NULL, c->format, v, i, 0);
            struct shape s = shape_of(v, i);
            struct hearth_piece piece = { .struct_size = sizeof(piece),
                .key = key,
                .dtype = HEARTH_FLOAT32,
                .ndim = s.ndim,
                .shape = s.dim };

            piece.key_len = (size_t)snprintf(key, sizeof(key), "k%u.%u", r, i);
            if (i < ITEMS - 1)
                must(hearth_metadata_add_piece(md, &piece, name, at, len, NULL));
            else
                must(hearth_metadata_add_bytes(md, key, piece.key_len, name, at, len, NULL));
            at += len;
        }
    }
    must(hearth_metadata_finish(md, &bytes, out_len, NULL));
    return bytes;
}

/* ---- Files on nodes
 * ---------------------------------------------------------------------------- */

/* As adoption finds it: what is torn to see is left out. */
static void file_put(uint32_t node, uint32_t step, const char *name, const unsigned char *bytes,
        size_t len, int link)
{
    struct hth_ctx *c = hth_node_ctx(world_node(&w, node));
    struct hth_object o = hth_foreign_object(name, len);
    struct hth_held_save *s = hth_holdings_get(c, hth_save_of_foreign(step));
    struct hth_foreign_data data;
    struct hth_held *held;
    struct hth_slot *slot;

    if (hth_foreign_data(&data, bytes, len, NULL))
        return;
    must(c->store->ops->take(c->store, len, &slot, NULL));
    memcpy(slot->base, bytes, len);
    held = hth_held_add(s, &o, HTH_HELD_SEALED, slot);
    cr_assert(ne(ptr, held, NULL));
    held->theirs = 1;
    held->look.flags = link ? HTH_FOREIGN_LINK : 0;
}

static void object_put(const struct cluster *c, uint32_t step, uint32_t rank, int own)
{
    enum version v = own ? c->file[step - 1][rank].own : c->file[step - 1][rank].replica;
    unsigned char bytes[FILE_MAX];
    char name[40];
    size_t len = object_make(bytes, c->format, step, rank, v == TORN ? NEWEST : v);

    name_of(name, rank);
    if (v != AWAY)
        file_put(copy_of(c, rank, own), step, name, bytes, v == TORN ? HTH_BLOCK + roll(40) : len,
                own && (c->moved || rank % 2));
}

static const unsigned char *common_of(enum version v)
{
    return (const unsigned char *)"abcdefgh" + v;
}

static void metadata_put(const struct cluster *c, uint32_t node, uint32_t step, enum version v)
{
    size_t len;
    void *bytes = metadata_make(c, v < 0 ? NEWEST : v, &len);

    if (v != AWAY)
        file_put(node, step, HTH_METADATA, bytes, v == TORN ? 1 + roll((uint32_t)len - 1) : len, 0);
    hearth_free(bytes);
}

static enum version version_roll(const struct cluster *c)
{
    enum version v = (enum version)roll(VERSIONS);

    if (roll(100) < 75)
        return NEWEST;
    if (roll(2))
        return roll(2) ? TORN : AWAY;
    return c->format == NO_SIGNATURE && v == OTHER_SHAPE ? OTHER_LENGTH : v; /* it says no shapes */
}

static void cluster_roll(struct cluster *c)
{
    *c = (struct cluster){ .nodes = 2 + roll(NODES_MAX - 1),
        .ranks_per_node = 1 + roll(2),
        .format = (enum format)roll(2),
        .moved = roll(4) == 0 };
    for (uint32_t s = 0; s < STEPS; s++) {
        for (uint32_t r = 0; r < ranks_of(c); r++)
            c->file[s][r] = (struct copies){ version_roll(c), version_roll(c) };
        for (uint32_t n = 0; n < c->nodes; n++) {
            c->metadata[s][n] = version_roll(c);
            c->common[s][n] = version_roll(c);
            if (c->common[s][n] == TORN) /* no engine could notice it */
                c->common[s][n] = AWAY;
        }
    }
}

static void step_put(const struct cluster *c, uint32_t s)
{
    for (uint32_t r = 0; r < ranks_of(c); r++) {
        object_put(c, s, r, 1);
        object_put(c, s, r, 0);
    }
    for (uint32_t n = 0; n < c->nodes; n++) {
        metadata_put(c, n, s, c->metadata[s - 1][n]);
        if (c->common[s - 1][n] != AWAY)
            file_put(n, s, COMMON, common_of(c->common[s - 1][n]), 2, 0);
    }
}

static void cluster_put(const struct cluster *c)
{
    struct world_opts o = { .seed = 1,
        .nodes = c->nodes,
        .ranks_per_node = c->ranks_per_node,
        .copies = 1,
        .keep = 1,
        .run_ms = 60000,
        .data_max = 100 };

    world_open(&w, &o);
    world_advance(&w, 1);
    for (uint32_t s = 1; s <= STEPS; s++)
        step_put(c, s);
}

/* ---- What must be chosen
 * ------------------------------------------------------------------------- */

static int same_items(enum version a, enum version b)
{
    return a == b || (a <= SAME_ITEMS && b <= SAME_ITEMS);
}

/* 1: the step can be had. */
static int model_step(const struct cluster *c, uint32_t s, struct choice *out)
{
    uint32_t m = 0, n = 0;

    while (m < c->nodes && c->metadata[s][m] < 0)
        m++;
    if (m == c->nodes)
        return 0;
    out->metadata = c->metadata[s][m];
    while (n < c->nodes && c->common[s][n] < 0)
        n++;
    out->common = c->common[s][c->common[s][m] >= 0 || n == c->nodes ? m : n];
    for (uint32_t r = 0; r < ranks_of(c); r++) {
        const struct copies *f = &c->file[s][r];

        out->file[r] = f->own >= 0 ? f->own : f->replica;
        if (out->file[r] < 0 || !same_items(out->file[r], out->metadata))
            return 0;
    }
    return 1;
}

static struct choice model(const struct cluster *c)
{
    struct choice out = { .step = STEPS };

    while (out.step && !model_step(c, out.step - 1, &out))
        out.step--;
    return out;
}

/* ---- What was chosen
 * ----------------------------------------------------------------------------- */

static const char *story(uint32_t seed, const struct cluster *c)
{
    static char text[2000];
    int n = snprintf(text, sizeof(text),
            "world %u, %u ranks a node, format %d, moved %d; versions -2 away -1 torn 0 newest:",
            seed, c->ranks_per_node, (int)c->format, c->moved);

    for (uint32_t s = STEPS; s; s--) {
        n += snprintf(text + n, sizeof(text) - (size_t)n, "\n  step %u: own, replica", s);
        for (uint32_t r = 0; r < ranks_of(c); r++)
            n += snprintf(text + n, sizeof(text) - (size_t)n, "  %d %d", (int)c->file[s - 1][r].own,
                    (int)c->file[s - 1][r].replica);
        n += snprintf(text + n, sizeof(text) - (size_t)n, "  .metadata, common");
        for (uint32_t k = 0; k < c->nodes; k++)
            n += snprintf(text + n, sizeof(text) - (size_t)n, "  %d %d", (int)c->metadata[s - 1][k],
                    (int)c->common[s - 1][k]);
    }
    return text;
}

static int ended(uint32_t rank)
{
    return world_recovery(&w, rank) || world_error(&w, rank);
}

static void run_to_end(const struct cluster *c)
{
    const uint64_t until_ms = w.now_ms + 11000;

    for (uint32_t r = 0; r < ranks_of(c); r++)
        while (!ended(r) && w.now_ms < until_ms && !w.why[0])
            world_advance(&w, w.now_ms + 1);
}

static struct hth_held *held_by(uint32_t node, uint32_t step, const char *name)
{
    struct hth_ctx *c = hth_node_ctx(world_node(&w, node));
    struct hth_held_save *s = hth_holdings_find(c, hth_save_of_foreign(step));

    return s ? hth_held_find(s, hth_foreign_object(name, 0).id) : NULL;
}

static void holds(uint32_t node, uint32_t step, const char *name, const void *bytes, size_t len,
        const char *why)
{
    struct hth_held *h = held_by(node, step, name);

    cr_assert(ne(ptr, h, NULL), "node %u has no %s of step %u: %s", node, name, step, why);
    cr_assert(eq(u64, h->object.data_len, len), "node %u, %s: %s", node, name, why);
    cr_assert(zero(int, memcmp(h->slot->base, bytes, len)), "node %u has another %s: %s", node,
            name, why);
}

static void check_bytes(const struct cluster *c, const struct choice *want, const char *why)
{
    unsigned char bytes[FILE_MAX];
    char name[40];
    size_t len;
    void *md;

    for (uint32_t r = 0; r < ranks_of(c); r++) {
        len = object_make(bytes, c->format, want->step, r, want->file[r]);
        name_of(name, r);
        holds(home_of(c, r), want->step, name, bytes, len, why);
    }
    md = metadata_make(c, want->metadata, &len);
    for (uint32_t n = 0; n < c->nodes; n++) {
        holds(n, want->step, HTH_METADATA, md, len, why);
        if (held_by(n, want->step, COMMON)) /* no rank has requested that it be brought */
            holds(n, want->step, COMMON, common_of(want->common), 2, why);
    }
    hearth_free(md);
}

static void check(uint32_t seed, const struct cluster *c)
{
    const char *why = story(seed, c);
    struct choice want = model(c);

    if (!want.step) { /* the world calls that broken */
        cr_assert(ne(ptr, strstr(w.why, "no container that was found is whole"), NULL), "%s: %s",
                w.why, why);
        return;
    }
    must_say(w.why, "");
    for (uint32_t r = 0; r < ranks_of(c); r++) {
        const struct hearth_recovery *info = world_recovery(&w, r);

        cr_assert(ne(ptr, (void *)(uintptr_t)info, NULL), "rank %u: %s", r, why);
        cr_assert(eq(u64, info->step, want.step), "%s", why);
    }
    check_bytes(c, &want, why);
}

/* A save of the world's own came between. */
static int is_own(void)
{
    const struct hearth_recovery *info = world_recovery(&w, 0);

    return info && info->epoch;
}

/* And once more, from what is there then; how often a container was recovered. */
static uint32_t check_twice(uint32_t seed, const struct cluster *c)
{
    uint32_t times = model(c).step != 0;

    cluster_put(c);
    run_to_end(c);
    check(seed, c);
    if (times) {
        world_restart(&w, 1, "again");
        world_advance(&w, w.now_ms + 2);
        run_to_end(c);
    }
    if (times && !is_own()) {
        check(seed, c);
        times++;
    }
    world_close(&w);
    return times;
}

/* ---- One after the other
 * ------------------------------------------------------------------------- */

static const struct cluster all_whole = { .nodes = 3, .ranks_per_node = 1 };

static struct cluster changed(
        uint32_t step, uint32_t rank, struct copies file, enum version metadata)
{
    struct cluster c = all_whole;

    c.file[step - 1][rank] = file;
    c.metadata[step - 1][rank] = metadata;
    return c;
}

static void is_chosen(struct cluster c, uint32_t step)
{
    cr_assert(eq(u32, model(&c).step, step));
    (void)check_twice(0, &c);
}

Test(foreign_worlds, a_rank_s_own_copy_comes_before_a_replica_of_an_older_save)
{
    for (uint32_t rank = 0; rank < 3; rank++)
        is_chosen(changed(STEPS, rank, (struct copies){ NEWEST, SAME_ITEMS }, NEWEST), STEPS);
}

Test(foreign_worlds, a_link_tells_a_rank_s_own_copy_where_ranks_have_moved)
{
    struct cluster c = all_whole;

    c.moved = 1;
    for (uint32_t r = 0; r < c.nodes; r++)
        c.file[STEPS - 1][r].replica = SAME_ITEMS;
    is_chosen(c, STEPS);
}

Test(foreign_worlds, a_torn_metadata_is_not_chosen_over_one_that_can_be_read)
{
    struct cluster c = all_whole;

    for (uint32_t torn = 0; torn < c.nodes; torn++)
        for (uint32_t whole = 0; whole < c.nodes; whole++) {
            for (uint32_t n = 0; n < c.nodes; n++)
                c.metadata[STEPS - 1][n] = n == torn ? TORN : n == whole ? NEWEST : AWAY;
            if (torn != whole)
                is_chosen(c, STEPS);
        }
}

Test(foreign_worlds, a_torn_metadata_is_not_chosen_over_an_older_whole_step)
{
    struct cluster c = all_whole;

    for (uint32_t n = 0; n < c.nodes; n++)
        c.metadata[STEPS - 1][n] = n == 1 ? TORN : AWAY;
    is_chosen(c, STEPS - 1);
}

Test(foreign_worlds, files_with_other_items_than_the_metadata_has_are_no_step)
{
    static const enum version other[] = { OTHER_SHAPE, OTHER_LENGTH };

    for (int i = 0; i < 2; i++) {
        is_chosen(changed(STEPS, 1, (struct copies){ other[i], NEWEST }, NEWEST), STEPS - 1);
        is_chosen(changed(STEPS, 0, (struct copies){ NEWEST, NEWEST }, other[i]), STEPS - 1);
    }
}

/* A save of our own that cannot be recovered: it has one object, which no node holds, or no object
 * at all. */
static void own_save_put(uint32_t node, uint32_t objects)
{
    struct hth_ctx *c = hth_node_ctx(world_node(&w, node));
    struct hth_object gone = {
        .id = 1, .kind = HTH_OBJECT_SHARD, .data_len = 9, .table_len = 4096, .name = "x"
    };
    struct hth_manifest m = {
        .save = { 5, 6, 9, 1 }, .world = 3, .nodes = 3, .objects = objects, .object = &gone
    };
    unsigned char *bytes = malloc(hth_manifest_bytes(&m));

    memcpy(m.job, c->opts.job, sizeof(m.job));
    must(hth_manifest_encode(&m, bytes, NULL));
    must(hth_held_set_manifest(
            c, hth_holdings_get(c, m.save), bytes, hth_manifest_bytes(&m), NULL));
}

Test(foreign_worlds, a_lost_save_of_our_own_that_was_never_protected_hides_no_container)
{
    struct cluster c = all_whole;

    cluster_put(&c);
    own_save_put(1, 1);
    run_to_end(&c);
    check(0, &c);
    world_close(&w);
}

Test(foreign_worlds, what_was_brought_stays_until_a_save_is_protected)
{
    struct cluster c = all_whole;

    for (uint32_t n = 1; n < c.nodes; n++) /* they bring that of node 0 */
        c.metadata[STEPS - 1][n] = AWAY;
    cluster_put(&c);
    run_to_end(&c);
    check(0, &c);
    own_save_put(1, 0);
    world_restart(&w, 1, "a save of our own was not protected yet");
    world_advance(&w, w.now_ms + 2);
    run_to_end(&c); /* the world misses the objects of that save, and stops there */
    cr_assert(ne(ptr, (void *)(uintptr_t)world_recovery(&w, 0), NULL), "%s", w.why);
    cr_assert(eq(u64, world_recovery(&w, 0)->step, 9));
    cr_assert(ne(ptr, held_by(2, STEPS, HTH_METADATA), NULL));
    world_close(&w);
}

/* No node has rank 1's part. The job begins without the save if its ranks accept that. */
Test(foreign_worlds, what_the_error_of_a_container_that_is_not_whole_advises_starts_the_job)
{
    struct cluster c = all_whole;

    for (uint32_t s = 0; s < STEPS; s++)
        c.file[s][1] = (struct copies){ AWAY, AWAY };
    cluster_put(&c);
    run_to_end(&c);
    cr_assert(ne(ptr, strstr(w.why, "or recover with accept_loss"), NULL), "%s", w.why);
    world_close(&w);
    cluster_put(&c);
    w.opts.accept_loss = 1;
    run_to_end(&c);
    must_say(w.why, "");
    for (uint32_t r = 0; r < ranks_of(&c); r++)
        cr_assert(ne(ptr, (void *)(uintptr_t)world_recovery(&w, r), NULL), "rank %u", r);
    world_close(&w);
}

/* ---- Dice
 * ---------------------------------------------------------------------------------------- */

Test(foreign_worlds, of_any_mixture_of_copies_one_whole_save_is_recovered_or_none)
{
    struct cluster c;
    uint32_t recovered = 0;

    alarm(110);
    for (uint32_t seed = 1; seed <= WORLDS; seed++) {
        dice = seed;
        cluster_roll(&c);
        recovered += check_twice(seed, &c);
    }
    cr_assert(gt(u32, recovered, WORLDS / 4)); /* the dice are not all too bad */
    cr_assert(lt(u32, recovered, 2 * WORLDS));
}
