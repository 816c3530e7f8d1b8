/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport's library is asked in a child: it loads drivers and starts threads, and on a machine
 * where something is wrong it may crash or wait for ever. The answer lies in memory that both have.
 */
#include "doctor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MS 10000

struct answer {
    int rc;
    struct hearth_error err;
    struct hth_offers offers;
};

/* Where tests have modules of their own. */
static const char *library_modules(const struct hth_machine *machine, char *out, size_t len)
{
    snprintf(out, len, "%s/modules", machine->root);
    return machine->root[0] ? out : NULL;
}

static void library_answer(const char *transport, const char *file,
        const struct hth_machine *machine, struct answer *out)
{
    struct rlimit no_core = { 0, 0 };
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char modules[300];

    signal(SIGBUS, SIG_DFL);
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    out->rc = hth_transport_offers(transport, library_modules(machine, modules, sizeof(modules)),
            file, machine, &out->offers, &out->err);
    _exit(0);
}

/* The child's end closes `fd`: 1; 0: not in time. */
static int library_await(int fd)
{
    struct pollfd p = { .fd = fd };

    return poll(&p, 1, ANSWER_MS) > 0;
}

static void library_run(const char *transport, const char *file, const struct hth_machine *machine,
        struct answer *shared, struct library *out)
{
    int ends[2], status = 0, in_time;
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) || (child = fork()) < 0) {
        snprintf(out->why, sizeof(out->why), "the system refused a process to ask it");
        return;
    }
    if (child == 0)
        library_answer(transport, file, machine, shared);
    close(ends[1]);
    in_time = library_await(ends[0]);
    close(ends[0]);
    if (!in_time)
        kill(child, SIGKILL);
    waitpid(child, &status, 0);
    out->answered = in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0 && !shared->rc;
    if (!in_time)
        snprintf(
                out->why, sizeof(out->why), "its library did not answer in %u s", ANSWER_MS / 1000);
    else if (WIFSIGNALED(status))
        snprintf(
                out->why, sizeof(out->why), "its library crashed: %s", strsignal(WTERMSIG(status)));
    else if (!out->answered)
        snprintf(out->why, sizeof(out->why), "%s",
                shared->rc ? shared->err.text : "its library ended the process");
}

void library_ask(const char *transport, const char *file, const struct hth_machine *machine,
        struct library *out)
{
    struct answer *shared =
            mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    memset(out, 0, sizeof(*out));
    out->transport = transport;
    if (shared == MAP_FAILED) {
        snprintf(out->why, sizeof(out->why), "no memory to ask it");
        return;
    }
    shared->rc = HEARTH_EIO; /* until it has answered */
    snprintf(shared->err.text, sizeof(shared->err.text), "its library ended the process");
    fflush(NULL);
    library_run(transport, file, machine, shared, out);
    if (out->answered)
        out->offers = shared->offers;
    munmap(shared, sizeof(*shared));
}
