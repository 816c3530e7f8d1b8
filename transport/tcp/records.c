/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk leaves in sealed records: a header is a record, with the request behind it if it is one, and
 * the bytes of a piece are records of 64 KiB, but for its last. They are sealed straight out of the
 * region into a buffer of the socket, as many as it has room for, and then sent.
 */
#include "tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LONG (HTH_SEAL_PLAIN + HTH_SEAL_MORE)
#define ROOM (4 * LONG)

static int record_add(struct hth_tcp_bulk *b, const void *plain, uint32_t len)
{
    int rc = hth_seal_put(b->seal, b->sealed + b->sealed_len, plain, len);

    b->sealed_len += HTH_SEAL_MORE + len;
    return rc;
}

static int record_of_piece(struct hth_tcp_bulk *b)
{
    struct hth_tcp_out *out = &b->out;
    struct hth_tcp_grant *pinned;
    struct iovec from = hth_tcp_frame_source(b, &pinned);
    uint32_t len = from.iov_len < HTH_SEAL_PLAIN ? (uint32_t)from.iov_len : HTH_SEAL_PLAIN;
    int rc = record_add(b, from.iov_base, len);

    hth_tcp_grant_unpin(b->t, pinned);
    out->off += len;
    out->left -= len;
    return rc;
}

/* The next record of what is to leave. */
static int record_next(struct hth_tcp_bulk *b)
{
    struct hth_tcp_out *out = &b->out;
    const unsigned char *at = out->head + out->head_put;
    uint32_t len;

    if (out->head_put < out->head_len) {
        len = *at == HTH_TCP_ASK ? HTH_TCP_SMALL : HTH_TCP_HEAD;
        out->head_put += len;
        return record_add(b, at, len);
    }
    if (out->left)
        return record_of_piece(b);
    out->tail_put = out->tail_len;
    return record_add(b, out->tail, HTH_TCP_HEAD);
}

/* As many records as there is room for. 1: some wait; 0: none; -1: errno, EPROTO: they cannot be
 * sealed. */
static int records_fill(struct hth_tcp_bulk *b)
{
    if (hth_tcp_frames_are_out(&b->out) && !hth_tcp_frames_fill(b))
        return 0; /* a socket without pulls has no buffer */
    if (!b->sealed)
        b->sealed = malloc(ROOM);
    if (!b->sealed)
        return -1;
    b->sealed_put = b->sealed_len = 0;
    while (ROOM - b->sealed_len >= LONG) {
        if (hth_tcp_frames_are_out(&b->out) && !hth_tcp_frames_fill(b))
            break;
        if (record_next(b)) {
            errno = EPROTO;
            return -1;
        }
    }
    return b->sealed_len != 0;
}

int hth_tcp_sealed_write(struct hth_tcp_bulk *b)
{
    uint64_t sent = 0;

    while (sent < HTH_TCP_TURN) {
        int fresh = b->sealed_put == b->sealed_len ? records_fill(b) : 1;
        ssize_t n;

        if (fresh <= 0)
            return fresh;
        n = send(b->fd, b->sealed + b->sealed_put, b->sealed_len - b->sealed_put,
                MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0)
            break; /* what has broken shows where it is read */
        b->sealed_put += (uint32_t)n;
        sent += (uint64_t)n;
    }
    return 1;
}

void hth_tcp_sealed_fini(struct hth_tcp_bulk *b)
{
    free(b->sealed);
}
