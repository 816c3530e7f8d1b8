/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of core/local/local.h on their socket, with at most one descriptor each. */
#ifndef HEARTH_CORE_LOCAL_PACKET_H
#define HEARTH_CORE_LOCAL_PACKET_H

#include <stddef.h>

enum hth_packet {
    HTH_PACKET_GOT = 1,
    HTH_PACKET_NONE = 0, /* nothing is there now */
    HTH_PACKET_END = -1,
    HTH_PACKET_BAD = -2 /* its length is wrong, or it has more descriptors than fit */
};

/* Connects to the engine whose socket lies in this directory, through no link. 0; or an errno:
 * ECONNREFUSED: no engine listens; EAGAIN: the engine's queue of connections is full. A blocking
 * socket would wait then, for ever if the engine is stopped. */
int hth_packet_dial(int records, int *out_sock);

/* Receives one packet of HTH_LOCAL_MAX bytes at most, without waiting. *out_fd: its descriptor,
 * which the caller closes; -1: it has none, or this process may open no more files. */
enum hth_packet hth_packet_receive(int sock, void *bytes, size_t *out_len, int *out_fd);

/* 0; or an errno: EAGAIN when the other side does not read. fd -1: none; borrowed. */
int hth_packet_put(int sock, const void *bytes, size_t len, int fd);

#endif
