/* SPDX-License-Identifier: Apache-2.0 */
/* BEGIN and SET_STEP: at once, or when there is room. */
#ifndef HEARTH_ENGINE_BEGIN_H
#define HEARTH_ENGINE_BEGIN_H

#include "core/local/local.h"

struct client;
struct hth_node;

void begin_ask(struct hth_node *n, struct client *c, const struct hth_local_begin *m);
/* No caller waits for this request any more: it is refused if it still waits for its turn. */
void begin_forget(struct hth_node *n, struct client *c, uint64_t request);
void begin_set_step(struct hth_node *n, struct client *c, const struct hth_local_set_step *m);
/* answers waiting requests that can begin or whose time is up */
void begin_tick(struct hth_node *n, uint64_t now_ms);
uint64_t begin_due_ms(const struct hth_node *n);
void begin_fail_all(struct hth_node *n, const struct hearth_error *why); /* those that wait */
void begin_gone(struct hth_node *n, uint32_t client); /* forgets the requests of the client */
void begin_close(struct hth_node *n);

#endif
