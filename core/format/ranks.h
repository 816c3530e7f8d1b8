/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks that take part in a save, where these are not all. A set is written as runs, in order:
 *
 *     u32 first, u32 count, u32 step      first, first + step, ..., `count` of them
 *
 * One set has one way of being written: from its lowest rank on, a run takes the next rank whatever
 * the distance is, and goes on as long as that stays the same. So only the last run may have one
 * rank (step 1), and any set of 2 * HTH_RANK_RUNS ranks has a way of being written, and each
 * regular one.
 *
 * The set is part of the save's id, by its code:
 *
 *     attempt  bit 31        1: of some of the ranks
 *              bits 16..30   below 16384: of this rank alone; else 16384 + 14 bits of the digest of the runs
 *              bits 0..15    the begins of this step by this set, counted from 1
 */
#ifndef HEARTH_CORE_FORMAT_RANKS_H
#define HEARTH_CORE_FORMAT_RANKS_H

#include "core/base/bytes.h"
#include "core/base/id.h"

#define HTH_RANK_RUNS      128u
#define HTH_RANK_RUN_BYTES 12u

struct hth_rank_run {
    uint32_t first, count, step;
};

struct hth_ranks {
    uint32_t runs; /* 0: all ranks */
    struct hth_rank_run run[HTH_RANK_RUNS];
};

/* ranks[count]: rising. Errors: HEARTH_EINVAL, which rank is twice or out of order, is none of
 * `world`, or that the set is too irregular; none of all this where it is all of `world`, which
 * gives no runs. */
int hth_ranks_of(struct hth_ranks *out, const uint32_t *ranks, size_t count, uint32_t world,
        struct hearth_error *err);

int hth_ranks_have(const struct hth_ranks *ranks, uint32_t rank); /* with no runs: any */
int hth_ranks_same(const struct hth_ranks *a, const struct hth_ranks *b);
uint32_t hth_ranks_count(const struct hth_ranks *ranks);
/* The bits of an attempt that are not its count; 0: all ranks. */
uint32_t hth_ranks_bits(const struct hth_ranks *ranks);
/* For people, as "0", "0-3", "0-56 by 8, 57"; cut where it is longer. */
void hth_ranks_say(const struct hth_ranks *ranks, char *out, size_t len);

static inline size_t hth_ranks_bytes(const struct hth_ranks *ranks)
{
    return (size_t)ranks->runs * HTH_RANK_RUN_BYTES;
}
void hth_ranks_encode(const struct hth_ranks *ranks, unsigned char *out);
/* All of bytes[len]. Errors: HEARTH_EPROTO where it is not as this would write it. */
int hth_ranks_decode(
        struct hth_ranks *out, const void *bytes, size_t len, struct hearth_error *err);

/* Another one of it; NULL where it is all ranks, or there is no memory. The caller frees it. */
struct hth_ranks *hth_ranks_copy(const struct hth_ranks *ranks);

#endif
