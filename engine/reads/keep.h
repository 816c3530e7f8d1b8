/* SPDX-License-Identifier: Apache-2.0 */
/* WISH and KEPT: what users ask of the saves that are kept, and which these are. */
#ifndef HEARTH_ENGINE_KEEP_H
#define HEARTH_ENGINE_KEEP_H

#include "core/local/local.h"

struct client;
struct hth_node;

void keep_ask(struct hth_node *n, struct client *c, const struct hth_local_wish *m);
void keep_list(struct hth_node *n, struct client *c, uint64_t request);
void keep_wish_result(struct hth_node *n, uint64_t number, int code, const char *text);
void keep_tick(struct hth_node *n, uint64_t now_ms);
uint64_t keep_due_ms(const struct hth_node *n);
void keep_gone(struct hth_node *n, uint32_t client);
void keep_close(struct hth_node *n);

#endif
