/* SPDX-License-Identifier: Apache-2.0 */
/* Finding this node's engine. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_CONNECT_H
#define HEARTH_CLIENT_CONNECT_H

#include "client/base/member.h"

/* One connected socket to the node's engine, started if need be. */
int hth_connect(struct hearth *h, uint64_t until, int *out_fd, struct hearth_error *err);

#endif
