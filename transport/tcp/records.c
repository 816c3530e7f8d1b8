/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk leaves in sealed records: a header is a record, with the request behind it if it is one, and
 * the bytes of a piece are records of 64 KiB, but for its last. They are sealed straight out of the
 * region into a buffer of the connection, several at once, by the transport's crew too, and all of
 * them are done before the turn goes on.
 */
#include "tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LONG      (HTH_SEAL_PLAIN + HTH_SEAL_MORE)
#define OUT_ALONE 4u           /* records that are sealed before they are sent, without a crew */
#define SHARED    (128u << 10) /* bytes that are worth a crew: less is done sooner than it is awake */

struct hth_tcp_crew *hth_tcp_crew_for(const struct hth_tcp *t, uint64_t bytes)
{
    return bytes >= SHARED ? t->crew : NULL;
}

/* Records to be sealed together. */
struct batch {
    struct hth_seal_item item[HTH_SEAL_BATCH];
    unsigned n;
    uint64_t bytes;
};

static int batch_seal(struct hth_tcp_conn *c, struct batch *b)
{
    int rc = hth_seal_put_all(c->bulk_seal, hth_tcp_crew_for(c->t, b->bytes), b->item, b->n);

    b->n = 0;
    b->bytes = 0;
    if (rc)
        errno = EPROTO;
    return rc ? -1 : 0;
}

static void batch_add(struct hth_tcp_conn *c, struct batch *b, void *plain, uint32_t len)
{
    b->item[b->n++] = hth_seal_item(c->sealed + c->sealed_len, plain, len);
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
        len = out->head[out->head_put] == HTH_TCP_ASK ? HTH_TCP_SMALL : HTH_TCP_HEAD;
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

/* As many records as there is room for. 1: some wait; 0: none; -1: errno, EPROTO: they cannot be
 * sealed. */
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
    free(c->sealed);
}
