/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the two ends of a connection are, and whether they may speak there: without a key ranks
 * meet on this machine only, unless the network is trusted.
 */
#include "place.h"

#include "core/base/fail.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static int place_of(int fd, int own, struct sockaddr_storage *out)
{
    struct sockaddr *at = (struct sockaddr *)out;
    socklen_t len = sizeof(*out);

    return own ? getsockname(fd, at, &len) : getpeername(fd, at, &len);
}

void hth_place_text(int fd, int own, char out[HTH_PLACE_TEXT])
{
    struct sockaddr_storage a;
    char host[64], port[8];

    if (place_of(fd, own, &a) || getnameinfo((struct sockaddr *)&a, sizeof(a), host, sizeof(host),
                                         port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
        snprintf(out, HTH_PLACE_TEXT, "a place that is gone");
    else
        snprintf(out, HTH_PLACE_TEXT, "%s port %s", host, port);
}

void hth_place_host(int fd, int own, char *out, size_t len)
{
    struct sockaddr_storage a;

    if (place_of(fd, own, &a) || getnameinfo((struct sockaddr *)&a, sizeof(a), out, (socklen_t)len,
                                         NULL, 0, NI_NUMERICHOST))
        snprintf(out, len, "a place that is gone");
}

int hth_place_is_here(int fd, int own)
{
    struct sockaddr_storage a = { 0 };
    struct sockaddr_in v4;
    struct sockaddr_in6 at;
    const struct in6_addr *v6 = &at.sin6_addr;

    if (place_of(fd, own, &a) || a.ss_family == AF_UNIX)
        return 1; /* the connection is gone, or inside this process */
    memcpy(&v4, &a, sizeof(v4));
    memcpy(&at, &a, sizeof(at));
    if (v4.sin_family == AF_INET)
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

/* A port of those that connections take for their own end may answer while nothing listens
 * there. */
int hth_place_is_itself(int fd)
{
    struct sockaddr_storage own = { 0 }, other = { 0 };

    return !place_of(fd, 1, &own) && !place_of(fd, 0, &other) &&
           memcmp(&own, &other, sizeof(own)) == 0;
}

void hth_place_keep_alive(int fd)
{
    int yes = 1, idle_s = 5, count = 3;

    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &yes, sizeof(yes));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

int hth_place_check(const struct hth_meeting_keys *k, const char *host, int fd, int own,
        struct hearth_error *err)
{
    char place[HTH_PLACE_TEXT];

    if (!k->told || k->keyed || k->trusted || hth_place_is_here(fd, own))
        return HEARTH_OK;
    hth_place_text(fd, own, place);
    return hth_fail(err, HEARTH_EINVAL, 0,
            "the ranks meet at %s (%s) and there is no key_file: without a key they meet on "
            "loopback only; give a key file, or set network = trusted where no stranger is",
            host, place);
}

socklen_t hth_place_socket(
        const struct hth_meeting_address *a, uint32_t port, struct sockaddr_storage *out)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_scope_id = a->scope
    };

    memset(out, 0, sizeof(*out));
    memcpy(&v4.sin_addr, a->ip, sizeof(v4.sin_addr));
    memcpy(&v6.sin6_addr, a->ip, sizeof(v6.sin6_addr));
    if (a->family == AF_INET)
        memcpy(out, &v4, sizeof(v4));
    if (a->family == AF_INET6)
        memcpy(out, &v6, sizeof(v6));
    if (a->family != AF_INET && a->family != AF_INET6)
        return 0;
    return a->family == AF_INET ? sizeof(v4) : sizeof(v6);
}

void hth_place_note(char *text, size_t len, const struct hth_meeting_address *at, const char *what)
{
    char host[INET6_ADDRSTRLEN], note[160];
    size_t used = strlen(text);
    int n;

    if (!inet_ntop(at->family, at->ip, host, sizeof(host)))
        snprintf(host, sizeof(host), "an address of family %d", at->family);
    n = snprintf(note, sizeof(note), "%s%s: %s", used ? ", " : "", host, what);
    if (n > 0 && (size_t)n < sizeof(note) && used + (size_t)n < len)
        memcpy(text + used, note, (size_t)n + 1);
}
