/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of bulk as such: what one that has come means, and which leave next. tcp.h draws them. */
#include "tcp.h"

#include "core/base/crc.h"

#include <string.h>

static const unsigned char nothing[64 << 10]; /* zeros, in place of what may not be read any more */

int hth_tcp_frame_begin(struct hth_tcp_bulk *b)
{
    struct hth_tcp_in *in = &b->in;
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
        in->pull = hth_tcp_pull_find(b, pull, len);
        if (in->head[1] || !in->pull || !len)
            return -1;
        in->into = in->pull->into;
        in->left = len;
        return 0;
    case HTH_TCP_END:
        return len ? -1 : hth_tcp_pull_ended(b, pull, in->head[1]);
    default:
        return -1;
    }
}

int hth_tcp_frame_body(struct hth_tcp_bulk *b, uint64_t n)
{
    struct hth_tcp_in *in = &b->in;
    struct hth_tcp_pull *p = in->pull;

    if (p) {
        p->crc = hth_crc32c_more(p->crc, in->into, n);
        p->into += n;
        p->came += n;
        atomic_store(&b->pulled_ms, hth_now_ms(&b->t->clock));
    }
    in->into += n;
    in->left -= n;
    if (in->left)
        return 0;
    in->pull = NULL;
    return p ? 0 : hth_tcp_request_take(b, hth_get64(in->head + 8), in->request);
}

/* Requests first: they are short, and the peer works on them meanwhile. */
int hth_tcp_frames_fill(struct hth_tcp_bulk *b)
{
    struct hth_tcp_out *out = &b->out;

    if (out->dead)
        hth_tcp_answer_deny(b, out->pull);
    out->head_put = out->tail_put = out->tail_len = 0;
    out->left = 0;
    out->dead = 0;
    out->head_len = hth_tcp_pulls_ask(b, out->head, sizeof(out->head));
    return out->head_len || hth_tcp_answer_next(b);
}

int hth_tcp_frames_are_out(const struct hth_tcp_out *out)
{
    return out->head_put == out->head_len && !out->left && out->tail_put == out->tail_len;
}

struct iovec hth_tcp_frame_source(struct hth_tcp_bulk *b, struct hth_tcp_grant **out_grant)
{
    struct hth_tcp_out *out = &b->out;
    struct hth_tcp_grant *g = out->dead ? NULL : hth_tcp_grant_pin(b->t, out->grant);

    *out_grant = g;
    if (!g) {
        out->dead = 1;
        out->tail[1] = 1;
        return (struct iovec){ (void *)(uintptr_t)nothing,
            out->left < sizeof(nothing) ? out->left : sizeof(nothing) };
    }
    return (struct iovec){ g->region->base + g->off + out->off, out->left };
}
