/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection from first to last.
 *
 *   CONNECTING ─ connected ─► UP ◄─ connected ─ ACCEPTING     (peer's request accepted)
 *       │                     │ shutdown, failed completion,      │
 *       │                     │ drop() in mid-read                │ failed, too late: nobody
 *       │                     ▼                                   │ knew it, nobody is told
 *       │                  LEAVING   what has come is delivered   │
 *       │ refused, late       │ queue empty, reads given back     │
 *       └──────────────► DOOMED ◄─────────────────────────────────┘   drop() and close(): from any
 *                   endpoint closed; on_pull() for what is left, on_down(), gone
 *
 * The library drops operations silently when an endpoint is closed, so the connection's own
 * table says which pulls are owed a completion; and only after the close are they given, for
 * then nothing writes into their memory. Data calls are made in UP alone: after a refusal the
 * library has no function behind them.
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

static void conn_push(struct hth_ofi_list *list, struct hth_ofi_conn *c)
{
    c->next = NULL;
    if (list->tail)
        list->tail->next = c;
    else
        list->head = c;
    list->tail = c;
}

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

    if (!c)
        return NULL;
    c->o = o;
    c->state = state;
    c->due_ms = hth_now_ms(&o->clock) + o->connect_ms;
    hth_addr_text(peer, c->peer);
    c->id = hth_ids_put(&o->conns, c);
    if (!c->id) {
        free(c);
        return NULL;
    }
    if (c->due_ms < o->due_ms)
        o->due_ms = c->due_ms;
    return c;
}

void hth_ofi_conn_up(struct hth_ofi_conn *c)
{
    struct hth_ofi *o = c->o;

    if (c->state != HTH_OFI_CONNECTING && c->state != HTH_OFI_ACCEPTING)
        return;
    c->state = HTH_OFI_UP;
    c->known = 1;
    if (c->dialled)
        o->events.on_up(o->events.self, c->id);
    else
        o->events.on_accept(o->events.self, c->id);
}

/* ---- ending ---- */

static void conn_note_why(struct hth_ofi_conn *c, int code, const char *why)
{
    c->code = code;
    snprintf(c->detail, sizeof(c->detail), "%s: %s", c->peer, why);
}

/* The library has reads of it. Without sockets (verbs) closing the endpoint takes them back. */
static int conn_must_wait(const struct hth_ofi_conn *c)
{
    return c->o->sockets && c->reading;
}

void hth_ofi_conn_leave(struct hth_ofi_conn *c, int code, const char *why)
{
    if (c->state == HTH_OFI_CONNECTING || c->state == HTH_OFI_ACCEPTING) {
        hth_ofi_conn_doom(c, code, why);
        return;
    }
    if (c->state != HTH_OFI_UP)
        return;
    conn_note_why(c, code, why);
    c->state = HTH_OFI_LEAVING;
    c->turn = c->o->turn;
    conn_push(&c->o->leaving, c);
    if (conn_must_wait(c))
        hth_ofi_socket_end(c->ep);
}

static void conn_unlink_leaving(struct hth_ofi_conn *c)
{
    struct hth_ofi_list all = c->o->leaving;
    struct hth_ofi_conn *next;

    c->o->leaving = (struct hth_ofi_list){ NULL, NULL };
    for (struct hth_ofi_conn *i = all.head; i; i = next) {
        next = i->next;
        if (i != c)
            conn_push(&c->o->leaving, i);
    }
}

void hth_ofi_conn_doom(struct hth_ofi_conn *c, int code, const char *why)
{
    struct hth_ofi *o = c->o;

    if (c->state == HTH_OFI_DOOMED)
        return;
    if (c->state == HTH_OFI_LEAVING)
        conn_unlink_leaving(c);
    if (c->ep) {
        const struct fid *closed = &c->ep->fid;
        int rc;

        if (c->state == HTH_OFI_UP)
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
    if (c->stuck)
        o->stuck--;
    c->stuck = 0;
    conn_note_why(c, code, why);
    c->state = HTH_OFI_DOOMED;
    conn_push(&o->doomed, c);
}

void hth_ofi_conn_cut(struct hth_ofi_conn *c, const char *why)
{
    if (!conn_must_wait(c))
        hth_ofi_conn_doom(c, HEARTH_ECANCELED, why);
    else if (c->state == HTH_OFI_UP)
        hth_ofi_conn_leave(c, HEARTH_ECANCELED, why);
    else if (c->state == HTH_OFI_LEAVING)
        conn_note_why(c, HEARTH_ECANCELED, why);
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
    const struct fi_info *info = c->o->info;
    size_t own = kind == HTH_OFI_RECV ? c->held - c->sending - c->reading : c->sending + c->reading;
    size_t most = kind == HTH_OFI_RECV ? info->rx_attr->size : info->tx_attr->size;

    return c->o->held < c->o->queue && (!most || own < most);
}

void hth_ofi_conn_hold(struct hth_ofi_conn *c, enum hth_ofi_kind kind)
{
    c->held++;
    c->o->held++;
    c->sending += kind == HTH_OFI_SEND;
}

void hth_ofi_conn_release(struct hth_ofi_conn *c, enum hth_ofi_kind kind)
{
    c->held--;
    c->o->held--;
    c->sending -= kind == HTH_OFI_SEND;
}

void hth_ofi_conn_refused(struct hth_ofi_conn *c, ssize_t rc)
{
    if (rc != -FI_EAGAIN && c->state == HTH_OFI_UP) {
        hth_ofi_conn_leave(c, HEARTH_EPEER, c->o->lib->strerror((int)-rc));
        return;
    }
    if (!c->stuck)
        c->o->stuck++;
    c->stuck = 1;
}

int hth_ofi_settle(struct hth_ofi *o, int drained)
{
    struct hth_ofi_conn *c, *next;
    int n = 0;

    for (c = o->leaving.head; c; c = next) {
        char why[HTH_OFI_DETAIL];
        uint64_t patience = conn_must_wait(c) ? READING_TURNS : drained ? 0 : LEAVING_TURNS;

        next = c->next;
        if (o->turn - c->turn < patience)
            continue;
        snprintf(why, sizeof(why), "%s", c->detail + strlen(c->peer) + 2);
        hth_ofi_conn_doom(c, c->code, why);
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

        if (!c || (c->state != HTH_OFI_CONNECTING && c->state != HTH_OFI_ACCEPTING))
            continue;
        if (c->due_ms <= now) {
            hth_ofi_conn_doom(c, HEARTH_ETIMEOUT, "no connection in time");
            n++;
        } else if (c->due_ms < due) {
            due = c->due_ms;
        }
    }
    o->due_ms = due;
    return n;
}

int hth_ofi_conn_grant(struct hth_transport *t, struct hth_region *region, uint64_t off,
        uint64_t len, hth_conn conn, unsigned char *out_desc, uint32_t *out_len,
        struct hearth_error *err)
{
    struct hth_ofi *o = hth_ofi_of(t);
    const struct hth_ofi_conn *c = hth_ofi_conn_get(o, conn);

    if (!c || c->state != HTH_OFI_UP)
        return hth_fail(err, HEARTH_EPEER, 0, "the connection to grant memory to is gone");
    return hth_ofi_grant(o, region, off, len, conn, out_desc, out_len, err);
}

/* A connection that ends keeps its endpoint until the library has returned all operations. */
struct hth_ofi_grants *hth_ofi_conn_grants(struct hth_ofi *o, hth_conn conn)
{
    struct hth_ofi_conn *c = hth_ofi_conn_get(o, conn);

    return c && c->ep ? &c->grants : NULL;
}
