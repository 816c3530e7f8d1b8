/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for things: slot | generation, so that a number whose thing is gone finds nothing. */
/* For this folder alone. */
#ifndef HEARTH_UCX_HANDLES_H
#define HEARTH_UCX_HANDLES_H

#include <stdint.h>

struct hth_handles {
    struct hth_handle_slot *slot; /* [cap] */
    uint32_t cap;
    uint32_t max;   /* never more things than this */
    uint32_t count; /* things now */
    uint32_t free;  /* first free slot + 1; 0: none */
};

void hth_handles_init(struct hth_handles *h, uint32_t max);
void hth_handles_fini(struct hth_handles *h);

/* A number for the thing; 0: `max` are there, or no memory. */
uint64_t hth_handles_add(struct hth_handles *h, void *thing);

/* The thing; NULL: gone, or never was. */
void *hth_handles_get(const struct hth_handles *h, uint64_t handle);
void hth_handles_remove(struct hth_handles *h, uint64_t handle);

/* The thing in slot i < cap, or NULL: to look at all of them. */
void *hth_handles_at(const struct hth_handles *h, uint32_t i);

#endif
