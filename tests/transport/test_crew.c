/* SPDX-License-Identifier: Apache-2.0 */
/* Work that is shared out: each part once, several at the same time, and none left behind. */
#include "check.h"

#include "transport/tcp/crew.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define PARTS 37u
#define TURNS 20000

struct counts {
    atomic_uint done[PARTS];
    atomic_int inside[1 + HTH_TCP_CREW]; /* a thread has one part at a time */
    atomic_int wrong;
};

static void count(void *arg, unsigned part, unsigned who)
{
    struct counts *c = arg;

    if (who > HTH_TCP_CREW || part >= PARTS || atomic_fetch_add(&c->inside[who], 1)) {
        atomic_fetch_add(&c->wrong, 1);
        return;
    }
    atomic_fetch_add(&c->done[part], 1);
    atomic_fetch_sub(&c->inside[who], 1);
}

Test(crew, each_part_is_done_once, .timeout = 100)
{
    for (unsigned threads = 0; threads <= HTH_TCP_CREW; threads++) {
        struct hth_tcp_crew *crew = hth_tcp_crew_new(threads);
        struct counts c = { 0 };
        unsigned wanted[PARTS] = { 0 };

        cr_assert(eq(int, crew != NULL, threads != 0));
        for (unsigned turn = 0; turn < TURNS; turn++) {
            unsigned parts = turn % (PARTS + 1);

            hth_tcp_crew_run(crew, parts, count, &c);
            for (unsigned i = 0; i < parts; i++)
                cr_assert(eq(uint, atomic_load(&c.done[i]), ++wanted[i]), "turn %u, part %u", turn,
                        i);
        }
        cr_assert(eq(int, atomic_load(&c.wrong), 0));
        hth_tcp_crew_free(crew);
    }
}

/* Its last part waits for all others to have begun: one thread alone would wait for ever. */
struct meeting {
    atomic_uint here;
    unsigned parts;
    atomic_int missed;
};

static void meet(void *arg, unsigned part, unsigned who)
{
    struct meeting *m = arg;
    struct timespec moment = { .tv_nsec = 1000000 };

    (void)part, (void)who;
    atomic_fetch_add(&m->here, 1);
    for (int ms = 0; atomic_load(&m->here) < m->parts; ms++) {
        if (ms == 20000) {
            atomic_store(&m->missed, 1);
            return;
        }
        nanosleep(&moment, NULL);
    }
}

Test(crew, all_of_it_work_at_the_same_time, .timeout = 100)
{
    struct timespec pause = { .tv_nsec = 20000000 };

    for (unsigned threads = 1; threads <= HTH_TCP_CREW; threads++) {
        struct hth_tcp_crew *crew = hth_tcp_crew_new(threads);

        for (int again = 0; again < 5; again++) {
            struct meeting m = { .parts = threads + 1 };

            hth_tcp_crew_run(crew, m.parts, meet, &m);
            cr_assert(eq(int, atomic_load(&m.missed), 0), "%u threads", threads);
            nanosleep(&pause, NULL); /* it sleeps by now */
        }
        hth_tcp_crew_free(crew);
    }
}

static uint64_t cpu_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void nothing(void *arg, unsigned part, unsigned who)
{
    (void)arg, (void)part, (void)who;
}

/* All on one processor; after each piece of work the caller has something else to do for a
 * while. */
Test(crew, who_looks_for_more_work_does_not_keep_the_caller_from_his, .timeout = 100)
{
    const uint64_t runs = 2000, else_ns = 200000;
    struct hth_tcp_crew *crew = hth_tcp_crew_new(1);
    uint64_t others;
    cpu_set_t cores, one;
    int core = 0;

    cr_assert(zero(int, sched_getaffinity(0, sizeof(cores), &cores)));
    while (!CPU_ISSET(core, &cores))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    cr_assert(zero(int, sched_setaffinity(0, sizeof(one), &one)));
    hth_tcp_crew_run(crew, 2, nothing, NULL);
    others = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    for (uint64_t i = 0; i < runs; i++) {
        uint64_t end = cpu_ns(CLOCK_THREAD_CPUTIME_ID) + else_ns;

        hth_tcp_crew_run(crew, 2, nothing, NULL);
        while (cpu_ns(CLOCK_THREAD_CPUTIME_ID) < end)
            continue;
    }
    others = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns(CLOCK_THREAD_CPUTIME_ID) - others;
    cr_expect(lt(u64, others / runs, UINT64_C(25000)), "%" PRIu64 " ns each time", others / runs);
    hth_tcp_crew_free(crew);
}

Test(crew, small_machines_have_none)
{
    cr_expect(eq(uint, hth_tcp_crew_size(1), 0u));
    cr_expect(eq(uint, hth_tcp_crew_size(3), 0u));
    cr_expect(eq(uint, hth_tcp_crew_size(4), 1u));
    cr_expect(eq(uint, hth_tcp_crew_size(192), HTH_TCP_CREW));
}
