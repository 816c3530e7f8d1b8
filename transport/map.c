/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing, at most half full. Taking an entry out leaves no mark in its place: the entries
 * behind it move up.
 */
#include "map.h"

#include <hearth/error.h>
#include <stdlib.h>

/* Where the key is, or the free place that it would get. */
static size_t map_seek(const struct hth_map *map, uint64_t key)
{
    size_t i = (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & (map->cap - 1);

    while (map->at[i].key && map->at[i].key != key)
        i = (i + 1) & (map->cap - 1);
    return i;
}

static int map_grow(struct hth_map *map)
{
    struct hth_map bigger = { .cap = map->cap ? 2 * map->cap : 16, .len = map->len };

    bigger.at = calloc(bigger.cap, sizeof(*bigger.at));
    if (!bigger.at)
        return HEARTH_ENOMEM;
    for (size_t i = 0; i < map->cap; i++)
        if (map->at[i].key)
            bigger.at[map_seek(&bigger, map->at[i].key)] = map->at[i];
    free(map->at);
    *map = bigger;
    return HEARTH_OK;
}

int hth_map_put(struct hth_map *map, uint64_t key, void *value)
{
    size_t i;

    if (2 * (map->len + 1) > map->cap && map_grow(map))
        return HEARTH_ENOMEM;
    i = map_seek(map, key);
    map->len += !map->at[i].key;
    map->at[i] = (struct hth_map_place){ key, value };
    return HEARTH_OK;
}

void *hth_map_get(const struct hth_map *map, uint64_t key)
{
    return map->cap && key ? map->at[map_seek(map, key)].value : NULL;
}

void *hth_map_take(struct hth_map *map, uint64_t key)
{
    size_t i, hole;
    void *value;

    if (!map->cap || !key)
        return NULL;
    hole = map_seek(map, key);
    value = map->at[hole].value;
    if (!value)
        return NULL;
    map->len--;
    map->at[hole] = (struct hth_map_place){ 0, NULL };
    for (i = (hole + 1) & (map->cap - 1); map->at[i].key; i = (i + 1) & (map->cap - 1)) {
        struct hth_map_place moved = map->at[i];

        map->at[i] = (struct hth_map_place){ 0, NULL };
        map->at[map_seek(map, moved.key)] = moved;
    }
    return value;
}

void hth_map_fini(struct hth_map *map)
{
    free(map->at);
    *map = (struct hth_map){ 0 };
}
