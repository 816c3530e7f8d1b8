/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom the kernel ends at a pod's memory limit, in a memory cgroup, from limits that are too tight
 * to limits that are wide:
 *
 *     cgroup ── trainer: own memory, saves ── its engine, which makes the slots
 *         └──── loader: takes more and more memory, once the trainer has saved
 *
 * The trainer must not be ended where its own memory and the slots fit, nor the engine, which would
 * free nothing. Where they do not fit, open or a save must fail with a sentence.
 */
#include <hearth/hearth.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB       (UINT64_C(1) << 20)
#define SHARD     (16 * MIB)
#define OWN       (32 * MIB)
#define LOADER    (240 * MIB)
#define LOADER_MS 30 /* between pieces of 8 MiB */
#define KEEP      3
#define SECONDS   5
#define ROOT      "/mnt/h"
#define OWN_BYTES (240 * MIB) /* 8 slots of 18 MiB, the trainer's OWN and shard, both programs */
#define PODS      6

static const unsigned limits_mib[PODS] = { 100, 180, 250, 320, 400, 600 };

static char group_root[64];
static int version;

static void nap_ms(long ms)
{
    const struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

    nanosleep(&t, NULL);
}

/* ---- the cgroup ------------------------------------------------------------------------------ */

static int put(const char *group, const char *name, const char *text)
{
    char path[200];
    int fd, rc;

    snprintf(path, sizeof(path), "%s/%s", group, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    rc = fd < 0 || write(fd, text, strlen(text)) < 0;
    if (fd >= 0)
        close(fd);
    return rc;
}

static int group_make(char group[128], unsigned mib)
{
    char text[32];

    version = access("/sys/fs/cgroup/memory/cgroup.procs", F_OK) ? 2 : 1;
    snprintf(group_root, sizeof(group_root), "/sys/fs/cgroup%s", version == 1 ? "/memory" : "");
    snprintf(group, 128, "%s/hearth-pods-%ld-%u", group_root, (long)getpid(), mib);
    if (version == 2)
        (void)put(group_root, "cgroup.subtree_control", "+memory");
    snprintf(text, sizeof(text), "%llu", (unsigned long long)(mib * MIB));
    if (mkdir(group, 0755))
        return -1;
    if (put(group, version == 1 ? "memory.limit_in_bytes" : "memory.max", text)) {
        rmdir(group);
        return -1;
    }
    if (version == 2)
        (void)put(group, "memory.swap.max", "0");
    return 0;
}

/* All its processes end, and it goes. */
static void group_end(const char *group)
{
    for (int i = 0; i < 200 && rmdir(group) && errno == EBUSY; i++) {
        char path[200];
        long pid;
        FILE *f;

        snprintf(path, sizeof(path), "%s/cgroup.procs", group);
        f = fopen(path, "re");
        while (f && fscanf(f, "%ld", &pid) == 1)
            kill((pid_t)pid, SIGKILL);
        if (f)
            fclose(f);
        nap_ms(10);
    }
}

/* ---- the trainer ----------------------------------------------------------------------------- */

static int save(
        struct hearth *h, uint64_t step, const struct hearth_piece *piece, struct hearth_error *err)
{
    struct hearth_begin_opts begin = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_handle *handle;
    struct hearth_save *s;
    int rc;

    begin.wait_ms = 10000; /* the first slots are being made */
    rc = hearth_save_begin(h, step, hearth_save_bytes(piece, 1, NULL, 0), &begin, &s, err);
    if (rc)
        return rc;
    rc = hearth_save_add(s, piece, 1, err);
    rc = rc ? rc : hearth_save_commit(s, &handle, err);
    if (rc)
        return rc;
    rc = hearth_wait(handle, HEARTH_PROTECTED, 10000, err);
    hearth_handle_close(handle);
    return rc;
}

/* 'r': refused, in a sentence; 's': the loader may begin, as all slots are made; 'e': the end. */
static void trainer(int out)
{
    static const int64_t shape[1] = { SHARD }, offset[1];
    struct hearth_opts opts = HEARTH_OPTS_INIT;
    struct hearth_error err = { 0 };
    struct timespec now, end;
    struct hearth_piece piece = { .struct_size = sizeof(piece),
        .key = "w",
        .key_len = 1,
        .data = malloc(SHARD),
        .dtype = HEARTH_UINT8,
        .ndim = 1,
        .shape = shape,
        .global_shape = shape,
        .global_offset = offset };
    void *own = malloc(OWN);
    uint64_t bytes = hearth_save_bytes(&piece, 1, NULL, 0), step = 0;
    struct hearth *h;
    int rc;

    if (!own || !piece.data)
        _exit(1);
    memset(own, 1, OWN);
    memset((void *)(uintptr_t)piece.data, 2, SHARD);
    opts.root = ROOT;
    opts.job = "k";
    opts.world = 1;
    opts.allow_degraded = 1;
    opts.keep = KEEP;
    opts.object_bytes = &bytes;
    opts.object_count = 1;
    opts.open_ms = 10000;
    rc = hearth_open(&opts, &h, &err);
    if (!rc) {
        struct hearth_checkpoint *none = NULL;

        rc = hearth_recover(h, NULL, &none, &err);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += SECONDS;
    do {
        rc = rc ? rc : save(h, ++step, &piece, &err);
        if (!rc && step == 2 * KEEP)
            dprintf(out, "s");
        nap_ms(200);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!rc && now.tv_sec < end.tv_sec);
    dprintf(out, rc ? "r%s\n" : "e", err.text);
    _exit(0);
}

static void loader(void)
{
    for (uint64_t have = 0; have < LOADER; have += 8 * MIB) {
        void *piece = malloc(8 * MIB);

        if (!piece)
            _exit(1);
        memset(piece, 3, 8 * MIB);
        nap_ms(LOADER_MS);
    }
    pause();
    _exit(0);
}

/* ---- a pod ----------------------------------------------------------------------------------- */

/* Times that an engine opened the job. */
static unsigned engines(void)
{
    FILE *f = fopen(ROOT "/k/.hearth/log", "re");
    char line[2048];
    unsigned n = 0;

    while (f && fgets(line, sizeof(line), f))
        n += strstr(line, " engine-ready ") != NULL;
    if (f)
        fclose(f);
    return n;
}

static pid_t start_in(const char *group, void (*run)(int), int out)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (put(group, "cgroup.procs", "0"))
            _exit(1);
        run(out);
    }
    return pid;
}

