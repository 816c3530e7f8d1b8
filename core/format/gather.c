/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of ranks at the bootstrap, and the epoch that all of them make of these. Every rank has
 * the same table and comes to the same epoch without further messages: nothing here may depend on
 * the machine it runs on, but for `self`.
 *
 *     0 "HTHGATHR"   8 u32 version   12 u32 flags   16 64 job   80 64 node
 *   144 u64 store   152 u64 highest epoch   160 u64 wall clock   168 u64 random number
 *   176 u64 domain[4]   208 u32 copies, min_copies, keep   220 u32 length of the address
 *   224 128 address, zero-padded   352 u64 machine (version 10)   360 u32 lowest, highest protocol
 *   368 u32 heartbeat, dead ms   376 15 transport   391 31 provider (version 3)   422 two zeros
 *   424 u32 fabrics, first fabric (version 4)   432 u32 bad_after (version 5)
 *   436 4 x { u64 bytes, u32 objects } (version 9: sizes.h)   484 u32 loopback (version 10)
 *   488 u32 rank, world   496 16 proof of the job's key over bytes 0..495, or zeros
 * or, of a rank that cannot take part (version 3), from 144 on: i32 error, 148 336 why, zero to 488
 *
 * Version 6 has the order of fabrics in which tcp stands (fabric.h), version 7 integrity in the
 * flags, version 8 engines that know of saves of some ranks. To version 8 a rank's save is one
 * object of the bytes at 352; version 9 has the largest of them there. If its ranks name no
 * machine, a node counts as a machine of its own. Ranks are sorted by (node, rank), so a node's
 * ranks lie together and its lowest comes first.
 */
#include "epoch.h"
#include "record.h"

#include <stdlib.h>

#define MAGIC        "HTHGATHR"
#define VERSION_AT   8u
#define NODE_AT      80u
#define LARGEST_AT   352u /* up to version 9 */
#define SIZES_AT     436u
#define WITH_SIZES   9u /* the first version with sizes */
#define WITH_MACHINE 10u
#define TAIL_AT      488u
#define PROOF_AT     (HTH_GATHER - HTH_MAC)
#define DAY_MS       86400000u
#define WITH_WHY     3u /* the first version with an error */

static void write_facts(struct hth_writer *w, const struct hth_gather *g)
{
    hth_write64(w, g->store);
    hth_write64(w, g->highest_epoch);
    hth_write64(w, g->wall_ms);
    hth_write64(w, g->random);
    for (int i = 0; i < HTH_DOMAINS_MAX; i++)
        hth_write64(w, g->domain[i]);
    hth_write32(w, g->copies);
    hth_write32(w, g->min_copies);
    hth_write32(w, g->keep);
    hth_write32(w, g->addr_len);
    hth_write(w, g->addr, g->addr_len);
    hth_write_zeros(w, HTH_ADDR_MAX - g->addr_len);
    hth_write64(w, g->machine);
    hth_write32(w, g->version_low);
    hth_write32(w, g->version_high);
    hth_write32(w, g->heartbeat_ms);
    hth_write32(w, g->dead_ms);
    hth_write_text(w, g->transport, HTH_BACKEND_MAX);
    hth_write_text(w, g->provider, HTH_PROVIDER_MAX);
    hth_write_zeros(w, 2);
    hth_write32(w, g->fabrics);
    hth_write32(w, g->first_fabric);
    hth_write32(w, g->bad_after);
    for (size_t i = 0; i < HTH_SIZES; i++) {
        hth_write64(w, g->objects.bytes[i]);
        hth_write32(w, g->objects.count[i]);
    }
    hth_write32(w, g->loopback);
}

static void write_why(struct hth_writer *w, const struct hth_gather *g)
{
    char why[HTH_WHY_MAX + 1] = "";

    for (size_t i = 0; i < HTH_WHY_MAX && g->why[i]; i++)
        why[i] = (unsigned char)g->why[i] < ' ' ? ' ' : g->why[i];
    hth_write32(w, (uint32_t)g->code);
    hth_write_text(w, why, HTH_WHY_MAX);
}

