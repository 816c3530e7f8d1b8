/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Works, and the thread that follows them. `here.lock` guards all fields of works but those that
 * never change; no driver call and no copy runs under it.
 *
 *     copy into a pinned slot      enqueued by the caller ───────────────► event done
 *     the same, at a limited rate  job ─► enqueued by the thread ─────────► event done
 *     copy into any other slot     job ─► ring (thread) ─► buffer full ─► landed in the slot
 *     copy to a device             the same two ways: the ring's buffer is filled, then emptied
 *
 * An event of a work is recorded again with each addition: the stream is in order, so the last one
 * covers all. `marks` counts that, since an answer about an earlier one may come late.
 */
#include "work_parts.h"

#include "client/base/clock.h"
#include "core/base/fail.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pace.h"

#define PAUSE_LEAST_US 20u
#define PAUSE_MOST_US  1000u
#define ENDS_MS        2000u
#define LOST           3u /* errors in a row of looks at an event: the context is lost */

static struct {
    pthread_once_t once;
    pthread_mutex_t gate; /* held to start or stop the thread */
    pthread_mutex_t lock;
    pthread_cond_t due;     /* for the thread */
    pthread_cond_t changed; /* for those that wait for works */
    struct hth_work *all;
    unsigned users;
    int runs, stop;
    int ends, over; /* the thread has left its loop; has closed the devices, too */
    pthread_t thread;
    atomic_int forked;
} here = {
    .once = PTHREAD_ONCE_INIT, .gate = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER
};

static void works_forked(void)
{
    if (here.users)
        atomic_store(&here.forked, 1);
}

static void works_init(void)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&here.due, &attr);
    pthread_cond_init(&here.changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_atfork(NULL, NULL, works_forked);
}

void hth_works_lock(void)
{
    pthread_mutex_lock(&here.lock);
}

void hth_works_unlock(void)
{
    pthread_mutex_unlock(&here.lock);
}

void hth_works_due_locked(void)
{
    pthread_cond_signal(&here.due);
}

void hth_works_changed_locked(void)
{
    pthread_cond_broadcast(&here.changed);
}

/* HEARTH_OK, or HEARTH_ETIMEOUT */
static int works_wait_locked(uint64_t until_ms)
{
    struct timespec t = { .tv_sec = (time_t)(until_ms / 1000),
        .tv_nsec = (long)(until_ms % 1000) * 1000000 };

    return pthread_cond_timedwait(&here.changed, &here.lock, &t) == ETIMEDOUT ? HEARTH_ETIMEOUT
                                                                              : HEARTH_OK;
}

/* ---- state of a work ------------------------------------------------------------------------ */

static int work_is_stopped(const struct hth_work *w)
{
    return w->error.code || w->dropped;
}

static int work_is_idle(const struct hth_work *w)
{
    int idle = !w->jobs && !w->in_ring;

    for (unsigned i = 0; i < w->gpus && idle; i++)
        idle = !w->on[i].pending;
    return idle;
}

static void work_fail_locked(
        struct hth_work *w, const struct hth_work_on *on, int rc, const struct hearth_error *why)
{
    if (w->error.code)
        return;
    w->error = *why;
    hth_while(&w->error, rc, "piece %s or one behind it: GPU %d", on->key, on->gpu->at.device);
    pthread_cond_broadcast(&here.changed);
}

struct hth_work_on *hth_work_find(struct hth_work *w, const struct hth_gpu *gpu)
{
    for (unsigned i = 0; i < w->gpus; i++)
        if (w->on[i].gpu == gpu)
            return &w->on[i];
    return NULL;
}

void hth_work_mark_locked(struct hth_work_on *on)
{
    on->marks++;
    on->pending = 1;
    pthread_cond_signal(&here.due); /* the thread may sleep, as nothing was under way */
}

/* ---- the thread: the ring ------------------------------------------------------------------- */

