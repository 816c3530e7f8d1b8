/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two orders of things to come, first due first and, of one time, first pushed first:
 * a pairing heap that needs no memory of its own, and a table from a number to a pointer.
 */
#ifndef TRANSPORT_QUEUE_H
#define TRANSPORT_QUEUE_H

#include <stddef.h>
#include <stdint.h>

/* Embedded in what waits; in one heap at a time. */
struct hth_due {
    uint64_t ms;
    uint64_t seq;
    struct hth_due *child, *next;
};

void hth_due_push(struct hth_due **heap, struct hth_due *due);
struct hth_due *hth_due_pop(struct hth_due **heap); /* NULL: empty */

/* Keys are never 0; NULL is not stored. Zeroed is empty. */
struct hth_map_place {
    uint64_t key;
    void *value;
};
struct hth_map {
    struct hth_map_place *at; /* [cap], cap a power of two */
    size_t cap;
    size_t len;
};

int hth_map_put(struct hth_map *map, uint64_t key, void *value); /* 0 or HEARTH_ENOMEM */
void *hth_map_get(const struct hth_map *map, uint64_t key);      /* NULL: not there */
void *hth_map_take(struct hth_map *map, uint64_t key);           /* and gone */
void hth_map_fini(struct hth_map *map);

#endif