void hth_gather_encode(const struct hth_gather *g, unsigned char out[HTH_GATHER])
{
    struct hth_writer w = { .at = out, .cap = HTH_GATHER };

    hth_write(&w, MAGIC, 8);
    hth_write32(&w, hth_version_written(HTH_FORMAT_GREETING));
    hth_write32(&w, g->flags);
    hth_write_text(&w, g->job, HTH_NAME_MAX);
    hth_write_text(&w, g->node, HTH_NAME_MAX);
    if (g->flags & HTH_GATHER_ABSENT)
        write_why(&w, g);
    else
        write_facts(&w, g);
    hth_write_zeros(&w, TAIL_AT - w.len);
    hth_write32(&w, g->rank);
    hth_write32(&w, g->world);
    hth_write(&w, g->proof, HTH_MAC);
}

static void read_sizes(
        struct hth_sizes *s, struct hth_reader *r, uint32_t version, uint64_t largest)
{
    for (size_t i = 0; i < HTH_SIZES; i++) {
        s->bytes[i] = hth_read64(r);
        s->count[i] = hth_read32(r);
    }
    if (version < WITH_SIZES) {
        if (hth_sizes_objects(s))
            r->bad = 1;
        hth_sizes_of(s, &largest, largest != 0);
    } else if (!hth_sizes_are(s) || (version < WITH_MACHINE && s->bytes[0] != largest)) {
        r->bad = 1;
    }
}

static void read_facts(struct hth_gather *g, struct hth_reader *r, uint32_t version)
{
    uint64_t largest;

    g->store = hth_read64(r);
    g->highest_epoch = hth_read64(r);
    g->wall_ms = hth_read64(r);
    g->random = hth_read64(r);
    for (int i = 0; i < HTH_DOMAINS_MAX; i++)
        g->domain[i] = hth_read64(r);
    g->copies = hth_read32(r);
    g->min_copies = hth_read32(r);
    g->keep = hth_read32(r);
    g->addr_len = hth_read32(r);
    if (g->addr_len > HTH_ADDR_MAX) {
        r->bad = 1;
        return;
    }
    hth_read_into(r, g->addr, g->addr_len);
    hth_read_zeros(r, HTH_ADDR_MAX - g->addr_len);
    largest = hth_read64(r);
    g->machine = version < WITH_MACHINE ? 0 : largest;
    g->version_low = hth_read32(r);
    g->version_high = hth_read32(r);
    g->heartbeat_ms = hth_read32(r);
    g->dead_ms = hth_read32(r);
    hth_read_text(r, g->transport, HTH_BACKEND_MAX);
    hth_read_text(r, g->provider, HTH_PROVIDER_MAX); /* version 2 has zeros there */
    hth_read_zeros(r, 2);
    g->fabrics = hth_read32(r); /* versions 2 and 3 have zeros there */
    g->first_fabric = hth_read32(r);
    g->bad_after = hth_read32(r); /* and older ones there */
    read_sizes(&g->objects, r, version, largest);
    g->loopback = hth_read32(r);
    if (version < WITH_MACHINE && g->loopback)
        r->bad = 1;
}

static void read_why(struct hth_gather *g, struct hth_reader *r)
{
    g->code = (int32_t)hth_read32(r);
    hth_read_text(r, g->why, HTH_WHY_MAX);
    if (g->code >= 0)
        r->bad = 1;
    for (const char *c = g->why; *c; c++)
        if ((unsigned char)*c < ' ')
            r->bad = 1;
}

static int greeting_is_odd(struct hearth_error *err)
{
    return hth_fail(err, HEARTH_ECORRUPT, 0, "the rank's greeting holds what Hearth never writes");
}

