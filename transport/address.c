/* SPDX-License-Identifier: Apache-2.0 */
#include "address.h"

#include "core/base/bytes.h"
#include "core/base/fail.h"
#include "core/base/network.h"
#include "core/format/epoch.h"
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum blob_version { BLOB_ONE = 1, BLOB_SEVERAL = HTH_ADDR_SEVERAL };

socklen_t hth_addr_len(const union hth_addr *a)
{
    return a->sa.sa_family == AF_INET6 ? sizeof(a->in6) : sizeof(a->in);
}

void hth_addr_text(const union hth_addr *a, char out[HTH_ADDR_LABEL])
{
    char ip[INET6_ADDRSTRLEN] = "?";

    if (a->sa.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a->in6.sin6_addr, ip, sizeof(ip));
        snprintf(out, HTH_ADDR_LABEL, "[%s]:%u", ip, ntohs(a->in6.sin6_port));
    } else {
        inet_ntop(AF_INET, &a->in.sin_addr, ip, sizeof(ip));
        snprintf(out, HTH_ADDR_LABEL, "%s:%u", ip, ntohs(a->in.sin_port));
    }
}

int hth_addr_is_wildcard(const union hth_addr *a)
{
    if (a->sa.sa_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr) ||
               IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr);
    return a->in.sin_addr.s_addr == htonl(INADDR_ANY);
}

static int addr_parse(const char *text, uint16_t port, union hth_addr *out)
{
    struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
        .ai_socktype = SOCK_STREAM };
    struct addrinfo *found;
    char service[8];

    snprintf(service, sizeof(service), "%u", port);
    if (getaddrinfo(text, service, &hints, &found))
        return 0;
    memset(out, 0, sizeof(*out));
    memcpy(out, found->ai_addr,
            found->ai_addrlen < sizeof(*out) ? found->ai_addrlen : sizeof(*out));
    freeaddrinfo(found);
    return out->sa.sa_family == AF_INET || out->sa.sa_family == AF_INET6;
}

/* Tries whether the kernel allows a bind() to the address, without the port. 0 or an errno. */
static int addr_bind_errno(const union hth_addr *a)
{
    union hth_addr any_port = *a;
    int fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc;

    if (fd < 0)
        return errno;
    any_port.in.sin_port = 0; /* sin6_port lies at the same place */
    rc = bind(fd, &any_port.sa, hth_addr_len(a)) ? errno : 0;
    close(fd);
    return rc;
}
_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
        "ports");

static int addr_same_ip(const struct sockaddr *sa, const union hth_addr *a, int loopback)
{
    union hth_addr b;

    if (!sa || sa->sa_family != a->sa.sa_family)
        return 0;
    memset(&b, 0, sizeof(b));
    memcpy(&b, sa, hth_addr_len(a));
    if (sa->sa_family == AF_INET6)
        return IN6_ARE_ADDR_EQUAL(&b.in6.sin6_addr, &a->in6.sin6_addr);
    if (loopback) /* the loopback interface has all of 127/8 */
        return ntohl(a->in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return b.in.sin_addr.s_addr == a->in.sin_addr.s_addr;
}

static void addr_add_ip(const struct sockaddr *sa, char *text, size_t len)
{
    size_t n = strlen(text);
    union hth_addr a;
    char ip[INET6_ADDRSTRLEN];
    int is_6 = sa && sa->sa_family == AF_INET6;

    if (!sa || (!is_6 && sa->sa_family != AF_INET))
        return;
    memset(&a, 0, sizeof(a));
    memcpy(&a, sa, is_6 ? sizeof(a.in6) : sizeof(a.in));
    if (inet_ntop(sa->sa_family, is_6 ? (const void *)&a.in6.sin6_addr : &a.in.sin_addr, ip,
                sizeof(ip)))
        snprintf(text + n, len - n, "%s%s", n ? ", " : "", ip);
}

int hth_addr_device(
        const char *device, const char *bind, const union hth_addr *a, struct hearth_error *err)
{
    struct ifaddrs *all = NULL;
    char known[256] = "", own[256] = "";
    int exists = 0, has = 0;

    if (getifaddrs(&all))
        return hth_fail(err, HEARTH_EIO, errno, "interfaces cannot be listed: %s", strerror(errno));
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        size_t n = strlen(known);

        if (strcmp(i->ifa_name, device) == 0) {
            exists = 1;
            has |= addr_same_ip(i->ifa_addr, a, (i->ifa_flags & IFF_LOOPBACK) != 0);
            addr_add_ip(i->ifa_addr, own, sizeof(own));
        }
        if (i->ifa_addr && i->ifa_addr->sa_family == a->sa.sa_family)
            snprintf(known + n, sizeof(known) - n, "%s%s", n ? ", " : "", i->ifa_name);
    }
    freeifaddrs(all);
    if (!exists)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "there is no interface %s; with an address of this kind there are: %s", device,
                known[0] ? known : "none");
    if (!has)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "interface %s does not have the address %s, it has %s: set bind (--bind, "
                "HEARTH_BIND) to an address of it, or name another device",
                device, bind, own[0] ? own : "none");
    return HEARTH_OK;
}

int hth_addr_local(const char *bind, uint16_t port, union hth_addr *out, struct hearth_error *err)
{
    int rc;

    if (!bind || !*bind)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the transport needs the address to listen on, for example 192.168.0.7");
    if (!addr_parse(bind, port, out))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "'%s' is no numeric IPv4 or IPv6 address to listen on", bind);
    if (hth_addr_is_wildcard(out))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%s is refused: name the one address to listen on, that of the private network "
                "between the nodes",
                bind);
    rc = addr_bind_errno(out);
    if (rc)
        return hth_fail(err, HEARTH_EINVAL, rc,
                "this machine cannot listen on %s: %s; set bind (--bind, HEARTH_BIND) to an "
                "address that it has",
                bind, strerrordesc_np(rc));
    return HEARTH_OK;
}

