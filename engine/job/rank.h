/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank a connection speaks for: ATTACH, CLOSE. */
#ifndef HEARTH_ENGINE_RANK_H
#define HEARTH_ENGINE_RANK_H

#include "core/local/local.h"

struct client;
struct hth_node;

void rank_attach(struct hth_node *n, struct client *c, const struct hth_local_attach *m);
/* Whether the connection may join as this rank. Errors: HEARTH_EINVAL, HEARTH_ESTATE. */
int rank_may_join(const struct client *c, const struct hth_local_join *m, struct hearth_error *err);
/* The store must not replace slots that ranks of the engine before this one have mapped, until all
 * ranks of this node are attached, or some of them have stayed away for dead_ms: then others may
 * save without them. */
void rank_expect(struct hth_node *n);
void rank_tick(struct hth_node *n, uint64_t now_ms);
uint64_t rank_due_ms(const struct hth_node *n);
void rank_is_here(struct hth_node *n); /* a rank has attached or joined */
void rank_close(struct hth_node *n, struct client *c, const struct hth_local_close *m);

#endif
