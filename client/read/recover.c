/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which save is read: the one that the job goes on from, on which the engines agree, or one of this
 * epoch, which this node's engine alone names.
 */
#include "checkpoint.h"

#include "client/base/args.h"
#include "client/base/limits.h"
#include "client/base/text.h"
#include "client/join/join.h"
#include "core/base/options.h"
#include "core/base/opts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMON_NAMES 32u
#define COMMON_NAME  256u
#define GRACE_MS     5000u /* the engine's own sentence about its deadline comes first */
#define FIND_TRIES   4

struct recover_msg {
    struct hth_local_recover fixed;
    char name[COMMON_NAMES][COMMON_NAME];
};

static int recover_fill(const struct hearth *h, struct recover_msg *m,
        const struct hearth_recover_opts *o, struct hearth_error *err)
{
    int rc;

    if (o->common_count > COMMON_NAMES || (o->common_count && !o->common))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "common[] has common_count = %zu names: give at most %u", o->common_count,
                COMMON_NAMES);
    if (o->deadline_ms > HTH_DEADLINE_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0, "deadline_ms is %u: at most %u", o->deadline_ms,
                HTH_DEADLINE_MAX);
    for (size_t i = 0; i < o->common_count; i++) {
        if (!o->common[i] || (rc = hth_foreign_name_check(o->common[i], err)))
            return o->common[i] ? rc : hth_fail(err, HEARTH_EINVAL, 0, "common[%zu] is NULL", i);
        memcpy(m->name[i], o->common[i], strlen(o->common[i]) + 1);
    }
    if (o->save && (o->save->reserved || o->save->step > HTH_STEP_MAX))
        return hth_fail(err, HEARTH_EINVAL, 0, "`save` is no id of a save");
    if (o->save) {
        m->fixed.wants = 1;
        m->fixed.save = (struct hth_local_save){ o->save->epoch, o->save->nonce, o->save->step,
            o->save->attempt, 0 };
    }
    m->fixed.deadline_ms = o->deadline_ms ? o->deadline_ms : h->opts.recover_ms;
    m->fixed.count = (uint32_t)o->common_count;
    m->fixed.accept_loss = o->accept_loss;
    return HEARTH_OK;
}

/* out: the answer, and which steps were not chosen and why. */
static int recover_ask(struct hearth *h, struct recover_msg *m, struct hth_local_recovered *out,
        char ruled_out[HTH_LOCAL_RULED_OUT], struct hearth_error *err)
{
    struct hth_ask ask = { .msg = m,
        .len = sizeof(m->fixed) + m->fixed.count * COMMON_NAME,
        .type = HTH_LOCAL_RECOVER,
        .want = HTH_LOCAL_RECOVERED,
        .fd = -1,
        .again = 1,
        .answer = out,
        .answer_len = sizeof(*out),
        .text = ruled_out,
        .text_size = HTH_LOCAL_RULED_OUT,
        .wait_ms = m->fixed.deadline_ms + GRACE_MS,
        .what = "recover" };

    return hth_ask(h, &ask, err);
}

/* The coordinator chooses for the whole job, by the options of the first node's ranks. */
static int recover_check_wanted(const struct hearth_save_id *wanted,
        const struct hth_local_recovered *a, struct hearth_error *err)
{
    if (!wanted || (a->save.epoch && a->save.step == wanted->step &&
                           (!wanted->epoch || (a->save.epoch == wanted->epoch &&
                                                      a->save.nonce == wanted->nonce &&
                                                      a->save.attempt == wanted->attempt))))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, 0,
            "this rank asks for step %" PRIu64 ", and the job has recovered step %" PRIu64
            ": give the same save on all ranks",
            wanted->step, a->save.step);
}

static int find_ask(struct hearth *h, struct hth_local_find *m, struct hth_local_found *out,
        struct hearth_error *err)
{
    struct hth_ask ask = { .msg = m,
        .len = sizeof(*m),
        .type = HTH_LOCAL_FIND,
        .want = HTH_LOCAL_FOUND,
        .fd = -1,
        .again = 1,
        .answer = out,
        .answer_len = sizeof(*out),
        .wait_ms = m->wait_ms + HTH_REQUEST_MS,
        .what = "find a save" };

    return hth_ask(h, &ask, err);
}

/* Its rank may have recovered since the helper came, or begun a new epoch: the engine knows. */
static int recover_helper_may(struct hearth *h, struct hearth_error *err)
{
    struct hth_local_find m = { .step = HEARTH_STEP_NEWEST };
    struct hth_local_found a;
    int rc = find_ask(h, &m, &a, err);

    if (rc == HEARTH_ESTATE)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "a helper reads what its rank has recovered: rank %u recovers first", h->opts.rank);
    return rc == HEARTH_ENOENT ? HEARTH_OK : rc;
}

static int recover_may(struct hearth *h, struct hearth_error *err)
{
    if (h->opts.helper)
        return recover_helper_may(h, err);
    return hth_join_to_recover(h, err);
}

/* Checks the caller's options first: a new epoch ends saves that are undecided, and the other ranks
 * may have come to it with options that are right. */
static int recover_choose(struct hearth *h, const struct hearth_recover_opts *o,
        struct hth_local_recovered *out, char ruled_out[HTH_LOCAL_RULED_OUT],
        struct hearth_error *err)
{
    struct recover_msg *m = calloc(1, sizeof(*m));
    int rc;

    if (!m)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to recover");
    if (!(rc = recover_fill(h, m, o, err)) && !(rc = recover_may(h, err)))
        rc = recover_ask(h, m, out, ruled_out, err);
    free(m);
    return rc ? rc : recover_check_wanted(o->save, out, err);
}

