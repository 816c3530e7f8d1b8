/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: packets out and in, and which request each answers. The library has no thread for
 * it: a caller that waits reads.
 *
 *     caller A  --ask-->   [lock] asked: A, B     one of those who wait is the reader: it polls and
 *     caller B  --ask-->          events          receives without the lock, then hands each packet
 *                                                 to the request it answers, or to the handle it is
 *                                                 about, and wakes the others. When its own answer
 *                                                 is there it leaves, and another one reads on.
 *
 * A connection that ends makes every request on it LOST.
 *
 * A request without a waiting caller is posted: hth_say_locked() sends the requests of the saves
 * that are not sent yet (kept.c) and returns slots and leases, as far as the socket accepts it, and
 * continues whenever something is sent or read. An answer that comes too late for its caller is
 * still read here, and the slot or lease in it is given back.
 */
#include "wire.h"

#include "client/base/clock.h"
#include "core/local/packet.h"
#include "events.h"
#include "kept.h"
#include "link_parts.h"
#include "mapped.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
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

static void wire_head_fill(struct hearth *h, struct hth_ask *ask)
{
    struct hth_local_head head = { .length = (uint32_t)ask->len,
        .type = ask->type,
        .request = ++h->link->requests,
        .token = ask->token };

    memcpy(ask->msg, &head, sizeof(head));
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

static void wire_text(const struct hth_asked *asked, const char *text, size_t len)
{
    if (!asked->text)
        return;
    len = len < asked->text_size ? len : asked->text_size - 1;
    memcpy(asked->text, text, len);
    asked->text[len] = '\0';
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
        wire_text(asked, (const char *)packet + asked->answer_len, len - asked->answer_len);
        asked->fd = fd;
        fd = -1;
    }
    if (fd >= 0)
        close(fd);
}

/* ---- without a waiting caller ---------------------------------------------------------------- */

void hth_give_locked(struct hearth *h, uint32_t type, uint64_t id)
{
    struct hth_give *give = malloc(sizeof(*give));

    if (!give)
        return; /* it ends with the connection */
    *give = (struct hth_give){ h->link->gives, type, id };
    h->link->gives = give;
    hth_say_locked(h);
}

static void wire_forget_ahead(struct hth_link *link)
{
    if (link->ahead_fd >= 0)
        close(link->ahead_fd);
    link->ahead_fd = -1;
    link->ahead.head.token = 0;
}

void hth_ahead_back_locked(struct hearth *h)
{
    uint64_t token = h->link->ahead.head.token;

    wire_forget_ahead(h->link);
    if (token)
        hth_give_locked(h, HTH_LOCAL_ABORT, token);
}

int hth_ahead_take_locked(struct hearth *h, uint64_t bytes, struct hth_local_lent *out, int *out_fd)
{
    struct hth_link *link = h->link;

    if (link->fd < 0 || !link->ahead.head.token || link->ahead.capacity < bytes)
        return 0;
    *out = link->ahead;
    *out_fd = link->ahead_fd;
    link->ahead.head.token = 0;
    link->ahead_fd = -1;
    return 1;
}

/* 1: a request for a save's first slot is on its way. The engine takes back the slot that it lent
 * ahead when it reads that request. */
static int wire_is_asked_for_slot(const struct hth_link *link)
{
    for (const struct hth_asked *asked = link->asked; asked; asked = asked->next)
        if (asked->want == HTH_LOCAL_LENT && !asked->token)
            return 1;
    for (const struct hth_posted *p = link->posted; p; p = p->next)
        if (p->want == HTH_LOCAL_LENT && !p->token)
            return 1;
    return 0;
}

/* Takes fd. */
static void wire_lent_ahead(struct hearth *h, const void *packet, size_t len, int fd)
{
    struct hth_local_lent m;

    if (len < sizeof(m) || fd < 0) {
        if (fd >= 0)
            close(fd);
        return;
    }
    memcpy(&m, packet, sizeof(m));
    hth_ahead_back_locked(h);
    if (h->link->fd < 0 || wire_is_asked_for_slot(h->link)) {
        close(fd);
        return;
    }
    h->link->ahead = m;
    h->link->ahead_fd = fd;
    hth_counted_locked(h, hth_local_save_to(m.save));
}

