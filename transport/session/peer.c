/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one member at a session.
 *
 *   idle ──something to say──> trying ──a link is OPEN──> up ──dead_ms without a sign──> idle
 *    ^                           │ connect_ms, or refused  │                 (down is reported)
 *    └────── down is reported ───┘                         ├─ all links gone: dial again, by the
 *    ^                                                     │  lower index or who has words
 *    └────────────── nothing is reported ──────────────────┴─ the last link was closed as idle
 *
 * Dials happen in tick() only, at most one at a time, 20 ms to 1 s apart. A peer outside of the
 * epoch is dialled by the side that visits it until it is up. When it is given up or its link is
 * gone it is over, and forgotten at the next tick.
 */
#include "session_parts.h"

#include <stdio.h>
#include <stdlib.h>

#define BACKOFF_FIRST_MS 20u
#define BACKOFF_LAST_MS  1000u
#define LOOK_MS          1000u  /* between looks at one that strangers claim to be */
#define CROWD_SAY_MS     60000u /* between two words of no place for a connection */

/* Waiting for a connection. */
struct message {
    struct message *next;
    uint16_t type;
    uint32_t len;
    unsigned char body[];
};

struct peer *hth_peer_find(const struct hth_session *s, uint32_t node)
{
    return hth_map_get(&s->nodes, (uint64_t)node + 1);
}

struct peer *hth_peer_get(struct hth_session *s, uint32_t node)
{
    struct peer *peer = hth_peer_find(s, node);

    if (peer)
        return peer;
    peer = calloc(1, sizeof(*peer));
    if (!peer || hth_map_put(&s->nodes, (uint64_t)node + 1, peer)) {
        free(peer);
        return NULL;
    }
    peer->node = node;
    peer->queue_end = &peer->queue;
    peer->give_up_ms = HTH_NEVER;
    *s->peers_end = peer;
    s->peers_end = &peer->next;
    return peer;
}

/* An index that is still in use is passed over. */
static uint32_t peer_outside_index(struct hth_session *s)
{
    uint32_t node;

    do
        node = HTH_OUTSIDE + s->outside++ % (HTH_NODE_NONE - HTH_OUTSIDE);
    while (hth_peer_find(s, node));
    return node;
}

struct peer *hth_peer_outside(struct hth_session *s, const struct hth_member *at)
{
    struct hth_member *copy = malloc(sizeof(*copy));
    struct peer *peer = copy ? hth_peer_get(s, peer_outside_index(s)) : NULL;

    if (!peer) {
        free(copy);
        return NULL;
    }
    *copy = *at;
    peer->at = copy;
    return peer;
}

const struct hth_member *hth_peer_member(const struct hth_session *s, const struct peer *peer)
{
    return peer->at ? peer->at : &s->epoch->member[peer->node];
}

static void peer_queue_clear(struct peer *peer)
{
    struct message *m;

    while ((m = peer->queue)) {
        peer->queue = m->next;
        free(m);
    }
    peer->queue_end = &peer->queue;
    peer->queued = 0;
}

static void peer_free(struct hth_session *s, struct peer **at)
{
    struct peer *peer = *at;

    *at = peer->next;
    if (!*at)
        s->peers_end = at;
    hth_map_take(&s->nodes, (uint64_t)peer->node + 1);
    peer_queue_clear(peer);
    free(peer->at);
    free(peer);
}

void hth_peers_leave_epoch(struct hth_session *s)
{
    for (struct peer **at = &s->peers; *at;)
        if ((*at)->at)
            at = &(*at)->next;
        else
            peer_free(s, at);
}

void hth_peers_free(struct hth_session *s)
{
    while (s->peers)
        peer_free(s, &s->peers);
    hth_map_fini(&s->nodes);
}

static void peer_look_soon(struct hth_session *s, struct peer *peer)
{
    hth_session_expect(s, hth_peer_due_ms(s, peer));
}

static void peer_is_over(struct hth_session *s, struct peer *peer)
{
    peer->over = 1;
    hth_session_expect(s, hth_session_now(s));
}

void hth_peer_leave(struct hth_session *s, struct peer *peer)
{
    struct link *link;

    peer->left = 1;
    peer_is_over(s, peer);
    while ((link = peer->open ? peer->open : peer->dial))
        hth_peer_drop_link(s, link, HEARTH_ECANCELED);
}

