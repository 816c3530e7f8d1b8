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
#define READING_TURNS 4096 /* and reads that never come back do not either */

static void push(struct hth_ofi_list *list, struct hth_ofi_conn *c)
{
    c->next = NULL;
    if (list->tail)
        list->tail->next = c;
    else
        list->head = c;
    list->tail = c;
}

struct hth_ofi_conn *hth_ofi_conn_get(struct hth_ofi *o, hth_conn id)
{
    return hth_ofi_slots_get(&o->conns, id);
}

struct hth_ofi_conn *hth_ofi_conn_of(struct hth_ofi *o, const struct fid *fid)
{
    for (uint32_t i = 0; i < o->conns.cap; i++) {
        struct hth_ofi_conn *c = o->conns.slot[i].item;

        if (c && c->ep && &c->ep->fid == fid)
            return c;
    }
    return NULL;
}

static void conn_free(struct hth_ofi_conn *c)
{
    hth_ofi_slots_drop(&c->o->conns, c->id);
    hth_ofi_message_fini(c);
    free(c);
}

static struct hth_ofi_conn *conn_new(
        struct hth_ofi *o, enum hth_ofi_state state, const union hth_ofi_addr *peer)
{
    struct hth_ofi_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->o = o;
    c->state = state;
    c->due_ms = hth_now_ms(&o->clock) + o->connect_ms;
    hth_ofi_addr_text(peer, c->peer);
    c->id = hth_ofi_slots_put(&o->conns, c);
    if (!c->id) {
        free(c);
        return NULL;
    }
    if (c->due_ms < o->due_ms)
        o->due_ms = c->due_ms;
    return c;
}

/* ---- dialling ---- */

static struct fi_info *info_for(struct hth_ofi *o, const union hth_ofi_addr *peer)
{
    struct fi_info *info = o->lib->dupinfo(o->info);
    union hth_ofi_addr *src;
    size_t len = hth_ofi_addr_len(peer);

    if (!info)
        return NULL;
    free(info->dest_addr);
    info->dest_addr = malloc(len);
    free(info->src_addr);
    info->src_addr = src = malloc(sizeof(*src));
    if (!info->dest_addr || !src) {
        o->lib->freeinfo(info);
        return NULL;
    }
    memcpy(info->dest_addr, peer, len);
    info->dest_addrlen = len;
    *src = o->self;
    src->in.sin_port = 0; /* from our address, but not from the port we listen on */
    info->src_addrlen = len;
    return info;
}

static int dial(struct hth_ofi_conn *c, const union hth_ofi_addr *peer)
{
    struct hth_ofi *o = c->o;
    struct fi_info *info = info_for(o, peer);
    int rc = info ? hth_ofi_endpoint(o, info, &c->ep) : -FI_ENOMEM;

    if (info)
        o->lib->freeinfo(info);
    if (!rc)
        rc = hth_ofi_message_init(c);
    if (!rc)
        rc = fi_connect(c->ep, peer, NULL, 0);
    hth_ofi_fds_seal(NULL, &o->self);
    return rc;
}

int hth_ofi_connect(struct hth_transport *t, const unsigned char *addr, uint32_t len,
        hth_conn *out_conn, struct hearth_error *err)
{
    struct hth_ofi *o = hth_ofi_of(t);
    struct hth_ofi_conn *c;
    union hth_ofi_addr peer;
    int rc = hth_ofi_addr_unpack(addr, len, &o->self, &peer, err);

    if (rc)
        return rc;
    if (o->closing)
        return hth_fail(err, HEARTH_ECANCELED, 0, "the transport is being closed");
    c = conn_new(o, HTH_OFI_CONNECTING, &peer);
    if (!c)
        return hth_fail(err, HEARTH_ENOMEM, 0,
                "no memory for a connection, or %u connections stand already", HTH_OFI_CONNS);
    c->dialled = c->known = 1;
    rc = dial(c, &peer);
    if (rc)
        hth_ofi_conn_doom(c, HEARTH_EPEER, o->lib->strerror(-rc));
    *out_conn = c->id;
    return HEARTH_OK;
}

