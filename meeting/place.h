/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, the two ends of a connection, and whether ranks may meet there. */
/* For this folder alone. */
#ifndef HEARTH_MEETING_PLACE_H
#define HEARTH_MEETING_PLACE_H

#include "meeting.h"
#include <sys/socket.h>

/* "10.0.0.7 port 4711", of the other end or of our own. */
#define HTH_PLACE_TEXT 80
void hth_place_text(int fd, int own, char out[HTH_PLACE_TEXT]);
void hth_place_host(int fd, int own, char *out, size_t len); /* "10.0.0.7" */
int hth_place_is_here(int fd, int own); /* 1: it is loopback, or inside this process */

int hth_place_is_itself(int fd); /* 1: both ends of the connection are this socket */

/* If the other side's node fails and closes nothing, the connection ends 8 s after its last
 * packet. */
void hth_place_keep_alive(int fd);

/* Without a key ranks meet on this machine only, unless the network is trusted.
 * Errors: HEARTH_EINVAL. */
int hth_place_check(const struct hth_meeting_keys *k, const char *host, int fd, int own,
        struct hearth_error *err);

/* 0: an address of a family that is not IP. */
socklen_t hth_place_socket(
        const struct hth_meeting_address *a, uint32_t port, struct sockaddr_storage *out);

/* Adds "10.0.0.7: Connection refused" to text[len], after a comma, if it fits. */
void hth_place_note(char *text, size_t len, const struct hth_meeting_address *at, const char *what);

#endif
