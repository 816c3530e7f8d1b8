/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids of connections, grants and pulls: generation << 32 | slot + 1, so that an id whose item is
 * gone finds nothing, and 0 is none.
 */
#ifndef HEARTH_TRANSPORT_IDS_H
#define HEARTH_TRANSPORT_IDS_H

#include <stdint.h>

struct hth_ids {
    struct hth_id_slot *slot; /* [cap] */
    uint32_t cap;
    uint32_t max;   /* never more items than this */
    uint32_t count; /* items now */
    uint32_t free;  /* first free slot + 1; 0: none */
};

void hth_ids_init(struct hth_ids *s, uint32_t max);
void hth_ids_fini(struct hth_ids *s);

/* An id for the item; 0: `max` are there, or no memory. */
uint64_t hth_ids_put(struct hth_ids *s, void *item);

/* The item; NULL: gone, or never was. */
void *hth_ids_get(const struct hth_ids *s, uint64_t id);
void hth_ids_drop(struct hth_ids *s, uint64_t id);

/* The item in slot i < cap, or NULL: to look at all of them. */
void *hth_ids_at(const struct hth_ids *s, uint32_t i);

#endif