static void loader_run(int out)
{
    close(out);
    loader();
}

static const char *end_of(pid_t pid, int flags)
{
    int status = 0;

    if (waitpid(pid, &status, flags) != pid)
        return "lives";
    return WIFSIGNALED(status) ? "killed" : "lives";
}

/* A line of the table; 0, or 1 where it breaks the rule. */
static int pod(unsigned mib)
{
    char group[128], said[700] = "", *refusal;
    const char *trainer_end, *loader_end = "-";
    int ends[2], wrong;
    pid_t pid, other = 0;
    size_t have = 0;
    ssize_t n;

    if (unshare(CLONE_NEWNS) || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("pod", "/mnt", "tmpfs", 0, "size=1m") || mkdir(ROOT, 0700) ||
            mount("root", ROOT, "tmpfs", 0, "size=1g,mode=700") || pipe2(ends, O_CLOEXEC))
        return 77;
    if (group_make(group, mib))
        return 77;
    pid = start_in(group, trainer, ends[1]);
    close(ends[1]);
    while (have < sizeof(said) - 1 && (n = read(ends[0], said + have, 1)) == 1) {
        have++;
        if (said[0] == 's' && !other)
            other = start_in(group, loader_run, ends[0]);
    }
    trainer_end = end_of(pid, 0);
    if (other)
        loader_end = end_of(other, WNOHANG);
    refusal = strchr(said, 'r');
    wrong = mib * MIB >= OWN_BYTES
                    ? strcmp(trainer_end, "lives") != 0 || refusal != NULL || engines() != 1
                    : strcmp(trainer_end, "lives") != 0 || !refusal;
    if (refusal)
        refusal[strcspn(refusal, "\n")] = '\0';
    printf("pods: limit %3u MiB: trainer %s, engine %s, loader %s%s%.160s%s\n", mib, trainer_end,
            refusal          ? "-"
            : engines() == 1 ? "lives"
                             : "killed",
            loader_end, refusal ? ", refused: " : "", refusal ? refusal + 1 : "",
            wrong ? " FAILED" : "");
    fflush(stdout);
    if (other)
        kill(other, SIGKILL);
    group_end(group);
    return wrong;
}

int main(void)
{
    int wrong = 0, skipped = 0, status;
    pid_t pid[PODS];

    if (geteuid() != 0) {
        puts("skip: only root can make a memory cgroup");
        return 77;
    }
    for (unsigned i = 0; i < PODS; i++) {
        fflush(NULL);
        if ((pid[i] = fork()) == 0)
            _exit(pod(limits_mib[i]));
    }
    for (unsigned i = 0; i < PODS; i++) {
        if (waitpid(pid[i], &status, 0) != pid[i] || !WIFEXITED(status))
            wrong++;
        else if (WEXITSTATUS(status) == 77)
            skipped++;
        else
            wrong += WEXITSTATUS(status) != 0;
    }
    if (skipped && !wrong) {
        puts("skip: no memory cgroup or no mount can be made here");
        return 77;
    }
    return wrong != 0;
}
