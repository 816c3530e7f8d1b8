/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which save a rank may read without asking the others: one of this epoch that is COMPLETE, or the
 * one that was recovered, as long as its manifest is here. A save that is about to be freed is
 * found as well as any other: the manifest, asked for next, says that it is gone.
 */
#include "node_state.h"

#include <hearth/read.h>
#include <stdio.h>

/* COMPLETE or better, or 0. */
static uint32_t level_of(struct hth_node *n, const struct hth_held_save *s, int *out_degraded)
{
    enum hearth_level level = HEARTH_WRITTEN;
    int chosen = hth_save_cmp(s->id, n->chosen) == 0;
    char text[256];
    int code = HEARTH_OK;

    *out_degraded = 0;
    if (s->removed || !s->has_manifest ||
            (!chosen && (s->id.epoch != n->epoch.epoch || s->id.nonce != n->epoch.nonce)))
        return 0;
    if (hth_commit_status(n->commit, s->id, &level, out_degraded, &code, text) || code)
        level = HEARTH_WRITTEN;
    if (level < HEARTH_COMPLETE && chosen) /* all ranks have agreed on it */
        level = HEARTH_COMPLETE;
    return level >= HEARTH_COMPLETE ? (uint32_t)level : 0;
}

/* The saves of a step are told apart by attempt: the newest comes first. Without a step it is the
 * newest PROTECTED one; before there is any, what the epoch began with. */
static const struct hth_held_save *find(
        struct hth_node *n, uint64_t step, uint32_t *out_level, int *out_degraded)
{
    for (const struct hth_held_save *s = hth_holdings_first(&n->ctx); s; s = s->next) {
        uint32_t level = level_of(n, s, out_degraded);
        int fits = step == HEARTH_STEP_NEWEST
                           ? level >= HEARTH_PROTECTED || hth_save_cmp(s->id, n->chosen) == 0
                           : s->id.step == step;

        if (!level || !fits)
            continue;
        *out_level = level;
        return s;
    }
    return NULL;
}

static int none(struct hth_node *n, uint64_t step, struct hearth_error *err)
{
    char there[300] = "", wanted[40] = "no PROTECTED step";
    int len = 0, degraded;

    for (const struct hth_held_save *s = hth_holdings_first(&n->ctx); s; s = s->next) {
        uint32_t level = level_of(n, s, &degraded);

        if (level && len >= 0 && (size_t)len < sizeof(there))
            len += snprintf(there + len, sizeof(there) - (size_t)len, "%s%" PRIu64 "%s",
                    len ? ", " : "", s->id.step, level < HEARTH_PROTECTED ? " (COMPLETE)" : "");
    }
    if (step != HEARTH_STEP_NEWEST)
        snprintf(wanted, sizeof(wanted), "no COMPLETE step %" PRIu64, step);
    return hth_fail(err, HEARTH_ENOENT, 0, "%s is here in epoch %" PRIu64 "; there is: %s", wanted,
            n->epoch.epoch, len ? there : "none");
}

void read_find(struct hth_node *n, struct client *c, const struct hth_local_find *m)
{
    struct hth_local_found answer = { .head = { sizeof(answer), HTH_LOCAL_FOUND, m->head.request,
                                              0 } };
    const struct hth_held_save *s;
    struct hearth_error err;
    int degraded = 0;

    if (!n->ctx.epoch || !n->recovered) {
        reply_refusal(n, c->id, m->head.request, HEARTH_ESTATE,
                "hearth_recover() has not ended yet in this epoch: it comes first");
        return;
    }
    s = find(n, m->step, &answer.level, &degraded);
    if (!s) {
        none(n, m->step, &err);
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    answer.save = hth_local_save_of(s->id);
    answer.degraded = (uint32_t)degraded;
    n->env.reply(n->env.reply_self, c->id, &answer, sizeof(answer), -1, NULL, 0);
}
