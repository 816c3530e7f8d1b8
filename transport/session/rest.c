/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that are not used are closed, so that a job of thousands of nodes, each of which
 * talks to any other now and then, keeps few of them.
 *
 *   who finds it idle:  OPEN ─ASK→ ASKED ─yes→ dropped       neither sends on it meanwhile: what comes
 *                         ^──────────no─┘                    up waits, and goes over a new one after a
 *   the other:          OPEN ─ASK→ AGREED (says yes) ─down→  yes, so that nothing is lost on its way
 *
 * Both may ask at once: then both close. A side that pulls, has given a grant, watches the peer, or
 * has used the connection lately answers no. If no answer comes, that counts as a no for the side
 * that asked. If a peer asked and does not close the connection, it is closed here.
 *
 * A connection whose job key is gone (`stale`) is closed the same way, used or watched, when
 * nothing is under way on it; if there is something to send or watch, a new one is made at once.
 * While the other side still has that key it answers no and is asked again.
 *
 * A connection of an hour (`renew_ms`) is stale too: the new one has keys of another exchange, so
 * that an attacker who learns the keys of one can use them for an hour. The side that dialled asks;
 * the other side agrees from nine tenths of the time on, and asks itself when it is over by a
 * tenth. One that is never quiet is cut ten minutes later.
 *
 * The same frees a place when the limit of connections is reached: the least recently used one
 * first. If there are two with the same peer, the second is closed although it is used, because one
 * is enough.
 */
#include "session_parts.h"

#define RENEW_MS    200u    /* between two questions about a stale one */
#define AGED_CUT_MS 600000u /* that an old one may be busy */
#define LATELY_MS   1000u   /* what was used since then is not idle, however few places there are */

enum { REST_ASK = 1, REST_YES = 2, REST_NO = 3 };

/* 1: the peer has another one, which is used, so that this one is superfluous. */
static int rest_has_other(const struct link *link)
{
    for (const struct link *l = link->peer->open; l; l = l->open_next)
        if (l != link && l->rest == REST_NONE)
            return 1;
    return 0;
}

/* Of two that came of both sides' dialling at once, the one that both can do without: the higher
 * index dialled it. */
static int rest_is_second(const struct hth_session *s, const struct link *link)
{
    return !link->outside && rest_has_other(link) &&
           link->dialled == (s->epoch->self > link->peer->node);
}

static int rest_is_quiet(const struct link *link)
{
    return link->state == LINK_OPEN && link->peer && !link->busy && !link->peer->queue;
}

static int rest_may(const struct hth_session *s, const struct link *link, uint64_t now)
{
    return rest_is_quiet(link) &&
           (link->stale || ((now >= link->used_ms + LATELY_MS || rest_is_second(s, link)) &&
                                   (rest_has_other(link) || !hth_peer_is_watched(s, link->peer))));
}

/* When it is `tenths` of the time old after which connections are made anew. */
static uint64_t rest_age_ms(const struct hth_session *s, const struct link *link, unsigned tenths)
{
    return link->opened_ms + (uint64_t)s->opts.renew_ms * tenths / 10;
}

static int rest_agrees(const struct hth_session *s, const struct link *link, uint64_t now)
{
    return rest_may(s, link, now) || (rest_is_quiet(link) && now >= rest_age_ms(s, link, 9));
}

static void rest_say(struct hth_session *s, struct link *link, unsigned char what)
{
    (void)hth_link_send(s, link, HTH_MSG_REST, &what, 1); /* not sent: the deadline ends it */
}

static void rest_begin(struct hth_session *s, struct link *link, enum link_rest rest)
{
    link->rest = rest;
    link->rest_ms = hth_session_now(s) + s->opts.hello_ms;
    hth_session_expect(s, link->rest_ms);
    rest_say(s, link, rest == REST_ASKED ? REST_ASK : REST_YES);
}

static void rest_end(struct hth_session *s, struct link *link)
{
    link->rest = REST_NONE;
    link->used_ms = hth_session_now(s);
    hth_peer_flush(s, link->peer);
}

void hth_rest_message(struct hth_session *s, struct link *link, const struct hth_frame *frame)
{
    unsigned char what = frame->body_len == 1 ? frame->body[0] : 0;

    if (what == REST_ASK && (link->rest == REST_ASKED || rest_agrees(s, link, hth_session_now(s))))
        rest_begin(s, link, REST_AGREED);
    else if (what == REST_ASK)
        rest_say(s, link, REST_NO);
    else if (what == REST_YES && link->rest != REST_NONE)
        hth_peer_drop_link(s, link, HEARTH_ECANCELED);
    else if (what == REST_NO && link->rest == REST_ASKED)
        rest_end(s, link);
}

void hth_rest_heard(struct hth_session *s, struct link *link)
{
    /* the peer uses it again: this node's agreement came late, or never */
    if (link->rest == REST_AGREED)
        rest_end(s, link);
}

/* Not at once while the peer lacks it. 1: it has ended. */
static int rest_renew(struct hth_session *s, struct link *link, uint64_t now)
{
    if (now >= link->cut_ms) {
        hth_peer_drop_link(s, link, hth_link_key(s, link) ? HEARTH_ECANCELED : HEARTH_EAUTH);
        return 1;
    }
    if (link->rest == REST_NONE && now >= link->renew_ms && rest_may(s, link, now)) {
        link->renew_ms = now + RENEW_MS;
        rest_begin(s, link, REST_ASKED);
    }
    hth_session_expect(s, now + RENEW_MS);
    return 0;
}

static void rest_look_age(const struct hth_session *s, struct link *link, uint64_t now)
{
    if (link->state != LINK_OPEN || link->stale ||
            now < rest_age_ms(s, link, link->dialled ? 10 : 11))
        return;
    link->stale = 1;
    link->renew_ms = now;
    link->cut_ms = now + AGED_CUT_MS;
}

static void rest_tick_link(struct hth_session *s, struct link *link, uint64_t now)
{
    rest_look_age(s, link, now);
    if (link->state != LINK_OPEN || (link->stale && rest_renew(s, link, now)))
        return;
    if (link->rest == REST_NONE) {
        if (now >= link->used_ms + s->opts.idle_ms && rest_may(s, link, now))
            rest_begin(s, link, REST_ASKED);
    } else if (now < link->rest_ms) {
        hth_session_expect(s, link->rest_ms);
    } else if (link->rest == REST_ASKED) {
        rest_end(s, link);
    } else {
        hth_peer_drop_link(s, link, HEARTH_ETIMEOUT);
    }
}

/* Lets as many connections rest as dials wait for a place, less those that are ending already. */
static void rest_make_room(struct hth_session *s, uint64_t now)
{
    uint32_t wanted = s->crowded;
    struct link *oldest;

    s->crowded = 0;
    for (struct link *l = s->links; l && wanted; l = l->next)
        wanted -= l->state == LINK_OPEN && l->rest != REST_NONE;
    for (; wanted; wanted--) {
        oldest = NULL;
        for (struct link *l = s->links; l; l = l->next)
            if (l->rest == REST_NONE && rest_may(s, l, now) &&
                    (!oldest || l->used_ms < oldest->used_ms))
                oldest = l;
        if (!oldest)
            return;
        rest_begin(s, oldest, REST_ASKED);
    }
}

void hth_rest_tick(struct hth_session *s, uint64_t now)
{
    for (struct link *l = s->links; l; l = l->next)
        rest_tick_link(s, l, now);
    if (s->crowded)
        rest_make_room(s, now);
}
