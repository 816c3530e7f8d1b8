/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs of nodes that both live and cannot reach each other, or cannot pull from each other, at the
 * coordinator:
 *
 *     reachable ──one reports the other for dead_ms; both have a place of ──► UNREACHABLE,
 *        ▲        one rank's objects, or are parent and child in the       in the map
 *        │        tree, or one is the coordinator; the other lives             │
 *        └── 2 x dead_ms later, unless it ── RETURNED ◄── both report that ────┘
 *            was unreachable twice in ten                 they reach each other again
 *            minutes
 *
 * Copies that were moved because of the pair go home as soon as it has RETURNED. Other copies are
 * moved over it when it is reachable.
 *
 * A child of the coordinator in the tree is half of a pair with it only if pulls stall: a child
 * that it cannot reach is lost. Reports only mark. The next map has the pairs, and moves the copies
 * that have no source left (maps.c, remap.c).
 */
#include "commit_state.h"

#include "core/base/bytes.h"

#include <stdlib.h>

#define OFTEN_MS 600000u /* a second loss or cut within that time delays the return */

uint64_t pairs_stable_ms(const struct hth_commit *c, uint64_t since_ms, uint64_t last_ms,
        uint64_t before_ms, uint64_t now_ms)
{
    uint64_t wall_ms = commit_wall_ms(c), barred_ms;
    uint64_t stable_ms = since_ms + 2 * (uint64_t)c->ctx->opts.dead_ms;

    if (!before_ms || last_ms - before_ms >= OFTEN_MS || last_ms + OFTEN_MS <= wall_ms)
        return stable_ms;
    barred_ms = now_ms + (last_ms + OFTEN_MS - wall_ms);
    if (barred_ms > since_ms + OFTEN_MS) /* the wall clock was set back */
        barred_ms = since_ms + OFTEN_MS;
    return barred_ms > stable_ms ? barred_ms : stable_ms;
}

int pairs_is_recent(const struct hth_commit *c, uint64_t last_ms)
{
    return last_ms + OFTEN_MS > commit_wall_ms(c);
}

/* ---- Reports --------------------------------------------------------------------------------- */

static struct pair *pair_find(struct hth_commit *c, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < c->coord.pairs; i++)
        if (c->coord.pair[i].a == (a < b ? a : b) && c->coord.pair[i].b == (a < b ? b : a))
            return &c->coord.pair[i];
    return NULL;
}

/* Finds the pair or makes it; if all are in use, in place of the pair with the oldest last
 * report. */
static struct pair *pair_get(struct hth_commit *c, uint32_t a, uint32_t b)
{
    struct coord *o = &c->coord;
    struct pair *p = pair_find(c, a, b);

    if (p)
        return p;
    p = &o->pair[0];
    for (uint32_t i = 1; i < o->pairs; i++)
        p = o->pair[i].last_ms < p->last_ms ? &o->pair[i] : p;
    if (o->pairs < HTH_PAIRS_MAX)
        p = &o->pair[o->pairs++];
    *p = (struct pair){ .a = a < b ? a : b, .b = a < b ? b : a };
    return p;
}

/* The next repeat of a report comes within that time. */
static uint64_t pair_fresh_ms(const struct hth_commit *c)
{
    return 4 * (uint64_t)c->ctx->opts.dead_ms + 16 * (uint64_t)c->ctx->opts.retry_ms;
}

/* 1: the two nodes have to exchange bytes: copies, blobs that come down the tree, or common
 * objects, which the coordinator pulls from each node. */
static int pair_is_needed(const struct hth_commit *c, uint32_t a, uint32_t b)
{
    if (a == 0 || b == 0 || hth_tree_parent(c->ctx, a) == b || hth_tree_parent(c->ctx, b) == a)
        return 1;
    for (uint32_t r = 0; r < c->ctx->epoch->world; r++)
        if (places_have(c, r, a) && places_have(c, r, b))
            return 1;
    return 0;
}

/* 1: the coordinator has received something from the other node after `due_ms`, by any way. A node
 * that sends nothing to any node will soon be lost, and is not one half of an unreachable pair; its
 * connection ends only some time later. */
static int pair_other_lives(const struct hth_commit *c, const struct pair *p)
{
    uint32_t node = p->other;

    return node == c->ctx->epoch->self || c->coord.live[node].heard_ms > p->due_ms ||
           (hth_session_is_connected(c->ctx->session, node) &&
                   hth_session_heard_ms(c->ctx->session, node) > p->due_ms);
}

static int pair_other_is_silent(const struct hth_commit *c, const struct pair *p)
{
    return p->due_ms && !pair_other_lives(c, p) &&
           hth_tree_is_unreachable(c->ctx, c->ctx->epoch->self, p->other) &&
           hth_now_ms(&c->ctx->clock) - p->due_ms >= c->ctx->opts.dead_ms;
}

