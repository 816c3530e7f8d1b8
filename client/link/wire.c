/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: packets out and in, and which request each answers. There is no thread of our own:
 * whoever waits reads.
 *
 *     caller A  --post-->  [lock] calls: A, B     one of those who wait is the reader: it polls and
 *     caller B  --post-->         events          receives without the lock, then hands each packet
 *                                                 to the call it answers, or to the handle it is
 *                                                 about, and wakes the others. When its own answer
 *                                                 is there it leaves, and another one reads on.
 *
 * A connection that ends makes every call LOST.
 */
#include "wire.h"

#include "client/base/clock.h"
#include "core/local/packet.h"
#include "events.h"
#include "link_parts.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

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

    switch (hth_packet_receive(fd, h->link->packet, &len, out_fd)) {
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
    struct hth_call **at = &h->link->calls, *call;

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
    if (h->link->fd >= 0)
        close(h->link->fd);
    h->link->fd = -1;
    for (struct hth_call *call = h->link->calls; call; call = call->next)
        call->state = HTH_CALL_LOST;
    h->link->calls = NULL;
    hth_line_add(&h->lines, HEARTH_LOG_WARN, "engine-lost",
            "the connection to this node's engine ended; it is looked for at the next call");
}

/* For poll(): never less than 0, which would be for ever. */
static int left_ms(uint64_t until)
{
    uint64_t now = hth_mono_ms();

    return until > now ? (int)(until - now) : 0;
}

void hth_wait_locked(struct hearth *h, uint64_t until)
{
    struct timespec t = { .tv_sec = (time_t)(until / 1000),
        .tv_nsec = (long)(until % 1000) * 1000000 };

    pthread_cond_timedwait(&h->link->changed, &h->lock, &t);
}

int hth_pump_locked(struct hearth *h, uint64_t until)
{
    struct pollfd p = { .fd = h->link->fd, .events = POLLIN };
    int n, attached = -1;

    if (h->link->fd < 0)
        return HEARTH_EENGINE;
    if (h->link->reading) {
        hth_wait_locked(h, until);
        return HEARTH_OK;
    }
    h->link->reading = 1;
    pthread_mutex_unlock(&h->lock);
    n = 0;
    if (poll(&p, 1, left_ms(until)) > 0)
        n = receive_packet(h, p.fd, &attached);
    pthread_mutex_lock(&h->lock);
    h->link->reading = 0;
    if (n > 0)
        deliver_locked(h, h->link->packet, (size_t)n, attached);
    else if (n < 0)
        lose_locked(h);
    pthread_cond_broadcast(&h->link->changed);
    return n < 0 ? HEARTH_EENGINE : HEARTH_OK;
}

static void head_fill(struct hearth *h, struct hth_ask *ask)
{
    struct hth_local_head head = { .length = (uint32_t)ask->len,
        .type = ask->type,
        .request = ++h->link->requests,
        .token = ask->token };

    memcpy(ask->msg, &head, sizeof(head));
}

/* With the lock: the packet is out, or the connection is lost. */
int hth_post_locked(struct hearth *h, struct hth_ask *ask, struct hth_call *call, uint64_t until)
{
    uint64_t incarnation = h->link->incarnation;
    int rc;

    if (ask->incarnation && ask->incarnation != incarnation)
        return HEARTH_ESTATE;
    head_fill(h, ask);
    *call = (struct hth_call){ .request = h->link->requests,
        .incarnation = incarnation,
        .want = ask->want,
        .answer = ask->answer,
        .answer_len = ask->answer_len,
        .fd = -1,
        .state = HTH_CALL_SENT };
    while ((rc = send_packet(h->link->fd, ask)) == HEARTH_ESTATE) {
        uint64_t soon = hth_until_ms(10);

        if (hth_mono_ms() >= until)
            return HEARTH_ETIMEOUT;
        hth_pump_locked(h, soon < until ? soon : until);
        if (h->link->fd < 0 || h->link->incarnation != incarnation)
            return HEARTH_EENGINE;
    }
    if (rc) {
        if (h->link->reading)
            shutdown(h->link->fd, SHUT_RDWR); /* the reader finds out and closes */
        while (h->link->reading && h->link->fd >= 0 && h->link->incarnation == incarnation)
            hth_wait_locked(h, hth_until_ms(100));
        if (h->link->fd >= 0 && h->link->incarnation == incarnation)
            lose_locked(h);
        return HEARTH_EENGINE;
    }
    call->next = h->link->calls;
    h->link->calls = call;
    return HEARTH_OK;
}

void hth_forget_locked(struct hearth *h, struct hth_call *call)
{
    struct hth_call **at = &h->link->calls;

    while (*at && *at != call)
        at = &(*at)->next;
    if (*at)
        *at = call->next;
    if (call->fd >= 0)
        close(call->fd);
    call->fd = -1;
    call->state = HTH_CALL_IDLE;
}

int hth_collect_locked(struct hearth *h, struct hth_call *call, uint64_t until, const char *what,
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
    hth_forget_locked(h, call);
    return hth_fail(err, HEARTH_ETIMEOUT, 0,
            "%s: this node's engine (pid %u) did not answer in time: see its log %s", what,
            h->attached.pid, h->attached.log);
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
    call.request = h->link->requests;
    call.next = h->link->calls;
    h->link->calls = &call;
    n = send_packet(fd, ask);
    while (!n && call.state == HTH_CALL_SENT && hth_mono_ms() < until) {
        struct pollfd p = { .fd = fd, .events = POLLIN };

        if (poll(&p, 1, left_ms(until)) <= 0)
            continue;
        n = receive_packet(h, fd, &attached);
        if (n > 0)
            deliver_locked(h, h->link->packet, (size_t)n, attached);
        n = n > 0 ? 0 : n;
    }
    if (n)
        call.state = HTH_CALL_LOST;
    if (ask->out_fd && call.state == HTH_CALL_DONE) {
        *ask->out_fd = call.fd;
        call.fd = -1;
    }
    n = hth_collect_locked(h, &call, 0, ask->what, err);
    hth_forget_locked(h, &call);
    return n;
}

void hth_hear_locked(struct hearth *h)
{
    while (h->link->fd >= 0 && !h->link->reading &&
            poll(&(struct pollfd){ .fd = h->link->fd, .events = POLLIN }, 1, 0) > 0)
        hth_pump_locked(h, 0);
}
