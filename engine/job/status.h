/* SPDX-License-Identifier: Apache-2.0 */
/* STATUS: JSON for people and programs; it may be asked for before ATTACH. */
#ifndef HEARTH_ENGINE_STATUS_H
#define HEARTH_ENGINE_STATUS_H

#include <stdint.h>

struct hth_node;

void status_ask(struct hth_node *n, uint32_t client, uint64_t request);

#endif
