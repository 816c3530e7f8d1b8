/* SPDX-License-Identifier: Apache-2.0 */
/* Work that is shared out: each part once, several at the same time, and none left behind. */
#include "check.h"

#include "transport/tcp/crew.h"

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

Test(crew, small_machines_have_none)
{
    cr_expect(eq(uint, hth_tcp_crew_size(1), 0u));
    cr_expect(eq(uint, hth_tcp_crew_size(3), 0u));
    cr_expect(eq(uint, hth_tcp_crew_size(4), 1u));
    cr_expect(eq(uint, hth_tcp_crew_size(192), HTH_TCP_CREW));
}