static void ring_pop_locked(struct hth_gpu *gpu)
{
    struct hth_ring_job *job = gpu->first;

    gpu->first = job->next;
    if (!gpu->first)
        gpu->last = NULL;
    job->work->jobs--;
    pthread_cond_broadcast(&here.changed);
    free(job);
}

/* The contents of a buffer, of the first job. The lock is dropped meanwhile. */
static int ring_take_locked(struct hth_gpu *gpu, struct hearth_error *err)
{
    struct hth_ring_job *job = gpu->first;
    struct hth_work *w = job->work;
    int rc;

    w->landing = 1;
    pthread_mutex_unlock(&here.lock);
    rc = hth_ring_take(gpu->ring, job, w->owner.way, w->owner.land, w->owner.owner);
    pthread_mutex_lock(&here.lock);
    w->landing = 0;
    pthread_cond_broadcast(&here.changed);
    return rc ? hth_fail(err, rc, 0, "no memory to move its bytes to the GPU") : HEARTH_OK;
}

static int ring_make(struct hth_gpu *gpu, struct hearth_error *err)
{
    int rc = gpu->driver->enter(&gpu->at, err);

    if (rc)
        return rc;
    rc = hth_ring_open(&gpu->ring, gpu->driver, err);
    gpu->driver->leave();
    return rc;
}

/* For the first job that needs it. The lock is dropped meanwhile. */
static void ring_make_locked(struct hth_gpu *gpu)
{
    struct hth_work *w = gpu->first->work;
    struct hearth_error err = { 0 };
    int rc;

    pthread_mutex_unlock(&here.lock);
    rc = ring_make(gpu, &err);
    pthread_mutex_lock(&here.lock);
    if (rc)
        work_fail_locked(w, hth_work_find(w, gpu), rc, &err);
}

static int ring_send(
        struct hth_gpu *gpu, const struct hth_work_on *on, int *out_sent, struct hearth_error *err)
{
    int rc = gpu->driver->enter(&gpu->at, err);

    if (rc)
        return rc;
    rc = hth_ring_send(gpu->ring, gpu->stream, err);
    *out_sent = 1;
    if (!rc)
        rc = gpu->driver->record(on->event, gpu->stream, err);
    gpu->driver->leave();
    return rc;
}

/* At most one buffer's bytes, of the first job. The lock is dropped meanwhile. */
static void ring_fill_locked(struct hth_gpu *gpu)
{
    struct hth_ring_job *job = gpu->first;
    struct hth_work_on *on = hth_work_find(job->work, gpu);
    uint64_t taken = job->taken, now = hth_pace_now_us();
    struct hearth_error err = { 0 };
    int rc = HEARTH_OK, sent = 0, unmarked = 0;

    if (!job->straight)
        rc = ring_take_locked(gpu, &err);
    if (!rc) {
        pthread_mutex_unlock(&here.lock);
        rc = job->straight ? hth_pace_copy(gpu, on->event, job, &unmarked, &err)
                           : ring_send(gpu, on, &sent, &err);
        pthread_mutex_lock(&here.lock);
    }
    hth_pace_took(gpu, job, taken, now);
    job->work->in_ring += (unsigned)sent;
    on->unmarked |= unmarked;
    if (rc)
        work_fail_locked(job->work, on, rc, &err);
    if (!rc || job->straight)
        hth_work_mark_locked(on);
    if (rc || job->at == job->count)
        ring_pop_locked(gpu);
}

/* One more event of a buffer covers more copies than its own: it is done later at most. */
static int ring_mark_again(struct hth_gpu *gpu, struct hearth_error *err)
{
    int rc = gpu->driver->enter(&gpu->at, err);

    if (rc)
        return rc;
    rc = hth_ring_mark(gpu->ring, gpu->stream, err);
    gpu->driver->leave();
    return rc;
}

