/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan as all nodes get it: the save, the other saves to keep, and the nodes that have each of
 * its objects, so that a node can see for itself which objects it lacks and which nodes to ask. The
 * objects are in the save's manifest, which is not part of the plan: most nodes have that already,
 * and its digest says which one is meant.
 *
 *   "HTHPLAN\3" | u32 serial | u32 beyond | u32 passed | u32 tries | 32 chosen | u32 keeps | u32 objects
 *   32 digest of the manifest | keeps of 32 | who has its objects (runs.c)
 *
 * Order of the holders. The bytes of each object that will be pulled are dealt to its holder with
 * the least so far, large objects first, and moved while that lowers the busier one of two holders;
 * the holder they end with comes first. Receivers stripe large objects over all holders that are
 * named, which evens out further.
 */
#include "plan.h"
#include "core/base/bytes.h"

#include <stdlib.h>

#define MAGIC "HTHPLAN\3"

/* ---- Who has what --------------------------------------------------------------------------- */

static void plan_write_save(struct hth_writer *w, struct hth_save_id s)
{
    hth_write64(w, s.epoch);
    hth_write64(w, s.nonce);
    hth_write64(w, s.step);
    hth_write32(w, s.attempt);
    hth_write32(w, 0);
}

static struct hth_save_id plan_read_save(struct hth_reader *r)
{
    struct hth_save_id s;

    s.epoch = hth_read64(r);
    s.nonce = hth_read64(r);
    s.step = hth_read64(r);
    s.attempt = hth_read32(r);
    (void)hth_read32(r);
    return s;
}

static void sources_add(struct hth_sources *of, uint32_t node)
{
    if (of->count < HTH_PLAN_SOURCES && (!of->count || of->node[of->count - 1] != node))
        of->node[of->count++] = node;
}

/* Runs are places in the node's own manifest: in another manifest they mean nothing. */
static void sources_add_runs(const struct hth_seen_save *s, uint32_t node,
        const struct hth_manifest *m, struct hth_sources *out)
{
    if (!s->runs || memcmp(s->manifest, m->digest, HTH_DIGEST) != 0)
        return;
    for (uint32_t k = 0; k < s->runs && s->run[k].first < m->objects; k++)
        for (uint32_t i = 0; i < s->run[k].count && i < m->objects - s->run[k].first; i++)
            sources_add(&out[s->run[k].first + i], node);
}

/* Both lists are in order of id. A node mostly has a few runs of the manifest: its next object is
 * mostly the manifest's next, and is searched for otherwise. */
static void sources_add_node(const struct hth_seen_save *s, uint32_t node,
        const struct hth_manifest *m, struct hth_sources *out)
{
    const struct hth_object *next = m->object, *end = m->object + m->objects;

    for (uint32_t k = 0; k < s->objects; k++) {
        uint64_t id = s->object[k].id;
        const struct hth_object *o = next < end && next->id == id ? next : hth_manifest_find(m, id);

        if (o && !memcmp(s->object[k].digest, o->digest, HTH_DIGEST))
            sources_add(&out[o - m->object], node);
        next = o ? o + 1 : next;
    }
}

struct by_size {
    uint64_t bytes;
    uint32_t index;
};

