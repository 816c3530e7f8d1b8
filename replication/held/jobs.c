/* SPDX-License-Identifier: Apache-2.0 */
/* The works on objects of this node that are under way, oldest first. */
#include "jobs.h"

void hth_job_begin(struct hth_job *j, struct hth_held_save *save, struct hth_held *held)
{
    struct hth_job **at = &j->ctx->jobs;

    j->save = save;
    j->held = held;
    hth_held_pin(save, held);
    while (*at)
        at = &(*at)->next;
    *at = j;
}

void hth_job_end(struct hth_job *j)
{
    struct hth_job **at = &j->ctx->jobs;

    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    if (j->held->dropped)
        j->code = hth_fail(&j->err, HEARTH_ECANCELED, 0, HTH_SAVE " object '%s': dropped meanwhile",
                HTH_SAVE_ARGS(j->save->id), j->held->object.name);
    if (j->done)
        j->done(j->self, j->save, j->held, j->code, &j->err);
}

void hth_job_free(struct hth_job *j)
{
    hth_held_unpin(j->save, j->held);
    j->dispose(j);
}

int hth_job_runs(const struct hth_ctx *ctx, const struct hth_held *held)
{
    const struct hth_job *j = ctx->jobs;

    while (j && j->held != held)
        j = j->next;
    return j != NULL;
}

void hth_jobs_close(struct hth_ctx *ctx)
{
    struct hth_job *j;

    while ((j = ctx->jobs)) {
        ctx->jobs = j->next;
        hth_job_free(j);
    }
}
