/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The link opened and closed, and what fork does to it: the child closes all that it inherited and
 * is refused everything; the parent notices nothing.
 */
#include "link_parts.h"

#include "inside.h"
#include "kept.h"
#include "leases.h"
#include "wire.h"
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_once_t once;
    pthread_mutex_t lock;
    struct hth_link *all;
} here = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

static void fork_before(void)
{
    pthread_mutex_lock(&here.lock);
}

static void fork_after_parent(void)
{
    pthread_mutex_unlock(&here.lock);
}

static void fork_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Other threads may have held h->lock: nothing here may need it. */
static void fork_after_child(void)
{
    for (struct hth_link *link = here.all; link; link = link->next) {
        atomic_store(&link->h->forked, 1);
        fork_close(&link->fd);
        fork_close(&link->table_fd);
        fork_close(&link->ahead_fd);
        fork_close(&link->fallen.pidfd);
        for (struct hth_asked *asked = link->came; asked; asked = asked->next)
            fork_close(&asked->fd);
        for (struct hearth_handle *s = link->handles; s; s = s->next)
            for (struct hth_kept_common *c = s->commons; c; c = c->next)
                fork_close(&c->fd);
    }
    pthread_mutex_unlock(&here.lock);
}

static void fork_watch(void)
{
    pthread_atfork(fork_before, fork_after_parent, fork_after_child);
}

static void link_enlist(struct hth_link *link)
{
    pthread_once(&here.once, fork_watch);
    pthread_mutex_lock(&here.lock);
    link->next = here.all;
    here.all = link;
    pthread_mutex_unlock(&here.lock);
}

static void link_delist(struct hth_link *link)
{
    struct hth_link **at = &here.all;

    pthread_mutex_lock(&here.lock);
    while (*at && *at != link)
        at = &(*at)->next;
    if (*at)
        *at = link->next;
    pthread_mutex_unlock(&here.lock);
}

int hth_link_open(struct hearth *h)
{
    struct hth_link *link = calloc(1, sizeof(*link));
    pthread_condattr_t attr;

    if (!link || !(link->packet = malloc(HTH_LOCAL_MAX))) {
        free(link);
        return HEARTH_ENOMEM;
    }
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&link->changed, &attr);
    pthread_condattr_destroy(&attr);
    link->fd = link->table_fd = link->ahead_fd = link->fallen.pidfd = -1;
    link->h = h;
    h->link = link;
    link_enlist(link);
    return HEARTH_OK;
}

void hth_link_close(struct hearth *h)
{
    struct hth_link *link = h->link;

    if (!link)
        return;
    link_delist(link);
    if (link->fd >= 0)
        close(link->fd);
    hth_inside_stop(h);
    while (link->leases) {
        struct hth_lease *lease = link->leases;

        link->leases = lease->next;
        free(lease);
    }
    while (link->handles) { /* committed, and closed by their caller */
        struct hearth_handle *s = link->handles;

        link->handles = s->next;
        hth_kept_free_locked(s);
    }
    hth_link_forget(link);
    if (link->table_fd >= 0)
        close(link->table_fd);
    hth_fallen_close(&link->fallen);
    pthread_cond_destroy(&link->changed);
    free(link->packet);
    free(link);
    h->link = NULL;
}
