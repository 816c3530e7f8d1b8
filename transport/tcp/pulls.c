/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our pulls: a request each, answered by pieces in their order and an end that says whether they count.
 *
 *   FREE ─ pull() ─► WAITS ─ request sent ─► ASKED ─ end ─► on_pull(), FREE
 *
 * A pull's name for the peer is its place and that place's turn, so a late or made-up answer finds none.
 */
#include "tcp.h"

#include <string.h>

static uint64_t pull_name(const struct hth_tcp_conn *c, const struct hth_tcp_pull *p)
{
    return (uint64_t)p->turn << 32 | (uint64_t)(p - c->pull);
}

static void request_put(const struct hth_tcp_conn *c, const struct hth_tcp_pull *p,
        unsigned char out[HTH_TCP_HEAD + HTH_TCP_REQUEST])
{
    hth_tcp_head_put(out, HTH_TCP_ASK, 0, HTH_TCP_REQUEST, pull_name(c, p));
    out += HTH_TCP_HEAD;
    hth_put64(out, p->grant);
    memcpy(out + 8, p->secret, sizeof(p->secret));
    hth_put64(out + 24, p->roff);
    hth_put64(out + 32, p->len);
}

uint32_t hth_tcp_pulls_ask(struct hth_tcp_conn *c, unsigned char *out, uint32_t room)
{
    uint32_t len = 0;

    for (uint32_t i = 0; c->waiting && i < HTH_TCP_PULLS; i++) {
        if (c->pull[i].state != HTH_TCP_PULL_WAITS)
            continue;
        if (room - len < HTH_TCP_HEAD + HTH_TCP_REQUEST)
            break;
        request_put(c, &c->pull[i], out + len);
        len += HTH_TCP_HEAD + HTH_TCP_REQUEST;
        c->pull[i].state = HTH_TCP_PULL_ASKED;
        c->waiting--;
    }
    return len;
}

struct hth_tcp_pull *hth_tcp_pull_find(struct hth_tcp_conn *c, uint64_t name, uint32_t len)
{
    uint32_t i = (uint32_t)name;
    struct hth_tcp_pull *p = i < HTH_TCP_PULLS ? &c->pull[i] : NULL;

    if (!p || p->state != HTH_TCP_PULL_ASKED || p->turn != name >> 32)
        return NULL;
    return len <= p->left && len <= HTH_TCP_PIECE ? p : NULL;
}

static void pull_complete(struct hth_tcp_conn *c, struct hth_tcp_pull *p, int code)
{
    struct hth_transport_events *to = &c->t->events;
    const struct hth_tcp_pull was = *p; /* the place may be another's in the callback */

    c->waiting -= p->state == HTH_TCP_PULL_WAITS;
    c->pulls--;
    p->state = HTH_TCP_PULL_FREE;
    p->region->busy--;
    c->t->pulled = code ? NULL : &was;
    to->on_pull(to->self, was.cookie, code);
    c->t->pulled = NULL;
}

int hth_tcp_pulled_crc(struct hth_transport *t, uint32_t *out)
{
    const struct hth_tcp_pull *p = hth_tcp_of(t)->pulled;

    if (p)
        *out = p->crc;
    return p != NULL;
}

int hth_tcp_pull_ended(struct hth_tcp_conn *c, uint64_t name, unsigned code)
{
    struct hth_tcp_pull *p = hth_tcp_pull_find(c, name, 0);

    if (!p || code > 1 || (!code && p->left))
        return -1;
    pull_complete(c, p, code ? HEARTH_EDENIED : HEARTH_OK);
    return 0;
}

void hth_tcp_pulls_end(struct hth_tcp_conn *c)
{
    int code = c->code == HEARTH_ECANCELED || c->code == HEARTH_EPROTO ? c->code : HEARTH_EPEER;

    for (uint32_t i = 0; c->pulls && i < HTH_TCP_PULLS; i++)
        if (c->pull[i].state != HTH_TCP_PULL_FREE)
            pull_complete(c, &c->pull[i], code);
}