int hth_gather_decode_as(const struct hth_versions *versions, struct hth_gather *out,
        const unsigned char in[HTH_GATHER], struct hearth_error *err)
{
    struct hth_reader r = { .at = in, .len = HTH_GATHER };
    struct hth_gather g = { 0 };
    uint32_t version;
    int rc;

    if ((rc = hth_read_head(&r, MAGIC, versions, &version, err)))
        return rc;
    g.flags = hth_read32(&r);
    hth_read_text(&r, g.job, HTH_NAME_MAX);
    hth_read_text(&r, g.node, HTH_NAME_MAX);
    if (g.flags & HTH_GATHER_ABSENT)
        read_why(&g, &r);
    else
        read_facts(&g, &r, version);
    if (r.bad || (version < WITH_WHY && (g.flags & HTH_GATHER_ABSENT)))
        return greeting_is_odd(err);
    hth_read_zeros(&r, TAIL_AT - r.pos);
    g.rank = hth_read32(&r);
    g.world = hth_read32(&r);
    hth_read_into(&r, g.proof, HTH_MAC);
    if (r.bad || hth_job_check(g.job, NULL) || hth_node_check(g.node, NULL))
        return greeting_is_odd(err);
    *out = g;
    return HEARTH_OK;
}

int hth_gather_decode(
        struct hth_gather *out, const unsigned char in[HTH_GATHER], struct hearth_error *err)
{
    return hth_gather_decode_as(hth_versions_of(HTH_FORMAT_GREETING), out, in, err);
}

uint64_t hth_domain_hash(const char *name)
{
    unsigned char digest[HTH_DIGEST];
    uint64_t v;

    hth_digest(digest, name, strlen(name));
    memcpy(&v, digest, sizeof(v));
    return v ? v : 1;
}

void hth_gather_objects(const unsigned char row[HTH_GATHER], struct hth_sizes *out)
{
    struct hth_reader r = { .at = row, .len = HTH_GATHER, .pos = SIZES_AT };

    read_sizes(out, &r, hth_get32(row + VERSION_AT), hth_get64(row + LARGEST_AT));
}

void hth_gather_prove(unsigned char row[HTH_GATHER], const unsigned char key[HTH_KEY])
{
    hth_mac(row + PROOF_AT, key, "row", 3, row, PROOF_AT);
}

static int proof_check(const struct hth_gather *g, const unsigned char *row,
        const unsigned char (*key)[HTH_KEY], unsigned keys, struct hearth_error *err)
{
    static const unsigned char none[HTH_MAC];
    unsigned char proof[HTH_MAC];
    int proves = memcmp(g->proof, none, HTH_MAC) != 0;

    if (!keys && proves)
        return hth_fail(err, HEARTH_EAUTH, 0,
                "rank %" PRIu32 " (node '%s') has a job key and we have none: give all ranks the "
                "same key_file",
                g->rank, g->node);
    if (!keys)
        return HEARTH_OK;
    for (unsigned i = 0; i < keys; i++) {
        hth_mac(proof, key[i], "row", 3, row, PROOF_AT);
        if (hth_mac_equal(proof, g->proof))
            return HEARTH_OK;
    }
    return hth_fail(err, HEARTH_EAUTH, 0,
            "the row of rank %" PRIu32 " (node '%s') %s: give all ranks the same key_file", g->rank,
            g->node,
            proves ? "proves another job key than ours" : "brings no proof of the job key");
}

static int presence_check(const struct hth_gather *g, struct hearth_error *err)
{
    if (!(g->flags & HTH_GATHER_ABSENT))
        return HEARTH_OK;
    return hth_fail(err, g->code, 0, "rank %" PRIu32 " (node '%s') cannot take part: %s", g->rank,
            g->node, g->why);
}

int hth_gather_check(const unsigned char *table, uint32_t world,
        const unsigned char (*key)[HTH_KEY], unsigned keys, struct hearth_error *err)
{
    for (uint32_t i = 0; i < world; i++) {
        const unsigned char *row = table + (size_t)i * HTH_GATHER;
        struct hth_gather g;
        int rc = hth_gather_decode(&g, row, err);

        if (rc)
            return hth_while(err, rc, "rank %" PRIu32, i);
        if (g.rank != i)
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "place %" PRIu32 " of the table has what rank %" PRIu32
                    " (node '%s') brought: the bootstrap mixes ranks up",
                    i, g.rank, g.node);
        if (g.world != world)
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "rank %" PRIu32 " (node '%s') counts %" PRIu32 " ranks and we count %" PRIu32
                    ": start all with one world size",
                    i, g.node, g.world, world);
        if ((rc = proof_check(&g, row, key, keys, err)) || (rc = presence_check(&g, err)))
            return rc;
    }
    return HEARTH_OK;
}

