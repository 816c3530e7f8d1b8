/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a save: each object's table records are put where its table will be, the slots go back
 * to the engine one by one (SEAL), and COMMIT tells the engine that there are no more. The handle
 * shows the further progress at the engine. The first part may be done ahead of the second
 * (hearth_save_seal), so that copies travel while the caller still makes up a `.metadata`. Nothing
 * here waits for the engine. Requests that it has not received yet are kept, and sent again to the
 * engine that replaces it (client/link/kept.c).
 */
#include "save.h"

#include "client/base/args.h"

/* The slot is the engine's from there on, and so is what it may be used for next. */
static void save_seal_one(struct hearth_save *s, uint32_t index)
{
    struct hth_written *o = &s->object[index];

    hth_handle_sealed(s->handle, index, o);
    hth_slot_put(s->h, o->slot);
    o->slot = NULL;
}

/* All that is not handed over yet. The caller sends it. */
static int seal_all(struct hearth_save *s, struct hearth_error *err)
{
    if (s->step == HEARTH_STEP_LATER)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "the save was begun with HEARTH_STEP_LATER: hearth_save_set_step() comes first");
    if (!s->closed)
        hth_save_finish_object(s, s->objects - 1);
    s->closed = 1;
    for (; s->sealed < s->objects && !s->h->opts.off; s->sealed++)
        save_seal_one(s, s->sealed);
    return HEARTH_OK;
}

int hearth_save_seal(struct hearth_save *save, struct hearth_error *err)
{
    int rc;

    if ((rc = hth_save_enter(save, err)) || (rc = hth_save_not_sealed(save, err)))
        return rc;
    rc = seal_all(save, err);
    if (!rc && !save->h->opts.off)
        rc = hth_handle_seal(save->handle, err);
    if (!rc) {
        hth_from_end(save, 0);
        return HEARTH_OK;
    }
    if (save->step == HEARTH_STEP_LATER)
        return hth_while(err, rc, "seal a save");
    return hth_while(err, rc, "seal step %" PRIu64, save->step);
}

/* The engine may have begun what it was asked for in vain, and the other ranks have: that
 * attempt again, and not one more. */
static uint32_t commit_count(struct hearth_save *s, uint64_t step)
{
    uint32_t attempt = s->asked_attempt;

    if (attempt && s->asked_step == step)
        return attempt;
    pthread_mutex_lock(&s->h->lock);
    attempt = hth_count_locked(s->h, step, s->handle->ranks);
    pthread_mutex_unlock(&s->h->lock);
    return attempt;
}

/* An answer about another step leaves open what became of the one before. */
static void commit_remember(struct hearth_save *s, const struct hth_local_set_step *m, int rc)
{
    if (rc == HEARTH_ETIMEOUT || rc == HEARTH_EENGINE) {
        s->asked_step = m->step;
        s->asked_attempt = m->attempt;
    } else if (s->asked_step == m->step) {
        s->asked_attempt = 0;
    }
}

static int commit_set_step(
        struct hearth_save *s, struct hth_local_set_step *m, struct hearth_error *err)
{
    struct hth_local_save_id a;
    struct hth_ask ask = { .msg = m,
        .len = sizeof(*m),
        .type = HTH_LOCAL_SET_STEP,
        .want = HTH_LOCAL_SAVE_ID,
        .handle = s->handle,
        .fd = -1,
        .answer = &a,
        .answer_len = sizeof(a),
        .wait_ms = HTH_PROMPT_MS + s->wait_ms,
        .what = "set the step" };
    int rc;

    m->attempt = commit_count(s, m->step);
    rc = hth_ask(s->h, &ask, err);
    commit_remember(s, m, rc);
    if (rc)
        return hth_save_late(s->wait_ms, rc, err);
    pthread_mutex_lock(&s->h->lock);
    hth_counted_locked(s->h, hth_local_save_to(a.save));
    pthread_mutex_unlock(&s->h->lock);
    hth_handle_named(s->handle, a.save);
    return HEARTH_OK;
}

int hearth_save_set_step(struct hearth_save *save, uint64_t step, struct hearth_error *err)
{
    struct hth_local_set_step m = { .step = step };
    int rc;

    if ((rc = hth_save_enter(save, err)) || (rc = hth_save_not_sealed(save, err)))
        return rc;
    if ((rc = hth_step_check(step, 0, err)))
        return hth_while(err, rc, "set the step of a save");
    if (save->step != HEARTH_STEP_LATER)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "the step of a save is set once, when it was begun with HEARTH_STEP_LATER");
    m.wait_ms = save->wait_ms;
    if (!save->h->opts.off)
        rc = commit_set_step(save, &m, err);
    if (rc)
        return hth_while(err, rc, "step %" PRIu64, step);
    save->step = step;
    save->early = 0;
    if (save->h->opts.off)
        hth_handle_set_step(save->handle, step);
    return HEARTH_OK;
}

static int commit_all(struct hearth_save *s, struct hearth_error *err)
{
    int rc = seal_all(s, err);

    return rc ? rc : hth_handle_commit(s->handle, err);
}

int hearth_save_commit(
        struct hearth_save *save, struct hearth_handle **out_handle, struct hearth_error *err)
{
    uint64_t step, bytes = 0;
    int rc;

    if ((rc = hth_save_enter(save, err)))
        return rc;
    step = save->step;
    if (!save->h->opts.off && (rc = commit_all(save, err))) {
        hearth_save_abort(save);
        if (step == HEARTH_STEP_LATER)
            return hth_while(err, rc, "commit");
        return hth_while(err, rc, "commit step %" PRIu64, step);
    }
    for (uint32_t i = 0; i < save->objects; i++)
        bytes += save->object[i].data_len;
    hth_handle_written(save->handle, bytes);
    hth_from_end(save, 0);
    if (out_handle) {
        *out_handle = save->handle;
        save->handle = NULL;
    }
    hth_save_dispose(save);
    return HEARTH_OK;
}
