/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pulls of a session. The deadline is for progress: a pull is given up when no byte of any pull has
 * come on its connection for stall_ms, by the transport's word where it has one (tcp; libfabric
 * piece by piece), else by the ends of pulls, of which none is longer than a chunk of 4 MiB. So a
 * slow path, and a long queue at the owner, cost nothing. A pull that is forgotten while others
 * come is given up after MOST_STALLS times as long.
 *
 * Giving up costs the connection, since dropping it is the only cancel. `done` comes from the
 * transport alone, once the destination is safe; a cookie is good for one completion.
 */
#include "session_parts.h"

#define MOST_STALLS 12u

/* Adds the pull in the order of due times, behind all that are due no later. */
static void pull_wait_add(struct hth_session *s, struct hth_session_pull *pull)
{
    struct hth_session_pull *before = s->pull_last;

    while (before && before->due_ms > pull->due_ms)
        before = before->prev;
    pull->prev = before;
    pull->next = before ? before->next : s->pull_first;
    *(before ? &before->next : &s->pull_first) = pull;
    *(pull->next ? &pull->next->prev : &s->pull_last) = pull;
    hth_session_expect(s, pull->due_ms);
}

static void pull_wait_remove(struct hth_session *s, struct hth_session_pull *pull)
{
    if (pull->due_ms == HTH_NEVER)
        return;
    *(pull->prev ? &pull->prev->next : &s->pull_first) = pull->next;
    *(pull->next ? &pull->next->prev : &s->pull_last) = pull->prev;
    pull->due_ms = HTH_NEVER;
}

int hth_session_pull(struct hth_session *s, uint32_t node, const struct hth_grant *grant,
        uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len,
        struct hth_session_pull *pull)
{
    struct peer *peer = hth_peer_find(s, node);
    struct link *link = peer ? (peer->bulk ? peer->bulk : peer->open) : NULL;
    uint64_t cookie = ++s->cookie;
    int rc;

    if (!link || link->rest != REST_NONE) /* no grant is given on one that rests */
        return HEARTH_EPEER;
    if (grant->desc_len > HTH_DESC_MAX)
        return HEARTH_EINVAL;
    if (hth_map_put(&s->pulls, cookie, pull))
        return HEARTH_ENOMEM;
    rc = s->transport->ops->pull(s->transport, link->conn, grant->desc, grant->desc_len, roff,
            region, doff, len, cookie);
    if (rc) {
        hth_map_take(&s->pulls, cookie);
        return rc;
    }
    pull->cookie = cookie;
    pull->conn = link->conn;
    pull->node = node;
    pull->len = len;
    link->busy++;
    pull->code = 0;
    pull->due_ms = hth_session_now(s) + s->opts.stall_ms;
    pull->most_ms = hth_session_now(s) + (uint64_t)MOST_STALLS * s->opts.stall_ms;
    pull_wait_add(s, pull);
    return HEARTH_OK;
}

/* 1: the end of a pull shows that the owner runs, because the owner's processor serves it. If its
 * hardware serves pulls, a stopped process serves them as well. */
static int pull_is_life_sign(const struct hth_session *s)
{
    return !(s->transport->ops->caps(s->transport) & HTH_CAP_ONE_SIDED);
}

void hth_pulls_on_pull(void *self, uint64_t cookie, int code)
{
    struct hth_session *s = self;
    struct hth_session_pull *pull = hth_map_take(&s->pulls, cookie);
    struct link *link;

    if (!pull)
        return;
    link = hth_map_get(&s->conns, pull->conn);
    pull_wait_remove(s, pull);
    if (link) {
        link->busy--;
        link->used_ms = hth_session_now(s);
        if (!code)
            link->pulled_ms = link->used_ms;
    }
    if (code && link && link->state == LINK_ENDING && link->why)
        code = link->why; /* not "canceled": the reason why this node cut it */
    if (!code && link && link->peer && pull_is_life_sign(s))
        link->alive_ms = link->peer->alive_ms = hth_session_now(s);
    pull->code = code;
    pull->has_crc = !code && s->transport->ops->pulled_crc &&
                    s->transport->ops->pulled_crc(s->transport, &pull->crc);
    if (s->events.on_pulled && pull->node < HTH_OUTSIDE && (!code || code == HEARTH_ETIMEOUT))
        s->events.on_pulled(s->events.self, pull->node, pull->len, code);
    pull->done(pull, code);
}

/* 1: bytes have come since, so the pull waits for stall_ms from the last of them. */
static int pull_goes_on(
        struct hth_session *s, struct hth_session_pull *pull, const struct link *link, uint64_t now)
{
    uint64_t (*pulled_ms)(struct hth_transport *, hth_conn) = s->transport->ops->pulled_ms;
    uint64_t last = pulled_ms ? pulled_ms(s->transport, link->conn) : 0;

    if (last < link->pulled_ms)
        last = link->pulled_ms;
    if (last + s->opts.stall_ms <= now || pull->most_ms <= now)
        return 0;
    pull->due_ms = last + s->opts.stall_ms;
    if (pull->due_ms > pull->most_ms)
        pull->due_ms = pull->most_ms;
    pull_wait_add(s, pull);
    return 1;
}

static void pull_say_stalled(const struct hth_session *s, const struct hth_session_pull *pull,
        const struct link *link, uint64_t now)
{
    int forgotten = pull->most_ms <= now;

    hth_say(&s->log, HEARTH_LOG_WARN, "pull-stalled",
            "node %" PRIu32 ": %s for %u ms, its connection is cut", link->node,
            forgotten ? "a pull has not ended, while others do," : "no byte of a pull has come",
            forgotten ? MOST_STALLS * s->opts.stall_ms : s->opts.stall_ms);
}

void hth_pulls_tick(struct hth_session *s, uint64_t now)
{
    while (s->pull_first && s->pull_first->due_ms <= now) {
        struct hth_session_pull *pull = s->pull_first;
        struct link *link = hth_map_get(&s->conns, pull->conn);

        pull_wait_remove(s, pull);
        if (!link || link->state == LINK_ENDING || pull_goes_on(s, pull, link, now))
            continue;
        pull_say_stalled(s, pull, link, now);
        hth_peer_drop_link(s, link, HEARTH_ETIMEOUT);
    }
}

void hth_pulls_move(struct hth_session *s, uint64_t late_ms)
{
    for (struct hth_session_pull *p = s->pull_first; p; p = p->next) {
        p->due_ms += late_ms;
        p->most_ms += late_ms;
    }
}

uint64_t hth_pulls_due_ms(const struct hth_session *s)
{
    return s->pull_first ? s->pull_first->due_ms : HTH_NEVER;
}
