/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk in sealed records: a header is a record, with the request behind it if it is one, and the bytes of a
 * piece are records of 64 KiB. They are received into the transport's one buffer and opened from there
 * straight into the region; they are sealed straight out of it into a buffer of the connection. Those of a piece are opened
 * and sealed several at once, by the transport's crew too, and all of them are done before the turn goes on.
 */
#include "tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SMALL     (HTH_TCP_HEAD + HTH_TCP_REQUEST) /* the longest record that is no piece's */
#define LONG      (HTH_SEAL_PLAIN + HTH_SEAL_MORE)
#define OUT_ALONE 4u /* records that are sealed before they are sent, without a crew */

#define SHARED    (128u << 10) /* bytes that are worth a crew: less is done sooner than it is awake */

static struct hth_tcp_crew *crew_for(const struct hth_tcp_conn *c, uint64_t bytes)
{
    return bytes >= SHARED ? c->t->crew : NULL;
}

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

/* Records of a piece, as many as are whole: their bytes; 0: none is; -1: nonsense. One by one without a
 * crew, so that each is checksummed while it is in the nearest cache. */
static ssize_t piece_take(struct hth_tcp_conn *c, unsigned char *at, size_t have)
{
    const unsigned most = c->t->crew ? HTH_SEAL_BATCH : 1;
    struct hth_seal_item item[HTH_SEAL_BATCH];
    size_t used = 0, plain = 0, len;
    unsigned n = 0;

    while (n < most && plain < c->in.left && have - used >= HTH_SEAL_MORE) {
        if (hth_seal_length(at + used, &len) || !len || len > c->in.left - plain)
            return -1;
        if (have - used < HTH_SEAL_MORE + len)
            break;
        item[n++] = (struct hth_seal_item){
            .record = at + used, .plain = c->in.into + plain, .len = (uint32_t)len
        };
        used += HTH_SEAL_MORE + len;
        plain += len;
    }
    if (!n)
        return 0;
    if (hth_seal_take_all(c->bulk_seal, crew_for(c, plain), item, n))
        return -1;
    for (unsigned i = 0; i < n; i++)
        if (hth_tcp_frame_data(c, item[i].len, item[i].crc))
            return -1;
    return (ssize_t)used;
}

/* The next record, if it is whole: its bytes; 0: it is not; -1: nonsense. */
static ssize_t head_take(struct hth_tcp_conn *c, const unsigned char *at, size_t have)
{
    size_t len;

    if (hth_seal_length(at, &len))
        return -1;
    if (have < HTH_SEAL_MORE + len)
        return 0;
    return record_head(c, at, len) ? -1 : (ssize_t)(HTH_SEAL_MORE + len);
}

/* Those that are whole; how many bytes are left, or -1: nonsense. */
static ssize_t records_take(struct hth_tcp_conn *c, unsigned char *at, size_t have)
{
    ssize_t n = 1;

    while (n && have >= HTH_SEAL_MORE && c->state == HTH_TCP_UP) {
        n = c->in.left ? piece_take(c, at, have) : head_take(c, at, have);
        if (n < 0)
            return -1;
        at += n;
        have -= (size_t)n;
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
        c->rest = malloc(LONG);
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

/* What is to be sealed at once. */
struct batch {
    struct hth_seal_item item[HTH_SEAL_BATCH];
    unsigned n;
    uint64_t bytes;
};

static int batch_seal(struct hth_tcp_conn *c, struct batch *b)
{
    int rc = hth_seal_put_all(c->bulk_seal, crew_for(c, b->bytes), b->item, b->n);

    b->n = 0;
    b->bytes = 0;
    if (rc)
        errno = EPROTO;
    return rc ? -1 : 0;
}

static void batch_add(struct hth_tcp_conn *c, struct batch *b, void *plain, uint32_t len)
{
    b->item[b->n++] = (struct hth_seal_item){
        .record = c->sealed + c->sealed_len, .plain = plain, .len = len
    };
    b->bytes += len;
    c->sealed_len += HTH_SEAL_MORE + len;
}

/* The next record of what is to leave. */
static void batch_next(struct hth_tcp_conn *c, struct batch *b)
{
    struct hth_tcp_out *out = &c->out;
    struct iovec from;
    uint32_t len;

    if (out->head_put < out->head_len) {
        len = out->head[out->head_put] == HTH_TCP_ASK ? SMALL : HTH_TCP_HEAD;
        batch_add(c, b, out->head + out->head_put, len);
        out->head_put += len;
    } else if (!out->left) {
        batch_add(c, b, out->tail, HTH_TCP_HEAD);
        out->tail_put = out->tail_len;
    } else {
        from = hth_tcp_frame_source(c);
        len = from.iov_len < HTH_SEAL_PLAIN ? (uint32_t)from.iov_len : HTH_SEAL_PLAIN;
        batch_add(c, b, from.iov_base, len);
        out->off += len;
        out->left -= len;
    }
}

/* As many records as there is room for. 1: some wait; 0: none; -1: errno, EPROTO: they cannot be sealed. */
static int records_fill(struct hth_tcp_conn *c)
{
    const uint32_t room = (c->t->crew ? HTH_SEAL_BATCH : OUT_ALONE) * LONG;
    struct batch b = { .n = 0 };

    if (!c->sealed)
        c->sealed = malloc(room);
    if (!c->sealed)
        return -1;
    c->sealed_put = c->sealed_len = 0;
    while (room - c->sealed_len >= LONG) {
        if (b.n == HTH_SEAL_BATCH && batch_seal(c, &b))
            return -1;
        if (!hth_tcp_frames_are_out(&c->out)) {
            batch_next(c, &b);
            continue;
        }
        if (batch_seal(c, &b)) /* before its headers are written over */
            return -1;
        if (!hth_tcp_frames_fill(c))
            break;
    }
    return batch_seal(c, &b) ? -1 : c->sealed_len != 0;
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
