/* SPDX-License-Identifier: Apache-2.0 */
/* How much was pulled in this epoch, and from which nodes; what other nodes have of this one. */
/* For this folder alone. */
#ifndef REPLICATION_TALLY_H
#define REPLICATION_TALLY_H

#include <stdint.h>

struct hth_tally_node;

/* All zero: nothing yet. */
struct hth_tally {
    uint64_t total;
    uint64_t since_ms;           /* of its rows, by the engine's clock; 0: no epoch has begun */
    struct hth_tally_node *node; /* [nodes] that gave or took bytes */
    uint32_t nodes;
};

/* Its row, or a new one; NULL: no memory. */
struct hth_tally_node *hth_tally_of(struct hth_tally *tally, uint32_t node);
void hth_tally_add(struct hth_tally *tally, uint32_t node, uint64_t bytes);
void hth_tally_read(const struct hth_tally *tally, uint64_t *out_bytes, uint32_t nodes);
/* A pull from the node begins, and ends, well or not: for the time in which any is under way. */
void hth_tally_begin(struct hth_tally *tally, uint32_t node, uint64_t now_ms);
void hth_tally_end(struct hth_tally *tally, uint32_t node, uint64_t now_ms);
/* in a new epoch the node numbers mean other nodes */
void hth_tally_reset(struct hth_tally *tally, uint64_t now_ms);
void hth_tally_fini(struct hth_tally *tally);

#endif
