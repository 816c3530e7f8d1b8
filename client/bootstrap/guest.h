/* SPDX-License-Identifier: Apache-2.0 */
/* Another rank's side of a gather. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_GUEST_H
#define HEARTH_CLIENT_GUEST_H

#include "tcp.h"

int hth_come(struct hth_tcp *t, const void *mine, size_t len, void *all, struct hearth_error *err);

#endif
