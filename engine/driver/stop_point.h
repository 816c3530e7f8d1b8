/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings by which a test controls an engine, in its environment, in builds with HEARTH_POINTS
 * alone:
 *
 *     HEARTH_STOP_POINT=NAME[:N]   stop at the N-th arrival at this point
 *     HEARTH_STOP_OPENS=PATH       read this file there; print errno or 0 behind the pid
 *     HEARTH_FAIL_AT=N             the N-th allocation of the store fails
 *
 * Ranks hand their environment on to the engine that they start.
 */
#ifndef HEARTH_ENGINE_STOP_POINT_H
#define HEARTH_ENGINE_STOP_POINT_H

#include "core/base/env.h"

#ifdef HEARTH_POINTS

#define HTH_POINT_NAME 32

/* At the count-th arrival at the point `name` the process writes `<root>/<dir>/stopped` ("name
 * pid") and stops itself with SIGSTOP; the test that set it kills it or lets it continue. */
struct hth_stop_point {
    char name[HTH_POINT_NAME]; /* empty: nothing stops */
    unsigned count;            /* from 1 */
    unsigned seen;             /* arrivals, atomic */
    char root[4096], dir[128];
    char opens[256]; /* empty: nothing is tried */
};

/* "NAME" or "NAME:COUNT". Errors: HEARTH_EINVAL. */
int hth_stop_point_parse(struct hth_stop_point *out, const char *text, struct hearth_error *err);
struct hth_points hth_stop_point_hook(struct hth_stop_point *point); /* borrowed */

/* out_points->self is malloc'ed, NULL if no point is set; the caller frees it. *out_fail_at: 0 for
 * none. Errors: HEARTH_EINVAL with the variable's name. */
int hth_test_asks(const char *root, const char *dir, struct hth_points *out_points,
        uint64_t *out_fail_at, struct hearth_error *err);

#else

static inline int hth_test_asks(const char *root, const char *dir, struct hth_points *out_points,
        uint64_t *out_fail_at, struct hearth_error *err)
{
    (void)root, (void)dir, (void)err;
    *out_points = (struct hth_points){ 0 };
    *out_fail_at = 0;
    return HEARTH_OK;
}

#endif

#endif