/* Its caller does not wait any more, so a slot that it lends, or a lease, goes back to the
 * engine. */
static void wire_answer_late(
        struct hearth *h, const struct hth_posted *p, const void *packet, size_t len)
{
    struct hth_local_head head;
    struct hth_local_mapped mapped;

    memcpy(&head, packet, sizeof(head));
    if (head.type == HTH_LOCAL_MAPPED && len >= sizeof(mapped)) {
        memcpy(&mapped, packet, sizeof(mapped));
        hth_give_locked(h, HTH_LOCAL_UNMAP, mapped.lease);
    } else if ((head.type == HTH_LOCAL_LENT && !p->token) || head.type == HTH_LOCAL_TAKEN) {
        hth_give_locked(h, HTH_LOCAL_ABORT, head.token);
    }
}

static void wire_answer_posted(
        struct hearth *h, const struct hth_posted *p, const void *packet, size_t len)
{
    struct hearth_handle *handle = hth_kept_find_locked(h, p->number);
    struct hth_local_error e;
    struct hth_local_save_id id;

    memcpy(&e.head, packet, sizeof(e.head));
    if (handle && e.head.type == HTH_LOCAL_ERROR && len >= sizeof(e)) {
        memcpy(&e, packet, sizeof(e));
        e.text[sizeof(e.text) - 1] = '\0';
        hth_kept_refused_locked(handle, p->type, e.code, e.text);
    } else if (e.head.type == HTH_LOCAL_SAVE_ID && len >= sizeof(id)) {
        memcpy(&id, packet, sizeof(id));
        hth_counted_locked(h, hth_local_save_to(id.save));
    }
}

static void wire_deliver_posted(struct hearth *h, const void *packet, size_t len)
{
    struct hth_posted **at = &h->link->posted, *p;
    struct hth_local_head head;

    memcpy(&head, packet, sizeof(head));
    while (*at && (*at)->request != head.request)
        at = &(*at)->next;
    p = *at;
    if (!p || !head.request)
        return;
    *at = p->next;
    if (p->type)
        wire_answer_posted(h, p, packet, len);
    else
        wire_answer_late(h, p, packet, len);
    free(p);
}

static void wire_deliver_locked(struct hearth *h, const void *packet, size_t len, int fd)
{
    struct hth_local_head head;
    struct hth_local_let_go let_go;
    struct hth_asked **at = &h->link->asked, *asked;

    memcpy(&head, packet, sizeof(head));
    while (*at && (*at)->request != head.request)
        at = &(*at)->next;
    asked = *at;
    if (head.request && asked) {
        *at = asked->next;
        wire_answer(asked, packet, len, fd);
        if (asked->fd >= 0) {
            asked->next = h->link->came;
            h->link->came = asked;
        }
        return;
    }
    if (!head.request && head.type == HTH_LOCAL_LENT) {
        wire_lent_ahead(h, packet, len, fd);
        return;
    }
    wire_deliver_posted(h, packet, len);
    if (head.type == HTH_LOCAL_LET_GO && len >= sizeof(let_go)) {
        memcpy(&let_go, packet, sizeof(let_go));
        hth_slot_let_go_locked(h, let_go.slot);
        hth_slots_unmap(hth_slots_old_locked(h)); /* a begin may wait for it, this rank's own too */
    }
    if (head.type == HTH_LOCAL_EVENT)
        hth_event_locked(h, packet, len);
    if (fd >= 0)
        close(fd);
}

static void posted_add(struct hearth *h, struct hth_posted *p)
{
    struct hth_posted **end = &h->link->posted;

    while (*end)
        end = &(*end)->next;
    p->next = NULL;
    p->since_ms = hth_mono_ms();
    *end = p;
}

int hth_is_silent_locked(const struct hearth *h)
{
    const struct hth_posted *oldest = h->link->posted;

    while (oldest && oldest->want == HTH_LOCAL_BYTES) /* which another node may have to give */
        oldest = oldest->next;
    return oldest && hth_mono_ms() - oldest->since_ms > HTH_PROMPT_MS / 2;
}

