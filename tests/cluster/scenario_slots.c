/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slot belongs to the engine that lives, and to one writer: engines that end under their ranks,
 * where the memory has just the room that the job uses, and ranks that are cut off from an engine
 * that lives, and write on.
 *
 *     steady ─► the mount is made as large as what is used ─► an engine ends ─► the next save is PROTECTED,
 *                                                                ▲            and uses as much as before
 *                                                                └──────────────── again
 */
#include "cluster.h"

#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROWS       4608u
#define SLOT_ROUND (UINT64_C(2) << 20)
#define OTHER_KIB  1024u /* logs and records, which grow to a bound of their own */
#define FREED_MS   5000u /* memory is given back by workers */

static uint64_t slot_blocks, other_blocks; /* nftw() has no argument of ours */

static int add_file(const char *path, const struct stat *st, int flag, struct FTW *at)
{
    (void)path, (void)at;
    if (flag == FTW_F && st->st_size && (uint64_t)st->st_size % SLOT_ROUND == 0)
        slot_blocks += (uint64_t)st->st_blocks;
    else
        other_blocks += (uint64_t)st->st_blocks;
    return 0;
}

/* KiB of the slots of machine k, wherever they lie. */
static uint64_t slots_kib(const struct world *w, uint32_t k)
{
    char dir[300];

    node_path(w, k, "", dir, sizeof(dir));
    slot_blocks = other_blocks = 0;
    nftw(dir, add_file, 16, FTW_PHYS);
    return slot_blocks / 2;
}

/* The machine's memory has this size from now on. */
static int resize(struct world *w, uint32_t k, uint64_t kib)
{
    char size[64];
    int status = -1;
    pid_t pid = node_fork(w, k);

    snprintf(size, sizeof(size), "size=%luk", (unsigned long)kib);
    if (pid == 0)
        _exit(mount(NULL, w->node[k].root, NULL, MS_REMOUNT, size) != 0);
    while (pid > 0 && waitpid(pid, &status, 0) < 0)
        continue;
    note(w, "machine %s has %lu KiB", w->node[k].name, (unsigned long)kib);
    return status ? lost(w, "the tmpfs of %s cannot be made %s", w->node[k].name, size) : 0;
}

/* Where no rank tells sizes, nothing is reserved for copies that move; what an engine makes beside
 * may stay, up to the slot that core/store/need.h counts for these. */
static int uses(struct world *w, uint32_t k, uint64_t kib)
{
    uint64_t more_kib = w->untold ? SLOT_ROUND >> 10 : 0;
    uint64_t until = now_ms() + FREED_MS, now;

    while ((now = slots_kib(w, k)) < kib || now > kib + more_kib) {
        if (now_ms() >= until)
            return lost(w, "the slots of machine %u take %lu KiB, and took %lu at first", k,
                    (unsigned long)now, (unsigned long)kib);
        nap_ms(20);
    }
    return 0;
}

/* An engine ends, between two saves or while all ranks have begun one, whose end is as it may
 * be. */
static int death(struct world *w, unsigned i, int sig)
{
    uint32_t k = i % 4 == 3; /* mostly the coordinator's */
    char line[64];
    int rc;

    if (i % 2 == 0)
        return node_engine_signal(w, k, sig);
    TRY(world_save_begin(w, w->newest + 1));
    if (i / 2 % 2) {
        if ((rc = world_answers_any(w, 20000)) < 0)
            return rc;
        TRY(node_engine_signal(w, k, sig));
    } else {
        TRY(node_engine_signal(w, k, sig));
        if ((rc = world_answers_any(w, 40000)) < 0)
            return rc;
    }
    snprintf(line, sizeof(line), "wait %lu %u %u", (unsigned long)w->newest, PROTECTED,
            w->save_ms + 5000);
    for (uint32_t r = 0; r < w->ranks; r++)
        if (!strcmp(w->rank[r].answer, "ok save"))
            TRY(rank_post(w, r, line));
    rc = world_answers_any(w, w->save_ms + 10000);
    return rc < 0 ? rc : 0;
}