static void recover_say(
        struct hearth *h, const struct hearth_recovery *info, int chosen, const char *ruled_out)
{
    for (size_t n; *ruled_out; ruled_out += n + (ruled_out[n] == '\n')) {
        n = strcspn(ruled_out, "\n");
        hth_line_add(&h->lines, HEARTH_LOG_WARN, "ruled-out", "%.*s", (int)n, ruled_out);
    }
    hth_line_add(&h->lines, info->passed ? HEARTH_LOG_WARN : HEARTH_LOG_INFO, "recover",
            "epoch %" PRIu64 ": %s%s", h->epoch,
            chosen ? "" : "nothing to recover, a start from scratch. ", info->text);
    hth_lines_drain(&h->lines);
}

int hearth_recover(struct hearth *h, const struct hearth_recover_opts *opts,
        struct hearth_checkpoint **out_ckpt, struct hearth_error *err)
{
    char ruled_out[HTH_LOCAL_RULED_OUT] = "";
    struct hearth_recover_opts o;
    struct hth_local_recovered a = { .save = { 0 } };
    struct hearth_recovery info;
    struct hearth_checkpoint *c = NULL;
    int rc;

    if ((rc = hth_enter(h, err)) || (rc = hth_opts_copy(&o, sizeof(o), opts, err)))
        return rc;
    if (!out_ckpt)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "out_ckpt is NULL: there is no place for the result");
    if (!h->opts.off) {
        if ((rc = recover_choose(h, &o, &a, ruled_out, err)))
            return hth_while(err, rc, "recover");
        info = hth_local_recovery_to(&a.info);
        if (a.save.epoch && (rc = hth_checkpoint_make(h, a.save, &info, &c, err)))
            return hth_while(err, rc, "recover step %" PRIu64, a.save.step);
        hth_set_recovered(h, 1);
        recover_say(h, &info, c != NULL, ruled_out);
    }
    *out_ckpt = c;
    return HEARTH_OK;
}

/* ---- one of this epoch's -------------------------------------------------------------------- */

static int find_open(struct hearth *h, struct hth_local_find *m, struct hearth_checkpoint **out,
        struct hearth_error *err)
{
    struct hearth_recovery info = { .struct_size = sizeof(info) };
    struct hth_local_found a = { .level = 0 };
    int rc = HEARTH_ENOENT;

    /* Between the two a newer one may be PROTECTED, and this one go. */
    for (int tries = 0; tries < FIND_TRIES && rc == HEARTH_ENOENT; tries++) {
        if ((rc = find_ask(h, m, &a, err)))
            return rc;
        info.degraded = a.degraded;
        snprintf(info.text, sizeof(info.text), "step %" PRIu64 " (attempt %u%s) is %s", a.save.step,
                hth_attempt_count(a.save.attempt), hth_attempt_of(a.save.attempt),
                hth_level_name(a.level));
        rc = hth_checkpoint_make(h, a.save, &info, out, err);
    }
    return rc;
}

static int find_fill(const struct hearth *h, struct hth_local_find *m, uint64_t step,
        const struct hearth_find_opts *o, struct hearth_error *err)
{
    *m = (struct hth_local_find){ .step = step, .wait_ms = o->wait_ms };
    if (!o->wait_ms && step != HEARTH_STEP_NEWEST)
        m->wait_ms = h->opts.open_ms;
    if (o->wait_ms > HTH_DEADLINE_MAX)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "wait_ms is %u: at most %u", o->wait_ms, HTH_DEADLINE_MAX);
    if (o->reserved)
        return hth_fail(err, HEARTH_EINVAL, 0, "`reserved` must be 0");
    if (!o->save)
        return HEARTH_OK;
    m->save = (struct hth_local_save){ o->save->epoch, o->save->nonce, o->save->step,
        o->save->attempt, 0 };
    if (!o->save->epoch || o->save->reserved || o->save->step != step)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "this is no id of a save of this step: hearth_handle_id() and "
                "hearth_checkpoint_id() give one");
    return HEARTH_OK;
}

int hearth_checkpoint_find(struct hearth *h, uint64_t step, const struct hearth_find_opts *opts,
        struct hearth_checkpoint **out_ckpt, struct hearth_error *err)
{
    struct hearth_find_opts o;
    struct hth_local_find m;
    int rc;

    if ((rc = hth_enter(h, err)) || (rc = hth_opts_copy(&o, sizeof(o), opts, err)))
        return rc;
    if (!out_ckpt)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "out_ckpt is NULL: there is no place for the checkpoint");
    if ((rc = hth_step_check(step, HEARTH_STEP_NEWEST, err)))
        return hth_while(err, rc, "open a checkpoint");
    if (!(rc = find_fill(h, &m, step, &o, err)))
        rc = h->opts.off ? hth_fail(err, HEARTH_ENOENT, 0,
                                   "the kill switch is on (off): nothing is kept")
                         : find_open(h, &m, out_ckpt, err);
    if (rc && step == HEARTH_STEP_NEWEST)
        return hth_while(err, rc, "open the newest checkpoint");
    return rc ? hth_while(err, rc, "open the checkpoint of step %" PRIu64, step) : HEARTH_OK;
}

int hearth_checkpoint_open(struct hearth *h, uint64_t step, struct hearth_checkpoint **out_ckpt,
        struct hearth_error *err)
{
    return hearth_checkpoint_find(h, step, NULL, out_ckpt, err);
}