/* The owner may visit other engines in the call, and join an epoch. */
void hth_peers_sweep(struct hth_session *s)
{
    struct peer **at = &s->peers;
    char why[sizeof(s->peers->why)];
    uint32_t node;
    int left;

    while (*at) {
        if (!(*at)->over) {
            at = &(*at)->next;
            continue;
        }
        node = (*at)->node;
        left = (*at)->left;
        memcpy(why, (*at)->why, sizeof(why));
        peer_free(s, at);
        if (!left) {
            s->events.on_peer_down(s->events.self, node, HEARTH_EPEER, why);
            at = &s->peers;
        }
    }
}

int hth_peer_queue(
        struct hth_session *s, struct peer *peer, uint16_t type, const void *body, size_t len)
{
    struct message *m;

    if (peer->queued >= s->opts.queue_max)
        return HEARTH_EBUSY;
    m = malloc(sizeof(*m) + len);
    if (!m)
        return HEARTH_ENOMEM;
    m->next = NULL;
    m->type = type;
    m->len = (uint32_t)len;
    if (len)
        memcpy(m->body, body, len);
    *peer->queue_end = m;
    peer->queue_end = &m->next;
    peer->queued++;
    if (!peer->up && peer->give_up_ms == HTH_NEVER) {
        peer->give_up_ms = hth_session_now(s) + s->opts.connect_ms;
        peer->why[0] = '\0';
        peer->elsewhere = 0;
    }
    peer_look_soon(s, peer);
    return HEARTH_OK;
}

struct link *hth_peer_out(const struct peer *peer)
{
    struct link *link = peer->open;

    while (link && link->rest != REST_NONE)
        link = link->open_next;
    return link;
}

int hth_peer_is_watched(const struct hth_session *s, const struct peer *peer)
{
    return !peer->at && (!s->events.is_watched || s->events.is_watched(s->events.self, peer->node));
}

void hth_peer_flush(struct hth_session *s, struct peer *peer)
{
    struct link *link = hth_peer_out(peer);
    struct message *m;

    while (link && (m = peer->queue) && !hth_link_send(s, link, m->type, m->body, m->len)) {
        peer->queue = m->next;
        if (!peer->queue)
            peer->queue_end = &peer->queue;
        peer->queued--;
        free(m);
    }
}

/* The peer has dialled again, so on its side the connections that it dialled before have ended. */
static void peer_replace_links(struct hth_session *s, struct peer *peer)
{
    struct link *link = peer->open, *next;

    for (; link; link = next) {
        next = link->open_next;
        if (!link->dialled)
            hth_peer_drop_link(s, link, HEARTH_EPEER);
    }
}

void hth_peer_opened(struct hth_session *s, struct peer *peer, struct link *link)
{
    struct link **end = &peer->open;
    uint64_t now = hth_session_now(s);

    if (peer->dial == link)
        peer->dial = NULL;
    if (!link->dialled)
        peer_replace_links(s, peer);
    while (*end)
        end = &(*end)->open_next;
    *end = link;
    link->open_next = NULL;
    link->peer = peer;
    link->alive_ms = link->used_ms = now;
    peer->heard_ms = peer->alive_ms = now;
    peer->give_up_ms = HTH_NEVER;
    peer->look = peer->refused = 0;
    peer->backoff_ms = 0;
    peer->dial_ms = 0;
    hth_session_expect(s, now + s->opts.heartbeat_ms);
    hth_peer_flush(s, peer);
    if (peer->up)
        return;
    peer->up = 1;
    if (peer->at) /* an engine outside of the epoch: its owner sees it by its messages */
        return;
    hth_say(&s->log, peer->rested ? HEARTH_LOG_DEBUG : HEARTH_LOG_INFO, "peer-up",
            "node %" PRIu32 " (%s)", peer->node, s->epoch->member[peer->node].node);
    peer->rested = 0;
    s->events.on_peer_up(s->events.self, peer->node);
}

static void peer_back_off(struct hth_session *s, struct peer *peer)
{
    peer->dial_ms = hth_session_now(s) + peer->backoff_ms;
    peer->backoff_ms = peer->backoff_ms ? 2 * peer->backoff_ms : BACKOFF_FIRST_MS;
    if (peer->backoff_ms > BACKOFF_LAST_MS)
        peer->backoff_ms = BACKOFF_LAST_MS;
}

