/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pull endpoints, one after the other. The library cannot take a read back, and without connections
 * one silent peer would hold its memory for ever. So when a connection ends with reads under way, new
 * reads go by a new endpoint, and the old one is closed when it has no others under way than such
 * orphans, or after PATIENCE_MS at the latest, or for many bytes: the orphans end with it, the
 * others are read again by the new one. Two live at once, at most.
 *
 * A fabric may refuse reads by an endpoint that the target does not know. So the target is told of a
 * new one, and answers, before the first read.
 */
#include "rdm.h"

#include "core/base/bytes.h"
#include <stdlib.h>
#include <string.h>

#define PATIENCE_MS  5000u
#define ORPHAN_BYTES (UINT64_C(1) << 30)
#define RETRY_MS     100u
#define ENDING_MS    1000u
#define OWED         4u /* answers that a peer may leave untaken */

struct hth_rdm_end *hth_rdm_pull_end(struct hth_rdm *r)
{
    struct hth_rdm_end *e = r->pull;
    struct hearth_error err = { 0 };

    if (e || hth_rdm_now(r) < r->pull_retry_ms)
        return e;
    e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    if (hth_rdm_pull_end_open(r, e, &err)) {
        hth_say(&r->o.log, HEARTH_LOG_WARN, "ofi-pull-endpoint", "%s", err.text);
        r->pull_retry_ms = hth_rdm_now(r) + RETRY_MS;
        free(e);
        return NULL;
    }
    r->pull = e;
    return e;
}

/* 0: the library keeps it, and its reads. */
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

/* The sockets of the reads under way, or of the orphans among them. */
static void sockets_end(struct hth_rdm *r, struct hth_rdm_end *e, int all)
{
    for (uint32_t i = 0; i < e->count; i++) {
        const struct hth_rdm_op *op = &e->ops[i];
        const struct hth_rdm_conn *c = op->peer ? hth_rdm_conn_get(r, op->conn) : NULL;

        if (c && (all || c->state != HTH_RDM_UP))
            hth_rdm_peer_end_reads(r, op->peer);
    }
}

/* Libfabric 1.17 ends the process when an endpoint is closed whose socket has an answer half here; when
 * the socket ends, it gives the reads back. 1: it may be closed. */
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

/* ---- who may read ---- */

int hth_rdm_peer_knows(struct hth_rdm_conn *c, const struct hth_rdm_end *e)
{
    struct hth_rdm_hello hello = { .id = e->number, .packet = c->r->packet };
    unsigned char bytes[HTH_RDM_LEAST];

    if (c->end_told == e->number)
        return c->end_ok == e->number;
    if (hth_rdm_blob(c->r, e->ep, hello.addr, &hello.addr_len) ||
            hth_rdm_queue(c, HTH_RDM_PULL_FROM, bytes, hth_rdm_hello_write(&hello, bytes))) {
        hth_rdm_conn_refused(c, -FI_EAGAIN);
        return 0;
    }
    c->end_told = e->number;
    c->told_ms = hth_rdm_now(c->r);
    hth_rdm_scan_soon(c->r);
    hth_rdm_flush(c);
    return 0;
}

int hth_rdm_reader_told(struct hth_rdm_conn *c, const unsigned char *bytes, size_t len)
{
    struct hth_rdm_hello hello;
    struct hth_rdm_peer *reader;
    unsigned char answer[8];

    if (hth_rdm_hello_read(bytes, len, &hello) || hello.id <= c->reader_last ||
            hello.id > UINT32_MAX || c->owed >= OWED ||
            hth_rdm_peer_get(c->r, hello.addr, hello.addr_len, &reader, NULL))
        return HEARTH_EPROTO;
    hth_rdm_peer_put(c->r, c->reader[1]);
    c->reader[1] = c->reader[0];
    c->reader[0] = reader;
    c->reader_last = (uint32_t)hello.id;
    hth_put64(answer, hello.id);
    return hth_rdm_queue(c, HTH_RDM_PULL_OK, answer, sizeof(answer)); /* sent when this is taken */
}

int hth_rdm_reader_taken(struct hth_rdm_conn *c, const unsigned char *bytes, size_t len)
{
    if (len != 8 || hth_get64(bytes) > c->end_told)
        return HEARTH_EPROTO;
    c->end_ok = (uint32_t)hth_get64(bytes);
    hth_rdm_pulls_post(c);
    return HEARTH_OK;
}
