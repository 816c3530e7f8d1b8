/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection from first to last.
 *
 *   CONNECTING ─ both sockets welcomed ─► UP ◄─ both halves here (accepted)
 *       │ refused, late                   │ a socket ends, nonsense, drop(), close()
 *       └────────────────► DOOMED ◄───────┘
 *          grants ended; its lanes close its bulk sockets; on_pull() for what is left, on_down(),
 *          gone
 *
 * Only its lane writes into a pull's destination, so it is free when the lane has closed the
 * socket.
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
    c->messages.fd = -1;
    c->redial_ms = HTH_NEVER;
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
    hth_tcp_path_watch(c, c->messages.fd, hth_tcp_silent_messages_ms(c->t));
    if (!c->dialled)
        c->path = hth_tcp_path_here(c->t, c->messages.fd);
    if (c->detail[0])
        hth_say(&c->t->log, HEARTH_LOG_WARN, "path-failed", "%s; the peer answers on %s", c->detail,
                c->peer);
    c->detail[0] = '\0';
    c->is_sealed = hth_seal_suite(c->messages_seal) != HTH_SUITE_PROOF;
    hth_tcp_sock_watch(&c->messages, EPOLLIN);
    if (c->bulks) /* else it ends at once, for lack of memory */
        hth_tcp_bulk_start(c->bulk[0]);
    if (c->dialled)
        to->on_up(to->self, c->id);
    else
        to->on_accept(to->self, c->id);
}

/* ---- ending ---- */

/* No lane has anything of it: progress() reports its end. */
static void conn_over(struct hth_tcp_conn *c)
{
    struct hth_tcp *t = c->t;

    c->next = NULL;
    *t->doomed_end = c;
    t->doomed_end = &c->next;
}

void hth_tcp_conn_stopped(struct hth_tcp_conn *c)
{
    if (!--c->running)
        conn_over(c);
}

void hth_tcp_conn_note(struct hth_tcp_conn *c, const char *address, const char *why)
{
    size_t n = strlen(c->detail);

    snprintf(c->detail + n, sizeof(c->detail) - n, "%s%s: %s", n ? "; " : "", address, why);
}

void hth_tcp_conn_end(struct hth_tcp_conn *c, int code, const char *why)
{
    if (c->state == HTH_TCP_DOOMED)
        return;
    if (c->greeting && c->state == HTH_TCP_CONNECTING) /* also if the caller waits no longer */
        hth_tcp_path_failed(c, c->greeting->path);
    if (c->greeting)
        hth_tcp_greeting_end(c->greeting);
    c->redial_ms = HTH_NEVER;
    hth_tcp_sock_close(&c->messages);
    for (uint32_t i = 0; i < c->bulks; i++)
        if (c->bulk[i]->is_started && !c->bulk[i]->is_retiring)
            hth_tcp_bulk_stop(c->bulk[i]);
    hth_tcp_grants_end(c);
    c->code = code;
    hth_tcp_conn_note(c, c->peer, why);
    c->state = HTH_TCP_DOOMED;
    if (!c->running)
        conn_over(c);
}

/* A lack of memory or descriptors on this node is HEARTH_EBUSY: the peer is not the cause. */
const char *hth_tcp_errno_why(int error, int *out_code)
{
    int here = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
               error == EADDRNOTAVAIL;

    *out_code = here ? HEARTH_EBUSY : HEARTH_EPEER;
    return !error           ? "the peer has closed the connection"
           : error == ENXIO ? "this machine does not have our own address any more"
                            : strerrordesc_np(error);
}

void hth_tcp_conn_errno(struct hth_tcp_conn *c, int error)
{
    int code;
    const char *why = hth_tcp_errno_why(error, &code);

    hth_tcp_conn_end(c, code, why);
}
