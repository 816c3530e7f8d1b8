/* SPDX-License-Identifier: Apache-2.0 */
/* Frames over a socket that never waits. */
#include "stream.h"

#include <errno.h>
#include <hearth/error.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define TURN_BYTES ((size_t)1 << 20) /* are read from one link before others have their turn */

struct hth_out {
    struct hth_out *next;
    struct hth_buf *of; /* NULL: own */
    size_t len, sent;
    unsigned char own[];
};

/* ---- descriptors ----------------------------------------------------------------------------- */

static int watch_do(int epoll, int op, struct hth_watch *w, uint32_t events)
{
    struct epoll_event e = { .events = events, .data.ptr = w };

    return epoll_ctl(epoll, op, w->fd, &e);
}

int hth_watch_add(int epoll, struct hth_watch *w, uint32_t events)
{
    return watch_do(epoll, EPOLL_CTL_ADD, w, events);
}

int hth_watch_change(int epoll, struct hth_watch *w, uint32_t events)
{
    return watch_do(epoll, EPOLL_CTL_MOD, w, events);
}

void hth_watch_end(struct hth_watch *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
}

/* ---- out ------------------------------------------------------------------------------------- */

static void stream_out_free(struct hth_out *o)
{
    hth_buf_put(o->of);
    free(o);
}

/* As much as goes now. 0, or an errno. */
static int stream_push(struct hth_stream *s)
{
    while (s->first) {
        struct hth_out *o = s->first;
        const unsigned char *from = o->of ? o->of->at : o->own;
        ssize_t n = send(s->watch.fd, from + o->sent, o->len - o->sent,
                MSG_NOSIGNAL | MSG_DONTWAIT | (o->next ? MSG_MORE : 0));

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n < 0)
            return errno;
        o->sent += (size_t)n;
        if (o->sent < o->len)
            continue;
        s->first = o->next;
        stream_out_free(o);
    }
    s->last = NULL;
    return 0;
}

static void stream_watch(struct hth_stream *s)
{
    hth_watch_change(s->epoll, &s->watch, EPOLLIN | (s->first ? (uint32_t)EPOLLOUT : 0u));
}

static struct hth_out *stream_out_new(size_t len, struct hth_buf *of)
{
    struct hth_out *o = calloc(1, sizeof(*o) + (of ? 0 : len));

    if (o)
        *o = (struct hth_out){ .of = of ? hth_buf_get(of) : NULL, .len = len };
    return o;
}

static void stream_out_add(struct hth_stream *s, struct hth_out *o)
{
    *(s->last ? &s->last->next : &s->first) = o;
    s->last = o;
}

/* Starts to send. The next stir finds an error of it. */
static void stream_start(struct hth_stream *s)
{
    (void)stream_push(s);
    stream_watch(s);
}

int hth_stream_bytes(struct hth_stream *s, const void *bytes, size_t len)
{
    struct hth_out *o = stream_out_new(len, NULL);

    if (!o)
        return HEARTH_ENOMEM;
    memcpy(o->own, bytes, len);
    stream_out_add(s, o);
    stream_start(s);
    return HEARTH_OK;
}

static int stream_frame(struct hth_stream *s, const struct hth_meet_frame *f, const void *bytes,
        struct hth_buf *of, const unsigned char digest[HTH_DIGEST])
{
    size_t own = of ? 0 : (size_t)f->len;
    struct hth_out *head = stream_out_new(HTH_MEET_FRAME + own, NULL);
    struct hth_out *body = head && of ? stream_out_new(of->len, of) : NULL;

    if (!head || (of && !body)) {
        free(head);
        return HEARTH_ENOMEM;
    }
    hth_meet_frame_make(head->own, &s->proving, f, digest);
    if (own)
        memcpy(head->own + HTH_MEET_FRAME, bytes, own);
    stream_out_add(s, head);
    if (body)
        stream_out_add(s, body);
    stream_start(s);
    return HEARTH_OK;
}

int hth_stream_send(struct hth_stream *s, const struct hth_meet_frame *f, const void *bytes)
{
    unsigned char digest[HTH_DIGEST];

    hth_digest(digest, bytes, (size_t)f->len);
    return stream_frame(s, f, bytes, NULL, digest);
}

