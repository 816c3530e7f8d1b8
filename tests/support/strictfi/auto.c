/* SPDX-License-Identifier: Apache-2.0 */
/* FI_PROGRESS_AUTO: a thread gives the endpoints their turns, whatever the program does. */
#include "strictfi.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define WATCHED 256

static pthread_t thread;
static pid_t thread_of; /* the process; a forked child starts its own */
static int nudge_fd = -1, stopping;

static int automatic(const struct sfi_ep *ep)
{
    return ep->enabled && ep->owner == getpid() && ep->domain->p->progress == FI_PROGRESS_AUTO;
}

/* What to wait for, and how long: in nanoseconds. */
static long auto_turn(struct pollfd fds[WATCHED], nfds_t *out_count)
{
    long wait = 100000000;
    nfds_t n = 1;

    for (struct sfi_ep *ep = sfi_eps(), *next; ep; ep = next) {
        next = ep->next;
        if (!automatic(ep))
            continue;
        sfi_progress(ep);
        if (n < WATCHED)
            fds[n++] = (struct pollfd){ .fd = ep->sock, .events = POLLIN };
        if (sfi_restless(ep))
            wait = 200000;
        else if ((ep->tx.head || ep->answers) && wait > 1000000)
            wait = 1000000;
    }
    for (struct sfi_pep *pep = sfi_peps(); pep; pep = pep->next) {
        if (pep->owner != getpid())
            continue;
        sfi_pep_progress(pep);
        if (n < WATCHED && pep->listening)
            fds[n++] = (struct pollfd){ .fd = pep->sock, .events = POLLIN };
    }
    if (sfi_cqs_ripen())
        wait = 200000;
    *out_count = n;
    return wait;
}

static void *auto_run(void *arg)
{
    struct pollfd fds[WATCHED] = { { .fd = nudge_fd, .events = POLLIN } };
    nfds_t count;
    int stop;

    (void)arg;
    for (;;) {
        struct timespec ts = { 0, 0 };
        eventfd_t drained;

        sfi_lock();
        ts.tv_nsec = auto_turn(fds, &count);
        stop = stopping;
        sfi_unlock();
        if (stop)
            return NULL;
        ppoll(fds, count, &ts, NULL);
        eventfd_read(nudge_fd, &drained);
    }
}

/* With the lock held. */
void sfi_auto_start(void)
{
    sigset_t all, before;

    if (thread_of == getpid())
        return;
    nudge_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    stopping = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, auto_run, NULL))
        sfi_sin("setup", "no thread for FI_PROGRESS_AUTO");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    thread_of = getpid();
}

void sfi_auto_nudge(void)
{
    if (thread_of == getpid())
        eventfd_write(nudge_fd, 1);
}

void sfi_auto_stop(void)
{
    if (thread_of != getpid())
        return;
    sfi_lock();
    stopping = 1;
    sfi_auto_nudge();
    sfi_unlock();
    pthread_join(thread, NULL);
    close(nudge_fd);
    thread_of = 0;
}
