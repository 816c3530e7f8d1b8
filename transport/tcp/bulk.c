/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bulk socket: requests and answers of both ends, in frames (tcp.h). A piece comes straight
 * into the puller's region, with the next header in the same call; it leaves straight out of the
 * owner's, with its header. send() and not sendfile(): the kernel then has a copy and never the
 * live page, so a grant can end, and memory be used again, without a confirmation that the bytes
 * have arrived.
 */
#include "tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#define LAST_READS 16 /* of messages */

/* ---- in ---- */

/* Counts n received bytes: first of the body, then of the header behind it. */
static int frames_take(struct hth_tcp_conn *c, uint64_t n)
{
    struct hth_tcp_in *in = &c->in;
    uint64_t body = n < in->left ? n : in->left;

    if (body && hth_tcp_frame_body(c, body))
        return -1;
    in->got += (uint32_t)(n - body);
    return in->got == HTH_TCP_HEAD ? hth_tcp_frame_begin(c) : 0;
}

static ssize_t frames_receive(struct hth_tcp_conn *c, uint64_t most, uint64_t *out_room)
{
    struct hth_tcp_in *in = &c->in;
    struct iovec at[2];
    struct msghdr m = { .msg_iov = at };

    if (in->left)
        at[m.msg_iovlen++] = (struct iovec){ in->into, in->left < most ? in->left : most };
    if (in->left <= most)
        at[m.msg_iovlen++] = (struct iovec){ in->next + in->got, HTH_TCP_HEAD - in->got };
    *out_room = at[0].iov_len + (m.msg_iovlen > 1 ? at[1].iov_len : 0);
    return recvmsg(c->bulk.fd, &m, MSG_DONTWAIT);
}

/* The bulk socket has ended or sent invalid bytes: messages that came by the other socket are
 * delivered first. */
static void bulk_broke(struct hth_tcp_conn *c, int code, const char *why)
{
    for (int i = 0; i < LAST_READS && c->state == HTH_TCP_UP; i++)
        hth_tcp_messages_read(c);
    hth_tcp_conn_end(c, code, why);
}

static ssize_t plain_read(struct hth_tcp_conn *c, uint64_t most, uint64_t *out_room)
{
    ssize_t n = frames_receive(c, most, out_room);

    if (n <= 0 || !frames_take(c, (uint64_t)n))
        return n;
    errno = EPROTO;
    return -1;
}

static void bulk_failed(struct hth_tcp_conn *c, int error)
{
    if (error == EFAULT)
        bulk_broke(c, HEARTH_EPROTO, "the memory to pull into cannot be written");
    else if (error == EPROTO && c->is_sealed)
        bulk_broke(c, HEARTH_EPROTO, "it sent what makes no sense, or was changed on its way");
    else if (error == EPROTO)
        bulk_broke(c, HEARTH_EPROTO, "it sent a frame that makes no sense");
    else if (error == ENOMEM)
        bulk_broke(c, HEARTH_EBUSY, "no memory for its records");
    else
        bulk_broke(c, HEARTH_EPEER,
                error ? strerrordesc_np(error) : "the peer has closed the connection");
}

/* Until it has read less than there was room for: then the socket is empty, and epoll says when it
 * is not. */
static void bulk_read(struct hth_tcp_conn *c)
{
    uint64_t read = 0, room = 0;
    ssize_t n;

    do {
        n = c->is_sealed ? hth_tcp_sealed_read(c, &room) : plain_read(c, HTH_TCP_SIP, &room);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0)
            bulk_failed(c, n ? errno : 0);
        else
            read += (uint64_t)n;
    } while (c->state == HTH_TCP_UP && n == (ssize_t)room && read < HTH_TCP_TURN);
}

/* ---- out ---- */

static ssize_t out_send(struct hth_tcp_conn *c)
{
    struct hth_tcp_out *out = &c->out;
    struct iovec at[3];
    struct msghdr m = { .msg_iov = at };
    uint64_t body = 0;

    if (out->head_put < out->head_len)
        at[m.msg_iovlen++] =
                (struct iovec){ out->head + out->head_put, out->head_len - out->head_put };
    if (out->left) {
        at[m.msg_iovlen] = hth_tcp_frame_source(c);
        body = at[m.msg_iovlen++].iov_len;
    }
    if (out->tail_put < out->tail_len && body == out->left)
        at[m.msg_iovlen++] =
                (struct iovec){ out->tail + out->tail_put, out->tail_len - out->tail_put };
    return sendmsg(c->bulk.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void out_sent(struct hth_tcp_out *out, uint64_t n)
{
    uint64_t head = out->head_len - out->head_put, body;

    head = n < head ? n : head;
    n -= head;
    out->head_put += (uint32_t)head;
    body = n < out->left ? n : out->left;
    n -= body;
    out->off += body;
    out->left -= body;
    out->tail_put += (uint32_t)n;
}

/* 1: there is more to send. */
static int plain_write(struct hth_tcp_conn *c)
{
    uint64_t sent = 0;

    while (sent < HTH_TCP_TURN) {
        ssize_t n;

        if (hth_tcp_frames_are_out(&c->out) && !hth_tcp_frames_fill(c))
            return 0;
        n = out_send(c);
        if (n < 0 && errno == EFAULT && !c->out.dead) {
            c->out.dead = 1; /* the file behind the region was cut short */
            continue;
        }
        if (n < 0)
            break; /* what has broken shows where it is read */
        out_sent(&c->out, (uint64_t)n);
        sent += (uint64_t)n;
    }
    return 1;
}

void hth_tcp_bulk_write(struct hth_tcp_conn *c)
{
    int more = c->is_sealed ? hth_tcp_sealed_write(c) : plain_write(c);

    if (more < 0)
        hth_tcp_conn_errno(c, errno);
    else
        hth_tcp_sock_watch(&c->bulk, more ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void hth_tcp_bulk_event(struct hth_tcp_conn *c, uint32_t events)
{
    if (events & ~(uint32_t)EPOLLOUT)
        bulk_read(c);
    if (c->state == HTH_TCP_UP && ((events & EPOLLOUT) || hth_tcp_pulls_may_ask(c) || c->answers))
        hth_tcp_bulk_write(c);
}