int hth_stream_send_buf(struct hth_stream *s, const struct hth_meet_frame *f, struct hth_buf *body)
{
    return stream_frame(s, f, NULL, body, body->digest);
}

/* ---- in -------------------------------------------------------------------------------------- */

/* 1: the link is gone. */
static int stream_fails(struct hth_stream *s, int e)
{
    s->owner->end(s, e);
    return 1;
}

static int stream_has_frame(struct hth_stream *s, const struct hth_meet_frame *f)
{
    static const unsigned char nothing[1];
    unsigned char digest[HTH_DIGEST];
    struct hth_buf *body = s->body;
    int gone;

    hth_digest(digest, body ? body->at : nothing, body ? body->len : 0);
    if (!hth_meet_frame_holds(s->head, &s->proving, digest))
        return stream_fails(s, EKEYREJECTED);
    if (body)
        memcpy(body->digest, digest, HTH_DIGEST);
    s->body = NULL;
    s->got = 0;
    gone = s->owner->frame(s, f, body);
    hth_buf_put(body);
    return gone;
}

/* The head is whole. */
static int stream_expects_body(struct hth_stream *s, const struct hth_meet_frame *f)
{
    static const unsigned char unknown[HTH_DIGEST];

    if (f->len > s->owner->most(s, f) || f->len > SIZE_MAX / 2)
        return stream_fails(s, EPROTO);
    if (f->len && !(s->body = hth_buf_new((size_t)f->len, unknown)))
        return stream_fails(s, ENOMEM);
    return 0;
}

/* 1: the link is gone; 0: all that was there is read; -1: there may be more. */
static int stream_read(struct hth_stream *s)
{
    size_t at = s->got < HTH_MEET_FRAME ? s->got : s->got - HTH_MEET_FRAME;
    unsigned char *to = s->got < HTH_MEET_FRAME ? s->head + at : s->body->at + at;
    size_t want = (s->got < HTH_MEET_FRAME ? HTH_MEET_FRAME : s->body->len) - at;
    struct hth_meet_frame f;
    ssize_t n = recv(s->watch.fd, to, want, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return stream_fails(s, n ? errno : 0);
    s->got += (size_t)n;
    if (s->got < HTH_MEET_FRAME)
        return -1;
    if (hth_meet_frame_decode(&f, s->head))
        return stream_fails(s, EPROTO);
    if (s->got == HTH_MEET_FRAME && stream_expects_body(s, &f))
        return 1;
    if (s->got < HTH_MEET_FRAME + f.len)
        return -1;
    return stream_has_frame(s, &f) ? 1 : -1;
}

static void stream_stir(struct hth_watch *w, uint32_t events)
{
    struct hth_stream *s = (struct hth_stream *)w;
    size_t begun = s->proving.heard;
    int e, more = -1;

    if ((events & EPOLLOUT) && (e = stream_push(s))) {
        stream_fails(s, e);
        return;
    }
    if (events & EPOLLOUT)
        stream_watch(s);
    if (!(events & ~(uint32_t)EPOLLOUT))
        return;
    for (size_t read = 0; more < 0 && read < TURN_BYTES && s->proving.heard < begun + 64;
            read += HTH_MEET_FRAME)
        more = stream_read(s);
}

struct hth_stream *hth_stream_new(int epoll, int fd, int watched,
        const struct hth_stream_owner *owner, void *self, const struct hth_proving *proving)
{
    struct hth_stream *s = calloc(1, sizeof(*s));

    if (!s) {
        close(fd);
        return NULL;
    }
    s->watch = (struct hth_watch){ .fd = fd, .stir = stream_stir };
    s->epoll = epoll;
    s->owner = owner;
    s->self = self;
    s->proving = *proving;
    if (watched ? hth_watch_change(epoll, &s->watch, EPOLLIN)
                : hth_watch_add(epoll, &s->watch, EPOLLIN)) {
        hth_stream_close(s);
        return NULL;
    }
    return s;
}

void hth_stream_close(struct hth_stream *s)
{
    if (!s)
        return;
    if (s->first && s->watch.fd >= 0)
        (void)stream_push(s);
    while (s->first) {
        struct hth_out *o = s->first;

        s->first = o->next;
        stream_out_free(o);
    }
    hth_watch_end(&s->watch);
    hth_buf_put(s->body);
    hth_wipe(&s->proving, sizeof(s->proving));
    free(s);
}
