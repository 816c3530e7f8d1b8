/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of many objects. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_TABLES_H
#define HEARTH_CLIENT_TABLES_H

#include "checkpoint.h"

/* Open as many of sources [from, to) as can be at first try, many at a time. Fails only where
 * another try would wait in vain too. */
int hth_tables(struct hearth_checkpoint *c, uint32_t from, uint32_t to, struct hearth_error *err);

#endif
