/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection from first to last.
 *
 *   CONNECTING ─ both sockets welcomed ─► UP ◄─ both halves here (accepted)
 *       │ refused, late                   │ a socket ends, nonsense, drop(), close()
 *       └────────────────► DOOMED ◄───────┘
 *          sockets closed, grants ended; on_pull() for what is left, on_down(), gone
 *
 * Only this thread writes into a pull's destination, so it is free the moment the socket is closed.
 */
#include "tcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

struct hth_tcp_conn *hth_tcp_conn_new(struct hth_tcp *t, const union hth_addr *peer)
{
    struct hth_tcp_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->t = t;
    c->addr = *peer;
    c->messages.fd = c->bulk.fd = -1;
    hth_addr_text(peer, c->peer);
    c->id = hth_ids_put(&t->conns, c);
    if (!c->id) {
        free(c);
        return NULL;
    }
    return c;
}

void hth_tcp_conn_up(struct hth_tcp_conn *c)
{
    struct hth_transport_events *to = &c->t->events;

    c->state = HTH_TCP_UP;
    c->is_sealed = hth_seal_suite(c->bulk_seal) != HTH_SUITE_PROOF;
    hth_tcp_pulls_begin(c);
    hth_tcp_sock_watch(&c->messages, EPOLLIN);
    hth_tcp_sock_watch(&c->bulk, EPOLLIN);
    if (c->dialled)
        to->on_up(to->self, c->id);
    else
        to->on_accept(to->self, c->id);
}

/* ---- ending ---- */

void hth_tcp_conn_end(struct hth_tcp_conn *c, int code, const char *why)
{
    struct hth_tcp *t = c->t;

    if (c->state == HTH_TCP_DOOMED)
        return;
    if (c->greeting)
        hth_tcp_greeting_end(c->greeting);
    hth_tcp_sock_close(&c->messages);
    hth_tcp_sock_close(&c->bulk);
    hth_tcp_grants_end(c);
    hth_tcp_sealed_in_end(c);
    c->code = code;
    snprintf(c->detail, sizeof(c->detail), "%s: %s", c->peer, why);
    c->state = HTH_TCP_DOOMED;
    c->next = NULL;
    *t->doomed_end = c;
    t->doomed_end = &c->next;
}

/* Ends the connection. A lack of memory or descriptors on this node is HEARTH_EBUSY: the peer is
 * not the cause. */
void hth_tcp_conn_errno(struct hth_tcp_conn *c, int error)
{
    int here = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
               error == EADDRNOTAVAIL;
    const char *why = !error           ? "the peer has closed the connection"
                      : error == ENXIO ? "this machine does not have our own address any more"
                                       : strerrordesc_np(error);

    hth_tcp_conn_end(c, here ? HEARTH_EBUSY : HEARTH_EPEER, why);
}
