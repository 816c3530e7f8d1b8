/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's clock, random numbers, threads and stop points, in the form that the state
 * machines require. Simulators have others.
 */
#ifndef HEARTH_ENGINE_HANDS_H
#define HEARTH_ENGINE_HANDS_H

#include "core/base/env.h"

struct hth_clock hth_system_clock(void);   /* CLOCK_MONOTONIC, CLOCK_REALTIME */
struct hth_random hth_system_random(void); /* getrandom(2) */
uint64_t hth_system_busy_ms(void);         /* CLOCK_THREAD_CPUTIME_ID: of the calling thread */

/* Threads that run work first in, first out. */
struct hth_pool;

/* wake_fd: an eventfd that is written when work is done; borrowed. Signals but SIGBUS are
 * blocked in the threads. Errors: HEARTH_ENOMEM, HEARTH_EIO. */
int hth_pool_open(unsigned threads, int wake_fd, struct hth_pool **out, struct hearth_error *err);
struct hth_workers hth_pool_workers(struct hth_pool *pool); /* submit: any thread */
unsigned hth_pool_deliver(struct hth_pool *pool); /* runs `done` of all that ended; how many */
/* Each thread calls it once, when it has ended the work that it has; 0 or an errno. Called once
 * for a pool; wakes the engine for each. */
void hth_pool_each(struct hth_pool *pool, int (*call)(void *self), void *self);
struct hth_each {
    /* threads of the pool; of these, how many have called it, with success and without */
    unsigned threads, done, failed;
    int why; /* the errno of a call that failed */
};
struct hth_each hth_pool_each_done(struct hth_pool *pool);
/* ends the work that runs; for waiting work neither run nor done is called, and it is not
 * touched */
void hth_pool_stop(struct hth_pool *pool);
void hth_pool_close(struct hth_pool *pool); /* NULL: nothing */

#endif
