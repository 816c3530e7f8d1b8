/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the engine, over a connection that is made again when it was lost: what may be asked
 * twice is asked again of the engine that comes back. Every wait has an end, given in milliseconds
 * of the monotonic clock.
 */
#include "link.h"

#include "client/base/clock.h"
#include "connect.h"
#include "link_parts.h"
#include "mapped.h"
#include "session.h"
#include "wire.h"
#include <time.h>
#include <unistd.h>

#define HANGUP_MS 3000u /* for an engine in place of one that ends as we come */

/* The engine may lend them to other ranks as soon as it has ATTACH. */
static void connect_unmap_locked(struct hearth *h)
{
    struct hth_slot_map *old = hth_slots_old_locked(h);

    pthread_mutex_unlock(&h->lock);
    hth_slots_unmap(old);
    pthread_mutex_lock(&h->lock);
}

/* Finds the engine and restores this rank's state there. *out_hung_up: an engine was there, and
 * ended before it had all of that state. */
static int connect_locked(
        struct hearth *h, uint64_t until, int *out_hung_up, struct hearth_error *err)
{
    int fd, rc;

    pthread_mutex_unlock(&h->lock);
    rc = hth_connect(h, until, &fd, err);
    pthread_mutex_lock(&h->lock);
    *out_hung_up = 0;
    if (rc)
        return rc;
    h->link->incarnation++;
    connect_unmap_locked(h);
    rc = hth_attach_locked(h, fd, until, err);
    if (!rc && h->epoch)
        rc = hth_restore_locked(h, fd, until, err);
    *out_hung_up = rc == HEARTH_EENGINE;
    if (rc) {
        close(fd);
        hth_link_forget(h->link); /* no other engine knows the slots and leases of this one */
    } else {
        h->link->fd = fd;
        hth_say_locked(h); /* again, whether or not the engine before received it */
    }
    return rc;
}

int hth_connected_locked(struct hearth *h, uint64_t until, struct hearth_error *err)
{
    static const struct timespec nap = { .tv_nsec = 20 * 1000000L };
    uint64_t again_until = hth_until_ms(HANGUP_MS);
    int rc, hung_up;

    while (h->link->fd < 0 && h->link->connecting && hth_mono_ms() < until)
        hth_await_change_locked(h, until);
    if (h->link->fd >= 0)
        return HEARTH_OK;
    if (h->link->connecting)
        return hth_fail(err, HEARTH_EENGINE, 0,
                "this node's engine is gone, and another thread still waits for it to come back");

    h->link->connecting = 1;
    while ((rc = connect_locked(h, until, &hung_up, err)) && hung_up && hth_mono_ms() < until &&
            hth_mono_ms() < again_until) {
        pthread_mutex_unlock(&h->lock);
        nanosleep(&nap, NULL); /* an engine that was just ending: its socket still accepted us */
        pthread_mutex_lock(&h->lock);
    }
    h->link->connecting = 0;
    pthread_cond_broadcast(&h->link->changed);
    return rc;
}

static uint64_t ask_until(const struct hth_ask *ask)
{
    return hth_until_ms(ask->wait_ms ? ask->wait_ms : HTH_REQUEST_MS);
}

static int ask_not_sent(const struct hth_ask *ask, int rc, struct hearth_error *err)
{
    if (rc == HEARTH_ESTATE)
        return hth_fail(err, HEARTH_EENGINE, 0,
                "%s: this node's engine was restarted since, and the save is lost: begin it again",
                ask->what);
    return hth_fail(err, rc, 0, "%s: this node's engine takes no requests", ask->what);
}

void hth_ask_drop(struct hearth *h, struct hth_asked *asked)
{
    if (asked->state == HTH_ASKED_IDLE)
        return;
    pthread_mutex_lock(&h->lock);
    hth_ask_drop_locked(h, asked);
    pthread_mutex_unlock(&h->lock);
}

int hth_ask_ahead(
        struct hearth *h, struct hth_ask *ask, struct hth_asked *asked, struct hearth_error *err)
{
    uint64_t until = ask_until(ask);
    int rc;

    pthread_mutex_lock(&h->lock);
    rc = hth_connected_locked(h, until, err);
    if (!rc && (rc = hth_ask_send_locked(h, ask, asked, until)))
        rc = ask_not_sent(ask, rc, err);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

int hth_ask_try(struct hearth *h, struct hth_ask *ask, struct hth_asked *asked)
{
    int rc;

    pthread_mutex_lock(&h->lock);
    rc = h->link->fd < 0 ? HEARTH_EENGINE : hth_ask_send_locked(h, ask, asked, 0);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

int hth_ask_wait(struct hearth *h, struct hth_asked *asked, uint64_t wait_ms, const char *what,
        struct hearth_error *err)
{
    int rc;

    pthread_mutex_lock(&h->lock);
    rc = hth_ask_wait_locked(h, asked, hth_until_ms(wait_ms), what, err);
    pthread_mutex_unlock(&h->lock);
    hth_lines_drain(&h->lines);
    return rc;
}

int hth_ask(struct hearth *h, struct hth_ask *ask, struct hearth_error *err)
{
    uint64_t until = ask_until(ask), renewed = 0;
    struct hth_asked asked = { .fd = -1 };
    int rc;

    pthread_mutex_lock(&h->lock);
    do {
        if ((rc = hth_connected_locked(h, until, err)))
            break;
        rc = hth_ask_send_locked(h, ask, &asked, until);
        if (rc == HEARTH_OK)
            rc = hth_ask_wait_locked(h, &asked, until, ask->what, err);
        else
            rc = ask_not_sent(ask, rc, err);
        if (rc == HEARTH_EENGINE && ask->again && !renewed) { /* to find another one takes longer */
            renewed = hth_until_ms(HTH_REQUEST_MS);
            until = renewed > until ? renewed : until;
        }
    } while (rc == HEARTH_EENGINE && asked.state != HTH_ASKED_DONE && ask->again &&
             hth_mono_ms() < until);
    pthread_mutex_unlock(&h->lock);
    ask->answered = asked.incarnation;
    if (ask->out_fd)
        *ask->out_fd = asked.fd;
    else if (asked.fd >= 0)
        close(asked.fd);
    hth_lines_drain(&h->lines);
    return rc;
}

int hth_tell(struct hearth *h, struct hth_ask *ask, struct hearth_error *err)
{
    struct hth_local_head done;

    ask->want = HTH_LOCAL_OK;
    ask->answer = &done;
    ask->answer_len = sizeof(done);
    return hth_ask(h, ask, err);
}

uint64_t hth_incarnation_locked(const struct hearth *h)
{
    return h->link->incarnation;
}

int hth_is_connected(const struct hearth *h)
{
    return h->link->fd >= 0;
}
