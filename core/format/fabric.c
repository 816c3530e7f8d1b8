/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice among fabrics. A node has the fabrics that all of its ranks report; a node whose
 * transport was set by hand has that one only. No later epoch may use a worse fabric than the job's
 * first one.
 */
#include "fabric.h"
#include "record.h"

#include <stdio.h>
#include <string.h>

#define MAGIC "HTHFABRC"

const struct hth_fabric hth_fabrics[] = {
#define FABRIC_ROW(number_, transport_, provider_, name_) \
    { .number = number_, .transport = transport_, .provider = provider_, .name = name_ },
    HTH_FABRICS(FABRIC_ROW)
#undef FABRIC_ROW
            { .number = 0 },
};

_Static_assert(sizeof(hth_fabrics) / sizeof(hth_fabrics[0]) <= HTH_FABRICS_MOST, "room for all");

const struct hth_fabric *hth_fabric_of(uint32_t number)
{
    const struct hth_fabric *f = hth_fabrics;

    while (f->number && f->number != number)
        f++;
    return number && f->number ? f : NULL;
}

const struct hth_fabric *hth_fabric_find(const char *transport, const char *provider)
{
    const struct hth_fabric *f = hth_fabrics;

    while (f->number &&
            (strcmp(f->transport, transport) != 0 || strcmp(f->provider, provider) != 0))
        f++;
    return f->number ? f : NULL;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static void row_read(const unsigned char *table, uint32_t rank, struct hth_gather *out)
{
    memset(out, 0, sizeof(*out));
    hth_gather_decode(out, table + (size_t)rank * HTH_GATHER, NULL); /* passed before */
}

/* The number of the fabric that the node listens on; 0: it is none of ours. */
static uint32_t row_opened(const struct hth_gather *g)
{
    const struct hth_fabric *f = hth_fabric_find(g->transport, g->provider);

    return f ? f->number : 0;
}

static uint32_t row_has(const struct hth_gather *g)
{
    uint32_t opened = row_opened(g);

    return g->fabrics ? g->fabrics : opened ? HTH_FABRIC_BIT(opened) : 0;
}

/* The best of `bits`; 0: none that we know. */
static uint32_t fabric_best(uint32_t bits)
{
    for (const struct hth_fabric *f = hth_fabrics; f->number; f++)
        if (bits & HTH_FABRIC_BIT(f->number))
            return f->number;
    return 0;
}

/* Those before `number`, which is worse than they are; of 0: all. */
static uint32_t fabric_better(uint32_t number)
{
    uint32_t bits = 0;

    for (const struct hth_fabric *f = hth_fabrics; f->number && f->number != number; f++)
        bits |= HTH_FABRIC_BIT(f->number);
    return bits;
}

/* "ofi tcp, ucx tcp" */
static const char *fabrics_text(uint32_t bits, char *out, size_t len)
{
    size_t n = 0;

    snprintf(out, len, "none");
    for (const struct hth_fabric *f = hth_fabrics; f->number && n < len; f++)
        if (bits & HTH_FABRIC_BIT(f->number))
            n += (size_t)snprintf(out + n, len - n, "%s%s", n ? ", " : "", f->name);
    return out;
}

static uint32_t fabric_lacks(const unsigned char *table, uint32_t world, uint32_t number)
{
    struct hth_gather g;

    for (uint32_t rank = 0; rank < world; rank++) {
        row_read(table, rank, &g);
        if (!(row_has(&g) & HTH_FABRIC_BIT(number)))
            return rank;
    }
    return world;
}

/* Counts that hth_fabric_choose() collects from the rows of the table. */
struct fabric_tally {
    const unsigned char *table;
    uint32_t world;
    uint32_t all, some; /* fabrics of all nodes; fabrics of any node */
    uint32_t first;     /* the best that any node's first epoch ran on */
    int is_auto, allow_slower;
};

static void tally_count(struct fabric_tally *t)
{
    struct hth_gather g;
    uint32_t firsts = 0;

    t->all = UINT32_MAX;
    for (uint32_t rank = 0; rank < t->world; rank++) {
        row_read(t->table, rank, &g);
        t->all &= row_has(&g);
        t->some |= row_has(&g);
        t->is_auto |= g.fabrics != 0;
        t->allow_slower |= (g.flags & HTH_GATHER_ALLOW_SLOWER) != 0;
        if (hth_fabric_of(g.first_fabric))
            firsts |= HTH_FABRIC_BIT(g.first_fabric);
    }
    t->first = fabric_best(firsts);
}

/* Refuses: names the first rank that shares no fabric with all ranks before it, and what those
 * share. */
static int fabric_none(const struct fabric_tally *t, struct hearth_error *err)
{
    uint32_t left = UINT32_MAX, rank = 0;
    char before[160], here[160];
    struct hth_gather g;

    for (row_read(t->table, 0, &g); fabric_best(left & row_has(&g)) && rank + 1 < t->world;) {
        left &= row_has(&g);
        row_read(t->table, ++rank, &g);
    }
    if (!g.fabrics && !row_opened(&g))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank %" PRIu32
                " (node '%s') has transport %s with provider '%s' set by hand, which "
                "auto never takes: set the same transport and provider on all nodes",
                rank, g.node, g.transport, g.provider);
    return hth_fail(err, HEARTH_EINVAL, 0,
            "no fabric is on all nodes: rank %" PRIu32
            " (node '%s') has %s, and the ranks before it "
            "share %s; `hearth doctor net` and its engine's log show what it lacks",
            rank, g.node, fabrics_text(row_has(&g), here, sizeof(here)),
            rank ? fabrics_text(left, before, sizeof(before)) : "nothing yet");
}

