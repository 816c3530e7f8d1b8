/* SPDX-License-Identifier: Apache-2.0 */
/* --watch: a command again and again, on a terminal in the place of what it printed before. */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t is_over;

static void watch_on_interrupt(int sig)
{
    (void)sig;
    is_over = 1;
}

static int watch_seconds(const char *text, long *out)
{
    char *end;

    *out = 2;
    if (!*text)
        return 0;
    errno = 0;
    *out = strtol(text, &end, 10);
    return errno || *end || *text < '0' || *text > '9' || *out < 1 || *out > 86400;
}

/* All of it in one write, so that a terminal shows no half of it. */
static int watch_look(enum status (*look)(const struct args *a), const struct args *a, int terminal,
        enum status *out)
{
    if (terminal)
        fputs("\033[H\033[2J", stdout);
    remarks_forget();
    *out = look(a);
    return fflush(stdout) || ferror(stdout);
}

enum status watch(enum status (*look)(const struct args *a), const struct args *a)
{
    struct sigaction on = { .sa_handler = watch_on_interrupt };
    int terminal = isatty(STDOUT_FILENO);
    enum status status = STATUS_OK;
    struct timespec pause = { 0 };
    static char buffer[1 << 16];
    long seconds;

    if (!a->watch)
        return look(a);
    if (watch_seconds(a->watch, &seconds))
        return complain_usage("--watch is '%.64s': give seconds from 1 to 86400", a->watch);
    sigaction(SIGINT, &on, NULL); /* no SA_RESTART: the pause ends */
    setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
    pause.tv_sec = seconds;
    while (!is_over && !watch_look(look, a, terminal, &status) && !is_over)
        nanosleep(&pause, NULL);
    return status;
}
