/* SPDX-License-Identifier: Apache-2.0 */
/* No memory, no room: a clean error before the first byte that does not fit, and nothing lost. */
#include "cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int all_have_sentences(struct world *w)
{
    for (uint32_t r = 0; r < w->ranks; r++) {
        const char *a = w->rank[r].answer;

        if (!strncmp(a, "err ", 4) &&
                (strlen(a) < 20 || strstr(a, "WRONG BYTES") || strstr(a, "its process has ended")))
            return lost(w, "rank %u: no clean error: %s", r, a);
    }
    return 0;
}

/* Everything that a job does, until something of it fails. */
static int live_until_error(struct world *w)
{
    char line[64];
    int rc;

    w->launches++;
    for (uint32_t r = 0; r < w->ranks; r++)
        TRY(rank_start(w, r, w->seat[r]));
    if ((rc = world_answers_any(w, 20000)))
        return rc;
    TRY(world_post(w, "recover"));
    if ((rc = world_answers_any(w, 20000)))
        return rc;
    for (int i = 0; i < 2; i++) {
        TRY(world_save_begin(w, w->newest + 1));
        if ((rc = world_answers_any(w, 20000)))
            return rc;
        snprintf(line, sizeof(line), "wait %lu %u %u", (unsigned long)w->newest, PROTECTED, 6000);
        TRY(world_post(w, line));
        if ((rc = world_answers_any(w, 20000)))
            return rc;
        w->protected = w->newest;
        w->protected_tag = w->tags;
    }
    return 0;
}

#define FAILED      " made-to-fail "
#define ALLOCATIONS 600u /* more than a life has */

/* A life of the job in which the n-th allocation of one machine's store fails, and one after that.
 * 1: the first had no n-th allocation. */
static int live_with_failure(struct world *w, uint32_t n, uint32_t *errors)
{
    int said = node_log_has(w, 1, FAILED), ready = node_log_has(w, 1, " engine-ready "), fired, rc;
    char text[16];

    world_stop(w);
    TRY(node_engine_signal(w, 1, SIGKILL));
    snprintf(text, sizeof(text), "%u", n);
    TRY(node_engine_start(w, 1, "HEARTH_FAIL_AT", text));
    fired = node_log_has(w, 1, " engine-ready ") == ready; /* it has ended by it */
    rc = live_until_error(w);
    if (rc < 0)
        return rc;
    TRY(all_have_sentences(w));
    fired = fired || node_log_has(w, 1, FAILED) > said;
    if (!fired)
        return rc ? lost(w, "nothing was made to fail, and yet: %s", w->rank[1].answer) : 1;
    *errors += (uint32_t)rc;
    world_stop(w);
    if (node_engine(w, 1))
        TRY(node_engine_signal(w, 1, SIGKILL));
    TRY(world_start(w));
    TRY(world_recover(w, STEP_ANY));
    return world_save(w, w->newest + 1);
}

#define SHARES 5u

/* Every n, shared out to some scenarios: arg is the first of this one. */
static int allocation_fails(struct world *w, const char *arg)
{
    uint32_t errors = 0, n = (uint32_t)strtoul(arg, NULL, 10);
    int rc;

    w->loses_engines = 1;
    w->kib = 512;
    w->open_ms = 4000;
    w->save_ms = 3000;
    w->recover_ms = 6000;
    TRY(world_begin(w, 2, 1, 1));
    while (!(rc = live_with_failure(w, n, &errors)))
        if ((n += SHARES) > ALLOCATIONS)
            return lost(w, "a life has more than %u allocations", ALLOCATIONS);
    note(w, "up to the %u-th; ranks saw %u of the failures", n, errors);
    return rc == 1 ? 0 : rc;
}

static int says(struct world *w, const char *what)
{
    for (uint32_t r = 0; r < w->ranks; r++)
        if (!strstr(w->rank[r].answer, what))
            return lost(w, "rank %u does not say '%s': %s", r, what, w->rank[r].answer);
    return 0;
}

/* Another program fills the tmpfs to the last page under a running job: that save fails on every
 * rank, for that reason; nothing is lost; and with room the job goes on. */
