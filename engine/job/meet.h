/* SPDX-License-Identifier: Apache-2.0 */
/* BRING, MEET: the ranks' table goes from a rank of this node, or another engine, to its ranks. */
#ifndef HEARTH_ENGINE_MEET_H
#define HEARTH_ENGINE_MEET_H

#include "core/base/buf.h"
#include "core/base/env.h"
#include "core/local/local.h"

struct client;
struct hth_node;

void meet_bring(struct hth_node *n, struct client *c, const struct hth_local_meet *m,
        struct hth_content *content);
void meet_ask(struct hth_node *n, struct client *c, const struct hth_local_meet *m);
int meet_has(const struct hth_node *n, uint32_t round); /* 1: its table is here */
/* The table of this gather, which is taken over; to all ranks that wait for it. */
void meet_take(struct hth_node *n, uint32_t round, struct hth_buf *table);
/* It will not come as the ranks that wait for it expect. */
void meet_refuse(struct hth_node *n, uint32_t round, const struct hearth_error *err);
void meet_tick(struct hth_node *n, uint64_t now_ms);
uint64_t meet_due_ms(const struct hth_node *n);
void meet_gone(struct hth_node *n, uint32_t client);
void meet_close(struct hth_node *n);

#endif
