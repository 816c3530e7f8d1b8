/* SPDX-License-Identifier: Apache-2.0 */
/* The runner of cases, and machines: a directory (on a tmpfs of its own where that is allowed). */
#include "party.h"
#include "engines.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CASE_SECONDS 60 /* with sanitizers; a case takes a few */

uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void nap_ms(unsigned ms)
{
    const struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    nanosleep(&t, NULL);
}

void party_fail(const char *file, int line, const char *format, ...)
{
    va_list ap;

    fprintf(stderr, "%s:%d: ", file, line);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

void party_skip(const char *format, ...)
{
    va_list ap;

    fputs("skipped: ", stdout);
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
    exit(77);
}

void party_needs_points(void)
{
#ifndef HEARTH_POINTS
    party_skip("this build's engines have no stop points (HEARTH_POINTS)");
#endif
}

/* ---- the runner ------------------------------------------------------------------------------ */

/* Kill the children that are left: orphans of the case, which came to us. */
static int kill_children(void)
{
    char path[64], text[4096] = "", *at = text;
    int fd, killed = 0;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/task/%ld/children", (long)getpid());
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    for (char *end; (n = strtol(at, &end, 10)) > 1 && end != at; at = end)
        killed += !kill((pid_t)n, SIGKILL);
    return killed;
}

/* The runner has the same rule: a case that is killed cleans nothing up. */
static void base_of(int mounts, pid_t pid, char *out, size_t len)
{
    snprintf(out, len, "%s/hearth-promise-%ld", mounts ? "/tmp" : "/dev/shm", (long)pid);
}

int party_find(const char *path, void (*f)(const char *path, void *arg), void *arg)
{
    DIR *dir = opendir(path);
    struct dirent *e;
    char below[512];
    int count = 0;

    while (dir && (e = readdir(dir))) {
        struct stat st;

        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (snprintf(below, sizeof(below), "%s/%s", path, e->d_name) >= (int)sizeof(below) ||
                lstat(below, &st))
            continue;
        if (S_ISDIR(st.st_mode))
            count += party_find(below, f, arg);
        f(below, arg);
        count++;
    }
    if (dir)
        closedir(dir);
    return count;
}

static void remove_it(const char *path, void *arg)
{
    (void)arg;
    if (unlink(path) && rmdir(path))
        return;
}

static void remove_base(int mounts, pid_t pid)
{
    char base[64];

    base_of(mounts, pid, base, sizeof(base));
    party_find(base, remove_it, NULL);
    rmdir(base);
}

static void sweep(void)
{
    uint64_t until = now_ms() + 10000;

    while (kill_children() && now_ms() < until)
        while (waitpid(-1, NULL, 0) < 0 && errno == EINTR)
            continue;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
}

static int run_one(const struct party_case *c)
{
    int status = 0, one = 0, crashed = 0;
    pid_t pid, ended;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(CASE_SECONDS);
        c->run();
        exit(0);
    }
    while ((ended = waitpid(-1, &one, 0)) != pid && (ended > 0 || errno == EINTR))
        if (ended > 0) { /* an orphan: an engine */
            crashed |= WIFSIGNALED(one) && WTERMSIG(one) != SIGKILL;
            if (crashed || getenv("HEARTH_TEST_LOGS"))
                fprintf(stderr, "%s: process %ld ended with %x\n", c->name, (long)ended,
                        (unsigned)one);
        }
    status = one;
    sweep();
    remove_base(0, pid);
    remove_base(1, pid);
    if (WIFSIGNALED(status))
        fprintf(stderr, "%s: ended by signal %d%s\n", c->name, WTERMSIG(status),
                WTERMSIG(status) == SIGALRM ? ": it hung" : "");
    return crashed || !WIFEXITED(status) ? 1 : WEXITSTATUS(status);
}

int party_main(int argc, char **argv, const struct party_case *cases)
{
    int rc = 0, found = 0;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (; cases->name; cases++) {
        int one;

        if (argc > 1 && strcmp(argv[1], cases->name) != 0)
            continue;
        found = 1;
        one = run_one(cases);
        printf("%s: %s\n", cases->name, one == 0 ? "passed" : one == 77 ? "skipped" : "FAILED");
        if (one && (!rc || rc == 77))
            rc = one;
    }
    if (!found)
        fprintf(stderr, "there is no case '%s'\n", argv[1]);
    return found ? rc : 2;
}

/* ---- machines -------------------------------------------------------------------------------- */

static int own_mounts;
static const struct party *at_end;
static pid_t whose;

/* A case with our process id that was killed may have left it. */
static void make_base(const char *base)
{
    if (!mkdir(base, 0700))
        return;
    party_find(base, remove_it, NULL);
    rmdir(base);
    CHECK(!mkdir(base, 0700), "%s: %s", base, strerror(errno));
}

