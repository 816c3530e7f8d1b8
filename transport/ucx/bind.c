/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses: the one we listen on, the interface that has it, and the blob that others dial:
 *
 *     0 u8 family, 4 or 6    1 u8 zero    2 u16 port    4 address [4 or 16]
 */
#include "ucx.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

static const void *sockaddr_address(const struct sockaddr *sa, size_t *out_len)
{
    if (sa->sa_family == AF_INET) {
        *out_len = 4;
        return &((const struct sockaddr_in *)(const void *)sa)->sin_addr;
    }
    *out_len = 16;
    return &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
}

socklen_t hth_ucx_sockaddr_len(const struct sockaddr_storage *ss)
{
    return ss->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static void sockaddr_fill(
        struct sockaddr_storage *ss, int family, const void *address, uint16_t port)
{
    memset(ss, 0, sizeof(*ss));
    ss->ss_family = (sa_family_t)family;
    if (family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)(void *)ss;
        memcpy(&in->sin_addr, address, 4);
        in->sin_port = htons(port);
    } else {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)ss;
        memcpy(&in6->sin6_addr, address, 16);
        in6->sin6_port = htons(port);
    }
}

uint32_t hth_ucx_blob_encode(const struct sockaddr_storage *ss, unsigned char *out)
{
    const struct sockaddr *sa = (const struct sockaddr *)(const void *)ss;
    size_t len;
    const void *address = sockaddr_address(sa, &len);

    /* The port lies at the same place in both families. */
    out[0] = len == 4 ? 4 : 6;
    out[1] = 0;
    hth_put16(out + 2, ntohs(((const struct sockaddr_in *)(const void *)ss)->sin_port));
    memcpy(out + 4, address, len);
    return (uint32_t)(4 + len);
}

int hth_ucx_blob_decode(struct sockaddr_storage *out, const unsigned char *blob, uint32_t len)
{
    if (len < 4 || blob[1] != 0 || hth_get16(blob + 2) == 0)
        return -1;
    if (blob[0] == 4 && len == 8)
        sockaddr_fill(out, AF_INET, blob + 4, hth_get16(blob + 2));
    else if (blob[0] == 6 && len == 20)
        sockaddr_fill(out, AF_INET6, blob + 4, hth_get16(blob + 2));
    else
        return -1;
    return 0;
}

static int sockaddr_is_loopback(const struct sockaddr_storage *ss)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)ss;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)ss;

    if (ss->ss_family == AF_INET)
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

static int bind_has_address(const struct ifaddrs *i, const struct sockaddr_storage *ss)
{
    const void *mine, *theirs;
    size_t len;

    if (!i->ifa_addr || i->ifa_addr->sa_family != ss->ss_family)
        return 0;
    mine = sockaddr_address(i->ifa_addr, &len);
    theirs = sockaddr_address((const struct sockaddr *)(const void *)ss, &len);
    return memcmp(mine, theirs, len) == 0;
}

/* The interface of the address; it must be the first one there of its family. */
static int bind_check(const struct ifaddrs *all, const struct hth_transport_opts *opts,
        const struct sockaddr_storage *ss, char device[IF_NAMESIZE], struct hearth_error *err)
{
    const struct ifaddrs *own = all, *first = all;
    char text[INET6_ADDRSTRLEN];
    size_t len;

    while (own && !bind_has_address(own, ss))
        own = own->ifa_next;
    if (!own)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "no interface of this machine has the address %s: choose one that `ip address` "
                "shows",
                opts->bind);
    if (opts->device && strcmp(own->ifa_name, opts->device) != 0)
        return hth_fail(err, HEARTH_EINVAL, 0, "the address %s is not of interface %s but of %s",
                opts->bind, opts->device, own->ifa_name);
    while (!first->ifa_addr || first->ifa_addr->sa_family != ss->ss_family ||
            strcmp(first->ifa_name, own->ifa_name) != 0)
        first = first->ifa_next; /* ends at `own` */
    inet_ntop(ss->ss_family, sockaddr_address(first->ifa_addr, &len), text, sizeof(text));
    if (!bind_has_address(first, ss))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "UCX uses only the first address of interface %s, which is %s: give that one "
                "instead of %s, or use the transport ofi",
                own->ifa_name, text, opts->bind);
    snprintf(device, IF_NAMESIZE, "%s", own->ifa_name);
    return 0;
}

static int bind_parse(const struct hth_transport_opts *opts, struct sockaddr_storage *out,
        struct hearth_error *err)
{
    static const unsigned char any[16];
    unsigned char address[16];
    int family = AF_INET;

    if (!opts->bind)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "no address to listen on: give one of this machine's, such as 10.0.0.1");
    if (inet_pton(AF_INET, opts->bind, address) != 1) {
        family = AF_INET6;
        if (inet_pton(AF_INET6, opts->bind, address) != 1)
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "\"%s\" is not a numeric address: give one of this machine's, such as "
                    "10.0.0.1 or fd00::1",
                    opts->bind);
    }
    if (memcmp(address, any, family == AF_INET ? 4 : 16) == 0)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "listening on every interface (%s) is refused: give the address of the one that "
                "the job's nodes share",
                opts->bind);
    sockaddr_fill(out, family, address, opts->port);
    return 0;
}

/*
 * UCX carries data on the first address of an interface and dials the listener's address for it, so
 * both must be the same. On the loopback interface, where no other machine can dial, this function
 * takes 127.0.0.1 for each of its addresses; elsewhere the user has to set the first address.
 */
int hth_ucx_bind(const struct hth_transport_opts *opts, struct sockaddr_storage *out,
        char device[IF_NAMESIZE], struct hearth_error *err)
{
    static const unsigned char loopback[4] = { 127, 0, 0, 1 };
    struct ifaddrs *all;
    int rc = bind_parse(opts, out, err);

    if (rc)
        return rc;
    if (opts->device && (strlen(opts->device) >= IF_NAMESIZE || !if_nametoindex(opts->device)))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "there is no interface \"%s\": choose one that `ip link` shows", opts->device);
    if (sockaddr_is_loopback(out))
        sockaddr_fill(out, AF_INET, loopback, opts->port);
    if (getifaddrs(&all) < 0)
        return hth_fail(err, HEARTH_EIO, 0, "the list of network interfaces cannot be read");
    rc = bind_check(all, opts, out, device, err);
    freeifaddrs(all);
    return rc;
}
