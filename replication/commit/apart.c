/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom this node cannot reach. Its session notices, and that alone is nothing: the other may be gone, or of no
 * use here. It is said, again and again, of who has what this node lacks and nobody else in reach has, and of
 * its parent and its children in the tree. When the map has the pair, it is tried now and then whether it is so still.
 */
#include "commit_state.h"

#include <string.h>

#define KNOCKS 4u /* nodes that are dialled at a time, since what they have is not here */

static struct away *away_find(struct hth_commit *c, uint32_t node)
{
    for (uint32_t i = 0; i < c->aways; i++)
        if (c->away[i].node == node)
            return &c->away[i];
    return NULL;
}

int apart_is_away(const struct hth_commit *c, uint32_t node)
{
    for (uint32_t i = 0; i < c->aways; i++)
        if (c->away[i].node == node)
            return 1;
    return 0;
}

static void away_remove(struct hth_commit *c, struct away *a)
{
    *a = c->away[--c->aways];
}

/* From now on; the map may know already. */
static void away_want(struct hth_commit *c, struct away *a)
{
    if (a->wanted || hth_tree_is_cut(c->ctx, c->ctx->epoch->self, a->node))
        return;
    a->wanted = 1;
    a->says = 0;
    a->say_ms = hth_now_ms(&c->ctx->clock);
}

/* Its parent, or a child: one whose engine is new may never have had a connection with us, and so not know that there
 * is none. */
static void away_want_kin(struct hth_commit *c, struct away *a)
{
    if (hth_tree_is_neighbour(c->ctx, a->node))
        away_want(c, a);
}

/* The coordinator calls lost whom it cannot reach, and who cannot reach it is lost. */
void apart_down(struct hth_commit *c, uint32_t node)
{
    struct away *a = away_find(c, node);

    if (!node || hth_is_coordinator(c->ctx) || c->ctx->down[node])
        return;
    if (!a) {
        if (c->aways == AWAYS_MAX)
            memmove(c->away, c->away + 1, --c->aways * sizeof(c->away[0]));
        a = &c->away[c->aways++];
        *a = (struct away){ .node = node };
    }
    away_want_kin(c, a);
    for (struct track *t = c->tracks; t; t = t->next) {
        apart_look(c, t);
        if (t->repair_ms != HTH_NEVER) /* others may have it */
            t->repair_ms = hth_now_ms(&c->ctx->clock);
    }
}

void apart_up(struct hth_commit *c, uint32_t node)
{
    struct away *a = away_find(c, node);

    if (a)
        away_remove(c, a);
    if (c->ctx->epoch && hth_tree_is_cut(c->ctx, c->ctx->epoch->self, node))
        c->apart_ms = hth_now_ms(&c->ctx->clock);
}

/* ---- What is missing ------------------------------------------------------------------------------ */

static int apart_is_missing(
        const struct hth_commit *c, struct hth_held_save *s, const struct hth_object *o)
{
    const struct hth_held *h;

    if (o->kind == HTH_OBJECT_RAW ||
            !holders_have(c, stand_in(c->ctx, o->owner), c->ctx->epoch->self))
        return 0;
    h = hth_held_find(s, o->id);
    return !h || h->state != HTH_HELD_SEALED;
}

/* Somebody who may have the rank's objects is within reach. Who had a place by an older map has copies of what
 * is kept alone: those of undecided saves went with that map. */
static int apart_has_source(const struct hth_commit *c, const struct track *t, uint32_t rank)
{
    uint32_t node[2 * PLACES_MAX + 1], n = 0;

    node[n++] = c->ctx->epoch->rank_node[rank];
    n += holders_of(c, rank, node + n);
    n += t->recovered ? holders_were(c, rank, node + n) : 0;
    for (uint32_t i = 0; i < n; i++)
        if (node[i] != c->ctx->epoch->self && !c->ctx->down[node[i]] && !apart_is_away(c, node[i]))
            return 1;
    return 0;
}

/* All who have a place of it are away. */
static void apart_want(struct hth_commit *c, uint32_t rank)
{
    uint32_t holder[PLACES_MAX], n = holders_of(c, rank, holder);

    for (uint32_t i = 0; i < n; i++) {
        struct away *a = away_find(c, holder[i]);

        if (a)
            away_want(c, a);
    }
}

