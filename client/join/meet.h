/* SPDX-License-Identifier: Apache-2.0 */
/* The all-gather of a joining. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_MEET_H
#define HEARTH_CLIENT_MEET_H

#include "client/base/member.h"
#include "core/format/epoch.h"

/* All rows from our own, each in its place and proved. absent: this rank has no engine. */
int hth_meet(struct hearth *h, int absent, unsigned char own[HTH_GATHER], unsigned char *table,
        struct hearth_error *err);

#endif
