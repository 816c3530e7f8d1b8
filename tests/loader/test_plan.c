/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "core/base/env.h"
#include "loader/plan/plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NODES = 24, OBJECTS = 480 };

static struct hth_manifest manifest_of(uint32_t objects, uint64_t *seed)
{
    struct hth_manifest m = {
        .save = { 5, 7, 11, 1 }, .world = objects, .nodes = 2, .job = "plan", .objects = objects
    };

    m.object = calloc(objects, sizeof(*m.object));
    cr_assert(m.object != NULL);
    for (uint32_t i = 0; i < objects; i++) {
        struct hth_object *o = &m.object[i];

        *o = (struct hth_object){ .id = hth_object_id(i, 0),
            .owner = i,
            .kind = HTH_OBJECT_SHARD,
            .data_len = 1000 + hth_splitmix64(seed) % 1000,
            .table_len = 64 };
        snprintf(o->name, sizeof(o->name), "o%u", i);
        for (int k = 0; k < HTH_DIGEST; k++)
            o->digest[k] = (unsigned char)hth_splitmix64(seed);
    }
    return m;
}

static void see(struct hth_inventory *inv, const struct hth_manifest *m, const uint8_t *has)
{
    struct hth_seen_save *s = calloc(1, sizeof(*s));

    cr_assert(s != NULL);
    s->id = m->save;
    s->has_manifest = 1;
    s->object = calloc(m->objects, sizeof(*s->object));
    for (uint32_t i = 0; i < m->objects; i++)
        if (has[i]) {
            s->object[s->objects].id = m->object[i].id;
            memcpy(s->object[s->objects++].digest, m->object[i].digest, HTH_DIGEST);
        }
    *inv = (struct hth_inventory){ .store = 9, .saves = 1, .save = s };
}

/* ---- The optimum, by maximum flow: can every object's bytes be served with `cap` bytes a node?
 * ---- */

struct flow {
    uint64_t left[OBJECTS]; /* bytes of an object not placed */
    uint64_t on[OBJECTS][HTH_PLAN_SOURCES];
    uint64_t load[NODES];
};

/* Push as much of an object as possible, moving others' bytes along (one augmenting path by
 * breadth-first search over nodes). Returns the bytes moved. */
static uint64_t augment(struct flow *f, const struct hth_sources *src, uint32_t objects,
        uint32_t from, uint64_t cap)
{
    int via_object[NODES], via_from[NODES];
    uint32_t queue[NODES];
    uint32_t head = 0, tail = 0;

    for (int n = 0; n < NODES; n++)
        via_object[n] = -1;
    for (uint32_t k = 0; k < src[from].count; k++)
        if (via_object[src[from].node[k]] < 0) {
            via_object[src[from].node[k]] = (int)from;
            via_from[src[from].node[k]] = -1;
            queue[tail++] = src[from].node[k];
        }
    while (head < tail) {
        uint32_t n = queue[head++];

        if (f->load[n] < cap) {
            uint64_t amount = cap - f->load[n] < f->left[from] ? cap - f->load[n] : f->left[from];

            for (int at = (int)n; via_from[at] >= 0; at = via_from[at])
                for (uint32_t k = 0; k < src[via_object[at]].count; k++)
                    if (src[via_object[at]].node[k] == (uint32_t)via_from[at] &&
                            f->on[via_object[at]][k] < amount)
                        amount = f->on[via_object[at]][k];
            for (int at = (int)n; at >= 0; at = via_from[at])
                for (uint32_t k = 0; k < src[via_object[at]].count; k++) {
                    if (src[via_object[at]].node[k] == (uint32_t)at)
                        f->on[via_object[at]][k] += amount;
                    else if (via_from[at] >= 0 &&
                             src[via_object[at]].node[k] == (uint32_t)via_from[at])
                        f->on[via_object[at]][k] -= amount;
                }
            f->load[n] += amount;
            f->left[from] -= amount;
            return amount;
        }
        for (uint32_t i = 0; i < objects; i++)
            for (uint32_t k = 0; k < src[i].count; k++)
                if (src[i].node[k] == n && f->on[i][k])
                    for (uint32_t j = 0; j < src[i].count; j++)
                        if (via_object[src[i].node[j]] < 0) {
                            via_object[src[i].node[j]] = (int)i;
                            via_from[src[i].node[j]] = (int)n;
                            queue[tail++] = src[i].node[j];
                        }
    }
    return 0;
}

