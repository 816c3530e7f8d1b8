/* SPDX-License-Identifier: Apache-2.0 */
/* A job of three nodes in virtual time that finds a foreign container of step 5 when it starts. */
#ifndef HEARTH_TESTS_ENGINE_CONTAINER_H
#define HEARTH_TESTS_ENGINE_CONTAINER_H

#include "check.h"
#include "world_parts.h"

#include "core/foreign/foreign.h"
#include "replication/held/holdings.h"
#include <hearth/metadata.h>
#include <hearth/read.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NODES 3u
#define STEP  5u

static inline void container_file(
        struct world *world, uint32_t at, const char *name, const void *bytes, size_t len)
{
    struct hth_ctx *c = hth_node_ctx(world_node(world, at));
    struct hth_object o = hth_foreign_object(name, len);
    struct hth_held_save *s = hth_holdings_get(c, hth_save_of_foreign(STEP));
    struct hth_held *held;
    struct hth_slot *slot;

    must(c->store->ops->take(c->store, len, &slot, NULL));
    memcpy(slot->base, bytes, len);
    held = hth_held_add(s, &o, HTH_HELD_SEALED, slot);
    cr_assert(ne(ptr, held, NULL));
    held->theirs = 1;
}

/* A file on each node but the first, and `.metadata` on node `at`. hold_point: see world_opts;
 * NULL: nowhere. */
static inline void container_open(struct world *world, uint32_t at, const char *hold_point)
{
    struct world_opts o = { .seed = 1,
        .nodes = NODES,
        .ranks_per_node = 1,
        .copies = 1,
        .keep = 1,
        .run_ms = 60000,
        .data_max = 100,
        .hold_point = hold_point };
    struct hearth_metadata_writer *md;
    char name[32], key[8];
    void *bytes;
    size_t len;

    alarm(60);
    world_open(world, &o);
    world_advance(world, 1);
    must(hearth_metadata_write(NULL, NULL, &md, NULL));
    for (uint32_t i = 1; i < NODES; i++) {
        snprintf(name, sizeof(name), "__%u_0.distcp", i);
        snprintf(key, sizeof(key), "k%u", i);
        must(hearth_metadata_add_bytes(md, key, strlen(key), name, 0, 4, NULL));
        container_file(world, i, name, "data", 4);
    }
    must(hearth_metadata_finish(md, &bytes, &len, NULL));
    container_file(world, at, HTH_METADATA, bytes, len);
    hearth_free(bytes);
}

#endif
