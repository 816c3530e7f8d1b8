/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peer's pulls: a ring of ranges, never of bytes. Each has a piece in its turn, so a short one
 * does not wait for a long one; the grant is asked for again before each piece and at each write of
 * it.
 */
#include "tcp.h"

static void answer_push(struct hth_tcp_bulk *b, const struct hth_tcp_answer *a)
{
    b->answer[(b->answer_at + b->answers++) % HTH_TCP_PULLS] = *a;
}

int hth_tcp_request_take(
        struct hth_tcp_bulk *b, uint64_t pull, const unsigned char request[HTH_TCP_REQUEST])
{
    struct hth_tcp_answer a = { .pull = pull,
        .grant = hth_get64(request),
        .off = hth_get64(request + 24),
        .left = hth_get64(request + 32) };

    if (b->answers == HTH_TCP_PULLS)
        return -1;
    a.denied = !hth_tcp_grant_check(b->conn, a.grant, request + 8, a.off, a.left);
    answer_push(b, &a);
    return 0;
}

int hth_tcp_answer_next(struct hth_tcp_bulk *b)
{
    struct hth_tcp_out *out = &b->out;
    struct hth_tcp_answer a;
    int denied;

    if (!b->answers)
        return 0;
    a = b->answer[b->answer_at];
    b->answer_at = (b->answer_at + 1) % HTH_TCP_PULLS;
    b->answers--;
    denied = a.denied || !hth_tcp_grant_stands(b->t, a.grant);
    if (denied)
        a.left = 0;
    out->pull = a.pull;
    out->grant = a.grant;
    out->off = a.off;
    out->left = a.left < HTH_TCP_PIECE ? a.left : HTH_TCP_PIECE;
    a.off += out->left;
    a.left -= out->left;
    if (out->left) {
        hth_tcp_head_put(out->head, HTH_TCP_DATA, 0, (uint32_t)out->left, a.pull);
        out->head_len = HTH_TCP_HEAD;
    }
    if (a.left) {
        answer_push(b, &a);
        return 1;
    }
    hth_tcp_head_put(out->tail, HTH_TCP_END, denied, 0, a.pull);
    out->tail_len = HTH_TCP_HEAD;
    return 1;
}

void hth_tcp_answer_deny(struct hth_tcp_bulk *b, uint64_t pull)
{
    for (uint32_t i = 0; i < b->answers; i++) {
        struct hth_tcp_answer *a = &b->answer[(b->answer_at + i) % HTH_TCP_PULLS];

        a->denied |= a->pull == pull;
    }
}