void hth_link_forget(struct hth_link *link)
{
    while (link->posted) {
        struct hth_posted *p = link->posted;

        link->posted = p->next;
        free(p);
    }
    while (link->gives) {
        struct hth_give *give = link->gives;

        link->gives = give->next;
        free(give);
    }
    wire_forget_ahead(link);
}

/* Ends the connection, after the packets that came before its end are handled. */
static void wire_lose_locked(struct hearth *h)
{
    int fd = h->link->fd, attached = -1, n;

    h->link->fd = -1;
    while (fd >= 0 && (n = wire_receive(h, fd, &attached)) > 0)
        wire_deliver_locked(h, h->link->packet, (size_t)n, attached);
    if (fd >= 0)
        close(fd);
    hth_link_forget(h->link);
    for (struct hth_asked *asked = h->link->asked; asked; asked = asked->next)
        asked->state = HTH_ASKED_LOST;
    h->link->asked = NULL;
    hth_line_add(&h->lines, HEARTH_LOG_WARN, "engine-lost",
            "the connection to this node's engine ended; it is looked for at the next call");
}

/* A packet cannot be sent. If another thread reads, that thread finds the end of the connection and
 * closes it. */
static void wire_break_locked(struct hearth *h)
{
    if (h->link->reading)
        shutdown(h->link->fd, SHUT_RDWR);
    else
        wire_lose_locked(h);
}

/* Sends the message and records it; 0: it is sent. */
static int wire_post(struct hearth *h, struct hth_ask *ask, uint64_t number)
{
    struct hth_posted *p = malloc(sizeof(*p));
    int rc;

    if (!p)
        return HEARTH_ENOMEM;
    wire_head_fill(h, ask);
    *p = (struct hth_posted){
        .request = h->link->requests, .number = number, .token = ask->token, .type = ask->type
    };
    if (!(rc = wire_send(h->link->fd, ask))) {
        posted_add(h, p);
        return HEARTH_OK;
    }
    free(p);
    if (rc != HEARTH_ESTATE)
        wire_break_locked(h);
    return rc;
}

static int wire_post_give(struct hearth *h)
{
    struct hth_give *give = h->link->gives;
    struct hth_local_unmap unmap = { .lease = give->id };
    struct hth_ask ask = { .msg = &unmap,
        .len = give->type == HTH_LOCAL_UNMAP ? sizeof(unmap) : sizeof(unmap.head),
        .type = give->type,
        .token = give->type == HTH_LOCAL_UNMAP ? 0 : give->id,
        .fd = -1 };
    int rc = wire_post(h, &ask, 0);

    if (!rc) {
        h->link->gives = give->next;
        free(give);
    }
    return rc;
}

void hth_post(struct hearth *h, struct hth_ask *tell)
{
    pthread_mutex_lock(&h->lock);
    hth_say_locked(h);
    if (h->link->fd >= 0)
        (void)wire_post(h, tell, 0);
    pthread_mutex_unlock(&h->lock);
}

void hth_hint_locked(struct hearth *h, struct hth_ask *hint)
{
    hth_say_locked(h); /* in order: its slot may have been lent ahead, and not be named yet */
    if (h->link->fd < 0 || h->link->stuck)
        return;
    wire_head_fill(h, hint);
    (void)wire_send(h->link->fd, hint); /* a later call finds out that the engine is gone */
}

