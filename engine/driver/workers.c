/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work too long for the engine's thread: checksums, copies.
 *
 *     submit ─► waiting ─► a thread: run() ─► ended ─► eventfd ─► deliver() on the engine's: done()
 *
 * After stop() the threads are gone, so the owners of work that was still waiting may be freed.
 */
#include "hands.h"

#include "core/base/full.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define NICE 5 /* the engine's thread, for which ranks wait, and training go first */

struct work_list {
    struct hth_work *first, *last;
};

struct hth_pool {
    pthread_mutex_t lock; /* guards all below but thread[] */
    pthread_cond_t more;
    struct work_list waiting, ended;
    int stopping;
    int (*each)(void *self); /* NULL: nothing is asked of each */
    void *each_self;
    struct hth_each each_done; /* threads is not kept */
    int wake_fd;
    unsigned threads; /* that run */
    pthread_t *thread;
};

static void work_push(struct work_list *l, struct hth_work *w)
{
    w->next = NULL;
    if (l->last)
        l->last->next = w;
    else
        l->first = w;
    l->last = w;
}

static struct hth_work *work_pop(struct work_list *l)
{
    struct hth_work *w = l->first;

    if (w && !(l->first = w->next))
        l->last = NULL;
    return w;
}

static void pool_wake(const struct hth_pool *pool)
{
    uint64_t one = 1;
    ssize_t n = write(pool->wake_fd, &one, sizeof(one));

    (void)n; /* full: it is readable already */
}

static void pool_each_call_locked(struct hth_pool *pool)
{
    int why;

    pthread_mutex_unlock(&pool->lock);
    why = pool->each(pool->each_self);
    pthread_mutex_lock(&pool->lock);
    if (why) {
        pool->each_done.failed++;
        pool->each_done.why = why;
    } else {
        pool->each_done.done++;
    }
    pool_wake(pool);
}

static void *pool_run(void *arg)
{
    struct hth_pool *pool = arg;
    int asked = 0;

    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    pthread_mutex_lock(&pool->lock);
    while (!pool->stopping) {
        struct hth_work *w;
        int first;

        if (pool->each && !asked) {
            asked = 1;
            pool_each_call_locked(pool);
            continue;
        }
        if (!(w = work_pop(&pool->waiting))) {
            pthread_cond_wait(&pool->more, &pool->lock);
            continue;
        }
        pthread_mutex_unlock(&pool->lock);
        w->run(w);
        pthread_mutex_lock(&pool->lock);
        first = !pool->ended.first;
        work_push(&pool->ended, w);
        if (first)
            pool_wake(pool);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void pool_submit(void *self, struct hth_work *w)
{
    struct hth_pool *pool = self;

    pthread_mutex_lock(&pool->lock);
    if (!pool->stopping) {
        work_push(&pool->waiting, w);
        pthread_cond_signal(&pool->more);
    }
    pthread_mutex_unlock(&pool->lock);
}

struct hth_workers hth_pool_workers(struct hth_pool *pool)
{
    return (struct hth_workers){ .submit = pool_submit, .self = pool };
}

unsigned hth_pool_deliver(struct hth_pool *pool)
{
    struct work_list ended;
    unsigned n = 0;

    pthread_mutex_lock(&pool->lock);
    ended = pool->ended;
    pool->ended = (struct work_list){ 0 };
    pthread_mutex_unlock(&pool->lock);
    for (struct hth_work *w = work_pop(&ended); w; w = work_pop(&ended), n++)
        w->done(w); /* may free or submit it again */
    return n;
}

void hth_pool_each(struct hth_pool *pool, int (*call)(void *self), void *self)
{
    pthread_mutex_lock(&pool->lock);
    pool->each = call;
    pool->each_self = self;
    pthread_cond_broadcast(&pool->more);
    pthread_mutex_unlock(&pool->lock);
}

struct hth_each hth_pool_each_done(struct hth_pool *pool)
{
    struct hth_each e;

    pthread_mutex_lock(&pool->lock);
    e = pool->each_done;
    e.threads = pool->threads;
    pthread_mutex_unlock(&pool->lock);
    return e;
}

static int pool_start_threads(struct hth_pool *pool, unsigned threads)
{
    sigset_t all, old;
    int e = 0;

    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* of a cut file: blocked it ends hearthd, whose handler goes on */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (pool->threads < threads && !e) {
        e = pthread_create(&pool->thread[pool->threads], NULL, pool_run, pool);
        pool->threads += !e;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return e;
}

int hth_pool_open(unsigned threads, int wake_fd, struct hth_pool **out, struct hearth_error *err)
{
    struct hth_pool *pool = calloc(1, sizeof(*pool));
    int e;

    if (pool)
        pool->thread = calloc(threads, sizeof(*pool->thread));
    if (!pool || !pool->thread) {
        free(pool);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %u worker threads", threads);
    }
    pool->wake_fd = wake_fd;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->more, NULL);
    e = pool_start_threads(pool, threads);
    if (e) {
        hth_pool_close(pool);
        return hth_fail(err, HEARTH_EIO, e, "cannot start %u worker threads: %s%s", threads,
                strerrordesc_np(e), hth_limit_text(e));
    }
    *out = pool;
    return HEARTH_OK;
}

void hth_pool_stop(struct hth_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->stopping = 1;
    pthread_cond_broadcast(&pool->more);
    pthread_mutex_unlock(&pool->lock);
    for (; pool->threads; pool->threads--)
        pthread_join(pool->thread[pool->threads - 1], NULL);
    pool->waiting = pool->ended = (struct work_list){ 0 };
}

void hth_pool_close(struct hth_pool *pool)
{
    if (!pool)
        return;
    hth_pool_stop(pool);
    pthread_cond_destroy(&pool->more);
    pthread_mutex_destroy(&pool->lock);
    free(pool->thread);
    free(pool);
}