static int full_after_open(struct world *w, const char *arg)
{
    int rc;

    (void)arg;
    if (!w->namespaces)
        return SKIPPED; /* it needs a file system of its own */
    w->save_ms = 5000;
    w->common_kib = 100; /* a small one has its room */
    TRY(world_begin(w, 2, 1, 1));
    TRY(tmpfs_fill(w, 1, 0));
    TRY(world_save_begin(w, 2));
    if ((rc = world_answers_any(w, 15000)) < 0)
        return rc;
    for (uint32_t r = 0; r < w->ranks; r++)
        if (!strcmp(w->rank[r].answer, "ok save"))
            TRY(rank_post(w, r, "wait 2 40 10000"));
    if ((rc = world_answers_any(w, 15000)) < 0)
        return rc;
    TRY(says(w, "o room"));
    tmpfs_unfill(w, 1);
    TRY(world_save(w, 3));
    TRY(tmpfs_fill(w, 1, 0));
    world_stop(w);
    rc = live_until_error(w);
    if (rc < 0)
        return rc;
    TRY(all_have_sentences(w));
    tmpfs_unfill(w, 1);
    TRY(world_restart(w, STEP_ANY));
    return world_save(w, w->newest + 1);
}

/* The objects have their slots, and one node has no room for what every node gets: the ranks learn
 * it at once, not when the save's time is over. */
static int full_for_common(struct world *w, const char *arg)
{
    int rc;

    (void)arg;
    if (!w->namespaces)
        return SKIPPED; /* it needs a file system of its own */
    w->common_kib = 80 * 1024;
    w->kib = 512;
    w->mib = 512;
    w->save_ms = 60000;
    TRY(world_begin(w, 3, 1, 1));
    TRY(tmpfs_fill(w, 1, 40 * 1024));
    TRY(world_save_begin(w, 2));
    if ((rc = world_answers_any(w, 15000)) < 0)
        return rc;
    for (uint32_t r = 0; r < w->ranks; r++)
        if (!strcmp(w->rank[r].answer, "ok save"))
            TRY(rank_post(w, r, "wait 2 40 20000"));
    if ((rc = world_answers_any(w, 20000)) < 0)
        return rc;
    TRY(says(w, "no room for common object 'common.bin' of 8388"));
    tmpfs_unfill(w, 1);
    TRY(world_save(w, 3));
    return world_restart(w, 3);
}

/* 1: the sentence names one of the machines. */
static int names_machine(const struct world *w, const char *sentence)
{
    char name[80];
    int names = 0;

    for (uint32_t k = 0; k < w->nodes; k++) {
        snprintf(name, sizeof(name), ": node %s: no room for a copy: ", w->node[k].name);
        names |= strstr(sentence, name) != NULL;
    }
    return names;
}

static int save_without_room(struct world *w, uint64_t step)
{
    char line[64];

    TRY(world_save_begin(w, step));
    TRY(world_answers(w, 15000));
    snprintf(line, sizeof(line), "wait %lu %u %u", (unsigned long)step, PROTECTED, w->save_ms);
    TRY(world_post(w, line));
    if (world_answers_any(w, 10000) < 0)
        return -1;
    for (uint32_t r = 0; r < w->ranks; r++)
        if (strncmp(w->rank[r].answer, "err wait -105 ", 14) != 0 ||
                !names_machine(w, w->rank[r].answer))
            return lost(w, "rank %u: %s", r, w->rank[r].answer);
    TRY(says(w, " bytes do not fit: its file system has room for "));
    return says(w, "; raise that, or lower keep or copies if above 1");
}

/* The first save and its copies have room, and of the second each machine has room for what its own
 * rank writes: nothing makes room for the copies. No rank has said how large its objects are. */
static int no_room_for_copies(struct world *w, const char *arg)
{
    (void)arg;
    if (!w->namespaces)
        return SKIPPED; /* it needs a file system of its own */
    w->mib = 21;
    w->kib = 4 * 1024;
    w->untold = 1;
    w->save_ms = 60000;
    TRY(world_begin(w, 2, 1, 1));
    TRY(save_without_room(w, 2));
    TRY(save_without_room(w, 3));
    if (!node_log_has(w, 0, " warn no-room ") && !node_log_has(w, 1, " warn no-room "))
        return lost(w, "no engine's log has a warning");
    return world_restart(w, 1);
}

