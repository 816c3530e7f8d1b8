/* SPDX-License-Identifier: Apache-2.0 */
/* What this node knows of the other members and of copies. */
#include "known.h"

#include "commit_state.h"

#include <string.h>

static const struct unreachable *known_unreachable(const struct hth_commit *c, uint32_t node)
{
    for (uint32_t i = 0; i < c->unreachables; i++)
        if (c->unreachable[i].node == node)
            return &c->unreachable[i];
    return NULL;
}

/* 1: the member itself has sent something within dead_ms. */
static int known_is_heard(const struct hth_commit *c, uint32_t node, uint64_t now_ms)
{
    uint64_t heard_ms = hth_session_heard_ms(c->ctx->session, node);

    return heard_ms && now_ms - heard_ms <= c->ctx->opts.dead_ms;
}

static uint64_t known_for_ms(uint64_t now_ms, uint64_t since_ms)
{
    return now_ms > since_ms ? now_ms - since_ms : 0;
}

enum hth_member_state hth_commit_member(
        const struct hth_commit *c, uint32_t node, uint64_t *out_since_ms)
{
    const struct unreachable *a = known_unreachable(c, node);
    uint64_t now_ms = hth_now_ms(&c->ctx->clock), ago_ms;
    int sure = hth_commit_as_of(c, &ago_ms);

    *out_since_ms = known_for_ms(now_ms, 1000 * (uint64_t)c->since_s[node]);
    if (node == c->ctx->epoch->self)
        return HTH_MEMBER_OK;
    if (sure && c->ctx->lost[node])
        return HTH_MEMBER_LOST;
    /* a node that is not needed is not dialled again */
    if (a && (a->in_map || (a->send_ms != HTH_NEVER && !a->retract))) {
        *out_since_ms = known_for_ms(now_ms, a->since_ms);
        return sure && a->in_map ? HTH_MEMBER_UNREACHABLE : HTH_MEMBER_SILENT;
    }
    if (!node && c->silent_since_ms) {
        *out_since_ms = known_for_ms(now_ms, c->silent_since_ms);
        return HTH_MEMBER_SILENT;
    }
    if (sure || known_is_heard(c, node, now_ms))
        return HTH_MEMBER_OK;
    *out_since_ms = UINT64_MAX;
    return HTH_MEMBER_UNKNOWN;
}

int hth_commit_refused(const struct hth_commit *c, struct hth_refused *out)
{
    for (const struct tally *t = c->coord.tallies; t && hth_is_coordinator(c->ctx); t = t->next)
        if (t->refusal[0] && head_fate(c, t->id) <= FATE_KEPT) {
            *out = (struct hth_refused){ t->id, t->refusal_node, t->refusal };
            return 1;
        }
    for (const struct track *t = c->tracks; t; t = t->next)
        if (track_is_refused(c, t)) {
            *out = (struct hth_refused){ t->id, t->refusal.node, t->refusal.text };
            return 1;
        }
    return 0;
}

int hth_commit_gone(const struct hth_commit *c, struct hth_gone *out)
{
    for (const struct track *t = c->tracks; t; t = t->next)
        if (t->gone && !t->promised && head_fate(c, t->id) == FATE_KEPT) {
            *out = (struct hth_gone){ t->id, t->gone - 1,
                known_for_ms(hth_now_ms(&c->ctx->clock), t->gone_ms) };
            return 1;
        }
    return 0;
}

uint32_t hth_commit_behind(const struct hth_commit *c, uint64_t *out_oldest_ms)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock);
    uint32_t saves = 0;

    *out_oldest_ms = 0;
    for (const struct track *t = c->tracks; t; t = t->next) {
        if (t->promised || head_frees(c, t->id))
            continue;
        saves++;
        if (known_for_ms(now_ms, t->since_ms) > *out_oldest_ms)
            *out_oldest_ms = known_for_ms(now_ms, t->since_ms);
    }
    return saves;
}

void hth_commit_places(const struct hth_commit *c, uint32_t first, uint32_t count, uint32_t *out)
{
    const struct hth_epoch *e = c->ctx->epoch;
    uint32_t node[PLACES_MAX], nodes;

    memset(out, 0, count * sizeof(*out));
    for (uint32_t r = 0; r < e->world; r++) {
        nodes = places_of(c, r, node);
        for (uint32_t i = 0; i < nodes; i++)
            if (node[i] - first < count && node[i] != e->rank_node[r])
                out[node[i] - first]++;
    }
}

/* The nodes of an object of this node's ranks that have not reported it. */
static void known_owed_of(const struct hth_commit *c, const struct hth_held *h, uint32_t first,
        uint32_t count, uint32_t *out)
{
    uint32_t node[PLACES_MAX], nodes = places_of(c, stand_in(c->ctx, h->object.owner), node);

    for (uint32_t i = 0; i < nodes; i++) {
        int has = node[i] == c->ctx->epoch->self;

        for (uint32_t k = 0; k < h->copies; k++)
            has |= h->copied[k] == node[i];
        if (!has && node[i] - first < count)
            out[node[i] - first]++;
    }
}

void hth_commit_owed(const struct hth_commit *c, uint32_t first, uint32_t count, uint32_t *out)
{
    memset(out, 0, count * sizeof(*out));
    for (const struct track *t = c->tracks; t; t = t->next) {
        const struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);

        if (head_fate(c, t->id) != FATE_OPEN || !s)
            continue;
        if (t->copies_unknown) {
            for (uint32_t i = 0; i < count; i++)
                out[i] = HTH_NODE_NONE;
            return;
        }
        for (const struct hth_held *h = s->held; h; h = h->next)
            if (h->object.kind == HTH_OBJECT_SHARD && local_owns(c->ctx, h))
                known_owed_of(c, h, first, count, out);
    }
}

uint32_t hth_commit_crowded(const struct hth_commit *c)
{
    return c->base.copies > c->base.separate ? c->base.copies - c->base.separate : 0;
}
