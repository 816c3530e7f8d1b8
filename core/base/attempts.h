/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts how often a rank has begun a step in its epoch, refused begins included, for each set of
 * ranks by itself. So all ranks of a set agree on the attempt number of a save without a message,
 * even if some of them have saved the step with other sets too. Steps never go down. All zeros: the
 * rank has begun nothing.
 */
#ifndef HEARTH_CORE_BASE_ATTEMPTS_H
#define HEARTH_CORE_BASE_ATTEMPTS_H

#include "id.h"

#define HTH_ATTEMPTS_SETS 8u /* that one rank saves one step with */

struct hth_attempts {
    uint64_t step;
    uint32_t sets;                     /* of this step; 0: nothing was begun yet */
    uint32_t last;                     /* of them, that was begun last */
    uint32_t begun[HTH_ATTEMPTS_SETS]; /* attempts, as in ids: with their set's bits */
};

/* Counts one more begin by the set of these bits and returns its attempt. 0: the step goes down
 * (hth_attempts_passed), the set has no count left, or too many sets have begun the step. */
uint32_t hth_attempts_next(struct hth_attempts *a, uint64_t step, uint32_t bits);
/* Returns what hth_attempts_next() would return, and counts nothing. */
uint32_t hth_attempts_peek(const struct hth_attempts *a, uint64_t step, uint32_t bits);
/* Another source knows of this attempt at the step: the count rises to it at least. A step that
 * goes down, and an attempt whose count is 0, change nothing. */
void hth_attempts_heard(struct hth_attempts *a, uint64_t step, uint32_t attempt);

static inline int hth_attempts_passed(const struct hth_attempts *a, uint64_t step)
{
    return a->sets && step < a->step;
}

/* The attempt of the set that began last; 0: nothing was begun. */
static inline uint32_t hth_attempts_last(const struct hth_attempts *a)
{
    return a->sets ? a->begun[a->last] : 0;
}

#endif
