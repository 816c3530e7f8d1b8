/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which threads of the engine's process have given up the files of others (struct hth_confining),
 * and why not where they have not. With transport = auto that is done when tcp is settled:
 * libfabric and UCX open devices, libraries and files by names that no list of ours can have.
 *
 *     auto ──► tcp is all that this node has, or an epoch is joined on it ──► this thread ──► each worker ──► all
 *
 * What is confined stays so: an engine that is to change its fabric then needs another process.
 */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_CONFINED_H
#define HEARTH_ENGINE_CONFINED_H

#include "config.h"
#include "engine/state/node.h"

struct hth_confined {
    const struct hth_config *config; /* borrowed, as are the next two */
    struct hth_pool *pool;
    const struct hth_log *log;
    int is, all;                  /* this thread; all of them */
    int said, late;               /* logged: the result; that it takes long */
    uint64_t since_ms;            /* when workers were asked */
    unsigned others;              /* threads that are neither this one nor workers */
    char text[HTH_CONFINED_TEXT]; /* as it is now */
};

/* After the pool was opened, on the engine's thread, as all calls here. */
void confined_init(struct hth_confined *c, const struct hth_config *config, struct hth_pool *pool,
        const struct hth_log *log);
/* The fabric that is open stays until the engine ends: `transport` is its. At the first call of
 * tcp this thread is confined, and the workers are asked to. */
void confined_settle(struct hth_confined *c, const char *transport);
/* Call it after workers may have answered. Logs the result once. */
void confined_look(struct hth_confined *c);

#endif
