/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is lost and who is back, at the coordinator. Both only mark; tick makes one map of all that has
 * come since, so that many losses at once are one word.
 *
 *     well ──its end is noticed──► LOST, noted in the map ──a sign of life newer than the note──► back
 *       ▲                            └ asked now and then whether it is there                      │
 *       └──────────── 2 x dead_ms later, unless it was lost twice in ten minutes ──────────────────┘
 *
 * A sign is any fact, by whatever way it comes, with a newer life or count; or a connection. Life is a node's;
 * reach is a pair's: pairs.c.
 *
 * Promises that lay here while this engine was late, because its machine stood still or its thread was busy, or that
 * it had before, may be of a machine that is lost since: its last pings lay here too, and count as heard now. A map of
 * another name asks all for them again: who says it under that name has lived since.
 */
#include "commit_state.h"

#include "core/base/bytes.h"

#include <stdlib.h>
#include <string.h>

#define TELL_MS 60000u /* at most until a lost node is told again */

/* ---- What is heard -------------------------------------------------------------------------------- */

static int sign_is_newer(uint64_t life, uint64_t count, uint64_t than_life, uint64_t than_count)
{
    return life > than_life || (life == than_life && count > than_count);
}

void reach_sign(struct hth_commit *c, uint32_t node, uint64_t life, uint64_t count)
{
    const struct hth_note *n;
    struct sign *s;

    if (node == 0 || node >= c->ctx->epoch->nodes)
        return;
    s = &c->coord.sign[node];
    s->overtaken = !sign_is_newer(life, count, s->life, s->count);
    if (s->overtaken)
        return;
    s->life = life;
    s->count = count;
    n = hth_holders_note(&c->map, node);
    if (n && n->lost && !s->found && sign_is_newer(life, count, n->life, n->count) &&
            !hth_breaks(c->ctx, HTH_BREAK_FOUND))
        reach_found(c, node);
}

void reach_lost(struct hth_commit *c, uint32_t node)
{
    if (node == 0 || node >= c->ctx->epoch->nodes)
        return;
    c->coord.sign[node].found = 0;
    pairs_lost(c, node);
    if (holders_lost(c, node))
        return;
    c->coord.sign[node].lost = 1;
    c->coord.look = c->coord.news = 1;
}

void reach_found(struct hth_commit *c, uint32_t node)
{
    if (node == 0 || node >= c->ctx->epoch->nodes)
        return;
    c->coord.sign[node].lost = 0;
    if (holders_lost(c, node)) {
        c->coord.sign[node].found = 1;
        c->coord.look = c->coord.news = 1;
    } else if (c->head.position) { /* it may have been away for a moment, and missed a word */
        append_tell(c, node, 1);
    }
}

/* ---- The next map --------------------------------------------------------------------------------- */

static uint64_t reach_wall_ms(const struct hth_commit *c)
{
    return c->ctx->clock.wall_ms(c->ctx->clock.self);
}

/* From when on a node that is not lost counts as well. */
static uint64_t note_well_ms(const struct hth_commit *c, const struct hth_note *n, uint64_t now_ms)
{
    return pairs_well_ms(c, c->coord.sign[n->node].well_ms, n->last_ms, n->before_ms, now_ms);
}

/* The note of the node in the next map; 0: none. */
static int note_next(
        const struct hth_commit *c, uint32_t node, uint64_t now_ms, struct hth_note *out)
{
    const struct hth_note *old = hth_holders_note(&c->map, node);
    const struct sign *s = &c->coord.sign[node];

    *out = old ? *old : (struct hth_note){ .node = node };
    if (s->lost) {
        out->lost = 1;
        out->life = s->life;
        out->count = s->count;
        out->before_ms = out->last_ms;
        out->last_ms = reach_wall_ms(c);
        return 1;
    }
    if (!old)
        return 0;
    if (s->found)
        out->lost = 0;
    return out->lost || now_ms < note_well_ms(c, out, now_ms) || pairs_recent(c, out->last_ms);
}

