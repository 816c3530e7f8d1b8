/* SPDX-License-Identifier: Apache-2.0 */
/* Free slots form a chain. A slot's generation rises with each item in it, and is never 0. */
#include "ids.h"

#include <stdlib.h>

struct hth_id_slot {
    void *item;
    uint32_t generation;
    uint32_t next; /* free slot + 1 */
};

void hth_ids_init(struct hth_ids *s, uint32_t max)
{
    *s = (struct hth_ids){ .max = max };
}

void hth_ids_fini(struct hth_ids *s)
{
    free(s->slot);
    *s = (struct hth_ids){ 0 };
}

static int ids_grow(struct hth_ids *s)
{
    uint32_t cap = s->cap ? 2 * s->cap : 16;
    struct hth_id_slot *slot;

    if (cap > s->max)
        cap = s->max;
    if (cap == s->cap)
        return -1;
    slot = realloc(s->slot, cap * sizeof(*slot));
    if (!slot)
        return -1;
    for (uint32_t i = s->cap; i < cap; i++)
        slot[i] = (struct hth_id_slot){ .generation = 1, .next = i + 1 < cap ? i + 2 : 0 };
    s->free = s->cap + 1;
    s->slot = slot;
    s->cap = cap;
    return 0;
}

uint64_t hth_ids_put(struct hth_ids *s, void *item)
{
    struct hth_id_slot *at;
    uint32_t i;

    if (!s->free && ids_grow(s) < 0)
        return 0;
    i = s->free - 1;
    at = &s->slot[i];
    s->free = at->next;
    at->item = item;
    s->count++;
    return (uint64_t)at->generation << 32 | (i + 1);
}

static struct hth_id_slot *ids_find(const struct hth_ids *s, uint64_t id)
{
    uint32_t i = (uint32_t)id - 1; /* 0 becomes larger than any cap */

    if (i >= s->cap || !s->slot[i].item || s->slot[i].generation != id >> 32)
        return NULL;
    return &s->slot[i];
}

void *hth_ids_get(const struct hth_ids *s, uint64_t id)
{
    struct hth_id_slot *at = ids_find(s, id);

    return at ? at->item : NULL;
}

void hth_ids_drop(struct hth_ids *s, uint64_t id)
{
    struct hth_id_slot *at = ids_find(s, id);

    if (!at)
        return;
    at->item = NULL;
    if (++at->generation == 0)
        at->generation = 1;
    at->next = s->free;
    s->free = (uint32_t)id;
    s->count--;
}

void *hth_ids_at(const struct hth_ids *s, uint32_t i)
{
    return s->slot[i].item;
}