static int sources_larger_first(const void *a, const void *b)
{
    const struct by_size *x = a;
    const struct by_size *y = b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void sources_put_first(struct hth_sources *s, uint32_t k)
{
    uint32_t node = s->node[k];

    s->node[k] = s->node[0];
    s->node[0] = node;
}

/* Moves `bytes` from the first holder to the holder whose load would then be the least. 1: they
 * were moved. */
static int sources_ease(struct hth_sources *s, uint64_t bytes, uint64_t *load)
{
    uint32_t best = 0;

    for (uint32_t k = 1; k < s->count; k++)
        if (load[s->node[k]] + bytes < load[s->node[best]] + (best ? bytes : 0))
            best = k;
    if (best == 0)
        return 0;
    load[s->node[0]] -= bytes;
    load[s->node[best]] += bytes;
    sources_put_first(s, best);
    return 1;
}

static int sources_have(const struct hth_sources *s, uint32_t node)
{
    for (uint32_t k = 0; k < s->count; k++)
        if (s->node[k] == node)
            return 1;
    return 0;
}

#define ROUNDS 16 /* of sources_ease(); it ends earlier when nothing moves */

/* Gives each object, large ones first, to its least loaded holder, and then moves objects while
 * that lowers the load. */
static void sources_deal(uint32_t nodes, const uint32_t *rank_node, uint32_t world,
        const struct hth_manifest *m, struct hth_sources *out)
{
    struct by_size *order = calloc(m->objects ? m->objects : 1, sizeof(*order));
    uint64_t *load = calloc(nodes ? nodes : 1, sizeof(*load));
    uint32_t pulled = 0;
    int moved = 1;

    for (uint32_t i = 0; order && load && i < m->objects; i++)
        if (out[i].count && !sources_have(&out[i], rank_node[m->object[i].owner % world]))
            order[pulled++] = (struct by_size){ m->object[i].data_len, i };
    if (order && load) {
        qsort(order, pulled, sizeof(*order), sources_larger_first);
        for (uint32_t i = 0; i < pulled; i++) {
            struct hth_sources *s = &out[order[i].index];

            for (uint32_t k = 1; k < s->count; k++)
                if (load[s->node[k]] < load[s->node[0]])
                    sources_put_first(s, k);
            load[s->node[0]] += order[i].bytes;
        }
        for (int round = 0; round < ROUNDS && moved; round++) {
            moved = 0;
            for (uint32_t i = 0; i < pulled; i++)
                moved |= sources_ease(&out[order[i].index], order[i].bytes, load);
        }
    }
    free(order);
    free(load);
}

uint32_t hth_sources_find(const struct hth_inventory *inventory, uint32_t nodes,
        const uint32_t *rank_node, uint32_t world, const struct hth_manifest *m,
        struct hth_sources *out, const struct hth_object **out_lost)
{
    uint32_t lost = 0;

    memset(out, 0, sizeof(*out) * m->objects);
    for (uint32_t n = 0; n < nodes; n++) {
        const struct hth_seen_save *s = hth_inventory_find(&inventory[n], m->save);

        if (s) {
            sources_add_runs(s, n, m, out);
            sources_add_node(s, n, m, out);
        }
    }
    for (uint32_t i = 0; i < m->objects; i++) {
        if (out[i].count)
            continue;
        if (lost++ == 0 && out_lost)
            *out_lost = &m->object[i];
    }
    sources_deal(nodes, rank_node, world, m, out);
    return lost;
}

/* ---- On the wire ----------------------------------------------------------------------------- */

static void plan_write(struct hth_writer *w, const struct hth_plan *p)
{
    hth_write(w, MAGIC, 8);
    hth_write32(w, p->serial);
    hth_write32(w, p->beyond);
    hth_write32(w, p->passed);
    hth_write32(w, p->tries);
    plan_write_save(w, p->chosen);
    hth_write32(w, p->keeps);
    hth_write32(w, p->from.objects);
    hth_write(w, p->manifest, HTH_DIGEST);
    for (uint32_t i = 0; i < p->keeps; i++)
        plan_write_save(w, p->keep[i]);
    hth_runs_write(w, &p->from);
}

size_t hth_plan_bytes(const struct hth_plan *p)
{
    struct hth_writer w = { 0 };

    plan_write(&w, p);
    return w.len;
}

void hth_plan_encode(const struct hth_plan *p, unsigned char *out)
{
    struct hth_writer w = { out, hth_plan_bytes(p), 0 };

    plan_write(&w, p);
}

int hth_plan_decode(struct hth_plan *out, const void *bytes, size_t len, struct hearth_error *err)
{
    struct hth_reader r = { bytes, len, 0, 0 };
    const unsigned char *magic = hth_read(&r, 8);
    struct hth_plan p = { .serial = hth_read32(&r), .beyond = hth_read32(&r) };
    uint32_t objects;
    int rc;

    p.passed = hth_read32(&r);
    p.tries = hth_read32(&r);
    p.chosen = plan_read_save(&r);
    p.keeps = hth_read32(&r);
    objects = hth_read32(&r);
    hth_read_into(&r, p.manifest, HTH_DIGEST);
    if (r.bad || memcmp(magic, MAGIC, 8) != 0 || p.keeps > HTH_PLAN_KEEP)
        return hth_fail(err, HEARTH_EPROTO, 0, "not a plan");
    for (uint32_t i = 0; i < p.keeps; i++)
        p.keep[i] = plan_read_save(&r);
    if (hth_save_none(p.chosen) && objects)
        return hth_fail(err, HEARTH_EPROTO, 0, "a plan without a save");
    rc = hth_runs_read(&r, objects, &p.from, err);
    if (!rc)
        *out = p;
    return rc;
}

void hth_plan_fini(struct hth_plan *p)
{
    hth_runs_fini(&p->from);
    *p = (struct hth_plan){ 0 };
}