uint32_t pairs_silent(const struct hth_commit *c)
{
    for (uint32_t i = 0; i < c->coord.pairs; i++)
        if (pair_other_is_silent(c, &c->coord.pair[i]))
            return c->coord.pair[i].other;
    return HTH_NODE_NONE;
}

static void pair_look(struct hth_commit *c, struct pair *p)
{
    if (!p->due_ms || !pair_other_lives(c, p) || !pair_is_needed(c, p->a, p->b))
        return;
    p->due_ms = 0;
    p->unreachable = c->coord.news = c->coord.look = 1;
}

static void pair_unreachable(struct hth_commit *c, uint32_t origin, uint32_t node)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock);
    struct pair *p = pair_get(c, origin, node);

    p->returned = 0;
    p->returned_ms[0] = p->returned_ms[1] = 0;
    if (hth_tree_is_unreachable(c->ctx, origin, node)) {
        head_send(c, origin, 1);
        return;
    }
    if (!p->last_ms || now_ms - p->last_ms > pair_fresh_ms(c)) {
        p->first_ms = now_ms;
        p->due_ms = 0;
    }
    p->last_ms = now_ms;
    if (now_ms - p->first_ms < c->ctx->opts.dead_ms || p->due_ms)
        return;
    p->due_ms = now_ms;
    p->other = node;
    pair_look(c, p);
}

static void pair_returned(struct hth_commit *c, uint32_t origin, uint32_t node)
{
    struct pair *p = pair_get(c, origin, node);
    uint64_t now_ms = hth_now_ms(&c->ctx->clock), other_ms = p->returned_ms[origin == p->a];

    p->first_ms = p->last_ms = p->due_ms = 0;
    p->unreachable = 0;
    p->returned_ms[origin != p->a] = now_ms;
    if (!hth_tree_is_unreachable(c->ctx, origin, node))
        head_send(c, origin, 1);
    else if (!p->returned && other_ms && now_ms - other_ms <= pair_fresh_ms(c))
        p->returned = c->coord.news = c->coord.look = 1;
}

/* 1: the coordinator and a child of it in the tree. */
static int pair_is_of_child(const struct hth_commit *c, uint32_t a, uint32_t b)
{
    return (a == 0 && hth_tree_is_neighbour(c->ctx, b)) ||
           (b == 0 && hth_tree_is_neighbour(c->ctx, a));
}

void pairs_reported(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len)
{
    uint32_t node = len == UNREACHABLE_BYTES ? hth_get32(bytes) : 0;
    uint32_t what = len == UNREACHABLE_BYTES ? hth_get32(bytes + 4) : 0;

    if (len != UNREACHABLE_BYTES || origin == node || origin >= c->ctx->epoch->nodes ||
            node >= c->ctx->epoch->nodes || what > REPORT_STALLED || node_is_lost(c, node) ||
            (what == REPORT_DISCONNECTED && pair_is_of_child(c, origin, node)))
        return;
    if (what != REPORT_REACHABLE && node != c->ctx->epoch->self)
        fact_dial(c, node); /* if the node is lost, this dial finds it */
    if (node_is_lost(c, origin))
        return;
    if (what == REPORT_REACHABLE)
        pair_returned(c, origin, node);
    else
        pair_unreachable(c, origin, node);
}

void pairs_tick(struct hth_commit *c)
{
    for (uint32_t i = 0; i < c->coord.pairs; i++)
        pair_look(c, &c->coord.pair[i]);
}

/* Drops reports of pairs with this node: the node is lost, which explains them. */
void pairs_lost(struct hth_commit *c, uint32_t node)
{
    for (uint32_t i = 0; i < c->coord.pairs; i++)
        if (c->coord.pair[i].a == node || c->coord.pair[i].b == node)
            c->coord.pair[i].first_ms = c->coord.pair[i].last_ms = c->coord.pair[i].due_ms = 0;
}

/* ---- The next map ---------------------------------------------------------------------------- */

int pairs_have_news(const struct hth_commit *c)
{
    for (uint32_t i = 0; i < c->coord.pairs && c->coord.news; i++)
        if (c->coord.pair[i].unreachable || c->coord.pair[i].returned)
            return 1;
    return 0;
}

static uint64_t pair_note_stable_ms(
        struct hth_commit *c, const struct hth_pair_note *n, uint64_t now_ms)
{
    const struct pair *p = pair_find(c, n->a, n->b);

    return pairs_stable_ms(c, p ? p->since_ms : 0, n->last_ms, n->before_ms, now_ms);
}

