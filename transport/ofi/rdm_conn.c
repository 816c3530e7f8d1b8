/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection where the library has none: two ids and two secrets, exchanged by greeting.
 *
 *   dials:    DIALLED ── OPEN ──►      HALF_OPEN  :accepts     (it is not reported yet)
 *                │     ◄─ ACCEPT ──        │
 *                ▼                         │
 *               UP ──── any packet ──────► UP
 *                │
 *                │ drop(), BYE, a failed operation, a deadline
 *                ▼
 *             LEAVING   its reads are orphans; they end, or their endpoint does
 *                ▼
 *             DOOMED    on_pull() for what is left, on_down(), gone
 *
 * A peer that greets and never answers uses one of HTH_RDM_HALF half-open connections. When all
 * are used, the oldest ends; if ACCEPT was sent on it, BYE is sent too, since the peer may be up.
 * A packet without a connection's secret does not reach it.
 */
#include "rdm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Takes the reference of the peer. NULL: no memory, or as many stand as may. */
static struct hth_rdm_conn *rdm_conn_new(
        struct hth_rdm *r, enum hth_ofi_state state, struct hth_rdm_peer *peer)
{
    struct hth_rdm_conn *c = calloc(1, sizeof(*c));

    if (!c || getrandom(&c->token, sizeof(c->token), 0) != sizeof(c->token) ||
            !hth_ofi_link_add(&r->o, &c->link, state)) {
        free(c);
        return NULL;
    }
    c->r = r;
    c->peer = peer;
    c->packet = r->packet;
    c->out_end = &c->out;
    r->waiting++;
    hth_rdm_scan_soon(r);
    return c;
}

void hth_rdm_conn_free(struct hth_ofi_link *link)
{
    struct hth_rdm_conn *c = (struct hth_rdm_conn *)link;
    struct hth_rdm *r = c->r;

    hth_rdm_stream_fini(c);
    hth_rdm_peer_put(r, c->peer);
    hth_rdm_peer_put(r, c->reader[0]);
    hth_rdm_peer_put(r, c->reader[1]);
    free(c);
}

int hth_rdm_connect(struct hth_transport *t, const unsigned char *addr, uint32_t len,
        hth_conn *out_conn, struct hearth_error *err)
{
    struct hth_rdm *r = hth_rdm_of(t);
    struct hth_rdm_peer *peer;
    struct hth_rdm_conn *c;
    int rc;

    if (r->o.closing)
        return hth_fail(err, HEARTH_ECANCELED, 0, "the transport is being closed");
    rc = hth_rdm_peer_get(r, addr, len, &peer, err);
    if (rc)
        return rc;
    c = rdm_conn_new(r, HTH_OFI_DIALLED, peer);
    if (!c) {
        hth_rdm_peer_put(r, peer);
        return hth_fail(err, HEARTH_EBUSY, 0,
                "no memory for a connection, or %u connections stand already", r->o.base.conns_max);
    }
    c->link.dialled = c->link.known = 1;
    *out_conn = c->link.id;
    hth_rdm_flush(c);
    return HEARTH_OK;
}

/* ---- greetings ---- */

/* 0: no room, because BYE cannot be sent to the oldest one. */
static int half_open_make_room(struct hth_rdm *r)
{
    struct hth_rdm_conn *oldest = (struct hth_rdm_conn *)r->half.head;

    if (r->half.count < HTH_RDM_HALF)
        return 1;
    if (oldest->out_seq && r->byes == HTH_RDM_BYES)
        return 0;
    hth_rdm_conn_leave(oldest, HEARTH_EBUSY, "crowded out", 0);
    return 1;
}

/* A hello may come from any program on the network: it costs one place among the half-open
 * connections. */
