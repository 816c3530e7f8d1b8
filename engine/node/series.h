/* SPDX-License-Identifier: Apache-2.0 */
/* METRICS: all series of this engine as JSON; it may be asked for before ATTACH. */
#ifndef HEARTH_ENGINE_SERIES_H
#define HEARTH_ENGINE_SERIES_H

#include <stdint.h>

struct hth_node;

void series_ask(struct hth_node *n, uint32_t client, uint64_t request);

#endif
