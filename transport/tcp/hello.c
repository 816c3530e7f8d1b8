/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the two sockets of a connection find each other. Both are dialled by the same side, so that either
 * end may be behind a door that only opens outwards, and at once, so that no pull waits for a handshake.
 *
 *     dialler                            listener
 *       messages ── hello ──────────────►  keeps the socket, mints a token for it
 *                ◄───────────── welcome ─
 *       bulk     ── hello, the token ───►  joins the two: on_accept()
 *     on_up()    ◄───────────── welcome ─
 *
 * The listener answers nothing but a whole hello, and a bulk one only if its token is right.
 */
#include "tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>

#define HELLO_VERSION 1u
#define DIALLED       "no Hearth answers there, or it speaks another version"

static const unsigned char hello_magic[8] = { 'H', 'E', 'A', 'R', 'T', 'H', '-', 'T' };

static void hello_put(unsigned char out[HTH_TCP_HELLO], enum hth_tcp_kind kind, uint64_t half,
        const unsigned char token[HTH_TCP_TOKEN])
{
    memset(out, 0, HTH_TCP_HELLO);
    memcpy(out, hello_magic, sizeof(hello_magic));
    hth_put16(out + 8, HELLO_VERSION);
    out[10] = (unsigned char)kind;
    hth_put64(out + 16, half);
    memcpy(out + 24, token, HTH_TCP_TOKEN);
}

/* What has come of it can be the beginning of a hello. */
static int hello_is_possible(const unsigned char *in, uint32_t got)
{
    unsigned char begin[10];

    memcpy(begin, hello_magic, 8);
    hth_put16(begin + 8, HELLO_VERSION);
    return memcmp(in, begin, got < sizeof(begin) ? got : sizeof(begin)) == 0;
}

