/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the two ends of a connection are, and whether they may speak there: without a key ranks
 * meet on this machine only, unless the network is trusted.
 */
#include "place.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
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
    struct sockaddr_storage a;
    struct sockaddr_in v4;
    struct sockaddr_in6 at;
    const struct in6_addr *v6 = &at.sin6_addr;

    if (place_of(fd, own, &a))
        return 1; /* the connection is gone */
    memcpy(&v4, &a, sizeof(v4));
    memcpy(&at, &a, sizeof(at));
    if (v4.sin_family == AF_INET)
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

int hth_place_check(const struct hth_tcp *t, int fd, int own, struct hearth_error *err)
{
    char place[HTH_PLACE_TEXT];

    if (!t->knows.told || t->knows.keyed || t->knows.trusted || hth_place_is_here(fd, own))
        return HEARTH_OK;
    hth_place_text(fd, own, place);
    return hth_fail(err, HEARTH_EINVAL, 0,
            "the ranks meet at %s (%s) and there is no key_file: without a key they meet on loopback "
            "only; give a key file, or set network = trusted where no stranger is",
            t->host, place);
}
