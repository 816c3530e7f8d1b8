/* SPDX-License-Identifier: Apache-2.0 */
/* Many small works on a few threads: each runs once and is done once, on the thread that
 * delivers; one thread keeps the order; stopping in the middle leaves what waits untouched. */
#include "engine/driver/hands.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WORKS  256
#define ROUNDS 200

struct job {
    struct hth_work work;
    unsigned long number; /* written by run, read by done: no lock but the pool's */
    unsigned runs, dones;
};

static struct hth_workers workers;
static pthread_t driver;
static unsigned long finished;

_Noreturn static void fail(const char *what)
{
    fprintf(stderr, "stress_workers: %s\n", what);
    exit(1);
}

static void run(struct hth_work *work)
{
    struct job *j = (struct job *)work;

    j->runs++;
    j->number = j->number * 2862933555777941757u + 3037000493u;
}

static void done(struct hth_work *work)
{
    struct job *j = (struct job *)work;

    if (!pthread_equal(pthread_self(), driver))
        fail("done() came on another thread");
    if (++j->dones != j->runs)
        fail("a work was done more often than it ran");
    finished++;
    if (j->dones < ROUNDS)
        workers.submit(workers.self, work);
}

static void many(unsigned threads)
{
    struct job *jobs = calloc(WORKS, sizeof(*jobs));
    struct pollfd p = { .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .events = POLLIN };
    struct hth_pool *pool;

    if (!jobs || hth_pool_open(threads, p.fd, &pool, NULL))
        fail("no pool");
    workers = hth_pool_workers(pool);
    finished = 0;
    for (int i = 0; i < WORKS; i++) {
        jobs[i].work = (struct hth_work){ .run = run, .done = done };
        workers.submit(workers.self, &jobs[i].work);
    }
    while (finished < (unsigned long)WORKS * ROUNDS) {
        uint64_t n;

        if (poll(&p, 1, 10000) <= 0)
            fail("nobody was woken for finished work");
        if (read(p.fd, &n, sizeof(n)) != (ssize_t)sizeof(n))
            fail("eventfd");
        hth_pool_deliver(pool);
    }
    for (int i = 0; i < WORKS; i++)
        if (jobs[i].runs != ROUNDS || jobs[i].dones != ROUNDS)
            fail("a work was lost");
    hth_pool_close(pool);
    close(p.fd);
    free(jobs);
}

static unsigned seen[WORKS], seen_count;
static struct job *base;

static void run_seen(struct hth_work *work)
{
    seen[seen_count++] = (unsigned)((struct job *)work - base);
}

static void done_never(struct hth_work *work)
{
    (void)work;
}

/* One thread: first in, first out; and a stop in the middle. */
static void ordered(void)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct hth_pool *pool;

    base = calloc(WORKS, sizeof(*base));
    if (!base || hth_pool_open(1, fd, &pool, NULL))
        fail("no pool");
    workers = hth_pool_workers(pool);
    for (int i = 0; i < WORKS; i++) {
        base[i].work = (struct hth_work){ .run = run_seen, .done = done_never };
        workers.submit(workers.self, &base[i].work);
    }
    hth_pool_stop(pool);
    free(base); /* no thread touches works that waited */
    for (unsigned i = 0; i < seen_count; i++)
        if (seen[i] != i)
            fail("one thread ran works in another order");
    if (hth_pool_deliver(pool))
        fail("something was delivered after the stop");
    hth_pool_close(pool);
    close(fd);
}

int main(void)
{
    alarm(120);
    driver = pthread_self();
    many(1);
    many(4);
    ordered();
    puts("ok");
    return 0;
}
