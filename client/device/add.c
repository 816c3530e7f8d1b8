/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that a call enqueues: of pinned host memory on the device's stream at once, of any other,
 * or at a limited rate, as a job for the thread. They come behind what is in the caller's stream.
 */
#include "work_parts.h"

#include "core/base/grow.h"
#include "cut.h"
#include "pin.h"
#include <stdlib.h>
#include <string.h>

/* The copies of one call of one device whose host memory is pinned. */
struct direct {
    struct hth_device_copy *copy;
    size_t *of; /* [count] piece of each */
    size_t count, room, of_room;
};

static int direct_add(
        struct direct *d, const struct hth_work_piece *p, size_t piece, struct hearth_error *err)
{
    uint64_t all = hth_device_bytes(&p->copy);

    for (uint64_t off = 0; off < all;) {
        struct hth_device_copy *more = hth_grow(d->copy, &d->room, d->count + 1, 64, sizeof(*more));
        size_t *of = NULL;

        if (more) {
            d->copy = more;
            of = hth_grow(d->of, &d->of_room, d->count + 1, 64, sizeof(*of));
        }
        if (!of)
            return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of copies");
        d->of = of;
        d->of[d->count] = piece;
        off += hth_device_part(&p->copy, off, UINT64_MAX,
                hth_pin_reach(p->pin, hth_device_host(&p->copy, off)), &d->copy[d->count++]);
    }
    return HEARTH_OK;
}

static int add_wrong(const struct hth_work_piece *p, int rc, struct hearth_error *err)
{
    char key[HTH_KEY_TEXT];

    return hth_while(
            err, rc, "piece %s: GPU %d", hth_key_text(p->key, p->key_len, key), p->gpu->at.device);
}

/* An event that follows the caller's stream. The stream is of one of the devices. */
static int add_mark_stream(struct hth_gpu *gpu, void *stream, void **out, struct hearth_error *err)
{
    const struct hth_driver *d = gpu->driver;
    int rc = d->enter(&gpu->at, err);

    if (rc)
        return rc;
    if (!(rc = d->may_use(stream, err)) && !(rc = d->event_open(out, err)) &&
            (rc = d->record(*out, stream, err)))
        d->event_close(*out);
    d->leave();
    return rc;
}

/* Our stream of the device goes on after the caller's: of `of`, which may be another device. */
static int add_follow(
        struct hth_gpu *gpu, struct hth_gpu *of, void *stream, struct hearth_error *err)
{
    const struct hth_driver *d = gpu->driver;
    void *event;
    int rc, entered;

    if ((rc = add_mark_stream(of, stream, &event, err)))
        return rc;
    if (!(rc = d->enter(&gpu->at, err))) {
        rc = d->after(gpu->stream, event, err);
        d->leave();
    }
    entered = !d->enter(&of->at, NULL);
    d->event_close(event);
    if (entered)
        d->leave();
    return rc;
}

/* A stream is of one device, and the caller does not say of which. */
static int add_order(struct hth_gpu *gpu, void *stream, struct hearth_error *err)
{
    struct hearth_error why = { 0 };
    struct hth_gpu *other;
    int rc = add_follow(gpu, gpu, stream, err);

    if (!hth_stream_is_of_one(stream))
        return rc;
    for (unsigned i = 0; rc && rc != HEARTH_EUNSUPPORTED && (other = hth_gpu_at(i)); i++)
        if (other != gpu && other->driver == gpu->driver)
            rc = add_follow(gpu, other, stream, &why);
    if (rc == HEARTH_EUNSUPPORTED && why.code == rc && err)
        *err = why; /* the stream is of that device, and captured */
    return rc;
}

static struct hth_work_on *add_on(
        struct hth_work *w, const struct hth_work_piece *p, struct hearth_error *err)
{
    struct hth_work_on *on = hth_work_find(w, p->gpu);
    void *event = NULL;

    if (on)
        return on;
    if (p->gpu->driver->enter(&p->gpu->at, err))
        return NULL;
    if (p->gpu->driver->event_open(&event, err))
        event = NULL;
    p->gpu->driver->leave();
    if (!event)
        return NULL;
    hth_works_lock();
    on = &w->on[w->gpus++];
    on->gpu = p->gpu;
    on->event = event;
    hth_key_text(p->key, p->key_len, on->key);
    hth_works_unlock();
    return on;
}

