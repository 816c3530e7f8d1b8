/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table from a number to a pointer. */
#ifndef HEARTH_TRANSPORT_MAP_H
#define HEARTH_TRANSPORT_MAP_H

#include <stddef.h>
#include <stdint.h>

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
