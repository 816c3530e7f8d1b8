/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The paths of a connection: the kernel notices when one is dead, and one that has failed is
 * dialled again, at growing intervals.
 */
#include "tcp.h"

#include <netinet/tcp.h>

#define REDIAL_FIRST 1000u /* ms */
#define SILENT_MOST  2000u /* ms without an acknowledgement of messages */
#define SILENT_LEAST 500u  /* the kernel sends again after 200 */

/* The only path of two nodes with one address each is no choice. */
static int has_others(const struct hth_tcp_conn *c)
{
    return c->paths > 1 || c->t->self.count > 1 || c->t->has_paths;
}

void hth_tcp_path_watch(const struct hth_tcp_conn *c, int fd, unsigned silent_ms)
{
    int on = 1;

    if (!has_others(c))
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof(silent_ms));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &on, sizeof(on)); /* 1 s */
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

unsigned hth_tcp_silent_messages_ms(const struct hth_tcp *t)
{
    unsigned half = t->base.dead_ms / 2;

    return !half || half > SILENT_MOST ? SILENT_MOST : half < SILENT_LEAST ? SILENT_LEAST : half;
}

uint32_t hth_tcp_path_here(const struct hth_tcp *t, int fd)
{
    union hth_addr a = { 0 };
    socklen_t len = sizeof(a);

    if (getsockname(fd, &a.sa, &len))
        return 0;
    for (uint32_t i = 1; i < t->self.count; i++)
        if (a.sa.sa_family == AF_INET6
                        ? IN6_ARE_ADDR_EQUAL(&a.in6.sin6_addr, &t->self.at[i].in6.sin6_addr)
                        : a.in.sin_addr.s_addr == t->self.at[i].in.sin_addr.s_addr)
            return i;
    return 0;
}

void hth_tcp_path_failed(const struct hth_tcp_conn *c, uint32_t path)
{
    c->t->path_failed_ms[path] = hth_now_ms(&c->t->clock);
}

void hth_tcp_messages_failed(const struct hth_tcp_conn *c, const char *why)
{
    hth_tcp_path_failed(c, c->path);
    if (has_others(c))
        hth_say(&c->t->log, HEARTH_LOG_WARN, "path-failed",
                "%s: %s; messages go over another address", c->peer, why);
}

void hth_tcp_redial_later(struct hth_tcp_conn *c)
{
    uint32_t wait = 2 * c->redial_wait_ms;

    wait = wait < REDIAL_FIRST          ? REDIAL_FIRST
           : wait > HTH_TCP_REDIAL_LAST ? HTH_TCP_REDIAL_LAST
                                        : wait;
    c->redial_wait_ms = wait;
    c->redial_ms = hth_now_ms(&c->t->clock) + wait;
    if (c->redial_ms < c->t->due_ms)
        c->t->due_ms = c->redial_ms;
}