static int add_direct(struct hth_work *w, struct hth_work_on *on,
        const struct hth_work_piece *pieces, const struct direct *d, struct hearth_error *err)
{
    int rc, unmarked;
    size_t bad;

    if (!d->count)
        return HEARTH_OK;
    if ((rc = hth_gpu_copy(
                 on->gpu, w->owner.way, on->event, d->copy, d->count, &bad, &unmarked, err)))
        add_wrong(&pieces[d->of[bad < d->count ? bad : 0]], rc, err);
    hth_works_lock();
    on->unmarked |= unmarked;
    hth_work_mark_locked(on);
    hth_works_unlock();
    return rc;
}

static void add_job(struct hth_work *w, struct hth_gpu *gpu, struct hth_ring_job *job)
{
    job->work = w;
    hth_works_lock();
    if (gpu->last)
        gpu->last->next = job;
    else
        gpu->first = job;
    gpu->last = job;
    w->jobs++;
    hth_works_due_locked();
    hth_works_unlock();
}

/* The thread enqueues them in parts, each in its time. */
static int add_limited(struct hth_work *w, struct hth_work_on *on, const struct direct *d,
        struct hearth_error *err)
{
    struct hth_ring_job *job;

    if (!d->count)
        return HEARTH_OK;
    if (!(job = calloc(1, sizeof(*job) + d->count * sizeof(job->copy[0]))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of copies");
    job->straight = 1;
    job->count = d->count;
    memcpy(job->copy, d->copy, d->count * sizeof(job->copy[0]));
    add_job(w, on->gpu, job);
    return HEARTH_OK;
}

/* All pieces of this device: those in pinned memory, then those for the ring. */
static int add_from(struct hth_work *w, struct hth_work_on *on, const struct hth_work_piece *pieces,
        size_t count, struct hearth_error *err)
{
    struct hth_ring_job *job = NULL;
    struct direct d = { 0 };
    int rc = HEARTH_OK;

    for (size_t i = 0; i < count && !rc; i++) {
        const struct hth_work_piece *p = &pieces[i];

        if (p->gpu != on->gpu)
            continue;
        if (hth_pin_reach(p->pin, p->copy.host)) {
            rc = direct_add(&d, p, i, err);
            continue;
        }
        if (!job && (job = malloc(sizeof(*job) + (count - i) * sizeof(job->copy[0]))))
            *job = (struct hth_ring_job){ .next = NULL };
        if (job)
            job->copy[job->count++] = p->copy;
        else
            rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of copies");
    }
    if (!rc)
        rc = w->owner.mib_s ? add_limited(w, on, &d, err) : add_direct(w, on, pieces, &d, err);
    if (!rc && job)
        add_job(w, on->gpu, job);
    else
        free(job);
    free(d.copy);
    free(d.of);
    return rc;
}

static int work_failed(struct hth_work *w, struct hearth_error *err)
{
    int code;

    hth_works_lock();
    code = w->error.code;
    if (code && err)
        *err = w->error;
    hth_works_unlock();
    return code;
}

int hth_work_add(struct hth_work *work, void *stream, const struct hth_work_piece *pieces,
        size_t count, struct hearth_error *err)
{
    struct hearth_error why = { 0 };
    struct hth_work_on *on = NULL;
    int rc = work_failed(work, err);
    uint64_t seen = 0; /* devices of this call */
    int begun = 0;     /* some copies may be under way */

    if (rc)
        return rc;
    for (size_t i = 0; i < count && !rc; i++) {
        unsigned at;

        if (!(on = add_on(work, &pieces[i], &why))) {
            rc = add_wrong(&pieces[i], why.code, &why);
            break;
        }
        at = (unsigned)(on - work->on);
        if (seen >> at & 1)
            continue;
        seen |= UINT64_C(1) << at;
        if ((rc = add_order(on->gpu, stream, &why)))
            rc = add_wrong(&pieces[i], rc, &why);
        else
            begun = 1;
        rc = rc ? rc : add_from(work, on, pieces + i, count - i, &why);
    }
    if (!rc)
        return HEARTH_OK;
    hth_works_lock();
    if (begun && !work->error.code)
        work->error = why;
    hth_works_changed_locked();
    hth_works_unlock();
    if (err)
        *err = why;
    return rc;
}
