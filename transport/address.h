/* SPDX-License-Identifier: Apache-2.0 */
/* Numeric IPv4 and IPv6 addresses: which one may be listened on, and how it travels to peers. */
#ifndef HEARTH_TRANSPORT_ADDRESS_H
#define HEARTH_TRANSPORT_ADDRESS_H

#include <hearth/error.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

union hth_addr {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

#define HTH_ADDR_LABEL 64u /* "[ipv6]:port" */

socklen_t hth_addr_len(const union hth_addr *a);
/* "127.0.0.1:4711" or "[::1]:4711" */
void hth_addr_text(const union hth_addr *a, char out[HTH_ADDR_LABEL]);
int hth_addr_is_wildcard(const union hth_addr *a);
/* An address of this machine to listen on. Errors: HEARTH_EINVAL, with the reason. */
int hth_addr_local(const char *bind, uint16_t port, union hth_addr *out, struct hearth_error *err);
/* 0: that interface has the address. Errors: HEARTH_EINVAL, which names the interfaces that there
 * are, or the addresses of that one; HEARTH_EIO. */
int hth_addr_device(
        const char *device, const char *bind, const union hth_addr *a, struct hearth_error *err);

/* Where a node listens: all of one family, on one port. */
#define HTH_ADDRS 4u
struct hth_addrs {
    union hth_addr at[HTH_ADDRS];
    uint32_t count;
};

/* The list of the option `bind`. Errors: as hth_addr_local(); HEARTH_EINVAL: it is none. */
int hth_addrs_local(
        const char *binds, uint16_t port, struct hth_addrs *out, struct hearth_error *err);
void hth_addrs_set_port(struct hth_addrs *a, uint16_t port);

/* {u8 1, u8 family 4|6, u16 port, address[4|16]}, little-endian but for the address: 8 or 20
 * bytes. */
uint32_t hth_addr_pack(const union hth_addr *a, unsigned char *out);
/* One address as above. Several: {u8 2, u8 family, u16 port, 2 to HTH_ADDRS addresses}. */
uint32_t hth_addrs_pack(const struct hth_addrs *a, unsigned char *out);
/* self: the address on which this node listens. A peer's must be of the same kind. Errors:
 * HEARTH_EINVAL. */
int hth_addr_unpack(const unsigned char *blob, uint32_t len, const union hth_addr *self,
        union hth_addr *out, struct hearth_error *err);
int hth_addrs_unpack(const unsigned char *blob, uint32_t len, const struct hth_addrs *self,
        struct hth_addrs *out, struct hearth_error *err);

#endif
