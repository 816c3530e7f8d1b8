/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: packets out and in, and which request each answers. There is no thread of our
 * own: whoever waits reads.
 *
 *     caller A  --ask-->   [lock] asked: A, B     one of those who wait is the reader: it polls and
 *     caller B  --ask-->          events          receives without the lock, then hands each packet
 *                                                 to the request it answers, or to the handle it is
 *                                                 about, and wakes the others. When its own answer
 *                                                 is there it leaves, and another one reads on.
 *
 * A connection that ends makes every request on it LOST.
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
static int wire_send(int fd, const struct hth_ask *ask)
{
    int why = hth_packet_put(fd, ask->msg, ask->len, ask->fd);

    if (!why)
        return HEARTH_OK;
    return why == EAGAIN || why == ENOBUFS ? HEARTH_ESTATE : HEARTH_EENGINE;
}

/* Bytes, 0 nothing there, HEARTH_EENGINE; *out_fd -1 or a descriptor. */
static int wire_receive(struct hearth *h, int fd, int *out_fd)
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

static void wire_answer(struct hth_asked *asked, const void *packet, size_t len, int fd)
{
    struct hth_local_head head;

    memcpy(&head, packet, sizeof(head));
    asked->state = HTH_ASKED_DONE;
    if (head.type == HTH_LOCAL_ERROR && len >= sizeof(struct hth_local_error)) {
        struct hth_local_error e;

        memcpy(&e, packet, sizeof(e));
        e.text[sizeof(e.text) - 1] = '\0';
        asked->code = hth_fail(
                &asked->error, e.code < 0 ? e.code : HEARTH_EPROTO, e.native, "%s", e.text);
    } else if (head.type == HTH_LOCAL_OK && asked->want == HTH_LOCAL_EVENT) {
        memset(asked->answer, 0,
                asked->answer_len); /* the event itself comes by the way of events */
    } else if (head.type != asked->want || len < asked->answer_len) {
        asked->code = hth_fail(&asked->error, HEARTH_EPROTO, 0,
                "the engine answered with type %u of %zu bytes where type %u was due: engine and "
                "library are not of one version",
                head.type, len, asked->want);
    } else {
        asked->code = HEARTH_OK;
        if (asked->answer_len)
            memcpy(asked->answer, packet, asked->answer_len);
        asked->fd = fd;
        fd = -1;
    }
    if (fd >= 0)
        close(fd);
}

static void wire_deliver_locked(struct hearth *h, const void *packet, size_t len, int fd)
{
    struct hth_local_head head;
    struct hth_asked **at = &h->link->asked, *asked;

    memcpy(&head, packet, sizeof(head));
    while (*at && (*at)->request != head.request)
        at = &(*at)->next;
    asked = *at;
    if (head.request && asked) {
        *at = asked->next;
        wire_answer(asked, packet, len, fd);
        return;
    }
    if (fd >= 0)
        close(fd);
    if (head.type == HTH_LOCAL_EVENT)
        hth_event_locked(h, packet, len);
}

static void wire_lose_locked(struct hearth *h)
{
    if (h->link->fd >= 0)
        close(h->link->fd);
    h->link->fd = -1;
    for (struct hth_asked *asked = h->link->asked; asked; asked = asked->next)
        asked->state = HTH_ASKED_LOST;
    h->link->asked = NULL;
    hth_line_add(&h->lines, HEARTH_LOG_WARN, "engine-lost",
            "the connection to this node's engine ended; it is looked for at the next call");
}

/* For poll(): never less than 0, which would be for ever. */
static int wire_left_ms(uint64_t until)
{
    uint64_t now = hth_mono_ms();

    return until > now ? (int)(until - now) : 0;
}

void hth_await_change_locked(struct hearth *h, uint64_t until)
{
    struct timespec t = { .tv_sec = (time_t)(until / 1000),
        .tv_nsec = (long)(until % 1000) * 1000000 };

    pthread_cond_timedwait(&h->link->changed, &h->lock, &t);
}

int hth_hear_one_locked(struct hearth *h, uint64_t until)
{
    struct pollfd p = { .fd = h->link->fd, .events = POLLIN };
    int n, attached = -1;

    if (h->link->fd < 0)
        return HEARTH_EENGINE;
    if (h->link->reading) {
        hth_await_change_locked(h, until);
        return HEARTH_OK;
    }
    h->link->reading = 1;
    pthread_mutex_unlock(&h->lock);
    n = 0;
    if (poll(&p, 1, wire_left_ms(until)) > 0)
        n = wire_receive(h, p.fd, &attached);
    pthread_mutex_lock(&h->lock);
    h->link->reading = 0;
    if (n > 0)
        wire_deliver_locked(h, h->link->packet, (size_t)n, attached);
    else if (n < 0)
        wire_lose_locked(h);
    pthread_cond_broadcast(&h->link->changed);
    return n < 0 ? HEARTH_EENGINE : HEARTH_OK;
}