uint64_t hth_epoch_seen(uint64_t epoch, uint64_t nonce, uint64_t *random)
{
    uint64_t step = 1 + (*random >> 32);

    if (epoch <= HTH_EPOCH_BELIEVED)
        return epoch;
    *random = nonce < UINT64_MAX - step ? nonce + step : UINT64_MAX;
    return HTH_EPOCH_BELIEVED;
}

static int by_node(const void *a, const void *b, void *table)
{
    const unsigned char *at = table;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int c = memcmp(at + (size_t)x * HTH_GATHER + NODE_AT, at + (size_t)y * HTH_GATHER + NODE_AT,
            HTH_NAME_MAX);

    return c ? c : x < y ? -1 : x > y;
}

static int gather_disagree(struct hearth_error *err, uint32_t a, uint32_t b, const char *what)
{
    return hth_fail(err, HEARTH_EINVAL, 0,
            "rank %" PRIu32 " and rank %" PRIu32 " disagree about %s", a, b, what);
}

static const struct {
    const char *name;
    size_t at;
} alike[] = {
#define OPTION(field, kind, hearthd, running, joining, ranks, ...) ROW_##ranks(field)
#define ROW_NO(field)
#define ROW_CHECKED(field)
#define ROW_ALIKE(field) { #field, offsetof(struct hth_gather, field) },
#include "core/base/options.def"
};

static uint32_t gather_number_at(const struct hth_gather *g, size_t at)
{
    uint32_t v;

    memcpy(&v, (const char *)g + at, sizeof(v));
    return v;
}

static const char *network_of(const struct hth_gather *g)
{
    return g->flags & HTH_GATHER_TRUSTED ? "trusted" : "hostile";
}

static const char *integrity_of(const struct hth_gather *g)
{
    return g->flags & HTH_GATHER_STRONG ? "strong" : "crc32c";
}

static int options_agree(const struct hth_gather *a, const struct hth_gather *b, uint32_t rank,
        struct hearth_error *err)
{
    for (size_t i = 0; i < sizeof(alike) / sizeof(alike[0]); i++)
        if (gather_number_at(a, alike[i].at) != gather_number_at(b, alike[i].at))
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "rank 0 and rank %" PRIu32 " disagree about %s: %" PRIu32 " and %" PRIu32
                    "; give all ranks the same options",
                    rank, alike[i].name, gather_number_at(a, alike[i].at),
                    gather_number_at(b, alike[i].at));
    if ((a->flags ^ b->flags) & HTH_GATHER_TRUSTED)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank 0 and rank %" PRIu32 " disagree about network: %s and %s; give all ranks the "
                "same options",
                rank, network_of(a), network_of(b));
    if ((a->flags ^ b->flags) & HTH_GATHER_STRONG)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank 0 and rank %" PRIu32
                " disagree about integrity: %s and %s; give all ranks the "
                "same options",
                rank, integrity_of(a), integrity_of(b));
    if ((a->flags ^ b->flags) & HTH_GATHER_ALLOW_SLOWER)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank 0 and rank %" PRIu32
                " disagree about allow_slower: %d and %d; give all ranks "
                "the same options",
                rank, (a->flags & HTH_GATHER_ALLOW_SLOWER) != 0,
                (b->flags & HTH_GATHER_ALLOW_SLOWER) != 0);
    if (a->flags != b->flags)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank 0 and rank %" PRIu32 " disagree about allow_degraded: %u and %u; give all "
                "ranks the same options",
                rank, a->flags & HTH_GATHER_ALLOW_DEGRADED, b->flags & HTH_GATHER_ALLOW_DEGRADED);
    return HEARTH_OK;
}