static void pair_note_add(struct hth_places *map, const struct hth_pair_note *n)
{
    struct hth_pair_note *oldest = map->pair;

    for (uint32_t i = 1; i < map->pairs; i++)
        oldest = map->pair[i].last_ms < oldest->last_ms ? &map->pair[i] : oldest;
    if (map->pairs < HTH_PAIRS_MAX)
        oldest = &map->pair[map->pairs++];
    *oldest = *n;
}

static int pair_note_cmp(const void *a, const void *b)
{
    const struct hth_pair_note *x = a, *y = b;

    if (x->a != y->a)
        return x->a < y->a ? -1 : 1;
    return x->b < y->b ? -1 : x->b > y->b;
}

int pairs_next(struct hth_commit *c, uint64_t now_ms, struct hth_places *map)
{
    map->pair = calloc(HTH_PAIRS_MAX, sizeof(*map->pair));
    if (!map->pair)
        return HEARTH_ENOMEM;
    for (uint32_t i = 0; i < c->coord.pairs; i++) {
        struct pair *p = &c->coord.pair[i];

        if (p->returned)
            p->since_ms = now_ms;
        if (p->unreachable && !hth_places_pair(&c->map, p->a, p->b))
            pair_note_add(map, &(struct hth_pair_note){ p->a, p->b, 1, commit_wall_ms(c), 0 });
    }
    for (uint32_t i = 0; i < c->map.pairs; i++) {
        struct hth_pair_note n = c->map.pair[i];
        const struct pair *p = pair_find(c, n.a, n.b);

        if (p && p->unreachable) {
            n.before_ms = n.last_ms;
            n.last_ms = commit_wall_ms(c);
        }
        n.unreachable =
                p && (p->unreachable || p->returned) ? (uint32_t)p->unreachable : n.unreachable;
        if (n.unreachable || now_ms < pair_note_stable_ms(c, &n, now_ms) ||
                pairs_is_recent(c, n.last_ms))
            pair_note_add(map, &n);
    }
    qsort(map->pair, map->pairs, sizeof(*map->pair), pair_note_cmp);
    return HEARTH_OK;
}

uint32_t pairs_reachability(struct hth_commit *c, uint64_t now_ms, const struct hth_places *map,
        struct hth_pair out[HTH_PAIRS_MAX])
{
    for (uint32_t i = 0; i < map->pairs; i++) {
        const struct hth_pair_note *n = &map->pair[i];

        out[i] = (struct hth_pair){ n->a, n->b,
            (uint8_t)(n->unreachable                               ? HTH_UNREACHABLE
                      : now_ms < pair_note_stable_ms(c, n, now_ms) ? HTH_RETURNED
                                                                   : HTH_REACHABLE) };
    }
    return map->pairs;
}

void pairs_log(const struct hth_commit *c, uint32_t moved, uint32_t stuck)
{
    const struct hth_member *m = c->ctx->epoch->member;

    for (uint32_t i = 0; i < c->coord.pairs; i++) {
        const struct pair *p = &c->coord.pair[i];

        if (p->unreachable)
            hth_say(&c->ctx->log, HEARTH_LOG_WARN, "peers-apart",
                    "nodes %.64s and %.64s cannot reach each other, or pull from each other, though both live: "
                    "look at what is between them, its MTU too; %" PRIu32
                    " places of ranks' objects move to others, %" PRIu32 " have nowhere to go",
                    m[p->a].node, m[p->b].node, moved, stuck);
        else if (p->returned)
            hth_say(&c->ctx->log, HEARTH_LOG_INFO, "peers-together",
                    "nodes %.64s and %.64s can reach each other, and pull from each other, again",
                    m[p->a].node, m[p->b].node);
    }
}

void pairs_mapped(struct hth_commit *c)
{
    for (uint32_t i = 0; i < c->coord.pairs; i++)
        c->coord.pair[i].unreachable = c->coord.pair[i].returned = 0;
}

uint64_t pairs_next_stable_ms(struct hth_commit *c, uint64_t now_ms)
{
    uint64_t first_ms = HTH_NEVER;

    for (uint32_t i = 0; i < c->map.pairs; i++) {
        uint64_t stable_ms = pair_note_stable_ms(c, &c->map.pair[i], now_ms);

        if (!c->map.pair[i].unreachable && stable_ms > now_ms && stable_ms < first_ms)
            first_ms = stable_ms;
    }
    return first_ms;
}

/* A new engine has no record of when a pair of the map became reachable again: it counts from
 * now. */
void pairs_begin(struct hth_commit *c, uint64_t now_ms)
{
    c->coord.pairs = 0;
    for (uint32_t i = 0; i < c->map.pairs; i++)
        pair_get(c, c->map.pair[i].a, c->map.pair[i].b)->since_ms = now_ms;
}
