/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rank receives the ranks' table from where, once it is final. No socket and no clock:
 * host.c says which ranks wait for an answer, which have gone and which have the table; this
 * file says which rank is to be answered next, and how.
 *
 *     house: the ranks of one node
 *
 *       WAITS --a rank of it waits--> FETCHES --that rank has it--> HAS
 *         ^                              |                            all its ranks receive it
 *         +-- that rank has gone, or ----+                            there, and 4 houses more
 *             comes again without the table
 *
 * In a large job a house fetches from a house that has the table. Rank 0 sends the table itself
 * to a house that has failed TRIES times, where no other source is left, and to all houses once
 * most fetches fail: then engines do not reach each other. In a small job rank 0 sends the table
 * to a rank of each house.
 */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_SHARE_H
#define HEARTH_CLIENT_SHARE_H

#include "rendezvous.h"

#define HTH_SHARE_CHILDREN 4u /* houses that fetch from one, at most */

struct hth_share;

struct hth_handing {
    uint32_t rank;
    enum hth_where where;
    uint32_t source; /* AT_OTHER: the lowest rank of the house that has it */
};

/* node[world] as in greetings. NULL: no memory. */
struct hth_share *hth_share_open(const uint64_t *node, uint32_t world);
uint32_t hth_share_houses(const struct hth_share *s);
uint32_t hth_share_mates(const struct hth_share *s, uint32_t rank); /* others in its house */
/* Rank 0 has the table. brought: so does its engine. tree: houses fetch from each other. */
void hth_share_begin(struct hth_share *s, int brought, int tree);
void hth_share_close(struct hth_share *s);

void hth_share_waits(struct hth_share *s, uint32_t rank); /* for its answer */
/* It does not wait any more, and does not have the table: its connection has ended. */
void hth_share_gone(struct hth_share *s, uint32_t rank);
void hth_share_has(struct hth_share *s, uint32_t rank);

/* 1: this rank is to be answered now. Ask until it says 0, after each of the calls above. */
int hth_share_next(struct hth_share *s, struct hth_handing *out);

#endif
