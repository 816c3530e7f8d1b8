/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which nodes cannot reach each other though both live, or cannot pull from each other, at the coordinator:
 *
 *     together ──one says for dead_ms that it cannot; both have a place of one rank's objects, ──► CUT, in the map
 *        ▲       or are parent and child in the tree; the coordinator hears the other then             │
 *        └── 2 x dead_ms later, unless it was cut twice in ten minutes ── both say that they can again ┘
 *
 * The coordinator is half of a pair only where pulls stall: a node that it cannot reach by any way is lost. Facts only
 * mark; the next map has what they say, and moves the copies that have no source left (reach.c, remap.c).
 */
#include "commit_state.h"

#include "core/base/bytes.h"

#include <stdlib.h>

#define OFTEN_MS 600000u /* two cuts within that are too many */

static uint64_t pairs_wall_ms(const struct hth_commit *c)
{
    return c->ctx->clock.wall_ms(c->ctx->clock.self);
}

uint64_t pairs_well_ms(const struct hth_commit *c, uint64_t since_ms, uint64_t last_ms,
        uint64_t before_ms, uint64_t now_ms)
{
    uint64_t wall_ms = pairs_wall_ms(c), barred_ms;
    uint64_t well_ms = since_ms + 2 * (uint64_t)c->ctx->opts.dead_ms;

    if (!before_ms || last_ms - before_ms >= OFTEN_MS || last_ms + OFTEN_MS <= wall_ms)
        return well_ms;
    barred_ms = now_ms + (last_ms + OFTEN_MS - wall_ms);
    if (barred_ms >
            since_ms +
                    OFTEN_MS) /* the wall clock was set back: well since then, by the other clock */
        barred_ms = since_ms + OFTEN_MS;
    return barred_ms > well_ms ? barred_ms : well_ms;
}

int pairs_recent(const struct hth_commit *c, uint64_t last_ms)
{
    return last_ms + OFTEN_MS > pairs_wall_ms(c);
}

/* ---- What is heard -------------------------------------------------------------------------------- */

static struct pair *pair_find(struct hth_commit *c, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < c->coord.pairs; i++)
        if (c->coord.pair[i].a == (a < b ? a : b) && c->coord.pair[i].b == (a < b ? b : a))
            return &c->coord.pair[i];
    return NULL;
}

/* Or make, in place of the one of which nothing was heard for longest. */
static struct pair *pair_get(struct hth_commit *c, uint32_t a, uint32_t b)
{
    struct coord *o = &c->coord;
    struct pair *p = pair_find(c, a, b);

    if (p)
        return p;
    p = &o->pair[0];
    for (uint32_t i = 1; i < o->pairs; i++)
        p = o->pair[i].last_ms < p->last_ms ? &o->pair[i] : p;
    if (o->pairs < HTH_APART_MAX)
        p = &o->pair[o->pairs++];
    *p = (struct pair){ .a = a < b ? a : b, .b = a < b ? b : a };
    return p;
}

/* Within that the next repeat of a fact comes, if it is still so. */
static uint64_t pair_fresh_ms(const struct hth_commit *c)
{
    return 4 * (uint64_t)c->ctx->opts.dead_ms + 16 * (uint64_t)c->ctx->opts.retry_ms;
}

/* Bytes have to go from one to the other: copies, or what comes down the tree. */
static int pair_is_needed(const struct hth_commit *c, uint32_t a, uint32_t b)
{
    if (hth_tree_parent(c->ctx, a) == b || hth_tree_parent(c->ctx, b) == a)
        return 1;
    for (uint32_t r = 0; r < c->ctx->epoch->world; r++)
        if (holders_have(c, r, a) && holders_have(c, r, b))
            return 1;
    return 0;
}

/* By any way: a node that cannot be reached is lost, and no half of a pair. A node that is silent
 * to all is heard no more, some time before its connection ends. */
static int pair_is_heard(const struct hth_commit *c, const struct pair *p)
{
    uint32_t node = p->other;

    return node == c->ctx->epoch->self ||
           (hth_session_is_connected(c->ctx->session, node) &&
                   hth_session_heard_ms(c->ctx->session, node) > p->due_ms);
}

