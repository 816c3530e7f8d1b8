/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes: one waits to be reached, the other reaches it and obeys orders; both seen from
 * here. */
#include "bench.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Its other ends of pipes are closed with the parent's. */
pid_t peers_fork(void)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid < 0)
        die("no process");
    if (!pid)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

void peers_start(struct peers *p, void (*owner)(const void *arg, int out),
        void (*dialler)(const void *arg, int address, int in, int out), const void *arg)
{
    int address[2], in[2], out[2];

    if (pipe(address) || pipe(in) || pipe(out))
        die("no pipe");
    if ((p->owner = peers_fork()) == 0) {
        owner(arg, address[1]);
        _exit(0);
    }
    close(address[1]);
    if ((p->dialler = peers_fork()) == 0) {
        close(in[1]);
        dialler(arg, address[0], in[0], out[1]);
        _exit(0);
    }
    close(address[0]);
    close(in[0]);
    close(out[1]);
    p->to = in[1];
    p->from = out[0];
}

/* All threads that it has now. */
static void threads_place(pid_t pid, const cpu_set_t *where)
{
    char path[64];
    struct dirent *e;
    DIR *tasks;

    snprintf(path, sizeof(path), "/proc/%ld/task", (long)pid);
    tasks = opendir(path);
    if (!tasks)
        die("process %ld is gone", (long)pid);
    while ((e = readdir(tasks)))
        if (e->d_name[0] != '.')
            sched_setaffinity((pid_t)atol(e->d_name), sizeof(*where), where);
    closedir(tasks);
}

void place(pid_t pid, int which)
{
    cpu_set_t all, one;
    int n;

    if (sched_getaffinity(0, sizeof(all), &all))
        die("which processors there are is not known");
    n = which % CPU_COUNT(&all);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all) && n-- == 0)
            CPU_SET(i, &one);
    threads_place(pid, &one);
}

void peers_place(const struct peers *p)
{
    place(p->owner, 0);
    place(p->dialler, 1);
}

void peers_order(const struct peers *p, const void *order, size_t len)
{
    if (write(p->to, order, len) != (ssize_t)len)
        die("a process is gone");
}

void peers_answer(const struct peers *p, void *out, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = read(p->from, (char *)out + at, len - at);

        if (n <= 0)
            die("a process is gone");
        at += (size_t)n;
    }
}

double cpu_of(pid_t pid)
{
    struct timespec t;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
        die("process %ld is gone", (long)pid);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double peers_cpu_s(const struct peers *p)
{
    return cpu_of(p->owner) + cpu_of(p->dialler);
}

static uint64_t sleeps_of(pid_t pid)
{
    char path[64], line[128];
    unsigned long long n = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f) &&
            sscanf(line, "voluntary_ctxt_switches: %llu", &n) != 1)
        continue;
    if (f)
        fclose(f);
    return n;
}

uint64_t peers_sleeps(const struct peers *p)
{
    return sleeps_of(p->owner) + sleeps_of(p->dialler);
}

static struct took pull_as(const struct peers *p, unsigned count, const char *order)
{
    struct took took = { 0 };

    for (unsigned i = 0; i < count; i++)
        took.cpu_s -= peers_cpu_s(&p[i]);
    for (unsigned i = 0; i < count; i++)
        peers_order(&p[i], order, 1);
    for (unsigned i = 0; i < count; i++) {
        double s;

        peers_answer(&p[i], &s, sizeof(s));
        took.s = s > took.s ? s : took.s;
    }
    for (unsigned i = 0; i < count; i++)
        took.cpu_s += peers_cpu_s(&p[i]);
    return took;
}

struct took peers_pull(const struct peers *p)
{
    return pull_as(p, 1, "p");
}

struct took peers_pull_all(const struct peers *p, unsigned count)
{
    return pull_as(p, count, "p");
}

struct took peers_pull_into_new(const struct peers *p)
{
    return pull_as(p, 1, "n");
}

void peers_end(struct peers *p)
{
    kill(p->dialler, SIGKILL);
    kill(p->owner, SIGKILL);
    waitpid(p->dialler, NULL, 0);
    waitpid(p->owner, NULL, 0);
    close(p->to);
    close(p->from);
}
