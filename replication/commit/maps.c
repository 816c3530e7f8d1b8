/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that are lost or have returned, and the next map, at the coordinator. Losses and returns
 * only mark. The tick makes one map of all that has come since, so that many losses at once are one
 * head.
 *
 *     reachable ──its connection ends──► LOST, noted in the map ──a newer sign of life──► RETURNED
 *       ▲                                └ the newest head is sent to it now and then        │
 *       └────────── 2 x dead_ms later, unless it was lost twice in ten minutes ──────────────┘
 *
 * A node has its own places as soon as it has RETURNED, and is given places of others when it is
 * reachable.
 *
 * A sign of life is a connection, or any fact with a newer life or count than the note quotes, by
 * whatever way it comes. Pairs of nodes that do not reach each other: pairs.c.
 *
 * The coordinator also makes a map if this engine was late, because its machine stood still or its
 * thread was busy. A promise that had come before, or lay in a socket meanwhile, may be of a
 * machine that is lost since: that machine's last pings lay there too, so it does not count as lost
 * yet. The new map has another name, and only members that live can promise under it.
 */
#include "commit_state.h"

#include "core/base/bytes.h"

#include <stdlib.h>
#include <string.h>

#define REMIND_MS 60000u /* at most between two heads that are sent to a lost node */

/* ---- Signs of life --------------------------------------------------------------------------- */

static int sign_is_newer(uint64_t life, uint64_t count, uint64_t than_life, uint64_t than_count)
{
    return life > than_life || (life == than_life && count > than_count);
}

void maps_sign_of_life(struct hth_commit *c, uint32_t node, uint64_t life, uint64_t count)
{
    const struct hth_note *n;
    struct liveness *s;

    if (node == 0 || node >= c->ctx->epoch->nodes)
        return;
    s = &c->coord.live[node];
    s->overtaken = !sign_is_newer(life, count, s->life, s->count);
    if (s->overtaken)
        return;
    s->life = life;
    s->count = count;
    s->heard_ms = hth_now_ms(&c->ctx->clock);
    n = hth_places_note(&c->map, node);
    if (n && n->lost && !s->returned && sign_is_newer(life, count, n->life, n->count) &&
            !hth_breaks(c->ctx, HTH_BREAK_RETURNED))
        maps_node_returned(c, node);
}

void maps_node_lost(struct hth_commit *c, uint32_t node)
{
    if (node == 0 || node >= c->ctx->epoch->nodes)
        return;
    c->coord.live[node].returned = 0;
    pairs_lost(c, node);
    if (node_is_lost(c, node))
        return;
    c->coord.live[node].lost = 1;
    c->coord.look = c->coord.news = 1;
}

/* 1: the coordinator does not reach the node, and other nodes do. Facts of a child come by this
 * connection alone. */
static int maps_is_beyond(const struct hth_commit *c, uint32_t node)
{
    const struct liveness *s = &c->coord.live[node];

    return !hth_tree_is_neighbour(c->ctx, node) &&
           (hth_tree_is_unreachable(c->ctx, 0, node) ||
                   (s->heard_ms &&
                           hth_now_ms(&c->ctx->clock) - s->heard_ms < c->ctx->opts.dead_ms));
}

/* A dial that fails proves nothing against a node whose facts come by the tree: the two are
 * reported as a pair. The node itself may need no connection with the coordinator, and not
 * notice. */
void maps_peer_down(struct hth_commit *c, uint32_t node)
{
    int was_connected;

    if (node == 0 || node >= c->ctx->epoch->nodes)
        return;
    was_connected = c->coord.live[node].connected;
    c->coord.live[node].connected = 0;
    if (was_connected || !maps_is_beyond(c, node))
        maps_node_lost(c, node);
    else
        unreachable_disconnected(c, node);
}

void maps_node_returned(struct hth_commit *c, uint32_t node)
{
    if (node == 0 || node >= c->ctx->epoch->nodes)
        return;
    c->coord.live[node].lost = 0;
    if (node_is_lost(c, node)) {
        c->coord.live[node].returned = 1;
        c->coord.look = c->coord.news = 1;
    } else if (c->head.position) { /* the node may have missed a head */
        head_send(c, node, 1);
    }
}

void maps_peer_up(struct hth_commit *c, uint32_t node)
{
    if (node < c->ctx->epoch->nodes)
        c->coord.live[node].connected = 1;
    maps_node_returned(c, node);
}

/* ---- The next map ---------------------------------------------------------------------------- */

/* When a node that has returned is given copies again. */
static uint64_t note_stable_ms(
        const struct hth_commit *c, const struct hth_note *n, uint64_t now_ms)
{
    return pairs_stable_ms(c, c->coord.live[n->node].since_ms, n->last_ms, n->before_ms, now_ms);
}

