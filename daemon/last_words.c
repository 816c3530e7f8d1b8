/* SPDX-License-Identifier: Apache-2.0 */
/* The log is opened anew each time, since it turns over meanwhile; open() is allowed in a
 * handler. */
#include "last_words.h"

#include "core/base/guard.h"
#include "core/base/open.h"

#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CALLS       48
#define STACK_BYTES 65536

static int records = -1;
static const int faults[] = { SIGSEGV, SIGABRT, SIGFPE, SIGILL };
static unsigned char stack[STACK_BYTES]; /* for a fault that is the end of another */

/* Opens only a file of our own: a fifo in its place would keep an ending process for ever. */
static int last_words_log(void)
{
    int fd = hth_open_file(records, "log", O_WRONLY | O_APPEND);
    struct stat st;

    if (fd < 0 || (!fstat(fd, &st) && st.st_nlink <= 1))
        return fd;
    close(fd);
    return -1;
}

static void last_words_put(int fd, const char *text)
{
    ssize_t n = write(fd, text, strlen(text));

    (void)n;
}

/* The handler was taken away on entry: the second signal ends the process. */
static void last_words_say(int sig)
{
    const char *name = sigabbrev_np(sig);
    void *calls[CALLS];
    int fd = last_words_log();

    if (fd >= 0) {
        last_words_put(fd, "error engine-crashed hearthd ends of SIG");
        last_words_put(fd, name ? name : "?");
        last_words_put(fd, ", a fault of its own or of a library's; it stood in\n");
        backtrace_symbols_fd(calls, backtrace(calls, CALLS), fd);
        close(fd);
    }
    raise(sig);
}

/* Another program has cut a file that we have mapped: this is no fault of ours, and does not end
 * us. */
static void last_words_bus(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code == BUS_ADRERR && hth_guard_patch(info->si_addr))
        return;
    signal(sig, SIG_DFL);
    last_words_say(sig);
}

static void last_words_take_output(void)
{
    int fd = last_words_log();

    if (fd < 0)
        return;
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    close(fd);
}

void hth_last_words(int records_fd, int take_output)
{
    struct sigaction action = { .sa_handler = last_words_say,
        .sa_flags = SA_RESETHAND | SA_NODEFER | SA_ONSTACK };
    struct sigaction bus = { .sa_sigaction = last_words_bus, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    stack_t other = { .ss_sp = stack, .ss_size = sizeof(stack) };
    void *calls[1];

    if (records >= 0) /* of an engine that came back */
        close(records);
    records = fcntl(records_fd, F_DUPFD_CLOEXEC, 0);
    if (records < 0)
        return;
    backtrace(calls, 1); /* loads what it needs, which a handler may not */
    sigaltstack(&other, NULL);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigaction(faults[i], &action, NULL);
    sigaction(SIGBUS, &bus, NULL);
    if (take_output)
        last_words_take_output();
}
