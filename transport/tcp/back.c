/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's thread takes the reports of lanes (report.c), and runs the callbacks. */
#include "tcp.h"

#include <errno.h>
#include <string.h>

#define LAST_READS 16 /* of messages */

/* Messages that came by the other socket are delivered first. */
static void conn_broke(struct hth_tcp_conn *c, int code, const char *why)
{
    for (int i = 0; i < LAST_READS && c->state == HTH_TCP_UP; i++)
        hth_tcp_messages_read(c);
    hth_tcp_conn_end(c, code, why);
}

static void bulk_broke(struct hth_tcp_bulk *b, int error)
{
    struct hth_tcp_conn *c = b->conn;

    if (error == EFAULT)
        conn_broke(c, HEARTH_EPROTO, "the memory to pull into cannot be written");
    else if (error == EPROTO && b->is_sealed)
        conn_broke(c, HEARTH_EPROTO, "it sent what makes no sense, or was changed on its way");
    else if (error == EPROTO)
        conn_broke(c, HEARTH_EPROTO, "it sent a frame that makes no sense");
    else if (error == ENOMEM || error == ENOSPC) /* ENOSPC: of what epoll may watch */
        conn_broke(c, HEARTH_EBUSY, "no memory for its records");
    else if (!hth_tcp_bulk_retire(b, error))
        conn_broke(c, HEARTH_EPEER,
                error ? strerrordesc_np(error) : "the peer has closed the connection");
}

static void bulk_stopped(struct hth_tcp_bulk *b)
{
    if (b->conn->state == HTH_TCP_UP)
        hth_tcp_bulk_retired(b);
    else
        hth_tcp_conn_stopped(b->conn);
}

/* A pull that was done before its connection ended, and is reported after that, is cancelled with
 * the others. */
static int pulls_take(struct hth_tcp *t)
{
    struct hth_tcp_pull *p, *next;
    int n = 0;

    pthread_mutex_lock(&t->back_lock);
    p = t->back_pulls;
    t->back_pulls = NULL;
    t->back_pulls_end = &t->back_pulls;
    pthread_mutex_unlock(&t->back_lock);
    for (; p; p = next, n++) {
        next = p->next;
        if (p->bulk->conn->state == HTH_TCP_UP)
            hth_tcp_pull_report(p, p->code);
    }
    return n;
}

static struct hth_tcp_bulk *bulk_take(struct hth_tcp *t, int *out_broke, int *out_stopped)
{
    struct hth_tcp_bulk *b;

    pthread_mutex_lock(&t->back_lock);
    b = t->back_bulks;
    if (b) {
        t->back_bulks = b->back_next;
        if (!t->back_bulks)
            t->back_bulks_end = &t->back_bulks;
        *out_broke = b->broke;
        *out_stopped = b->stopped;
        b->is_back = b->broke = b->stopped = 0;
    }
    pthread_mutex_unlock(&t->back_lock);
    return b;
}

int hth_tcp_back_take(struct hth_tcp *t)
{
    int broke = 0, stopped = 0, n = pulls_take(t);

    for (struct hth_tcp_bulk *b = bulk_take(t, &broke, &stopped); b;
            b = bulk_take(t, &broke, &stopped), n++) {
        n += pulls_take(t); /* those that were done before it broke */
        if (broke && !b->is_retiring)
            bulk_broke(b, b->error);
        if (stopped)
            bulk_stopped(b);
    }
    return n;
}