/* Fields that must be equal on all ranks. */
static int job_agrees(const struct hth_gather *a, const struct hth_gather *b, uint32_t rank,
        struct hearth_error *err)
{
    if (strcmp(a->job, b->job) != 0)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank 0 and rank %" PRIu32 " disagree about the job: '%s' and '%s'", rank, a->job,
                b->job);
    if (a->version_low > b->version_high || b->version_low > a->version_high)
        return hth_fail(err, HEARTH_EPROTO, 0,
                "the engines of rank 0 (node '%s') and rank %" PRIu32 " (node '%s') speak protocol "
                "%" PRIu32 " to %" PRIu32 " and %" PRIu32 " to %" PRIu32
                ": install one version everywhere",
                a->node, rank, b->node, a->version_low, a->version_high, b->version_low,
                b->version_high);
    if (strcmp(a->transport, b->transport) != 0)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank 0 (node '%s') and rank %" PRIu32
                " (node '%s') disagree about the transport: '%s' and '%s'; choose one for all nodes",
                a->node, rank, b->node, a->transport, b->transport);
    if (a->provider[0] && b->provider[0] && strcmp(a->provider, b->provider) != 0)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank 0 (node '%s') and rank %" PRIu32
                " (node '%s') disagree about the provider: '%s' and '%s'; choose one for all nodes",
                a->node, rank, b->node, a->provider, b->provider);
    return options_agree(a, b, rank, err);
}

/* Checks the facts that must be the same on all ranks of a node; `a` is of its lowest rank. */
static int node_agrees(const struct hth_gather *a, uint32_t lowest, const struct hth_gather *b,
        uint32_t rank, struct hearth_error *err)
{
    if (a->store != b->store)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank %" PRIu32 " and rank %" PRIu32
                " are both on a node '%s', but see two stores: give each machine its own node id",
                lowest, rank, a->node);
    if (memcmp(a->domain, b->domain, sizeof(a->domain)) != 0)
        return gather_disagree(
                err, lowest, rank, "the failure domains of the node that they share");
    if (a->machine != b->machine)
        return gather_disagree(err, lowest, rank, "the machine of the node that they share");
    if (a->addr_len != b->addr_len || memcmp(a->addr, b->addr, a->addr_len) != 0)
        return gather_disagree(err, lowest, rank, "the address of the node that they share");
    return HEARTH_OK;
}

/* Ranks in order of (node, rank) -> rank_node[], member[] in order of lowest rank. */
struct join {
    const unsigned char *table; /* [world][HTH_GATHER] */
    uint32_t *sorted;           /* [world] ranks by (node, rank) */
    uint32_t *lowest;           /* [world] of each rank's node */
    uint64_t *clock;            /* [world] */
    uint64_t *machine;          /* [world] of each node, from its ranks' rows */
    uint64_t highest, nonce;    /* epoch that was seen, and at the top the highest nonce */
    struct hth_epoch *e;
};

static int gather_believe(
        struct join *j, const struct hth_gather *g, uint32_t rank, struct hearth_error *err)
{
    if (g->highest_epoch > HTH_EPOCH_BELIEVED)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank %" PRIu32 " (node '%s') reports epoch %" PRIu64
                ", which no job has reached: start its engine again, which leaves out such a number "
                "and keeps its saves",
                rank, g->node, g->highest_epoch);
    j->clock[rank] = g->wall_ms;
    if (g->highest_epoch > j->highest)
        j->highest = g->highest_epoch;
    if (g->highest_epoch == HTH_EPOCH_BELIEVED && g->random > j->nonce)
        j->nonce = g->random;
    return HEARTH_OK;
}

