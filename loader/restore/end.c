/* SPDX-License-Identifier: Apache-2.0 */
/* The end of recovery on this node, once per epoch: what was chosen, which nodes gave it, how long
 * each part took. */
#include "restore_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes the chosen save and the nodes that gave its objects, as text. */
static void end_sources(struct hth_restore *r, struct hearth_recovery *info)
{
    const struct hth_epoch *e = r->ctx->epoch;
    uint64_t *from = calloc(e->nodes, sizeof(*from));
    uint64_t total = 0;
    size_t size = sizeof(info->text);
    int n = snprintf(
            info->text, size, "step %" PRIu64 " of epoch %" PRIu64, info->step, info->epoch);

    if (info->passed && n > 0)
        n += snprintf(info->text + n, size - (size_t)n,
                ", the newest that is not marked bad: %" PRIu32 " newer passed over", info->passed);
    if (info->passed && r->plan.tries && n > 0)
        n += snprintf(info->text + n, size - (size_t)n,
                ", one since %" PRIu32 " jobs recovered it and ended without a save",
                r->plan.tries);

    if (from)
        hth_transfer_pulled(r->ctx, &total, from); /* counted since the join */
    for (uint32_t i = 0; from && i < e->nodes; i++) {
        if (!from[i])
            continue;
        info->sources++;
        if (n > 0 && (size_t)n < size)
            n += snprintf(info->text + n, size - (size_t)n, "; %.1f MiB from node %s",
                    (double)from[i] / 1048576.0, e->member[i].node);
    }
    free(from);
}

static void end_times(const struct hth_restore *r, struct hearth_recovery *info)
{
    info->inventory_ms = (uint32_t)(r->t_told - r->t_start);
    info->plan_ms = (uint32_t)(r->t_plan - r->t_told);
    info->pull_ms = (uint32_t)(r->t_pull - r->t_plan);
    info->verify_ms = (uint32_t)(r->t_verify - r->t_plan);
    info->vote_ms = (uint32_t)(hth_now_ms(&r->ctx->clock) - r->t_vote);
}

static void end_foreign(const struct hth_restore *r, struct hearth_recovery *info)
{
    char from[sizeof(info->text)];
    const char *sources = strchr(info->text, ';');

    snprintf(from, sizeof(from), "%s", sources ? sources : "");
    info->epoch = 0;
    snprintf(info->text, sizeof(info->text),
            "step %" PRIu64 " of a container that Hearth did not write, unprotected until the next "
            "save%.150s",
            info->step, from);
    hth_say(&r->ctx->log, HEARTH_LOG_WARN, "unprotected", "%s", info->text);
}

/* A save has the integrity of its manifest, even if the ranks have agreed on another since. */
static void end_integrity(const struct hth_restore *r, struct hth_save_id save)
{
    const struct hth_held_save *s = hth_holdings_find(r->ctx, save);

    if (r->ctx->opts.strong && s && s->has_manifest && !s->manifest.strong)
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "integrity",
                HTH_SAVE " is from before integrity was strong: it has no SHA-256, and if its "
                         "bytes were changed on their way, that is not found",
                HTH_SAVE_ARGS(save));
}

void restore_end(struct hth_restore *r, int code, const struct hearth_error *err)
{
    struct hearth_recovery info = { .struct_size = sizeof(info) };
    struct hth_save_id save = { 0 };
    uint64_t total = 0;

    r->state = ENDED;
    if (r->has_plan && !code) {
        save = r->plan.chosen;
        info.step = save.step;
        info.epoch = save.epoch;
        info.beyond = r->plan.beyond;
        info.passed = r->plan.passed;
        hth_transfer_pulled(r->ctx, &total, NULL);
        info.pulled_bytes = total - r->pulled_before;
        end_times(r, &info);
        info.degraded = 1;
        if (!hth_save_none(save))
            end_sources(r, &info);
        else
            snprintf(info.text, sizeof(info.text), "nothing to recover");
    }
    if (hth_save_foreign(save))
        end_foreign(r, &info);
    else
        end_integrity(r, save);
    info.now_epoch = r->ctx->epoch ? r->ctx->epoch->epoch : 0;
    r->on_end(r->on_end_self, code, err, save, &info);
}
