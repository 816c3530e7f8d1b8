/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of a machine: found, started by hand, stopped. */
#include "cluster.h"
#include "engines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t node_engine(const struct world *w, uint32_t k)
{
    pid_t pid = 0;

    engines_find(w->dir, w->node[k].name, &pid, 1);
    return pid;
}

/* All engines that are there now; an engine that only finds the other's lock counts too. */
int node_engine_signal(struct world *w, uint32_t k, int sig)
{
    int count = engines_signal(w->dir, w->node[k].name, sig);

    if (count < 0)
        return lost(w, "the engine of %s does not heed signal %d", w->node[k].name, sig);
    if (count == 0)
        return lost(w, "machine %s has no engine", w->node[k].name);
    note(w, "signal %d to the engine of %s", sig, w->node[k].name);
    return 0;
}

/* A debugger stops one thread and leaves the others running. The thread that decides is the
 * process's first. */
int node_engine_block(struct world *w, uint32_t k, unsigned ms)
{
    pid_t pid = node_engine(w, k);
    int status = 0;

    if (!pid)
        return 0;
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL))
        return lost(w, "the engine of %s cannot be traced: %s", w->node[k].name, strerror(errno));
    if (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) || waitpid(pid, &status, __WALL) != pid ||
            !WIFSTOPPED(status))
        return lost(w, "the engine's thread of %s does not stop", w->node[k].name);
    note(w, "the thread of the engine of %s stands still for %u ms", w->node[k].name, ms);
    nap_ms(ms);
    if (ptrace(PTRACE_DETACH, pid, NULL, NULL))
        return lost(
                w, "the engine's thread of %s is not let go: %s", w->node[k].name, strerror(errno));
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

