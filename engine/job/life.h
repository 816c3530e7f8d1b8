/* SPDX-License-Identifier: Apache-2.0 */
/* The record `.hearth/life` (core/format/life.h): one more engine has started on this store. */
#ifndef HEARTH_ENGINE_LIFE_H
#define HEARTH_ENGINE_LIFE_H

#include <hearth/error.h>

struct hth_node;

/* Sets ctx.life, on record before this engine sends anything. If there is no room for the record,
 * the engine goes on: the record only affects how soon the coordinator finds it after a loss.
 * Errors: HEARTH_EUNSUPPORTED. */
int life_begin(struct hth_node *n, struct hearth_error *err);

#endif