static int can_serve(const struct hth_manifest *m, const struct hth_sources *src, uint64_t cap)
{
    static struct flow f;

    memset(&f, 0, sizeof(f));
    for (uint32_t i = 0; i < m->objects; i++) {
        f.left[i] = m->object[i].data_len;
        while (f.left[i])
            if (!augment(&f, src, m->objects, i, cap))
                return 0;
    }
    return 1;
}

static uint64_t optimum(const struct hth_manifest *m, const struct hth_sources *src)
{
    uint64_t lo = 0, hi = (uint64_t)m->objects * 2000;

    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;

        if (can_serve(m, src, mid))
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

Test(plan, busiest_source_is_within_a_tenth_of_the_optimum_on_random_plans)
{
    static struct hth_sources src[OBJECTS];
    static uint8_t has[NODES][OBJECTS];
    uint32_t rank_node[OBJECTS];

    alarm(100);
    for (uint64_t seed = 1; seed <= 12; seed++) {
        uint64_t dice = seed;
        struct hth_manifest m = manifest_of(OBJECTS, &dice);
        struct hth_inventory inv[NODES];
        uint64_t load[NODES] = { 0 };
        uint64_t busiest = 0;

        memset(has, 0, sizeof(has));
        for (uint32_t i = 0; i < OBJECTS; i++) { /* two or three holders, some nodes preferred */
            uint32_t copies = 2 + (uint32_t)(hth_splitmix64(&dice) % 2);

            rank_node[i] = NODES - 1; /* has nothing: everything is pulled */
            for (uint32_t c = 0; c < copies; c++) {
                uint32_t n = (uint32_t)(hth_splitmix64(&dice) % (NODES - 1));

                has[hth_splitmix64(&dice) % 3 ? n : n / 2][i] = 1;
            }
        }
        for (uint32_t n = 0; n < NODES; n++)
            see(&inv[n], &m, has[n]);
        cr_assert(eq(u32, hth_sources_find(inv, NODES, rank_node, OBJECTS, &m, src, NULL), 0));
        for (uint32_t i = 0; i < OBJECTS; i++) {
            uint64_t *l = &load[src[i].node[0]];

            *l += m.object[i].data_len;
            busiest = *l > busiest ? *l : busiest;
        }
        cr_assert(le(u64, busiest * 10, optimum(&m, src) * 11), "seed %llu",
                (unsigned long long)seed);
        for (uint32_t n = 0; n < NODES; n++)
            hth_inventory_fini(&inv[n]);
        free(m.object);
    }
}

Test(plan, names_what_nobody_has)
{
    uint64_t dice = 3;
    struct hth_manifest m = manifest_of(4, &dice);
    const uint8_t a[] = { 1, 0, 0, 1 }, b[] = { 0, 1, 0, 1 };
    const uint32_t rank_node[] = { 0, 1, 0, 1 };
    struct hth_inventory inv[2];
    struct hth_sources src[4];
    const struct hth_object *lost = NULL;

    see(&inv[0], &m, a);
    see(&inv[1], &m, b);
    inv[1].save->object[0].digest[0] ^= 1; /* other bytes under the same name are not a copy */
    cr_assert(eq(u32, hth_sources_find(inv, 2, rank_node, 4, &m, src, &lost), 2));
    cr_assert(eq(u64, lost->id, m.object[1].id));
    cr_assert(eq(u32, src[3].count, 2));
    hth_inventory_fini(&inv[0]);
    hth_inventory_fini(&inv[1]);
    free(m.object);
}

Test(plan, and_inventory_survive_their_encoding_and_nothing_shorter)
{
    uint64_t dice = 4;
    struct hth_manifest m = manifest_of(3, &dice);
    const uint8_t all[] = { 1, 1, 1 };
    const uint32_t rank_node[] = { 0, 0, 0 };
    struct hth_inventory inv, back;
    struct hth_plan plan = { .serial = 2, .chosen = m.save, .keeps = 1, .keep = { m.save } }, again;
    struct hth_sources src[3];
    size_t len;
    unsigned char *bytes;

    see(&inv, &m, all);
    len = hth_inventory_bytes(&inv);
    bytes = malloc(len);
    hth_inventory_encode(&inv, bytes);
    must(hth_inventory_decode(&back, bytes, len, NULL));
    cr_assert(eq(u32, back.save[0].objects, 3));
    hth_inventory_fini(&back);
    for (size_t cut = 0; cut < len; cut++)
        must_fail(hth_inventory_decode(&back, bytes, cut, NULL), HEARTH_EPROTO);
    free(bytes);

    hth_sources_find(&inv, 1, rank_node, 3, &m, src, NULL);
    must(hth_runs_make(&plan.from, src, 3, NULL));
    memset(plan.manifest, 7, HTH_DIGEST);
    len = hth_plan_bytes(&plan);
    bytes = malloc(len);
    hth_plan_encode(&plan, bytes);
    must(hth_plan_decode(&again, bytes, len, NULL));
    hth_runs_get(&again.from, 2, src);
    cr_assert(eq(u32, src[0].count, 1));
    hth_runs_get(&again.from, 3, src);
    cr_assert(zero(u32, src[0].count), "there is no such object");
    cr_assert(eq(u32, again.from.objects, 3));
    cr_assert(zero(int, memcmp(again.manifest, plan.manifest, HTH_DIGEST)));
    hth_plan_fini(&again);
    for (size_t cut = 0; cut < len; cut++)
        cr_assert(ne(int, hth_plan_decode(&again, bytes, cut, NULL), HEARTH_OK));
    free(bytes);
    hth_plan_fini(&plan);
    hth_inventory_fini(&inv);
    free(m.object);
}

/* ---- Runs
 * ----------------------------------------------------------------------------------------- */

static size_t runs_bytes(const struct hth_runs *r)
{
    struct hth_writer w = { 0 };

    hth_runs_write(&w, r);
    return w.len;
}

/* Written and read again: the holders of every object, the same one first. Returns its bytes. */
static size_t go_round(const struct hth_sources *src, uint32_t objects)
{
    struct hth_runs made, read;
    struct hth_sources got;
    struct hth_writer w = { 0 };
    struct hth_reader r;

    must(hth_runs_make(&made, src, objects, NULL));
    w.cap = runs_bytes(&made);
    w.at = malloc(w.cap + 1);
    hth_runs_write(&w, &made);
    cr_assert(eq(sz, w.len, w.cap));
    r = (struct hth_reader){ .at = w.at, .len = w.len };
    must(hth_runs_read(&r, objects, &read, NULL));
    for (uint32_t i = 0; i < objects; i++) {
        uint64_t ours = 0, theirs = 0;

        hth_runs_get(&read, i, &got);
        cr_assert(eq(u32, got.count, src[i].count));
        cr_assert(got.count == 0 || got.node[0] == src[i].node[0]);
        for (uint32_t k = 0; k < got.count; k++) {
            ours |= UINT64_C(1) << src[i].node[k] % 64;
            theirs |= UINT64_C(1) << got.node[k] % 64;
        }
        cr_assert(eq(u64, ours, theirs));
    }
    for (size_t cut = 0; cut < w.len && w.len < 3000; cut++) {
        struct hth_runs torn;

        r = (struct hth_reader){ .at = w.at, .len = cut };
        must_fail(hth_runs_read(&r, objects, &torn, NULL), HEARTH_EPROTO);
    }
    hth_runs_fini(&made);
    hth_runs_fini(&read);
    free(w.at);
    return w.len;
}

Test(runs, are_the_same_holders_when_they_are_read_again)
{
    static struct hth_sources src[600];

    alarm(100);
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t dice = seed;
        uint32_t objects = 1 + (uint32_t)(hth_splitmix64(&dice) % 600);
        uint32_t each = 1 + (uint32_t)(hth_splitmix64(&dice) % 9);
        uint32_t odd =
                1 + (uint32_t)(hth_splitmix64(&dice) % 20); /* one in so many is by no rule */
        uint32_t most = 1 + (uint32_t)(hth_splitmix64(&dice) % HTH_PLAN_SOURCES);

        for (uint32_t i = 0; i < objects; i++) {
            uint64_t how = hth_splitmix64(&dice);
            uint32_t count = how % odd ? most : (uint32_t)(how >> 8) % (most + 1);
            uint32_t from = how % odd ? i / each % 50 : (uint32_t)(how >> 16) % 50;

            src[i] = (struct hth_sources){ .count = count };
            for (uint32_t k = 0; k < count; k++)
                src[i].node[(k + (how >> 24) * (seed % 2)) % count] =
                        from + k * (1 + (seed % 3 ? 0 : (uint32_t)(how >> 32) % 2));
        }
        go_round(src, objects);
    }
}

