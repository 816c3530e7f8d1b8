/* SPDX-License-Identifier: Apache-2.0 */
/* Other programs change a machine's memory under a job that runs there. */
#include "cluster.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Full to the last page while no rank runs, and its engine killed as well: all that a restart
 * writes has its memory, and all that the saves after it write. */
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
    TRY(world_save(w, 3));
    TRY(world_save(w, 4));
    tmpfs_unfill(w, victim);
    TRY(world_restart(w, w->protected));
    return world_save(w, w->newest + 1);
}

/* ---- slots
 * ------------------------------------------------------------------------------------ */

static int spoil(struct world *w, uint32_t k, const char *folder, const char *how)
{
    char dir[300], path[600];
    struct dirent *e;
    int n = 0;
    DIR *d;

    node_path(w, k, folder, dir, sizeof(dir));
    d = opendir(dir);
    while (d && (e = readdir(d))) {
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.')
            n += !strcmp(how, "cut") ? !truncate(path, 8192) : !unlink(path);
    }
    if (d)
        closedir(d);
    note(w, "%d files of %s on %s: %s", n, folder, w->node[k].name, how);
    return n ? 0 : lost(w, "nothing in %s", dir);
}

/* All that is free on one machine: the next save is slower, and that is all. */
static int slots_spoiled(struct world *w, const char *arg)
{
    (void)arg;
    TRY(world_begin(w, 3, 2, 2));
    for (int i = 0; i < 2; i++) {
        TRY(spoil(w, 1, ".hearth/pool", i ? "cut" : "removed"));
        TRY(world_save(w, w->newest + 1));
        if (!node_log_has(w, 1, " slot-broken "))
            return lost(w, "the engine has not noticed");
    }
    TRY(world_restart(w, w->protected));
    return world_save(w, w->newest + 1);
}

/* All that one machine has of the newest step. Its engine lives; the bytes come from its peers. */
static int sealed_spoiled(struct world *w, const char *arg)
{
    (void)arg;
    TRY(world_begin(w, 3, 2, 2));
    TRY(spoil(w, 1, "step-2_ckpt", "cut"));
    TRY(world_restart(w, 2));
    if (!w->pulled)
        return lost(w, "nothing was pulled");
    TRY(world_protected(w));
    TRY(spoil(w, 1, "step-2_ckpt", "removed")); /* and found by the next begin */
    TRY(world_save(w, 3));
    return world_restart(w, 3);
}

/* ---- the directory
 * ---------------------------------------------------------------------------- */

static int gone(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

static int ends(struct world *w, uint32_t k, pid_t engine, unsigned ms)
{
    for (uint64_t until = now_ms() + ms; now_ms() < until; nap_ms(10))
        if (node_engine(w, k) != engine)
            return 0;
    return lost(w, "the engine of a directory that was removed lives on");
}

/* `rm -rf` of it: its engine logs that and ends, its ranks get the reason, and the next start finds
 * a new one. A removal takes its time: a slot may be missed before the directory is gone. */
static int directory_removed(struct world *w, const char *arg)
{
    char path[300];
    int tries = 0;
    pid_t engine;

    (void)arg;
    w->loses_engines = 1;
    w->save_ms = 5000;
    TRY(world_begin(w, 3, 1, 2));
    engine = node_engine(w, 1);
    TRY(node_engine_signal(w, 2, SIGSTOP));
    TRY(world_save_begin(w, 3));
    TRY(rank_answer(w, 1, 10000));
    TRY(rank_post(w, 1, "wait 3 40 30000")); /* a rank waits for that engine */
    node_path(w, 1, "", path, sizeof(path));
    while (nftw(path, gone, 16, FTW_DEPTH | FTW_PHYS)) /* its engine makes files meanwhile */
        if (++tries > 20)
            return lost(w, "%s stays", path);
    TRY(rank_refusal(w, 1, 10000, "was removed "));
    TRY(ends(w, 1, engine, 5000));
    TRY(rank_post(w, 1, "save 4 4"));
    TRY(rank_refusal(w, 1, 15000, "the job's directory was removed"));
    TRY(node_engine_signal(w, 2, SIGCONT));
    TRY(world_restart(w, STEP_ANY));
    return world_save(w, w->newest + 1);
}

const struct scenario scenarios_store[] = { { "full-at-restart-0", full_at_restart, "0" },
    { "full-at-restart-1", full_at_restart, "1" }, { "slots-spoiled", slots_spoiled, NULL },
    { "sealed-spoiled", sealed_spoiled, NULL }, { "directory-removed", directory_removed, NULL },
    { 0 } };
