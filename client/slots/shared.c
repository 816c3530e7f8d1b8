/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that this process reads, in a tree. Each opening of an object asks the engine for a lease
 * of its own, since the engine may have put a wrong copy aside meanwhile. If the answer is the file
 * that is mapped already, the newer lease replaces the older:
 *
 *     MAP ─► the same save, object, file ─► users + 1, the older lease goes back
 *       └──► any other ─────────────────► mapped, users = 1
 *
 *     view ─► users + 1, without a lock      put ─► users - 1 ─► 0: unmapped, the lease goes back
 *       └──► the first, until the last: a child of a fork inherits the mapping
 *
 * A child of a fork closes their descriptors: a slot that a process has open keeps its memory.
 */
#include "shared.h"

#include "client/device/device.h"
#include "client/device/pin.h"
#include "client/link/leases.h"
#include "core/base/map.h"
#include "lease.h"
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int shared_order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int shared_cmp(const void *a, const void *b)
{
    const struct hth_shared *x = a, *y = b;
    int way = hth_save_cmp(x->save, y->save);

    way = way ? way : shared_order(x->object, y->object);
    way = way ? way : shared_order(x->dev, y->dev);
    way = way ? way : shared_order(x->ino, y->ino);
    return way ? way : shared_order(x->bytes, y->bytes);
}

static struct {
    pthread_once_t once;
    pthread_mutex_t lock;
    struct hth_shared *all;
} here = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

static void shared_fork_before(void)
{
    pthread_mutex_lock(&here.lock);
}

static void shared_fork_parent(void)
{
    pthread_mutex_unlock(&here.lock);
}

static void shared_fork_child(void)
{
    for (struct hth_shared *s = here.all; s; s = s->next) {
        close(s->fd);
        s->fd = -1;
    }
    pthread_mutex_unlock(&here.lock);
}

static void shared_fork_watch(void)
{
    pthread_atfork(shared_fork_before, shared_fork_parent, shared_fork_child);
}

static void shared_enlist(struct hth_shared *s)
{
    pthread_once(&here.once, shared_fork_watch);
    pthread_mutex_lock(&here.lock);
    s->at = &here.all;
    s->next = here.all;
    if (s->next)
        s->next->at = &s->next;
    here.all = s;
    pthread_mutex_unlock(&here.lock);
}

static void shared_free(struct hth_shared *s)
{
    pthread_mutex_lock(&here.lock);
    *s->at = s->next;
    if (s->next)
        s->next->at = s->at;
    if (s->fd >= 0)
        close(s->fd);
    pthread_mutex_unlock(&here.lock);
    if (s->pin)
        hth_pin_close(s->pin); /* the driver is told before it is unmapped */
    else if (s->map)
        munmap((void *)(uintptr_t)s->map, s->bytes);
    free(s);
}

static struct hth_shared *shared_make(struct hearth *h, const struct hth_lease *lease, int fd,
        uint64_t bytes, struct hearth_error *err)
{
    struct hth_shared *s = malloc(sizeof(*s));

    if (!s) {
        close(fd);
        hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an object's mapping");
        return NULL;
    }
    *s = (struct hth_shared){ .h = h,
        .bytes = bytes,
        .fd = fd,
        .save = lease->save,
        .object = lease->object,
        .dev = lease->dev,
        .ino = lease->ino,
        .users = 1 };
    shared_enlist(s);
    return s;
}

/* The object in the tree that is the same; enter: `own`, if there is none. NULL: none, or no
 * memory. */
static struct hth_shared *shared_join(struct hth_shared *own, int enter, struct hth_lease **lease)
{
    struct hearth *h = own->h;
    struct hth_shared *const *at, *s;

    pthread_mutex_lock(&h->lock);
    at = enter ? tsearch(own, &h->shared, shared_cmp) : tfind(own, &h->shared, shared_cmp);
    s = at ? *at : NULL;
    if (s) {
        struct hth_lease *older = s->lease;

        atomic_fetch_add(&s->users, s != own);
        s->lease = *lease;
        *lease = older;
    }
    pthread_mutex_unlock(&h->lock);
    return s;
}

