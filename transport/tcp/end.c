/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that have ended: dropped, too late, or closed; each reports its pulls, then its
 * end. */
#include "tcp.h"

#include <stdlib.h>

void hth_tcp_drop(struct hth_transport *t, hth_conn conn)
{
    struct hth_tcp_conn *c = hth_tcp_conn_get(hth_tcp_of(t), conn);

    if (c)
        hth_tcp_conn_end(c, HEARTH_ECANCELED, "dropped by us");
}

/* Takes the list as it is: a connection that a callback dooms has its turn in the next call. */
static int doomed_take(struct hth_tcp *t)
{
    struct hth_tcp_conn *c = t->doomed, *next;
    int n = 0;

    t->doomed = NULL;
    t->doomed_end = &t->doomed;
    for (; c; c = next, n++) {
        next = c->next;
        hth_tcp_pulls_end(c);
        t->events.on_down(t->events.self, c->id, c->code, c->detail);
        hth_ids_drop(&t->conns, c->id);
        hth_tcp_messages_fini(c);
        t->extras -= c->bulks ? c->bulks - 1 : 0;
        for (uint32_t i = 0; i < c->bulks; i++)
            hth_tcp_bulk_free(c->bulk[i]);
        hth_seal_close(c->messages_seal);
        free(c);
    }
    return n;
}

int hth_tcp_finish(struct hth_tcp *t)
{
    int n = doomed_take(t);

    while (t->closing && t->doomed)
        n += doomed_take(t);
    return n;
}

/* A connection that stands goes on without the bulk socket that did not come about. If our proof is
 * out, the peer may have added the socket already. An older peer takes its end for that of the
 * connection, so this side waits; where there are several paths no peer is older. */
static void conn_expires(struct hth_tcp_conn *c)
{
    if (c->state == HTH_TCP_UP && c->greeting->stage == HTH_TCP_FINISHES && c->paths == 1)
        c->due_ms = HTH_NEVER;
    else
        hth_tcp_greeting_late(c->greeting);
}

int hth_tcp_conns_expire(struct hth_tcp *t, uint64_t now)
{
    uint64_t due = HTH_NEVER;
    int n = 0;

    if (now < t->due_ms)
        return 0;
    for (uint32_t i = 0; i < t->conns.cap; i++) {
        struct hth_tcp_conn *c = hth_ids_at(&t->conns, i);

        if (!c)
            continue;
        if (c->greeting && c->due_ms <= now) {
            conn_expires(c);
            n++;
        } else if (c->redial_ms <= now) {
            hth_tcp_redial(c);
            n++;
        }
        if (c->greeting && c->due_ms < due) /* it may dial another address now */
            due = c->due_ms;
        due = c->redial_ms < due ? c->redial_ms : due;
    }
    t->due_ms = due;
    return n;
}
