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
    char path[64];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%.20s/%.20s", pid, name);
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

static int is_dead(const char *pid)
{
    char text[512];
    const char *state;

    if (read_proc(pid, "stat", text, sizeof(text)) <= 0)
        return 1;
    state = strrchr(text, ')');
    return !state || state[2] == 'Z' || state[2] == 'X';
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

static int signal_one(pid_t pid, int sig)
{
    struct pollfd p = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
    int ok;

    if (p.fd < 0)
        return errno == ESRCH ? 0 : -1; /* it has ended by itself since it was found */
    ok = (!kill(pid, sig) || errno == ESRCH) &&
         ((sig != SIGKILL && sig != SIGTERM) || poll(&p, 1, END_MS) > 0);
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