/* The note of the node in the next map; 0: none. */
static int note_next(
        const struct hth_commit *c, uint32_t node, uint64_t now_ms, struct hth_note *out)
{
    const struct hth_note *old = hth_places_note(&c->map, node);
    const struct liveness *s = &c->coord.live[node];

    *out = old ? *old : (struct hth_note){ .node = node };
    if (s->lost) {
        out->lost = 1;
        out->life = s->life;
        out->count = s->count;
        out->before_ms = out->last_ms;
        out->last_ms = commit_wall_ms(c);
        return 1;
    }
    if (!old)
        return 0;
    if (s->returned)
        out->lost = 0;
    return out->lost || now_ms < note_stable_ms(c, out, now_ms) || pairs_is_recent(c, out->last_ms);
}

static int maps_notes(
        const struct hth_commit *c, uint64_t now_ms, struct hth_places *map, uint8_t *is)
{
    uint32_t nodes = c->ctx->epoch->nodes;
    struct hth_note n;

    map->note = calloc(nodes, sizeof(*map->note));
    if (!map->note)
        return HEARTH_ENOMEM;
    for (uint32_t i = 1; i < nodes; i++) {
        if (!note_next(c, i, now_ms, &n))
            continue;
        map->note[map->notes++] = n;
        is[i] = n.lost                                   ? HTH_UNREACHABLE
                : now_ms < note_stable_ms(c, &n, now_ms) ? HTH_RETURNED
                                                         : HTH_REACHABLE;
    }
    return HEARTH_OK;
}

static int maps_make(struct hth_commit *c, uint64_t now_ms, struct hth_places *map,
        uint32_t *out_moved, uint32_t *out_stuck)
{
    uint8_t *is = calloc(c->ctx->epoch->nodes, sizeof(*is));
    struct hth_pair pair[HTH_PAIRS_MAX];
    struct hth_remap in = { .epoch = c->ctx->epoch,
        .base = &c->base,
        .last = &c->map,
        .settled = c->head.settled,
        .reach = is,
        .min_copies = c->ctx->opts.min_copies,
        .any_source = hth_breaks(c->ctx, HTH_BREAK_SOURCE),
        .stay = hth_breaks(c->ctx, HTH_BREAK_HOME),
        .pair = pair };
    int rc = is ? HEARTH_OK : HEARTH_ENOMEM;

    *map = (struct hth_places){ 0 };
    for (uint32_t i = 0; i < c->ctx->epoch->nodes && is; i++)
        if (c->coord.live[i].returned)
            c->coord.live[i].since_ms = now_ms;
    rc = rc ? rc : maps_notes(c, now_ms, map, is);
    rc = rc ? rc : pairs_next(c, now_ms, map);
    in.pairs = rc ? 0 : pairs_reachability(c, now_ms, map, pair);
    rc = rc ? rc : hth_remap(&in, &map->move, &map->moves, out_moved, out_stuck);
    free(is);
    if (rc)
        hth_places_fini(map);
    return rc;
}

static int maps_has_news(const struct hth_commit *c)
{
    for (uint32_t i = 1; i < c->ctx->epoch->nodes && c->coord.news; i++)
        if (c->coord.live[i].lost || c->coord.live[i].returned)
            return 1;
    return pairs_have_news(c);
}

/* 1: some place has another node; a different former node alone does not count. */
static int maps_differ(const struct hth_places *a, const struct hth_places *b)
{
    if (a->moves != b->moves)
        return 1;
    for (uint32_t i = 0; i < a->moves; i++)
        if (a->move[i].rank != b->move[i].rank || a->move[i].place != b->move[i].place ||
                a->move[i].node != b->move[i].node)
            return 1;
    return 0;
}

static void maps_log(const struct hth_commit *c, uint32_t moved, uint32_t stuck)
{
    for (uint32_t i = 1; i < c->ctx->epoch->nodes; i++) {
        if (c->coord.live[i].lost)
            hth_say(&c->ctx->log, HEARTH_LOG_WARN, "peer-lost",
                    "node %s is lost: %" PRIu32 " places of ranks' objects move to others, %" PRIu32
                    " have nowhere to go",
                    c->ctx->epoch->member[i].node, moved, stuck);
        else if (c->coord.live[i].returned)
            hth_say(&c->ctx->log, HEARTH_LOG_INFO, "peer-back", "node %s is back",
                    c->ctx->epoch->member[i].node);
    }
    pairs_log(c, moved, stuck);
}

