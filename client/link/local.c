/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the engine and what comes back, with no thread of our own: whoever waits reads.
 *
 *     caller A  --post-->  [lock] calls: A, B     one of those who wait is the reader: it polls and
 *     caller B  --post-->         events          receives without the lock, then hands each packet
 *                                                 to the call it answers, or to the handle it is
 *                                                 about, and wakes the others. When its own answer
 *                                                 is there it leaves, and another one reads on.
 *
 * A connection that ends makes every call LOST; what may be asked twice is asked again of the
 * engine that comes back. Every wait has an end, given in milliseconds of the monotonic clock.
 */
#include "link.h"

#include "client/base/clock.h"
#include "connect.h"
#include "core/local/packet.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HANGUP_MS 3000u /* for an engine in place of one that ends as we come */

/* 0, HEARTH_ESTATE (full, try again), HEARTH_EENGINE (gone). */
static int send_packet(int fd, const struct hth_ask *ask)
{
    int why = hth_packet_put(fd, ask->msg, ask->len, ask->fd);

    if (!why)
        return HEARTH_OK;
    return why == EAGAIN || why == ENOBUFS ? HEARTH_ESTATE : HEARTH_EENGINE;
}

/* Bytes, 0 nothing there, HEARTH_EENGINE; *out_fd -1 or a descriptor. */
static int receive_packet(struct hearth *h, int fd, int *out_fd)
{
    size_t len;

    switch (hth_packet_receive(fd, h->packet, &len, out_fd)) {
    case HTH_PACKET_GOT:
        return (int)len;
    case HTH_PACKET_NONE:
        return 0;
    case HTH_PACKET_END:
    case HTH_PACKET_BAD:
        break;
    }
    return HEARTH_EENGINE;
}

static void finish(struct hth_call *call, const void *packet, size_t len, int fd)
{
    struct hth_local_head head;

    memcpy(&head, packet, sizeof(head));
    call->state = HTH_CALL_DONE;
    if (head.type == HTH_LOCAL_ERROR && len >= sizeof(struct hth_local_error)) {
        struct hth_local_error e;

        memcpy(&e, packet, sizeof(e));
        e.text[sizeof(e.text) - 1] = '\0';
        call->code =
                hth_fail(&call->error, e.code < 0 ? e.code : HEARTH_EPROTO, e.native, "%s", e.text);
    } else if (head.type == HTH_LOCAL_OK && call->want == HTH_LOCAL_EVENT) {
        memset(call->answer, 0, call->answer_len); /* the event itself comes by the way of events */
    } else if (head.type != call->want || len < call->answer_len) {
        call->code = hth_fail(&call->error, HEARTH_EPROTO, 0,
                "the engine answered with type %u of %zu bytes where type %u was due: engine and "
                "library are not of one version",
                head.type, len, call->want);
    } else {
        call->code = HEARTH_OK;
        if (call->answer_len)
            memcpy(call->answer, packet, call->answer_len);
        call->fd = fd;
        fd = -1;
    }
    if (fd >= 0)
        close(fd);
}

static void deliver_locked(struct hearth *h, const void *packet, size_t len, int fd)
{
    struct hth_local_head head;
    struct hth_call **at = &h->calls, *call;

    memcpy(&head, packet, sizeof(head));
    while (*at && (*at)->request != head.request)
        at = &(*at)->next;
    call = *at;
    if (head.request && call) {
        *at = call->next;
        finish(call, packet, len, fd);
        return;
    }
    if (fd >= 0)
        close(fd);
    if (head.type == HTH_LOCAL_EVENT)
        hth_event_locked(h, packet, len);
}

static void lose_locked(struct hearth *h)
{
    if (h->fd >= 0)
        close(h->fd);
    h->fd = -1;
    for (struct hth_call *call = h->calls; call; call = call->next)
        call->state = HTH_CALL_LOST;
    h->calls = NULL;
    hth_line_add(&h->lines, HEARTH_LOG_WARN, "engine-lost",
            "the connection to this node's engine ended; it is looked for at the next call");
}

/* For poll(): never less than 0, which would be for ever. */
static int left_ms(uint64_t until)
{
    uint64_t now = hth_mono_ms();

    return until > now ? (int)(until - now) : 0;
}

static void wait_locked(struct hearth *h, uint64_t until)
{
    struct timespec t = { .tv_sec = (time_t)(until / 1000),
        .tv_nsec = (long)(until % 1000) * 1000000 };

    pthread_cond_timedwait(&h->changed, &h->lock, &t);
}

