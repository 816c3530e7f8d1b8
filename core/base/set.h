/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash set of numbers, for an owner that has the elements of these numbers in an array: the set
 * keeps a number and 32 bits of a hash, and the owner compares the elements.
 *
 *     slot[]   | number + 1, hash | -- | number + 1, hash | ...     linear probing, at most 3/4 full
 *
 *     for (size_t probe = 0; hth_set_next(set, hash, &probe, &i);)
 *         if (is_equal(&array[i], wanted))
 *             ...
 */
#ifndef HEARTH_CORE_BASE_SET_H
#define HEARTH_CORE_BASE_SET_H

#include <stddef.h>
#include <stdint.h>

struct hth_set_slot {
    uint32_t number; /* plus 1; 0: free */
    uint32_t hash;
};

/* All 0: empty. */
struct hth_set {
    struct hth_set_slot *slot; /* [cap], a power of two, or NULL */
    size_t cap, count;
};

/* Room for `more` numbers. 0, or HEARTH_ENOMEM and the set is as it was. */
int hth_set_room(struct hth_set *set, size_t more);

/* There is room. That it is not in yet is for the owner to see. */
void hth_set_add(struct hth_set *set, uint32_t hash, uint32_t number);

/* Forget all numbers from `from` on, which were all added since there was last made room: others
 * have not moved since, so that they are found as before. */
void hth_set_cut(struct hth_set *set, uint32_t from);

void hth_set_clear(struct hth_set *set); /* its memory stays */
void hth_set_fini(struct hth_set *set);

/* The next number of this hash; *probe: 0 at first. 1, or 0 where there is no more. */
static inline int hth_set_next(
        const struct hth_set *set, uint32_t hash, size_t *probe, uint32_t *out)
{
    while (set->cap) {
        const struct hth_set_slot *at = &set->slot[(hash + (*probe)++) & (set->cap - 1)];

        if (!at->number)
            return 0;
        if (at->hash == hash) {
            *out = at->number - 1;
            return 1;
        }
    }
    return 0;
}

/* It will be asked for this hash soon: large sets are in no cache. */
static inline void hth_set_ahead(const struct hth_set *set, uint32_t hash)
{
    if (set->cap)
        __builtin_prefetch(&set->slot[hash & (set->cap - 1)], 1);
}

#endif
