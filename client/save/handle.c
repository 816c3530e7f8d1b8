/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save that was handed over. Its engine sends an event whenever the save's state changes. The
 * thread that reads the socket enters events into the handle, so a call on a handle only reads its
 * fields.
 *
 *     WRITTEN -> SEALED -> COPIED -> COMPLETE -> PROTECTED       a code in between: it failed
 */
#include "handle.h"

#include "client/base/clock.h"
#include "client/base/limits.h"
#include "client/base/text.h"
#include "client/link/events.h"
#include "client/link/link.h"
#include "core/base/options.h"
#include "core/base/opts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hearth_handle *hth_handle_open(struct hearth *h)
{
    struct hearth_handle *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->h = h;
    s->status.struct_size = sizeof(s->status);
    hth_events_add(s);
    return s;
}

int hth_handle_ranks(struct hearth_handle *s, const struct hth_ranks *ranks)
{
    s->ranks = hth_ranks_copy(ranks);
    return s->ranks || !ranks->runs ? HEARTH_OK : HEARTH_ENOMEM;
}

int hth_handle_lent(struct hearth_handle *s, uint64_t token, uint64_t incarnation,
        struct hth_local_save save, uint64_t step, const struct hth_kept_object *object, int ahead)
{
    int rc;

    pthread_mutex_lock(&s->h->lock);
    s->token = token;
    s->incarnation = incarnation;
    s->save = hth_local_save_to(save);
    s->step = save.epoch ? save.step : step;
    s->status.step = s->step;
    s->status.attempt = save.attempt;
    s->ahead = ahead;
    rc = hth_kept_object_locked(s, object);
    if (!rc)
        hth_say_locked(s->h);
    pthread_mutex_unlock(&s->h->lock);
    return rc;
}

int hth_handle_more(struct hearth_handle *s, const struct hth_kept_object *object)
{
    int rc;

    pthread_mutex_lock(&s->h->lock);
    rc = hth_kept_object_locked(s, object);
    pthread_mutex_unlock(&s->h->lock);
    return rc;
}

void hth_handle_named(struct hearth_handle *s, struct hth_local_save save)
{
    pthread_mutex_lock(&s->h->lock);
    s->save = hth_local_save_to(save);
    s->step = s->status.step = save.step;
    s->status.attempt = save.attempt;
    pthread_mutex_unlock(&s->h->lock);
}

void hth_handle_set_step(struct hearth_handle *s, uint64_t step)
{
    pthread_mutex_lock(&s->h->lock);
    s->step = s->status.step = step;
    pthread_mutex_unlock(&s->h->lock);
}

static int handle_failed(const struct hearth_status *st, struct hearth_error *err)
{
    return hth_fail(err, st->code, 0, "step %" PRIu64 " (attempt %u%s): %s", st->step,
            hth_attempt_count(st->attempt), hth_attempt_of(st->attempt),
            st->text[0] ? st->text : hearth_strerror(st->code));
}

/* Sends messages that are due, as far as the socket accepts them, and handles the packets that have
 * come. Returns the error of a save that has failed. */
static int handle_say_locked(struct hearth_handle *s, struct hearth_error *err)
{
    hth_hear_locked(s->h);
    return s->status.code ? handle_failed(&s->status, err) : HEARTH_OK;
}

void hth_handle_written_chunks(struct hearth_handle *s, uint32_t index, uint32_t chunks)
{
    struct hth_local_written_chunks m = { .index = index, .chunks = chunks };
    struct hth_ask hint = { .msg = &m, .len = sizeof(m), .type = HTH_LOCAL_WRITTEN, .fd = -1 };

    pthread_mutex_lock(&s->h->lock);
    hint.token = s->token;
    if (s->incarnation == hth_incarnation_locked(s->h))
        hth_hint_locked(s->h, &hint);
    pthread_mutex_unlock(&s->h->lock);
}

void hth_handle_sealed(struct hearth_handle *s, uint32_t index, const struct hth_written *object)
{
    pthread_mutex_lock(&s->h->lock);
    if (index < s->objects) {
        struct hth_kept_object *o = &s->object[index];

        o->data_len = object->data_len;
        o->items_len = object->items_len;
        o->items = object->items;
        o->summed = object->summed;
        o->sealed = 1;
    }
    pthread_mutex_unlock(&s->h->lock);
}

