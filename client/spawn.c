/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine of our own.
 *
 * As a process it must not be the trainer's child: a trainer that waits for "any child" would
 * find it, and a launcher that ends a process group would end it. So a shell in a session of its
 * own starts it in the background, tells its pid through a pipe and is gone; the pid's descriptor
 * says whether it lives, and what it prints goes to a memfd, for a sentence if it ends at once.
 *
 *     rank --posix_spawn, setsid--> sh --&--> hearthd (orphan)       pid ->| pipe |-> rank
 *
 * As a thread it is a module opened for the first handle of a job in this process and stopped
 * with the last one.
 */
#include "client.h"

#include "core/local/engine_module.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef HEARTH_MODULE_DIR
#define HEARTH_MODULE_DIR "/usr/lib/hearth"
#endif

extern char **environ;

static void arg(struct hth_args *a, const char *name, const char *value)
{
    if (!value)
        return;
    a->argv[a->argc++] = name;
    a->argv[a->argc++] = value;
}

/* What is not 0, which is hearthd's default, too. */
static void arg_number(
        struct hth_args *a, const struct hth_option *option, uint64_t v, char text[24])
{
    if (!v)
        return;
    snprintf(text, 24, "%" PRIu64, v);
    if (option->kind == HTH_OPTION_SWITCH)
        a->argv[a->argc++] = option->flag;
    else
        arg(a, option->flag,
                option->kind == HTH_OPTION_WORD ? hth_option_word_of(option, (uint32_t)v) : text);
}

void hth_args_make(struct hth_args *a, const struct hearth *h, const char *program)
{
    *a = (struct hth_args){ .argc = 0 };
    a->argv[a->argc++] = program;
    for (size_t i = 0; i < HTH_OPTIONS; i++) {
        const struct hth_option *option = &hth_options[i];

        if (option->hearthd != HTH_OPTION_GIVEN)
            continue;
        if (hth_option_is_text(option))
            arg(a, option->flag, hth_option_text(option, &h->opts));
        else
            arg_number(a, option, hth_option_number(option, &h->opts), a->number[i]);
    }
}

int hth_own_dir(char *out, size_t len)
{
    Dl_info info;
    char path[PATH_MAX];
    char *slash;

    if (!dladdr((const void *)(uintptr_t)&hth_own_dir, &info) || !info.dli_fname ||
            !realpath(info.dli_fname, path)) {
        ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

        if (n <= 0)
            return HEARTH_ENOENT;
        path[n] = '\0';
    }
    slash = strrchr(path, '/');
    if (!slash)
        return HEARTH_ENOENT;
    *slash = '\0';
    return snprintf(out, len, "%s", path) < (int)len ? HEARTH_OK : HEARTH_ENOENT;
}

/* hearthd: as told, beside us, in ../bin, or by the shell's PATH. */
static int find_program(const struct hearth *h, char *out, size_t len, struct hearth_error *err)
{
    static const char *const places[] = { "%s/hearthd", "%s/../bin/hearthd", "%s/bin/hearthd" };
    char dir[PATH_MAX];

    if (h->opts.engine) {
        if (access(h->opts.engine, X_OK) != 0)
            return hth_fail(err, HEARTH_EENGINE, errno,
                    "engine '%s' cannot be run: %s: name the hearthd program", h->opts.engine,
                    strerror(errno));
        snprintf(out, len, "%s", h->opts.engine);
        return HEARTH_OK;
    }
    for (size_t i = 0; i < 3 && !hth_own_dir(dir, sizeof(dir)); i++) {
        const char *rest = places[i] + 2;

        if (snprintf(out, len, "%s%s", dir, rest) < (int)len && access(out, X_OK) == 0)
            return HEARTH_OK;
    }
    snprintf(out, len, "hearthd");
    return HEARTH_OK;
}

