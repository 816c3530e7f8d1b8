/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table whose slots are used again with a new generation each time. The number is
 * generation << 32 | slot + 1; free slots form a chain.
 */
#include "handles.h"

#include <stdlib.h>

struct hth_handle_slot {
    void *thing;
    uint32_t generation;
    uint32_t next; /* free slot + 1 */
};

void hth_handles_init(struct hth_handles *h, uint32_t max)
{
    *h = (struct hth_handles){ .max = max };
}

void hth_handles_fini(struct hth_handles *h)
{
    free(h->slot);
    *h = (struct hth_handles){ 0 };
}

static int grow(struct hth_handles *h)
{
    uint32_t cap = h->cap ? 2 * h->cap : 16;
    struct hth_handle_slot *slot;

    if (cap > h->max)
        cap = h->max;
    if (cap == h->cap)
        return -1;
    slot = realloc(h->slot, cap * sizeof(*slot));
    if (!slot)
        return -1;
    for (uint32_t i = h->cap; i < cap; i++)
        slot[i] = (struct hth_handle_slot){ .generation = 1, .next = i + 1 < cap ? i + 2 : 0 };
    h->free = h->cap + 1;
    h->slot = slot;
    h->cap = cap;
    return 0;
}

uint64_t hth_handles_add(struct hth_handles *h, void *thing)
{
    struct hth_handle_slot *s;
    uint32_t i;

    if (!h->free && grow(h) < 0)
        return 0;
    i = h->free - 1;
    s = &h->slot[i];
    h->free = s->next;
    s->thing = thing;
    h->count++;
    return (uint64_t)s->generation << 32 | (i + 1);
}

static struct hth_handle_slot *find(const struct hth_handles *h, uint64_t handle)
{
    uint32_t i = (uint32_t)handle - 1; /* 0 becomes larger than any cap */

    if (i >= h->cap || !h->slot[i].thing || h->slot[i].generation != handle >> 32)
        return NULL;
    return &h->slot[i];
}

void *hth_handles_get(const struct hth_handles *h, uint64_t handle)
{
    struct hth_handle_slot *s = find(h, handle);

    return s ? s->thing : NULL;
}

void hth_handles_remove(struct hth_handles *h, uint64_t handle)
{
    struct hth_handle_slot *s = find(h, handle);

    if (!s)
        return;
    s->thing = NULL;
    if (++s->generation == 0)
        s->generation = 1;
    s->next = h->free;
    h->free = (uint32_t)handle;
    h->count--;
}

void *hth_handles_at(const struct hth_handles *h, uint32_t i)
{
    return h->slot[i].thing;
}
