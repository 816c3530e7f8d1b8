/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection from first to last.
 *
 *    DIALLED ── connected ──► UP ◄─ connected ─ HALF_OPEN     (peer's request accepted)
 *       │                     │ shutdown, failed completion,      │
 *       │                     │ drop() in mid-read                │ failed, too late: it was
 *       │                     ▼                                   │ never up: no on_down()
 *       │                  LEAVING   what has come is delivered   │
 *       │ refused, late       │ queue empty, reads given back     │
 *       └──────────────► DOOMED ◄─────────────────────────────────┘   drop() and close(): from any
 *                   endpoint closed; on_pull() for what is left, on_down(), gone
 *
 * The library drops operations silently when an endpoint is closed, so the connection's own table
 * has the pulls that are owed a completion. They get it only after the close, because then nothing
 * writes into their memory. Data calls are made in UP alone: after a refusal the library has no
 * function behind them.
 *
 * libfabric 1.17.0 frees a read twice whose endpoint is closed, or shut down by fi_shutdown(),
 * while its answer is half here; from then on several operations share one record, on whatever
 * connection. An answer that breaks off by itself is handled well. So the socket is ended first,
 * and the endpoint closed when the library has given all reads back.
 */
#include "ofi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAVING_TURNS 64   /* of progress(): a busy queue does not keep a dead connection */
#define READING_TURNS 4096 /* the same, for reads that the library never gives back */

struct hth_ofi_conn *hth_ofi_conn_of(struct hth_ofi *o, const struct fid *fid)
{
    for (uint32_t i = 0; i < o->conns.cap; i++) {
        struct hth_ofi_conn *c = hth_ids_at(&o->conns, i);

        if (c && c->ep && &c->ep->fid == fid)
            return c;
    }
    return NULL;
}

struct hth_ofi_conn *hth_ofi_conn_new(
        struct hth_ofi *o, enum hth_ofi_state state, const union hth_addr *peer)
{
    struct hth_ofi_conn *c = calloc(1, sizeof(*c));

    if (!c || !hth_ofi_link_add(o, &c->link, state)) {
        free(c);
        return NULL;
    }
    hth_addr_text(peer, c->peer);
    if (c->link.due_ms < o->due_ms)
        o->due_ms = c->link.due_ms;
    return c;
}

static int conn_begins(const struct hth_ofi_conn *c)
{
    return c->link.state == HTH_OFI_DIALLED || c->link.state == HTH_OFI_HALF_OPEN;
}

void hth_ofi_conn_up(struct hth_ofi_conn *c)
{
    if (conn_begins(c))
        hth_ofi_link_up(&c->link);
}

/* ---- ending ---- */

/* 1: the library still has reads of the connection. Without sockets (verbs) closing the endpoint
 * takes them back. */
static int conn_must_wait(const struct hth_ofi_conn *c)
{
    return c->link.o->sockets && c->link.reading;
}

void hth_ofi_conn_leave(struct hth_ofi_conn *c, int code, const char *why)
{
    if (conn_begins(c)) {
        hth_ofi_conn_doom(c, code, why);
        return;
    }
    if (c->link.state != HTH_OFI_UP)
        return;
    hth_ofi_link_note(&c->link, c->peer, code, why);
    c->link.state = HTH_OFI_LEAVING;
    c->turn = c->link.o->turn;
    hth_ofi_list_push(&c->link.o->leaving, &c->link);
    if (conn_must_wait(c))
        hth_ofi_socket_end(c->ep);
}

void hth_ofi_conn_doom(struct hth_ofi_conn *c, int code, const char *why)
{
    struct hth_ofi *o = c->link.o;

    if (c->link.state == HTH_OFI_DOOMED)
        return;
    if (c->link.state == HTH_OFI_LEAVING)
        hth_ofi_list_take(&o->leaving, &c->link);
    if (c->ep) {
        const struct fid *closed = &c->ep->fid;
        int rc;

        if (c->link.state == HTH_OFI_UP)
            fi_shutdown(c->ep, 0);
        rc = fi_close(&c->ep->fid);
        if (rc)
            hth_say(&o->log, HEARTH_LOG_ERROR, "ofi-close", "%s: libfabric keeps an endpoint: %s",
                    c->peer, o->lib->strerror(-rc));
        hth_ofi_events_drop(o, closed);
        c->ep = NULL;
    }
    o->held -= c->held;
    c->held = c->sending = 0;
    hth_ofi_link_stuck(&c->link, 0);
    hth_ofi_link_note(&c->link, c->peer, code, why);
    hth_ofi_link_doom(&c->link);
}

void hth_ofi_conn_cut(struct hth_ofi_conn *c, const char *why)
{
    if (!conn_must_wait(c))
        hth_ofi_conn_doom(c, HEARTH_ECANCELED, why);
    else if (c->link.state == HTH_OFI_UP)
        hth_ofi_conn_leave(c, HEARTH_ECANCELED, why);
    else if (c->link.state == HTH_OFI_LEAVING)
        hth_ofi_link_note(&c->link, c->peer, HEARTH_ECANCELED, why);
}

void hth_ofi_drop(struct hth_transport *t, hth_conn conn)
{
    struct hth_ofi_conn *c = hth_ofi_conn_get(hth_ofi_of(t), conn);

    if (c)
        hth_ofi_conn_cut(c, "dropped by us");
}

/* ---- what the library has ---- */

int hth_ofi_conn_has_room(const struct hth_ofi_conn *c, enum hth_ofi_kind kind)
{
    const struct fi_info *info = c->link.o->info;
    size_t own = kind == HTH_OFI_RECV ? c->held - c->sending - c->link.reading
                                      : c->sending + c->link.reading;
    size_t most = kind == HTH_OFI_RECV ? info->rx_attr->size : info->tx_attr->size;

    return c->link.o->held < c->link.o->queue && (!most || own < most);
}

void hth_ofi_conn_hold(struct hth_ofi_conn *c, enum hth_ofi_kind kind)
{
    c->held++;
    c->link.o->held++;
    c->sending += kind == HTH_OFI_SEND;
}

void hth_ofi_conn_release(struct hth_ofi_conn *c, enum hth_ofi_kind kind)
{
    c->held--;
    c->link.o->held--;
    c->sending -= kind == HTH_OFI_SEND;
}

void hth_ofi_conn_refused(struct hth_ofi_conn *c, ssize_t rc)
{
    if (rc != -FI_EAGAIN && c->link.state == HTH_OFI_UP) {
        hth_ofi_conn_leave(c, HEARTH_EPEER, c->link.o->lib->strerror((int)-rc));
        return;
    }
    hth_ofi_link_stuck(&c->link, 1);
}

int hth_ofi_settle(struct hth_ofi *o, int drained)
{
    struct hth_ofi_link *next;
    int n = 0;

    for (struct hth_ofi_link *i = o->leaving.head; i; i = next) {
        struct hth_ofi_conn *c = (struct hth_ofi_conn *)i;
        char why[HTH_OFI_DETAIL];
        uint64_t patience = conn_must_wait(c) ? READING_TURNS : drained ? 0 : LEAVING_TURNS;

        next = i->next;
        if (o->turn - c->turn < patience)
            continue;
        snprintf(why, sizeof(why), "%s", c->link.detail + strlen(c->peer) + 2);
        hth_ofi_conn_doom(c, c->link.code, why);
        n++;
    }
    return n;
}

int hth_ofi_expire(struct hth_ofi *o)
{
    uint64_t now, due = HTH_NEVER;
    int n = 0;

    if (o->due_ms == HTH_NEVER)
        return 0;
    now = hth_now_ms(&o->clock);
    if (now < o->due_ms)
        return 0;
    for (uint32_t i = 0; i < o->conns.cap; i++) {
        struct hth_ofi_conn *c = hth_ids_at(&o->conns, i);

        if (!c || !conn_begins(c))
            continue;
        if (c->link.due_ms <= now) {
            hth_ofi_conn_doom(c, HEARTH_ETIMEOUT, "no connection in time");
            n++;
        } else if (c->link.due_ms < due) {
            due = c->link.due_ms;
        }
    }
    o->due_ms = due;
    return n;
}

/* A connection that ends keeps its endpoint until the library has returned all operations. */
struct hth_ofi_grants *hth_ofi_conn_grants(struct hth_ofi *o, hth_conn conn)
{
    struct hth_ofi_conn *c = hth_ofi_conn_get(o, conn);

    return c && c->ep ? &c->link.grants : NULL;
}
