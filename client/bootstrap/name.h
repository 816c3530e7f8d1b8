/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of the meeting place. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_NAME_H
#define HEARTH_CLIENT_NAME_H

#include "tcp.h"
#include <netdb.h>

/* The addresses of t->host. If it has none, the resolver is asked again until `until`: a pod's
 * record may appear after the pod. The resolver's own timeouts come on top. The caller frees the
 * result: freeaddrinfo(). Errors: HEARTH_EINVAL. */
int hth_name_ask(
        const struct hth_tcp *t, uint64_t until, struct addrinfo **out, struct hearth_error *err);

/* Adds "10.0.0.7: Connection refused" to text[len], after a comma, if it fits. */
void hth_name_note(char *text, size_t len, const struct addrinfo *at, const char *what);

#endif