/* Both sides had ended the use of its last link. If messages were queued meanwhile, or the peer is
 * watched or outside of the epoch, it is dialled again at once. */
static void peer_rest(struct hth_session *s, struct peer *peer)
{
    peer->dial_ms = 0;
    peer->backoff_ms = 0;
    if (peer->at || peer->queue || hth_peer_is_watched(s, peer))
        return;
    peer->up = 0;
    peer->rested = 1;
    hth_say(&s->log, HEARTH_LOG_DEBUG, "connection-rests",
            "node %" PRIu32 " (%s): idle, and closed until there is something to send", peer->node,
            s->epoch->member[peer->node].node);
}

void hth_peer_lost(struct hth_session *s, struct link *link, const char *text)
{
    struct peer *peer = link->peer;
    int was_open = 0;

    link->peer = NULL;
    if (!peer)
        return;
    for (struct link **at = &peer->open; *at; at = &(*at)->open_next)
        if (*at == link) {
            *at = link->open_next;
            was_open = 1;
            break;
        }
    if (peer->dial == link)
        peer->dial = NULL;
    if (peer->bulk == link)
        peer->bulk = NULL;
    snprintf(peer->why, sizeof(peer->why), "%s", text);
    peer->elsewhere = 0;
    if (was_open && peer->open)
        hth_peer_flush(s, peer);
    if (!peer->open && was_open && link->rest != REST_NONE)
        peer_rest(s, peer);
    else if (!peer->open)
        peer_back_off(s, peer);
    if (peer->at && was_open)
        peer_is_over(s, peer);
    peer_look_soon(s, peer);
}

void hth_peer_drop_link(struct hth_session *s, struct link *link, int why)
{
    if (link->state == LINK_ENDING)
        return;
    link->state = LINK_ENDING;
    link->why = why;
    s->transport->ops->drop(s->transport, link->conn);
    hth_peer_lost(s, link, hearth_strerror(why));
}

/* A peer that refuses this node is dialled again at growing intervals: its answer will hardly
 * change. */
static void peer_give_up(
        struct hth_session *s, struct peer *peer, int code, const char *what, int refused)
{
    char text[HEARTH_ERROR_TEXT];
    struct link *link;

    if (peer->at) {
        while ((link = peer->open ? peer->open : peer->dial))
            hth_peer_drop_link(s, link, code);
        snprintf(peer->why, sizeof(peer->why), "%.150s", what);
        peer_is_over(s, peer);
        return;
    }
    snprintf(text, sizeof(text), "node %" PRIu32 " (%s): %s", peer->node,
            s->epoch->member[peer->node].node, what);
    peer->up = 0;
    peer->give_up_ms = HTH_NEVER;
    peer->look = 0;
    peer->rested = 0;
    peer->refused = refused;
    peer_queue_clear(peer);
    while ((link = peer->open ? peer->open : peer->dial))
        hth_peer_drop_link(s, link, code);
    if (!refused)
        peer->backoff_ms = peer->dial_ms = 0;
    hth_say(&s->log, HEARTH_LOG_WARN, "peer-down", "%s", text);
    s->events.on_peer_down(s->events.self, peer->node, code, text);
}

void hth_peer_refused(struct hth_session *s, struct peer *peer, int code, const char *text)
{
    if (peer->open || (!peer->up && peer->give_up_ms == HTH_NEVER))
        return;
    peer_give_up(s, peer, code, text, 1);
}

/* From when on a connection is wanted. The lower index dials for the sake of watching alone; the
 * other one, too, before it judges: the lower may have no place for a connection. */
static uint64_t peer_wants_link_ms(const struct hth_session *s, const struct peer *peer)
{
    if (peer->open || peer->dial || peer->over)
        return HTH_NEVER;
    if (peer->at)
        return peer->at->addr_len ? peer->dial_ms : HTH_NEVER;
    if (peer->queue || peer->look || (peer->up && s->epoch->self < peer->node))
        return peer->dial_ms;
    if (peer->up && peer->alive_ms + s->opts.dead_ms / 2 > peer->dial_ms)
        return peer->alive_ms + s->opts.dead_ms / 2;
    return peer->up ? peer->dial_ms : HTH_NEVER;
}

