/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk sockets that fail alone. While another one of the connection stands, a bulk socket that
 * breaks ends nothing else:
 *
 *   broke ──► retiring ── its lane has closed it ──► its pulls begin again on the others, from the
 *                                                    last end that has come; it is gone
 *
 * So nothing is written into a destination by two sockets, and a peer that was asked for the same
 * bytes before has no socket to send them on. The side that dialled dials the path again, at
 * growing intervals. The last socket ends its connection.
 */
#include "tcp.h"

int hth_tcp_bulk_retire(struct hth_tcp_bulk *b, int error)
{
    struct hth_tcp_conn *c = b->conn;
    char address[HTH_ADDR_LABEL];
    int code;

    if (c->state != HTH_TCP_UP || c->running - c->retiring < 2)
        return 0;
    b->is_retiring = 1;
    c->retiring++;
    hth_addr_text(&b->peer, address);
    hth_tcp_conn_note(c, address, hth_tcp_errno_why(error, &code));
    hth_tcp_bulk_stop(b);
    return 1;
}

void hth_tcp_bulk_retired(struct hth_tcp_bulk *b)
{
    struct hth_tcp_conn *c = b->conn;
    uint64_t pulled = atomic_load(&b->pulled_ms), now = hth_now_ms(&c->t->clock);
    uint32_t at = 0;

    while (c->bulk[at] != b)
        at++;
    c->bulk[at] = c->bulk[--c->bulks];
    c->retiring--;
    c->running--;
    c->t->extras--;
    c->pulled_ms = pulled > c->pulled_ms ? pulled : c->pulled_ms;
    for (uint32_t i = 0; i < HTH_TCP_PULLS; i++)
        if (c->pull[i].bulk == b)
            hth_tcp_pull_move(&c->pull[i]);
    if (now - b->since_ms >= HTH_TCP_REDIAL_LAST)
        c->redial_wait_ms = 0;
    c->lacks |= 1u << b->path;
    hth_tcp_bulk_free(b);
    if (c->state == HTH_TCP_UP)
        hth_tcp_redial_later(c);
}
