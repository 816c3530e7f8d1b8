/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to a pod while its job runs: it is frozen, gets another name, its clock jumps. */
#include "pods.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HOUR_MS   INT64_C(3600000)
#define DEAD_MS   2000
#define PAUSED_MS 5000
#define FROZEN_MS 2500

extern void pods_clock_open(void);

static void nap_ms(long ms)
{
    const struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

    nanosleep(&t, NULL);
}

static uint64_t mono_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int wrong(struct hearth_error *err, const char *text)
{
    snprintf(err->text, sizeof(err->text), "%s", text);
    return -1;
}

/* The engine of this pod, by its lock; 0: none. */
static pid_t engine_pid(void)
{
    char text[32] = "";
    int fd = open(POD_JOB "/.hearth/lock", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        close(fd);
    return n > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

/* ---- the freezer ----------------------------------------------------------------------------- */

static const char *const freezers[] = { "/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified",
    "/sys/fs/cgroup" };
static char group[200], above[64]; /* the pod's cgroup and the one above it */
static int version;

static int put(const char *dir, const char *name, const char *text)
{
    char path[300];
    int fd, rc;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    rc = fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return rc;
}

static void group_name(char out[200], size_t at, pid_t pods, const struct condition *c)
{
    snprintf(out, 200, "%s/hearth-pods-%ld-%s", freezers[at], (long)pods, c->name);
}

/* Of version 2: where a group has cgroup.freeze. */
static int freezer_make(struct pod *p, int of)
{
    char path[300];

    for (size_t i = of == 1 ? 0 : 1; i < (of == 1 ? 1 : 3); i++) {
        group_name(group, i, p->pods, p->condition);
        snprintf(path, sizeof(path), "%s/%s", group, of == 1 ? "freezer.state" : "cgroup.freeze");
        snprintf(above, sizeof(above), "%s", freezers[i]);
        version = of;
        if (!mkdir(group, 0700) && !access(path, W_OK))
            return 0;
        rmdir(group);
    }
    return pod_skip(p, "no freezer of cgroup version %d can be used", of);
}

int plant_freezer_v1(struct pod *p)
{
    return freezer_make(p, 1);
}

int plant_freezer_v2(struct pod *p)
{
    return freezer_make(p, 2);
}

static int is_frozen(void)
{
    char path[300], text[200] = "";
    int fd;

    snprintf(path, sizeof(path), "%s/%s", group, version == 1 ? "freezer.state" : "cgroup.events");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, text, sizeof(text) - 1) < 0)
        text[0] = '\0';
    if (fd >= 0)
        close(fd);
    return strstr(text, version == 1 ? "FROZEN" : "frozen 1") != NULL;
}

/* 0: what is in the group already. */
static int freeze(pid_t pid)
{
    char text[24];

    snprintf(text, sizeof(text), "%ld", (long)pid);
    if ((pid && put(group, "cgroup.procs", text)) ||
            put(group, version == 1 ? "freezer.state" : "cgroup.freeze",
                    version == 1 ? "FROZEN" : "1"))
        return -1;
    for (int i = 0; i < 500 && !is_frozen(); i++)
        nap_ms(10);
    return is_frozen() ? 0 : -1;
}

static int thaw(void)
{
    return put(
            group, version == 1 ? "freezer.state" : "cgroup.freeze", version == 1 ? "THAWED" : "0");
}

/* A frozen process of version 1 does not end, whatever signal it gets. */
void freezer_end(pid_t pods, const struct condition *c)
{
    for (size_t i = 0; i < sizeof(freezers) / sizeof(freezers[0]); i++) {
        group_name(group, i, pods, c);
        if (access(group, F_OK))
            continue;
        version = i ? 2 : 1;
        thaw();
        for (int tries = 0; tries < 500 && rmdir(group); tries++)
            nap_ms(10);
    }
}

/* A save ends with an error, in its time. Once the engine is thawed, the same step is saved. */
int engine_is_frozen(struct pod *p, struct hearth *h, uint64_t step, struct hearth_error *err)
{
    uint64_t from = mono_ms();
    int rc;

    (void)p;
    if (step != 2)
        return 0;
    if (freeze(engine_pid()))
        return wrong(err, "the engine cannot be frozen");
    rc = pod_save(h, step, 1000, err);
    if (mono_ms() - from > 8000)
        return wrong(err, "a save waits for a frozen engine beyond its deadline");
    if (!rc)
        return wrong(err, "a save is PROTECTED while its engine is frozen");
    if (!strstr(err->text, "engine"))
        return rc;
    return thaw() ? wrong(err, "the engine cannot be thawed") : 0;
}

