/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front of a session: what its owner calls, and the one tick that judges all peers. If a tick
 * comes much later than it was due, while this thread did not work, then this machine stood still,
 * not its peers. Every deadline moves by that time and no further, so a thread that is blocked
 * again and again still finds a silent peer. A thread that was late because it had much to do
 * judges its peers as usual: their messages of that time were read before the tick.
 */
#include "session_parts.h"

#include "core/base/auto.h"
#include "core/base/options.h"
#include <stdlib.h>

HTH_AUTO_DEFINE(hth_session_close, struct hth_session)

static void session_default(uint32_t *value, uint32_t fallback)
{
    if (!*value)
        *value = fallback;
}

#define CUT_MS 30000u /* that a stale connection may be busy */

static const unsigned char zeros[HTH_KEY];
static const struct hth_key no_key = { .bytes = zeros };

int hth_session_open(const struct hth_session_opts *opts, const struct hth_session_events *events,
        const struct hth_clock *clock, const struct hth_random *random, const struct hth_log *log,
        struct hth_session **out, struct hearth_error *err)
{
    HTH_AUTO(hth_session_close) struct hth_session *s = calloc(1, sizeof(*s));
    int rc;

    if (!s)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a session");
    rc = hth_auth_init(err);
    if (rc)
        return rc;
    s->opts = *opts;
    session_default(&s->opts.heartbeat_ms, hth_option_none(HTH_AT_heartbeat_ms));
    session_default(&s->opts.dead_ms, hth_option_none(HTH_AT_dead_ms));
    session_default(&s->opts.hello_ms, 2000);
    session_default(&s->opts.connect_ms, 5000);
    session_default(&s->opts.stall_ms, hth_option_none(HTH_AT_stall_ms));
    session_default(&s->opts.queue_max, 1024);
    session_default(&s->opts.idle_ms, 60000);
    session_default(&s->opts.renew_ms, 3600000);
    session_default(&s->opts.links_max, 1024);
    s->links_asked = s->opts.links_max;
    if (!s->opts.version_low || !s->opts.version_high) {
        s->opts.version_low = HTH_VERSION_LOW;
        s->opts.version_high = HTH_VERSION_HIGH;
    }
    if (!s->opts.key)
        s->opts.key = &no_key;
    s->events = *events;
    s->clock = *clock;
    s->random = *random;
    if (log)
        s->log = *log;
    s->peers_end = &s->peers;
    s->expect_ms = HTH_NEVER;
    *out = s;
    s = NULL;
    return HEARTH_OK;
}

void hth_session_times(
        struct hth_session *s, uint32_t heartbeat_ms, uint32_t dead_ms, uint32_t stall_ms)
{
    if (heartbeat_ms)
        s->opts.heartbeat_ms = heartbeat_ms;
    if (dead_ms)
        s->opts.dead_ms = dead_ms;
    if (stall_ms)
        s->opts.stall_ms = stall_ms;
    if (s->transport)
        s->transport->dead_ms = s->opts.dead_ms;
}

void hth_session_attach(struct hth_session *s, struct hth_transport *transport)
{
    /* A quarter stays for peers that connect: half-open, without a hello yet. */
    uint32_t most = transport->conns_max / 4 * 3;

    s->transport = transport;
    transport->dead_ms = s->opts.dead_ms;
    s->opts.links_max = most && s->links_asked > most ? most : s->links_asked;
}

void hth_session_join(struct hth_session *s, const struct hth_epoch *epoch)
{
    for (struct link *l = s->links; l; l = l->next) {
        if (l->outside)
            continue;
        l->peer = NULL;
        /* A link on which no hello has come yet stays: its hello may be for this epoch. */
        if (l->state != LINK_ACCEPTED)
            hth_peer_drop_link(s, l, HEARTH_ECANCELED);
    }
    hth_peers_leave_epoch(s);
    s->epoch = epoch;
    s->joins++;
    if (s->transport && s->transport->ops->members)
        s->transport->ops->members(s->transport, epoch->member, epoch->nodes);
}

uint32_t hth_session_rekeyed(struct hth_session *s)
{
    uint64_t now = hth_session_now(s);
    uint32_t stale = 0;

    for (struct link *l = s->links; l; l = l->next) {
        if (l->state == LINK_ENDING || hth_link_key(s, l) ||
                (l->stale && l->cut_ms <= now + CUT_MS))
            continue;
        if (l->state != LINK_OPEN) {
            hth_peer_drop_link(s, l, HEARTH_EAUTH);
            continue;
        }
        l->stale = 1;
        l->renew_ms = now;
        l->cut_ms = now + CUT_MS;
        stale++;
        hth_session_expect(s, now);
    }
    return stale;
}

int hth_session_visit(struct hth_session *s, const struct hth_member *at, uint32_t *out_node)
{
    struct peer *peer = s->transport ? hth_peer_outside(s, at) : NULL;

    if (!peer)
        return s->transport ? HEARTH_ENOMEM : HEARTH_ESTATE;
    peer->give_up_ms = hth_session_now(s) + s->opts.connect_ms;
    hth_session_expect(s, hth_session_now(s));
    *out_node = peer->node;
    return HEARTH_OK;
}