int hth_pump_locked(struct hearth *h, uint64_t until)
{
    struct pollfd p = { .fd = h->fd, .events = POLLIN };
    int n, attached = -1;

    if (h->fd < 0)
        return HEARTH_EENGINE;
    if (h->reading) {
        wait_locked(h, until);
        return HEARTH_OK;
    }
    h->reading = 1;
    pthread_mutex_unlock(&h->lock);
    n = 0;
    if (poll(&p, 1, left_ms(until)) > 0)
        n = receive_packet(h, p.fd, &attached);
    pthread_mutex_lock(&h->lock);
    h->reading = 0;
    if (n > 0)
        deliver_locked(h, h->packet, (size_t)n, attached);
    else if (n < 0)
        lose_locked(h);
    pthread_cond_broadcast(&h->changed);
    return n < 0 ? HEARTH_EENGINE : HEARTH_OK;
}

/* One engine found, and ours; *out_hung_up: it was, and went before it knew all that is ours. */
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
    h->incarnation++;
    rc = hth_attach_locked(h, fd, until, err);
    if (!rc && h->epoch)
        rc = hth_restore_locked(h, fd, until, err);
    *out_hung_up = rc == HEARTH_EENGINE;
    if (rc)
        close(fd);
    else
        h->fd = fd;
    return rc;
}

int hth_connected_locked(struct hearth *h, uint64_t until, struct hearth_error *err)
{
    static const struct timespec nap = { .tv_nsec = 20 * 1000000L };
    uint64_t again_until = hth_until_ms(HANGUP_MS);
    int rc, hung_up;

    while (h->fd < 0 && h->connecting && hth_mono_ms() < until)
        wait_locked(h, until);
    if (h->fd >= 0)
        return HEARTH_OK;
    if (h->connecting)
        return hth_fail(err, HEARTH_EENGINE, 0,
                "this node's engine is gone, and another thread still waits for it to come back");

    h->connecting = 1;
    while ((rc = connect_locked(h, until, &hung_up, err)) && hung_up && hth_mono_ms() < until &&
            hth_mono_ms() < again_until) {
        pthread_mutex_unlock(&h->lock);
        nanosleep(&nap, NULL); /* one that was just dying: its socket took us still */
        pthread_mutex_lock(&h->lock);
    }
    h->connecting = 0;
    pthread_cond_broadcast(&h->changed);
    return rc;
}

static void head_fill(struct hearth *h, struct hth_ask *ask)
{
    struct hth_local_head head = { .length = (uint32_t)ask->len,
        .type = ask->type,
        .request = ++h->requests,
        .token = ask->token };

    memcpy(ask->msg, &head, sizeof(head));
}

/* With the lock: the packet is out, or the connection is lost. */
static int post_locked(struct hearth *h, struct hth_ask *ask, struct hth_call *call, uint64_t until)
{
    uint64_t incarnation = h->incarnation;
    int rc;

    if (ask->incarnation && ask->incarnation != incarnation)
        return HEARTH_ESTATE;
    head_fill(h, ask);
    *call = (struct hth_call){ .request = h->requests,
        .incarnation = incarnation,
        .want = ask->want,
        .answer = ask->answer,
        .answer_len = ask->answer_len,
        .fd = -1,
        .state = HTH_CALL_SENT };
    while ((rc = send_packet(h->fd, ask)) == HEARTH_ESTATE) {
        uint64_t soon = hth_until_ms(10);

        if (hth_mono_ms() >= until)
            return HEARTH_ETIMEOUT;
        hth_pump_locked(h, soon < until ? soon : until);
        if (h->fd < 0 || h->incarnation != incarnation)
            return HEARTH_EENGINE;
    }
    if (rc) {
        if (h->reading)
            shutdown(h->fd, SHUT_RDWR); /* the reader finds out and closes */
        while (h->reading && h->fd >= 0 && h->incarnation == incarnation)
            wait_locked(h, hth_until_ms(100));
        if (h->fd >= 0 && h->incarnation == incarnation)
            lose_locked(h);
        return HEARTH_EENGINE;
    }
    call->next = h->calls;
    h->calls = call;
    return HEARTH_OK;
}

static int not_posted(const struct hth_ask *ask, int rc, struct hearth_error *err)
{
    if (rc == HEARTH_ESTATE)
        return hth_fail(err, HEARTH_EENGINE, 0,
                "%s: this node's engine was restarted since, and the save is lost: begin it again",
                ask->what);
    return hth_fail(err, rc, 0, "%s: this node's engine takes no requests", ask->what);
}

static void forget_locked(struct hearth *h, struct hth_call *call)
{
    struct hth_call **at = &h->calls;

    while (*at && *at != call)
        at = &(*at)->next;
    if (*at)
        *at = call->next;
    if (call->fd >= 0)
        close(call->fd);
    call->fd = -1;
    call->state = HTH_CALL_IDLE;
}

