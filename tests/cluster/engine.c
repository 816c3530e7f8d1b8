/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of a machine: found among the processes by its command line, started by hand, stopped. */
#include "cluster.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENGINES_MAX 32

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

/* 1: this process is an engine with its root under dir, of that node (NULL: any). */
static int is_engine(const char *pid, const char *dir, const char *node)
{
    char path[300], words[4096];
    const char *root, *name;
    ssize_t len;
    int fd;

    snprintf(path, sizeof(path), "/proc/%.20s/cmdline", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    len = fd < 0 ? 0 : read(fd, words, sizeof(words) - 1);
    if (fd >= 0)
        close(fd);
    if (len <= 0)
        return 0;
    words[len] = '\0';
    name = strrchr(words, '/');
    if (strcmp(name ? name + 1 : words, "hearthd") != 0)
        return 0;
    root = option_of(words, (size_t)len, "--root");
    name = option_of(words, (size_t)len, "--node");
    return root && !strncmp(root, dir, strlen(dir)) && (!node || (name && !strcmp(name, node)));
}

static int is_dead(const char *pid)
{
    char path[64], text[512] = "";
    const char *state;
    int fd;

    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 1;
    if (read(fd, text, sizeof(text) - 1) <= 0)
        text[0] = '\0';
    close(fd);
    state = strrchr(text, ')');
    return !state || state[2] == 'Z' || state[2] == 'X';
}

/* The engines below dir, of that node (NULL: any): how many, the first ones in pid[max]. */
static int search(const char *dir, const char *node, pid_t *pid, int max)
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

int sweep(const char *dir, int sig)
{
    pid_t pid[ENGINES_MAX];
    int count = search(dir, NULL, pid, ENGINES_MAX);

    for (int i = 0; i < count && i < ENGINES_MAX; i++)
        kill(pid[i], sig);
    return count;
}

pid_t node_engine(const struct world *w, uint32_t k)
{
    pid_t pid = 0;

    search(w->dir, w->node[k].name, &pid, 1);
    return pid;
}

/* All its threads, and with them its lock and its sockets. */
static int has_ended(int pidfd, unsigned ms)
{
    struct pollfd p = { .fd = pidfd, .events = POLLIN };

    return poll(&p, 1, (int)ms) > 0;
}

static int signal_one(struct world *w, uint32_t k, pid_t pid, int sig)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), ok;

    if (pidfd < 0 && errno == ESRCH)
        return 0; /* by itself, since it was found */
    note(w, "signal %d to the engine of %s", sig, w->node[k].name);
    ok = pidfd >= 0 && (!kill(pid, sig) || errno == ESRCH) &&
         ((sig != SIGKILL && sig != SIGTERM) || has_ended(pidfd, 10000));
    if (pidfd >= 0)
        close(pidfd);
    waitpid(pid, NULL, WNOHANG); /* where we have adopted it */
    return ok ? 0 : lost(w, "the engine of %s does not heed signal %d", w->node[k].name, sig);
}

/* All that are there now: one that only finds the other's lock is an engine too. */
int node_engine_signal(struct world *w, uint32_t k, int sig)
{
    pid_t pid[ENGINES_MAX];
    int count = search(w->dir, w->node[k].name, pid, ENGINES_MAX);

    if (!count)
        return lost(w, "machine %s has no engine", w->node[k].name);
    for (int i = 0; i < count && i < ENGINES_MAX; i++)
        TRY(signal_one(w, k, pid[i], sig));
    return 0;
}

static void enter_cgroup(const char *cgroup)
{
    char path[300];
    int fd;

    snprintf(path, sizeof(path), "%.250s/cgroup.procs", cgroup);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1)
        _exit(126);
    close(fd);
}

static void be_engine(const struct world *w, uint32_t k, const char *option, const char *value)
{
    const struct node *n = &w->node[k];
    const char *argv[24] = { NULL };
    char program[400];
    int i = 0, null = open("/dev/null", O_RDWR);

    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    setsid();
    if (w->cgroup)
        enter_cgroup(w->cgroup);
    snprintf(program, sizeof(program), "%s/hearthd", w->bin);
    argv[i++] = program;
    argv[i++] = "--root", argv[i++] = n->root;
    argv[i++] = "--job", argv[i++] = "job";
    argv[i++] = "--node", argv[i++] = n->name;
    argv[i++] = "--bind", argv[i++] = n->address;
    argv[i++] = "--transport", argv[i++] = w->transport;
    argv[i++] = "--linger", argv[i++] = "600";
    argv[i++] = "--insecure";
    if (!w->namespaces)
        argv[i++] = "--any-root";
    if (option)
        argv[i++] = option, argv[i++] = value;
    execv(program, (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* It serves, stands at its point, or has ended already: no rank's engine can come first then. */
static int wait_for_start(struct world *w, uint32_t k, int ready)
{
    uint64_t begun = now_ms(), until = begun + 10000;
    int seen = 0;

    while (node_log_has(w, k, " engine-ready ") <= ready && !node_stopped(w, k)) {
        pid_t pid = node_engine(w, k);

        if (!pid && (seen || now_ms() >= begun + 1000))
            return 0;
        seen |= pid != 0;
        if (now_ms() >= until)
            return lost(w, "the engine of %s does not come up", w->node[k].name);
        nap_ms(5);
    }
    return 0;
}

int node_engine_start(struct world *w, uint32_t k, const char *option, const char *value)
{
    int ready = node_log_has(w, k, " engine-ready ");
    char path[300];
    pid_t pid;

    node_path(w, k, ".hearth/stopped", path, sizeof(path));
    unlink(path);
    note(w, "engine of %s started by hand%s%s %s", w->node[k].name, option ? ": " : "",
            option ? option : "", option ? value : "");
    pid = node_fork(w, k);
    if (pid == 0) { /* its parent is to be the machine's init, not us */
        if (fork() == 0)
            be_engine(w, k, option, value);
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return pid > 0 ? wait_for_start(w, k, ready)
                   : lost(w, "cannot start an engine on %s", w->node[k].name);
}

int node_stopped(const struct world *w, uint32_t k)
{
    char path[300];

    node_path(w, k, ".hearth/stopped", path, sizeof(path));
    return access(path, F_OK) == 0;
}

int node_log_has(struct world *w, uint32_t k, const char *text)
{
    char path[300], line[4096];
    int found = 0;
    FILE *f;

    node_path(w, k, ".hearth/log", path, sizeof(path));
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        found += strstr(line, text) != NULL;
    if (f)
        fclose(f);
    return found;
}

int node_log_wait(struct world *w, uint32_t k, const char *text, unsigned ms)
{
    uint64_t until = now_ms() + ms;

    while (!node_log_has(w, k, text)) {
        if (now_ms() >= until)
            return lost(w, "the engine of %s did not say '%s' in %u ms", w->node[k].name, text, ms);
        nap_ms(10);
    }
    return 0;
}
