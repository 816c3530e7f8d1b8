/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of the meeting place. */
#include "tcp.h"

#include "client/base/clock.h"
#include "core/base/fail.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* 1: asking again does not help. */
static int name_is_hopeless(int e)
{
    return e == EAI_BADFLAGS || e == EAI_FAMILY || e == EAI_SERVICE || e == EAI_SOCKTYPE ||
           e == EAI_MEMORY;
}

static void name_take(struct hth_meeting_place *p, const struct addrinfo *a)
{
    struct hth_meeting_address *at = &p->at[p->addresses];
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;

    *at = (struct hth_meeting_address){ .family = (uint16_t)a->ai_family };
    if (a->ai_family == AF_INET && a->ai_addrlen == sizeof(v4)) {
        memcpy(&v4, a->ai_addr, sizeof(v4));
        memcpy(at->ip, &v4.sin_addr, sizeof(v4.sin_addr));
        p->addresses++;
    } else if (a->ai_family == AF_INET6 && a->ai_addrlen == sizeof(v6)) {
        memcpy(&v6, a->ai_addr, sizeof(v6));
        memcpy(at->ip, &v6.sin6_addr, sizeof(v6.sin6_addr));
        at->scope = v6.sin6_scope_id;
        p->addresses++;
    }
}

int hth_tcp_resolve(const struct hth_tcp *t, uint64_t until, struct hth_meeting_place *out,
        struct hearth_error *err)
{
    static const struct timespec nap = { .tv_nsec = 200000000 };
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    uint64_t from = hth_mono_ms();
    struct addrinfo *all = NULL;
    char port[8];
    int e;

    *out = (struct hth_meeting_place){ .port = t->port };
    snprintf(out->host, sizeof(out->host), "%s", t->host);
    snprintf(port, sizeof(port), "%u", t->port);
    while ((e = getaddrinfo(t->host, port, &hints, &all)) && !name_is_hopeless(e) &&
            hth_mono_ms() + 200 < until)
        nanosleep(&nap, NULL);
    for (const struct addrinfo *a = e ? NULL : all; a && out->addresses < HTH_MEETING_ADDRESSES;
            a = a->ai_next)
        name_take(out, a);
    if (!e)
        freeaddrinfo(all);
    if (out->addresses)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, e == EAI_SYSTEM ? errno : 0,
            "the meeting place %s has no address: %s, asked for %llu ms: give the host name or "
            "address of rank 0's node",
            t->host, e == EAI_SYSTEM ? strerror(errno) : gai_strerror(e),
            (unsigned long long)(hth_mono_ms() - from));
}