void hth_forget(struct hearth *h, struct hth_call *call)
{
    if (call->state == HTH_CALL_IDLE)
        return;
    pthread_mutex_lock(&h->lock);
    forget_locked(h, call);
    pthread_mutex_unlock(&h->lock);
}

static int collect_locked(struct hearth *h, struct hth_call *call, uint64_t until, const char *what,
        struct hearth_error *err)
{
    while (call->state == HTH_CALL_SENT && hth_mono_ms() < until)
        hth_pump_locked(h, until);
    if (call->state == HTH_CALL_DONE && call->code)
        return hth_fail(err, call->code, call->error.native, "%s", call->error.text);
    if (call->state == HTH_CALL_DONE)
        return HEARTH_OK;
    if (call->state == HTH_CALL_LOST)
        return hth_fail(err, HEARTH_EENGINE, 0,
                "%s: this node's engine went away meanwhile: see its log %s", what,
                h->attached.log);
    forget_locked(h, call);
    return hth_fail(err, HEARTH_ETIMEOUT, 0,
            "%s: this node's engine (pid %u) did not answer in time: see its log %s", what,
            h->attached.pid, h->attached.log);
}

int hth_post(struct hearth *h, struct hth_ask *ask, struct hth_call *call, struct hearth_error *err)
{
    uint64_t until = hth_until_ms(ask->wait_ms);
    int rc;

    pthread_mutex_lock(&h->lock);
    rc = hth_connected_locked(h, until, err);
    if (!rc && (rc = post_locked(h, ask, call, until)))
        rc = not_posted(ask, rc, err);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

int hth_collect(struct hearth *h, struct hth_call *call, uint64_t wait_ms, const char *what,
        struct hearth_error *err)
{
    int rc;

    pthread_mutex_lock(&h->lock);
    rc = collect_locked(h, call, hth_until_ms(wait_ms), what, err);
    pthread_mutex_unlock(&h->lock);
    hth_lines_drain(&h->lines);
    return rc;
}

struct hth_ask hth_ask_bytes(enum hth_local_type type, struct hth_local_map *m,
        struct hth_local_bytes *answer, int *out_fd)
{
    return (struct hth_ask){ .msg = m,
        .len = sizeof(*m),
        .type = type,
        .want = HTH_LOCAL_BYTES,
        .fd = -1,
        .again = 1,
        .answer = answer,
        .answer_len = sizeof(*answer),
        .out_fd = out_fd,
        .wait_ms = HTH_REQUEST_MS };
}

int hth_ask(struct hearth *h, struct hth_ask *ask, struct hearth_error *err)
{
    uint64_t until = hth_until_ms(ask->wait_ms);
    struct hth_call call = { .fd = -1 };
    int rc;

    pthread_mutex_lock(&h->lock);
    do {
        if ((rc = hth_connected_locked(h, until, err)))
            break;
        rc = post_locked(h, ask, &call, until);
        if (rc == HEARTH_OK)
            rc = collect_locked(h, &call, until, ask->what, err);
        else
            rc = not_posted(ask, rc, err);
    } while (rc == HEARTH_EENGINE && call.state != HTH_CALL_DONE && ask->again &&
             hth_mono_ms() < until);
    pthread_mutex_unlock(&h->lock);
    ask->answered = call.incarnation;
    if (ask->out_fd)
        *ask->out_fd = call.fd;
    else if (call.fd >= 0)
        close(call.fd);
    hth_lines_drain(&h->lines);
    return rc;
}

int hth_exchange_locked(
        struct hearth *h, int fd, struct hth_ask *ask, uint64_t until, struct hearth_error *err)
{
    struct hth_call call = { .want = ask->want,
        .answer = ask->answer,
        .answer_len = ask->answer_len,
        .fd = -1,
        .state = HTH_CALL_SENT };
    int n = 0, attached = -1;

    head_fill(h, ask);
    call.request = h->requests;
    call.next = h->calls;
    h->calls = &call;
    n = send_packet(fd, ask);
    while (!n && call.state == HTH_CALL_SENT && hth_mono_ms() < until) {
        struct pollfd p = { .fd = fd, .events = POLLIN };

        if (poll(&p, 1, left_ms(until)) <= 0)
            continue;
        n = receive_packet(h, fd, &attached);
        if (n > 0)
            deliver_locked(h, h->packet, (size_t)n, attached);
        n = n > 0 ? 0 : n;
    }
    if (n)
        call.state = HTH_CALL_LOST;
    if (ask->out_fd && call.state == HTH_CALL_DONE) {
        *ask->out_fd = call.fd;
        call.fd = -1;
    }
    n = collect_locked(h, &call, 0, ask->what, err);
    forget_locked(h, &call);
    return n;
}