int hth_handle_seal(struct hearth_handle *s, struct hearth_error *err)
{
    int rc;

    pthread_mutex_lock(&s->h->lock);
    rc = handle_say_locked(s, err);
    pthread_mutex_unlock(&s->h->lock);
    hth_lines_drain(&s->h->lines);
    return rc;
}

int hth_handle_common(
        struct hearth_handle *s, struct hth_kept_common *common, struct hearth_error *err)
{
    int rc;

    pthread_mutex_lock(&s->h->lock);
    hth_kept_common_locked(s, common);
    rc = handle_say_locked(s, err);
    pthread_mutex_unlock(&s->h->lock);
    hth_lines_drain(&s->h->lines);
    return rc;
}

int hth_handle_commit(struct hearth_handle *s, struct hearth_error *err)
{
    int rc;

    pthread_mutex_lock(&s->h->lock);
    hth_hear_locked(s->h); /* one that has failed is not committed */
    rc = s->status.code ? handle_failed(&s->status, err) : HEARTH_OK;
    if (!rc) {
        s->committed = 1;
        if (!s->copying && s->status.level < HEARTH_WRITTEN)
            s->status.level = HEARTH_WRITTEN;
        hth_say_locked(s->h);
    }
    pthread_mutex_unlock(&s->h->lock);
    hth_lines_drain(&s->h->lines);
    return rc;
}

static void handle_abort_locked(struct hearth_handle *s)
{
    if (s->token && s->incarnation == hth_incarnation_locked(s->h) && hth_is_connected(s->h))
        hth_give_locked(s->h, HTH_LOCAL_ABORT, s->token);
    s->token = 0;
}

void hth_handle_abort(struct hearth_handle *s)
{
    struct hearth *h = s->h;

    pthread_mutex_lock(&h->lock);
    s->aborted = s->copying; /* the engine would lend slots that a GPU still writes */
    if (!s->aborted)
        handle_abort_locked(s);
    pthread_mutex_unlock(&h->lock);
}

void hth_handle_given(struct hearth_handle *s)
{
    pthread_mutex_lock(&s->h->lock);
    s->token = 0;
    hth_kept_end_locked(s);
    pthread_mutex_unlock(&s->h->lock);
}

void hth_handle_copies(struct hearth_handle *s, struct hth_work *work)
{
    pthread_mutex_lock(&s->h->lock);
    s->work = work;
    s->copying = 1;
    pthread_mutex_unlock(&s->h->lock);
}

void hth_handle_copied(struct hearth_handle *s, uint32_t pinned, const struct hearth_error *err)
{
    struct hearth *h = s->h;

    pthread_mutex_lock(&h->lock);
    s->copying = 0;
    s->pinned = pinned;
    if (err && !s->status.code) {
        s->status.code = HEARTH_EFAILED;
        snprintf(s->status.text, sizeof(s->status.text), "%.255s", err->text);
        hth_kept_end_locked(s);
    }
    if (s->status.code || s->aborted)
        handle_abort_locked(s);
    else if (s->committed && s->status.level < HEARTH_WRITTEN)
        s->status.level = HEARTH_WRITTEN;
    hth_events_settle_locked(s); /* it may be gone from here on */
    hth_hear_locked(h);
    pthread_mutex_unlock(&h->lock);
}

void hth_handle_written(struct hearth_handle *s, uint64_t bytes)
{
    pthread_mutex_lock(&s->h->lock); /* events write it too, on whatever thread reads them */
    if (s->h->opts.off)
        s->status.level = HEARTH_OFF;
    if (!s->status.bytes)
        s->status.bytes = bytes;
    pthread_mutex_unlock(&s->h->lock);
}

void hearth_handle_close(struct hearth_handle *handle)
{
    if (!handle || hth_enter(handle->h, NULL))
        return;
    hth_events_drop(handle);
}

#define COPYING "GPU memory is still being copied into the slot"

static int handle_too_late(
        const struct hearth_handle *s, uint32_t level, uint32_t ms, struct hearth_error *err)
{
    const struct hearth_status *st = &s->status;
    const char *text = s->copying && !st->text[0] ? COPYING : st->text;

    return hth_fail(err, HEARTH_ETIMEOUT, 0,
            "step %" PRIu64 " (attempt %u%s) is %s and not %s after %u ms%s%s", st->step,
            hth_attempt_count(st->attempt), hth_attempt_of(st->attempt), hth_level_name(st->level),
            hth_level_name(level), ms, text[0] ? ": " : "", text);
}

