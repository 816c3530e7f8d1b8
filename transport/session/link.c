/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of a session: sealed messages out, checked messages in. What fails its mac,
 * comes from another epoch or speaks another version costs the connection; what was heard
 * before (a sequence number that does not rise) is dropped in silence.
 */
#include "session_parts.h"

#include <stdlib.h>

static int is_half_open(const struct link *link)
{
    return !link->dialled && (link->state == LINK_ACCEPTED || link->state == LINK_ANSWERED ||
                                     link->state == LINK_REFUSED);
}

struct link *hth_link_new(struct hth_session *s, hth_conn conn, enum link_state state)
{
    struct link *link = calloc(1, sizeof(*link));

    if (!link || hth_map_put(&s->conns, conn, link)) {
        free(link);
        return NULL;
    }
    link->conn = conn;
    link->state = state;
    link->dialled = state == LINK_DIALLING;
    link->node = HTH_NODE_NONE;
    link->version = HTH_VERSION_LOW;
    link->deadline_ms = hth_session_now(s) + s->opts.hello_ms;
    hth_session_expect(s, link->deadline_ms);
    link->prev = s->links_last;
    *(link->prev ? &link->prev->next : &s->links) = link;
    s->links_last = link;
    return link;
}

void hth_link_free(struct hth_session *s, struct link *link)
{
    hth_map_take(&s->conns, link->conn);
    *(link->prev ? &link->prev->next : &s->links) = link->next;
    *(link->next ? &link->next->prev : &s->links_last) = link->prev;
    hth_wipe(link->key_out, sizeof(link->key_out));
    hth_wipe(link->key_in, sizeof(link->key_in));
    free(link);
}

static void detach(struct hth_session *s, struct link *link, const char *text)
{
    struct peer *peer = link->peer;

    link->peer = NULL;
    if (peer)
        hth_peer_lost(s, peer, link, text);
}

void hth_link_drop(struct hth_session *s, struct link *link, int why)
{
    if (link->state == LINK_ENDING)
        return;
    link->state = LINK_ENDING;
    link->why = why;
    s->transport->ops->drop(s->transport, link->conn);
    detach(s, link, hearth_strerror(why));
}

int hth_link_send(
        struct hth_session *s, struct link *link, uint16_t type, const void *body, size_t len)
{
    const unsigned char *key = link->state == LINK_OPEN ? link->key_out : s->opts.key;
    unsigned char out[HTH_MESSAGE_MAX];
    struct hth_frame frame = {
        .version = link->state == LINK_OPEN ? link->version : HTH_VERSION_LOW,
        .type = type,
        .body_len = (uint32_t)len,
        .epoch = s->epoch ? s->epoch->epoch : 0,
        .nonce = s->epoch ? s->epoch->nonce : 0,
        .seq = link->seq_out + 1,
        .body = body,
    };
    int rc = s->transport->ops->send(
            s->transport, link->conn, out, hth_frame_encode(&frame, key, out));

    if (!rc) {
        link->seq_out++;
        link->sent_ms = hth_session_now(s);
    }
    return rc;
}

void hth_link_tick(struct hth_session *s, struct link *link, uint64_t now)
{
    if (link->state == LINK_ENDING)
        return;
    if (link->state != LINK_OPEN) {
        if (now >= link->deadline_ms)
            hth_link_drop(s, link, HEARTH_ETIMEOUT);
        else
            hth_session_expect(s, link->deadline_ms);
        return;
    }
    if (now >= link->alive_ms + s->opts.dead_ms) {
        hth_link_drop(s, link, HEARTH_ETIMEOUT);
        return;
    }
    if (now >= link->sent_ms + s->opts.heartbeat_ms) {
        (void)hth_link_send(s, link, HTH_MSG_PING, NULL, 0); /* a full one is busy, not silent */
        link->sent_ms = now;
    }
    hth_session_expect(s, link->sent_ms + s->opts.heartbeat_ms);
    hth_session_expect(s, link->alive_ms + s->opts.dead_ms);
}

static void on_accept(void *self, hth_conn conn)
{
    struct hth_session *s = self;
    uint32_t half_open = 0;
    struct link *oldest = NULL;

    for (struct link *l = s->links; l; l = l->next)
        if (is_half_open(l) && !half_open++)
            oldest = l;
    if (half_open >= HTH_HALF_OPEN)
        hth_link_drop(s, oldest, HEARTH_ECANCELED);
    if (!hth_link_new(s, conn, LINK_ACCEPTED))
        s->transport->ops->drop(s->transport, conn);
}

static void on_up(void *self, hth_conn conn)
{
    struct hth_session *s = self;
    struct link *link = hth_map_get(&s->conns, conn);

    if (link && link->state == LINK_DIALLING)
        hth_handshake_greet(s, link);
}

static void on_down(void *self, hth_conn conn, int code, const char *detail)
{
    struct hth_session *s = self;
    struct link *link = hth_map_get(&s->conns, conn);

    if (!link)
        return;
    if (link->state != LINK_ENDING)
        detach(s, link, detail ? detail : hearth_strerror(code));
    hth_link_free(s, link);
}

static void on_writable(void *self, hth_conn conn)
{
    struct hth_session *s = self;
    struct link *link = hth_map_get(&s->conns, conn);

    if (link && link->peer && link->state == LINK_OPEN)
        hth_peer_flush(s, link->peer);
}

static void misbehaved(struct hth_session *s, struct link *link, const char *what)
{
    hth_say(&s->log, HEARTH_LOG_WARN, "connection-cut", "node %" PRIu32 ": %s", link->node, what);
    hth_link_drop(s, link, HEARTH_EPROTO);
}

static void open_message(struct hth_session *s, struct link *link, const struct hth_frame *frame,
        const void *bytes, size_t len)
{
    struct peer *peer = link->peer;
    uint64_t now = hth_session_now(s);

    if (!hth_frame_check(bytes, len, link->key_in)) {
        misbehaved(s, link, "a message that the session's key did not seal");
        return;
    }
    if ((!s->opts.no_fence &&
                (frame->epoch != s->epoch->epoch || frame->nonce != s->epoch->nonce)) ||
            frame->version != link->version) {
        misbehaved(s, link, "a message of another epoch or version");
        return;
    }
    if (frame->seq <= link->seq_in)
        return;
    link->seq_in = frame->seq;
    link->alive_ms = peer->alive_ms = peer->heard_ms = now;
    if (frame->type <= HTH_MSG_REFUSE)
        return;
    peer->bulk = link;
    s->events.on_message(s->events.self, peer->node, frame->type, frame->body, frame->body_len);
}

static void on_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    struct hth_session *s = self;
    struct link *link = hth_map_get(&s->conns, conn);
    struct hearth_error err;
    struct hth_frame frame;

    if (!link || link->state == LINK_ENDING || link->state == LINK_REFUSED)
        return;
    if (hth_frame_decode(&frame, bytes, len, &err))
        misbehaved(s, link, err.text);
    else if (link->state == LINK_OPEN)
        open_message(s, link, &frame, bytes, len);
    else
        hth_handshake_message(s, link, &frame, bytes, len);
}

struct hth_transport_events hth_link_events(struct hth_session *s)
{
    return (struct hth_transport_events){
        .self = s,
        .on_accept = on_accept,
        .on_up = on_up,
        .on_down = on_down,
        .on_message = on_message,
        .on_writable = on_writable,
        .on_pull = hth_pulls_on_pull,
    };
}