_Static_assert(HTH_ADDRS == HTH_BINDS, "one each");

int hth_addrs_local(
        const char *binds, uint16_t port, struct hth_addrs *out, struct hearth_error *err)
{
    char one[HTH_BIND_TEXT];
    int rc;

    out->count = 0;
    if (!binds || !strchr(binds, ',')) {
        out->count = 1;
        return hth_addr_local(binds, port, &out->at[0], err);
    }
    if (hth_address_reach(binds) == HTH_REACH_NONE)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "'%s' is no list of different numeric addresses to listen on: give up to %d, all "
                "IPv4 or all IPv6, and all on or all off loopback",
                binds, HTH_BINDS);
    while (hth_bind_next(&binds, one))
        if ((rc = hth_addr_local(one, port, &out->at[out->count++], err)))
            return rc;
    return HEARTH_OK;
}

void hth_addrs_set_port(struct hth_addrs *a, uint16_t port)
{
    for (uint32_t i = 0; i < a->count; i++)
        a->at[i].in.sin_port = htons(port); /* sin6_port lies at the same place */
}

/* ---- blobs ---- */

static void *ip_of(union hth_addr *a, size_t *out_len)
{
    *out_len = a->sa.sa_family == AF_INET6 ? 16 : 4;
    return a->sa.sa_family == AF_INET6 ? (void *)&a->in6.sin6_addr : (void *)&a->in.sin_addr;
}

uint32_t hth_addrs_pack(const struct hth_addrs *a, unsigned char *out)
{
    uint32_t len = 4;

    out[0] = a->count > 1 ? BLOB_SEVERAL : BLOB_ONE;
    out[1] = a->at[0].sa.sa_family == AF_INET6 ? 6 : 4;
    hth_put16(out + 2, ntohs(a->at[0].in.sin_port));
    for (uint32_t i = 0; i < a->count; i++) {
        union hth_addr one = a->at[i];
        size_t size;
        const void *ip = ip_of(&one, &size);

        memcpy(out + len, ip, size);
        len += (uint32_t)size;
    }
    return len;
}

uint32_t hth_addr_pack(const union hth_addr *a, unsigned char *out)
{
    return hth_addrs_pack(&(struct hth_addrs){ .at = { *a }, .count = 1 }, out);
}

static int blob_is_none(struct hearth_error *err)
{
    return hth_fail(err, HEARTH_EINVAL, 0, "this is no IP address with a port");
}

/* What no encoder writes is refused. `all`: the blob's addresses, in order. */
static int blob_read(
        const unsigned char *blob, uint32_t len, struct hth_addrs *all, struct hearth_error *err)
{
    uint32_t size;

    if (!blob || len < 4 || (blob[0] != BLOB_ONE && blob[0] != BLOB_SEVERAL) ||
            (blob[1] != 4 && blob[1] != 6) || !hth_get16(blob + 2))
        return blob_is_none(err);
    size = blob[1] == 4 ? 4 : 16;
    all->count = (len - 4) / size;
    if ((len - 4) % size || all->count > HTH_ADDRS || all->count < blob[0] ||
            (blob[0] == BLOB_ONE && all->count > 1))
        return blob_is_none(err);
    for (uint32_t i = 0; i < all->count; i++) {
        union hth_addr *a = &all->at[i];
        size_t unused;

        memset(a, 0, sizeof(*a));
        a->sa.sa_family = blob[1] == 4 ? AF_INET : AF_INET6;
        a->in.sin_port = htons(hth_get16(blob + 2));
        memcpy(ip_of(a, &unused), blob + 4 + i * size, size);
        for (uint32_t k = 0; k < i; k++)
            if (!memcmp(blob + 4 + i * size, blob + 4 + k * size, size))
                return blob_is_none(err);
        if (hth_addr_is_wildcard(a))
            return hth_fail(err, HEARTH_EINVAL, 0, "the peer's address is a wildcard");
    }
    return HEARTH_OK;
}

int hth_addrs_unpack(const unsigned char *blob, uint32_t len, const struct hth_addrs *self,
        struct hth_addrs *out, struct hearth_error *err)
{
    struct hth_addrs all;
    int rc = blob_read(blob, len, &all, err);

    if (rc)
        return rc;
    if (all.at[0].sa.sa_family != self->at[0].sa.sa_family)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the peer's address and ours are of different kinds: one is IPv4, one is IPv6");
    for (uint32_t i = 0; i < all.count; i++) {
        struct sockaddr_in6 *in6 = &all.at[i].in6;

        /* the peer's own scope id has no meaning here */
        if (in6->sin6_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
            in6->sin6_scope_id = self->at[i % self->count].in6.sin6_scope_id;
    }
    *out = all;
    return HEARTH_OK;
}

int hth_addr_unpack(const unsigned char *blob, uint32_t len, const union hth_addr *self,
        union hth_addr *out, struct hearth_error *err)
{
    const struct hth_addrs own = { .at = { *self }, .count = 1 };
    struct hth_addrs all;
    int rc = hth_addrs_unpack(blob, len, &own, &all, err);

    if (!rc && all.count > 1)
        rc = blob_is_none(err);
    if (!rc)
        *out = all.at[0];
    return rc;
}
