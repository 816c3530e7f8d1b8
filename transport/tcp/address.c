/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numeric addresses: which one may be listened on, and how it travels to peers.
 * Blob: u8 1 | u8 family 4, 6 | u16 port | the address in network order: 8 or 20 bytes.
 */
#include "tcp.h"

#include "core/base/network.h"
#include "transport/machine.h"
#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOB_VERSION 1u

_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
        "ports");

socklen_t hth_tcp_addr_len(const union hth_tcp_addr *a)
{
    return a->sa.sa_family == AF_INET6 ? sizeof(a->in6) : sizeof(a->in);
}

void hth_tcp_addr_text(const union hth_tcp_addr *a, char out[HTH_TCP_LABEL])
{
    char ip[INET6_ADDRSTRLEN] = "?";

    if (a->sa.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a->in6.sin6_addr, ip, sizeof(ip));
        snprintf(out, HTH_TCP_LABEL, "[%s]:%u", ip, ntohs(a->in6.sin6_port));
    } else {
        inet_ntop(AF_INET, &a->in.sin_addr, ip, sizeof(ip));
        snprintf(out, HTH_TCP_LABEL, "%s:%u", ip, ntohs(a->in.sin_port));
    }
}

/* The interface that was named must have the address. All of 127/8 is the loopback interface's. */
static int address_device(const char *device, const char *bind, struct hearth_error *err)
{
    struct hth_machine *m = calloc(1, sizeof(*m));
    const struct hth_interface *named, *own;
    int rc = HEARTH_OK;

    if (!m)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to list interfaces");
    hth_machine_look("", m);
    named = hth_machine_interface(m, device);
    own = hth_machine_interface_of(m, bind);
    if (!named)
        rc = hth_fail(err, HEARTH_EINVAL, 0, "there is no interface %s", device);
    else if (named != own && !(named->is_loopback && hth_address_reach(bind) == HTH_REACH_LOOPBACK))
        rc = hth_fail(
                err, HEARTH_EINVAL, 0, "interface %s does not have the address %s", device, bind);
    free(m);
    return rc;
}

static int address_parse(const char *text, uint16_t port, union hth_tcp_addr *out)
{
    *out = (union hth_tcp_addr){ .in = { .sin_family = AF_INET } };
    out->in.sin_port = htons(port);
    if (inet_pton(AF_INET, text, &out->in.sin_addr) == 1)
        return 1;
    *out = (union hth_tcp_addr){ .in6 = { .sin6_family = AF_INET6 } };
    out->in6.sin6_port = htons(port);
    return inet_pton(AF_INET6, text, &out->in6.sin6_addr) == 1;
}

int hth_tcp_addr_local(
        const struct hth_transport_opts *opts, union hth_tcp_addr *out, struct hearth_error *err)
{
    if (!opts->bind || !*opts->bind)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the transport needs the address to listen on, for example 192.168.0.7");
    if (!address_parse(opts->bind, opts->port, out))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "'%s' is no numeric IPv4 or IPv6 address to listen on", opts->bind);
    if (hth_address_reach(opts->bind) == HTH_REACH_WILDCARD)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%s is refused: name the one address to listen on, that of the private network "
                "between the nodes",
                opts->bind);
    return opts->device ? address_device(opts->device, opts->bind, err) : HEARTH_OK;
}

uint32_t hth_tcp_addr_pack(const union hth_tcp_addr *a, unsigned char *out)
{
    out[0] = BLOB_VERSION;
    hth_put16(out + 2, ntohs(a->in.sin_port));
    if (a->sa.sa_family == AF_INET6) {
        out[1] = 6;
        memcpy(out + 4, &a->in6.sin6_addr, 16);
        return 20;
    }
    out[1] = 4;
    memcpy(out + 4, &a->in.sin_addr, 4);
    return 8;
}

static int address_is_wildcard(const union hth_tcp_addr *a)
{
    if (a->sa.sa_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr) ||
               IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr);
    return a->in.sin_addr.s_addr == htonl(INADDR_ANY);
}

int hth_tcp_addr_unpack(const unsigned char *blob, uint32_t len, const union hth_tcp_addr *self,
        union hth_tcp_addr *out, struct hearth_error *err)
{
    union hth_tcp_addr a = { 0 };

    if (!blob || len < 4 || blob[0] != BLOB_VERSION || !hth_get16(blob + 2))
        return hth_fail(err, HEARTH_EINVAL, 0, "this is no address of a tcp transport");
    if (blob[1] == 4 && len == 8) {
        a.in.sin_family = AF_INET;
        memcpy(&a.in.sin_addr, blob + 4, 4);
    } else if (blob[1] == 6 && len == 20) {
        a.in6.sin6_family = AF_INET6;
        memcpy(&a.in6.sin6_addr, blob + 4, 16);
    } else {
        return hth_fail(err, HEARTH_EINVAL, 0, "this is no address of a tcp transport");
    }
    a.in.sin_port = htons(hth_get16(blob + 2));
    if (address_is_wildcard(&a))
        return hth_fail(err, HEARTH_EINVAL, 0, "the address of a tcp transport is a wildcard");
    if (a.sa.sa_family != self->sa.sa_family)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the peer's address and ours are of different kinds: one is IPv4, one is IPv6");
    if (a.sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a.in6.sin6_addr))
        a.in6.sin6_scope_id =
                self->in6.sin6_scope_id; /* the peer's own scope id has no meaning here */
    *out = a;
    return HEARTH_OK;
}
