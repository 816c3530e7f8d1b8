/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine of our own, as a process. It must not be the trainer's child: a trainer that waits for
 * "any child" would find it, and a launcher that ends a process group would end it. So hearthd is
 * started in a process group of its own, goes into the background itself, sends its pid there
 * through a pipe, and the first process ends. A descriptor of that pid shows whether hearthd lives,
 * and its output goes to a memfd, for a sentence if it ends at once.
 *
 *     rank --posix_spawn, setpgid--> hearthd --detach --fork--> hearthd (orphan)       pid ->| pipe |-> rank
 *
 * In the rank's session, though: Linux schedules a session as one (autogroup), and one that sleeps
 * most of the time is left waiting for seconds where others keep all processors busy. hearthd
 * ignores the SIGHUP of a session that ends.
 */
#include "spawn.h"

#include "client/base/clock.h"
#include "client/base/memfd.h"
#include "command.h"
#include "core/base/auth.h"
#include "core/base/full.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define END_MS 1000 /* for the first process to end */

extern char **environ;

#define KEY_FD 3 /* where an engine finds the key that we were given by descriptor */

/* key: a descriptor, or -1. */
static int spawn_start(
        const char *program, char *const argv[], int out, int words, int key, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t all, none;
    int e;

    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_adddup2(&files, words, 0); /* nothing is read there */
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_adddup2(&files, words, 2);
    if (key >= 0)
        posix_spawn_file_actions_adddup2(&files, key, KEY_FD);
    posix_spawn_file_actions_addclosefrom_np(&files, key >= 0 ? KEY_FD + 1 : KEY_FD);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(
            &attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    e = posix_spawn(pid, program, &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return e;
}

/* The pid that hearthd has sent; 0: it ended and sent none; -1: nothing came in time. */
static pid_t spawn_read_pid(int fd, uint64_t until)
{
    char text[32] = "";
    size_t n = 0;

    while (n < sizeof(text) - 1 && !strchr(text, '\n')) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        uint64_t now = hth_mono_ms();
        ssize_t got;

        if (now >= until)
            return -1;
        if (poll(&p, 1, until - now < 1000 ? (int)(until - now) : 1000) <= 0)
            continue;
        got = read(fd, text + n, sizeof(text) - 1 - n);
        if (got == 0)
            break;
        n += got > 0 ? (size_t)got : 0;
    }
    return (pid_t)strtol(text, NULL, 10);
}

/* The first process ends as soon as it has sent the pid. If it does not end, it is killed, and left
 * if even that takes long. */
static void spawn_reap(pid_t first, int in_time)
{
    static const struct timespec nap = { .tv_nsec = 2 * 1000000L };
    uint64_t kill_ms = hth_until_ms(in_time ? END_MS : 0), until = kill_ms + END_MS;
    int killed = 0;

    while (waitpid(first, NULL, WNOHANG) == 0 && hth_mono_ms() < until) {
        if (!killed && hth_mono_ms() >= kill_ms)
            killed = !kill(first, SIGKILL);
        nanosleep(&nap, NULL);
    }
}

/* hearthd's command line: ours, and what is for a process that is started. */
static void spawn_args(struct hth_args *args, const struct hearth *h, const char *program, int key)
{
    hth_args_make(args, h, program);
    args->argv[args->argc++] = "--detach";
    for (int i = 0; key >= 0 && i < args->argc; i++)
        if (args->argv[i] == h->opts.key_file)
            args->argv[i] = "fd:3";
    args->argv[args->argc] = NULL;
}

int hth_spawn(const struct hearth *h, uint64_t until, int *out_pidfd, int *out_words,
        struct hearth_error *err)
{
    int ends[2], words, e, rc, key = h->opts.key_file ? hth_key_fd(h->opts.key_file) : -1;
    char program[PATH_MAX + 32];
    pid_t first, engine;
    struct hth_args args;

    if ((rc = hth_find_program(h, program, sizeof(program), err)))
        return rc;
    spawn_args(&args, h, program, key);
    words = hth_memfd("hearthd-words", "", 0, err);
    if (words < 0)
        return hth_while(err, HEARTH_EENGINE, "start %s", program);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        e = errno;
        close(words);
        return hth_fail(err, HEARTH_EENGINE, e, "start %s: %s%s", program, strerrordesc_np(e),
                hth_limit_text(e));
    }
    e = spawn_start(program, (char *const *)(uintptr_t)args.argv, ends[1], words, key, &first);
    close(ends[1]);
    engine = e ? 0 : spawn_read_pid(ends[0], until);
    close(ends[0]);
    if (!e)
        spawn_reap(first, engine >= 0);
    if (e || engine < 0) {
        close(words);
        return hth_fail(err, HEARTH_EENGINE, e, "start %s: %s%s", program,
                e ? strerrordesc_np(e) : "it did not go into the background within open_ms",
                hth_limit_text(e));
    }
    *out_words = words;
    *out_pidfd = engine ? (int)syscall(SYS_pidfd_open, engine, 0) : -1;
    if (engine && *out_pidfd < 0 && errno != ESRCH)
        *out_pidfd = HTH_PID_UNSEEN;
    return HEARTH_OK;
}
