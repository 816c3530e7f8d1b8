/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many ranks to a machine, started again and again, and with another number of them: all read at
 * once what others have saved, and save on.
 *
 *     3 x 8 ─► 3 x 8 ─► 3 x 6 ─► 3 x 8 ...        each with a save of its own
 */
#include "cluster.h"

#include <stdlib.h>

#define ROWS     4608u /* 18, 24, 32 and 64 divide it */
#define START_MS 60000u

/* The ranks are new; machines that are not there yet come, the memory of others stays as it is. */
static int reshape(struct world *w, uint32_t nodes, uint32_t per_node)
{
    world_stop(w);
    for (uint32_t k = 0; k < nodes; k++)
        if (!w->node[k].up)
            TRY(node_up(w, k));
    w->nodes = nodes;
    w->per_node = per_node;
    w->ranks = nodes * per_node;
    for (uint32_t r = 0; r < w->ranks; r++)
        w->seat[r] = r / per_node;
    w->degraded = nodes <= w->copies;
    note(w, "%u machines of %u ranks", nodes, per_node);
    TRY(world_start(w));
    TRY(world_recover(w, w->newest));
    return world_save(w, w->newest + 1);
}

/* arg "nodes ranks copies times" */
static int shapes(struct world *w, const char *arg)
{
    unsigned nodes = 0, per_node = 0, times = 0;

    sscanf(arg, "%u %u %u %u", &nodes, &per_node, &w->copies, &times);
    w->rows = ROWS;
    w->mib = 1024;
    w->degraded = nodes <= w->copies;
    w->open_ms = w->recover_ms = w->save_ms = START_MS;
    TRY(world_begin(w, nodes, per_node, 1));
    for (unsigned i = 0; i < times; i++) {
        TRY(reshape(w, nodes, per_node));
        TRY(reshape(w, 3, 6));
        TRY(reshape(w, nodes, per_node));
    }
    return 0;
}

const struct scenario scenarios_shape[] = { { "reshape-3x8", shapes, "3 8 1 1" }, { 0 } };

/* On demand. */
const struct scenario scenarios_many[] = { { "reshape-3x8-20", shapes, "3 8 1 20" },
    { "reshape-2x16-20", shapes, "2 16 1 20" }, { "reshape-1x64-20", shapes, "1 64 2 20" }, { 0 } };