/* In the middle of whatever it does then. */
int trainer_is_frozen(struct pod *p, struct hearth *h, uint64_t step, struct hearth_error *err)
{
    pid_t trainer = getpid();

    (void)p, (void)h;
    if (step != 2)
        return 0;
    switch (fork()) {
    case -1:
        return wrong(err, "no process that freezes the trainer");
    case 0:
        if (!freeze(trainer))
            nap_ms(FROZEN_MS);
        thaw();
        _exit(0);
    default:
        for (int i = 0; i < 500 && !is_frozen(); i++)
            nap_ms(1);
        return 0;
    }
}

/* The second pod's trainer, and with it the engine that it starts. */
int second_pod_has_a_group(struct pod *p, unsigned turn, struct hearth_error *err)
{
    char text[24];

    snprintf(text, sizeof(text), "%ld", (long)getpid());
    p->opts.heartbeat_ms = DEAD_MS / 5;
    p->opts.dead_ms = DEAD_MS;
    return p->opts.rank == 1 && !turn && put(group, "cgroup.procs", text)
                   ? wrong(err, "the pod's cgroup does not take it")
                   : 0;
}

static int log_has(const char *event)
{
    static char text[1 << 16];
    int fd = open(POD_JOB "/.hearth/log", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return strstr(text, event) != NULL;
}

/* As `docker pause` does it, for longer than dead_ms: the first node calls it lost, and takes it
 * back. A save in between may fail, so both ranks wait for that. */
int second_pod_is_frozen(struct pod *p, struct hearth *h, uint64_t step, struct hearth_error *err)
{
    static const char back[] = "/mnt/back"; /* both pods see it */

    (void)h;
    if (step != 2)
        return 0;
    if (p->opts.rank == 1) {
        for (int i = 0; i < 2000 && access(back, F_OK); i++)
            nap_ms(10);
        return 0;
    }
    if (freeze(0))
        return wrong(err, "the pod cannot be frozen");
    nap_ms(PAUSED_MS);
    if (!log_has(" peer-lost "))
        return wrong(err, "the frozen node is not called lost");
    if (thaw())
        return wrong(err, "the pod cannot be thawed");
    for (int i = 0; i < 1000 && !log_has(" peer-back "); i++)
        nap_ms(10);
    if (!log_has(" peer-back "))
        return wrong(err, "the thawed node does not take part again");
    return mkdir(back, 0700);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* The pod was made anew on the same memory: no engine, another host name. */
int host_name_is_new(struct pod *p, unsigned turn, struct hearth_error *err)
{
    pid_t engine = turn ? engine_pid() : 0;
    char name[40];

    if (p->condition->arg) {
        static char node[40];

        snprintf(node, sizeof(node), "%s-%u", p->condition->arg, p->opts.rank);
        p->opts.node = node;
    }
    snprintf(name, sizeof(name), "train-%u-%s", p->opts.rank, turn ? "x7k2p" : "a1b2c");
    if (turn && (!engine || kill(engine, SIGKILL)))
        return wrong(err, "there is no engine to end");
    for (int i = 0; engine && i < 500 && !kill(engine, 0); i++)
        nap_ms(10);
    return sethostname(name, strlen(name)) ? wrong(err, "the host name stays") : 0;
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static int64_t *moved_ms;

/* The trainer's and its engine's. */
static int clock_make(const char *path)
{
    static const int64_t none;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    Dl_info here;
    void *at = MAP_FAILED;

    if (fd >= 0 && write(fd, &none, sizeof(none)) == sizeof(none))
        at = mmap(NULL, sizeof(none), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (at == MAP_FAILED || !dladdr((void *)(uintptr_t)pods_clock_open, &here))
        return -1;
    moved_ms = at;
    setenv("PODS_CLOCK", path, 1);
    setenv("LD_PRELOAD", here.dli_fname, 1);
    pods_clock_open();
    return 0;
}

int plant_clock(struct pod *p)
{
    return clock_make("/mnt/clock") ? pod_skip(p, "no clock that can be moved") : 0;
}

static int clock_is_moved(int64_t ms, struct hearth_error *err)
{
    time_t before = time(NULL), after;

    *moved_ms += ms;
    after = time(NULL);
    return labs(after - before - (long)(ms / 1000)) <= 5 ? 0 : wrong(err, "the clock is not moved");
}

/* Of the second node, and its engine's. */
int clock_is_apart(struct pod *p, unsigned turn, struct hearth_error *err)
{
    if (p->opts.rank != 1)
        return 0;
    if (!turn && clock_make("/mnt/clock-1"))
        return wrong(err, "no clock that can be moved");
    return clock_is_moved(turn ? 12 * HOUR_MS : -5 * HOUR_MS, err);
}

int clock_jumps_ahead(struct pod *p, struct hearth *h, uint64_t step, struct hearth_error *err)
{
    (void)p, (void)h;
    return step == 2 || step == 4 ? clock_is_moved(24 * HOUR_MS, err) : 0;
}

int clock_jumps_back(struct pod *p, struct hearth *h, uint64_t step, struct hearth_error *err)
{
    (void)p, (void)h;
    return step == 2 || step == 4 ? clock_is_moved(-24 * HOUR_MS, err) : 0;
}