static int saves_as_at_first(struct world *w, const uint64_t first[2])
{
    TRY(world_save(w, w->newest + 1));
    TRY(uses(w, 0, first[0]));
    return uses(w, 1, first[1]);
}

/* arg "ranks slack keep signal deaths told"; told 0: no rank says how large its objects are */
static int deaths(struct world *w, const char *arg)
{
    unsigned per_node = 0, slack = 0, times = 0, told = 1;
    uint64_t first[2];
    int sig = 0;

    if (!w->namespaces)
        return SKIPPED; /* it needs a file system of its own */
    sscanf(arg, "%u %u %u %d %u %u", &per_node, &slack, &w->keep, &sig, &times, &told);
    w->untold = !told;
    w->loses_engines = 1;
    w->kib = 1700; /* just below a slot of 2 MiB */
    w->mib = 1024;
    w->save_ms = times > 10 ? 60000 : 0; /* on a machine that does something else, too */
    TRY(world_begin(w, 2, per_node, w->keep + 3));
    for (uint32_t k = 0; k < 2; k++) {
        first[k] = slots_kib(w, k);
        TRY(resize(w, k, first[k] * (100 + slack) / 100 + OTHER_KIB + other_blocks / 2));
    }
    for (unsigned i = 0; i < times; i++) {
        TRY(death(w, i, sig));
        TRY(saves_as_at_first(w, first));
    }
    TRY(node_engine_signal(w, 0, sig)); /* and all join a new epoch where they are */
    TRY(world_recover(w, STEP_ANY));
    TRY(saves_as_at_first(w, first));
    note(w, "%u deaths; %lu KiB of slots on each machine", times, (unsigned long)first[0]);
    return 0;
}

/* ---- One writer ------------------------------------------------------------------------------ */

static int tell(struct world *w, uint32_t r, const char *line)
{
    TRY(rank_post(w, r, line));
    return rank_answer(w, r, 20000);
}

static int hold(struct world *w, uint64_t step, uint32_t r)
{
    char line[80];

    w->tags++;
    w->step_of[w->tags] = step;
    w->newest = step;
    snprintf(line, sizeof(line), "hold %lu %lu %u", (unsigned long)step, (unsigned long)w->tags, r);
    return tell(w, r, line);
}

/* The rank learns that its save has failed when it hands the save over, or when it waits. */
static int has_failed(struct world *w, uint32_t r, uint64_t step)
{
    char line[80];

    TRY(rank_post(w, r, "commit"));
    if (!rank_poll(w, r, 20000))
        return lost(w, "rank %u did not answer", r);
    if (strcmp(w->rank[r].answer, "ok commit") != 0)
        return rank_refusal(w, r, 1, "");
    snprintf(line, sizeof(line), "wait %lu %u %u", (unsigned long)step, PROTECTED, w->save_ms);
    TRY(rank_post(w, r, line));
    return rank_refusal(w, r, w->save_ms + 10000, "");
}

/* Rank 0 has begun a save when its connection ends. Rank 1 of the same machine begins one and
 * writes, then rank 0 writes. Rank 1's save has the bytes that rank 1 wrote; rank 0 learns that its
 * save has failed, and the job goes on. */
static int cut_off(struct world *w, const char *arg)
{
    char line[80];

    (void)arg;
    w->rows = w->whole = ROWS;
    w->mib = 512;
    w->keep = 2;
    w->untold = 1; /* there is no slot but the one that was lent */
    w->loses_engines = 1;
    TRY(world_begin(w, 2, 2, 0));
    for (uint64_t step = 1; step < 7; step += 3) {
        TRY(hold(w, step, 0));
        TRY(tell(w, 0, "cut"));
        TRY(hold(w, step + 1, 1));
        TRY(tell(w, 1, "fill"));
        TRY(tell(w, 0, "fill"));
        TRY(tell(w, 1, "commit"));
        snprintf(line, sizeof(line), "wait %lu %u %u", (unsigned long)step + 1, PROTECTED,
                w->save_ms);
        TRY(tell(w, 1, line));
        snprintf(line, sizeof(line), "read 1 1 %lu %lu", (unsigned long)step + 1,
                (unsigned long)w->tags);
        TRY(tell(w, 1, line));
        TRY(has_failed(w, 0, step));
        TRY(world_save(w, step + 2));
    }
    return world_restart(w, 6);
}

