/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tracer is a child of a fork, which knows by shared memory where the counted part begins and
 * ends, so that it reads no registers:
 *
 *     thread    forks ─► waits for `follows` ─► begun = 1 ─► what() ─► over = 1 ─► waits
 *     tracer    seizes the thread ─► follows = 1 ─► stop after stop ─► detaches
 */
#include "steps.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct shared {
    atomic_int may, follows, begun, over, failed;
    _Atomic uint64_t count;
};

static void nap(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* The next stop of the thread. Returns 0 once it is gone. */
static int stop_await(pid_t thread, int *out_status)
{
    pid_t got;

    while ((got = waitpid(thread, out_status, __WALL)) < 0 && errno == EINTR)
        ;
    return got == thread && WIFSTOPPED(*out_status);
}

static void trace(struct shared *s, pid_t thread, enum steps_mode mode, uint64_t most)
{
    enum __ptrace_request go = mode == STEPS_CALLS ? PTRACE_SYSCALL : PTRACE_SINGLESTEP;
    int status;

    while (!s->may) /* the parent allows it first */
        nap();
    if (ptrace(PTRACE_SEIZE, thread, 0, 0) || ptrace(PTRACE_INTERRUPT, thread, 0, 0) ||
            !stop_await(thread, &status)) {
        s->failed = 1;
        return;
    }
    s->follows = 1;
    for (;;) {
        int number = WSTOPSIG(status), event = status >> 16;
        long pass = event || number == SIGTRAP ? 0 : number;

        if (s->over || s->count >= most)
            break;
        if (ptrace(go, thread, 0, pass) || !stop_await(thread, &status))
            return;
        s->count += s->begun && !s->over;
    }
    ptrace(PTRACE_DETACH, thread, 0, 0);
}

int steps_count(
        struct steps *out, enum steps_mode mode, uint64_t most, void (*what)(void *), void *arg)
{
    struct shared *s =
            mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t thread = (pid_t)syscall(SYS_gettid), tracer;
    int failed, status;

    if (s == MAP_FAILED) {
        what(arg);
        return -1;
    }
    if ((tracer = fork()) == 0) {
        trace(s, thread, mode, most);
        _exit(0);
    }
    prctl(PR_SET_PTRACER, tracer, 0, 0, 0);
    s->may = 1;
    while (tracer > 0 && !s->follows && !s->failed)
        nap();
    s->begun = 1;
    what(arg);
    s->over = 1;
    while (tracer > 0 && waitpid(tracer, &status, 0) < 0 && errno == EINTR)
        ;
    failed = tracer < 0 || s->failed;
    if (mode == STEPS_CALLS)
        out->calls = s->count / 2; /* a stop before each, and one behind it */
    else
        out->instructions = s->count;
    munmap(s, sizeof(*s));
    return failed ? -1 : 0;
}