/* *out: the number of saves that every rank has staged. */
static int pile_of_all(struct world *w, unsigned *out)
{
    *out = UINT32_MAX;
    TRY(world_post(w, "pile 300"));
    TRY(world_answers(w, 10000));
    for (uint32_t r = 0; r < w->ranks; r++) {
        unsigned long count = strtoul(w->rank[r].answer + strlen("ok pile "), NULL, 10);

        note(w, "rank %u: %s", r, w->rank[r].answer);
        if (count < 2 || !strstr(w->rank[r].answer, " -109 ") ||
                !strstr(w->rank[r].answer, " one more would take the room of their copies: "))
            return lost(w, "rank %u: %s", r, w->rank[r].answer);
        *out = count < *out ? (unsigned)count : *out;
    }
    return 0;
}

/* Saves are staged faster than they are copied, until the engine refuses one more. All that were
 * staged become PROTECTED, and saving goes on. No rank has said how large its objects are. */
static int staged_leave_room(struct world *w, const char *arg)
{
    unsigned count;
    char line[80];

    (void)arg;
    if (!w->namespaces)
        return SKIPPED; /* it needs a file system of its own */
    w->mib = 32;
    w->kib = 1024;
    w->untold = 1;
    TRY(world_begin(w, 2, 1, 1));
    TRY(pile_of_all(w, &count));
    snprintf(line, sizeof(line), "piled 2 %lu %u", (unsigned long)w->tags + 1, count);
    TRY(world_post(w, line));
    TRY(world_answers(w, 30000));
    for (unsigned i = 0; i < count; i++)
        w->step_of[++w->tags] = ++w->newest;
    w->protected = w->newest;
    w->protected_tag = w->tags;
    TRY(world_save(w, w->newest + 1));
    return world_restart(w, w->newest);
}

/* A fresh machine without room refuses at open, and gets what it lacks once there is room. */
static int full_before_open(struct world *w, const char *arg)
{
    (void)arg;
    if (!w->namespaces)
        return SKIPPED; /* it needs a file system of its own */
    w->loses_engines = 1;
    w->open_ms = 5000;
    TRY(world_begin(w, 3, 1, 2));
    TRY(node_kill(w, 1));
    TRY(node_up(w, 1));
    TRY(tmpfs_fill(w, 1, 0));
    world_stop(w);
    w->launches++;
    for (uint32_t r = 0; r < w->ranks; r++)
        TRY(rank_start(w, r, w->seat[r]));
    TRY(rank_refusal(w, 1, 20000, "no room left"));
    tmpfs_unfill(w, 1);
    TRY(world_restart(w, 2));
    return world_save(w, 3);
}

/* The ranks of that machine get the error in open, those of the others there or in recover; all of
 * them soon, and with the reason. */
static int no_room_is_told(struct world *w, const char *arg)
{
    uint32_t full = (uint32_t)atoi(arg);
    char name[80];

    if (!w->namespaces)
        return SKIPPED; /* it needs a file system of its own */
    w->open_ms = w->recover_ms = 30000;
    TRY(world_begin(w, 3, 2, 2));
    world_stop(w);
    TRY(node_kill(w, full));
    TRY(node_up(w, full));
    TRY(tmpfs_fill(w, full, 4096));
    snprintf(name, sizeof(name), "node %s ", w->node[full].name);
    w->launches++;
    for (uint32_t r = 0; r < w->ranks; r++)
        TRY(rank_start(w, r, w->seat[r]));
    if (world_answers_any(w, 15000) < 0)
        return -1;
    for (uint32_t r = 0; r < w->ranks; r++) {
        if (w->seat[r] == full && strncmp(w->rank[r].answer, "err open -105 ", 14) != 0)
            return lost(w, "rank %u: %s", r, w->rank[r].answer);
        if (strncmp(w->rank[r].answer, "ok ", 3) != 0)
            continue;
        TRY(rank_post(w, r, "recover"));
        TRY(rank_refusal(w, r, 10000, "err recover -105 "));
    }
    for (uint32_t r = 0; r < w->ranks; r++)
        if (!strstr(w->rank[r].answer, name))
            return lost(w, "rank %u does not say %s: %s", r, name, w->rank[r].answer);
    tmpfs_unfill(w, full);
    TRY(world_restart(w, 2));
    return world_save(w, 3);
}