/* The lost nodes had copies of kept saves. */
static void maps_degrade(const struct hth_commit *c, struct hth_head *next)
{
    uint32_t all = (UINT32_C(1) << next->keep.saves) - 1;
    int lost = 0;

    for (uint32_t i = 1; i < c->ctx->epoch->nodes; i++)
        lost |= c->coord.live[i].lost;
    if (!lost || next->keep.degraded == all)
        return;
    next->keep.degraded = all;
    next->keep.serial++;
}

static void maps_made(struct hth_commit *c, uint64_t now_ms)
{
    for (uint32_t i = 1; i < c->ctx->epoch->nodes; i++) {
        struct liveness *s = &c->coord.live[i];

        if (s->lost) {
            s->reminders = 0;
            s->remind_ms = now_ms + 2 * (uint64_t)c->ctx->opts.dead_ms;
        }
        s->lost = s->returned = 0;
    }
    pairs_mapped(c);
    c->coord.news = c->coord.late = 0;
}

/* When the next map or the next reminder is due. */
static void maps_wait(struct hth_commit *c, uint64_t now_ms)
{
    struct coord *o = &c->coord;

    o->stable_ms = pairs_next_stable_ms(c, now_ms);
    o->remind_ms = HTH_NEVER;
    for (uint32_t i = 0; i < c->map.notes; i++) {
        const struct hth_note *n = &c->map.note[i];
        uint64_t stable_ms = note_stable_ms(c, n, now_ms);

        if (n->lost && o->live[n->node].remind_ms < o->remind_ms)
            o->remind_ms = o->live[n->node].remind_ms;
        if (!n->lost && stable_ms > now_ms && stable_ms < o->stable_ms)
            o->stable_ms = stable_ms;
    }
}

static void maps_renew(struct hth_commit *c, uint64_t now_ms)
{
    struct hth_head next = c->head;
    struct hth_places map;
    uint32_t moved, stuck;
    int news = maps_has_news(c) || c->coord.late;

    if (maps_make(c, now_ms, &map, &moved, &stuck)) {
        c->coord.look = 1;
        c->coord.look_ms = now_ms + c->ctx->opts.retry_ms;
        return;
    }
    if (!news && !maps_differ(&map, &c->map)) {
        hth_places_fini(&map);
        maps_wait(c, now_ms);
        return;
    }
    next.keep = c->ctx->keep;
    maps_degrade(c, &next);
    maps_log(c, moved, stuck);
    if (head_append(c, &next, &map))
        return;
    maps_made(c, now_ms);
    maps_wait(c, now_ms);
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* Sends the newest head to lost nodes, less and less often. The head calls the node lost, so a node
 * that lives answers with ALIVE. */
static void maps_remind(struct hth_commit *c, uint64_t now_ms)
{
    for (uint32_t i = 0; i < c->map.notes; i++) {
        const struct hth_note *n = &c->map.note[i];
        struct liveness *s = n->node < c->ctx->epoch->nodes ? &c->coord.live[n->node] : NULL;
        uint64_t wait_ms = 2 * (uint64_t)c->ctx->opts.dead_ms;

        if (!s || !n->lost || now_ms < s->remind_ms)
            continue;
        wait_ms <<= s->reminders < 5 ? s->reminders++ : 5;
        s->remind_ms = now_ms + (wait_ms < REMIND_MS ? wait_ms : REMIND_MS);
        head_send(c, n->node, 1);
    }
    maps_wait(c, now_ms);
}

/* Before GO there are no promises that a late engine could have counted wrongly. */
static void maps_look_late(struct hth_commit *c)
{
    uint32_t still, busy;

    hth_session_late(c->ctx->session, &still, &busy);
    c->coord.late |=
            c->running && still + busy != c->coord.lates && !hth_breaks(c->ctx, HTH_BREAK_LATE);
    c->coord.lates = still + busy;
}

void maps_tick(struct hth_commit *c, uint64_t now_ms)
{
    maps_look_late(c);
    pairs_tick(c);
    for (uint32_t node; (node = pairs_silent(c)) != HTH_NODE_NONE;)
        maps_node_lost(c, node);
    if (maps_has_news(c) || c->coord.late || now_ms >= c->coord.stable_ms)
        maps_renew(c, now_ms);
    if (now_ms >= c->coord.remind_ms)
        maps_remind(c, now_ms);
}

/* A new engine has no record of when a returned node became reachable: it counts from now. */
void maps_begin(struct hth_commit *c)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock);

    for (uint32_t i = 0; i < c->ctx->epoch->nodes; i++)
        c->coord.live[i].since_ms = c->coord.live[i].remind_ms = now_ms;
    maps_look_late(c);
    c->coord.late = 0;
    pairs_begin(c, now_ms);
    maps_wait(c, now_ms);
}
