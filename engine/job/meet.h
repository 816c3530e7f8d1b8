/* SPDX-License-Identifier: Apache-2.0 */
/* MEET: a rank of this node comes to a gather of all ranks. */
#ifndef HEARTH_ENGINE_MEET_H
#define HEARTH_ENGINE_MEET_H

#include "core/base/buf.h"
#include "core/local/local.h"

struct client;
struct hth_node;

void meet_ask(struct hth_node *n, struct client *c, const struct hth_local_meet *m);
void meet_table(struct hth_node *n, uint32_t round, struct hth_buf *table);
void meet_done(struct hth_node *n, uint32_t rank, uint32_t round, int code, const char *text);
void meet_tick(struct hth_node *n); /* answers those that are done */
uint64_t meet_due_ms(const struct hth_node *n);
void meet_gone(struct hth_node *n, uint32_t client);
void meet_fail_all(struct hth_node *n, const struct hearth_error *why); /* this engine ends */
void meet_close(struct hth_node *n);

#endif