static int handle_has_reached(const struct hearth_handle *s, uint32_t level)
{
    if (s->status.level == HEARTH_OFF)
        return 1;
    return level == HEARTH_COPIED ? s->copied : s->status.level >= level;
}

#define COPYING_MS 2u /* no packet comes when bytes from a GPU have arrived */

static uint64_t handle_soon(uint64_t until)
{
    uint64_t soon = hth_until_ms(COPYING_MS);

    return soon < until ? soon : until;
}

static int handle_wait_locked(
        struct hearth_handle *s, uint32_t level, uint32_t ms, struct hearth_error *err)
{
    uint64_t until = hth_until_ms(ms);
    int rc;

    for (;;) {
        if (s->status.code)
            return handle_failed(&s->status, err);
        if (handle_has_reached(s, level))
            return HEARTH_OK;
        if (hth_mono_ms() >= until)
            return handle_too_late(s, level, ms, err);
        if ((rc = hth_connected_locked(s->h, until, err)))
            return hth_while(err, rc, "wait for step %" PRIu64, s->status.step);
        hth_hear_one_locked(s->h, s->copying ? handle_soon(until) : until);
    }
}

int hearth_wait(struct hearth_handle *handle, enum hearth_level level, uint32_t deadline_ms,
        struct hearth_error *err)
{
    int rc;

    if (!handle)
        return hth_fail(err, HEARTH_EINVAL, 0, "the handle is NULL: commit gives one");
    if ((rc = hth_enter(handle->h, err)))
        return rc;
    if (!deadline_ms || deadline_ms > HTH_DEADLINE_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "deadline_ms is %u: there is no waiting for ever, give 1 to %u", deadline_ms,
                HTH_DEADLINE_MAX);
    if (level > HEARTH_PROTECTED)
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
                "level %d is not kept by this version: PROTECTED is the highest", (int)level);
    pthread_mutex_lock(&handle->h->lock);
    rc = handle_wait_locked(handle, level, deadline_ms, err);
    pthread_mutex_unlock(&handle->h->lock);
    hth_lines_drain(&handle->h->lines);
    return rc;
}

/* The state is unknown until a caller waits: hearth_wait() looks for the engine again. */
static void handle_engine_gone(const struct hearth *h, struct hearth_status *st)
{
    st->code = HEARTH_EUNKNOWN;
    snprintf(st->text, sizeof(st->text),
            "this node's engine (%s) is gone: hearth_wait() looks for it", h->engine);
}

int hearth_test(struct hearth_handle *handle, struct hearth_status *out, struct hearth_error *err)
{
    struct hearth_status now;
    struct hearth *h;
    int rc;

    if (!handle)
        return hth_fail(err, HEARTH_EINVAL, 0, "the handle is NULL: commit gives one");
    h = handle->h;
    if ((rc = hth_enter(h, err)))
        return rc;
    pthread_mutex_lock(&h->lock);
    hth_hear_locked(h);
    now = handle->status;
    if (handle->copying && !now.text[0])
        snprintf(now.text, sizeof(now.text), "%s", COPYING);
    if (!h->opts.off && !now.code && now.level < HEARTH_PROTECTED && !hth_is_connected(h))
        handle_engine_gone(h, &now);
    pthread_mutex_unlock(&h->lock);
    hth_lines_drain(&h->lines);
    return hth_give(out, &now, sizeof(now), err);
}

int hearth_handle_id(
        struct hearth_handle *handle, struct hearth_save_id *out, struct hearth_error *err)
{
    int rc;

    if (!handle || !out)
        return hth_fail(err, HEARTH_EINVAL, 0, "the handle or the place for the id is NULL");
    if ((rc = hth_enter(handle->h, err)))
        return rc;
    pthread_mutex_lock(&handle->h->lock);
    *out = (struct hearth_save_id){ handle->save.epoch, handle->save.nonce, handle->save.step,
        handle->save.attempt, 0 };
    pthread_mutex_unlock(&handle->h->lock);
    return HEARTH_OK;
}

int hearth_cancel(struct hearth_handle *handle, struct hearth_error *err)
{
    int rc;

    if (!handle)
        return hth_fail(err, HEARTH_EINVAL, 0, "the handle is NULL: commit gives one");
    if ((rc = hth_enter(handle->h, err)) || handle->h->opts.off)
        return rc;
    pthread_mutex_lock(&handle->h->lock);
    handle->cancelled = 1;
    hth_hear_locked(handle->h);
    pthread_mutex_unlock(&handle->h->lock);
    return HEARTH_OK;
}
