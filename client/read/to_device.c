/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What copies to GPUs read: a mapping of this node's, which they hold until they are done, also
 * where the call returns and the checkpoint is closed before; or a window, whose bytes are in the
 * ring's buffers before it moves.
 */
#include "to_device.h"

#include "client/base/clock.h"
#include "client/slots/shared.h"
#include "window.h"
#include <stdlib.h>

#define STOP_MS 2000u /* for copies that are late already to end; mappings are held beyond */

/* The thread that follows copies frees it. */
struct hth_to_held {
    struct hearth *h;
    uint64_t step;
    int returned; /* the call has, without an error */
    uint32_t count;
    struct hth_to_source {
        struct hth_shared *shared;
        const struct hth_pin *pin; /* NULL: none */
    } of[];                        /* [sources of the checkpoint] */
};

void hth_to_begin(struct hth_to *to, struct hearth_checkpoint *c)
{
    *to = (struct hth_to){ .c = c };
    hth_devices_find(&to->devices);
}

int hth_to_where(struct hth_to *to, const struct hth_memory *m, struct hth_gpu **out,
        struct hearth_error *err)
{
    struct hth_device_at at;
    int rc = hth_devices_at(&to->devices, m, &at, err);

    *out = NULL;
    return rc > 0 ? hth_devices_use(&to->devices, to->c->h, m, &at, out, err) : rc;
}

static void to_done(void *arg, const struct hearth_error *err)
{
    struct hth_to_held *held = arg;

    for (uint32_t i = 0; i < held->count; i++)
        hth_shared_put(held->of[i].shared);
    if (err && held->returned)
        hth_line_add(&held->h->lines, HEARTH_LOG_WARN, "load",
                "load from step %" PRIu64 ": a copy failed after the call had returned: %s",
                held->step, err->text);
    free(held);
}

static int to_open(struct hth_to *to, struct hearth_error *err)
{
    struct hth_work_owner owner = {
        .owner = to->c->h, .way = HTH_TO_DEVICE, .land = hth_devices_land, .done = to_done
    };
    struct hth_to_held *held;
    int rc;

    if (to->work)
        return HEARTH_OK;
    if (!(held = calloc(1, sizeof(*held) + to->c->sources * sizeof(held->of[0]))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for copies of GPU memory");
    held->h = to->c->h;
    held->step = to->c->save.step;
    owner.arg = held;
    if ((rc = hth_work_open(&to->work, &owner, err))) {
        free(held);
        return rc;
    }
    to->held = held;
    return HEARTH_OK;
}

/* Another program's file is not pinned: its pages may go at any time. */
static const struct hth_pin *to_hold(struct hth_to_held *held, const struct hth_source *s)
{
    uint32_t i = held->count;

    while (i && held->of[i - 1].shared != s->shared) /* mostly the last one */
        i--;
    if (!i) {
        hth_shared_hold(s->shared);
        held->of[held->count].shared = s->shared;
        held->of[held->count].pin = s->theirs ? NULL : hth_shared_pin(s->shared);
        i = ++held->count;
    }
    return held->of[i - 1].pin;
}

int hth_to_note(struct hth_to *to, const struct hth_source *s, const struct hth_memory *m,
        struct hth_gpu *gpu, const void *src, const int64_t *src_strides, struct hearth_error *err)
{
    const struct hth_pin *pin = NULL;
    size_t first = to->noted.count;
    int rc = to_open(to, err);

    if (rc)
        return rc;
    if (s->shared)
        pin = to_hold(to->held, s);
    else
        to->far = 1;
    rc = hth_device_note(&to->noted, m, gpu, src, src_strides, err);
    for (size_t i = first; pin && i < to->noted.count; i++)
        to->noted.piece[i].pin = pin;
    return rc;
}

static uint64_t to_until(const struct hth_to *to)
{
    return hth_until_ms(to->c->h->opts.save_ms);
}

int hth_to_run(struct hth_to *to, struct hearth_error *err)
{
    int rc;

    if (!to->noted.count)
        return HEARTH_OK;
    rc = hth_work_add(to->work, to->c->stream, to->noted.piece, to->noted.count, err);
    to->noted.count = 0;
    if (!rc && to->far) {
        rc = hth_work_taken(to->work, to_until(to), err);
        to->late = rc == HEARTH_ETIMEOUT;
    }
    to->far = 0;
    return rc;
}

int hth_to_ready(struct hth_to *to, const struct hth_source *s, uint64_t off, uint64_t len,
        struct hearth_error *err)
{
    return to->far && !hth_source_holds(s, off, len) ? hth_to_run(to, err) : HEARTH_OK;
}

int hth_to_end(struct hth_to *to, int rc, struct hearth_error *err)
{
    if (!rc)
        rc = hth_to_run(to, err);
    if (!rc && to->work) {
        rc = hth_work_fence(to->work, to->c->stream, to_until(to), err);
        to->late = rc == HEARTH_ETIMEOUT;
    }
    free(to->noted.piece);
    if (!to->work)
        return rc;
    to->held->returned = !rc;
    if (rc || !to->c->stream) /* the targets of a call that has failed may be freed now */
        hth_work_stop(to->work, to->late ? hth_until_ms(STOP_MS) : to_until(to));
    else
        hth_work_end(to->work, 0);
    hth_work_put(to->work);
    return rc;
}
