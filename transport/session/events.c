/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of the transport, at a session. Messages are checked before they are delivered: a message
 * that fails its mac, or is of another epoch or version, ends the connection; one that came before
 * (a sequence number that does not rise) is dropped in silence.
 */
#include "session_parts.h"

#define STRANGERS_MAX \
    64u /* accepted and nothing proved, or as many as the epoch has members; more: the oldest goes */

static int link_has_proved_nothing(const struct hth_session *s, const struct link *link)
{
    return !link->dialled && hth_link_is_stranger(link) &&
           !(s->transport->ops->caps(s->transport) & HTH_CAP_PROVES);
}

/* All members may connect at once when a job starts again, and each is a stranger until its hello
 * has been received. */
static uint32_t strangers_most(const struct hth_session *s)
{
    uint32_t members = s->epoch ? s->epoch->nodes : 0;

    if (members > s->opts.links_max)
        members = s->opts.links_max;
    return members > STRANGERS_MAX ? members : STRANGERS_MAX;
}

static void session_on_accept(void *self, hth_conn conn)
{
    struct hth_session *s = self;
    struct link *oldest = NULL;
    uint32_t strangers = 0;

    for (struct link *l = s->links; l; l = l->next)
        if (link_has_proved_nothing(s, l) && !strangers++)
            oldest = l;
    if (strangers >= strangers_most(s))
        hth_peer_drop_link(s, oldest, HEARTH_ECANCELED);
    if (hth_links_are_full(s)) {
        s->crowded++;
        hth_session_expect(s, hth_session_now(s));
    }
    if (!hth_link_new(s, conn, LINK_ACCEPTED))
        s->transport->ops->drop(s->transport, conn);
}

static void session_on_up(void *self, hth_conn conn)
{
    struct hth_session *s = self;
    struct link *link = hth_map_get(&s->conns, conn);

    if (link && link->state == LINK_DIALLING)
        hth_handshake_greet(s, link);
}

static void session_on_down(void *self, hth_conn conn, int code, const char *detail)
{
    struct hth_session *s = self;
    struct link *link = hth_map_get(&s->conns, conn);
    struct peer *peer;

    if (!link)
        return;
    peer = link->peer;
    if (link->state != LINK_ENDING)
        hth_peer_lost(s, link, detail ? detail : hearth_strerror(code));
    if (peer && (code == HEARTH_EBUSY || code == HEARTH_ENOMEM))
        hth_peer_crowded_out(s, peer, peer->why);
    hth_link_free(s, link);
}

static void session_on_writable(void *self, hth_conn conn)
{
    struct hth_session *s = self;
    struct link *link = hth_map_get(&s->conns, conn);

    if (link && link->peer && link->state == LINK_OPEN)
        hth_peer_flush(s, link->peer);
}

static void link_misbehaved(struct hth_session *s, struct link *link, const char *what)
{
    hth_say(&s->log, HEARTH_LOG_WARN, "connection-cut", "node %" PRIu32 ": %s", link->node, what);
    hth_peer_drop_link(s, link, HEARTH_EPROTO);
}

static int link_is_of_epoch(
        const struct hth_session *s, const struct link *link, const struct hth_frame *frame)
{
    if (link->outside)
        return !frame->epoch && !frame->nonce;
    return s->opts.no_fence || (frame->epoch == s->epoch->epoch && frame->nonce == s->epoch->nonce);
}

static void link_open_message(struct hth_session *s, struct link *link,
        const struct hth_frame *frame, const void *bytes, size_t len)
{
    struct peer *peer = link->peer;
    uint64_t now = hth_session_now(s);

    if (!hth_frame_check(bytes, len, link->key_in)) {
        link_misbehaved(s, link, "a message that the session's key did not seal");
        return;
    }
    if (!link_is_of_epoch(s, link, frame) || frame->version != link->version) {
        link_misbehaved(s, link, "a message of another epoch or version");
        return;
    }
    if (frame->seq <= link->seq_in)
        return;
    link->seq_in = frame->seq;
    link->alive_ms = peer->alive_ms = peer->heard_ms = now;
    if (frame->type == HTH_MSG_REST)
        hth_rest_message(s, link, frame);
    if (frame->type < HTH_MSG_UP)
        return;
    link->used_ms = now;
    hth_rest_heard(s, link);
    peer->bulk = link;
    s->messages++;
    s->events.on_message(s->events.self, peer->node, frame->type, frame->body, frame->body_len);
}

static void session_on_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    struct hth_session *s = self;
    struct link *link = hth_map_get(&s->conns, conn);
    struct hearth_error err;
    struct hth_frame frame;

    if (!link || link->state == LINK_ENDING || link->state == LINK_REFUSED)
        return;
    if (hth_frame_decode(&frame, bytes, len, &err))
        link_misbehaved(s, link, err.text);
    else if (link->state == LINK_OPEN)
        link_open_message(s, link, &frame, bytes, len);
    else
        hth_handshake_message(s, link, &frame, bytes, len);
}

struct hth_transport_events hth_session_events_for(struct hth_session *s)
{
    return (struct hth_transport_events){
        .self = s,
        .on_accept = session_on_accept,
        .on_up = session_on_up,
        .on_down = session_on_down,
        .on_message = session_on_message,
        .on_writable = session_on_writable,
        .on_pull = hth_pulls_on_pull,
    };
}
