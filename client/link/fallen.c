/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A limit or a sandbox may end each engine at the first request that it serves. The next engine
 * would end there, too, so engines that end within seconds are counted: the second of them in a row
 * is replaced at once, the next ones after pauses, and after the fourth the caller gets an error
 * with the way in which it ended. A minute later one more engine is tried.
 */
#include "fallen.h"

#include "core/base/fail.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define STARTS    3u     /* after engines that ended at once */
#define STEADY_MS 5000u  /* one that serves as long ended for a reason of its own */
#define PAUSE_MS  500u   /* before the second start; twice as long before the third */
#define AGAIN_MS  60000u /* until one more is tried */

#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

/* Linux 6.15, <linux/pidfd.h>: also of a process that is no child of ours. */
struct pidfd_exit {
    uint64_t mask, cgroup;
    uint32_t ids[11];
    int32_t status; /* as of wait() */
};
#define EXIT_KNOWN UINT64_C(8)
#define ASK_EXIT   _IOWR(0xff, 11, struct pidfd_exit)
_Static_assert(sizeof(struct pidfd_exit) == 64, "the kernel's first version of it");

void hth_fallen_forget(struct hth_fallen *f)
{
    __atomic_store_n(&f->count, 0, __ATOMIC_RELAXED);
}

static void fallen_say_how(struct hth_fallen *f, int by_signal, int number)
{
    if (by_signal)
        snprintf(f->how, sizeof(f->how), ", the last one by signal %d (%s)", number,
                sigdescr_np(number));
    else
        snprintf(f->how, sizeof(f->how), ", the last one with status %d", number);
}

/* The processes beside an engine end right after it. */
static void fallen_reap_group(const struct hth_fallen *f)
{
    siginfo_t i;

    do
        i.si_pid = 0;
    while (f->group > 0 && !waitid(P_PGID, (id_t)f->group, &i, WEXITED | WNOHANG) && i.si_pid);
}

/* In a pod a trainer may be the first process: then each engine that ends is its child, and a
 * zombie until it is waited for. */
static void fallen_reap(struct hth_fallen *f)
{
    siginfo_t i = { .si_pid = 0 };

    if (f->pidfd < 0 || waitid(P_PIDFD, (id_t)f->pidfd, &i, WEXITED | WNOHANG) || !i.si_pid)
        return;
    fallen_say_how(f, i.si_code != CLD_EXITED, i.si_status);
}

/* Where it is no child, that is known once init has taken note, which may take a while: asked at
 * each refusal. */
static void fallen_ask_how(struct hth_fallen *f)
{
    struct pidfd_exit e = { .mask = EXIT_KNOWN };

    if (f->how[0] || f->pidfd < 0 || ioctl(f->pidfd, ASK_EXIT, &e) || !(e.mask & EXIT_KNOWN))
        return;
    if (WIFSIGNALED(e.status) || WIFEXITED(e.status))
        fallen_say_how(f, WIFSIGNALED(e.status),
                WIFSIGNALED(e.status) ? WTERMSIG(e.status) : WEXITSTATUS(e.status));
}

void hth_fallen_close(struct hth_fallen *f)
{
    fallen_reap(f);
    fallen_reap_group(f);
    if (f->pidfd >= 0)
        close(f->pidfd);
    f->pidfd = -1;
}

/* 0: it shares the group of this process, whose other children are not ours to wait for. */
static pid_t fallen_group_of(int sock)
{
    struct ucred peer = { .pid = 0 };
    socklen_t len = sizeof(peer);
    pid_t group;

    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) || peer.pid <= 0)
        return 0;
    group = getpgid(peer.pid);
    return group > 0 && group != getpgrp() ? group : 0;
}

void hth_fallen_serves(struct hth_fallen *f, int sock, uint64_t now_ms)
{
    socklen_t len = sizeof(f->pidfd);

    hth_fallen_close(f);
    f->group = fallen_group_of(sock);
    if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &f->pidfd, &len))
        f->pidfd = -1;
    f->how[0] = '\0';
    f->since_ms = now_ms;
}

static unsigned fallen_so_many(const struct hth_fallen *f)
{
    return __atomic_load_n(&f->count, __ATOMIC_RELAXED);
}

/* Once for each. */
static void fallen_count(struct hth_fallen *f, uint64_t now_ms)
{
    unsigned count;

    if (!f->since_ms)
        return;
    count = now_ms - f->since_ms < STEADY_MS ? fallen_so_many(f) + 1 : 0;
    __atomic_store_n(&f->count, count, __ATOMIC_RELAXED);
    f->since_ms = 0;
    fallen_reap(f);
    if (count > 1)
        f->not_before_ms = now_ms + (count > STARTS ? AGAIN_MS : (count - 1) * PAUSE_MS);
}

int hth_fallen_may_start(
        struct hth_fallen *f, uint64_t now_ms, const char *records, struct hearth_error *err)
{
    fallen_count(f, now_ms);
    if (now_ms >= f->not_before_ms)
        return 1;
    if (fallen_so_many(f) <= STARTS)
        return 0;
    fallen_ask_how(f);
    return hth_fail(err, HEARTH_EENGINE, 0,
            "this node's engine ended %u times in a row as soon as it served%s: a limit of this "
            "shell or pod, or a sandbox, may forbid what it does. Its log is %.200s/log; another "
            "one is started in %" PRIu64 " s",
            fallen_so_many(f), f->how, records, (f->not_before_ms - now_ms) / 1000 + 1);
}