/* Each node's objects lie there and on others, as `far` says. The first `idle` nodes own none. */
static size_t of_a_large_job(
        uint32_t nodes, uint32_t idle, uint32_t each, uint32_t copies, uint32_t far, int dealt)
{
    struct hth_sources *src = calloc((size_t)nodes * each, sizeof(*src)), *next = src;
    uint64_t dice = 5;
    size_t bytes;

    for (uint32_t n = idle; n < nodes; n++) {
        struct hth_sources of = { .count = 1, .node = { n } };

        while (of.count <= copies) {
            uint32_t at =
                    far ? (n + far * of.count) % nodes : (uint32_t)(hth_splitmix64(&dice) % nodes);

            of.node[of.count] = at;
            of.count += at != n && (of.count < 2 || at != of.node[1]);
        }
        for (uint32_t i = 0; i < each; i++, next++) {
            uint32_t best = dealt ? (uint32_t)(hth_splitmix64(&dice) % of.count) : 0;

            *next = of;
            next->node[0] = of.node[best];
            next->node[best] = n;
        }
    }
    bytes = go_round(src, (nodes - idle) * each);
    free(src);
    return bytes;
}

/* With what a plan has beside them. */
Test(runs, of_a_large_job_are_within_64_kib)
{
    enum { BOUND = 63 << 10 };

    alarm(100);
    cr_expect(le(sz, of_a_large_job(16384, 0, 8, 2, 1, 0), 200), "round the nodes");
    cr_expect(le(sz, of_a_large_job(16384, 0, 8, 2, 16, 0), 1000), "round the racks");
    cr_expect(le(sz, of_a_large_job(16384, 0, 8, 1, 0, 0), BOUND), "anywhere");
    cr_expect(le(sz, of_a_large_job(16384, 0, 8, 1, 1, 1), BOUND), "all are pulled");
    cr_expect(le(sz, of_a_large_job(16384, 0, 8, 2, 1, 1), BOUND), "all are pulled");
    cr_expect(le(sz, of_a_large_job(1024, 0, 128, 2, 0, 1), BOUND), "anywhere, and all are pulled");
    cr_expect(le(sz, of_a_large_job(16384, 100, 8, 1, 0, 0), BOUND), "some own nothing");
}