/* The buffer that is due, if its copies are done. The lock is dropped meanwhile. */
static int ring_land_locked(struct hth_gpu *gpu)
{
    struct hearth_error err = { 0 };
    struct hth_work *w;
    int done, rc, moves, landed = HEARTH_OK, marked = HEARTH_OK;

    pthread_mutex_unlock(&here.lock);
    if (hth_ring_is_unmarked(gpu->ring))
        marked = ring_mark_again(gpu, &err);
    rc = hth_ring_look(gpu->ring, &w, &done, &err);
    rc = marked ? marked : rc;
    pthread_mutex_lock(&here.lock);
    if (!w || (!rc && !done))
        return 0;
    if (rc)
        work_fail_locked(w, hth_work_find(w, gpu), rc, &err);
    gpu->errors = rc ? gpu->errors + 1 : 0;
    if (rc && gpu->errors < LOST)
        return 0;
    moves = w->landing = !work_is_stopped(w);
    pthread_mutex_unlock(&here.lock);
    landed = hth_ring_land(gpu->ring, moves ? w->owner.land : NULL, w->owner.owner);
    pthread_mutex_lock(&here.lock);
    if (landed) {
        hth_fail(&err, landed, 0, "no memory to move its bytes into the slot");
        work_fail_locked(w, hth_work_find(w, gpu), landed, &err);
    }
    w->landing = 0;
    w->in_ring--;
    pthread_cond_broadcast(&here.changed);
    return 1;
}

static int ring_may_fill_locked(const struct hth_gpu *gpu)
{
    const struct hth_ring_job *job = gpu->first;

    if (!job || work_is_stopped(job->work))
        return job != NULL;
    return (job->straight || !gpu->ring || hth_ring_has_room(gpu->ring)) &&
           !hth_pace_wait_us(gpu, job);
}

/* While the first job waits for its time, the next one that waits for none goes before it. */
static void ring_overtake_locked(struct hth_gpu *gpu)
{
    struct hth_ring_job *before = gpu->first, *job;

    if (!before || !hth_pace_wait_us(gpu, before))
        return;
    while ((job = before->next) && job->work->owner.mib_s && !work_is_stopped(job->work))
        before = job;
    if (!job)
        return;
    before->next = job->next;
    if (gpu->last == job)
        gpu->last = before;
    job->next = gpu->first;
    gpu->first = job;
}

static int ring_step_locked(struct hth_gpu *gpu)
{
    int moved = 0;

    for (ring_overtake_locked(gpu); ring_may_fill_locked(gpu); ring_overtake_locked(gpu)) {
        moved = 1;
        if (work_is_stopped(gpu->first->work))
            ring_pop_locked(gpu);
        else if (!gpu->first->straight && !gpu->ring)
            ring_make_locked(gpu);
        else
            ring_fill_locked(gpu);
    }
    return gpu->ring ? moved | ring_land_locked(gpu) : moved;
}

/* ---- the thread: events --------------------------------------------------------------------- */

static int work_mark_again(const struct hth_work_on *on, struct hearth_error *err)
{
    const struct hth_gpu *gpu = on->gpu;
    int rc = gpu->driver->enter(&gpu->at, err);

    if (rc)
        return rc;
    rc = gpu->driver->record(on->event, gpu->stream, err);
    gpu->driver->leave();
    return rc;
}

/* One error does not say that the copies have ended, and the slot is lent anew once they have. */
static int work_look_at_locked(struct hth_work *w, struct hth_work_on *on)
{
    uint64_t marks = on->marks;
    struct hearth_error err = { 0 };
    int unmarked = on->unmarked, done = 0, rc = HEARTH_OK;

    pthread_mutex_unlock(&here.lock);
    if (unmarked)
        rc = work_mark_again(on, &err);
    if (!rc)
        rc = on->gpu->driver->done(on->event, &done, &err);
    pthread_mutex_lock(&here.lock);
    if (rc)
        work_fail_locked(w, on, rc, &err);
    else if (unmarked)
        on->unmarked = 0;
    on->errors = rc ? on->errors + 1 : 0;
    if (rc ? on->errors < LOST : !done || marks != on->marks)
        return 0;
    on->pending = 0;
    pthread_cond_broadcast(&here.changed);
    return 1;
}

