/* SPDX-License-Identifier: Apache-2.0 */
/* Packets with at most one descriptor, and what the descriptor of a request contains. */
#ifndef ENGINE_PACKET_H
#define ENGINE_PACKET_H

#include <hearth/internal/core/fail.h>
#include <stddef.h>

enum hth_packet {
    HTH_PACKET_GOT = 1,
    HTH_PACKET_NONE = 0,
    HTH_PACKET_END = -1,
    HTH_PACKET_BAD = -2
};

/* One packet of HTH_LOCAL_MAX at most into bytes; *out_fd: its descriptor (the caller's) or -1. */
enum hth_packet hth_packet_receive(int sock, void *bytes, size_t *out_len, int *out_fd);

/* 0; or an errno: EAGAIN when the other side does not read. fd -1: none; borrowed. */
int hth_packet_put(int sock, const void *bytes, size_t len, int fd);

/* The whole content of a file in memory (a memfd): a copy, so that its sender can neither change
 * it while it is read nor take its pages away. Empty: NULL and 0. The caller frees.
 * Errors: HEARTH_EPROTO (not in memory, too long, shrinking), HEARTH_ENOMEM. */
int hth_attach_read(int fd, void **out, size_t *out_len, struct hearth_error *err);

/* A sealed memfd with bytes[len]. Returns it, or -1 and errno. */
int hth_attach_make(const void *bytes, size_t len);

#endif