static int by_clock(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* One clock that is wrong, be it rank 0's, moves the number by no more than a day. */
static void choose_number(struct join *j, const struct hth_gather *first)
{
    struct hth_epoch *e = j->e;
    uint64_t clock = first->wall_ms, most;

    qsort(j->clock, e->world, sizeof(*j->clock), by_clock);
    most = j->clock[(e->world - 1) / 2];
    most = most < HTH_EPOCH_BELIEVED - DAY_MS ? most + DAY_MS : HTH_EPOCH_BELIEVED;
    clock = clock < most ? clock : most;
    e->epoch = clock > j->highest ? clock : j->highest + 1;
    e->nonce = e->epoch == HTH_EPOCH_MOST ? j->nonce : first->random;
}

/* An engine before protocol 8 reads no address blob of several addresses. */
struct ages {
    struct hth_gather several, older; /* the first of each; world 0: none */
};

static void ages_add(struct ages *a, const struct hth_gather *g)
{
    if (!a->several.world && strcmp(g->transport, "tcp") == 0 && g->addr_len &&
            g->addr[0] == HTH_ADDR_SEVERAL)
        a->several = *g;
    if (!a->older.world && g->version_high < HTH_PROTOCOL_ADDRESSES)
        a->older = *g;
}

static int ages_agree(const struct ages *a, struct hearth_error *err)
{
    if (!a->several.world || !a->older.world)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EPROTO, 0,
            "node '%s' (rank %" PRIu32
            ") has several addresses, and the engine of node '%s' (rank %" PRIu32
            ") speaks protocol %" PRIu32
            ", in which a node has one (%u has several): install one version everywhere, or set "
            "bind (HEARTH_BIND) to one address",
            a->several.node, a->several.rank, a->older.node, a->older.rank, a->older.version_high,
            HTH_PROTOCOL_ADDRESSES);
}

static int gather_group(struct join *j, struct hearth_error *err)
{
    struct hth_gather all = { 0 }, first, own = { 0 };
    struct ages ages = { 0 };
    int rc = hth_gather_decode(&all, j->table, err);

    first = all;
    for (uint32_t i = 0, lowest = 0; !rc && i < j->e->world; i++) {
        uint32_t rank = j->sorted[i];

        rc = hth_gather_decode(&own, j->table + (size_t)rank * HTH_GATHER, err);
        if (rc)
            return hth_while(err, rc, "rank %" PRIu32, rank);
        if (i == 0 || strcmp(first.node, own.node) != 0) {
            first = own;
            lowest = rank;
            j->e->nodes++;
        }
        j->lowest[rank] = lowest;
        if (!(rc = presence_check(&own, err)) && !(rc = gather_believe(j, &own, rank, err)))
            rc = job_agrees(&all, &own, rank, err);
        if (!rc)
            rc = node_agrees(&first, lowest, &own, rank, err);
        ages_add(&ages, &own);
    }
    if (!rc)
        rc = ages_agree(&ages, err);
    if (!rc)
        choose_number(j, &all);
    return rc;
}

static void gather_fill(struct join *j)
{
    struct hth_epoch *e = j->e;

    for (uint32_t rank = 0, node = 0; rank < e->world; rank++) {
        struct hth_gather g = { 0 };
        struct hth_member *m = &e->member[node];

        if (j->lowest[rank] != rank) {
            e->rank_node[rank] = e->rank_node[j->lowest[rank]];
            continue;
        }
        hth_gather_decode(&g, j->table + (size_t)rank * HTH_GATHER, NULL); /* passed before */
        memcpy(m->node, g.node, sizeof(m->node));
        m->store = g.store;
        memcpy(m->domain, g.domain, sizeof(m->domain));
        j->machine[node] = g.machine;
        m->addr_len = g.addr_len;
        memcpy(m->addr, g.addr, sizeof(m->addr));
        e->rank_node[rank] = node++;
    }
}

static uint32_t node_lowest(const struct hth_epoch *e, uint32_t node)
{
    uint32_t rank = 0;

    while (e->rank_node[rank] != node)
        rank++;
    return rank;
}

static int by_machine(const void *a, const void *b, void *machine)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    uint64_t m = ((const uint64_t *)machine)[x], n = ((const uint64_t *)machine)[y];

    return m != n ? (m < n ? -1 : 1) : x < y ? -1 : x > y;
}

/* Members of one machine are one failure domain: wider domains must be the same for all of them. */
static int machine_agrees(
        const struct hth_epoch *e, uint32_t first, uint32_t node, struct hearth_error *err)
{
    const struct hth_member *a = &e->member[first], *b = &e->member[node];

    if (!memcmp(a->domain, b->domain, sizeof(a->domain)))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, 0,
            "rank %" PRIu32 " (node '%s') and rank %" PRIu32
            " (node '%s') are on one machine and disagree about its failure domains: give all "
            "ranks of a machine the same HEARTH_DOMAINS",
            node_lowest(e, first), a->node, node_lowest(e, node), b->node);
}

