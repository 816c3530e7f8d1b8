/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save handed over. Its engine sends an event whenever the save moves; they are taken in by
 * whoever reads the socket, so a handle only looks at its own fields.
 *
 *     WRITTEN -> SEALED -> COPIED -> COMPLETE -> PROTECTED       a code in between: it failed
 */
#include "save.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

const char *hth_level_name(uint32_t level)
{
    static const struct {
        uint32_t level;
        const char *name;
    } names[] = { { HEARTH_PROTECTED, "PROTECTED" }, { HEARTH_COMPLETE, "COMPLETE" },
        { HEARTH_COPIED, "COPIED" }, { HEARTH_SEALED, "SEALED" }, { HEARTH_WRITTEN, "WRITTEN" },
        { HEARTH_OFF, "OFF" } };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (level >= names[i].level)
            return names[i].name;
    return "BEGUN";
}

struct hearth_handle *hth_handle_open(struct hearth *h)
{
    struct hearth_handle *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->h = h;
    s->status.struct_size = sizeof(s->status);
    pthread_mutex_lock(&h->lock);
    s->next = h->handles;
    h->handles = s;
    pthread_mutex_unlock(&h->lock);
    return s;
}

void hth_handle_took(struct hearth_handle *handle)
{
    pthread_mutex_lock(&handle->h->lock);
    handle->objects++;
    pthread_mutex_unlock(&handle->h->lock);
}

void hearth_handle_close(struct hearth_handle *handle)
{
    struct hearth_handle **at;

    if (!handle || hth_enter(handle->h, NULL))
        return;
    pthread_mutex_lock(&handle->h->lock);
    at = &handle->h->handles;
    while (*at && *at != handle)
        at = &(*at)->next;
    if (*at)
        *at = handle->next;
    pthread_mutex_unlock(&handle->h->lock);
    free(handle);
}

static int failed(const struct hearth_status *st, struct hearth_error *err)
{
    return hth_fail(err, st->code, 0, "step %" PRIu64 " (attempt %u): %s", st->step, st->attempt,
            st->text[0] ? st->text : hearth_strerror(st->code));
}

static int too_late(
        const struct hearth_status *st, uint32_t level, uint32_t ms, struct hearth_error *err)
{
    return hth_fail(err, HEARTH_ETIMEOUT, 0,
            "step %" PRIu64 " (attempt %u) is %s and not %s after %u ms%s%s", st->step, st->attempt,
            hth_level_name(st->level), hth_level_name(level), ms, st->text[0] ? ": " : "",
            st->text);
}

static int has_reached(const struct hearth_handle *s, uint32_t level)
{
    if (s->status.level == HEARTH_OFF)
        return 1;
    return level == HEARTH_COPIED ? s->copied : s->status.level >= level;
}

static int wait_locked(
        struct hearth_handle *s, uint32_t level, uint32_t ms, struct hearth_error *err)
{
    uint64_t until = hth_until_ms(ms);
    int rc;

    for (;;) {
        if (s->status.code)
            return failed(&s->status, err);
        if (has_reached(s, level))
            return HEARTH_OK;
        if (hth_mono_ms() >= until)
            return too_late(&s->status, level, ms, err);
        if ((rc = hth_connected_locked(s->h, until, err)))
            return hth_while(err, rc, "wait for step %" PRIu64, s->status.step);
        hth_pump_locked(s->h, until);
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
    rc = wait_locked(handle, level, deadline_ms, err);
    pthread_mutex_unlock(&handle->h->lock);
    hth_lines_drain(&handle->h->lines);
    return rc;
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
    while (h->fd >= 0 && !h->reading &&
            poll(&(struct pollfd){ .fd = h->fd, .events = POLLIN }, 1, 0) > 0)
        hth_pump_locked(h, 0);
    now = handle->status;
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
    struct hth_local_head m, a;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_CANCEL,
        .want = HTH_LOCAL_OK,
        .fd = -1,
        .answer = &a,
        .answer_len = sizeof(a),
        .wait_ms = HTH_REQUEST_MS,
        .what = "cancel a save" };
    int rc;

    if (!handle)
        return hth_fail(err, HEARTH_EINVAL, 0, "the handle is NULL: commit gives one");
    if ((rc = hth_enter(handle->h, err)) || handle->h->opts.off)
        return rc;
    pthread_mutex_lock(&handle->h->lock);
    rc = hth_connected_locked(handle->h, hth_until_ms(ask.wait_ms), err);
    ask.token = handle->token;
    ask.incarnation = handle->incarnation;
    pthread_mutex_unlock(&handle->h->lock);
    return rc ? rc : hth_ask(handle->h, &ask, err);
}
