/* SPDX-License-Identifier: Apache-2.0 */
/* Begins of a step, counted set by set. */
#include "attempts.h"

/* The counter of that set; NULL: no place is left for it. */
static uint32_t *attempts_of(struct hth_attempts *a, uint64_t step, uint32_t bits)
{
    uint32_t i = 0;

    if (step != a->step)
        a->sets = 0;
    a->step = step;
    while (i < a->sets && hth_attempt_set(a->begun[i]) != bits)
        i++;
    if (i == HTH_ATTEMPTS_SETS)
        return NULL;
    if (i == a->sets)
        a->begun[a->sets++] = bits;
    a->last = i;
    return &a->begun[i];
}

uint32_t hth_attempts_next(struct hth_attempts *a, uint64_t step, uint32_t bits)
{
    uint32_t most = bits ? HTH_ATTEMPT_COUNT : HTH_ATTEMPT_SOME - 1, *begun;

    if (hth_attempts_passed(a, step) || !(begun = attempts_of(a, step, bits)) ||
            hth_attempt_count(*begun) == most)
        return 0;
    return ++*begun;
}

uint32_t hth_attempts_peek(const struct hth_attempts *a, uint64_t step, uint32_t bits)
{
    struct hth_attempts then = *a;

    return hth_attempts_next(&then, step, bits);
}

void hth_attempts_heard(struct hth_attempts *a, uint64_t step, uint32_t attempt)
{
    uint32_t *begun;

    if (hth_attempts_passed(a, step) || !hth_attempt_count(attempt) ||
            !(begun = attempts_of(a, step, hth_attempt_set(attempt))))
        return;
    *begun = attempt > *begun ? attempt : *begun;
}
