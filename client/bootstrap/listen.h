/* SPDX-License-Identifier: Apache-2.0 */
/* Where rank 0 listens. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_LISTEN_H
#define HEARTH_CLIENT_LISTEN_H

#include "tcp.h"

/* At all addresses of t->host that are of this machine. Errors: HEARTH_EINVAL. */
int hth_listen(struct hth_tcp *t, struct hearth_error *err);
/* Once a key or the caller allows it: this machine's other addresses too, where t->host is its host
 * name and the resolver has loopback addresses alone for it. */
void hth_listen_wider(struct hth_tcp *t);
void hth_listen_end(struct hth_tcp *t);

/* " (rank 0 listens at ...)", or nothing where that is what t->host says. */
void hth_listen_text(const struct hth_tcp *t, char *out, size_t len);

#endif