static void be_engine(const struct world *w, uint32_t k, const char *variable, const char *value)
{
    const struct node *n = &w->node[k];
    const char *argv[32] = { NULL };
    char program[400];
    int i = 0, null = open("/dev/null", O_RDWR);

    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    setpgid(0, 0);
    if (w->cgroup)
        enter_cgroup(w->cgroup);
    snprintf(program, sizeof(program), "%s/hearthd", w->bin);
    argv[i++] = program;
    argv[i++] = "--root", argv[i++] = n->root;
    argv[i++] = "--job", argv[i++] = "job";
    argv[i++] = "--node", argv[i++] = n->name;
    argv[i++] = "--bind", argv[i++] = n->bind;
    argv[i++] = "--transport", argv[i++] = w->transport;
    if (w->provider)
        argv[i++] = "--provider", argv[i++] = w->provider;
    if (!strcmp(w->transport, "ucx") &&
            getenv("HEARTH_UCX_LIBRARY")) /* another release than the machine's */
        argv[i++] = "--ucx-library", argv[i++] = getenv("HEARTH_UCX_LIBRARY");
    argv[i++] = "--linger", argv[i++] = "600";
    if (w->key[0])
        argv[i++] = "--key-file", argv[i++] = w->key;
    if (!w->key[0] || w->trusted)
        argv[i++] = "--network", argv[i++] = "trusted"; /* of bridges of our own */
    if (w->strong)
        argv[i++] = "--integrity", argv[i++] = "strong";
    if (!w->namespaces)
        argv[i++] = "--any-root";
    if (variable)
        setenv(variable, value, 1);
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

int node_engine_start(struct world *w, uint32_t k, const char *variable, const char *value)
{
    int ready = node_log_has(w, k, " engine-ready ");
    char path[300];
    pid_t pid;

#ifndef HEARTH_POINTS
    if (variable)
        return SKIPPED; /* this build's engine heeds no test */
#endif
    node_path(w, k, ".hearth/stopped", path, sizeof(path));
    unlink(path);
    note(w, "engine of %s started by hand%s%s %s", w->node[k].name, variable ? ": " : "",
            variable ? variable : "", variable ? value : "");
    pid = node_fork(w, k);
    if (pid == 0) { /* its parent is to be the machine's init, not us */
        if (fork() == 0)
            be_engine(w, k, variable, value);
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return pid > 0 ? wait_for_start(w, k, ready)
                   : lost(w, "cannot start an engine on %s", w->node[k].name);
}

int node_remove(struct world *w, uint32_t k, uint64_t step, int *out_status)
{
    char program[400], save[64];
    int status = -1;
    pid_t pid;

    if (node_engine(w, k))
        TRY(node_engine_signal(w, k, SIGKILL));
    snprintf(program, sizeof(program), "%s/hearth", w->bin);
    snprintf(save, sizeof(save), "job/step-%lu_ckpt", (unsigned long)step);
    pid = node_fork(w, k);
    if (pid == 0) {
        dup2(fileno(w->log), 1);
        dup2(fileno(w->log), 2);
        execl(program, program, "rm", "--root", w->node[k].root, save, NULL);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) >= 126)
        return lost(w, "hearth rm cannot be run on %s", w->node[k].name);
    *out_status = WEXITSTATUS(status);
    note(w, "hearth rm %s on %s: status %d", save, w->node[k].name, *out_status);
    return 0;
}

int node_hearth(struct world *w, uint32_t k, const char *const args[], char *out, size_t len,
        int *out_status)
{
    char program[400], path[300];
    const char *argv[12] = { program };
    int status = -1, fd;
    ssize_t n;
    pid_t pid;

    snprintf(program, sizeof(program), "%s/hearth", w->bin);
    snprintf(path, sizeof(path), "%s/printed", w->dir);
    for (size_t i = 0; args[i]; i++)
        argv[i + 1] = args[i];
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    pid = fd < 0 ? -1 : node_fork(w, k);
    if (pid == 0) {
        dup2(fd, 1);
        dup2(fileno(w->log), 2);
        setenv("HEARTH_ROOT", w->node[k].root, 1);
        execv(program, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    n = fd < 0 ? -1 : pread(fd, out, len - 1, 0);
    out[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
    note(w, "hearth %s on %s: %s", args[0], w->node[k].name, out);
    if (pid < 0 || n < 0 || !WIFEXITED(status) || WEXITSTATUS(status) >= 126)
        return lost(w, "hearth %s cannot be run on %s", args[0], w->node[k].name);
    *out_status = WEXITSTATUS(status);
    return 0;
}

int node_why(struct world *w, uint32_t k, uint64_t step, char *out, size_t len)
{
    char number[24];
    const char *const args[] = { "why", "job", number, NULL };
    int status;

    snprintf(number, sizeof(number), "%lu", (unsigned long)step);
    TRY(node_hearth(w, k, args, out, len, &status));
    return status || !out[0] ? lost(w, "hearth why has no answer on %s", w->node[k].name) : 0;
}

int node_stopped(const struct world *w, uint32_t k)
{
    char path[300];

    node_path(w, k, ".hearth/stopped", path, sizeof(path));
    return access(path, F_OK) == 0 && engines_stopped(w->dir, w->node[k].name);
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

/* What an engine said as it crashed, on one line: what stands before it, which is a library's own
 * word, the line of engine-crashed, and where it stood; the last crash of a machine. */
static void last_words_of(const struct world *w, uint32_t k, char *out, size_t len)
{
    char path[300], line[1024], before[1024] = "";
    unsigned calls = 0;
    FILE *f;

    node_path(w, k, ".hearth/log", path, sizeof(path));
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        const char *said = strstr(line, "error engine-crashed "), *file = strrchr(line, '/');
        size_t n = strlen(out);

        line[strcspn(line, "\n")] = '\0';
        if (said)
            snprintf(out, len, "; %s: %s: %s", w->node[k].name, before, said), calls = 20;
        else if (calls && calls-- && strstr(line, "[0x"))
            snprintf(out + n, len - n, " %s", file ? file + 1 : line);
        snprintf(before, sizeof(before), "%s", line);
    }
    if (f)
        fclose(f);
}

void node_last_words(const struct world *w, char *out, size_t len)
{
    char one[1200];
    size_t n = 0;

    out[0] = '\0';
    for (uint32_t k = 0; k < NODES_MAX; k++) {
        one[0] = '\0';
        if (w->node[k].up)
            last_words_of(w, k, one, sizeof(one));
        n += (size_t)snprintf(out + n, len - n, "%s", one);
        n = n < len ? n : len - 1;
    }
}
