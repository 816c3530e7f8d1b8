/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of a joining.
 *
 *     0 "HTHEPOCH"   8 u32 version   12 u32 zero   16 u64 epoch   24 u64 nonce
 *    32 u32 world   36 u32 nodes   40 u32 self   44 u32 zero
 *    48 u32 rank_node[world], then a member of 240 bytes per node:
 *         0 64 node, NUL-padded   64 u64 store   72 u64 domain[4]
 *       104 u32 length of the address   108 128 address, zero-padded
 *       236 u32 1 + the first member on its machine, or 0 (version 3)
 *     .  32 BLAKE2b-256 of all before it
 */
#include "epoch.h"
#include "record.h"

#include <stdlib.h>

#define MAGIC        "HTHEPOCH"
#define HEAD         48u
#define MEMBER       UINT64_C(240) /* bytes */

#define WITH_MACHINE 3u /* the first version with a machine */

static uint64_t bytes_of(uint32_t world, uint32_t nodes)
{
    return HEAD + UINT64_C(4) * world + MEMBER * nodes + HTH_DIGEST;
}

size_t hth_epoch_bytes(const struct hth_epoch *e)
{
    return bytes_of(e->world, e->nodes);
}

static void write_member(struct hth_writer *w, const struct hth_member *m)
{
    hth_write_text(w, m->node, HTH_NAME_MAX);
    hth_write64(w, m->store);
    for (int i = 0; i < HTH_DOMAINS_MAX; i++)
        hth_write64(w, m->domain[i]);
    hth_write32(w, m->addr_len);
    hth_write(w, m->addr, m->addr_len);
    hth_write_zeros(w, HTH_ADDR_MAX - m->addr_len);
    hth_write32(w, m->machine);
}

void hth_epoch_encode(const struct hth_epoch *e, unsigned char *out)
{
    struct hth_writer w = { .at = out, .cap = hth_epoch_bytes(e) };

    hth_write(&w, MAGIC, 8);
    hth_write32(&w, hth_version_written(HTH_FORMAT_EPOCH));
    hth_write32(&w, 0);
    hth_write64(&w, e->epoch);
    hth_write64(&w, e->nonce);
    hth_write32(&w, e->world);
    hth_write32(&w, e->nodes);
    hth_write32(&w, e->self);
    hth_write32(&w, 0);
    for (uint32_t i = 0; i < e->world; i++)
        hth_write32(&w, e->rank_node[i]);
    for (uint32_t i = 0; i < e->nodes; i++)
        write_member(&w, &e->member[i]);
    hth_write_digest(&w);
}

static void read_member(struct hth_reader *r, struct hth_member *m)
{
    hth_read_text(r, m->node, HTH_NAME_MAX);
    m->store = hth_read64(r);
    for (int i = 0; i < HTH_DOMAINS_MAX; i++)
        m->domain[i] = hth_read64(r);
    m->addr_len = hth_read32(r);
    if (m->addr_len > HTH_ADDR_MAX) {
        r->bad = 1;
        return;
    }
    hth_read_into(r, m->addr, m->addr_len);
    hth_read_zeros(r, HTH_ADDR_MAX - m->addr_len);
    m->machine = hth_read32(r);
}

static int epoch_head_decode(const struct hth_versions *versions, struct hth_epoch *e,
        struct hth_reader *r, uint32_t *out_version, struct hearth_error *err)
{
    int rc;

    if ((rc = hth_read_record(r, MAGIC, versions, out_version, err)))
        return rc;
    hth_read_zeros(r, 4);
    e->epoch = hth_read64(r);
    e->nonce = hth_read64(r);
    e->world = hth_read32(r);
    e->nodes = hth_read32(r);
    e->self = hth_read32(r);
    hth_read_zeros(r, 4);
    if (r->bad || !e->nodes || e->nodes > e->world || e->self >= e->nodes ||
            bytes_of(e->world, e->nodes) != r->len)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "the epoch record of %zu bytes cannot hold %" PRIu32 " ranks on %" PRIu32 " nodes",
                r->len, e->world, e->nodes);
    if (e->epoch > HTH_EPOCH_MOST)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "the epoch record has epoch %" PRIu64
                ", which no job has reached: it is left out, and no save is lost by that",
                e->epoch);
    return HEARTH_OK;
}

/* Nodes come in order of their lowest rank, and each has one. */
static int ranks_in_order(const struct hth_epoch *e)
{
    uint32_t seen = 0;

    for (uint32_t i = 0; i < e->world; i++) {
        if (e->rank_node[i] > seen || e->rank_node[i] >= e->nodes)
            return 0;
        seen += e->rank_node[i] == seen;
    }
    return seen == e->nodes;
}

/* A machine is named by its first member. */
static int machine_is_known(const struct hth_epoch *e, uint32_t node)
{
    uint32_t machine = e->member[node].machine;

    return !machine || (machine <= node + 1 && e->member[machine - 1].machine == machine);
}

static int body_decode(
        struct hth_epoch *e, struct hth_reader *r, uint32_t version, struct hearth_error *err)
{
    for (uint32_t i = 0; i < e->world; i++)
        e->rank_node[i] = hth_read32(r);
    for (uint32_t i = 0; i < e->nodes; i++) {
        read_member(r, &e->member[i]);
        if (r->bad || hth_node_check(e->member[i].node, NULL) || !machine_is_known(e, i) ||
                (version < WITH_MACHINE && e->member[i].machine))
            return hth_fail(err, HEARTH_ECORRUPT, 0,
                    "epoch record: node %" PRIu32 " holds what Hearth never writes", i);
    }
    if (!ranks_in_order(e))
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "epoch record: its nodes are not in order of their lowest rank");
    return HEARTH_OK;
}

int hth_epoch_decode_as(const struct hth_versions *versions, struct hth_epoch *out,
        const void *bytes, size_t len, struct hearth_error *err)
{
    struct hth_reader r = { .at = bytes, .len = len };
    struct hth_epoch e = { 0 };
    uint32_t version;
    int rc;

    if ((rc = epoch_head_decode(versions, &e, &r, &version, err)))
        return rc;
    e.rank_node = calloc((size_t)e.world + 1, sizeof(*e.rank_node));
    e.member = calloc((size_t)e.nodes + 1, sizeof(*e.member));
    if (!e.rank_node || !e.member)
        rc = hth_fail(
                err, HEARTH_ENOMEM, 0, "no memory for an epoch of %" PRIu32 " ranks", e.world);
    else
        rc = body_decode(&e, &r, version, err);
    if (rc) {
        hth_epoch_fini(&e);
        return rc;
    }
    *out = e;
    return HEARTH_OK;
}

int hth_epoch_decode(struct hth_epoch *out, const void *bytes, size_t len, struct hearth_error *err)
{
    return hth_epoch_decode_as(hth_versions_of(HTH_FORMAT_EPOCH), out, bytes, len, err);
}

void hth_epoch_fini(struct hth_epoch *e)
{
    free(e->rank_node);
    free(e->member);
    e->rank_node = NULL;
    e->member = NULL;
}
