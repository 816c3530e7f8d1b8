/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for items: slot | generation, so that a number whose item is gone finds nothing. */
/* For this folder alone. */
#ifndef HEARTH_UCX_SLOTS_H
#define HEARTH_UCX_SLOTS_H

#include <stdint.h>

struct hth_ucx_slots {
    struct hth_ucx_slot *slot; /* [cap] */
    uint32_t cap;
    uint32_t max;   /* never more items than this */
    uint32_t count; /* items now */
    uint32_t free;  /* first free slot + 1; 0: none */
};

void hth_ucx_slots_init(struct hth_ucx_slots *s, uint32_t max);
void hth_ucx_slots_fini(struct hth_ucx_slots *s);

/* A number for the item; 0: `max` are there, or no memory. */
uint64_t hth_ucx_slots_put(struct hth_ucx_slots *s, void *item);

/* The item; NULL: gone, or never was. */
void *hth_ucx_slots_get(const struct hth_ucx_slots *s, uint64_t id);
void hth_ucx_slots_drop(struct hth_ucx_slots *s, uint64_t id);

/* The item in slot i < cap, or NULL: to look at all of them. */
void *hth_ucx_slots_at(const struct hth_ucx_slots *s, uint32_t i);

#endif
