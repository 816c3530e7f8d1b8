/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which node receives the ranks' table from where, once it is final. No socket and no clock: host.c
 * reports which nodes wait for an answer, which have gone and which have the table. The functions
 * here decide which node is answered next, and how.
 *
 *     WAITS --answered--> FETCHES --it has the table--> HAS
 *       ^                    |                            4 nodes more receive it there
 *       +-- it has gone, or could not fetch the table
 *
 * In a large job a node fetches from a node that has the table. The host sends the table itself to
 * a node that has failed TRIES times, where no other source is left, and to all nodes once most
 * fetches fail: then engines do not reach each other. In a small job the host sends it to each.
 */
/* For this folder alone, and the simulator. */
#ifndef HEARTH_MEETING_SHARE_H
#define HEARTH_MEETING_SHARE_H

#include <stdint.h>

#define HTH_SHARE_CHILDREN 4u /* nodes that fetch from one, at most */
#define HTH_SHARE_HOST     UINT32_MAX

struct hth_share;

struct hth_handing {
    uint32_t node;
    uint32_t source; /* the node that has it; HTH_SHARE_HOST: the host sends it */
};

/* fetches[nodes]: 1: it has an engine, which can fetch and give. tree: they do. NULL: no memory. */
struct hth_share *hth_share_open(uint32_t nodes, const unsigned char *fetches, int tree);
void hth_share_close(struct hth_share *s);

void hth_share_waits(struct hth_share *s, uint32_t node); /* for its answer */
/* It does not have the table, and does not wait: its connection has ended, or a fetch failed. */
void hth_share_gone(struct hth_share *s, uint32_t node);
void hth_share_has(struct hth_share *s, uint32_t node);

/* 1: this node is to be answered now. Ask until it says 0, after each of the calls above. */
int hth_share_next(struct hth_share *s, struct hth_handing *out);

#endif