static int too_small(struct world *w, const char *arg)
{
    (void)arg;
    if (!w->namespaces)
        return SKIPPED; /* it needs a file system of its own */
    w->mib = 24;
    w->kib = 16 * 1024;
    w->open_ms = 5000;
    TRY(world_open(w, 2, 1));
    w->launches++;
    for (uint32_t r = 0; r < w->ranks; r++)
        TRY(rank_start(w, r, w->seat[r]));
    TRY(rank_refusal(w, 0, 20000, "err open -105 "));
    return rank_refusal(w, 1, 20000, "err open -105 ");
}

/* ---- cgroup ---------------------------------------------------------------------------------- */

static int write_text(const char *dir, const char *name, const char *text)
{
    char path[300];
    int fd, ok;

    snprintf(path, sizeof(path), "%.200s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* A group with a limit; 0: none can be made here. */
static int cgroup_make(char *path, size_t len, const char *limit)
{
    static const char *const base[] = { "/sys/fs/cgroup/memory", "/sys/fs/cgroup" };
    static const char *const file[] = { "memory.limit_in_bytes", "memory.max" };

    for (int i = 0; i < 2; i++) {
        snprintf(path, len, "%s/hearth-cluster-%ld", base[i], (long)getpid());
        if (mkdir(path, 0755))
            continue;
        if (write_text(path, file[i], limit))
            return 1;
        rmdir(path);
    }
    return 0;
}

static int with_cgroup(struct world *w)
{
    TRY(world_begin(w, 2, 1, 1)); /* what it has: 4 MiB at a time */
    world_stop(w);
    TRY(node_engine_signal(w, 1, SIGKILL));
    w->kib = 32 * 1024;
    TRY(node_engine_start(w, 1, NULL, NULL));
    w->launches++;
    for (uint32_t r = 0; r < w->ranks; r++)
        TRY(rank_start(w, r, w->seat[r]));
    TRY(rank_refusal(w, 1, 20000, "err open -105 "));
    if (!node_engine(w, 1))
        return lost(w, "the engine did not survive its cgroup's limit");
    world_stop(w);
    w->kib = 4 * 1024;
    TRY(world_start(w));
    return world_recover(w, 1);
}

static int cgroup_limit(struct world *w, const char *arg)
{
    char path[200];
    int rc;

    (void)arg;
    if (!cgroup_make(path, sizeof(path), "100000000")) {
        snprintf(w->why, sizeof(w->why), "no memory cgroup can be made here");
        return SKIPPED;
    }
    w->cgroup = path;
    w->kib = 4 * 1024;
    w->mib = 512;
    w->open_ms = 5000;
    w->loses_engines = 1;
    rc = with_cgroup(w);
    for (uint32_t k = 0; k < w->nodes; k++)
        node_kill(w, k);
    for (int i = 0; rmdir(path) && i < 200; i++)
        nap_ms(10);
    w->cgroup = NULL;
    return rc;
}

const struct scenario scenarios_room[] = { { "allocation-fails-1", allocation_fails, "1" },
    { "allocation-fails-2", allocation_fails, "2" },
    { "allocation-fails-3", allocation_fails, "3" },
    { "allocation-fails-4", allocation_fails, "4" },
    { "allocation-fails-5", allocation_fails, "5" }, { "full-after-open", full_after_open, NULL },
    { "full-for-common", full_for_common, NULL },
    { "no-room-for-copies", no_room_for_copies, NULL },
    { "staged-leave-room", staged_leave_room, NULL },
    { "full-before-open", full_before_open, NULL }, { "too-small", too_small, NULL },
    { "no-room-is-told-0", no_room_is_told, "0" }, { "no-room-is-told-1", no_room_is_told, "1" },
    { "cgroup-limit", cgroup_limit, NULL }, { 0 } };