static void work_finish_locked(struct hth_work *w)
{
    struct hth_work_owner owner = w->owner;

    w->landing = 1; /* done() runs */
    pthread_mutex_unlock(&here.lock);
    if (owner.done)
        owner.done(owner.arg, w->error.code ? &w->error : NULL);
    pthread_mutex_lock(&here.lock);
    w->landing = 0;
    w->finished = 1;
    pthread_cond_broadcast(&here.changed);
}

static void work_free(struct hth_work *w)
{
    for (unsigned i = 0; i < w->gpus; i++) {
        struct hth_gpu *gpu = w->on[i].gpu;
        int entered = !gpu->driver->enter(&gpu->at, NULL); /* a lost context: not so */

        gpu->driver->event_close(w->on[i].event);
        if (entered)
            gpu->driver->leave();
    }
    free(w);
}

static int work_step_locked(struct hth_work *w)
{
    int moved = 0;

    for (unsigned i = 0; i < w->gpus; i++)
        if (w->on[i].pending)
            moved |= work_look_at_locked(w, &w->on[i]);
    if (w->ended && !w->finished && work_is_idle(w)) {
        work_finish_locked(w);
        moved = 1;
    }
    return moved;
}

/* Frees works that nobody uses any more. */
static void works_reap_locked(void)
{
    struct hth_work **at = &here.all;

    while (*at) {
        struct hth_work *w = *at;

        if (!w->finished || w->refs > 1) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        pthread_mutex_unlock(&here.lock);
        work_free(w);
        pthread_mutex_lock(&here.lock);
        at = &here.all;
    }
}

static int works_step_locked(void)
{
    struct hth_gpu *gpu;
    int moved = 0;

    for (unsigned i = 0; (gpu = hth_gpu_at(i)); i++)
        moved |= ring_step_locked(gpu);
    for (struct hth_work *w = here.all; w; w = w->next)
        moved |= work_step_locked(w);
    works_reap_locked();
    return moved;
}

static int works_are_idle_locked(void)
{
    int idle = 1;

    for (struct hth_work *w = here.all; w && idle; w = w->next)
        idle = work_is_idle(w) && (!w->ended || w->finished) && (!w->finished || w->refs > 1);
    return idle;
}

/* How long the thread rests: until the next look at what is under way, or until the limit of a rate
 * lets it go on. */
static uint64_t works_rest_us_locked(uint64_t pause)
{
    uint64_t least = UINT64_MAX;
    struct hth_gpu *gpu;
    int looks = 0;

    for (unsigned i = 0; (gpu = hth_gpu_at(i)); i++) {
        uint64_t us = gpu->first ? hth_pace_wait_us(gpu, gpu->first) : 0;

        least = us && us < least ? us : least;
    }
    for (struct hth_work *w = here.all; w && !looks; w = w->next) {
        looks = w->in_ring != 0;
        for (unsigned i = 0; i < w->gpus; i++)
            looks |= w->on[i].pending;
    }
    return least == UINT64_MAX || (looks && pause < least) ? pause : least;
}

static void works_pause_locked(uint64_t us)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (long)us * 1000;
    t.tv_sec += t.tv_nsec / 1000000000; /* a limited rate: 16 s at most */
    t.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&here.due, &here.lock, &t);
}

static void *works_run(void *arg)
{
    unsigned pause = PAUSE_LEAST_US;

    pthread_mutex_lock(&here.lock);
    while (!here.stop || here.all) {
        if (works_step_locked()) {
            pause = PAUSE_LEAST_US;
        } else if (works_are_idle_locked()) {
            if (!here.stop || here.all)
                pthread_cond_wait(&here.due, &here.lock);
        } else {
            works_pause_locked(works_rest_us_locked(pause));
            pause = pause * 2 < PAUSE_MOST_US ? pause * 2 : PAUSE_MOST_US;
        }
    }
    here.ends = 1;
    pthread_mutex_unlock(&here.lock);
    hth_gpus_close(); /* the driver may block */
    pthread_mutex_lock(&here.lock);
    here.over = 1;
    pthread_cond_broadcast(&here.changed);
    pthread_mutex_unlock(&here.lock);
    return arg;
}

