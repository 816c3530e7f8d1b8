/* SPDX-License-Identifier: Apache-2.0 */
/* The record `.hearth/life` (core/format/life.h): one more engine has started on this store. */
#ifndef HEARTH_ENGINE_LIFE_H
#define HEARTH_ENGINE_LIFE_H

#include <hearth/error.h>

struct hth_node;

/* Sets ctx.life, on record before this engine says anything; where there is no room for that it
 * goes on, since only how soon it is found after a loss hangs on it. Errors:
 * HEARTH_EUNSUPPORTED. */
int life_begin(struct hth_node *n, struct hearth_error *err);

#endif
