/* SPDX-License-Identifier: Apache-2.0 */
/* The two ends of a connection. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_PLACE_H
#define HEARTH_CLIENT_PLACE_H

#include "tcp.h"

/* "10.0.0.7 port 4711", of the other end or of our own. */
#define HTH_PLACE_TEXT 80
void hth_place_text(int fd, int own, char out[HTH_PLACE_TEXT]);
void hth_place_host(int fd, int own, char *out, size_t len); /* "10.0.0.7" */
int hth_place_is_here(int fd, int own);                      /* 1: it is loopback */

/* Without a key ranks meet on this machine only, unless the network is trusted.
 * Errors: HEARTH_EINVAL. */
int hth_place_check(const struct hth_tcp *t, int fd, int own, struct hearth_error *err);

#endif