void hth_ofi_accept(struct hth_ofi *o, struct fi_info *info)
{
    union hth_ofi_addr peer = { 0 };
    struct hth_ofi_conn *c;
    int rc = -FI_ENOMEM;

    if (info->dest_addr)
        memcpy(&peer, info->dest_addr,
                info->dest_addrlen < sizeof(peer) ? info->dest_addrlen : sizeof(peer));
    c = conn_new(o, HTH_OFI_ACCEPTING, &peer);
    if (c)
        rc = hth_ofi_endpoint(o, info, &c->ep);
    if (!c || rc) {
        fi_reject(o->pep, info->handle, NULL, 0);
    } else {
        rc = hth_ofi_message_init(c);
        if (!rc)
            rc = fi_accept(c->ep, NULL, 0);
    }
    if (rc) {
        hth_say(&o->log, HEARTH_LOG_WARN, "ofi-accept", "a connection was not accepted: %s",
                o->lib->strerror(-rc));
        if (c)
            hth_ofi_conn_doom(c, HEARTH_EPEER, "not accepted");
    }
    o->lib->freeinfo(info);
    hth_ofi_fds_seal(NULL, &o->self);
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

static void note_why(struct hth_ofi_conn *c, int code, const char *why)
{
    c->code = code;
    snprintf(c->detail, sizeof(c->detail), "%s: %s", c->peer, why);
}

/* For reads that the library has; where connections are no sockets, closing takes them back. */
static int must_wait(const struct hth_ofi_conn *c)
{
    return c->o->sockets && hth_ofi_reading(c);
}

void hth_ofi_conn_leave(struct hth_ofi_conn *c, int code, const char *why)
{
    if (c->state == HTH_OFI_CONNECTING || c->state == HTH_OFI_ACCEPTING) {
        hth_ofi_conn_doom(c, code, why);
        return;
    }
    if (c->state != HTH_OFI_UP)
        return;
    note_why(c, code, why);
    c->state = HTH_OFI_LEAVING;
    c->turn = c->o->turn;
    push(&c->o->leaving, c);
    if (must_wait(c))
        hth_ofi_socket_end(c->ep);
}

static void unlink_leaving(struct hth_ofi_conn *c)
{
    struct hth_ofi_list all = c->o->leaving;
    struct hth_ofi_conn *next;

    c->o->leaving = (struct hth_ofi_list){ NULL, NULL };
    for (struct hth_ofi_conn *i = all.head; i; i = next) {
        next = i->next;
        if (i != c)
            push(&c->o->leaving, i);
    }
}

void hth_ofi_conn_doom(struct hth_ofi_conn *c, int code, const char *why)
{
    struct hth_ofi *o = c->o;

    if (c->state == HTH_OFI_DOOMED)
        return;
    if (c->state == HTH_OFI_LEAVING)
        unlink_leaving(c);
    if (c->ep) {
        int rc;

        if (c->state == HTH_OFI_UP)
            fi_shutdown(c->ep, 0);
        rc = fi_close(&c->ep->fid);
        if (rc)
            hth_say(&o->log, HEARTH_LOG_ERROR, "ofi-close", "%s: libfabric keeps an endpoint: %s",
                    c->peer, o->lib->strerror(-rc));
        c->ep = NULL;
    }
    if (c->stuck)
        o->stuck--;
    c->stuck = 0;
    note_why(c, code, why);
    c->state = HTH_OFI_DOOMED;
    hth_ofi_grants_end(o, c->id);
    push(&o->doomed, c);
}

void hth_ofi_conn_cut(struct hth_ofi_conn *c, const char *why)
{
    if (!must_wait(c))
        hth_ofi_conn_doom(c, HEARTH_ECANCELED, why);
    else if (c->state == HTH_OFI_UP)
        hth_ofi_conn_leave(c, HEARTH_ECANCELED, why);
    else if (c->state == HTH_OFI_LEAVING)
        note_why(c, HEARTH_ECANCELED, why);
}

void hth_ofi_drop(struct hth_transport *t, hth_conn conn)
{
    struct hth_ofi_conn *c = hth_ofi_conn_get(hth_ofi_of(t), conn);

    if (c)
        hth_ofi_conn_cut(c, "dropped by us");
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
        uint64_t patience = must_wait(c) ? READING_TURNS : drained ? 0 : LEAVING_TURNS;

        next = c->next;
        if (o->turn - c->turn < patience)
            continue;
        snprintf(why, sizeof(why), "%s", c->detail + strlen(c->peer) + 2);
        hth_ofi_conn_doom(c, c->code, why);
        n++;
    }
    return n;
}

/* The list as it is now: what callbacks doom comes at the next call, so this ends. */
static int finish_list(struct hth_ofi *o)
{
    struct hth_ofi_conn *c = o->doomed.head, *next;
    int n = 0;

    o->doomed = (struct hth_ofi_list){ NULL, NULL };
    for (; c; c = next, n++) {
        next = c->next;
        hth_ofi_pulls_end(c);
        if (c->known)
            o->events.on_down(o->events.self, c->id, c->code, c->detail);
        conn_free(c);
    }
    return n;
}

int hth_ofi_finish(struct hth_ofi *o)
{
    int n = finish_list(o);

    while (o->closing && o->doomed.head)
        n += finish_list(o);
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
        struct hth_ofi_conn *c = o->conns.slot[i].item;

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