static int is_protected(struct world *w, uint32_t r, uint64_t step, uint64_t tag)
{
    char line[80];

    snprintf(line, sizeof(line), "wait %lu %u %u", (unsigned long)step, PROTECTED, w->save_ms);
    TRY(tell(w, r, line));
    snprintf(line, sizeof(line), "read %u 1 %lu %lu", r, (unsigned long)step, (unsigned long)tag);
    return tell(w, r, line);
}

/* A save of this rank alone, from begin to PROTECTED, with its own bytes. */
static int saves_alone(struct world *w, uint64_t step, uint32_t r)
{
    TRY(hold(w, step, r));
    TRY(tell(w, r, "fill"));
    TRY(tell(w, r, "commit"));
    return is_protected(w, r, step, w->tags);
}

/* Rank 0 has begun a save, in slots of an engine that ends, and does not notice while rank 1
 * saves with the next engine and the one after that. Then rank 0 writes and hands over what goes
 * on where it lies; rank 1's bytes are its own. */
static int between(struct world *w, const char *arg)
{
    uint64_t first, second;
    char line[80];

    (void)arg;
    w->rows = w->whole = ROWS;
    w->mib = 512;
    w->keep = 4;
    w->untold = 1;
    w->loses_engines = 1;
    TRY(world_begin(w, 2, 2, 0));
    TRY(hold(w, 3, 0));
    first = w->tags;
    TRY(node_engine_signal(w, 0, SIGKILL));
    TRY(saves_alone(w, 1, 1));
    second = w->tags;
    TRY(node_engine_signal(w, 0, SIGTERM));
    TRY(hold(w, 2, 1));
    TRY(tell(w, 1, "fill"));
    TRY(tell(w, 0, "fill"));
    TRY(node_engine_signal(w, 0, SIGKILL));
    TRY(tell(w, 1, "commit"));
    TRY(is_protected(w, 1, 2, w->tags));
    TRY(tell(w, 0, "commit"));
    TRY(is_protected(w, 0, 3, first));
    snprintf(line, sizeof(line), "read 1 1 1 %lu", (unsigned long)second);
    TRY(tell(w, 1, line));
    TRY(world_save(w, 4));
    return world_restart(w, 4);
}

#define DEATHS(ranks, slack, keep, name, sig, times)                 \
    {                                                                \
        "engine-ends-" #ranks "-" #slack "-" #keep "-" name, deaths, \
                #ranks " " #slack " " #keep " " sig " " #times       \
    }

const struct scenario scenarios_slots[] = { DEATHS(4, 15, 1, "KILL", "9", 5),
    DEATHS(4, 50, 1, "TERM-untold", "15", 5 0), { "rank-cut-off-writes-on", cut_off, NULL },
    { "engine-ends-between-begin-and-commit", between, NULL }, { 0 } };

#define EACH_SIGNAL(ranks, slack, keep) \
    DEATHS(ranks, slack, keep, "KILL-20", "9", 20), DEATHS(ranks, slack, keep, "TERM-20", "15", 20)
#define EACH_KEEP(ranks, slack) EACH_SIGNAL(ranks, slack, 1), EACH_SIGNAL(ranks, slack, 2)
#define EACH_SLACK(ranks) \
    EACH_KEEP(ranks, 0), EACH_KEEP(ranks, 5), EACH_KEEP(ranks, 15), EACH_KEEP(ranks, 50)

/* On demand. */
const struct scenario scenarios_deaths[] = { EACH_SLACK(1), EACH_SLACK(2), EACH_SLACK(4),
    EACH_SLACK(8), DEATHS(4, 0, 1, "KILL-untold-20", "9", 20 0),
    DEATHS(8, 15, 2, "TERM-untold-20", "15", 20 0), { 0 } };
