/* SPDX-License-Identifier: Apache-2.0 */
/* Greetings as objects: strangers are in a list, the oldest first; greetings of dialled connections
 * belong to their connection. */
#include "tcp.h"

#include <stdlib.h>

void hth_tcp_stranger_list(struct hth_tcp_greeting *g)
{
    struct hth_tcp *t = g->sock.t;

    g->prev = t->newest;
    if (t->newest)
        t->newest->next = g;
    else
        t->oldest = g;
    t->newest = g;
    hth_tcp_place_take(g);
}

static void stranger_unlist(struct hth_tcp_greeting *g)
{
    struct hth_tcp *t = g->sock.t;

    if (g->prev)
        g->prev->next = g->next;
    else
        t->oldest = g->next;
    if (g->next)
        g->next->prev = g->prev;
    else
        t->newest = g->prev;
    hth_tcp_place_leave(g);
}

void hth_tcp_greeting_end(struct hth_tcp_greeting *g)
{
    g->sock.t->extras -= (uint32_t)g->is_extra;
    hth_tcp_sock_close(&g->sock);
    hth_seal_drop(&g->hand);
    hth_seal_close(g->seal);
    if (g->conn)
        g->conn->greeting = NULL;
    else
        stranger_unlist(g);
    free(g);
}
