/* SPDX-License-Identifier: Apache-2.0 */
/* The job key is changed while the job runs and saves. */
#include "cluster.h"

#include <stdlib.h>
#include <string.h>

#define NOTICED_MS 30000u /* engines look every 2 s, on a machine that is busy */

/* hearth key WHAT FILE; the ids that it prints. */
static int key_command(struct world *w, const char *what, char id[2][9])
{
    char command[800], line[100];
    FILE *out;
    int n = 0;

    snprintf(command, sizeof(command), "'%s/hearth' key %s '%s'", w->bin, what, w->key);
    out = popen(command, "r");
    if (!out)
        return lost(w, "cannot run %s", command);
    id[0][0] = id[1][0] = '\0';
    while (n < 2 && fgets(line, sizeof(line), out))
        snprintf(id[n++], 9, "%.8s", line);
    return pclose(out) || !n ? lost(w, "%s failed", command) : 0;
}

/* Saves without a pause until all engines say this. */
static int save_until(struct world *w, const char *line, uint64_t *step)
{
    uint64_t until = now_ms() + NOTICED_MS;
    uint32_t have;

    do {
        TRY(world_save(w, ++*step));
        have = 0;
        for (uint32_t k = 0; k < w->nodes; k++)
            have += node_log_has(w, k, line) > 0;
    } while (have < w->nodes && now_ms() < until);
    return have < w->nodes ? lost(w, "%u of %u engines say '%s'", have, w->nodes, line) : 0;
}

static int key_step(struct world *w, const char *what, char id[2][9], uint64_t *step)
{
    char line[120];

    TRY(key_command(w, what, id));
    if (id[1][0])
        snprintf(line, sizeof(line), "job key %s is in use from here on, %s is taken too", id[0],
                id[1]);
    else
        snprintf(line, sizeof(line), "job key %s is in use from here on; ", id[0]);
    return save_until(w, line, step);
}

/* A rank that comes with the key of before. */
static int old_key_is_refused(struct world *w, const char *old)
{
    char now[sizeof(w->key)];

    snprintf(now, sizeof(now), "%s", w->key);
    world_stop(w);
    snprintf(w->key, sizeof(w->key), "%.255s", old);
    TRY(rank_start(w, 0, w->seat[0]));
    TRY(rank_refusal(w, 0, w->open_ms + 10000, "with another key"));
    rank_kill(w, 0);
    snprintf(w->key, sizeof(w->key), "%s", now);
    return 0;
}

static int rotation(struct world *w, const char *arg)
{
    char id[2][9], old[300], copy[800];
    uint64_t step = 1;

    (void)arg;
    w->trusted = strcmp(w->transport, "tcp") != 0;
    if (!w->key[0])
        TRY(key_make(w));
    snprintf(old, sizeof(old), "%.250s.old", w->key);
    snprintf(copy, sizeof(copy), "cp -p '%.250s' '%.300s'", w->key, old);
    if (system(copy))
        return lost(w, "no copy of the key");
    TRY(world_begin(w, 4, 1, step));
    TRY(key_step(w, "add", id, &step));
    TRY(key_step(w, "rotate", id, &step));
    TRY(key_step(w, "drop", id, &step));
    for (int i = 0; i < 5; i++)
        TRY(world_save(w, ++step));
    for (uint32_t k = 0; k < w->nodes; k++)
        if (node_log_has(w, k, " peer-down "))
            return lost(w, "the engine of %s gave a peer up", w->node[k].name);
    TRY(old_key_is_refused(w, old));
    TRY(world_restart(w, step));
    TRY(node_kill(w, 2)); /* a machine that has the new key alone */
    TRY(node_up(w, 2));
    TRY(world_restart(w, step));
    return world_save(w, step + 1);
}

const struct scenario scenarios_key[] = { { "key-changed-while-saving", rotation, NULL }, { 0 } };