static void wire_head_fill(struct hearth *h, struct hth_ask *ask)
{
    struct hth_local_head head = { .length = (uint32_t)ask->len,
        .type = ask->type,
        .request = ++h->link->requests,
        .token = ask->token };

    memcpy(ask->msg, &head, sizeof(head));
}

/* With the lock: the packet is out, or the connection is lost. */
int hth_ask_send_locked(
        struct hearth *h, struct hth_ask *ask, struct hth_asked *asked, uint64_t until)
{
    uint64_t incarnation = h->link->incarnation;
    int rc;

    if (ask->incarnation && ask->incarnation != incarnation)
        return HEARTH_ESTATE;
    wire_head_fill(h, ask);
    *asked = (struct hth_asked){ .request = h->link->requests,
        .incarnation = incarnation,
        .want = ask->want,
        .answer = ask->answer,
        .answer_len = ask->answer_len,
        .fd = -1,
        .state = HTH_ASKED_SENT };
    while ((rc = wire_send(h->link->fd, ask)) == HEARTH_ESTATE) {
        uint64_t soon = hth_until_ms(10);

        if (hth_mono_ms() >= until)
            return HEARTH_ETIMEOUT;
        hth_hear_one_locked(h, soon < until ? soon : until);
        if (h->link->fd < 0 || h->link->incarnation != incarnation)
            return HEARTH_EENGINE;
    }
    if (rc) {
        if (h->link->reading)
            shutdown(h->link->fd, SHUT_RDWR); /* the reader finds out and closes */
        while (h->link->reading && h->link->fd >= 0 && h->link->incarnation == incarnation)
            hth_await_change_locked(h, hth_until_ms(100));
        if (h->link->fd >= 0 && h->link->incarnation == incarnation)
            wire_lose_locked(h);
        return HEARTH_EENGINE;
    }
    asked->next = h->link->asked;
    h->link->asked = asked;
    return HEARTH_OK;
}

void hth_ask_drop_locked(struct hearth *h, struct hth_asked *asked)
{
    struct hth_asked **at = &h->link->asked;

    while (*at && *at != asked)
        at = &(*at)->next;
    if (*at)
        *at = asked->next;
    if (asked->fd >= 0)
        close(asked->fd);
    asked->fd = -1;
    asked->state = HTH_ASKED_IDLE;
}

int hth_ask_wait_locked(struct hearth *h, struct hth_asked *asked, uint64_t until, const char *what,
        struct hearth_error *err)
{
    while (asked->state == HTH_ASKED_SENT && hth_mono_ms() < until)
        hth_hear_one_locked(h, until);
    if (asked->state == HTH_ASKED_DONE && asked->code)
        return hth_fail(err, asked->code, asked->error.native, "%s", asked->error.text);
    if (asked->state == HTH_ASKED_DONE)
        return HEARTH_OK;
    if (asked->state == HTH_ASKED_LOST)
        return hth_fail(err, HEARTH_EENGINE, 0,
                "%s: this node's engine went away meanwhile: see its log %s", what,
                h->attached.log);
    hth_ask_drop_locked(h, asked);
    return hth_fail(err, HEARTH_ETIMEOUT, 0,
            "%s: this node's engine (pid %u) did not answer in time: see its log %s", what,
            h->attached.pid, h->attached.log);
}

int hth_ask_over_locked(
        struct hearth *h, int fd, struct hth_ask *ask, uint64_t until, struct hearth_error *err)
{
    struct hth_asked asked = { .want = ask->want,
        .answer = ask->answer,
        .answer_len = ask->answer_len,
        .fd = -1,
        .state = HTH_ASKED_SENT };
    int n = 0, attached = -1;

    wire_head_fill(h, ask);
    asked.request = h->link->requests;
    asked.next = h->link->asked;
    h->link->asked = &asked;
    n = wire_send(fd, ask);
    while (!n && asked.state == HTH_ASKED_SENT && hth_mono_ms() < until) {
        struct pollfd p = { .fd = fd, .events = POLLIN };

        if (poll(&p, 1, wire_left_ms(until)) <= 0)
            continue;
        n = wire_receive(h, fd, &attached);
        if (n > 0)
            wire_deliver_locked(h, h->link->packet, (size_t)n, attached);
        n = n > 0 ? 0 : n;
    }
    if (n)
        asked.state = HTH_ASKED_LOST;
    if (ask->out_fd && asked.state == HTH_ASKED_DONE) {
        *ask->out_fd = asked.fd;
        asked.fd = -1;
    }
    n = hth_ask_wait_locked(h, &asked, 0, ask->what, err);
    hth_ask_drop_locked(h, &asked);
    return n;
}

void hth_hear_locked(struct hearth *h)
{
    while (h->link->fd >= 0 && !h->link->reading &&
            poll(&(struct pollfd){ .fd = h->link->fd, .events = POLLIN }, 1, 0) > 0)
        hth_hear_one_locked(h, 0);
}
