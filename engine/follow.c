/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FOLLOW, after a rank has lost its connection or its engine: what became of a save that it had
 * handed over. From here on it hears of it like any other.
 */
#include "follow.h"

#include "client.h"
#include "loan.h"
#include "node_state.h"
#include "reply.h"

#include <stdio.h>

static uint32_t follow_objects_here(struct hth_node *n, struct hth_save_id save, uint32_t rank)
{
    struct hth_held_save *s = hth_holdings_find(&n->ctx, save);
    uint32_t count = 0;

    for (struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        count += h->object.owner == rank && h->state != HTH_HELD_RECEIVING;
    return count;
}

/* A save that is not of this epoch, or that a process of the rank has in its hands: its end is that
 * process's to say. */
static int follow_may(struct hth_node *n, const struct client *c, struct hth_save_id save,
        struct hearth_error *err)
{
    if (!n->ctx.epoch || save.epoch != n->epoch.epoch || save.nonce != n->epoch.nonce)
        return hth_fail(err, HEARTH_EUNKNOWN, 0,
                "this node's engine is new, or in another epoch: what became of step %" PRIu64
                " shows at the next hearth_recover()",
                save.step);
    for (const struct loan *l = n->loans; l; l = l->next)
        if (l->has_id && !l->committed && l->rank == c->rank && !hth_save_cmp(l->save, save))
            return hth_fail(err, HEARTH_ESTATE, 0,
                    "rank %" PRIu32 " is still writing step %" PRIu64
                    ": it is followed when that has ended",
                    c->rank, save.step);
    return HEARTH_OK;
}

/* What the rank handed over before it lost its engine is here, or its save has failed. */
static void follow_settle(struct hth_node *n, const struct client *c,
        const struct hth_local_follow *m, struct hth_save_id save)
{
    enum hearth_level level;
    char text[256];
    int degraded, code;

    if (m->committed && follow_objects_here(n, save, c->rank) >= m->objects)
        hth_commit_rank_done(n->commit, save, c->rank);
    else if (hth_commit_status(n->commit, save, &level, &degraded, &code, text) || !code)
        hth_commit_fail(
                n->commit, save, HEARTH_EENGINE, "the engine died while a rank was writing");
}

/* 1: somebody who is connected has committed it: there is nothing to settle. */
static int follow_is_committed(
        const struct hth_node *n, const struct client *c, struct hth_save_id save)
{
    for (const struct loan *l = n->loans; l; l = l->next)
        if (l->committed && l->rank == c->rank && !hth_save_cmp(l->save, save))
            return 1;
    return 0;
}

void follow_ask(struct hth_node *n, struct client *c, const struct hth_local_follow *m)
{
    struct hth_save_id save = hth_local_save_to(m->save);
    struct loan *l = loan_make(n, c);
    enum hearth_level level = HEARTH_WRITTEN;
    struct hth_ranks set;
    const struct hth_ranks *ranks = loan_ranks(&m->head, sizeof(*m), &set);
    struct hearth_error err;
    char text[256] = "";
    int degraded = 0, code = HEARTH_OK, rc;

    rc = l ? follow_may(n, c, save, &err) : hth_fail(&err, HEARTH_ENOMEM, 0, "no memory to follow");
    rc = rc ? rc : loan_name(l, ranks, &err);
    rc = rc ? rc : hth_commit_name(n->commit, save, ranks, &err);
    if (rc) {
        if (l)
            loan_free(n, l);
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    if (!follow_is_committed(n, c, save))
        follow_settle(n, c, m, save);
    l->has_id = 1;
    l->committed = 1;
    l->save = save;
    if (hth_commit_status(n->commit, save, &level, &degraded, &code, text)) {
        code = HEARTH_EUNKNOWN; /* nothing more would ever be said of it */
        snprintf(text, sizeof(text),
                "it was decided before this engine started, and is not kept any more");
    }
    reply_ok(n, c->id, m->head.request);
    loan_event(n, l, level, degraded, code, text);
}