static int reach_notes(
        const struct hth_commit *c, uint64_t now_ms, struct hth_holders *map, uint8_t *is)
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
        is[i] = n.lost ? HTH_LOST : now_ms < note_well_ms(c, &n, now_ms) ? HTH_BACK : HTH_WELL;
    }
    return HEARTH_OK;
}

static int reach_make(struct hth_commit *c, uint64_t now_ms, struct hth_holders *map,
        uint32_t *out_moved, uint32_t *out_stuck)
{
    uint8_t *is = calloc(c->ctx->epoch->nodes, sizeof(*is));
    struct hth_pair pair[HTH_APART_MAX];
    struct hth_remap in = { .epoch = c->ctx->epoch,
        .base = &c->base,
        .last = &c->map,
        .settled = c->head.settled,
        .is = is,
        .min_copies = c->ctx->opts.min_copies,
        .any_source = hth_breaks(c->ctx, HTH_BREAK_SOURCE),
        .stay = hth_breaks(c->ctx, HTH_BREAK_HOME),
        .pair = pair };
    int rc = is ? HEARTH_OK : HEARTH_ENOMEM;

    *map = (struct hth_holders){ 0 };
    for (uint32_t i = 0; i < c->ctx->epoch->nodes && is; i++)
        if (c->coord.sign[i].found)
            c->coord.sign[i].well_ms = now_ms;
    rc = rc ? rc : reach_notes(c, now_ms, map, is);
    rc = rc ? rc : pairs_next(c, now_ms, map);
    in.pairs = rc ? 0 : pairs_are(c, now_ms, map, pair);
    rc = rc ? rc : hth_remap(&in, &map->move, &map->moves, out_moved, out_stuck);
    free(is);
    if (rc)
        hth_holders_fini(map);
    return rc;
}

static int reach_has_news(const struct hth_commit *c)
{
    for (uint32_t i = 1; i < c->ctx->epoch->nodes && c->coord.news; i++)
        if (c->coord.sign[i].lost || c->coord.sign[i].found)
            return 1;
    return pairs_have_news(c);
}

/* Places have changed, not only who had them before. */
static int reach_has_moved(const struct hth_holders *a, const struct hth_holders *b)
{
    if (a->moves != b->moves)
        return 1;
    for (uint32_t i = 0; i < a->moves; i++)
        if (a->move[i].rank != b->move[i].rank || a->move[i].place != b->move[i].place ||
                a->move[i].node != b->move[i].node)
            return 1;
    return 0;
}

static void reach_say(const struct hth_commit *c, uint32_t moved, uint32_t stuck)
{
    for (uint32_t i = 1; i < c->ctx->epoch->nodes; i++) {
        if (c->coord.sign[i].lost)
            hth_say(&c->ctx->log, HEARTH_LOG_WARN, "peer-lost",
                    "node %s is lost: %" PRIu32 " places of ranks' objects move to others, %" PRIu32
                    " have nowhere to go",
                    c->ctx->epoch->member[i].node, moved, stuck);
        else if (c->coord.sign[i].found)
            hth_say(&c->ctx->log, HEARTH_LOG_INFO, "peer-back", "node %s is back",
                    c->ctx->epoch->member[i].node);
    }
    pairs_say(c, moved, stuck);
}

/* Copies of what is kept were on who is lost. */
static void reach_degrade(const struct hth_commit *c, struct hth_head *next)
{
    uint32_t all = (UINT32_C(1) << next->keep.saves) - 1;
    int lost = 0;

    for (uint32_t i = 1; i < c->ctx->epoch->nodes; i++)
        lost |= c->coord.sign[i].lost;
    if (!lost || next->keep.degraded == all)
        return;
    next->keep.degraded = all;
    next->keep.serial++;
}

