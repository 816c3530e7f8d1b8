/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strangers that are disconnected when too many greet. Each address that the epoch's table
 * names has places of its own, which other addresses do not use; all further strangers share the
 * rest. Of those that share it, the oldest that has proved nothing is disconnected.
 */
#include "tcp.h"

#include <stdlib.h>
#include <string.h>

struct hth_tcp_place {
    unsigned char ip[16]; /* an IPv4 address: 4 bytes, zeros */
    uint32_t kept;        /* places: HTH_TCP_KEPT for each member there */
    uint32_t taken;       /* greetings from there */
};

static void place_ip(const union hth_addr *a, unsigned char out[16])
{
    memset(out, 0, 16);
    if (a->sa.sa_family == AF_INET6)
        memcpy(out, &a->in6.sin6_addr, 16);
    else
        memcpy(out, &a->in.sin_addr, 4);
}

static int place_compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(((struct hth_tcp_place *)0)->ip));
}

/* NULL: the table does not name it. */
static struct hth_tcp_place *place_of(const struct hth_tcp *t, const union hth_addr *peer)
{
    struct hth_tcp_place key = { 0 };

    if (!t->places_count)
        return NULL;
    place_ip(peer, key.ip);
    return bsearch(&key, t->places, t->places_count, sizeof(key), place_compare);
}

void hth_tcp_place_take(struct hth_tcp_greeting *g)
{
    struct hth_tcp *t = g->sock.t;

    g->place = place_of(t, &g->peer);
    if (!g->place || ++g->place->taken > g->place->kept)
        t->sharing++;
    t->strangers++;
}

void hth_tcp_place_leave(struct hth_tcp_greeting *g)
{
    struct hth_tcp *t = g->sock.t;

    if (!g->place || g->place->taken-- > g->place->kept)
        t->sharing--;
    t->strangers--;
}

/* The lower, the sooner it goes. */
static int greeting_worth(const struct hth_tcp_greeting *g)
{
    int is_kept = g->place && g->place->taken <= g->place->kept;

    return 2 * is_kept + (g->stage == HTH_TCP_HALF);
}

/* The newest has had no time to prove anything: it goes only if it is alone. */
struct hth_tcp_greeting *hth_tcp_place_least(const struct hth_tcp *t)
{
    struct hth_tcp_greeting *least = t->oldest;

    for (struct hth_tcp_greeting *g = t->oldest; g != t->newest && greeting_worth(least);
            g = g->next)
        if (greeting_worth(g) < greeting_worth(least))
            least = g;
    return least;
}

int hth_tcp_places_are_full(const struct hth_tcp *t)
{
    return t->sharing > HTH_TCP_STRANGERS || t->strangers > HTH_TCP_STRANGERS + HTH_TCP_KEPT_ALL;
}

/* ---- the table ---- */

/* Sorted, each address once. */
static uint32_t places_merge(struct hth_tcp_place *at, uint32_t count)
{
    uint32_t n = 0;

    qsort(at, count, sizeof(*at), place_compare);
    for (uint32_t i = 0; i < count; i++) {
        if (n && !place_compare(&at[n - 1], &at[i]))
            at[n - 1].kept += at[i].kept;
        else
            at[n++] = at[i];
    }
    return n;
}

void hth_tcp_members(
        struct hth_transport *transport, const struct hth_member *member, uint32_t count)
{
    struct hth_tcp *t = hth_tcp_of(transport);
    struct hth_tcp_place *at = calloc((size_t)count * HTH_ADDRS + 1, sizeof(*at));
    struct hth_addrs all;
    uint32_t n = 0;

    if (!at) {
        hth_say(&t->log, HEARTH_LOG_WARN, "tcp-places", "no memory to keep places for members");
        return;
    }
    t->has_paths = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (hth_addrs_unpack(member[i].addr, member[i].addr_len, &t->self, &all, NULL))
            continue;
        t->has_paths |= all.count > 1;
        for (uint32_t k = 0; k < all.count; k++) {
            place_ip(&all.at[k], at[n].ip);
            at[n++].kept = HTH_TCP_KEPT;
        }
    }
    free(t->places);
    t->places = at;
    t->places_count = places_merge(at, n);
    t->sharing = t->strangers = 0;
    for (struct hth_tcp_greeting *g = t->oldest; g; g = g->next)
        hth_tcp_place_take(g);
}
