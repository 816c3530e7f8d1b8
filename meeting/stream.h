/* SPDX-License-Identifier: Apache-2.0 */
/* A connection that carries frames: what comes is proved before its owner sees it. */
/* For this folder alone. */
#ifndef HEARTH_MEETING_STREAM_H
#define HEARTH_MEETING_STREAM_H

#include "core/base/buf.h"
#include "wire.h"

/* A descriptor in the meeting's epoll set. stir() may free it. */
struct hth_watch {
    int fd; /* -1: none */
    void (*stir)(struct hth_watch *w, uint32_t events);
};

/* 0, or -1 and errno. */
int hth_watch_add(int epoll, struct hth_watch *w, uint32_t events);
int hth_watch_change(int epoll, struct hth_watch *w, uint32_t events);
void hth_watch_end(struct hth_watch *w); /* closes the descriptor */

struct hth_stream;

struct hth_stream_owner {
    /* The most bytes that a body of this frame may have; 0 where there is none. */
    uint64_t (*most)(const struct hth_stream *s, const struct hth_meet_frame *f);
    /* body: NULL where it has no bytes; its digest is body->digest. The owner may close the link:
     * it returns 1 then. */
    int (*frame)(struct hth_stream *s, const struct hth_meet_frame *f, struct hth_buf *body);
    /* The other side has ended it (0), or it broke: errno; EPROTO: a frame that is not valid,
     * EKEYREJECTED: one that is not proved. The owner closes it. */
    void (*end)(struct hth_stream *s, int e);
};

struct hth_stream {
    struct hth_watch watch; /* first */
    int epoll;
    const struct hth_stream_owner *owner;
    void *self;
    struct hth_proving proving;
    unsigned char head[HTH_MEET_FRAME];
    size_t got; /* of head and body */
    struct hth_buf *body;
    struct hth_out *first, *last; /* what is to be sent */
};

/* fd is taken over, and is in the epoll set already if `watched`. NULL: no memory, and fd is
 * closed. */
struct hth_stream *hth_stream_new(int epoll, int fd, int watched,
        const struct hth_stream_owner *owner, void *self, const struct hth_proving *proving);
/* Bytes as they are, before any frame. HEARTH_ENOMEM. */
int hth_stream_bytes(struct hth_stream *s, const void *bytes, size_t len);
/* bytes[f->len] are copied. HEARTH_ENOMEM. */
int hth_stream_send(struct hth_stream *s, const struct hth_meet_frame *f, const void *bytes);
/* The body is shared, not copied. HEARTH_ENOMEM. */
int hth_stream_send_buf(struct hth_stream *s, const struct hth_meet_frame *f, struct hth_buf *body);
void hth_stream_close(struct hth_stream *s); /* NULL: nothing. After a last try to send the rest */

#endif
