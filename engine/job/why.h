/* SPDX-License-Identifier: Apache-2.0 */
/* The last saves and recoveries: their moments noted, logged in a line each, and HISTORY. */
#ifndef HEARTH_ENGINE_WHY_H
#define HEARTH_ENGINE_WHY_H

#include "core/local/local.h"

#include <stdio.h>

struct hth_happened;
struct hth_node;

void why_moment(struct hth_node *n, struct hth_save_id save, const struct hth_happened *happened);
/* A copy that this node has to hold is offered by `from`, and is here. */
void why_pull_begin(struct hth_node *n, struct hth_save_id save, uint64_t object, uint32_t from);
void why_pull_end(struct hth_node *n, struct hth_save_id save, uint64_t object);
/* Saves that have not ended will not: a new epoch begins, or the job was dropped. */
void why_over(struct hth_node *n, const char *why);

void why_recovery_begin(struct hth_node *n); /* a rank asks, or a node's inventory has come */
void why_recovery_report(struct hth_node *n, int vote, uint32_t node, uint32_t count, uint32_t due);
/* n->info has its times, where code is 0. */
void why_recovery_end(struct hth_node *n, int code, const char *text, struct hth_save_id save);

/* HISTORY; HEARTH_EPROTO. */
int why_put(struct hth_node *n, FILE *to, uint32_t what, uint32_t skip, struct hearth_error *err);

#endif
