/* SPDX-License-Identifier: Apache-2.0 */
/* The all-gather of a joining. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_MEET_H
#define HEARTH_CLIENT_MEET_H

#include "client/base/member.h"
#include "core/format/epoch.h"

/* The end of a gather that begins now, as its bootstrap has it; of one with a deadline that is not
 * known here, open_ms. */
uint64_t hth_meet_until(const struct hearth *h);

/* All rows from our own, each in its place and proved. absent: this rank has no engine. A bootstrap
 * that is not over TCP keeps its own deadline, and not `until`. */
int hth_meet(struct hearth *h, int absent, uint64_t until, unsigned char own[HTH_GATHER],
        unsigned char *table, struct hearth_error *err);

#endif
