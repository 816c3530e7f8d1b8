/* SPDX-License-Identifier: Apache-2.0 */
/* UPGRADE: another program takes the place of this engine, under the ranks that run. */
#ifndef HEARTH_ENGINE_UPGRADE_H
#define HEARTH_ENGINE_UPGRADE_H

#include "core/local/local.h"

struct hth_node;

void upgrade_ask(struct hth_node *n, uint32_t client, const struct hth_local_head *m);
void upgrade_tick(struct hth_node *n, uint64_t now_ms);
uint64_t upgrade_due_ms(const struct hth_node *n);
void upgrade_gone(struct hth_node *n, uint32_t client); /* an upgrade that waits is given up */
void upgrade_close(struct hth_node *n);                 /* the workers have ended */

#endif
