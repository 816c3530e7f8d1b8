/* SPDX-License-Identifier: Apache-2.0 */
/* Room for one more undecided save, and for its copies. */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_UNDECIDED_H
#define HEARTH_ENGINE_UNDECIDED_H

#include <stdint.h>

struct hearth_error;
struct hth_node;
struct hth_ranks;

/* May `rank` have an object of `bytes`, the first of a save of these ranks (NULL: of all)? more: 1
 * if the rank has no loan for it yet, else 0. Errors: HEARTH_EBUSY, with the store's numbers: there
 * will be room when an older save is decided. */
int undecided_room(struct hth_node *n, uint32_t rank, const struct hth_ranks *ranks, uint64_t bytes,
        uint32_t more, struct hearth_error *err);

#endif
