/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's side of a gather. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_HOST_H
#define HEARTH_CLIENT_HOST_H

#include "tcp.h"

int hth_host(struct hth_tcp *t, const void *mine, size_t len, void *all, struct hearth_error *err);

#endif
