/* SPDX-License-Identifier: Apache-2.0 */
/* EVENTS: the last lines of the engine's log, as JSON, the newest first. */
#ifndef HEARTH_ENGINE_RECENT_H
#define HEARTH_ENGINE_RECENT_H

#include <hearth/error.h>
#include <stdint.h>
#include <stdio.h>

struct hth_node;

int recent_put(
        struct hth_node *n, FILE *to, uint32_t what, uint32_t skip, struct hearth_error *err);

#endif
