/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each condition in a pod of its own, several at a time:
 *
 *     pods -> maker, in new namespaces -> process 1: mounts, plant() -> trainer: enter(), the job
 *       ^-------------- a line: works, refused or skipped ----------------'
 *
 * Process 1 ends with its maker, and with it the engine and all mounts. The mount of the root is
 * seen in the pod alone.
 */
#include "pods.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE     6
#define DEADLINE_MS 30000
#define PORT        29801

struct run {
    const struct condition *condition;
    pid_t pid;
    int out;
    uint64_t until;
    char said[1200];
    size_t have;
};

static pid_t pods; /* this program */

static uint64_t clock_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int pod_skip(struct pod *p, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(p->skip, sizeof(p->skip), fmt, args);
    va_end(args);
    return -1;
}

/* ---- in the pod ------------------------------------------------------------------------------ */

static int loopback_up(void)
{
    struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int rc = fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &r);

    if (fd >= 0)
        close(fd);
    return rc;
}

static int pod_mounts(struct pod *p)
{
    const char *options = p->condition->mount ? p->condition->mount : "size=64m,mode=1777";

    if (mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("proc", "/proc", "proc", 0, NULL) ||
            mount("pod", "/mnt", "tmpfs", 0, "size=1m,mode=755") || mkdir(POD_ROOT, 0755) ||
            mount("root", POD_ROOT, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options))
        return pod_skip(p, "a pod's mounts cannot be made: %s", strerror(errno));
    if (loopback_up() || sethostname("pod-0", 5))
        return pod_skip(p, "a pod's network cannot be made: %s", strerror(errno));
    return 0;
}

/* A second pod, or the first of two: a root and a host name of its own. */
static int trainer_apart(struct pod *p)
{
    static const char *const machines[2] = { "machine-0", "machine-1" };
    struct hearth_error err = { 0 };
    struct hearth_bootstrap *b;
    char name[16];

    snprintf(name, sizeof(name), "pod-%u", p->opts.rank);
    if (unshare(CLONE_NEWNS | CLONE_NEWUTS) || sethostname(name, strlen(name)) ||
            mount("root", POD_ROOT, "tmpfs", 0, "size=64m,mode=1777"))
        return pod_skip(p, "two pods cannot be made: %s", strerror(errno));
    if (hearth_bootstrap_tcp("127.0.0.1", PORT, p->opts.rank, p->opts.world, 10000, &b, &err))
        return pod_skip(p, "%.150s", err.text);
    p->opts.bootstrap = b;
    p->opts.machine = machines[p->opts.rank % 2];
    p->opts.allow_degraded = 0;
    return 0;
}

/* The line that says what came of it. */
static void trainer_run(struct pod *p, int out)
{
    char said[1000] = "";
    int refused;

    alarm(DEADLINE_MS / 1000);
    if ((p->opts.world > 1 && trainer_apart(p)) ||
            (p->condition->enter && p->condition->enter(p))) {
        dprintf(out, "skipped %s\n", p->skip);
        return;
    }
    refused = pod_job(p, said, sizeof(said));
    dprintf(out, refused ? "refused %s\n" : "works\n", said);
}

static pid_t trainer_fork(struct pod *p, unsigned rank, int out)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    p->opts.rank = rank;
    trainer_run(p, out);
    _exit(0);
}

/* Both have to work: the line of one that does not, else that of the last. */
static void trainers_run(struct pod *p, int out)
{
    char line[1200];
    int ends[2];

    if (pipe2(ends, O_CLOEXEC))
        return;
    signal(SIGCHLD, SIG_IGN); /* orphans are waited for as well */
    for (unsigned rank = 0; rank < p->opts.world; rank++)
        trainer_fork(p, rank, ends[1]);
    for (unsigned rank = 0; rank < p->opts.world; rank++) {
        ssize_t n = read(ends[0], line, sizeof(line) - 1); /* a line is one write */

        line[n > 0 ? n : 0] = '\0';
        if (strcmp(line, "works\n") != 0)
            break;
    }
    dprintf(out, "%s", line);
}

static void process_one(const struct condition *c, int out)
{
    struct pod p = { .condition = c, .opts = HEARTH_OPTS_INIT, .pods = pods };
    pid_t pid;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    p.opts.root = POD_ROOT;
    p.opts.job = "k";
    p.opts.world = c->ranks ? c->ranks : 1;
    p.opts.allow_degraded = 1;
    p.opts.transport = "tcp";
    p.opts.open_ms = 10000;
    if (pod_mounts(&p) || (c->plant && c->plant(&p))) {
        dprintf(out, "skipped %s\n", p.skip);
        return;
    }
    if (c->is_first) {
        trainer_run(&p, out);
        return;
    }
    if (c->ranks > 1) {
        trainers_run(&p, out);
        return;
    }
    pid = trainer_fork(&p, 0, out);
    while (pid > 0 && waitpid(pid, NULL, 0) != pid) /* orphans of the trainer's, too */
        continue;
}

