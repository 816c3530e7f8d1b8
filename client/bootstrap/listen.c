/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank 0 listens at each address that the name of the meeting place has. A host's own name often
 * has only 127.0.1.1 in that host's /etc/hosts, while other machines resolve it to the host's real
 * address. Such a name stands for the machine: once ranks may meet off loopback, rank 0 listens at
 * the machine's other addresses too.
 */
#include "listen.h"

#include "client/base/clock.h"
#include "name.h"
#include "place.h"
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define IN_USE_MS 5000u /* how long a rank 0 that is ending may still have the port */

static int listen_is_there(const struct hth_tcp *t, const struct sockaddr *at, socklen_t at_len)
{
    for (unsigned i = 0; i < t->listeners; i++) {
        struct sockaddr_storage own = { 0 };
        socklen_t len = sizeof(own);

        if (!getsockname(t->listener[i], (struct sockaddr *)&own, &len) && len == at_len &&
                memcmp(&own, at, len) == 0)
            return 1;
    }
    return 0;
}

/* Returns 0, or an errno. sole: this is the only address, so an IPv6 one may serve IPv4 too. */
static int listen_at(struct hth_tcp *t, const struct sockaddr *at, socklen_t len, int sole)
{
    int fd, e, yes = 1;

    if (t->listeners == HTH_LISTENERS || listen_is_there(t, at, len))
        return 0;
    fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (at->sa_family == AF_INET6 && !sole)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
    if (bind(fd, at, len) || listen(fd, 4096)) {
        e = errno;
        close(fd);
        return e;
    }
    t->listener[t->listeners++] = fd;
    return 0;
}

void hth_listen_end(struct hth_tcp *t)
{
    while (t->listeners)
        close(t->listener[--t->listeners]);
}

/* Returns 0 with listeners, or an errno without any: EADDRINUSE if an address is in use. */
static int listen_once(struct hth_tcp *t, const struct addrinfo *all, char *tried, size_t len)
{
    int last = EADDRNOTAVAIL;

    tried[0] = '\0';
    for (const struct addrinfo *a = all; a; a = a->ai_next) {
        int e = listen_at(t, a->ai_addr, a->ai_addrlen, !all->ai_next);

        if (!e)
            continue;
        hth_name_note(tried, len, a, strerror(e));
        last = e;
        if (e == EADDRINUSE) {
            hth_listen_end(t);
            break;
        }
    }
    return t->listeners ? 0 : last;
}

static int listen_until(struct hth_tcp *t, const struct addrinfo *all, struct hearth_error *err)
{
    static const struct timespec nap = { .tv_nsec = 50000000 };
    uint64_t until = hth_until_ms(t->deadline_ms < IN_USE_MS ? t->deadline_ms : IN_USE_MS);
    char tried[256];
    int e;

    while ((e = listen_once(t, all, tried, sizeof(tried))) == EADDRINUSE && hth_mono_ms() < until)
        nanosleep(&nap, NULL);
    if (!e)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, e,
            "rank 0 cannot listen at %s port %s (%s): give an address of rank 0's node and a free "
            "port",
            t->host, t->port, tried);
}

static int listen_is_own_name(const struct hth_tcp *t)
{
    char own[256] = "";

    gethostname(own, sizeof(own) - 1);
    return own[0] && strncmp(own, "localhost", 9) != 0 && strcmp(own, t->host) == 0;
}

static int listen_is_loopback(const struct hth_tcp *t)
{
    for (unsigned i = 0; i < t->listeners; i++)
        if (!hth_place_is_here(t->listener[i], 1))
            return 0;
    return 1;
}

int hth_listen(struct hth_tcp *t, struct hearth_error *err)
{
    struct addrinfo *all;
    int rc = hth_name_ask(t, hth_until_ms(t->deadline_ms), &all, err);

    if (rc)
        return rc;
    rc = listen_until(t, all, err);
    freeaddrinfo(all);
    t->narrow = !rc && listen_is_loopback(t) && listen_is_own_name(t);
    return rc;
}

/* An interface's address with our port. Returns 0 if other machines cannot use it. */
static socklen_t listen_address(
        const struct hth_tcp *t, const struct sockaddr *at, struct sockaddr_storage *out)
{
    struct sockaddr_storage own;
    socklen_t len = sizeof(own);
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    in_port_t port;

    if (!at || getsockname(t->listener[0], (struct sockaddr *)&own, &len))
        return 0;
    memcpy(&v4, &own, sizeof(v4));
    port = v4.sin_port; /* at the same offset in sockaddr_in6 */
    memset(out, 0, sizeof(*out));
    if (at->sa_family == AF_INET) {
        memcpy(&v4, at, sizeof(v4));
        v4.sin_port = port;
        memcpy(out, &v4, sizeof(v4));
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127 ? 0 : sizeof(v4);
    }
    if (at->sa_family != AF_INET6)
        return 0;
    memcpy(&v6, at, sizeof(v6));
    v6.sin6_port = port;
    memcpy(out, &v6, sizeof(v6));
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) || IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) ? 0
                                                                                       : sizeof(v6);
}

void hth_listen_wider(struct hth_tcp *t)
{
    struct ifaddrs *all;

    if (!t->narrow || getifaddrs(&all))
        return;
    t->narrow = 0;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct sockaddr_storage at;
        socklen_t len = listen_address(t, i->ifa_addr, &at);

        if (len) /* if it fails, hth_listen_text() does not name the address */
            listen_at(t, (struct sockaddr *)&at, len, 0);
    }
    freeifaddrs(all);
}

void hth_listen_text(const struct hth_tcp *t, char *out, size_t len)
{
    char all[120] = "", host[64];
    size_t n = 0;

    out[0] = '\0';
    for (unsigned i = 0; i < t->listeners; i++) {
        hth_place_host(t->listener[i], 1, host, sizeof(host));
        if (n + strlen(host) + 3 < sizeof(all))
            n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", n ? ", " : "", host);
    }
    if (strcmp(all, t->host) != 0)
        snprintf(out, len, " (rank 0 listens at %s%s)", all,
                listen_is_loopback(t) ? ", which only its own machine reaches" : "");
}
