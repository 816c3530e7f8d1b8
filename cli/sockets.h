/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP connections of this network namespace, as the kernel describes them. */
/* For this folder alone. */
#ifndef CLI_SOCKETS_H
#define CLI_SOCKETS_H

#include "transport/address.h"
#include <stddef.h>

struct socket_row {
    union hth_addr here, there;
    uint32_t mss, path_mtu; /* bytes of data, and of a packet, that the other side takes */
    uint32_t headers;       /* bytes of a packet that are no data */
    char congestion[16];
};

/* Those that are established; malloc'ed. Any user may ask. 0, or an errno: the kernel or a sandbox
 * does not answer. */
int sockets_list(struct socket_row **out, size_t *out_count);
/* 1: the same address, whatever the port. */
int sockets_same_ip(const union hth_addr *a, const union hth_addr *b);

#endif