Test(runs, that_are_not_to_be_understood_are_refused)
{
    static const struct {
        unsigned char byte[8];
        size_t len;
    } bad[] = {
        { { 1, 0, 1, 0, 0 }, 5 },             /* a run of no objects */
        { { 0, 2, 1, 0, 0 }, 5 },             /* no run */
        { { 1, 3, 1, 0, 0 }, 5 },             /* more objects than there are */
        { { 1, 2, 9, 0, 0 }, 5 },             /* more holders than there may be */
        { { 1, 2, 1, 2, 0 }, 5 },             /* a mask of nodes that it lacks */
        { { 1, 2, 2, 0, 2, 2 }, 6 },          /* one node twice */
        { { 1, 2, 0x81, 0, 0, 0 }, 6 },       /* dealt among one */
        { { 1, 2, 0x83, 0, 0, 2, 4, 15 }, 8 } /* the fourth of three is asked first */
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct hth_reader r = { .at = bad[i].byte, .len = bad[i].len };
        struct hth_runs read;

        cr_expect(eq(int, hth_runs_read(&r, 2, &read, NULL), HEARTH_EPROTO), "%zu", i);
    }
}

Test(inventory, is_refused_where_its_objects_are_not_in_order)
{
    struct hth_seen_object object[2] = { { .id = 2 }, { .id = 1 } };
    struct hth_seen_save save = { .id = { 5, 7, 1, 1 }, .objects = 2, .object = object };
    struct hth_inventory inv = { .saves = 1, .save = &save }, back;
    size_t len = hth_inventory_bytes(&inv);
    unsigned char *bytes = malloc(len);

    hth_inventory_encode(&inv, bytes);
    must_fail(hth_inventory_decode(&back, bytes, len, NULL), HEARTH_EPROTO);
    object[0].id = 1;
    object[1].id = 2;
    hth_inventory_encode(&inv, bytes);
    must(hth_inventory_decode(&back, bytes, len, NULL));
    hth_inventory_fini(&back);
    free(bytes);
}

Test(inventory, of_8_ranks_with_16_objects_and_copies_in_three_generations_is_within_4_kb)
{
    struct hth_seen_run run[3] = { { 0, 128 }, { 640, 256 },
        { 2000, 1 } }; /* and a common object */
    struct hth_seen_save save[3] = { { .runs = 3, .run = run }, { .runs = 3, .run = run },
        { .runs = 3, .run = run } };
    struct hth_inventory inv = { .saves = 3, .save = save };

    cr_assert(le(sz, hth_inventory_bytes(&inv), 2048));
}