void hth_say_locked(struct hearth *h)
{
    struct hth_unsaid u;
    int rc = HEARTH_OK;

    h->link->stuck = 0;
    while (!rc && h->link->fd >= 0) {
        struct hth_ask ask = { .msg = &u.m, .fd = -1 };

        if (h->link->gives) {
            rc = wire_post_give(h);
            continue;
        }
        if (!hth_kept_next_locked(h, &u))
            return;
        ask.len = u.len;
        ask.type = u.type;
        ask.token = u.token;
        ask.fd = u.fd;
        rc = wire_post(h, &ask, u.number);
        if (!rc)
            *u.said = 1; /* a connection that ends may end what it is about */
    }
    h->link->stuck = rc != HEARTH_OK;
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

/* n: what wire_receive() returned. */
static void wire_received_locked(struct hearth *h, int n, int attached)
{
    if (n > 0)
        wire_deliver_locked(h, h->link->packet, (size_t)n, attached);
    else if (n < 0)
        wire_lose_locked(h);
    if (n > 0 && h->link->stuck)
        hth_say_locked(h);
    pthread_cond_broadcast(&h->link->changed);
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
    wire_received_locked(h, n, attached);
    return n < 0 ? HEARTH_EENGINE : HEARTH_OK;
}

int hth_ask_send_locked(
        struct hearth *h, struct hth_ask *ask, struct hth_asked *asked, uint64_t until)
{
    uint64_t incarnation = h->link->incarnation;
    int rc;

    hth_say_locked(h);
    if (ask->handle) {
        ask->token = ask->handle->token;
        ask->incarnation = ask->handle->incarnation;
    }
    if (ask->incarnation && ask->incarnation != incarnation)
        return HEARTH_ESTATE;
    if (h->link->fd < 0)
        return HEARTH_EENGINE;
    wire_head_fill(h, ask);
    *asked = (struct hth_asked){ .request = h->link->requests,
        .incarnation = incarnation,
        .token = ask->token,
        .want = ask->want,
        .answer = ask->answer,
        .answer_len = ask->answer_len,
        .text = ask->text,
        .text_size = ask->text_size,
        .fd = -1,
        .state = HTH_ASKED_SENT };
    while ((rc = h->link->stuck ? HEARTH_ESTATE : wire_send(h->link->fd, ask)) == HEARTH_ESTATE) {
        uint64_t soon = hth_until_ms(10);

        if (hth_mono_ms() >= until)
            return HEARTH_ETIMEOUT;
        hth_hear_one_locked(h, soon < until ? soon : until);
        hth_say_locked(h);
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
    if (asked->want == HTH_LOCAL_LENT && !asked->token)
        wire_forget_ahead(h->link);
    asked->next = h->link->asked;
    h->link->asked = asked;
    return HEARTH_OK;
}

/* The answer may still come, with a slot or a lease that must go back. */
static void late_note(struct hearth *h, const struct hth_asked *asked)
{
    struct hth_posted *p = h->link->fd >= 0 ? malloc(sizeof(*p)) : NULL;

    if (!p)
        return;
    *p = (struct hth_posted){
        .request = asked->request, .token = asked->token, .want = asked->want
    };
    posted_add(h, p);
}

/* Its descriptor is the caller's from now on. */
static void came_take(struct hth_link *link, const struct hth_asked *asked)
{
    struct hth_asked **at = &link->came;

    while (*at && *at != asked)
        at = &(*at)->next;
    if (*at)
        *at = asked->next;
}

void hth_ask_drop_locked(struct hearth *h, struct hth_asked *asked)
{
    struct hth_asked **at = &h->link->asked;

    while (*at && *at != asked)
        at = &(*at)->next;
    if (*at) {
        *at = asked->next;
        late_note(h, asked);
        if (asked->want == HTH_LOCAL_LENT && !asked->token && h->link->fd >= 0)
            hth_give_locked(h, HTH_LOCAL_FORGET, asked->request);
    }
    came_take(h->link, asked);
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
    came_take(h->link, asked);
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
            "%s: this node's engine (%s) did not answer in time: see its log %s", what, h->engine,
            h->attached.log);
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
        int ready;

        pthread_mutex_unlock(&h->lock); /* no other thread reads: there is no other connection */
        ready = poll(&p, 1, wire_left_ms(until));
        pthread_mutex_lock(&h->lock);
        if (ready <= 0)
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
    int attached = -1, n = 0;

    while (h->link->fd >= 0 && !h->link->reading &&
            (n = wire_receive(h, h->link->fd, &attached)) != 0)
        wire_received_locked(h, n, attached);
    hth_say_locked(h);
}
