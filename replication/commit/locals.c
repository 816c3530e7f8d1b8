/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of this node, and which objects are theirs. */
#include "commit_state.h"

#include <stdlib.h>

int locals_make(struct hth_commit *c, struct hearth_error *err)
{
    const struct hth_epoch *e = c->ctx->epoch;
    uint32_t n = 0;

    for (uint32_t r = 0; r < e->world; r++)
        n += e->rank_node[r] == e->self;
    free(c->local);
    c->locals = 0;
    c->local = calloc(n ? n : 1, sizeof(*c->local));
    if (!c->local)
        return hth_fail(err, HEARTH_ENOMEM, 0, "%" PRIu32 " ranks", n);
    for (uint32_t r = 0; r < e->world; r++)
        if (e->rank_node[r] == e->self)
            c->local[c->locals++] = (struct local_rank){ .rank = r };
    return HEARTH_OK;
}

struct local_rank *local_find(struct hth_commit *c, uint32_t rank)
{
    for (uint32_t i = 0; i < c->locals; i++)
        if (c->local[i].rank == rank)
            return &c->local[i];
    return NULL;
}

void hth_commit_count(struct hth_commit *c, uint32_t rank, uint64_t step, uint32_t begun)
{
    struct local_rank *l = local_find(c, rank);

    if (l)
        hth_attempts_heard(&l->begun, step, begun);
}

void local_passes(struct local_rank *l, uint64_t step)
{
    l->passed = step > l->passed ? step : l->passed;
}

void hth_commit_passes(struct hth_commit *c, uint32_t rank, uint64_t step)
{
    struct local_rank *l = local_find(c, rank);

    if (c->running && l)
        local_passes(l, step);
}

uint32_t hth_commit_counted(const struct hth_commit *c, uint32_t rank, uint64_t *out_step)
{
    for (uint32_t i = 0; i < c->locals; i++)
        if (c->local[i].rank == rank && c->local[i].begun.sets) {
            *out_step = c->local[i].begun.step;
            return hth_attempts_last(&c->local[i].begun);
        }
    return 0;
}

int local_owns(const struct hth_ctx *ctx, const struct hth_held *h)
{
    return h->object.owner < ctx->epoch->world &&
           ctx->epoch->rank_node[h->object.owner] == ctx->epoch->self;
}