/* Whoever has a place of it is dialled, also who was away: it may be back and know of nobody to say so to, while others
 * who have a place lack it as we do. Returns how many. */
static uint32_t apart_knock(struct hth_commit *c, uint32_t rank)
{
    uint32_t holder[PLACES_MAX], n = holders_of(c, rank, holder), knocks = 0;

    for (uint32_t i = 0; i < n; i++)
        if (holder[i] != c->ctx->epoch->self && !c->ctx->down[holder[i]] &&
                !hth_session_is_connected(c->ctx->session, holder[i])) {
            fact_knock(c, holder[i]);
            knocks++;
        }
    return knocks;
}

void apart_look(struct hth_commit *c, const struct track *t)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);
    uint32_t knocks = 0;

    if (hth_is_coordinator(c->ctx) || t->failing || !s || !s->has_manifest ||
            (t->promised && t->promised_map == c->head.mapped))
        return;
    for (uint32_t i = 0; i < s->manifest.objects && knocks < KNOCKS; i++) {
        const struct hth_object *o = &s->manifest.object[i];
        uint32_t rank = stand_in(c->ctx, o->owner);

        if (!apart_is_missing(c, s, o))
            continue;
        if (!apart_has_source(c, t, rank))
            apart_want(c, rank);
        else
            knocks += apart_knock(c, rank);
    }
}

/* ---- Time ------------------------------------------------------------------------------------------ */

void apart_mapped(struct hth_commit *c)
{
    uint64_t soon_ms = hth_now_ms(&c->ctx->clock) + 2 * (uint64_t)c->ctx->opts.dead_ms;

    c->apart_ms = HTH_NEVER;
    for (uint32_t i = 0; i < c->ctx->aparts; i++) {
        const struct hth_apart *p = &c->ctx->apart[i];

        if (p->cut && (p->a == c->ctx->epoch->self || p->b == c->ctx->epoch->self))
            c->apart_ms = soon_ms;
    }
    for (uint32_t i = c->aways; i-- > 0;) {
        struct away *a = &c->away[i];

        a->wanted = 0;
        if (c->ctx->down[a->node])
            away_remove(c, a);
        else
            away_want_kin(c, a);
    }
}

/* Of whom the map says that we are cut from it. */
static void apart_try(struct hth_commit *c, uint64_t now_ms)
{
    const struct hth_ctx_opts *o = &c->ctx->opts;
    uint32_t self = c->ctx->epoch->self;

    c->apart_ms = HTH_NEVER;
    for (uint32_t i = 0; i < c->ctx->aparts; i++) {
        const struct hth_apart *p = &c->ctx->apart[i];
        uint32_t other = p->a == self ? p->b : p->a;
        uint64_t wait_ms = 4 * (uint64_t)o->dead_ms;

        if (!p->cut || (p->a != self && p->b != self))
            continue;
        if (hth_session_is_connected(c->ctx->session, other))
            fact_unreached(c, other, 0);
        else
            fact_knock(c, other);
        if (hth_session_is_up(c->ctx->session, other))
            wait_ms = o->retry_ms;
        if (now_ms + wait_ms < c->apart_ms)
            c->apart_ms = now_ms + wait_ms;
    }
}

void apart_tick(struct hth_commit *c, uint64_t now_ms)
{
    for (uint32_t i = 0; i < c->aways; i++) {
        struct away *a = &c->away[i];

        if (!a->wanted || now_ms < a->say_ms)
            continue;
        a->say_ms = now_ms + ((uint64_t)c->ctx->opts.retry_ms << (a->says < 3 ? a->says++ : 3));
        fact_knock(c, a->node);
        fact_unreached(c, a->node, 1);
    }
    if (now_ms >= c->apart_ms)
        apart_try(c, now_ms);
}

uint64_t apart_due_ms(const struct hth_commit *c)
{
    uint64_t due_ms = c->apart_ms;

    for (uint32_t i = 0; i < c->aways; i++)
        if (c->away[i].wanted && c->away[i].say_ms < due_ms)
            due_ms = c->away[i].say_ms;
    return due_ms;
}
