/* SPDX-License-Identifier: Apache-2.0 */
/* A job of two nodes that saves small objects, in virtual time. */
#ifndef HEARTH_TESTS_ENGINE_SAVING_H
#define HEARTH_TESTS_ENGINE_SAVING_H

#include "world_parts.h"

#include <unistd.h>

/* Until its first save is PROTECTED. */
static inline void saving_open(struct world *w, uint32_t ranks_per_node, uint32_t keep)
{
    struct world_opts o = { .seed = 1,
        .nodes = 2,
        .ranks_per_node = ranks_per_node,
        .copies = 1,
        .keep = keep,
        .run_ms = 60000,
        .data_max = 100 };

    alarm(60);
    world_open(w, &o);
    while (!w->why[0] && hth_save_none(w->newest.id))
        world_advance(w, w->now_ms + 1);
}

#endif
