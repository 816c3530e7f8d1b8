/* SPDX-License-Identifier: Apache-2.0 */
#include "engines.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ENGINES_MAX 64
#define END_MS      10000

/* The value of an option in a command line of NUL-ended words. */
static const char *option_of(const char *words, size_t len, const char *name)
{
    for (size_t i = 0; i < len; i += strlen(words + i) + 1) {
        const char *value = words + i + strlen(words + i) + 1;

        if (!strcmp(words + i, name) && value < words + len)
            return value;
    }
    return NULL;
}

static int is_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    return !strncmp(path, dir, len) && (path[len] == '\0' || path[len] == '/');
}

static ssize_t read_proc(const char *pid, const char *name, char *out, size_t len)
{
    char path[80];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%.40s/%.20s", pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, out, len - 1);
    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n;
}

static int is_engine(const char *pid, const char *dir, const char *node)
{
    const char *root, *name;
    char words[4096];
    ssize_t len = read_proc(pid, "cmdline", words, sizeof(words));

    if (len <= 0)
        return 0;
    name = strrchr(words, '/');
    if (strcmp(name ? name + 1 : words, "hearthd") != 0)
        return 0;
    root = option_of(words, (size_t)len, "--root");
    name = option_of(words, (size_t)len, "--node");
    return root && is_below(root, dir) && (!node || (name && !strcmp(name, node)));
}

/* R, S, T and so on, of a process or "PID/task/TID"; X: there is none. */
static char state_of(const char *pid)
{
    char text[512];
    const char *end = read_proc(pid, "stat", text, sizeof(text)) > 0 ? strrchr(text, ')') : NULL;

    return end && end[1] ? end[2] : 'X';
}

static int is_dead(const char *pid)
{
    char state = state_of(pid);

    return state == 'Z' || state == 'X';
}

int engines_find(const char *dir, const char *node, pid_t *pid, int max)
{
    DIR *d = opendir("/proc");
    struct dirent *e;
    int count = 0;

    while (d && (e = readdir(d))) {
        if (!isdigit((unsigned char)e->d_name[0]) || !is_engine(e->d_name, dir, node) ||
                is_dead(e->d_name))
            continue;
        if (count < max)
            pid[count] = (pid_t)strtol(e->d_name, NULL, 10);
        count++;
    }
    if (d)
        closedir(d);
    return count;
}

/* A process lives, and all its threads are in this state. */
static int threads_are(pid_t pid, char state)
{
    char path[64];
    struct dirent *e;
    int found = 0, others = 0;
    DIR *d;

    snprintf(path, sizeof(path), "/proc/%ld/task", (long)pid);
    d = opendir(path);
    while (d && !others && (e = readdir(d))) {
        char thread[64], is;

        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        snprintf(thread, sizeof(thread), "%ld/task/%.16s", (long)pid, e->d_name);
        is = state_of(thread);
        found += is == state;
        others += is != state && is != 'X' && is != 'Z'; /* those have ended */
    }
    if (d)
        closedir(d);
    return found && !others;
}

/* Or has ended. */
static int stops(pid_t pid, struct pollfd *ends)
{
    for (int i = 0; i < END_MS; i++)
        if (threads_are(pid, 'T') || poll(ends, 1, 1) > 0)
            return 1;
    return 0;
}

static int signal_one(pid_t pid, int sig)
{
    struct pollfd p = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
    int ok;

    if (p.fd < 0)
        return errno == ESRCH ? 0 : -1; /* it has ended by itself since it was found */
    ok = (!kill(pid, sig) || errno == ESRCH) &&
         ((sig != SIGKILL && sig != SIGTERM) || poll(&p, 1, END_MS) > 0) &&
         (sig != SIGSTOP || stops(pid, &p));
    close(p.fd);
    waitpid(pid, NULL, WNOHANG); /* where we have adopted it */
    return ok ? 0 : -1;
}

int engines_signal(const char *dir, const char *node, int sig)
{
    pid_t pid[ENGINES_MAX];
    int count = engines_find(dir, node, pid, ENGINES_MAX), rc = count;

    for (int i = 0; i < count && i < ENGINES_MAX; i++)
        if (signal_one(pid[i], sig))
            rc = -1;
    return rc;
}

/* How many there are, and of them those whose threads are all in this state. */
static int count_in(const char *dir, const char *node, char state, int *out_in)
{
    pid_t pid[ENGINES_MAX];
    int count = engines_find(dir, node, pid, ENGINES_MAX);

    *out_in = 0;
    for (int i = 0; i < count && i < ENGINES_MAX; i++)
        *out_in += threads_are(pid[i], state);
    return count;
}

int engines_stopped(const char *dir, const char *node)
{
    int stopped;

    count_in(dir, node, 'T', &stopped);
    return stopped;
}

int engines_settle(const char *dir, const char *node)
{
    const struct timespec between = { .tv_nsec = 3000000 };
    int looks = 0; /* in a row: one that sleeps may be about to wake by itself */

    for (int i = 0; looks < 5; i++) {
        int asleep, count = count_in(dir, node, 'S', &asleep);

        if (i == END_MS / 3)
            return -1;
        looks = count && asleep == count ? looks + 1 : 0;
        nanosleep(&between, NULL);
    }
    return 0;
}
