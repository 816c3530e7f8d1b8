/* SPDX-License-Identifier: Apache-2.0 */
/* EVENTs of saves that are not decided yet. */
#ifndef HEARTH_ENGINE_PROGRESS_H
#define HEARTH_ENGINE_PROGRESS_H

#include <stdint.h>

struct hth_node;

void progress_tick(struct hth_node *n, uint64_t now_ms);
uint64_t progress_due_ms(const struct hth_node *n);

#endif