static int hello_send(struct hth_tcp_greeting *g, enum hth_tcp_kind kind, uint64_t half,
        const unsigned char token[HTH_TCP_TOKEN])
{
    unsigned char bytes[HTH_TCP_HELLO];

    hello_put(bytes, kind, half, token);
    /* the first bytes of a socket: they have room */
    return send(g->sock.fd, bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(bytes);
}

/* 1: whole; 0: not yet; -1: it is none, or the socket is gone (errno, 0: closed). */
static int hello_receive(struct hth_tcp_greeting *g)
{
    ssize_t n = recv(g->sock.fd, g->in + g->got, HTH_TCP_HELLO - g->got, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n == 0)
        errno = 0;
    if (n <= 0)
        return -1;
    g->got += (uint32_t)n;
    errno = EPROTO;
    if (!hello_is_possible(g->in, g->got))
        return -1;
    return g->got == HTH_TCP_HELLO;
}

/* ---- dialled ---- */

static int dial_socket(struct hth_tcp *t, const union hth_tcp_addr *peer, int *out_fd)
{
    union hth_tcp_addr from = t->self;
    int fd = socket(peer->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;

    if (fd < 0)
        return errno;
    *out_fd = fd;
    from.in.sin_port = 0; /* from our address, but not from the port we listen on */
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (bind(fd, &from.sa, hth_tcp_addr_len(&from)))
        return errno;
    if (connect(fd, &peer->sa, hth_tcp_addr_len(peer)) && errno != EINPROGRESS)
        return errno;
    return 0;
}

static int greeting_dial(struct hth_tcp_conn *c, enum hth_tcp_kind kind)
{
    struct hth_tcp_greeting *g = calloc(1, sizeof(*g));
    int fd = -1, rc = g ? dial_socket(c->t, &c->addr, &fd) : ENOMEM;

    if (g) {
        g->sock.fd = -1;
        g->stage = HTH_TCP_DIALS;
        g->kind = kind;
        g->conn = c;
        c->greeting = g;
    }
    if (fd >= 0 && rc) {
        struct hth_tcp_sock lost = { .t = c->t, .fd = fd };

        hth_tcp_sock_close(&lost);
    } else if (!rc) {
        rc = hth_tcp_sock_open(c->t, &g->sock, fd, HTH_TCP_GREETS, g, EPOLLOUT);
    }
    if (rc && g)
        hth_tcp_greeting_end(g);
    return rc;
}

static void dialled_stands(struct hth_tcp_greeting *g)
{
    static const unsigned char none[HTH_TCP_TOKEN];
    struct hth_tcp_conn *c = g->conn;
    socklen_t len = sizeof(int);
    int error = 0;

    getsockopt(g->sock.fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error) {
        hth_tcp_conn_end(c, HEARTH_EPEER, strerrordesc_np(error));
        return;
    }
    if (!hello_send(g, g->kind, c->half, g->kind == HTH_TCP_KIND_BULK ? c->token : none)) {
        hth_tcp_conn_end(c, HEARTH_EPEER, DIALLED);
        return;
    }
    g->stage = HTH_TCP_AWAITS;
    hth_tcp_sock_watch(&g->sock, EPOLLIN);
}

/* The other half, or the connection stands. */
static void dialled_welcomed(struct hth_tcp_greeting *g)
{
    struct hth_tcp_conn *c = g->conn;
    int is_bulk = g->kind == HTH_TCP_KIND_BULK;
    int rc;

    c->half = hth_get64(g->in + 16);
    memcpy(c->token, g->in + 24, HTH_TCP_TOKEN);
    rc = hth_tcp_sock_move(&g->sock, is_bulk ? &c->bulk : &c->messages,
            is_bulk ? HTH_TCP_BULK : HTH_TCP_MESSAGES, c);
    hth_tcp_greeting_end(g);
    if (!rc && is_bulk) {
        hth_tcp_conn_up(c);
        return;
    }
    if (!rc) {
        hth_tcp_sock_watch(&c->messages, EPOLLRDHUP); /* its bytes are for when the other stands */
        rc = greeting_dial(c, HTH_TCP_KIND_BULK);
    }
    if (rc)
        hth_tcp_conn_errno(c, rc);
}

static void dialled_event(struct hth_tcp_greeting *g)
{
    int whole;

    if (g->stage == HTH_TCP_DIALS) {
        dialled_stands(g);
        return;
    }
    whole = hello_receive(g);
    if (whole < 0 && errno == EPROTO)
        hth_tcp_conn_end(g->conn, HEARTH_EPROTO, DIALLED);
    else if (whole < 0)
        hth_tcp_conn_end(g->conn, HEARTH_EPEER,
                errno ? strerrordesc_np(errno) : "it closed before its hello was whole");
    else if (whole && g->in[10] != HTH_TCP_KIND_WELCOME)
        hth_tcp_conn_end(g->conn, HEARTH_EPROTO, DIALLED);
    else if (whole)
        dialled_welcomed(g);
}

/* ---- accepted ---- */

/* For messages: the socket waits for its other half. */
static int accepted_messages(struct hth_tcp_greeting *g)
{
    if (getrandom(g->token, sizeof(g->token), 0) != sizeof(g->token) ||
            !hello_send(g, HTH_TCP_KIND_WELCOME, g->sock.id, g->token))
        return 0;
    g->stage = HTH_TCP_HALF;
    hth_tcp_sock_watch(&g->sock, EPOLLRDHUP);
    return 1;
}

static struct hth_tcp_greeting *accepted_half(struct hth_tcp_greeting *g)
{
    struct hth_tcp_sock *s = hth_ids_get(&g->sock.t->socks, hth_get64(g->in + 16));
    struct hth_tcp_greeting *half = s && s->role == HTH_TCP_GREETS ? s->owner : NULL;
    unsigned char differs = 0;

    if (!half || half->conn || half->stage != HTH_TCP_HALF)
        return NULL;
    for (size_t i = 0; i < HTH_TCP_TOKEN; i++) /* takes as long for any guess */
        differs |= half->token[i] ^ g->in[24 + i];
    return differs ? NULL : half;
}

/* Both halves are here. */
static int accepted_bulk(struct hth_tcp_greeting *g)
{
    static const unsigned char none[HTH_TCP_TOKEN];
    struct hth_tcp_greeting *half = accepted_half(g);
    struct hth_tcp_conn *c;
    int rc;

    if (!half || !hello_send(g, HTH_TCP_KIND_WELCOME, 0, none))
        return 0;
    c = hth_tcp_conn_new(g->sock.t, &half->peer);
    if (!c) {
        hth_tcp_greeting_end(half);
        return 0;
    }
    rc = hth_tcp_sock_move(&half->sock, &c->messages, HTH_TCP_MESSAGES, c);
    if (!rc)
        rc = hth_tcp_sock_move(&g->sock, &c->bulk, HTH_TCP_BULK, c);
    hth_tcp_greeting_end(half);
    hth_tcp_greeting_end(g);
    hth_tcp_conn_up(c);
    if (rc)
        hth_tcp_conn_errno(c, rc);
    return 1;
}

static void accepted_event(struct hth_tcp_greeting *g)
{
    int whole = g->stage == HTH_TCP_LISTENS ? hello_receive(g) : -1;

    if (!whole)
        return;
    if (whole > 0 && g->in[10] == HTH_TCP_KIND_MESSAGES && accepted_messages(g))
        return;
    if (whole > 0 && g->in[10] == HTH_TCP_KIND_BULK && accepted_bulk(g))
        return;
    hth_tcp_greeting_end(g); /* without a word */
}

void hth_tcp_greeting_event(struct hth_tcp_greeting *g)
{
    if (g->conn)
        dialled_event(g);
    else
        accepted_event(g);
}

int hth_tcp_connect(struct hth_transport *transport, const unsigned char *addr, uint32_t len,
        hth_conn *out_conn, struct hearth_error *err)
{
    struct hth_tcp *t = hth_tcp_of(transport);
    union hth_tcp_addr peer;
    struct hth_tcp_conn *c;
    int rc = hth_tcp_addr_unpack(addr, len, &t->self, &peer, err);

    if (rc)
        return rc;
    if (t->closing)
        return hth_fail(err, HEARTH_ECANCELED, 0, "the transport is being closed");
    c = hth_tcp_conn_new(t, &peer);
    if (!c)
        return hth_fail(err, HEARTH_EBUSY, 0,
                "no memory for a connection, or %u connections stand already", t->base.conns_max);
    c->dialled = 1;
    c->due_ms = hth_now_ms(&t->clock) + t->connect_ms;
    if (c->due_ms < t->due_ms)
        t->due_ms = c->due_ms;
    *out_conn = c->id;
    rc = greeting_dial(c, HTH_TCP_KIND_MESSAGES);
    if (rc)
        hth_tcp_conn_errno(c, rc);
    return HEARTH_OK;
}
