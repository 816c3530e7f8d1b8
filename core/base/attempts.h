/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's begins of a step in its epoch, counted for each set of ranks by itself, refused ones
 * too: so all ranks of a set agree on which attempt a save is, without asking anybody, whatever
 * other sets some of them have saved the step with. Steps never go down. All zeros: nothing was
 * begun.
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

/* One more by the set of these bits. 0: there is none, since the step goes down
 * (hth_attempts_passed), the set has no count left, or too many sets have begun the step. */
uint32_t hth_attempts_next(struct hth_attempts *a, uint64_t step, uint32_t bits);
/* What that would be, without beginning it. */
uint32_t hth_attempts_peek(const struct hth_attempts *a, uint64_t step, uint32_t bits);
/* So many are known of elsewhere. A step that goes down, and a count of 0, say nothing. */
void hth_attempts_heard(struct hth_attempts *a, uint64_t step, uint32_t attempt);

static inline int hth_attempts_passed(const struct hth_attempts *a, uint64_t step)
{
    return a->sets && step < a->step;
}

/* What was begun last; 0: nothing. */
static inline uint32_t hth_attempts_last(const struct hth_attempts *a)
{
    return a->sets ? a->begun[a->last] : 0;
}

#endif
