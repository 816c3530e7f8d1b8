/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bulk socket: requests and answers of both ends, in frames (tcp.h). A piece comes straight into the
 * puller's region, with the next header in the same call; it leaves straight out of the owner's, with
 * its header. send() and not sendfile(): the kernel then has a copy and never the live page, so a grant
 * that ends, or memory that is used again, needs nobody's word that the bytes have arrived.
 */
#include "tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#define LAST_READS 16 /* of messages */

static const unsigned char zeros[64 << 10];

/* ---- in ---- */

/* The next header is whole. 0, or -1: nonsense. */
static int frame_begin(struct hth_tcp_conn *c)
{
    struct hth_tcp_in *in = &c->in;
    uint32_t len = hth_get32(in->next + 4);
    uint64_t pull = hth_get64(in->next + 8);

    memcpy(in->head, in->next, HTH_TCP_HEAD);
    in->got = 0;
    in->pull = NULL;
    if (in->head[2] || in->head[3])
        return -1;
    switch (in->head[0]) {
    case HTH_TCP_ASK:
        in->into = in->request;
        in->left = len;
        return in->head[1] || len != HTH_TCP_REQUEST ? -1 : 0;
    case HTH_TCP_DATA:
        in->pull = hth_tcp_pull_find(c, pull, len);
        if (in->head[1] || !in->pull || !len)
            return -1;
        in->into = in->pull->into;
        in->left = len;
        return 0;
    case HTH_TCP_END:
        return len ? -1 : hth_tcp_pull_ended(c, pull, in->head[1]);
    default:
        return -1;
    }
}

/* A body is whole. */
static int frame_end(struct hth_tcp_conn *c)
{
    struct hth_tcp_in *in = &c->in;

    if (!in->pull)
        return hth_tcp_request_take(c, hth_get64(in->head + 8), in->request);
    in->pull = NULL;
    return 0;
}

static void body_take(struct hth_tcp_in *in, uint64_t n)
{
    in->into += n;
    in->left -= n;
    if (in->pull) {
        in->pull->into += n;
        in->pull->left -= n;
    }
}

/* Of the body first, and of the header behind it. */
static int frames_take(struct hth_tcp_conn *c, uint64_t n)
{
    struct hth_tcp_in *in = &c->in;
    uint64_t body = n < in->left ? n : in->left;

    if (body) {
        body_take(in, body);
        if (!in->left && frame_end(c))
            return -1;
    }
    in->got += (uint32_t)(n - body);
    return in->got == HTH_TCP_HEAD ? frame_begin(c) : 0;
}

static ssize_t frames_receive(struct hth_tcp_conn *c, uint64_t most)
{
    struct hth_tcp_in *in = &c->in;
    struct iovec at[2];
    struct msghdr m = { .msg_iov = at };

    if (in->left)
        at[m.msg_iovlen++] = (struct iovec){ in->into, in->left < most ? in->left : most };
    if (in->left <= most)
        at[m.msg_iovlen++] = (struct iovec){ in->next + in->got, HTH_TCP_HEAD - in->got };
    return recvmsg(c->bulk.fd, &m, MSG_DONTWAIT);
}

/* It has ended, or said nonsense: what came by the other socket is delivered first. */
static void bulk_broke(struct hth_tcp_conn *c, int code, const char *why)
{
    for (int i = 0; i < LAST_READS && c->state == HTH_TCP_UP; i++)
        hth_tcp_messages_read(c);
    hth_tcp_conn_end(c, code, why);
}

static void bulk_read(struct hth_tcp_conn *c)
{
    for (uint64_t read = 0; c->state == HTH_TCP_UP && read < HTH_TCP_TURN;) {
        ssize_t n = frames_receive(c, HTH_TCP_TURN - read);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0 && errno == EFAULT)
            bulk_broke(c, HEARTH_EPROTO, "the memory to pull into cannot be written");
        else if (n <= 0)
            bulk_broke(c, HEARTH_EPEER,
                    n ? strerrordesc_np(errno) : "the peer has closed the connection");
        else if (frames_take(c, (uint64_t)n))
            bulk_broke(c, HEARTH_EPROTO, "it sent a frame that makes no sense");
        else
            read += (uint64_t)n;
    }
}

/* ---- out ---- */

/* Requests first: they are short, and the peer works on them meanwhile. 0: nothing is to be sent. */
static int out_fill(struct hth_tcp_conn *c)
{
    struct hth_tcp_out *out = &c->out;

    out->head_put = out->tail_put = out->tail_len = 0;
    out->left = 0;
    out->dead = 0;
    out->head_len = hth_tcp_pulls_ask(c, out->head, sizeof(out->head));
    return out->head_len || hth_tcp_answer_next(c);
}

/* From the region while its grant stands; zeros otherwise, and the end says that they are nothing. */
static struct iovec out_body(struct hth_tcp_conn *c)
{
    struct hth_tcp_out *out = &c->out;
    const struct hth_tcp_grant *g = hth_ids_get(&c->t->grants, out->grant);

    if (!g || out->dead) {
        out->dead = 1;
        out->tail[1] = 1;
        return (struct iovec){ (void *)(uintptr_t)zeros,
            out->left < sizeof(zeros) ? out->left : sizeof(zeros) };
    }
    return (struct iovec){ g->region->base + g->off + out->off, out->left };
}

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
        at[m.msg_iovlen] = out_body(c);
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

static int out_is_empty(const struct hth_tcp_out *out)
{
    return out->head_put == out->head_len && !out->left && out->tail_put == out->tail_len;
}

void hth_tcp_bulk_write(struct hth_tcp_conn *c)
{
    uint64_t sent = 0;
    int more = 1;

    while (sent < HTH_TCP_TURN && (!out_is_empty(&c->out) || (more = out_fill(c)))) {
        ssize_t n = out_send(c);

        if (n < 0 && errno == EFAULT && !c->out.dead) {
            c->out.dead = 1; /* the file behind the region was cut short */
            continue;
        }
        if (n < 0)
            break; /* what has broken shows where it is read */
        out_sent(&c->out, (uint64_t)n);
        sent += (uint64_t)n;
    }
    hth_tcp_sock_watch(&c->bulk, more ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void hth_tcp_bulk_event(struct hth_tcp_conn *c, uint32_t events)
{
    if (events & ~(uint32_t)EPOLLOUT)
        bulk_read(c);
    if (c->state == HTH_TCP_UP && ((events & EPOLLOUT) || c->waiting || c->answers))
        hth_tcp_bulk_write(c);
}
