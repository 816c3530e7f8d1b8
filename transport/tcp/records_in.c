/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk comes in sealed records (records.c). Those of a piece are received where they will stay and
 * opened there, so that nothing is written to memory twice; what lies between two of them, the tag
 * of one and the head of the next, is received beside. How long each is follows from the piece, and
 * a head with another length is nonsense. When a connection ends, zeros replace the bytes that no
 * tag has proved.
 *
 *     head | bytes | tag, head | bytes | tag, head | bytes | tag || a small record
 */
#include "tcp.h"

#include <errno.h>
#include <string.h>

#define LEAST  (HTH_SEAL_MORE + HTH_TCP_HEAD) /* no small record is shorter */
#define IOVECS (2 * HTH_TCP_BATCH + 2)

/* ---- records of a piece ---- */

static uint32_t record_len(const struct hth_tcp_sealed_in *r, unsigned i)
{
    uint64_t before = (uint64_t)i * HTH_SEAL_PLAIN;

    return r->bytes - before < HTH_SEAL_PLAIN ? (uint32_t)(r->bytes - before) : HTH_SEAL_PLAIN;
}

/* Where record i ends, counted from the first one's head. */
static uint64_t record_end(const struct hth_tcp_sealed_in *r, unsigned i)
{
    return (uint64_t)i * (HTH_SEAL_PLAIN + HTH_SEAL_MORE) + record_len(r, i) + HTH_SEAL_MORE;
}

/* The next records of the piece, at most as many as are opened at once. */
static void batch_begin(struct hth_tcp_bulk *b)
{
    struct hth_tcp_sealed_in *r = &b->sealed_in;
    const uint64_t most = (uint64_t)HTH_TCP_BATCH * HTH_SEAL_PLAIN;

    r->at = b->in.into;
    r->bytes = b->in.left < most ? b->in.left : most;
    r->is_last = b->in.left <= most;
    r->records = (unsigned)((r->bytes + HTH_SEAL_PLAIN - 1) / HTH_SEAL_PLAIN);
    r->opened = 0;
    r->came = 0;
}

static void iovec_add(struct msghdr *m, uint64_t *skip, void *at, size_t len)
{
    if (*skip >= len) {
        *skip -= len;
        return;
    }
    m->msg_iov[m->msg_iovlen++] = (struct iovec){ (unsigned char *)at + *skip, len - *skip };
    *skip = 0;
}

/* The parts of the batch that have not come yet. */
static void batch_room(struct hth_tcp_sealed_in *r, struct msghdr *m)
{
    uint64_t skip = r->came;

    iovec_add(m, &skip, r->between[0].head, HTH_SEAL_HEAD);
    for (unsigned i = 0; i < r->records; i++) {
        iovec_add(m, &skip, r->at + (size_t)i * HTH_SEAL_PLAIN, record_len(r, i));
        iovec_add(m, &skip, &r->between[i + 1],
                i + 1 < r->records ? sizeof(r->between[0]) : HTH_SEAL_TAG);
    }
}

/* Opens the records that are whole. 0; -1: a record is not valid. */
static int batch_open(struct hth_tcp_bulk *b)
{
    struct hth_tcp_sealed_in *r = &b->sealed_in;

    for (; r->opened < r->records && record_end(r, r->opened) <= r->came; r->opened++) {
        unsigned char *at = r->at + (size_t)r->opened * HTH_SEAL_PLAIN;
        uint32_t len = record_len(r, r->opened);

        if (hth_get32(r->between[r->opened].head) != len ||
                hth_seal_take(b->seal, at, r->between[r->opened].head, at,
                        r->between[r->opened + 1].tag) ||
                hth_tcp_frame_body(b, len))
            return -1;
    }
    if (r->opened == r->records)
        r->records = 0;
    return 0;
}

void hth_tcp_sealed_in_end(struct hth_tcp_bulk *b)
{
    struct hth_tcp_sealed_in *r = &b->sealed_in;
    uint64_t from = (uint64_t)r->opened * HTH_SEAL_PLAIN;

    if (r->records && r->came)
        hth_wipe(r->at + from, r->bytes - from);
    r->records = 0;
}

/* ---- small ones: a header, and a request's body ---- */

/* Bytes of the one that comes, as far as it is known. */
static uint32_t small_whole(const struct hth_tcp_sealed_in *r)
{
    return r->small_came < LEAST ? LEAST : HTH_SEAL_MORE + hth_get32(r->small);
}

static int small_take(struct hth_tcp_bulk *b)
{
    struct hth_tcp_sealed_in *r = &b->sealed_in;
    const unsigned char *sealed = r->small + HTH_SEAL_HEAD;
    unsigned char plain[HTH_TCP_SMALL];
    uint32_t len = hth_get32(r->small);

    if (r->small_came < HTH_SEAL_HEAD)
        return 0;
    if (len != HTH_TCP_HEAD && len != HTH_TCP_SMALL)
        return -1;
    if (r->small_came < HTH_SEAL_MORE + len)
        return 0;
    r->small_came = 0;
    if (hth_seal_take(b->seal, plain, r->small, sealed, sealed + len))
        return -1;
    memcpy(b->in.next, plain, HTH_TCP_HEAD);
    if (hth_tcp_frame_begin(b) || (b->in.head[0] == HTH_TCP_ASK) != (len == HTH_TCP_SMALL))
        return -1;
    if (len == HTH_TCP_HEAD)
        return 0;
    memcpy(b->in.request, plain + HTH_TCP_HEAD, HTH_TCP_REQUEST);
    return hth_tcp_frame_body(b, HTH_TCP_REQUEST);
}

/* ---- both ---- */

/* Receives as much as is known to come: no byte of a record whose length is not known. */
static ssize_t records_receive(struct hth_tcp_bulk *b, uint64_t *out_room)
{
    struct hth_tcp_sealed_in *r = &b->sealed_in;
    struct iovec at[IOVECS];
    struct msghdr m = { .msg_iov = at };
    uint64_t none = 0;

    if (r->records)
        batch_room(r, &m);
    if (!r->records || r->is_last)
        iovec_add(&m, &none, r->small + r->small_came, small_whole(r) - r->small_came);
    *out_room = 0;
    for (size_t i = 0; i < m.msg_iovlen; i++)
        *out_room += at[i].iov_len;
    return recvmsg(b->fd, &m, MSG_DONTWAIT);
}

/* n bytes came. 0, or -1: nonsense. */
static int records_came(struct hth_tcp_bulk *b, uint64_t n)
{
    struct hth_tcp_sealed_in *r = &b->sealed_in;

    if (r->records) {
        uint64_t left = record_end(r, r->records - 1) - r->came, some = n < left ? n : left;

        r->came += some;
        n -= some;
        if (batch_open(b))
            return -1;
    }
    r->small_came += (uint32_t)n;
    return r->records ? 0 : small_take(b);
}

ssize_t hth_tcp_sealed_read(struct hth_tcp_bulk *b, uint64_t *out_room)
{
    ssize_t n;

    if (b->in.left && !b->sealed_in.records)
        batch_begin(b);
    n = records_receive(b, out_room);
    if (n <= 0 || !records_came(b, (uint64_t)n))
        return n;
    errno = EPROTO;
    return -1;
}