static int inventory_of_runs(struct hth_seen_run *run, uint32_t runs, int has_manifest)
{
    struct hth_seen_save save = {
        .id = { 5, 7, 1, 1 }, .has_manifest = has_manifest, .runs = runs, .run = run
    };
    struct hth_inventory inv = { .saves = 1, .save = &save }, back = { 0 };
    size_t len = hth_inventory_bytes(&inv);
    unsigned char *bytes = malloc(len);
    int rc;

    hth_inventory_encode(&inv, bytes);
    rc = hth_inventory_decode(&back, bytes, len, NULL);
    if (!rc) {
        cr_assert(eq(u32, back.save[0].runs, runs));
        cr_assert(zero(int, memcmp(back.save[0].run, run, runs * sizeof(*run))));
        hth_inventory_fini(&back);
    }
    for (size_t cut = 0; !rc && cut < len; cut++)
        must_fail(hth_inventory_decode(&back, bytes, cut, NULL), HEARTH_EPROTO);
    free(bytes);
    return rc;
}

Test(inventory, is_refused_where_its_runs_are_not_apart_or_of_no_manifest)
{
    struct hth_seen_run good[] = { { 3, 2 }, { 6, 1 } }, empty[] = { { 3, 0 } },
                        meet[] = { { 3, 2 }, { 5, 1 } }, back[] = { { 6, 1 }, { 3, 2 } },
                        end[] = { { UINT32_MAX, 9 }, { 3, 1 } };

    must(inventory_of_runs(good, 2, 1));
    cr_expect(eq(int, inventory_of_runs(good, 2, 0), HEARTH_EPROTO));
    cr_expect(eq(int, inventory_of_runs(empty, 1, 1), HEARTH_EPROTO));
    cr_expect(eq(int, inventory_of_runs(meet, 2, 1), HEARTH_EPROTO));
    cr_expect(eq(int, inventory_of_runs(back, 2, 1), HEARTH_EPROTO));
    cr_expect(eq(int, inventory_of_runs(end, 2, 1), HEARTH_EPROTO));
}

Test(plan, finds_what_is_said_by_runs_of_the_same_manifest_only)
{
    uint64_t dice = 3;
    struct hth_manifest m = manifest_of(4, &dice);
    const uint8_t none[4] = { 0 };
    const uint32_t rank_node[] = { 0, 0, 1, 1 };
    struct hth_seen_run run[] = { { 0, 1 }, { 2, 9 } }; /* beyond the end there is nothing */
    struct hth_inventory inv[2];
    struct hth_sources src[4];

    memset(m.digest, 5, HTH_DIGEST);
    for (int n = 0; n < 2; n++) {
        see(&inv[n], &m, none);
        inv[n].save->runs = 2;
        inv[n].save->run = malloc(sizeof(run));
        memcpy(inv[n].save->run, run, sizeof(run));
        memcpy(inv[n].save->manifest, m.digest, HTH_DIGEST);
    }
    inv[1].save->manifest[0] ^= 1;
    inv[0].save->object[0].id = m.object[0].id; /* and said once more */
    memcpy(inv[0].save->object[0].digest, m.object[0].digest, HTH_DIGEST);
    inv[0].save->objects = 1;
    cr_assert(eq(u32, hth_sources_find(inv, 2, rank_node, 4, &m, src, NULL), 1));
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert(eq(u32, src[i].count, i != 1));
        cr_assert(zero(u32, src[i].node[0]));
    }
    hth_inventory_fini(&inv[0]);
    hth_inventory_fini(&inv[1]);
    free(m.object);
}

Test(plan, an_inventory_that_says_an_object_twice_is_none)
{
    struct hth_seen_object object[2] = { { .id = 5 }, { .id = 6 } };
    struct hth_seen_save save = {
        .id = { 4, 77, 9, 1 }, .has_manifest = 1, .objects = 2, .object = object
    };
    struct hth_inventory inv = { .store = 1, .saves = 1, .save = &save }, got;
    unsigned char bytes[4096];
    size_t len = hth_inventory_bytes(&inv);

    cr_assert(le(sz, len, sizeof(bytes)));
    for (object[1].id = 6; object[1].id >= 4; object[1].id--) {
        int rc;

        hth_inventory_encode(&inv, bytes);
        rc = hth_inventory_decode(&got, bytes, len, NULL);
        cr_assert(eq(int, rc, object[1].id == 6 ? HEARTH_OK : HEARTH_EPROTO));
        if (!rc)
            hth_inventory_fini(&got);
    }
}
