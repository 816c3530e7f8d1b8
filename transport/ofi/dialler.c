/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Endpoints of dialled connections are made on threads of their own, because that may block: verbs
 * of libfabric up to 1.20 looks for the peer in the network, for 2 s if the peer is gone.
 *
 *   hth_ofi_dial() --> todo --> a thread: fi_endpoint() --> done --> hth_ofi_dialled()
 *
 * Threads start when a dial is queued, at most MOST at once, and end when the queue is empty.
 */
#include "ofi.h"

#include <signal.h>
#include <stdlib.h>

#define MOST 16u /* with so many dead nodes a live one waits for 2 s */

void hth_ofi_dialler_init(struct hth_ofi *o)
{
    struct hth_ofi_dialler *d = &o->dialler;

    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->ended, NULL);
    d->todo_end = &d->todo;
}

static void dial_free(struct hth_ofi *o, struct hth_ofi_dial *dial)
{
    o->lib->freeinfo(dial->info);
    free(dial);
}

/* The caller has the lock. */
static struct hth_ofi_dial *dialler_next(struct hth_ofi_dialler *d)
{
    struct hth_ofi_dial *dial = d->todo;

    if (!dial)
        return NULL;
    d->todo = dial->next;
    if (!d->todo)
        d->todo_end = &d->todo;
    return dial;
}

static void *dialler_run(void *arg)
{
    struct hth_ofi *o = arg;
    struct hth_ofi_dialler *d = &o->dialler;
    struct hth_ofi_dial *dial;

    pthread_mutex_lock(&d->lock);
    while ((dial = dialler_next(d))) {
        pthread_mutex_unlock(&d->lock);
        dial->rc = fi_endpoint(o->domain, dial->info, &dial->ep, NULL);
        pthread_mutex_lock(&d->lock);
        dial->next = d->done;
        d->done = dial;
        atomic_store(&d->any_done, 1);
        hth_wake(o->wake_fd, &o->woken);
    }
    d->threads--;
    pthread_cond_signal(&d->ended);
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* The caller has the lock. Returns 0, or -fi_errno if no thread runs. */
static int dialler_start(struct hth_ofi *o)
{
    struct hth_ofi_dialler *d = &o->dialler;
    sigset_t all, before;
    pthread_t thread;
    int rc;

    if (d->threads == MOST)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, NULL, dialler_run, o);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return d->threads ? 0 : -FI_ENOMEM;
    pthread_detach(thread);
    d->threads++;
    return 0;
}

int hth_ofi_dial(struct hth_ofi *o, struct hth_ofi_conn *c, struct fi_info *info)
{
    struct hth_ofi_dialler *d = &o->dialler;
    struct hth_ofi_dial *dial = calloc(1, sizeof(*dial));
    int rc;

    if (!dial) {
        o->lib->freeinfo(info);
        return -FI_ENOMEM;
    }
    dial->conn = c->link.id;
    dial->info = info;
    pthread_mutex_lock(&d->lock);
    rc = dialler_start(o);
    if (!rc) {
        *d->todo_end = dial;
        d->todo_end = &dial->next;
    }
    pthread_mutex_unlock(&d->lock);
    if (rc)
        dial_free(o, dial);
    return rc;
}

static void dial_end(struct hth_ofi *o, struct hth_ofi_dial *dial,
        void (*take)(struct hth_ofi_conn *c, struct hth_ofi_dial *dial))
{
    struct hth_ofi_conn *c = hth_ofi_conn_get(o, dial->conn);

    if (c && c->link.state == HTH_OFI_DIALLED && take)
        take(c, dial);
    else if (!dial->rc)
        fi_close(&dial->ep->fid);
    dial_free(o, dial);
}

int hth_ofi_dialled(
        struct hth_ofi *o, void (*take)(struct hth_ofi_conn *c, struct hth_ofi_dial *dial))
{
    struct hth_ofi_dialler *d = &o->dialler;
    struct hth_ofi_dial *dial, *next;
    int n = 0;

    if (!atomic_exchange(&d->any_done, 0))
        return 0;
    pthread_mutex_lock(&d->lock);
    dial = d->done;
    d->done = NULL;
    pthread_mutex_unlock(&d->lock);
    for (; dial; dial = next, n++) {
        next = dial->next;
        dial_end(o, dial, take);
    }
    return n;
}

void hth_ofi_dialler_fini(struct hth_ofi *o)
{
    struct hth_ofi_dialler *d = &o->dialler;
    struct hth_ofi_dial *dial;

    pthread_mutex_lock(&d->lock);
    while ((dial = dialler_next(d)))
        dial_free(o, dial);
    while (d->threads)
        pthread_cond_wait(&d->ended, &d->lock);
    pthread_mutex_unlock(&d->lock);
    hth_ofi_dialled(o, NULL);
    pthread_cond_destroy(&d->ended);
    pthread_mutex_destroy(&d->lock);
}
