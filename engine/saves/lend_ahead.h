/* SPDX-License-Identifier: Apache-2.0 */
/* Slots lent to ranks before they ask. */
#ifndef HEARTH_ENGINE_LEND_AHEAD_H
#define HEARTH_ENGINE_LEND_AHEAD_H

#include "core/local/local.h"

struct client;
struct hth_ranks;
struct hth_node;
struct loan;

void lend_ahead_tick(struct hth_node *n);
/* BEGIN without a loan: the rank has forgotten the slot that it was lent. */
void lend_ahead_withdraw(struct hth_node *n, const struct client *c);
/* BEGIN of a loan that was lent ahead. */
void lend_ahead_begin(struct hth_node *n, struct client *c, struct loan *l,
        const struct hth_local_begin *m, const struct hth_ranks *ranks);

#endif
