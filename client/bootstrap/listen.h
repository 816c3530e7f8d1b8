/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses at which rank 0 listens. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_LISTEN_H
#define HEARTH_CLIENT_LISTEN_H

#include "tcp.h"

/* Listens at all addresses of t->host that this machine has. Errors: HEARTH_EINVAL. */
int hth_listen(struct hth_tcp *t, struct hearth_error *err);
/* Listens at this machine's other addresses too, if t->host is its host name and the resolver has
 * only loopback addresses for it. For when a key, or the caller, allows that. */
void hth_listen_wider(struct hth_tcp *t);
void hth_listen_end(struct hth_tcp *t);

/* " (rank 0 listens at ...)", or nothing if it listens at t->host alone. */
void hth_listen_text(const struct hth_tcp *t, char *out, size_t len);

#endif