void hth_session_leave(struct hth_session *s, uint32_t node)
{
    struct peer *peer = node >= HTH_OUTSIDE ? hth_peer_find(s, node) : NULL;

    if (peer)
        hth_peer_leave(s, peer);
}

static int session_may_send(const struct hth_session *s, uint32_t node)
{
    const struct peer *peer;

    if (!s->transport)
        return 0;
    if (node < HTH_OUTSIDE)
        return s->epoch && node < s->epoch->nodes && node != s->epoch->self;
    peer = hth_peer_find(s, node);
    return peer && !peer->over;
}

int hth_session_send(
        struct hth_session *s, uint32_t node, uint16_t type, const void *body, size_t len)
{
    struct peer *peer;
    struct link *out;

    if (!session_may_send(s, node) || len > HTH_BODY_MAX || type < HTH_MSG_UP)
        return HEARTH_EINVAL;
    peer = hth_peer_get(s, node);
    if (!peer)
        return HEARTH_ENOMEM;
    out = peer->queue ? NULL : hth_peer_out(peer);
    if (out && !hth_link_send(s, out, type, body, len))
        return HEARTH_OK;
    return hth_peer_queue(s, peer, type, body, len);
}

void hth_session_versions(const struct hth_session *s, uint32_t *low, uint32_t *high)
{
    *low = s->opts.version_low;
    *high = s->opts.version_high;
}

int hth_session_is_up(const struct hth_session *s, uint32_t node)
{
    struct peer *peer = hth_peer_find(s, node);

    return peer && peer->up;
}

int hth_session_is_connected(const struct hth_session *s, uint32_t node)
{
    const struct peer *peer = hth_peer_find(s, node);

    return peer && !peer->queue && hth_peer_out(peer);
}

uint8_t hth_session_version(const struct hth_session *s, uint32_t node)
{
    struct peer *peer = hth_peer_find(s, node);
    const struct link *out = peer ? hth_peer_out(peer) : NULL;

    return out ? out->version : 0;
}

uint64_t hth_session_messages(const struct hth_session *s)
{
    return s->messages;
}

uint64_t hth_session_heard_ms(const struct hth_session *s, uint32_t node)
{
    struct peer *peer = hth_peer_find(s, node);

    return peer ? peer->heard_ms : 0;
}

uint32_t hth_session_connections(const struct hth_session *s)
{
    return (uint32_t)s->conns.len;
}

int hth_session_reg(struct hth_session *s, void *base, uint64_t len, struct hth_region **out,
        struct hearth_error *err)
{
    return s->transport->ops->reg(s->transport, base, len, out, err);
}

int hth_session_dereg(struct hth_session *s, struct hth_region *region)
{
    return s->transport->ops->dereg(s->transport, region);
}

int hth_session_grant(struct hth_session *s, uint32_t node, struct hth_region *region, uint64_t off,
        uint64_t len, struct hth_grant *out, struct hearth_error *err)
{
    struct peer *peer = hth_peer_find(s, node);
    struct link *link = peer ? hth_peer_out(peer) : NULL;
    int rc;

    if (!link)
        return hth_fail(err, HEARTH_EPEER, 0, "node %" PRIu32 " is not connected", node);
    out->conn = link->conn;
    rc = s->transport->ops->grant(
            s->transport, region, off, len, out->conn, out->desc, &out->desc_len, err);
    if (!rc)
        link->busy++;
    return rc;
}

int hth_session_granted(const struct hth_session *s, uint32_t node, const struct hth_grant *grant)
{
    const struct peer *peer = hth_peer_find(s, node);

    const struct link *link = peer ? hth_peer_out(peer) : NULL;

    return link && link->conn == grant->conn;
}

static struct link *session_grant_link(const struct hth_session *s, const struct hth_grant *grant)
{
    struct link *link = hth_map_get(&s->conns, grant->conn);

    return link && link->state != LINK_ENDING ? link : NULL;
}

int hth_session_stands(const struct hth_session *s, const struct hth_grant *grant)
{
    return session_grant_link(s, grant) != NULL;
}

void hth_session_ungrant(struct hth_session *s, const struct hth_grant *grant)
{
    struct link *link = hth_map_get(&s->conns, grant->conn);

    s->transport->ops->revoke(s->transport, grant->desc, grant->desc_len);
    if (!link)
        return;
    link->busy--;
    link->used_ms = hth_session_now(s);
}

int hth_session_revokes(const struct hth_session *s)
{
    return (s->transport->ops->caps(s->transport) & HTH_CAP_REVOKES) != 0;
}

void hth_session_revoke(struct hth_session *s, const struct hth_grant *grant)
{
    struct link *link = session_grant_link(s, grant);

    hth_session_ungrant(s, grant);
    if (!link || hth_session_revokes(s))
        return;
    hth_say(&s->log, HEARTH_LOG_WARN, "grant-cut",
            "node %" PRIu32 " has not given a grant back, and its connection is cut", link->node);
    hth_peer_drop_link(s, link, HEARTH_ECANCELED);
}