static void maker(const struct condition *c, int out)
{
    pid_t pid;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC)) {
        dprintf(out, "skipped namespaces of a pod cannot be made: %s\n", strerror(errno));
        return;
    }
    pid = fork();
    if (pid == 0) {
        process_one(c, out);
        _exit(0);
    }
    close(out);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

/* ---- outside --------------------------------------------------------------------------------- */

static int run_start(struct run *r, const struct condition *c)
{
    int ends[2];

    *r = (struct run){ .condition = c, .until = clock_ms() + DEADLINE_MS };
    if (pipe2(ends, O_CLOEXEC))
        return -1;
    fflush(NULL);
    pods = getpid();
    r->pid = fork();
    if (r->pid == 0) {
        maker(c, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    r->out = ends[0];
    return r->pid < 0;
}

/* 1: the whole line has come, or no more comes. */
static int run_hear(struct run *r)
{
    ssize_t n = read(r->out, r->said + r->have, sizeof(r->said) - 1 - r->have);

    if (n > 0)
        r->have += (size_t)n;
    return n <= 0 || strchr(r->said, '\n') != NULL;
}

/* 0: as its condition wants it. */
static int run_judge(const struct run *r)
{
    const struct condition *c = r->condition;

    if (strncmp(r->said, "skipped ", 8) == 0)
        return 0;
    if (!c->cause)
        return strcmp(r->said, "works") != 0;
    return strncmp(r->said, "refused ", 8) != 0 || !strstr(r->said, c->cause) ||
           !strstr(r->said, c->cure);
}

static int run_end(struct run *r, unsigned count[3])
{
    int wrong;

    r->said[strcspn(r->said, "\n")] = '\0';
    if (!r->said[0])
        snprintf(r->said, sizeof(r->said), "nothing was said within %d s", DEADLINE_MS / 1000);
    wrong = run_judge(r);
    kill(r->pid, SIGKILL);
    freezer_end(getpid(), r->condition);
    waitpid(r->pid, NULL, 0);
    close(r->out);
    count[r->said[0] == 's' ? 2 : r->condition->cause != NULL]++;
    if (strncmp(r->said, "skipped ", 8) == 0)
        printf("[SKIP] pods::%s: %s\n", r->condition->name, r->said + 8);
    else
        printf("pods: %-28s %s%s\n", r->condition->name, wrong ? "FAILED: " : "", r->said);
    if (wrong)
        printf("    wanted: %s%s%s%s\n", r->condition->cause ? "refused, with '" : "works",
                r->condition->cause ? r->condition->cause : "", r->condition->cause ? "', '" : "",
                r->condition->cause ? r->condition->cure : "");
    fflush(stdout);
    return wrong;
}

static int is_chosen(const struct condition *c, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strstr(c->name, argv[i]))
            return 1;
    return argc < 2;
}

static void runs_wait(const struct run *run, unsigned n)
{
    struct pollfd fd[AT_ONCE];
    uint64_t now = clock_ms(), until = now + 1000;

    for (unsigned i = 0; i < n; i++) {
        fd[i] = (struct pollfd){ .fd = run[i].out, .events = POLLIN };
        until = run[i].until < until ? run[i].until : until;
    }
    poll(fd, n, until > now ? (int)(until - now) : 0);
}

int main(int argc, char **argv)
{
    unsigned next = 0, n = 0, count[3] = { 0 }, wrong = 0;
    struct run run[AT_ONCE];

    if (geteuid() != 0) {
        puts("skip: only root can make a pod's namespaces");
        return 77;
    }
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        while (n < AT_ONCE && next < condition_count) {
            const struct condition *c = &conditions[next++];

            if (is_chosen(c, argc, argv) && !run_start(&run[n], c) &&
                    !fcntl(run[n].out, F_SETFL, O_NONBLOCK))
                n++;
        }
        if (!n)
            break;
        runs_wait(run, n);
        for (unsigned i = 0; i < n;) {
            struct pollfd p = { .fd = run[i].out, .events = POLLIN };
            int ready = poll(&p, 1, 0) > 0;

            if ((ready && run_hear(&run[i])) || clock_ms() >= run[i].until) {
                wrong += (unsigned)run_end(&run[i], count);
                run[i] = run[--n];
            } else {
                i++;
            }
        }
    }
    printf("pods: %u conditions: %u work, %u are refused, %u skipped, %u wrong\n",
            count[0] + count[1] + count[2], count[0], count[1], count[2], wrong);
    return wrong || !(count[0] + count[1] + count[2]);
}