static void pair_look(struct hth_commit *c, struct pair *p)
{
    if (!p->due_ms || !pair_is_heard(c, p) || !pair_is_needed(c, p->a, p->b))
        return;
    p->due_ms = 0;
    p->cut = c->coord.news = c->coord.look = 1;
}

static void pair_cut(struct hth_commit *c, uint32_t origin, uint32_t node)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock);
    struct pair *p = pair_get(c, origin, node);

    p->found = 0;
    p->again_ms[0] = p->again_ms[1] = 0;
    if (hth_tree_is_cut(c->ctx, origin, node)) {
        append_tell(c, origin, 1);
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

static void pair_found(struct hth_commit *c, uint32_t origin, uint32_t node)
{
    struct pair *p = pair_get(c, origin, node);
    uint64_t now_ms = hth_now_ms(&c->ctx->clock), other_ms = p->again_ms[origin == p->a];

    p->first_ms = p->last_ms = p->due_ms = 0;
    p->cut = 0;
    p->again_ms[origin != p->a] = now_ms;
    if (!hth_tree_is_cut(c->ctx, origin, node))
        append_tell(c, origin, 1);
    else if (!p->found && other_ms && now_ms - other_ms <= pair_fresh_ms(c))
        p->found = c->coord.news = c->coord.look = 1;
}

void pairs_told(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len)
{
    uint32_t node = len == UNREACHED_BYTES ? hth_get32(bytes) : 0;
    uint32_t what = len == UNREACHED_BYTES ? hth_get32(bytes + 4) : 0;

    if (len != UNREACHED_BYTES || origin == node || origin >= c->ctx->epoch->nodes ||
            node >= c->ctx->epoch->nodes || what > UNREACHED_STALLED || holders_lost(c, node) ||
            (!origin && what == UNREACHED_DOWN))
        return;
    if (what != UNREACHED_AGAIN && node != c->ctx->epoch->self)
        fact_knock(c, node); /* if it is gone, that is noticed by this */
    if (holders_lost(c, origin) || (!node && what == UNREACHED_DOWN))
        return;
    if (what == UNREACHED_AGAIN)
        pair_found(c, origin, node);
    else
        pair_cut(c, origin, node);
}

void pairs_tick(struct hth_commit *c)
{
    for (uint32_t i = 0; i < c->coord.pairs; i++)
        pair_look(c, &c->coord.pair[i]);
}

/* The member that said it, or that it said it of, is lost: it was no pair's matter. */
void pairs_lost(struct hth_commit *c, uint32_t node)
{
    for (uint32_t i = 0; i < c->coord.pairs; i++)
        if (c->coord.pair[i].a == node || c->coord.pair[i].b == node)
            c->coord.pair[i].first_ms = c->coord.pair[i].last_ms = c->coord.pair[i].due_ms = 0;
}

/* ---- The next map --------------------------------------------------------------------------------- */

int pairs_have_news(const struct hth_commit *c)
{
    for (uint32_t i = 0; i < c->coord.pairs && c->coord.news; i++)
        if (c->coord.pair[i].cut || c->coord.pair[i].found)
            return 1;
    return 0;
}

static uint64_t apart_well_ms(struct hth_commit *c, const struct hth_apart *n, uint64_t now_ms)
{
    const struct pair *p = pair_find(c, n->a, n->b);

    return pairs_well_ms(c, p ? p->well_ms : 0, n->last_ms, n->before_ms, now_ms);
}

static void apart_add(struct hth_holders *map, const struct hth_apart *n)
{
    struct hth_apart *oldest = map->pair;

    for (uint32_t i = 1; i < map->pairs; i++)
        oldest = map->pair[i].last_ms < oldest->last_ms ? &map->pair[i] : oldest;
    if (map->pairs < HTH_APART_MAX)
        oldest = &map->pair[map->pairs++];
    *oldest = *n;
}

static int apart_cmp(const void *a, const void *b)
{
    const struct hth_apart *x = a, *y = b;

    if (x->a != y->a)
        return x->a < y->a ? -1 : 1;
    return x->b < y->b ? -1 : x->b > y->b;
}

int pairs_next(struct hth_commit *c, uint64_t now_ms, struct hth_holders *map)
{
    map->pair = calloc(HTH_APART_MAX, sizeof(*map->pair));
    if (!map->pair)
        return HEARTH_ENOMEM;
    for (uint32_t i = 0; i < c->coord.pairs; i++) {
        struct pair *p = &c->coord.pair[i];

        if (p->found)
            p->well_ms = now_ms;
        if (p->cut && !hth_holders_pair(&c->map, p->a, p->b))
            apart_add(map, &(struct hth_apart){ p->a, p->b, 1, pairs_wall_ms(c), 0 });
    }
    for (uint32_t i = 0; i < c->map.pairs; i++) {
        struct hth_apart n = c->map.pair[i];
        const struct pair *p = pair_find(c, n.a, n.b);

        if (p && p->cut) {
            n.before_ms = n.last_ms;
            n.last_ms = pairs_wall_ms(c);
        }
        n.cut = p && (p->cut || p->found) ? (uint32_t)p->cut : n.cut;
        if (n.cut || now_ms < apart_well_ms(c, &n, now_ms) || pairs_recent(c, n.last_ms))
            apart_add(map, &n);
    }
    qsort(map->pair, map->pairs, sizeof(*map->pair), apart_cmp);
    return HEARTH_OK;
}

uint32_t pairs_are(struct hth_commit *c, uint64_t now_ms, const struct hth_holders *map,
        struct hth_pair out[HTH_APART_MAX])
{
    for (uint32_t i = 0; i < map->pairs; i++) {
        const struct hth_apart *n = &map->pair[i];

        out[i] = (struct hth_pair){ n->a, n->b,
            (uint8_t)(n->cut                                 ? HTH_LOST
                      : now_ms < apart_well_ms(c, n, now_ms) ? HTH_BACK
                                                             : HTH_WELL) };
    }
    return map->pairs;
}

void pairs_say(const struct hth_commit *c, uint32_t moved, uint32_t stuck)
{
    const struct hth_member *m = c->ctx->epoch->member;

    for (uint32_t i = 0; i < c->coord.pairs; i++) {
        const struct pair *p = &c->coord.pair[i];

        if (p->cut)
            hth_say(&c->ctx->log, HEARTH_LOG_WARN, "peers-apart",
                    "nodes %.64s and %.64s cannot reach each other, or pull from each other, though both live: "
                    "look at what is between them, its MTU too; %" PRIu32
                    " places of ranks' objects move to others, %" PRIu32 " have nowhere to go",
                    m[p->a].node, m[p->b].node, moved, stuck);
        else if (p->found)
            hth_say(&c->ctx->log, HEARTH_LOG_INFO, "peers-together",
                    "nodes %.64s and %.64s can reach each other, and pull from each other, again",
                    m[p->a].node, m[p->b].node);
    }
}

void pairs_heard(struct hth_commit *c)
{
    for (uint32_t i = 0; i < c->coord.pairs; i++)
        c->coord.pair[i].cut = c->coord.pair[i].found = 0;
}

uint64_t pairs_home_ms(struct hth_commit *c, uint64_t now_ms)
{
    uint64_t home_ms = HTH_NEVER;

    for (uint32_t i = 0; i < c->map.pairs; i++) {
        uint64_t well_ms = apart_well_ms(c, &c->map.pair[i], now_ms);

        if (!c->map.pair[i].cut && well_ms > now_ms && well_ms < home_ms)
            home_ms = well_ms;
    }
    return home_ms;
}

/* An engine that is new does not know for how long who can again has been able to. */
void pairs_begin(struct hth_commit *c, uint64_t now_ms)
{
    c->coord.pairs = 0;
    for (uint32_t i = 0; i < c->map.pairs; i++)
        pair_get(c, c->map.pair[i].a, c->map.pair[i].b)->well_ms = now_ms;
}
