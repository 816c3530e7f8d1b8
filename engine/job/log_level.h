/* SPDX-License-Identifier: Apache-2.0 */
/* LOG_LEVEL: which lines the engine's log keeps, and what the log reports of itself. */
#ifndef HEARTH_ENGINE_LOG_LEVEL_H
#define HEARTH_ENGINE_LOG_LEVEL_H

#include "engine/state/node.h"

/* Level 0: asks alone. The level holds until the engine ends. */
void log_level_ask(struct hth_node *n, uint32_t client, const struct hth_local_log_level *m);

#endif
