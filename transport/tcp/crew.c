/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole state of the work is one 64-bit word, so that one compare-and-swap takes a part, and
 * a thread that has read an older state takes none:
 *
 *   turn (32 bits) | parts (16) | the next part (16)
 *
 * run and arg are written before a turn is shown. A thread that has taken a part reads them; the
 * caller waits for all parts before it writes them again.
 *
 * A thread without work looks again for a moment, since pieces of a stream follow each other,
 * then sleeps.
 */
#include "crew.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define LOOKS_NS 50000 /* at work to come, before a thread sleeps */
#define SPINS    2000  /* at the last parts, before the caller gives its processor away */

struct crew_hand {
    struct hth_tcp_crew *crew;
    pthread_t thread;
    unsigned who;
};

struct hth_tcp_crew {
    _Atomic uint64_t work;
    atomic_uint left; /* parts of this turn that are not done */
    void (*run)(void *arg, unsigned part, unsigned who);
    void *arg;

    unsigned wanted, threads; /* that run */
    int started;
    atomic_uint asleep;
    atomic_int closing;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct crew_hand hand[HTH_TCP_CREW];
};

static int work_is_left(uint64_t work)
{
    return (work & 0xffff) < (work >> 16 & 0xffff);
}

/* 1: this thread has taken a part and done it. */
static int part_do(struct hth_tcp_crew *c, unsigned who)
{
    uint64_t work = atomic_load(&c->work);

    while (work_is_left(work))
        if (atomic_compare_exchange_weak(&c->work, &work, work + 1)) {
            c->run(c->arg, work & 0xffff, who);
            atomic_fetch_sub(&c->left, 1);
            return 1;
        }
    return 0;
}

static void spin(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Looks until there is work, or the time for looking is over. A thread that was woken may be on the
 * caller's processor: it yields at each look. */
static void hand_look(struct hth_tcp_crew *c)
{
    uint64_t end = now_ns() + LOOKS_NS;

    while (!work_is_left(atomic_load(&c->work)) && !atomic_load(&c->closing) && now_ns() < end)
        sched_yield();
}

static void hand_sleep(struct hth_tcp_crew *c)
{
    pthread_mutex_lock(&c->lock);
    atomic_fetch_add(&c->asleep, 1);
    while (!work_is_left(atomic_load(&c->work)) && !atomic_load(&c->closing))
        pthread_cond_wait(&c->more, &c->lock);
    atomic_fetch_sub(&c->asleep, 1);
    pthread_mutex_unlock(&c->lock);
}

static void *hand_run(void *arg)
{
    struct crew_hand *h = arg;
    struct hth_tcp_crew *c = h->crew;

    while (!atomic_load(&c->closing)) {
        if (part_do(c, h->who))
            continue;
        hand_look(c);
        if (!work_is_left(atomic_load(&c->work)))
            hand_sleep(c);
    }
    return NULL;
}

/* The threads block all signals, which belong to the process, except SIGBUS of a cut file: a
 * blocked SIGBUS ends hearthd, while hearthd's handler survives it. If a thread does not start, the
 * others do its parts. */
static void crew_start(struct hth_tcp_crew *c)
{
    sigset_t all, old;

    c->started = 1;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (c->threads < c->wanted) {
        struct crew_hand *h = &c->hand[c->threads];

        *h = (struct crew_hand){ .crew = c, .who = c->threads + 1 };
        if (pthread_create(&h->thread, NULL, hand_run, h))
            break;
        c->threads++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

unsigned hth_tcp_crew_size(unsigned processors)
{
    return processors / 4 < HTH_TCP_CREW ? processors / 4 : HTH_TCP_CREW;
}

struct hth_tcp_crew *hth_tcp_crew_new(unsigned threads)
{
    struct hth_tcp_crew *c = threads ? calloc(1, sizeof(*c)) : NULL;

    if (!c)
        return NULL;
    c->wanted = threads < HTH_TCP_CREW ? threads : HTH_TCP_CREW;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, NULL);
    return c;
}

static void crew_wake(struct hth_tcp_crew *c)
{
    if (!atomic_load(&c->asleep))
        return;
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->more);
    pthread_mutex_unlock(&c->lock);
}

void hth_tcp_crew_run(struct hth_tcp_crew *c, unsigned parts,
        void (*run)(void *arg, unsigned part, unsigned who), void *arg)
{
    uint64_t turn;

    if (!c || parts < 2) {
        for (unsigned i = 0; i < parts; i++)
            run(arg, i, 0);
        return;
    }
    if (!c->started)
        crew_start(c);
    c->run = run;
    c->arg = arg;
    atomic_store(&c->left, parts);
    turn = (atomic_load(&c->work) >> 32) + 1;
    atomic_store(&c->work, turn << 32 | (uint64_t)parts << 16);
    crew_wake(c);
    while (part_do(c, 0))
        ;
    for (unsigned i = 0; atomic_load(&c->left); i++)
        if (i < SPINS)
            spin();
        else
            sched_yield();
}

void hth_tcp_crew_free(struct hth_tcp_crew *c)
{
    if (!c)
        return;
    atomic_store(&c->closing, 1);
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->more);
    pthread_mutex_unlock(&c->lock);
    for (unsigned i = 0; i < c->threads; i++)
        pthread_join(c->hand[i].thread, NULL);
    pthread_cond_destroy(&c->more);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