void hth_rdm_greeted(struct hth_rdm *r, const unsigned char *bytes, size_t len)
{
    struct hth_rdm_hello theirs, ours = { .packet = r->packet };
    unsigned char answer[HTH_RDM_LEAST];
    struct hth_rdm_peer *peer;
    struct hth_rdm_conn *c;

    if (hth_rdm_hello_read(bytes, len, &theirs))
        return;
    if (hth_rdm_peer_get(r, theirs.addr, theirs.addr_len, &peer, NULL))
        return;
    c = half_open_make_room(r) ? rdm_conn_new(r, HTH_OFI_HALF_OPEN, peer) : NULL;
    if (!c) {
        hth_rdm_peer_put(r, peer);
        return;
    }
    hth_ofi_list_push(&r->half, &c->link);
    c->peer_id = theirs.id;
    c->peer_token = theirs.token;
    if (theirs.packet < c->packet)
        c->packet = theirs.packet;
    ours.id = c->link.id;
    ours.token = c->token;
    if (hth_rdm_queue(c, HTH_RDM_ACCEPT, answer, hth_rdm_hello_write(&ours, answer)))
        hth_rdm_conn_leave(c, HEARTH_ENOMEM, "no memory for an answer", 0);
    else
        hth_rdm_flush(c);
}

int hth_rdm_accepted(struct hth_rdm_conn *c, const unsigned char *bytes, size_t len)
{
    struct hth_rdm_hello hello;

    if (c->link.state != HTH_OFI_DIALLED || hth_rdm_hello_read(bytes, len, &hello))
        return HEARTH_EPROTO;
    c->peer_id = hello.id;
    c->peer_token = hello.token;
    if (hello.packet < c->packet)
        c->packet = hello.packet;
    c->want_ack = 1; /* shows the peer that its answer has come */
    hth_rdm_conn_up(c);
    return HEARTH_OK;
}

/* ---- ending ---- */

void hth_rdm_drop(struct hth_transport *t, hth_conn conn)
{
    struct hth_rdm_conn *c = hth_rdm_conn_get(hth_rdm_of(t), conn);

    if (c)
        hth_rdm_conn_leave(c, HEARTH_ECANCELED, "dropped by us", 1);
}

/* 1: the library has accepted nothing of it for as long as a connection may take to stand. If a
 * peer is gone, the library returns "again" for ever. */
static int conn_is_stuck_for_good(const struct hth_rdm_conn *c, uint64_t now)
{
    return c->link.stuck && c->stuck_ms && !c->sends && !c->link.reading &&
           now - c->stuck_ms >= c->r->o.connect_ms;
}

/* 1: the connection is over. */
static int conn_expire(struct hth_rdm_conn *c, uint64_t now)
{
    uint32_t patience = c->r->o.connect_ms;

    if (c->link.state == HTH_OFI_DIALLED || c->link.state == HTH_OFI_HALF_OPEN) {
        if (c->link.due_ms > now)
            return 0;
        hth_rdm_conn_leave(c, HEARTH_ETIMEOUT, "no connection in time", 0);
        return 1;
    }
    if (c->link.state != HTH_OFI_UP)
        return 0;
    if (conn_is_stuck_for_good(c, now))
        hth_rdm_conn_leave(c, HEARTH_EPEER, "the library takes nothing for it", 1);
    else if (c->link.pulls && c->end_told != c->end_ok && now - c->told_ms >= patience)
        hth_rdm_conn_leave(c, HEARTH_EPEER, "it does not answer", 1);
    return c->link.state != HTH_OFI_UP;
}

int hth_rdm_expire(struct hth_rdm *r)
{
    uint64_t now;
    int n = 0, asked = 0;

    if (r->scan_ms == HTH_NEVER)
        return 0;
    now = hth_rdm_now(r);
    if (now < r->scan_ms)
        return 0;
    for (uint32_t i = 0; i < r->o.conns.cap; i++) {
        struct hth_rdm_conn *c = hth_ids_at(&r->o.conns, i);

        if (!c)
            continue;
        n += conn_expire(c, now);
        asked |= c->end_told != c->end_ok;
    }
    r->scan_ms = r->waiting || r->o.stuck || asked ? now + HTH_RDM_SCAN_MS : HTH_NEVER;
    return n;
}