/* Refuses: names the rank that lacks the fabric of the job's first epoch. */
static int fabric_worse(const struct fabric_tally *t, struct hearth_error *err)
{
    const struct hth_fabric *first = hth_fabric_of(t->first);
    uint32_t rank = fabric_lacks(t->table, t->world, first->number);
    struct hth_gather g;

    row_read(t->table, rank, &g);
    return hth_fail(err, HEARTH_EINVAL, 0,
            "this job began on %s, which rank %" PRIu32 " (node '%s') does not have: its engine's "
            "log has the reason; repair or replace that node, or allow what is slower "
            "(allow_slower, "
            "HEARTH_ALLOW_SLOWER=1)",
            first->name, rank, g.node);
}

static int fabric_is_settled(const struct fabric_tally *t, uint32_t number)
{
    struct hth_gather g;

    for (uint32_t rank = 0; rank < t->world; rank++) {
        row_read(t->table, rank, &g);
        if (row_opened(&g) != number)
            return 0;
    }
    return 1;
}

int hth_fabric_choose(const unsigned char *table, uint32_t world, struct hth_fabric_choice *out,
        struct hearth_error *err)
{
    struct fabric_tally t = { .table = table, .world = world };
    uint32_t best;

    *out = (struct hth_fabric_choice){ .settled = 1 };
    tally_count(&t);
    if (!t.is_auto)
        return HEARTH_OK;
    best = fabric_best(t.all);
    if (t.first && !t.allow_slower && (fabric_better(best) & HTH_FABRIC_BIT(t.first)))
        return fabric_worse(&t, err);
    if (!best)
        return fabric_none(&t, err);
    out->fabric = best;
    out->settled = fabric_is_settled(&t, best);
    out->better = fabric_best(t.some & fabric_better(best));
    out->lacks = out->better ? fabric_lacks(table, world, out->better) : 0;
    return HEARTH_OK;
}

void hth_fabric_say(
        const struct hth_fabric_choice *c, const unsigned char *table, char out[HTH_FABRIC_TEXT])
{
    const struct hth_fabric *f = hth_fabric_of(c->fabric), *better = hth_fabric_of(c->better);
    struct hth_gather g;

    out[0] = '\0';
    if (!f)
        return;
    if (!better) {
        snprintf(
                out, HTH_FABRIC_TEXT, "%s is the best that any node has, and all have it", f->name);
        return;
    }
    row_read(table, c->lacks, &g);
    snprintf(out, HTH_FABRIC_TEXT,
            "%s is the best that all nodes have: %s is better, and rank %" PRIu32
            " (node '%s') does not have it",
            f->name, better->name, c->lacks, g.node);
}

/* ---- the record ------------------------------------------------------------------------------ */

void hth_fabric_encode(const struct hth_fabric_record *r, unsigned char out[HTH_FABRIC_BYTES])
{
    struct hth_writer w = { .at = out, .cap = HTH_FABRIC_BYTES };

    hth_write(&w, MAGIC, 8);
    hth_write32(&w, hth_version_written(HTH_FORMAT_FABRIC));
    hth_write32(&w, 0);
    hth_write32(&w, r->first);
    hth_write32(&w, r->last);
    hth_write_digest(&w);
}

int hth_fabric_decode_as(const struct hth_versions *versions, struct hth_fabric_record *out,
        const void *bytes, size_t len, struct hearth_error *err)
{
    struct hth_reader r = { .at = bytes, .len = len };
    struct hth_fabric_record x = { 0 };
    int rc;

    if ((rc = hth_read_record(&r, MAGIC, versions, NULL, err)))
        return rc;
    hth_read_zeros(&r, 4);
    x.first = hth_read32(&r);
    x.last = hth_read32(&r);
    if (r.bad || len != HTH_FABRIC_BYTES)
        return hth_record_odd(&r, versions, err);
    *out = x;
    return HEARTH_OK;
}

int hth_fabric_decode(
        struct hth_fabric_record *out, const void *bytes, size_t len, struct hearth_error *err)
{
    return hth_fabric_decode_as(hth_versions_of(HTH_FORMAT_FABRIC), out, bytes, len, err);
}
