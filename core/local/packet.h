/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of core/local/local.h on their socket, with at most one descriptor each. */
#ifndef HEARTH_CORE_LOCAL_PACKET_H
#define HEARTH_CORE_LOCAL_PACKET_H

#include <stddef.h>

enum hth_packet {
    HTH_PACKET_GOT = 1,
    HTH_PACKET_NONE = 0, /* nothing is there now */
    HTH_PACKET_END = -1,
    HTH_PACKET_BAD = -2 /* not as long as it says, or with more descriptors than we take */
};

/* Connect to the engine whose socket lies in this directory, by no link. 0; or an errno:
 * ECONNREFUSED nobody listens, EAGAIN as many wait for it as may: a blocking socket would wait
 * here, for ever if it is stopped. */
int hth_packet_dial(int records, int *out_sock);

/* One packet of HTH_LOCAL_MAX at most into bytes, without waiting; *out_fd: its descriptor (the
 * caller's) or -1: it has none, or this process may open no more files. */
enum hth_packet hth_packet_receive(int sock, void *bytes, size_t *out_len, int *out_fd);

/* 0; or an errno: EAGAIN when the other side does not read. fd -1: none; borrowed. */
int hth_packet_put(int sock, const void *bytes, size_t len, int fd);

#endif
