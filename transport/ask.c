/* SPDX-License-Identifier: Apache-2.0 */
/* The child that a library is asked in: its answer lies in memory that both have. */
#include "ask.h"

#include "core/base/fail.h"
#include "core/base/open.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS 10000

struct answer {
    int rc;
    struct hearth_error err;
    struct hth_offers offers;
};

static uint64_t ask_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void ask_answer(const char *transport, const char *dir, const char *file,
        const struct hth_machine *machine, struct answer *out)
{
    struct rlimit no_core = { 0, 0 };
    int null = hth_open_kernel("/dev/null", O_RDWR);
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the child ends with its parent */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    out->rc = hth_transport_offers(transport, dir, file, machine, &out->offers, &out->err);
    _exit(0);
}

static int ask_start(
        const char *dir, const char *file, const struct hth_machine *machine, struct hth_asking *a)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC))
        return -1;
    a->child = fork();
    if (a->child == 0)
        ask_answer(a->library.transport, dir, file, machine, a->shared);
    close(ends[1]);
    a->end = ends[0];
    if (a->child > 0)
        return 0;
    close(ends[0]);
    a->child = 0;
    return -1;
}

void hth_offers_ask(const char *transport, const char *dir, const char *file,
        const struct hth_machine *machine, struct hth_asking *out)
{
    struct answer *shared =
            mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    memset(out, 0, sizeof(*out));
    out->library.transport = transport;
    out->until_ms = ask_now_ms() + ANSWER_MS;
    if (shared == MAP_FAILED) {
        snprintf(out->library.why, sizeof(out->library.why), "no memory to ask it");
        return;
    }
    out->shared = shared;
    shared->rc = HEARTH_EIO; /* until it has answered */
    snprintf(shared->err.text, sizeof(shared->err.text), "its library ended the process");
    fflush(NULL);
    if (ask_start(dir, file, machine, out))
        snprintf(out->library.why, sizeof(out->library.why),
                "the system refused a process to ask it");
}

/* The child's end closes its side: 1; 0: not in time. */
static int ask_await(const struct hth_asking *a)
{
    struct pollfd p = { .fd = a->end };
    uint64_t now = ask_now_ms();
    int n;

    while ((n = poll(&p, 1, now < a->until_ms ? (int)(a->until_ms - now) : 0)) < 0)
        now = ask_now_ms();
    return n > 0;
}

/* Returns the child's status; 0 if another thread of this process, which waits for any child, has
 * taken it. */
static int ask_reap(struct hth_asking *a, int kill_it)
{
    int status = 0;

    close(a->end);
    if (kill_it)
        kill(a->child, SIGKILL);
    while (waitpid(a->child, &status, 0) < 0 && errno == EINTR)
        continue;
    a->child = 0;
    return status;
}

static void ask_end(struct hth_asking *a)
{
    struct hth_library *l = &a->library;
    int in_time = ask_await(a), status = ask_reap(a, !in_time);

    l->answered = in_time && !a->shared->rc;
    if (!in_time)
        snprintf(l->why, sizeof(l->why), "its library did not answer in %u s", ANSWER_MS / 1000);
    else if (WIFSIGNALED(status))
        snprintf(l->why, sizeof(l->why), "its library crashed: %s", strsignal(WTERMSIG(status)));
    else if (!l->answered)
        snprintf(l->why, sizeof(l->why), "%s", a->shared->err.text);
    if (l->answered)
        l->offers = a->shared->offers;
}

static void ask_forget(struct hth_asking *a)
{
    if (a->shared)
        munmap(a->shared, sizeof(*a->shared));
    a->shared = NULL;
}

void hth_offers_hear(struct hth_asking *a)
{
    if (a->child > 0)
        ask_end(a);
    ask_forget(a);
}

void hth_offers_drop(struct hth_asking *a)
{
    if (a->child > 0)
        ask_reap(a, 1);
    ask_forget(a);
}
