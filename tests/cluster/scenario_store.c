/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody else does to a machine's memory under a job that runs there. */
#include "cluster.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Full to the last page while no rank runs, and its engine killed as well: all that a restart writes has its
 * memory; and all that a save does, but for its common object. */
static int full_at_restart(struct world *w, const char *arg)
{
    uint32_t victim = (uint32_t)atoi(arg);

    if (!w->namespaces)
        return SKIPPED; /* it needs a file system of its own */
    w->recover_ms = 30000;
    TRY(world_begin(w, 3, 2, 2));
    world_stop(w);
    TRY(tmpfs_fill(w, victim, 0));
    for (int i = 0; i < 3; i++) {
        TRY(world_restart(w, 2));
        world_stop(w);
        if (i == 1)
            TRY(node_engine_signal(w, victim, SIGKILL));
    }
    TRY(world_restart(w, 2));
    TRY(tmpfs_fill(w, victim, 16));
    TRY(world_save(w, 3));
    TRY(world_save(w, 4));
    tmpfs_unfill(w, victim);
    TRY(world_restart(w, w->protected));
    return world_save(w, w->newest + 1);
}

const struct scenario scenarios_store[] = { { "full-at-restart-0", full_at_restart, "0" },
    { "full-at-restart-1", full_at_restart, "1" }, { 0 } };
