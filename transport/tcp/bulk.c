/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bulk socket, on its lane: requests and answers of both ends, in frames (tcp.h). A piece comes
 * straight into the puller's region, with the next header in the same call; it leaves straight out
 * of the owner's, with its header. send() and not sendfile(): the kernel then has a copy and never
 * the live page, so a grant can end, and memory be used again, without a confirmation that the
 * bytes have arrived.
 */
#include "tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

/* ---- in ---- */

/* Counts n received bytes: first of the body, then of the header behind it. */
static int frames_take(struct hth_tcp_bulk *b, uint64_t n)
{
    struct hth_tcp_in *in = &b->in;
    uint64_t body = n < in->left ? n : in->left;

    if (body && hth_tcp_frame_body(b, body))
        return -1;
    in->got += (uint32_t)(n - body);
    return in->got == HTH_TCP_HEAD ? hth_tcp_frame_begin(b) : 0;
}

static ssize_t frames_receive(struct hth_tcp_bulk *b, uint64_t most, uint64_t *out_room)
{
    struct hth_tcp_in *in = &b->in;
    struct iovec at[2];
    struct msghdr m = { .msg_iov = at };

    if (in->left)
        at[m.msg_iovlen++] = (struct iovec){ in->into, in->left < most ? in->left : most };
    if (in->left <= most)
        at[m.msg_iovlen++] = (struct iovec){ in->next + in->got, HTH_TCP_HEAD - in->got };
    *out_room = at[0].iov_len + (m.msg_iovlen > 1 ? at[1].iov_len : 0);
    return recvmsg(b->fd, &m, MSG_DONTWAIT);
}

static ssize_t plain_read(struct hth_tcp_bulk *b, uint64_t most, uint64_t *out_room)
{
    ssize_t n = frames_receive(b, most, out_room);

    if (n <= 0 || !frames_take(b, (uint64_t)n))
        return n;
    errno = EPROTO;
    return -1;
}

/* Until it has read less than there was room for: then the socket is empty, and epoll says when it
 * is not. */
static void bulk_read(struct hth_tcp_bulk *b)
{
    uint64_t read = 0, room = 0;
    ssize_t n;

    do {
        n = b->is_sealed ? hth_tcp_sealed_read(b, &room) : plain_read(b, HTH_TCP_SIP, &room);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            hth_tcp_bulk_broke(b, n ? errno : 0);
            return;
        }
        read += (uint64_t)n;
    } while (n == (ssize_t)room && read < HTH_TCP_TURN);
}

/* ---- out ---- */

static ssize_t out_send(struct hth_tcp_bulk *b)
{
    struct hth_tcp_out *out = &b->out;
    struct hth_tcp_grant *pinned = NULL;
    struct iovec at[3];
    struct msghdr m = { .msg_iov = at };
    uint64_t body = 0;
    ssize_t n;

    if (out->head_put < out->head_len)
        at[m.msg_iovlen++] =
                (struct iovec){ out->head + out->head_put, out->head_len - out->head_put };
    if (out->left) {
        at[m.msg_iovlen] = hth_tcp_frame_source(b, &pinned);
        body = at[m.msg_iovlen++].iov_len;
    }
    if (out->tail_put < out->tail_len && body == out->left)
        at[m.msg_iovlen++] =
                (struct iovec){ out->tail + out->tail_put, out->tail_len - out->tail_put };
    n = sendmsg(b->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    hth_tcp_grant_unpin(b->t, pinned);
    return n;
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
static int plain_write(struct hth_tcp_bulk *b)
{
    uint64_t sent = 0;

    while (sent < HTH_TCP_TURN) {
        ssize_t n;

        if (hth_tcp_frames_are_out(&b->out) && !hth_tcp_frames_fill(b))
            return 0;
        n = out_send(b);
        if (n < 0 && errno == EFAULT && !b->out.dead) {
            b->out.dead = 1; /* the file behind the region was cut short */
            continue;
        }
        if (n < 0)
            break; /* what has broken shows where it is read */
        out_sent(&b->out, (uint64_t)n);
        sent += (uint64_t)n;
    }
    return 1;
}

void hth_tcp_bulk_write(struct hth_tcp_bulk *b)
{
    int more = b->is_sealed ? hth_tcp_sealed_write(b) : plain_write(b);

    if (more < 0)
        hth_tcp_bulk_broke(b, errno);
    else
        hth_tcp_bulk_watch(b, more ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void hth_tcp_bulk_event(struct hth_tcp_bulk *b, uint32_t events)
{
    if (events & ~(uint32_t)EPOLLOUT)
        bulk_read(b);
    if (b->events && ((events & EPOLLOUT) || hth_tcp_pulls_may_ask(b) || b->answers))
        hth_tcp_bulk_write(b);
}
