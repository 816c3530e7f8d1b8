/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of numbers by hash. */
#include "set.h"
#include <hearth/error.h>

#include <stdlib.h>
#include <string.h>

#define SET_CAP_MIN 64u /* slots */

int hth_set_room(struct hth_set *set, size_t more)
{
    struct hth_set bigger = { .cap = set->cap ? set->cap : SET_CAP_MIN };

    if (more > UINT32_MAX - 1 - set->count)
        return HEARTH_ENOMEM;
    if (set->count + more <= set->cap / 4 * 3)
        return HEARTH_OK;
    while (set->count + more > bigger.cap / 4 * 3)
        bigger.cap *= 2;
    if (!(bigger.slot = calloc(bigger.cap, sizeof(*bigger.slot))))
        return HEARTH_ENOMEM;
    for (size_t i = 0; i < set->cap; i++)
        if (set->slot[i].number)
            hth_set_add(&bigger, set->slot[i].hash, set->slot[i].number - 1);
    free(set->slot);
    *set = bigger;
    return HEARTH_OK;
}

void hth_set_add(struct hth_set *set, uint32_t hash, uint32_t number)
{
    size_t i = hash & (set->cap - 1);

    while (set->slot[i].number)
        i = (i + 1) & (set->cap - 1);
    set->slot[i] = (struct hth_set_slot){ number + 1, hash };
    set->count++;
}

void hth_set_cut(struct hth_set *set, uint32_t from)
{
    for (size_t i = 0; i < set->cap; i++)
        if (set->slot[i].number > from) {
            set->slot[i].number = 0;
            set->count--;
        }
}

void hth_set_clear(struct hth_set *set)
{
    if (set->count)
        memset(set->slot, 0, set->cap * sizeof(*set->slot));
    set->count = 0;
}

void hth_set_fini(struct hth_set *set)
{
    free(set->slot);
    *set = (struct hth_set){ 0 };
}