static void reach_heard(struct hth_commit *c, uint64_t now_ms)
{
    for (uint32_t i = 1; i < c->ctx->epoch->nodes; i++) {
        struct sign *s = &c->coord.sign[i];

        if (s->lost) {
            s->tells = 0;
            s->tell_ms = now_ms + 2 * (uint64_t)c->ctx->opts.dead_ms;
        }
        s->lost = s->found = 0;
    }
    pairs_heard(c);
    c->coord.news = c->coord.late = 0;
}

/* When somebody who is back will be well. */
static void reach_wait(struct hth_commit *c, uint64_t now_ms)
{
    struct coord *o = &c->coord;

    o->home_ms = pairs_home_ms(c, now_ms);
    o->tell_ms = HTH_NEVER;
    for (uint32_t i = 0; i < c->map.notes; i++) {
        const struct hth_note *n = &c->map.note[i];
        uint64_t well_ms = note_well_ms(c, n, now_ms);

        if (n->lost && o->sign[n->node].tell_ms < o->tell_ms)
            o->tell_ms = o->sign[n->node].tell_ms;
        if (!n->lost && well_ms > now_ms && well_ms < o->home_ms)
            o->home_ms = well_ms;
    }
}

static void reach_remap(struct hth_commit *c, uint64_t now_ms)
{
    struct hth_head next = c->head;
    struct hth_holders map;
    uint32_t moved, stuck;
    int news = reach_has_news(c) || c->coord.late;

    if (reach_make(c, now_ms, &map, &moved, &stuck)) {
        c->coord.look = 1;
        c->coord.look_ms = now_ms + c->ctx->opts.retry_ms;
        return;
    }
    if (!news && !reach_has_moved(&map, &c->map)) {
        hth_holders_fini(&map);
        reach_wait(c, now_ms);
        return;
    }
    next.keep = c->ctx->keep;
    reach_degrade(c, &next);
    reach_say(c, moved, stuck);
    if (append_head(c, &next, &map))
        return;
    reach_heard(c, now_ms);
    reach_wait(c, now_ms);
}

/* ---- Time ------------------------------------------------------------------------------------------ */

/* The newest head calls the node lost, so the node says ALIVE. Told less and less often. */
static void reach_tell(struct hth_commit *c, uint64_t now_ms)
{
    for (uint32_t i = 0; i < c->map.notes; i++) {
        const struct hth_note *n = &c->map.note[i];
        struct sign *s = n->node < c->ctx->epoch->nodes ? &c->coord.sign[n->node] : NULL;
        uint64_t wait_ms = 2 * (uint64_t)c->ctx->opts.dead_ms;

        if (!s || !n->lost || now_ms < s->tell_ms)
            continue;
        wait_ms <<= s->tells < 5 ? s->tells++ : 5;
        s->tell_ms = now_ms + (wait_ms < TELL_MS ? wait_ms : TELL_MS);
        append_tell(c, n->node, 1);
    }
    reach_wait(c, now_ms);
}

/* Before GO nobody has promised anything. */
static void reach_look_late(struct hth_commit *c)
{
    uint32_t still, busy;

    hth_session_late(c->ctx->session, &still, &busy);
    c->coord.late |=
            c->running && still + busy != c->coord.lates && !hth_breaks(c->ctx, HTH_BREAK_LATE);
    c->coord.lates = still + busy;
}

void reach_tick(struct hth_commit *c, uint64_t now_ms)
{
    reach_look_late(c);
    pairs_tick(c);
    if (reach_has_news(c) || c->coord.late || now_ms >= c->coord.home_ms)
        reach_remap(c, now_ms);
    if (now_ms >= c->coord.tell_ms)
        reach_tell(c, now_ms);
}

/* An engine that is new does not know for how long who is back has been well. */
void reach_begin(struct hth_commit *c)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock);

    for (uint32_t i = 0; i < c->ctx->epoch->nodes; i++)
        c->coord.sign[i].well_ms = c->coord.sign[i].tell_ms = now_ms;
    reach_look_late(c);
    c->coord.late = 0;
    pairs_begin(c, now_ms);
    reach_wait(c, now_ms);
}