static int shared_map(struct hth_shared *s, struct hearth_error *err)
{
    s->map = hth_map_shared(s->fd, s->bytes, PROT_READ);
    return s->map ? HEARTH_OK
                  : hth_fail(err, HEARTH_ENOMEM, errno, "map an object of %" PRIu64 " bytes: %s",
                            s->bytes, strerror(errno));
}

int hth_shared_get(struct hearth *h, struct hth_lease *lease, int fd, uint64_t bytes,
        struct hth_shared **out, struct hearth_error *err)
{
    struct hth_shared *own = shared_make(h, lease, fd, bytes, err), *s = NULL;
    int rc = own ? HEARTH_OK : HEARTH_ENOMEM;

    if (own)
        s = shared_join(own, 0, &lease);
    if (own && !s && !(rc = shared_map(own, err)) && !(s = shared_join(own, 1, &lease)))
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an object's mapping");
    if (own && s != own)
        shared_free(own);
    if (lease)
        hth_lease_put(h, lease);
    if (!rc)
        *out = s;
    return rc;
}

/* One view more or less, if there is one that stays. */
static int shared_count_view(struct hth_shared *s, uint64_t stay, uint64_t more)
{
    uint64_t views = atomic_load(&s->views);

    while (views >= stay)
        if (atomic_compare_exchange_weak(&s->views, &views, views + more))
            return 1;
    return 0;
}

const struct hth_pin *hth_shared_pin(struct hth_shared *s)
{
    struct hearth *h = s->h;

    pthread_mutex_lock(&h->lock);
    if (h->device && h->device->pin && !s->pin)
        s->pin = hth_pin_open(h->device, (void *)(uintptr_t)s->map, s->bytes, 1);
    pthread_mutex_unlock(&h->lock);
    return s->pin;
}

void hth_shared_hold(struct hth_shared *s)
{
    atomic_fetch_add(&s->users, 1);
}

int hth_shared_view(struct hth_shared *s, struct hearth_error *err)
{
    int why = 0;

    if (!shared_count_view(s, 1, 1)) {
        pthread_mutex_lock(&here.lock);
        if (!atomic_load(&s->views) && madvise((void *)(uintptr_t)s->map, s->bytes, MADV_DOFORK))
            why = errno;
        else
            atomic_fetch_add(&s->views, 1);
        pthread_mutex_unlock(&here.lock);
    }
    if (why)
        return hth_fail(
                err, HEARTH_ENOMEM, why, "map an object for children too: %s", strerror(why));
    hth_shared_hold(s);
    return HEARTH_OK;
}

void hth_shared_view_put(struct hth_shared *s)
{
    if (!shared_count_view(s, 2, UINT64_MAX)) {
        pthread_mutex_lock(&here.lock);
        if (atomic_fetch_sub(&s->views, 1) == 1)
            madvise((void *)(uintptr_t)s->map, s->bytes, MADV_DONTFORK);
        pthread_mutex_unlock(&here.lock);
    }
    hth_shared_put(s);
}

/* 1: it was the last user. */
static int shared_leave(struct hearth *h, struct hth_shared *s)
{
    struct hth_lease *lease;
    int last;

    pthread_mutex_lock(&h->lock);
    last = atomic_fetch_sub(&s->users, 1) == 1;
    if (last)
        tdelete(s, &h->shared, shared_cmp);
    lease = s->lease;
    pthread_mutex_unlock(&h->lock);
    if (last)
        hth_lease_put(h, lease);
    return last;
}

void hth_shared_put(struct hth_shared *s)
{
    struct hearth *h = s->h;
    uint64_t users = atomic_load(&s->users);

    if (h && hth_enter(h, NULL)) /* the parent's threads may have held the lock */
        return;
    while (users > 1)
        if (atomic_compare_exchange_weak(&s->users, &users, users - 1))
            return;
    if (h ? shared_leave(h, s) : atomic_fetch_sub(&s->users, 1) == 1)
        shared_free(s);
}

static void shared_orphan(void *at)
{
    struct hth_shared *s = at;

    s->h = NULL;
    s->lease = NULL;
}

void hth_shared_fini(struct hearth *h)
{
    tdestroy(h->shared, shared_orphan);
    h->shared = NULL;
}
