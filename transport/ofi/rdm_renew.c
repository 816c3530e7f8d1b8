/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pull endpoints, one after the other. The library cannot take a read back, and without connections
 * one silent peer would hold its memory for ever. So when a connection ends with reads under way,
 * new reads go by a new endpoint, and the old one is closed when it has no others under way than
 * such orphans, or after PATIENCE_MS at the latest, or for many bytes: the orphans end with it, the
 * others are read again by the new one. Two live at once, at most.
 */
#include "rdm.h"

#include <stdlib.h>

#define PATIENCE_MS  5000u
#define ORPHAN_BYTES (UINT64_C(1) << 30)
#define ENDING_MS    1000u

/* 0: the library did not close it, and keeps its reads. */
static int pull_end_close(struct hth_rdm *r, struct hth_rdm_end **at)
{
    struct hth_rdm_end *e = *at;

    if (hth_rdm_end_close(e))
        return 0;
    *at = NULL;
    hth_rdm_pulls_return(r, e);
    free(e);
    return 1;
}

static int pull_end_is_over(const struct hth_rdm *r, const struct hth_rdm_end *e)
{
    return e->busy == e->orphans || e->orphan_bytes > ORPHAN_BYTES ||
           hth_rdm_now(r) - e->retired_ms >= PATIENCE_MS;
}

/* Shuts down the sockets of all reads under way, or only of the orphans among them. */
static void sockets_end(struct hth_rdm *r, struct hth_rdm_end *e, int all)
{
    for (uint32_t i = 0; i < e->count; i++) {
        const struct hth_rdm_op *op = &e->ops[i];
        const struct hth_rdm_conn *c = op->peer ? hth_rdm_conn_get(r, op->conn) : NULL;

        if (c && (all || c->link.state != HTH_OFI_UP))
            hth_rdm_peer_end_reads(r, op->peer);
    }
}

/* 1: the endpoint may be closed. Libfabric 1.17 ends the process if an endpoint is closed while its
 * socket has half of an answer; when the socket ends, the library gives the reads back. */
static int reads_are_back(struct hth_rdm *r, struct hth_rdm_end *e)
{
    uint64_t now = hth_rdm_now(r);

    if (!r->o.sockets || !e->busy)
        return 1;
    if (!e->ending_ms) {
        e->ending_ms = now;
        sockets_end(r, e, 0);
    }
    if (now - e->ending_ms >= ENDING_MS)
        sockets_end(r, e, 1);
    return now - e->ending_ms >= 2 * ENDING_MS;
}

void hth_rdm_pull_ends_settle(struct hth_rdm *r)
{
    if (r->pull && r->pull->orphans && !r->old) {
        r->old = r->pull;
        r->old->retired_ms = hth_rdm_now(r);
        r->pull = NULL;
    }
    if (r->old && (pull_end_is_over(r, r->old) || (r->pull && r->pull->orphans)) &&
            reads_are_back(r, r->old))
        pull_end_close(r, &r->old);
}

static void pull_end_drain(struct hth_rdm *r, struct hth_rdm_end **at)
{
    uint64_t end = hth_rdm_now(r) + ENDING_MS;

    if (!*at)
        return;
    if (r->o.sockets && (*at)->busy)
        sockets_end(r, *at, 1);
    while (r->o.sockets && (*at)->busy && hth_rdm_now(r) < end)
        hth_rdm_end_read(*at);
    pull_end_close(r, at);
}

void hth_rdm_pull_ends_close(struct hth_rdm *r)
{
    pull_end_drain(r, &r->pull);
    pull_end_drain(r, &r->old);
}