static int start_shell(char *const argv[], int out, int words, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t all, none;
    int e;

    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_adddup2(&files, words, 2);
    posix_spawn_file_actions_addclosefrom_np(&files, 3);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(
            &attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    e = posix_spawn(pid, "/bin/sh", &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return e;
}

/* What the shell wrote: the pid of the engine; 0: nothing in time. */
static pid_t read_pid(int fd)
{
    uint64_t until = hth_until_ms(10000);
    char text[32] = "";
    size_t n = 0;

    while (n < sizeof(text) - 1 && !strchr(text, '\n')) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        uint64_t now = hth_mono_ms();
        ssize_t got;

        if (now >= until || poll(&p, 1, (int)(until - now)) <= 0)
            continue;
        got = read(fd, text + n, sizeof(text) - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
        if (hth_mono_ms() >= until)
            break;
    }
    return (pid_t)strtol(text, NULL, 10);
}

int hth_spawn(const struct hearth *h, int *out_pidfd, int *out_words, struct hearth_error *err)
{
    static const char script[] = "\"$0\" \"$@\" >/dev/null & echo $!";
    const char *argv[2 * HTH_OPTIONS + 8] = { "sh", "-c", script };
    char program[PATH_MAX + 32];
    struct hth_args args;
    int ends[2], words, e, rc;
    pid_t shell, engine;

    if ((rc = find_program(h, program, sizeof(program), err)))
        return rc;
    hth_args_make(&args, h, program);
    memcpy(argv + 3, args.argv, sizeof(args.argv[0]) * (size_t)args.argc);
    words = hth_memfd("hearthd-words", "", 0);
    if (words < 0 || pipe2(ends, O_CLOEXEC) != 0) {
        e = errno;
        if (words >= 0)
            close(words);
        return hth_fail(err, HEARTH_EENGINE, e, "start %s: %s", program, strerror(e));
    }
    e = start_shell((char *const *)(uintptr_t)argv, ends[1], words, &shell);
    close(ends[1]);
    engine = e ? 0 : read_pid(ends[0]);
    close(ends[0]);
    if (!e)
        while (waitpid(shell, NULL, 0) < 0 && errno == EINTR)
            continue;
    if (engine <= 0) {
        close(words);
        return hth_fail(err, HEARTH_EENGINE, e, "start %s: %s", program,
                e ? strerror(e) : "the shell that should start it did not");
    }
    *out_words = words;
    *out_pidfd = (int)syscall(SYS_pidfd_open, engine, 0);
    if (*out_pidfd < 0 && errno != ESRCH)
        *out_pidfd = HTH_PID_UNSEEN;
    return HEARTH_OK;
}

/* ---- in this process ------------------------------------------------------------------------ */

struct hth_spawned {
    struct hth_spawned *next;
    char *records; /* whose */
    unsigned users;
    const struct hth_engine_module *module;
    void *engine;
};

static struct {
    pthread_mutex_t lock;
    struct hth_spawned *all;
} inside = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int open_module(
        const struct hth_engine_module **out, char *dir, size_t len, struct hearth_error *err)
{
    char own[PATH_MAX], path[PATH_MAX + 64];
    const char *const places[] = { "", "/../lib", "/../lib/hearth", NULL };
    const struct hth_engine_module *m = NULL;
    void *so = NULL;

    if (hth_own_dir(own, sizeof(own)))
        own[0] = '\0';
    for (size_t i = 0; i < 4 && !so; i++) {
        if (places[i])
            snprintf(dir, len, "%s%s", own, places[i]);
        else
            snprintf(dir, len, "%s", HEARTH_MODULE_DIR);
        snprintf(path, sizeof(path), "%s/" HTH_ENGINE_MODULE_FILE, dir);
        if (access(path, R_OK) != 0)
            continue;
        so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!so) {
            hth_fail(err, HEARTH_EENGINE, 0, "%s: %s", path, dlerror());
            return HEARTH_EENGINE;
        }
    }
    if (so)
        m = dlsym(so, HTH_ENGINE_MODULE_SYMBOL);
    if (!m || m->abi != HTH_ENGINE_MODULE_ABI) {
        hth_fail(err, HEARTH_EENGINE, 0,
                "start = in_process needs " HTH_ENGINE_MODULE_FILE
                " of this library's version beside it or in " HEARTH_MODULE_DIR
                ": install it, or use start = auto");
        return HEARTH_EENGINE;
    }
    *out = m;
    return HEARTH_OK;
}

static int start_locked(struct hearth *h, struct hth_spawned *s, struct hearth_error *err)
{
    char dir[PATH_MAX + 32];
    struct hth_args args;
    int rc;

    if ((rc = open_module(&s->module, dir, sizeof(dir), err)))
        return rc;
    hth_args_make(&args, h, "hearthd");
    arg(&args, "--module-dir", dir);
    return s->module->start(args.argc, args.argv, &s->engine, err);
}

static struct hth_spawned *find_locked(const struct hearth *h)
{
    struct hth_spawned *s = inside.all;

    while (s && strcmp(s->records, h->records) != 0)
        s = s->next;
    return s;
}

void hth_inside_share(struct hearth *h)
{
    if (h->opts.start != HEARTH_START_IN_PROCESS || h->inside)
        return;
    pthread_mutex_lock(&inside.lock);
    h->inside = find_locked(h);
    if (h->inside)
        h->inside->users++;
    pthread_mutex_unlock(&inside.lock);
}

int hth_inside_start(struct hearth *h, struct hearth_error *err)
{
    struct hth_spawned *s;
    int rc = HEARTH_OK;

    if (h->inside)
        return HEARTH_OK;
    pthread_mutex_lock(&inside.lock);
    s = find_locked(h);
    if (!s) {
        s = calloc(1, sizeof(*s));
        if (s)
            s->records = strdup(h->records);
        rc = s && s->records ? start_locked(h, s, err)
                             : hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an engine");
        if (rc && s) {
            free(s->records);
            free(s);
        } else if (s) {
            s->next = inside.all;
            inside.all = s;
        }
    }
    if (!rc && s) {
        s->users++;
        h->inside = s;
    }
    pthread_mutex_unlock(&inside.lock);
    return rc;
}

void hth_inside_stop(struct hearth *h)
{
    struct hth_spawned *s = h->inside, **at = &inside.all;

    if (!s)
        return;
    h->inside = NULL;
    pthread_mutex_lock(&inside.lock);
    if (--s->users == 0) {
        while (*at != s)
            at = &(*at)->next;
        *at = s->next;
        s->module->stop(s->engine); /* the module itself stays: its threads may still unwind */
        free(s->records);
        free(s);
    }
    pthread_mutex_unlock(&inside.lock);
}
