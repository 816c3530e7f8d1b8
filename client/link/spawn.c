/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine of our own, as a process. It must not be the trainer's child: a trainer that waits for
 * "any child" would find it, and a launcher that ends a process group would end it. So a shell in a
 * process group of its own starts it in the background, tells its pid through a pipe and is gone; the
 * pid's descriptor says whether it lives, and what it prints goes to a memfd, for a sentence if it
 * ends at once.
 *
 *     rank --posix_spawn, setpgid--> sh --&--> hearthd (orphan)       pid ->| pipe |-> rank
 *
 * In the rank's session, though: Linux schedules a session as one (autogroup), and one that sleeps most of
 * the time is left waiting for seconds where others keep all processors busy. hearthd ignores the SIGHUP
 * of a session that ends.
 */
#include "spawn.h"

#include "client/base/clock.h"
#include "client/base/memfd.h"
#include "command.h"
#include "core/base/auth.h"
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

#define SHELL_MS 1000 /* for a shell to end */

extern char **environ;

#define KEY_FD 3 /* where an engine finds the key that we were given by descriptor */

/* key: a descriptor, or -1. */
static int shell_start(char *const argv[], int out, int words, int key, pid_t *pid)
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
    if (key >= 0)
        posix_spawn_file_actions_adddup2(&files, key, KEY_FD);
    posix_spawn_file_actions_addclosefrom_np(&files, key >= 0 ? KEY_FD + 1 : KEY_FD);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(
            &attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    e = posix_spawn(pid, "/bin/sh", &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return e;
}

/* What the shell wrote: the pid of the engine; 0: nothing in time. */
static pid_t shell_read_pid(int fd)
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

/* It ends as soon as it has told the pid. One that does not is killed, and left if even that takes long. */
static void shell_reap(pid_t shell)
{
    static const struct timespec nap = { .tv_nsec = 2 * 1000000L };
    uint64_t kill_ms = hth_until_ms(SHELL_MS), until = kill_ms + SHELL_MS;
    int killed = 0;

    while (waitpid(shell, NULL, WNOHANG) == 0 && hth_mono_ms() < until) {
        if (!killed && hth_mono_ms() >= kill_ms)
            killed = !kill(shell, SIGKILL);
        nanosleep(&nap, NULL);
    }
}

int hth_spawn(const struct hearth *h, int *out_pidfd, int *out_words, struct hearth_error *err)
{
    static const char script[] = "\"$0\" \"$@\" >/dev/null & echo $!";
    const char *argv[2 * HTH_OPTIONS + 8] = { "sh", "-c", script };
    char program[PATH_MAX + 32];
    const char *key_file = h->opts.key_file;
    struct hth_args args;
    int ends[2], words, e, rc, key = key_file ? hth_key_fd(key_file) : -1;
    pid_t shell, engine;

    if ((rc = hth_find_program(h, program, sizeof(program), err)))
        return rc;
    hth_args_make(&args, h, program);
    memcpy(argv + 3, args.argv, sizeof(args.argv[0]) * (size_t)args.argc);
    for (int i = 3; key >= 0 && argv[i]; i++)
        if (argv[i] == key_file)
            argv[i] = "fd:3";
    words = hth_memfd("hearthd-words", "", 0, NULL);
    if (words < 0 || pipe2(ends, O_CLOEXEC) != 0) {
        e = errno;
        if (words >= 0)
            close(words);
        return hth_fail(err, HEARTH_EENGINE, e, "start %s: %s", program, strerror(e));
    }
    e = shell_start((char *const *)(uintptr_t)argv, ends[1], words, key, &shell);
    close(ends[1]);
    engine = e ? 0 : shell_read_pid(ends[0]);
    close(ends[0]);
    if (!e)
        shell_reap(shell);
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
