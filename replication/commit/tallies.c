/* SPDX-License-Identifier: Apache-2.0 */
/* The facts that the coordinator has of each save, newest first, and the number of promises. */
#include "commit_state.h"

#include <stdlib.h>

struct tally *tally_find(struct hth_commit *c, struct hth_save_id id)
{
    struct tally *t = c->coord.tallies;

    while (t && hth_save_cmp(t->id, id) != 0)
        t = t->next;
    return t;
}

/* The nodes that owe DONE: all, or those with a rank of the set. */
static void tally_owe(struct hth_commit *c, struct tally *t)
{
    const struct hth_epoch *e = c->ctx->epoch;
    int all = !t->ranks || hth_breaks(c->ctx, HTH_BREAK_SET_DONE);

    for (uint32_t r = 0; r < e->world; r++)
        if (all || hth_ranks_have(t->ranks, r))
            t->node[e->rank_node[r]].due = 1;
    for (uint32_t n = 0; n < e->nodes; n++)
        t->nodes_due += t->node[n].due;
}

int tally_name(struct hth_commit *c, struct tally *t, const struct hth_ranks *ranks,
        struct hearth_error *err)
{
    int known = t->ranks != NULL;
    int rc = ranks_name(&t->ranks, t->id, ranks, err);

    if (t->ranks && !known)
        tally_owe(c, t);
    return rc;
}

struct tally *tally_get(struct hth_commit *c, struct hth_save_id id)
{
    struct tally *t = tally_find(c, id);
    struct tally **at = &c->coord.tallies;

    if (t)
        return t;
    t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->id = id;
    t->since_ms = hth_now_ms(&c->ctx->clock);
    t->node = calloc(c->ctx->epoch->nodes, sizeof(*t->node));
    if (!t->node) {
        free(t);
        return NULL;
    }
    while (*at && hth_save_cmp((*at)->id, id) > 0)
        at = &(*at)->next;
    t->next = *at;
    *at = t;
    if (!hth_attempt_set(id.attempt))
        tally_owe(c, t);
    return t;
}

void tally_remove(struct hth_commit *c, struct tally *t)
{
    struct tally **at = &c->coord.tallies;

    while (*at && *at != t)
        at = &(*at)->next;
    if (*at)
        *at = t->next;
    free(t->node);
    free(t->ranks);
    hth_draft_free(t->draft);
    free(t->object);
    free(t);
}

/* 1: the node has promised under the newest map, which does not call it lost, and has not been lost
 * since. */
static int tally_counts(const struct hth_commit *c, const struct tally *t, uint32_t node)
{
    return t->node[node].promised && !node_is_lost(c, node) && !c->coord.live[node].lost;
}

uint32_t tally_promised(const struct hth_commit *c, const struct tally *t, uint32_t rank,
        uint32_t *out_domains, int *out_full)
{
    uint32_t holder[PLACES_MAX];
    uint32_t n = places_of(c, rank, holder);
    uint32_t have = 0;

    for (uint32_t i = 0; i < n; i++)
        if (tally_counts(c, t, holder[i]))
            holder[have++] = holder[i];
    *out_full = have == n;
    *out_domains = places_domains(c, holder, have);
    return have;
}

enum hth_has hth_commit_has(struct hth_commit *c, uint32_t at, uint32_t node)
{
    const struct tally *t;

    if (node_is_lost(c, node))
        return HTH_HAS_NOT;
    if (!hth_commit_current(c))
        return HTH_HAS_UNKNOWN;
    if (hth_is_coordinator(c->ctx) && c->coord.live[node].lost)
        return HTH_HAS_NOT;
    if (c->head.settled)
        return HTH_HAS;
    if (!hth_is_coordinator(c->ctx))
        return HTH_HAS_UNKNOWN;
    t = tally_find(c, c->ctx->keep.save[at]);
    return t && t->node[node].promised ? HTH_HAS : HTH_HAS_NOT;
}
