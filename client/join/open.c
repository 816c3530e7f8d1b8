/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's membership: open and close.
 *
 *     open: options -> engine found or started -> attached -> gathered -> joined
 *     off:  none of it; every call succeeds at level OFF and nothing is kept
 */
#include "join.h"

#include "client/base/clock.h"
#include "client/device/device.h"
#include "client/device/pin.h"
#include "client/device/work.h"
#include "client/link/link.h"
#include "client/link/mapped.h"
#include "client/opts/check.h"
#include "client/opts/env.h"
#include "client/opts/settings.h"
#include "client/slots/copy.h"
#include "client/slots/shared.h"
#include "core/base/auth.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_MS 30000u /* for GPUs to copy what is enqueued, and for their driver to answer */

/* 0: a GPU may still write into slots, so they stay mapped until the process ends. */
static int member_device_rests(struct hearth *h)
{
    return !h->device || !hth_works_drain(h, hth_until_ms(DEVICE_MS));
}

static void member_device_close(struct hearth *h)
{
    if (!h->device)
        return;
    if (hth_pins_closed(hth_until_ms(DEVICE_MS)))
        hth_works_leave(hth_until_ms(DEVICE_MS));
    hth_pins_forget(h->device); /* of a view that is still open */
    free(h->device);
}

static void member_dispose(struct hearth *h, int rests)
{
    hth_shared_fini(h);
    if (h->spare)
        h->spare_free(h->spare);
    hth_link_close(h);
    hth_crew_close(h->crew);
    if (rests) {
        hth_slots_fini(h);
        member_device_close(h);
    } else {
        hth_pins_forget(h->device); /* one of them may be in a call of the driver's */
        free(h->device);
    }
    hth_lines_fini(&h->lines);
    pthread_mutex_destroy(&h->lock);
    hth_opts_drop(h);
    hth_joining_close(h);
    free(h->records);
    free(h);
}

static int member_make(
        const struct hearth_opts *opts, struct hearth **out, struct hearth_error *err)
{
    struct hearth *h = calloc(1, sizeof(*h));
    int rc;

    if (!h)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to open a job");
    pthread_mutex_init(&h->lock, NULL);
    rc = hth_opts_take(h, opts, err);
    if (!rc &&
            (hth_lines_init(&h->lines, &h->opts) || hth_joining_open(h) || hth_link_open(h) ||
                    asprintf(&h->records, "%s/%s/" HTH_RECORDS_DIR, h->opts.root, h->opts.job) < 0))
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory to open a job");
    if (!rc && !h->opts.off && !(h->crew = hth_crew_open(h->opts.copy_threads)))
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the copying threads");
    if (rc)
        member_dispose(h, 1);
    else
        *out = h;
    return rc;
}

/* A helper takes part in the epoch that its rank has joined. */
static int member_join_as_helper(struct hearth *h, struct hearth_error *err)
{
    if (!h->attached.epoch)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "a helper of rank %u came before rank %u itself has joined: open there first",
                h->opts.rank, h->opts.rank);
    h->epoch = h->attached.epoch;
    h->nonce = h->attached.nonce;
    hth_set_recovered(h, (int)h->attached.recovered);
    h->joined = h->attached.opts;
    h->ranks_a_node = h->opts.world;
    return HEARTH_OK;
}

static int member_attach(struct hearth *h, struct hearth_error *err)
{
    struct hearth_error why = { 0 };
    int rc;

    pthread_mutex_lock(&h->lock);
    rc = hth_connected_locked(h, hth_until_ms(h->opts.open_ms), &why);
    pthread_mutex_unlock(&h->lock);
    if (rc && !h->opts.helper)
        hth_join_absent(h, &why);
    if (rc && err)
        *err = why;
    return rc;
}

static int member_join(struct hearth *h, struct hearth_error *err)
{
    int rc;

    if ((rc = hth_auth_init(err)) || (rc = member_attach(h, err)))
        return rc;
    return h->opts.helper ? member_join_as_helper(h, err) : hth_join(h, err);
}

static void open_say_strays(struct hearth *h)
{
    char text[HTH_STRAYS][HTH_STRAY_TEXT];
    unsigned count = hth_strays(text);

    for (unsigned i = 0; i < count && i < HTH_STRAYS; i++)
        hth_line_add(&h->lines, HEARTH_LOG_WARN, "environment", "%s", text[i]);
    if (count > HTH_STRAYS)
        hth_line_add(&h->lines, HEARTH_LOG_WARN, "environment",
                "nothing reads %u more variables that begin with HEARTH_", count - HTH_STRAYS);
}

int hearth_open(const struct hearth_opts *opts, struct hearth **out_h, struct hearth_error *err)
{
    struct hearth *h = NULL;
    int rc;

    if (!out_h)
        return hth_fail(err, HEARTH_EINVAL, 0, "out_h is NULL: there is no place for the result");
    rc = member_make(opts, &h, err);
    if (!h)
        return hth_while(err, rc, "open");
    open_say_strays(h);
    if (h->opts.off)
        hth_line_add(&h->lines, HEARTH_LOG_WARN, "off",
                "job %s rank %u: Hearth is switched off (off = 1): nothing is saved or recovered",
                h->opts.job, h->opts.rank);
    else if (!(rc = member_join(h, err)))
        hth_settings_say(h);
    hth_lines_drain(&h->lines);
    if (rc) {
        hth_while(err, rc, "open job '%s' as rank %u", h->opts.job, h->opts.rank);
        member_dispose(h, 1);
        return rc;
    }
    *out_h = h;
    return HEARTH_OK;
}

/* An engine inside this process ends with its last rank, so the rank waits until the engine has
 * answered. For any other engine the rank sends CLOSE and does not wait. */
static void member_leave(struct hearth *h, enum hearth_leave leave)
{
    struct hth_local_close m = { .leave = (uint32_t)leave };
    struct hth_ask tell = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_CLOSE,
        .fd = -1,
        .wait_ms = 10000,
        .what = "close" };

    if (h->opts.start == HEARTH_START_IN_PROCESS)
        hth_tell(h, &tell, NULL);
    else
        hth_post(h, &tell);
}

void hearth_close(struct hearth *h, enum hearth_leave leave)
{
    int rests;

    if (!h || hth_enter(h, NULL))
        return;
    rests = member_device_rests(h); /* what was committed is handed over then */
    if (hth_is_connected(h))
        member_leave(h, leave);
    member_dispose(h, rests);
}