void hth_session_drop(struct hth_session *s, uint32_t node)
{
    struct peer *peer = hth_peer_find(s, node);
    struct link *link;

    while (peer && (link = peer->open ? peer->open : peer->dial))
        hth_peer_drop_link(s, link, HEARTH_ECANCELED);
}

/* Silence during that time does not count. A sign of life since then is newer, and stays. */
static void session_move_alive(
        const struct hth_session *s, uint64_t *alive_ms, uint64_t now, uint64_t late_ms)
{
    int is_older = now - *alive_ms > late_ms && !s->opts.all_alive;

    *alive_ms = is_older ? *alive_ms + late_ms : now;
}

/* This machine stood still, so no peer is judged by the time that has passed: all deadlines
 * move. */
static void session_rearm(struct hth_session *s, uint64_t now, uint64_t late_ms)
{
    hth_say(&s->log, HEARTH_LOG_WARN, "paused",
            "this machine stood still for %" PRIu64 " ms; all deadlines move by that", late_ms);
    for (struct link *l = s->links; l; l = l->next) {
        session_move_alive(s, &l->alive_ms, now, late_ms);
        l->deadline_ms += late_ms;
        l->rest_ms += late_ms;
    }
    for (struct peer *p = s->peers; p; p = p->next) {
        session_move_alive(s, &p->alive_ms, now, late_ms);
        if (p->give_up_ms != HTH_NEVER)
            p->give_up_ms += late_ms;
    }
    hth_pulls_move(s, late_ms);
}

#define MARK_MS 10u /* between two readings of the CPU time, which are system calls */

/* CPU time that this thread has used since the last tick, or a little longer. */
static uint64_t session_busy_ms(struct hth_session *s, uint64_t now)
{
    uint64_t used, busy;

    if (!s->opts.busy_ms || now < s->mark_ms + MARK_MS)
        return 0;
    used = s->opts.busy_ms();
    busy = used - s->mark_busy_ms;
    s->mark_ms = now;
    s->mark_busy_ms = used;
    return busy;
}

static void session_look_late(struct hth_session *s, uint64_t now, uint64_t busy_ms)
{
    uint64_t late_ms = now - s->expect_ms;
    uint64_t still_ms = late_ms > busy_ms ? late_ms - busy_ms : 0;

    if (late_ms <= s->opts.dead_ms / 3)
        return;
    if (still_ms <= s->opts.dead_ms / 3) {
        s->late_busy++;
        hth_say(&s->log, HEARTH_LOG_DEBUG, "busy", "%" PRIu64 " ms late, and at work meanwhile",
                late_ms);
        return;
    }
    s->late_still++;
    session_rearm(s, now, still_ms);
}

void hth_session_late(const struct hth_session *s, uint32_t *out_still, uint32_t *out_busy)
{
    *out_still = s->late_still;
    *out_busy = s->late_busy;
}

static void session_tick_link(struct hth_session *s, struct link *link, uint64_t now)
{
    if (link->state == LINK_ENDING)
        return;
    if (link->state != LINK_OPEN) {
        if (now >= link->deadline_ms)
            hth_peer_drop_link(s, link, HEARTH_ETIMEOUT);
        else
            hth_session_expect(s, link->deadline_ms);
        return;
    }
    if (now >= link->alive_ms + s->opts.dead_ms) {
        hth_peer_drop_link(s, link, HEARTH_ETIMEOUT);
        return;
    }
    if (now >= link->sent_ms + s->opts.heartbeat_ms) {
        (void)hth_link_send(s, link, HTH_MSG_PING, NULL, 0); /* a full one is busy, not silent */
        link->sent_ms = now;
    }
    hth_session_expect(s, link->sent_ms + s->opts.heartbeat_ms);
    hth_session_expect(s, link->alive_ms + s->opts.dead_ms);
}

void hth_session_tick(struct hth_session *s)
{
    uint64_t now = hth_session_now(s), joins = s->joins, busy_ms = session_busy_ms(s, now);

    if (now < s->expect_ms)
        return;
    session_look_late(s, now, busy_ms);
    s->expect_ms = HTH_NEVER;
    hth_pulls_tick(s, now);
    for (struct peer *p = s->peers; p; p = p->next) {
        hth_peer_tick(s, p, now);
        if (s->joins != joins) { /* its owner has joined another epoch meanwhile */
            s->expect_ms = now;
            return;
        }
    }
    for (struct link *l = s->links; l; l = l->next)
        session_tick_link(s, l, now);
    hth_rest_tick(s, now);
    hth_peers_sweep(s);
    for (struct peer *p = s->peers; p; p = p->next)
        hth_session_expect(s, hth_peer_due_ms(s, p));
    hth_session_expect(s, hth_pulls_due_ms(s));
}

uint64_t hth_session_due_ms(const struct hth_session *s)
{
    return s->expect_ms;
}

void hth_session_close(struct hth_session *s)
{
    if (!s)
        return;
    while (s->links)
        hth_link_free(s, s->links);
    hth_peers_free(s);
    hth_map_fini(&s->conns);
    hth_map_fini(&s->pulls);
    free(s);
}
