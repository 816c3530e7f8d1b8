/* SPDX-License-Identifier: Apache-2.0 */
/* Ids that go stale instead of dangling: a slot's generation rises with each item in it. */
#include "ofi.h"

#include <stdlib.h>

#define NONE  UINT32_MAX
#define FIRST 16u

static int grow(struct hth_ofi_slots *s)
{
    uint32_t cap = s->cap ? s->cap * 2 : FIRST;
    struct hth_ofi_slot *slot;

    if (cap > s->max)
        cap = s->max;
    if (cap <= s->cap)
        return 0;
    slot = realloc(s->slot, cap * sizeof(*slot));
    if (!slot)
        return 0;
    for (uint32_t i = s->cap; i < cap; i++)
        slot[i] = (struct hth_ofi_slot){ .gen = 1, .next = i + 1 < cap ? i + 1 : NONE };
    s->slot = slot;
    s->free = s->cap;
    s->cap = cap;
    return 1;
}

uint64_t hth_ofi_slots_put(struct hth_ofi_slots *s, void *item)
{
    struct hth_ofi_slot *slot;
    uint32_t at;

    if (s->used == s->cap && !grow(s))
        return 0;
    at = s->free;
    slot = &s->slot[at];
    s->free = slot->next;
    s->used++;
    slot->item = item;
    return (uint64_t)slot->gen << 32 | at;
}

static struct hth_ofi_slot *find(const struct hth_ofi_slots *s, uint64_t id)
{
    uint32_t at = (uint32_t)id;

    if (at >= s->cap || s->slot[at].gen != id >> 32 || !s->slot[at].item)
        return NULL;
    return &s->slot[at];
}

void *hth_ofi_slots_get(const struct hth_ofi_slots *s, uint64_t id)
{
    struct hth_ofi_slot *slot = find(s, id);

    return slot ? slot->item : NULL;
}

void hth_ofi_slots_drop(struct hth_ofi_slots *s, uint64_t id)
{
    struct hth_ofi_slot *slot = find(s, id);

    if (!slot)
        return;
    slot->item = NULL;
    if (++slot->gen == 0)
        slot->gen = 1;
    slot->next = s->free;
    s->free = (uint32_t)id;
    s->used--;
}