/* Finds the members that share a machine. sorted[] is scratch. */
static int machines_find(struct join *j, struct hearth_error *err)
{
    struct hth_epoch *e = j->e;
    uint32_t first = 0;
    int rc = HEARTH_OK;

    for (uint32_t i = 0; i < e->nodes; i++)
        j->sorted[i] = i;
    qsort_r(j->sorted, e->nodes, sizeof(*j->sorted), by_machine, j->machine);
    for (uint32_t i = 0; !rc && i < e->nodes; i++) {
        uint32_t node = j->sorted[i];

        if (!i || !j->machine[node] || j->machine[node] != j->machine[first]) {
            first = node;
            continue;
        }
        e->member[first].machine = e->member[node].machine = 1 + first;
        rc = machine_agrees(e, first, node, err);
    }
    return rc;
}

static int by_store(const void *a, const void *b, void *member)
{
    const struct hth_member *m = member;
    uint64_t x = m[*(const uint32_t *)a].store, y = m[*(const uint32_t *)b].store;

    return x < y ? -1 : x > y;
}

/* No memory is claimed by two nodes, and `store` is one of them; sorted[] is scratch. */
static int stores_check(
        struct hth_epoch *e, uint32_t *sorted, uint64_t store, struct hearth_error *err)
{
    e->self = HTH_NODE_NONE;
    for (uint32_t i = 0; i < e->nodes; i++) {
        sorted[i] = i;
        if (e->member[i].store == store)
            e->self = i;
    }
    qsort_r(sorted, e->nodes, sizeof(*sorted), by_store, e->member);
    for (uint32_t i = 1; i < e->nodes; i++) {
        const struct hth_member *a = &e->member[sorted[i - 1]], *b = &e->member[sorted[i]];

        if (a->store != b->store)
            continue;
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank %" PRIu32 " (node '%s') and rank %" PRIu32
                " (node '%s') share one store: give one machine one node id",
                node_lowest(e, sorted[i - 1]), a->node, node_lowest(e, sorted[i]), b->node);
    }
    if (e->self == HTH_NODE_NONE)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "no rank brought our store %016" PRIx64 ": our ranks did not join", store);
    return HEARTH_OK;
}

static int gather_build(struct join *j, uint64_t store, struct hearth_error *err)
{
    struct hth_epoch *e = j->e;
    int rc;

    for (uint32_t i = 0; i < e->world; i++)
        j->sorted[i] = i;
    qsort_r(j->sorted, e->world, sizeof(*j->sorted), by_node, (void *)(uintptr_t)j->table);
    if ((rc = gather_group(j, err)))
        return rc;
    e->member = calloc((size_t)e->nodes + 1, sizeof(*e->member));
    if (!e->member)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %" PRIu32 " nodes", e->nodes);
    gather_fill(j);
    if ((rc = machines_find(j, err)))
        return rc;
    return stores_check(e, j->sorted, store, err);
}

int hth_epoch_make(struct hth_epoch *out, const unsigned char *table, uint32_t world,
        uint64_t store, struct hearth_error *err)
{
    struct hth_epoch e = { .world = world };
    struct join j = { .table = table, .e = &e };
    int rc;

    if (!world)
        return hth_fail(err, HEARTH_EINVAL, 0, "an epoch of no ranks");
    e.rank_node = calloc(world, sizeof(*e.rank_node));
    j.sorted = calloc(world, sizeof(*j.sorted));
    j.lowest = calloc(world, sizeof(*j.lowest));
    j.clock = calloc(world, sizeof(*j.clock));
    j.machine = calloc(world, sizeof(*j.machine));
    if (!e.rank_node || !j.sorted || !j.lowest || !j.clock || !j.machine)
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an epoch of %" PRIu32 " ranks", world);
    else
        rc = gather_build(&j, store, err);
    free(j.sorted);
    free(j.lowest);
    free(j.clock);
    free(j.machine);
    if (rc)
        hth_epoch_fini(&e);
    else
        *out = e;
    return rc;
}