static int works_start_locked(struct hearth_error *err)
{
    sigset_t all, old;
    int why;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    here.stop = here.ends = here.over = 0;
    why = pthread_create(&here.thread, NULL, works_run, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    here.runs = !why;
    return why ? hth_fail(err, HEARTH_ENOMEM, why, "no thread for copies of GPU memory: %s",
                         strerror(why))
               : HEARTH_OK;
}

static void works_join_locked(void)
{
    pthread_join(here.thread, NULL); /* it needs no lock any more */
    here.runs = 0;
}

/* The thread of the last membership ends still. */
static int works_ended_locked(struct hearth_error *err)
{
    uint64_t until = hth_until_ms(ENDS_MS);

    while (here.ends && !here.over)
        if (works_wait_locked(until) != HEARTH_OK)
            return hth_fail(err, HEARTH_ETIMEOUT, 0,
                    "the GPUs' driver has not returned from calls of a membership that was closed");
    if (here.runs && here.over)
        works_join_locked();
    return HEARTH_OK;
}

int hth_works_enter(struct hearth_error *err)
{
    int rc;

    pthread_once(&here.once, works_init);
    if (atomic_load(&here.forked))
        return hth_fail(err, HEARTH_EFORK, 0,
                "this process is a child of one that used GPU memory: it cannot use the GPU");
    pthread_mutex_lock(&here.gate);
    pthread_mutex_lock(&here.lock);
    rc = works_ended_locked(err);
    if (!rc && !here.runs)
        rc = works_start_locked(err);
    here.users += !rc;
    pthread_mutex_unlock(&here.lock);
    pthread_mutex_unlock(&here.gate);
    return rc;
}

void hth_works_leave(uint64_t until_ms)
{
    int last;

    pthread_mutex_lock(&here.gate);
    pthread_mutex_lock(&here.lock);
    last = --here.users == 0;
    here.stop = last;
    pthread_cond_signal(&here.due);
    while (last && !here.over && works_wait_locked(until_ms) == HEARTH_OK)
        ;
    /* A work that does not end: the thread stays, also for the next membership. */
    here.stop = here.ends;
    if (here.over)
        works_join_locked();
    pthread_mutex_unlock(&here.lock);
    pthread_mutex_unlock(&here.gate);
}

/* ---- works ---------------------------------------------------------------------------------- */

int hth_work_open(
        struct hth_work **out, const struct hth_work_owner *owner, struct hearth_error *err)
{
    struct hth_work *w = calloc(1, sizeof(*w)), **end = &here.all;

    if (!w)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for copies of GPU memory");
    w->owner = *owner;
    w->refs = 2;
    pthread_mutex_lock(&here.lock);
    while (*end)
        end = &(*end)->next;
    *end = w;
    pthread_mutex_unlock(&here.lock);
    *out = w;
    return HEARTH_OK;
}

void hth_work_put(struct hth_work *work)
{
    if (!work)
        return;
    pthread_mutex_lock(&here.lock);
    work->refs--;
    pthread_cond_signal(&here.due);
    pthread_mutex_unlock(&here.lock);
}

void hth_work_end(struct hth_work *work, int dropped)
{
    pthread_mutex_lock(&here.lock);
    work->dropped |= dropped;
    work->ended = 1;
    pthread_cond_signal(&here.due);
    pthread_mutex_unlock(&here.lock);
}

void hth_work_stop(struct hth_work *work, uint64_t until_ms)
{
    int late = 0;

    hth_work_end(work, 1);
    pthread_mutex_lock(&here.lock);
    while (work->landing || (!work->finished && !late))
        late |= works_wait_locked(late ? hth_until_ms(10) : until_ms) != HEARTH_OK;
    pthread_mutex_unlock(&here.lock);
}

unsigned hth_works_drain(const void *owner, uint64_t until_ms)
{
    unsigned left;
    int late = 0;

    pthread_mutex_lock(&here.lock);
    for (struct hth_work *w = here.all; w; w = w->next)
        if (w->owner.owner == owner) {
            w->owner.mib_s = 0;
            w->dropped |= !w->ended; /* nobody will end it */
            w->ended = 1;
        }
    pthread_cond_signal(&here.due);
    for (;;) {
        left = 0;
        for (struct hth_work *w = here.all; w; w = w->next) {
            left += w->owner.owner == owner && !w->finished && (!late || w->landing);
            w->dropped |= late && w->owner.owner == owner;
            if (late && w->owner.owner == owner && !w->landing)
                w->owner.done = NULL;
        }
        if (!left)
            break;
        late |= works_wait_locked(late ? hth_until_ms(10) : until_ms) != HEARTH_OK;
    }
    for (struct hth_work *w = here.all; w; w = w->next)
        left += w->owner.owner == owner && !w->finished;
    pthread_mutex_unlock(&here.lock);
    return left;
}

/* ---- fence ---------------------------------------------------------------------------------- */

static const struct hth_work_on *fence_late(const struct hth_work *w)
{
    unsigned i = 0;

    while (i + 1 < w->gpus && !w->on[i].pending)
        i++;
    return &w->on[i];
}

/* all: also those that are enqueued have arrived. */
static int fence_wait(struct hth_work *w, int all, uint64_t until_ms, struct hearth_error *err)
{
    int rc = HEARTH_OK;

    pthread_mutex_lock(&here.lock);
    while (!rc && !w->error.code && (all ? !work_is_idle(w) : w->jobs != 0))
        rc = works_wait_locked(until_ms);
    if (w->error.code) {
        rc = w->error.code;
        if (err)
            *err = w->error;
    } else if (rc) {
        hth_fail(err, rc, 0, "piece %s or one behind it: GPU %d has not copied it in time",
                fence_late(w)->key, fence_late(w)->gpu->at.device);
    }
    pthread_mutex_unlock(&here.lock);
    return rc;
}

/* The stream goes on after all copies of the work from one device. It may be another one's. */
static int fence_after(const struct hth_work_on *on, const struct hth_gpu *of, void *stream,
        struct hearth_error *err)
{
    const struct hth_driver *d = of->driver;
    int rc = d->enter(&of->at, err);

    if (rc)
        return rc;
    if (!(rc = d->may_use(stream, err)))
        rc = d->after(stream, on->event, err);
    d->leave();
    return rc;
}

int hth_stream_is_of_one(const void *stream)
{
    return (uintptr_t)stream > 2;
}

static int fence_order(const struct hth_work_on *on, void *stream, struct hearth_error *err)
{
    struct hearth_error why = { 0 };
    const struct hth_gpu *other;
    int rc = fence_after(on, on->gpu, stream, err);

    if (!hth_stream_is_of_one(stream))
        return rc;
    for (unsigned i = 0; rc && rc != HEARTH_EUNSUPPORTED && (other = hth_gpu_at(i)); i++)
        if (other != on->gpu && other->driver == on->gpu->driver)
            rc = fence_after(on, other, stream, &why);
    if (rc == HEARTH_EUNSUPPORTED && why.code == rc && err)
        *err = why;
    return rc;
}

int hth_work_taken(struct hth_work *work, uint64_t until_ms, struct hearth_error *err)
{
    return fence_wait(work, 0, until_ms, err);
}

int hth_work_fence(struct hth_work *work, void *stream, uint64_t until_ms, struct hearth_error *err)
{
    int rc = fence_wait(work, !stream, until_ms, err);

    for (unsigned i = 0; stream && i < work->gpus && !rc; i++)
        rc = fence_order(&work->on[i], stream, err);
    return rc;
}
