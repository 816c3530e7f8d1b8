/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's worker threads, and the machine's clock and random numbers. */
#include "check.h"

#include "engine/driver/hands.h"
#include "replication/held/ctx.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define WORKS 1000u

static int wake_fd;
static struct hth_pool *pool;

static void start(void)
{
    alarm(60);
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static void end(void)
{
    hth_pool_close(pool);
    close(wake_fd);
}

TestSuite(workers, .init = start, .fini = end);

struct job {
    struct hth_work work;
    unsigned number, ran; /* `ran`: which it was, counted from 1 */
    int done;
};

static unsigned ran; /* atomic */
static unsigned done_in_order;

static void job_run(struct hth_work *work)
{
    hth_owner_of(struct job, work, work)->ran = __atomic_add_fetch(&ran, 1, __ATOMIC_RELAXED);
}

static void job_done(struct hth_work *work)
{
    struct job *j = hth_owner_of(struct job, work, work);

    j->done++;
    done_in_order += j->number == done_in_order;
}

static void submit(struct job *j)
{
    struct hth_workers workers = hth_pool_workers(pool);

    j->work = (struct hth_work){ .run = job_run, .done = job_done };
    workers.submit(workers.self, &j->work);
}

/* As the engine does: it sleeps until it is woken. */
static unsigned deliver(unsigned wanted)
{
    struct pollfd p = { .fd = wake_fd, .events = POLLIN };
    unsigned got = 0;
    uint64_t count;

    while (got < wanted && poll(&p, 1, 10000) == 1) {
        cr_assert(eq(long, (long)read(wake_fd, &count, sizeof(count)), (long)sizeof(count)));
        got += hth_pool_deliver(pool);
    }
    return got;
}

static struct job job[WORKS];

static void submit_all(void)
{
    for (unsigned i = 0; i < WORKS; i++) {
        job[i].number = i;
        submit(&job[i]);
    }
}

Test(workers, one_thread_does_first_what_came_first)
{
    must(hth_pool_open(1, wake_fd, &pool, NULL));
    submit_all();
    cr_assert(eq(u32, deliver(WORKS), WORKS));
    cr_assert(eq(u32, done_in_order, WORKS));
    for (unsigned i = 0; i < WORKS; i++)
        cr_assert(eq(u32, job[i].ran, i + 1));
}

Test(workers, all_that_ends_on_any_thread_is_heard_once)
{
    must(hth_pool_open(4, wake_fd, &pool, NULL));
    submit_all();
    cr_assert(eq(u32, deliver(WORKS), WORKS));
    for (unsigned i = 0; i < WORKS; i++)
        cr_assert(eq(int, job[i].done, 1));
    cr_assert(zero(u32, hth_pool_deliver(pool)));
}

static void again_done(struct hth_work *work)
{
    struct hth_workers workers = hth_pool_workers(pool);
    struct job *j = hth_owner_of(struct job, work, work);

    if (++j->done < 3)
        workers.submit(workers.self, work);
}

Test(workers, what_is_done_may_be_given_to_them_again)
{
    struct hth_workers workers;
    struct job j = { .work = { .run = job_run, .done = again_done } };

    must(hth_pool_open(2, wake_fd, &pool, NULL));
    workers = hth_pool_workers(pool);
    workers.submit(workers.self, &j.work);
    cr_assert(eq(u32, deliver(3), 3));
    cr_assert(eq(int, j.done, 3));
    cr_assert(eq(u32, j.ran, 3));
}

static int let_go; /* atomic */

static void slow_run(struct hth_work *work)
{
    hth_owner_of(struct job, work, work)->ran = 1;
    while (!__atomic_load_n(&let_go, __ATOMIC_ACQUIRE))
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static void *let_go_soon(void *none)
{
    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    __atomic_store_n(&let_go, 1, __ATOMIC_RELEASE);
    return none;
}

/* The first call fails; each is by a thread of its own. */
static int each_call(void *self)
{
    static _Thread_local int called;

    cr_assert(zero(int, called++));
    return __atomic_fetch_add((unsigned *)self, 1, __ATOMIC_RELAXED) ? 0 : ENOMEM;
}

static struct hth_each each_wait(unsigned answers)
{
    struct pollfd p = { .fd = wake_fd, .events = POLLIN };
    struct hth_each e = hth_pool_each_done(pool);
    uint64_t count;

    while (e.done + e.failed < answers && poll(&p, 1, 10000) == 1) {
        cr_assert(eq(long, (long)read(wake_fd, &count, sizeof(count)), (long)sizeof(count)));
        hth_pool_deliver(pool); /* what else it was woken for */
        e = hth_pool_each_done(pool);
    }
    return e;
}

/* A thread that is at work counts as one that has not answered yet; it makes the call before its
 * next work. */
Test(workers, each_thread_is_asked_once_also_the_one_that_works)
{
    struct hth_workers workers;
    struct job slow = { .work = { .run = slow_run, .done = job_done } };
    unsigned calls = 0;
    struct hth_each e;

    must(hth_pool_open(3, wake_fd, &pool, NULL));
    workers = hth_pool_workers(pool);
    workers.submit(workers.self, &slow.work);
    while (!__atomic_load_n(&slow.ran, __ATOMIC_ACQUIRE))
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    hth_pool_each(pool, each_call, &calls);
    e = each_wait(2);
    cr_assert(eq(u32, e.threads, 3));
    cr_assert(eq(u32, e.done, 1));
    cr_assert(eq(u32, e.failed, 1));
    cr_assert(eq(int, e.why, ENOMEM));
    __atomic_store_n(&let_go, 1, __ATOMIC_RELEASE);
    e = each_wait(3);
    cr_assert(eq(u32, e.done, 2));
    deliver(!slow.done);
    submit_all();
    cr_assert(eq(u32, deliver(WORKS), WORKS));
    cr_assert(eq(u32, calls, 3));
}

/* Their owners free what they wrote into after that. */
Test(workers, after_a_stop_nothing_runs_and_nobody_hears_of_what_waited)
{
    struct hth_workers workers;
    struct job slow = { .work = { .run = slow_run, .done = job_done } };
    pthread_t other;

    must(hth_pool_open(1, wake_fd, &pool, NULL));
    workers = hth_pool_workers(pool);
    workers.submit(workers.self, &slow.work);
    while (!__atomic_load_n(&slow.ran, __ATOMIC_ACQUIRE))
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    submit(&job[0]);
    cr_assert(zero(int, pthread_create(&other, NULL, let_go_soon, NULL)));
    hth_pool_stop(pool);
    cr_assert(eq(int, __atomic_load_n(&let_go, __ATOMIC_ACQUIRE), 1), "what ran has ended");
    submit(&job[1]);
    cr_assert(zero(u32, hth_pool_deliver(pool)));
    for (int i = 0; i < 2; i++)
        cr_assert(zero(u32, job[i].ran));
    pthread_join(other, NULL);
}

static uint64_t realtime_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

Test(workers, the_machines_time_goes_on_and_its_numbers_differ)
{
    struct hth_clock clock = hth_system_clock();
    struct hth_random random = hth_system_random();
    uint64_t began_ms = hth_now_ms(&clock), busy_ms = hth_system_busy_ms(), before_ms, wall_ms;

    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    cr_assert(ge(u64, hth_now_ms(&clock), began_ms + 49));
    cr_assert(lt(u64, hth_system_busy_ms(), busy_ms + 40), "it slept");
    before_ms = realtime_ms();
    wall_ms = clock.wall_ms(clock.self);
    cr_assert(ge(u64, wall_ms, before_ms));
    cr_assert(le(u64, wall_ms, realtime_ms()));
    cr_assert(ne(u64, random.next(random.self), random.next(random.self)));
}
