/* SPDX-License-Identifier: Apache-2.0 */
/* Joining an epoch. */
#ifndef HEARTH_CLIENT_JOIN_H
#define HEARTH_CLIENT_JOIN_H

#include "client/base/member.h"

int hth_join(struct hearth *h, struct hearth_error *err); /* gather, and hand it to the engine */
void hth_join_fill(const struct hearth *h, struct hth_local_join *m);

#endif
