/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our pulls: requests for a part each, answered in their order by pieces and an end that says
 * whether they count.
 *
 *   pull() ─► waits ─ the last part is asked for ─► asked ─ the last end ─► on_pull()
 *                └─ an end says denied: nothing more is asked for ───┘
 *
 * No more is asked for than is on its way at the rate that one thread can take, and 2 MiB on top:
 * what waits in the socket beyond a processor's cache comes out of memory, and the kernel's own
 * bound, a window that it guesses, is now too small for the rate and now many times the cache. A
 * pull's name for the peer is its place and that place's turn, so a late or made-up answer finds
 * none.
 */
#include "tcp.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#define WAITING (UINT64_C(2) << 20) /* bytes that may wait here: of a cache of our time */
#define MOST    (UINT64_C(16) << 20)
#define RATE    UINT64_C(8000) /* bytes a microsecond, more than one thread copies and checks */

void hth_tcp_pulls_begin(struct hth_tcp_conn *c)
{
    struct tcp_info info = { .tcpi_min_rtt = 0 };
    socklen_t len = sizeof(info);
    uint64_t on_their_way;

    if (getsockopt(c->bulk.fd, IPPROTO_TCP, TCP_INFO, &info, &len))
        info.tcpi_min_rtt = 0;
    on_their_way = info.tcpi_min_rtt * RATE; /* of a path not measured it is UINT32_MAX */
    c->ahead = WAITING + on_their_way < MOST ? WAITING + on_their_way : MOST;
}

static uint64_t pull_name(const struct hth_tcp_conn *c, const struct hth_tcp_pull *p)
{
    return (uint64_t)p->turn << 32 | (uint64_t)(p - c->pull);
}

/* Of the part that begins there. */
static uint64_t part_len(const struct hth_tcp_pull *p, uint64_t from)
{
    uint64_t left = p->len - from;

    return left < HTH_TCP_PART ? left : HTH_TCP_PART;
}

static void request_put(struct hth_tcp_conn *c, struct hth_tcp_pull *p,
        unsigned char out[HTH_TCP_HEAD + HTH_TCP_REQUEST])
{
    uint64_t len = part_len(p, p->asked);

    hth_tcp_head_put(out, HTH_TCP_ASK, 0, HTH_TCP_REQUEST, pull_name(c, p));
    out += HTH_TCP_HEAD;
    hth_put64(out, p->grant);
    memcpy(out + 8, p->secret, sizeof(p->secret));
    hth_put64(out + 24, p->roff + p->asked);
    hth_put64(out + 32, len);
    p->asked += len;
    p->requests++;
    c->asked += len;
    c->requests++;
}

static void pull_waits(struct hth_tcp_conn *c, struct hth_tcp_pull *p, int waits)
{
    c->waiting += (uint32_t)waits - (uint32_t)p->waits;
    p->waits = waits;
}

/* In turn: a short pull does not wait until a long one has been asked for. There is one. */
static struct hth_tcp_pull *waiting_next(struct hth_tcp_conn *c)
{
    while (!c->pull[c->turn % HTH_TCP_PULLS].waits)
        c->turn++;
    return &c->pull[c->turn++ % HTH_TCP_PULLS];
}

int hth_tcp_pulls_may_ask(const struct hth_tcp_conn *c)
{
    return c->waiting && c->requests < HTH_TCP_PULLS &&
           (!c->asked || c->asked + HTH_TCP_PART <= c->ahead);
}

uint32_t hth_tcp_pulls_ask(struct hth_tcp_conn *c, unsigned char *out, uint32_t room)
{
    uint32_t len = 0;

    while (hth_tcp_pulls_may_ask(c) && room - len >= HTH_TCP_HEAD + HTH_TCP_REQUEST) {
        struct hth_tcp_pull *p = waiting_next(c);

        request_put(c, p, out + len);
        len += HTH_TCP_HEAD + HTH_TCP_REQUEST;
        pull_waits(c, p, p->asked < p->len);
    }
    return len;
}

struct hth_tcp_pull *hth_tcp_pull_find(struct hth_tcp_conn *c, uint64_t name, uint32_t len)
{
    uint32_t i = (uint32_t)name;
    struct hth_tcp_pull *p = i < HTH_TCP_PULLS ? &c->pull[i] : NULL;

    if (!p || !p->requests || p->turn != name >> 32)
        return NULL;
    return len <= p->ended + part_len(p, p->ended) - p->came && len <= HTH_TCP_PIECE ? p : NULL;
}

static void pull_complete(struct hth_tcp_conn *c, struct hth_tcp_pull *p, int code)
{
    struct hth_transport_events *to = &c->t->events;
    const struct hth_tcp_pull was = *p; /* the place may be another's in the callback */

    pull_waits(c, p, 0);
    c->pulls--;
    p->is_open = 0;
    p->requests = 0;
    p->region->busy--;
    c->t->pulled = code ? NULL : &was;
    to->on_pull(to->self, was.cookie, code);
    c->t->pulled = NULL;
}

int hth_tcp_pull_ended(struct hth_tcp_conn *c, uint64_t name, unsigned code)
{
    struct hth_tcp_pull *p = hth_tcp_pull_find(c, name, 0);
    uint64_t part = p ? part_len(p, p->ended) : 0;

    if (!p || code > 1 || (!code && p->came != p->ended + part))
        return -1;
    p->ended += part;
    p->into += p->ended - p->came;
    p->came = p->ended;
    p->requests--;
    c->asked -= part;
    c->requests--;
    if (code) {
        p->denied = 1;
        pull_waits(c, p, 0);
    }
    if (!p->requests && !p->waits)
        pull_complete(c, p, p->denied ? HEARTH_EDENIED : HEARTH_OK);
    return 0;
}

uint64_t hth_tcp_pulled_ms(struct hth_transport *t, hth_conn conn)
{
    const struct hth_tcp_conn *c = hth_tcp_conn_get(hth_tcp_of(t), conn);

    return c ? c->pulled_ms : 0;
}

int hth_tcp_pulled_crc(struct hth_transport *t, uint32_t *out)
{
    const struct hth_tcp_pull *p = hth_tcp_of(t)->pulled;

    if (p)
        *out = p->crc;
    return p != NULL;
}

void hth_tcp_pulls_end(struct hth_tcp_conn *c)
{
    int code = c->code == HEARTH_ECANCELED || c->code == HEARTH_EPROTO ? c->code : HEARTH_EPEER;

    for (uint32_t i = 0; c->pulls && i < HTH_TCP_PULLS; i++)
        if (c->pull[i].is_open)
            pull_complete(c, &c->pull[i], code);
}
