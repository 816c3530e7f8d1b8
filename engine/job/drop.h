/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a job that all ranks have dropped. */
#ifndef HEARTH_ENGINE_DROP_H
#define HEARTH_ENGINE_DROP_H

#include "engine/state/node.h"

struct client;
struct hth_node;

int drop_open(struct hth_node *n, struct hearth_error *err); /* HEARTH_ENOMEM */
void drop_join(struct hth_node *n);   /* a new epoch: no rank has dropped anything */
void drop_resume(struct hth_node *n); /* a drop that an earlier engine began */
void drop_rank(struct hth_node *n, const struct client *c); /* a rank has closed with drop */
void drop_deliver(
        struct hth_node *n, uint32_t origin, uint16_t kind, const unsigned char *bytes, size_t len);
void drop_tick(struct hth_node *n);
uint64_t drop_due_ms(const struct hth_node *n);

int drop_is_done(const struct hth_node *n); /* nothing is held here any more */
int drop_is_over(const struct hth_node *n); /* no message is left to send */
enum hth_leftover drop_leftover(const struct hth_node *n);
void drop_close(struct hth_node *n);

#endif
