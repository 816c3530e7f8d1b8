/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages: u32 length, then the bytes; sealed, a record (seal.h), which begins like that. Bytes
 * that the kernel does not take wait in a queue of the connection, which is the back-pressure;
 * bytes that come are read into the transport's one buffer, and only a message that has come in
 * part is kept beside it. So a quiet connection has no buffers.
 */
#include "tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define LENGTH    4u
#define QUEUE_LOW (HTH_TCP_QUEUE / 4) /* on_writable() when no more waits */

/* Bytes beside those of a message. A sealed one is a record: its length comes first, too. */
static uint32_t message_more(const struct hth_tcp_conn *c)
{
    return c->is_sealed ? HTH_SEAL_MORE : LENGTH;
}

static int message_put(struct hth_tcp_conn *c, unsigned char *out, const void *bytes, size_t len)
{
    static const unsigned char none;

    if (c->is_sealed)
        return hth_seal_put(c->messages_seal, out, len ? bytes : &none, len);
    hth_put32(out, (uint32_t)len);
    if (len)
        memcpy(out + LENGTH, bytes, len);
    return 0;
}

/* ---- out ---- */

static void queue_write(struct hth_tcp_conn *c)
{
    while (c->queue_at != c->queue_end) {
        ssize_t n = send(c->messages.fd, c->queue + c->queue_at, c->queue_end - c->queue_at,
                MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n <= 0) /* what has broken shows where it is read */
            break;
        c->queue_at += (uint32_t)n;
    }
    if (c->queue_at == c->queue_end)
        c->queue_at = c->queue_end = 0;
    hth_tcp_sock_watch(&c->messages, c->queue_end ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* 1: there is room behind what waits. */
static int queue_has_room(struct hth_tcp_conn *c, size_t len)
{
    if (!c->queue)
        c->queue = malloc(HTH_TCP_QUEUE);
    if (!c->queue || len > HTH_TCP_QUEUE - (c->queue_end - c->queue_at))
        return 0;
    if (len > HTH_TCP_QUEUE - c->queue_end) {
        memmove(c->queue, c->queue + c->queue_at, c->queue_end - c->queue_at);
        c->queue_end -= c->queue_at;
        c->queue_at = 0;
    }
    return 1;
}

int hth_tcp_send(struct hth_transport *t, hth_conn conn, const void *bytes, size_t len)
{
    struct hth_tcp_conn *c = hth_tcp_conn_get(hth_tcp_of(t), conn);
    int first;

    if (len > HTH_MESSAGE_MAX || (len && !bytes))
        return HEARTH_EINVAL;
    if (!c || c->state != HTH_TCP_UP)
        return HEARTH_EPEER;
    first = !c->queue_end;
    if (c->blocked || !queue_has_room(c, message_more(c) + len)) {
        c->blocked = 1;
        hth_tcp_sock_watch(&c->messages, EPOLLIN | EPOLLOUT);
        return HEARTH_EBUSY;
    }
    if (message_put(c, c->queue + c->queue_end, bytes, len))
        return HEARTH_EPEER;
    c->queue_end += message_more(c) + (uint32_t)len;
    if (first)
        queue_write(c);
    return HEARTH_OK;
}

/* ---- in ---- */

/* Delivers what is whole; the bytes that are left. */
static uint32_t messages_deliver(struct hth_tcp_conn *c, unsigned char *at, uint32_t len)
{
    struct hth_transport_events *to = &c->t->events;
    uint32_t more = message_more(c);

    while (len >= LENGTH && c->state == HTH_TCP_UP) {
        uint32_t size = hth_get32(at);

        if (size > HTH_MESSAGE_MAX) {
            hth_tcp_conn_end(c, HEARTH_EPROTO, "a message is too long");
            break;
        }
        if (len < more + size)
            break;
        if (c->is_sealed &&
                hth_seal_take(c->messages_seal, at + LENGTH, at, at + LENGTH, at + LENGTH + size)) {
            hth_tcp_conn_end(c, HEARTH_EPROTO, "a message was changed on its way");
            break;
        }
        to->on_message(to->self, c->id, at + LENGTH, size);
        at += more + size;
        len -= more + size;
    }
    return len;
}

void hth_tcp_messages_read(struct hth_tcp_conn *c)
{
    unsigned char *room = c->t->read;
    uint32_t len = c->part_len, left;
    ssize_t n;

    if (len)
        memcpy(room, c->part, len);
    n = recv(c->messages.fd, room + len, HTH_TCP_READ - len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        int error = n ? errno : 0;

        if (error && error != ECONNRESET)
            hth_tcp_messages_failed(c, strerrordesc_np(error));
        hth_tcp_conn_end(c, HEARTH_EPEER,
                error ? strerrordesc_np(error) : "the peer has closed the connection");
        return;
    }
    len += (uint32_t)n;
    left = messages_deliver(c, room, len);
    if (c->state != HTH_TCP_UP)
        return;
    if (left && !c->part)
        c->part = malloc(HTH_SEAL_MORE + HTH_MESSAGE_MAX);
    if (left && !c->part) {
        hth_tcp_conn_end(c, HEARTH_EBUSY, "no memory for its messages");
        return;
    }
    if (left)
        memcpy(c->part, room + len - left, left);
    c->part_len = left;
}

void hth_tcp_messages_event(struct hth_tcp_conn *c, uint32_t events)
{
    struct hth_transport_events *to = &c->t->events;

    if (c->state == HTH_TCP_CONNECTING) { /* nothing but an end is watched for */
        hth_tcp_conn_end(c, HEARTH_EPEER, "the peer has closed the connection");
        return;
    }
    if (events & ~(uint32_t)EPOLLOUT)
        hth_tcp_messages_read(c);
    if (!(events & EPOLLOUT) || c->state != HTH_TCP_UP)
        return;
    queue_write(c);
    if (!c->blocked || c->queue_end - c->queue_at > QUEUE_LOW)
        return;
    c->blocked = 0;
    to->on_writable(to->self, c->id);
}

void hth_tcp_messages_fini(struct hth_tcp_conn *c)
{
    free(c->part);
    free(c->queue);
}
