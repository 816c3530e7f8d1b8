/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host listens at each address that the name of the meeting place has. A host's own name often
 * has only 127.0.1.1 in that host's /etc/hosts, while other machines resolve it to the host's real
 * address. Such a name stands for the machine: once ranks may meet off loopback, the host listens
 * at the machine's other addresses too.
 */
#include "listen.h"

#include "place.h"
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int listen_is_there(const struct hth_listening *l, const struct sockaddr_storage *at)
{
    for (unsigned i = 0; i < l->count; i++) {
        struct sockaddr_storage own = { 0 };
        socklen_t len = sizeof(own);

        if (!getsockname(l->at[i].watch.fd, (struct sockaddr *)&own, &len) &&
                memcmp(&own, at, len) == 0)
            return 1;
    }
    return 0;
}

/* Returns 0, or an errno. sole: this is the only address, so an IPv6 one may serve IPv4 too. */
static int listen_at(
        struct hth_listening *l, const struct sockaddr_storage *at, socklen_t len, int sole)
{
    int fd, e, yes = 1;

    if (l->count == HTH_LISTENERS || listen_is_there(l, at))
        return 0;
    fd = socket(at->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (at->ss_family == AF_INET6 && !sole)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
    if (bind(fd, (const struct sockaddr *)at, len) || listen(fd, 4096)) {
        e = errno;
        close(fd);
        return e;
    }
    l->at[l->count++] = (struct hth_listener){ .watch.fd = fd };
    return 0;
}

void hth_listen_end(struct hth_listening *l)
{
    while (l->count)
        hth_watch_end(&l->at[--l->count].watch);
}

static int listen_is_own_name(const struct hth_listening *l)
{
    char own[256] = "";

    gethostname(own, sizeof(own) - 1);
    return own[0] && strncmp(own, "localhost", 9) != 0 && strcmp(own, l->place->host) == 0;
}

static int listen_is_loopback(const struct hth_listening *l)
{
    for (unsigned i = 0; i < l->count; i++)
        if (!hth_place_is_here(l->at[i].watch.fd, 1))
            return 0;
    return 1;
}

int hth_listen_once(struct hth_listening *l, char *tried, size_t len)
{
    const struct hth_meeting_place *p = l->place;
    int last = EADDRNOTAVAIL;

    tried[0] = '\0';
    for (uint32_t i = 0; i < p->addresses; i++) {
        struct sockaddr_storage at;
        socklen_t at_len = hth_place_socket(&p->at[i], p->port, &at);
        int e = at_len ? listen_at(l, &at, at_len, p->addresses == 1) : EAFNOSUPPORT;

        if (!e)
            continue;
        hth_place_note(tried, len, &p->at[i], strerror(e));
        last = e;
        if (e == EADDRINUSE) {
            hth_listen_end(l);
            break;
        }
    }
    l->narrow = l->count && listen_is_loopback(l) && listen_is_own_name(l);
    return l->count ? 0 : last;
}

/* An interface's address. 0: other machines cannot use it. */
static int listen_address(const struct sockaddr *at, struct hth_meeting_address *out)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;

    *out = (struct hth_meeting_address){ .family = at ? at->sa_family : 0 };
    if (out->family == AF_INET) {
        memcpy(&v4, at, sizeof(v4));
        memcpy(out->ip, &v4.sin_addr, sizeof(v4.sin_addr));
        return ntohl(v4.sin_addr.s_addr) >> 24 != 127;
    }
    if (out->family != AF_INET6)
        return 0;
    memcpy(&v6, at, sizeof(v6));
    memcpy(out->ip, &v6.sin6_addr, sizeof(v6.sin6_addr));
    return !IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) && !IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);
}

void hth_listen_wider(struct hth_listening *l)
{
    struct ifaddrs *all;

    if (!l->narrow || getifaddrs(&all))
        return;
    l->narrow = 0;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct hth_meeting_address a;
        struct sockaddr_storage at;

        if (listen_address(i->ifa_addr, &a)) { /* hth_listen_text() names what did not fail */
            socklen_t len = hth_place_socket(&a, l->place->port, &at);

            listen_at(l, &at, len, 0);
        }
    }
    freeifaddrs(all);
}

void hth_listen_text(const struct hth_listening *l, char *out, size_t len)
{
    char all[120] = "", host[64];
    size_t n = 0;

    out[0] = '\0';
    for (unsigned i = 0; i < l->count; i++) {
        hth_place_host(l->at[i].watch.fd, 1, host, sizeof(host));
        if (n + strlen(host) + 3 < sizeof(all))
            n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", n ? ", " : "", host);
    }
    if (strcmp(all, l->place->host) != 0)
        snprintf(out, len, " (rank 0 listens at %s%s)", all,
                listen_is_loopback(l) ? ", which only its own machine reaches" : "");
}
