/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk in sealed records: a header is a record, with the request behind it if it is one, and the bytes of a
 * piece are records of 64 KiB. They are received into the transport's one buffer and opened from there
 * straight into the region; they are sealed straight out of it into a buffer of the connection.
 */
#include "tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SMALL     (HTH_TCP_HEAD + HTH_TCP_REQUEST) /* the longest record that is no piece's */
#define OUT_BYTES (4 * (HTH_SEAL_PLAIN + HTH_SEAL_MORE))

/* ---- in ---- */

/* One that is no part of a piece: a header, and a request's body. */
static int record_head(struct hth_tcp_conn *c, const unsigned char *at, size_t len)
{
    unsigned char plain[SMALL];

    if (len != HTH_TCP_HEAD && len != SMALL)
        return -1;
    if (hth_seal_take(c->bulk_seal, plain, at, at + HTH_SEAL_HEAD, at + HTH_SEAL_HEAD + len))
        return -1;
    memcpy(c->in.next, plain, HTH_TCP_HEAD);
    if (hth_tcp_frame_begin(c) || (c->in.head[0] == HTH_TCP_ASK) != (len == SMALL))
        return -1;
    if (len == HTH_TCP_HEAD)
        return 0;
    memcpy(c->in.request, plain + HTH_TCP_HEAD, HTH_TCP_REQUEST);
    return hth_tcp_frame_body(c, HTH_TCP_REQUEST);
}

static int record_take(struct hth_tcp_conn *c, const unsigned char *at, size_t len)
{
    if (!c->in.left)
        return record_head(c, at, len);
    if (!len || len > c->in.left)
        return -1;
    if (hth_seal_take(c->bulk_seal, c->in.into, at, at + HTH_SEAL_HEAD, at + HTH_SEAL_HEAD + len))
        return -1;
    return hth_tcp_frame_body(c, len);
}

/* Those that are whole; how many bytes are left, or -1: nonsense. */
static ssize_t records_take(struct hth_tcp_conn *c, const unsigned char *at, size_t have)
{
    size_t len;

    while (have >= HTH_SEAL_MORE && c->state == HTH_TCP_UP) {
        if (hth_seal_length(at, &len))
            return -1;
        if (have < HTH_SEAL_MORE + len)
            break;
        if (record_take(c, at, len))
            return -1;
        at += HTH_SEAL_MORE + len;
        have -= HTH_SEAL_MORE + len;
    }
    return (ssize_t)have;
}

/* Bytes that came, 0: the peer has closed, -1 with errno; -1 with EPROTO: nonsense. */
ssize_t hth_tcp_sealed_read(struct hth_tcp_conn *c, uint64_t *out_room)
{
    unsigned char *room = c->t->sealed;
    size_t have = c->rest_len;
    ssize_t n, left;

    if (have)
        memcpy(room, c->rest, have);
    *out_room = HTH_TCP_SEALED - have;
    n = recv(c->bulk.fd, room + have, *out_room, MSG_DONTWAIT);
    if (n <= 0)
        return n;
    have += (size_t)n;
    left = records_take(c, room, have);
    if (c->state != HTH_TCP_UP)
        return n;
    if (left > 0 && !c->rest)
        c->rest = malloc(HTH_SEAL_PLAIN + HTH_SEAL_MORE);
    if (left < 0 || (left && !c->rest)) {
        errno = left < 0 ? EPROTO : ENOMEM;
        return -1;
    }
    if (left)
        memcpy(c->rest, room + have - (size_t)left, (size_t)left);
    c->rest_len = (uint32_t)left;
    return n;
}

/* ---- out ---- */

static int record_put(struct hth_tcp_conn *c, const void *plain, size_t len)
{
    if (hth_seal_put(c->bulk_seal, c->sealed + c->sealed_len, plain, len)) {
        errno = EPROTO;
        return -1;
    }
    c->sealed_len += (uint32_t)(HTH_SEAL_MORE + len);
    return 0;
}

/* The next record of what is to leave. */
static int record_next(struct hth_tcp_conn *c)
{
    struct hth_tcp_out *out = &c->out;
    struct iovec from;
    uint32_t len;

    if (out->head_put < out->head_len) {
        len = out->head[out->head_put] == HTH_TCP_ASK ? SMALL : HTH_TCP_HEAD;
        out->head_put += len;
        return record_put(c, out->head + out->head_put - len, len);
    }
    if (!out->left) {
        out->tail_put = out->tail_len;
        return record_put(c, out->tail, HTH_TCP_HEAD);
    }
    from = hth_tcp_frame_source(c);
    len = from.iov_len < HTH_SEAL_PLAIN ? (uint32_t)from.iov_len : HTH_SEAL_PLAIN;
    out->off += len;
    out->left -= len;
    return record_put(c, from.iov_base, len);
}

/* As many records as there is room for. 1: some wait; 0: none; -1: errno, EPROTO: they cannot be sealed. */
static int records_fill(struct hth_tcp_conn *c)
{
    if (!c->sealed)
        c->sealed = malloc(OUT_BYTES);
    if (!c->sealed)
        return -1;
    c->sealed_put = c->sealed_len = 0;
    while (OUT_BYTES - c->sealed_len >= HTH_SEAL_PLAIN + HTH_SEAL_MORE) {
        if (hth_tcp_frames_are_out(&c->out) && !hth_tcp_frames_fill(c))
            break;
        if (record_next(c))
            return -1;
    }
    return c->sealed_len != 0;
}

int hth_tcp_sealed_write(struct hth_tcp_conn *c)
{
    uint64_t sent = 0;

    while (sent < HTH_TCP_TURN) {
        int fresh = c->sealed_put == c->sealed_len ? records_fill(c) : 1;
        ssize_t n;

        if (fresh <= 0)
            return fresh;
        n = send(c->bulk.fd, c->sealed + c->sealed_put, c->sealed_len - c->sealed_put,
                MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0)
            break; /* what has broken shows where it is read */
        c->sealed_put += (uint32_t)n;
        sent += (uint64_t)n;
    }
    return 1;
}

void hth_tcp_sealed_fini(struct hth_tcp_conn *c)
{
    free(c->rest);
    free(c->sealed);
}
