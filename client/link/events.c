/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events that the engine sends without a request: the progress of saves, and lines of its log. The
 * thread that reads the socket handles them. An event has the token that its save has on this
 * connection; after a restart of the engine a save that is followed is recognised by its id, until
 * its new token is known. Once a save is SEALED, none of its messages has to be sent again.
 */
#include "events.h"

#include "link_parts.h"
#include <string.h>

static void event_take(struct hearth_handle *s, const struct hth_local_event *e)
{
    struct hearth_status *st = &s->status;

    s->copied |= e->level == HEARTH_COPIED || e->level >= HEARTH_PROTECTED;
    if (e->level > st->level)
        st->level = e->level;
    st->degraded = e->degraded;
    if (e->code < 0)
        st->code = e->code;
    if (e->save.epoch) {
        s->save = hth_local_save_to(e->save);
        st->step = s->save.step;
        st->attempt = s->save.attempt;
    }
    if (e->bytes)
        st->bytes = e->bytes;
    if (e->copied > st->copied)
        st->copied = e->copied;
    memcpy(st->text, e->text, sizeof(st->text));
    st->text[sizeof(st->text) - 1] = '\0';
    if (st->level >= HEARTH_PROTECTED)
        hth_fallen_forget(&s->h->link->fallen);
    if (st->code || st->level >= HEARTH_SEALED)
        hth_kept_end_locked(s);
}

static void events_unlink_locked(struct hearth_handle *s)
{
    struct hearth_handle **at = &s->h->link->handles;

    while (*at && *at != s)
        at = &(*at)->next;
    if (*at)
        *at = s->next;
    hth_kept_free_locked(s);
}

/* 1: no further event of the save matters to this rank. */
static int event_is_over(const struct hearth_handle *s)
{
    return !s->copying && (!s->committed || s->status.code || s->status.level >= HEARTH_PROTECTED);
}

void hth_event_locked(struct hearth *h, const struct hth_local_event *event, size_t len)
{
    struct hth_local_event e;

    if (len < sizeof(e))
        return;
    memcpy(&e, event, sizeof(e));
    e.text[sizeof(e.text) - 1] = '\0';
    if (!e.head.token) { /* a line of the engine's log */
        hth_line_add(&h->lines, e.level, "engine", "%s", e.text);
        return;
    }
    for (struct hearth_handle *s = h->link->handles, *next; s; s = next) {
        int followed = s->incarnation == h->link->incarnation && (s->token & HTH_LOCAL_OWN) &&
                       !hth_save_cmp(s->save, hth_local_save_to(e.save));

        next = s->next;
        if ((s->token == e.head.token && s->incarnation == h->link->incarnation) || followed) {
            s->token = e.head.token;
            event_take(s, &e);
        }
        if (s->closed && event_is_over(s))
            events_unlink_locked(s);
    }
}

void hth_events_add(struct hearth_handle *handle)
{
    struct hth_link *link = handle->h->link;
    struct hearth_handle **end = &link->handles;

    pthread_mutex_lock(&handle->h->lock);
    handle->number = ++link->numbers;
    while (*end)
        end = &(*end)->next;
    *end = handle; /* last: messages that are sent again keep its order */
    pthread_mutex_unlock(&handle->h->lock);
}

void hth_events_drop(struct hearth_handle *handle)
{
    struct hearth *h = handle->h;

    pthread_mutex_lock(&h->lock);
    handle->closed = 1;
    if (event_is_over(handle))
        events_unlink_locked(handle);
    pthread_mutex_unlock(&h->lock);
}

void hth_events_settle_locked(struct hearth_handle *s)
{
    if (s->closed && event_is_over(s))
        events_unlink_locked(s);
}
