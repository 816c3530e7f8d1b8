/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our pulls through one socket, on its lane: requests for a part each, answered in their order by
 * pieces and an end that says whether they count.
 *
 *   begins ─► waits ─ the last part is asked for ─► asked ─ the last end ─► done: on_pull()
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

void hth_tcp_pulls_begin(struct hth_tcp_bulk *b)
{
    struct tcp_info info = { .tcpi_min_rtt = 0 };
    socklen_t len = sizeof(info);
    uint64_t on_their_way;

    if (getsockopt(b->fd, IPPROTO_TCP, TCP_INFO, &info, &len))
        info.tcpi_min_rtt = 0;
    on_their_way = info.tcpi_min_rtt * RATE; /* of a path not measured it is UINT32_MAX */
    b->ahead = WAITING + on_their_way < MOST ? WAITING + on_their_way : MOST;
}

static uint64_t pull_name(const struct hth_tcp_pull *p)
{
    return (uint64_t)p->turn << 32 | (uint64_t)(p - p->bulk->conn->pull);
}

/* Of the part that begins there. */
static uint64_t part_len(const struct hth_tcp_pull *p, uint64_t from)
{
    uint64_t left = p->len - from;

    return left < HTH_TCP_PART ? left : HTH_TCP_PART;
}

static void request_put(struct hth_tcp_bulk *b, struct hth_tcp_pull *p,
        unsigned char out[HTH_TCP_HEAD + HTH_TCP_REQUEST])
{
    uint64_t len = part_len(p, p->asked);

    hth_tcp_head_put(out, HTH_TCP_ASK, 0, HTH_TCP_REQUEST, pull_name(p));
    out += HTH_TCP_HEAD;
    hth_put64(out, p->grant);
    memcpy(out + 8, p->secret, sizeof(p->secret));
    hth_put64(out + 24, p->roff + p->asked);
    hth_put64(out + 32, len);
    p->asked += len;
    p->requests++;
    b->asked += len;
    b->requests++;
}

static void pull_waits(struct hth_tcp_bulk *b, struct hth_tcp_pull *p, int waits)
{
    b->waiting += (uint32_t)waits - (uint32_t)p->waits;
    p->waits = waits;
}

/* In turn: a short pull does not wait until a long one has been asked for. There is one. */
static struct hth_tcp_pull *waiting_next(struct hth_tcp_bulk *b)
{
    const struct hth_tcp_pull *p;

    do {
        p = b->open[b->turn++ % HTH_TCP_PULLS];
    } while (!p || !p->waits);
    return b->open[(b->turn - 1) % HTH_TCP_PULLS];
}

int hth_tcp_pulls_may_ask(const struct hth_tcp_bulk *b)
{
    return b->waiting && b->requests < HTH_TCP_PULLS &&
           (!b->asked || b->asked + HTH_TCP_PART <= b->ahead);
}

uint32_t hth_tcp_pulls_ask(struct hth_tcp_bulk *b, unsigned char *out, uint32_t room)
{
    uint32_t len = 0;

    while (hth_tcp_pulls_may_ask(b) && room - len >= HTH_TCP_HEAD + HTH_TCP_REQUEST) {
        struct hth_tcp_pull *p = waiting_next(b);

        request_put(b, p, out + len);
        len += HTH_TCP_HEAD + HTH_TCP_REQUEST;
        pull_waits(b, p, p->asked < p->len);
    }
    return len;
}

struct hth_tcp_pull *hth_tcp_pull_find(struct hth_tcp_bulk *b, uint64_t name, uint32_t len)
{
    uint32_t i = (uint32_t)name;
    struct hth_tcp_pull *p = i < HTH_TCP_PULLS ? b->open[i] : NULL;

    if (!p || !p->requests || p->turn != name >> 32)
        return NULL;
    return len <= p->ended + part_len(p, p->ended) - p->came && len <= HTH_TCP_PIECE ? p : NULL;
}

/* The caller's thread reports it, and may use the place again: it is not touched here any more. */
static void pull_done(struct hth_tcp_bulk *b, struct hth_tcp_pull *p, int code)
{
    pull_waits(b, p, 0);
    b->open[p - b->conn->pull] = NULL;
    hth_tcp_back_pull(b->t, p, code);
}

void hth_tcp_pulls_add(struct hth_tcp_bulk *b, struct hth_tcp_pull *p)
{
    b->open[p - b->conn->pull] = p;
    pull_waits(b, p, 1);
}

int hth_tcp_pull_ended(struct hth_tcp_bulk *b, uint64_t name, unsigned code)
{
    struct hth_tcp_pull *p = hth_tcp_pull_find(b, name, 0);
    uint64_t part = p ? part_len(p, p->ended) : 0;

    if (!p || code > 1 || (!code && p->came != p->ended + part))
        return -1;
    p->ended += part;
    p->into += p->ended - p->came;
    p->came = p->ended;
    p->ended_crc = p->crc;
    p->requests--;
    b->asked -= part;
    b->requests--;
    if (code) {
        p->denied = 1;
        pull_waits(b, p, 0);
    }
    if (!p->requests && !p->waits)
        pull_done(b, p, p->denied ? HEARTH_EDENIED : HEARTH_OK);
    return 0;
}
