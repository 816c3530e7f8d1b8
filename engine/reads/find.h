/* SPDX-License-Identifier: Apache-2.0 */
/* FIND: which save may be read, now or when it is decided. */
#ifndef HEARTH_ENGINE_FIND_H
#define HEARTH_ENGINE_FIND_H

#include "core/local/local.h"

struct client;
struct hth_node;

void find_ask(struct hth_node *n, struct client *c, const struct hth_local_find *m);
void find_tick(struct hth_node *n, uint64_t now_ms);
uint64_t find_due_ms(const struct hth_node *n);
void find_gone(struct hth_node *n, uint32_t client);
void find_close(struct hth_node *n);

#endif