void hth_peer_look(struct hth_session *s, struct peer *peer)
{
    uint64_t now = hth_session_now(s);

    if (peer->up || peer->refused || peer->give_up_ms != HTH_NEVER ||
            now < peer->looked_ms + LOOK_MS)
        return;
    peer->look = 1;
    peer->looked_ms = now;
    peer->give_up_ms = now + s->opts.connect_ms;
    peer->why[0] = '\0';
    peer->elsewhere = 0;
    peer_look_soon(s, peer);
}

/* The look got no answer. No owner had asked for this peer, so on_peer_down() does not run. */
static void peer_end_look(struct hth_session *s, struct peer *peer)
{
    peer->look = 0;
    peer->give_up_ms = HTH_NEVER;
    if (peer->dial)
        hth_peer_drop_link(s, peer->dial, HEARTH_ETIMEOUT);
}

void hth_peer_crowded_out(struct hth_session *s, struct peer *peer, const char *text)
{
    uint64_t now = hth_session_now(s);

    s->crowded++;
    if (peer->give_up_ms != HTH_NEVER)
        peer->give_up_ms = now + s->opts.connect_ms;
    if (peer->up)
        peer->alive_ms = now;
    if (s->crowd_said_ms && now < s->crowd_said_ms + CROWD_SAY_MS)
        return;
    s->crowd_said_ms = now;
    hth_say(&s->log, HEARTH_LOG_WARN, "connections-full",
            "node %" PRIu32 " (%s) is connected later: %s; it is not lost, and idle connections "
            "make way",
            peer->node, hth_peer_member(s, peer)->node, text);
}

static int peer_connect(struct hth_session *s, struct peer *peer, hth_conn *out)
{
    const struct hth_member *m = hth_peer_member(s, peer);
    struct hearth_error err;
    int rc;

    if (hth_links_are_full(s))
        rc = hth_fail(
                &err, HEARTH_EBUSY, 0, "%u connections stand, and no more may", s->opts.links_max);
    else
        rc = s->transport->ops->connect(s->transport, m->addr, m->addr_len, out, &err);
    if (rc) {
        snprintf(peer->why, sizeof(peer->why), "%.150s", err.text);
        peer->elsewhere = 0;
    }
    if (rc == HEARTH_EBUSY || rc == HEARTH_ENOMEM)
        hth_peer_crowded_out(s, peer, err.text);
    return rc;
}

static void peer_dial(struct hth_session *s, struct peer *peer)
{
    hth_conn conn = 0;

    if (peer_connect(s, peer, &conn)) {
        peer_back_off(s, peer);
        return;
    }
    peer->dial = hth_link_new(s, conn, LINK_DIALLING);
    if (!peer->dial) {
        s->transport->ops->drop(s->transport, conn);
        peer_back_off(s, peer);
        return;
    }
    peer->dial->peer = peer;
    peer->dial->node = peer->node;
    peer->dial->outside = peer->at != NULL;
}

void hth_peer_tick(struct hth_session *s, struct peer *peer, uint64_t now)
{
    char what[HEARTH_ERROR_TEXT];

    if (peer->over)
        return;
    if (peer->up && now >= peer->alive_ms + s->opts.dead_ms) {
        snprintf(what, sizeof(what), "no sign of life for %" PRIu64 " ms%s%s", now - peer->alive_ms,
                peer->open ? "" : "; its connection broke: ", peer->open ? "" : peer->why);
        peer_give_up(s, peer, peer->open ? HEARTH_ETIMEOUT : HEARTH_EPEER, what, 0);
        return;
    }
    if (!peer->up && now >= peer->give_up_ms && peer->look && !peer->queue) {
        peer_end_look(s, peer);
        return;
    }
    if (!peer->up && now >= peer->give_up_ms) {
        snprintf(what, sizeof(what),
                "not reached in %u ms (%s); is its engine running, and its address open to us?",
                s->opts.connect_ms, peer->why[0] ? peer->why : "no answer");
        peer_give_up(s, peer, peer->elsewhere ? HEARTH_ESTATE : HEARTH_EPEER, what, 0);
        return;
    }
    if (now >= peer_wants_link_ms(s, peer))
        peer_dial(s, peer);
}

uint64_t hth_peer_due_ms(const struct hth_session *s, const struct peer *peer)
{
    uint64_t due = peer->up ? peer->alive_ms + s->opts.dead_ms : peer->give_up_ms;
    uint64_t dial = peer_wants_link_ms(s, peer);

    if (peer->over)
        return 0;
    return dial < due ? dial : due;
}