static void make_node(struct party *p, uint32_t k)
{
    char size[64];

    CHECK(mkdir(p->root[k], 0700) == 0 || errno == EEXIST, "%s: %s", p->root[k], strerror(errno));
    if (!own_mounts)
        return;
    snprintf(size, sizeof(size), "size=%um,mode=700", p->mib);
    CHECK(mount("hearth", p->root[k], "tmpfs", 0, size) == 0, "mount: %s", strerror(errno));
}

/* For people: HEARTH_TEST_LOGS=1. */
static void show_log(uint32_t node)
{
    char path[256], line[4096];
    FILE *f = NULL;

    party_path(at_end, node, ".hearth/log", path, sizeof(path));
    if (getenv("HEARTH_TEST_LOGS"))
        f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        fprintf(stderr, "n%u %s", node, line);
    if (f)
        fclose(f);
}

/* Our mounts end with our last process; the empty directories are seen by all. */
static void clean_up(void)
{
    if (!at_end || getpid() != whose)
        return;
    for (uint32_t k = 0; k < at_end->nodes; k++) {
        show_log(k);
        party_kill_engine(at_end, k);
        if (own_mounts)
            umount2(at_end->root[k], MNT_DETACH);
    }
    party_find(at_end->base, remove_it, NULL);
    rmdir(at_end->base);
}

void party_open(struct party *p, uint32_t nodes, uint32_t ranks, unsigned mib)
{
    struct hearth_opts base = HEARTH_OPTS_INIT;
    static char engine[512];
    const char *bin = getenv("HEARTH_TEST_BIN");

    if (at_end)
        clean_up(); /* the party before this one */
    *p = (struct party){ .nodes = nodes, .ranks = ranks, .mib = mib, .bytes = 1 << 20 };
    own_mounts = geteuid() == 0 && !unshare(CLONE_NEWNS) &&
                 !mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL);
    base_of(own_mounts, getpid(), p->base, sizeof(p->base));
    make_base(p->base);
    for (uint32_t k = 0; k < nodes; k++) {
        snprintf(p->root[k], sizeof(p->root[k]), "%s/n%u", p->base, k);
        snprintf(p->name[k], sizeof(p->name[k]), "n%u", k);
        make_node(p, k);
    }
    base.job = "job";
    base.transport = "tcp"; /* what auto would ask first takes time */
    base.world = ranks;
    base.allow_degraded = nodes == 1;
    base.open_ms = base.recover_ms = base.save_ms = 20000;
    base.heartbeat_ms = 200, base.dead_ms = 2000, base.stall_ms = 2000;
    base.linger_s = 30; /* a case that is killed leaves no engine for long */
    base.any_root = !own_mounts;
    if (bin && snprintf(engine, sizeof(engine), "%s/hearthd", bin) > 0)
        base.engine = engine;
    p->opts = base;
    at_end = p;
    if (!whose)
        atexit(clean_up);
    whose = getpid();
}

void party_path(const struct party *p, uint32_t node, const char *rest, char *out, size_t len)
{
    snprintf(out, len, "%s/job/%s", p->root[node], rest);
}

pid_t party_engine(const struct party *p, uint32_t node)
{
    pid_t pid = 0;

    engines_find(p->root[node], NULL, &pid, 1);
    return pid;
}

void party_wait_stopped(const struct party *p, uint32_t node)
{
    uint64_t until = now_ms() + 15000;
    char path[256];

    party_path(p, node, ".hearth/stopped", path, sizeof(path));
    while (access(path, F_OK) || !engines_stopped(p->root[node], NULL)) {
        CHECK(now_ms() < until, "the engine of n%u did not come to its point", node);
        nap_ms(2);
    }
}

void party_kill_engine(const struct party *p, uint32_t node)
{
    if (engines_signal(p->root[node], NULL, SIGKILL) < 0)
        fprintf(stderr, "the engine below %s was killed and has not ended\n", p->root[node]);
}

void party_lose_node(struct party *p, uint32_t node)
{
    for (uint32_t r = 0; r < p->ranks; r++)
        if (p->seat[r].node == node)
            party_kill_rank(p, r);
    party_kill_engine(p, node);
    if (own_mounts)
        CHECK(umount2(p->root[node], MNT_DETACH) == 0, "umount: %s", strerror(errno));
    else
        party_find(p->root[node], remove_it, NULL);
    make_node(p, node);
    p->name[node][0]++; /* a machine of another name */
}

int party_log_has(const struct party *p, uint32_t node, const char *text)
{
    char path[256], line[4096];
    int found = 0;
    FILE *f;

    party_path(p, node, ".hearth/log", path, sizeof(path));
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        found += strstr(line, text) != NULL;
    if (f)
        fclose(f);
    return found;
}

uint64_t party_free_bytes(const struct party *p, uint32_t node)
{
    struct statvfs fs;

    CHECK(statvfs(p->root[node], &fs) == 0, "%s: %s", p->root[node], strerror(errno));
    return (uint64_t)fs.f_bavail * fs.f_frsize;
}
