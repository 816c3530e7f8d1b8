/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a fixed number is due first: a tree of least times over an array, so that a change costs
 * the logarithm, and only those that are due are asked. */
#include "world_parts.h"

#include <stdlib.h>

struct world_wake {
    uint32_t leaves; /* a power of two */
    uint64_t ms[];   /* [2 * leaves]; ms[1] is the least of all */
};

struct world_wake *wake_open(uint32_t count)
{
    struct world_wake *wake;
    uint32_t leaves = 1;

    while (leaves < count)
        leaves *= 2;
    wake = malloc(sizeof(*wake) + (size_t)2 * leaves * sizeof(wake->ms[0]));
    if (!wake)
        abort();
    wake->leaves = leaves;
    for (uint32_t i = 0; i < 2 * leaves; i++)
        wake->ms[i] = HTH_NEVER;
    return wake;
}

void wake_at(struct world_wake *wake, uint32_t i, uint64_t ms)
{
    for (i += wake->leaves, wake->ms[i] = ms; i > 1; i /= 2) {
        uint64_t a = wake->ms[i & ~1u], b = wake->ms[i | 1u];

        wake->ms[i / 2] = a < b ? a : b;
    }
}

uint64_t wake_first_ms(const struct world_wake *wake)
{
    return wake->ms[1];
}

uint32_t wake_next(const struct world_wake *wake, uint32_t from, uint64_t now_ms)
{
    uint32_t i = from + wake->leaves;

    if (from >= wake->leaves)
        return UINT32_MAX;
    while (wake->ms[i] > now_ms) { /* to the next subtree on the right */
        while (i & 1)
            i /= 2;
        if (i == 0)
            return UINT32_MAX;
        i++;
    }
    while (i < wake->leaves) { /* and down to its first */
        i *= 2;
        i += wake->ms[i] > now_ms;
    }
    return i - wake->leaves;
}

void wake_close(struct world_wake *wake)
{
    free(wake);
}
