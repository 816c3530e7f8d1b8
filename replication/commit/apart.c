/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which nodes this one cannot reach, or cannot pull from. It says so of each node that the map gives it a place with
 * (a source of a copy that it holds, or a holder of a copy that it has), and of its parent and its children in the
 * tree, again and again, until the map has the pair. What other nodes hold is not asked here: the coordinator knows
 * the placement, and decides what moves.
 *
 *     well ──its connection is gone, or two pulls in a row stall──► said ──the map has the pair──► CUT
 *      ▲ a connection; a pull as long as the one that stalled        │                              │
 *      └────────────────────────────────────────────────────────────┘        a pull of a test comes: said
 *      ▲                                                                                            │
 *      └──────────────────────────────── the map does not have it any more ─────────────────────────┘
 */
#include "commit_state.h"

#include <string.h>

#define TEST_MS 60000u /* at most between two tests */
#define STALLS  2u     /* in a row: one alone may be of a node that stood still for a moment */

static struct away *away_find(struct hth_commit *c, uint32_t node)
{
    for (uint32_t i = 0; i < c->aways; i++)
        if (c->away[i].node == node)
            return &c->away[i];
    return NULL;
}

static void away_remove(struct hth_commit *c, struct away *a)
{
    if (a->test)
        hth_fetch_cancel(a->test);
    *a = c->away[--c->aways];
}

/* Or make, in place of the one that was noticed first. */
static struct away *away_get(struct hth_commit *c, uint32_t node)
{
    struct away *a = away_find(c, node);

    if (a)
        return a;
    if (c->aways == AWAYS_MAX) {
        if (c->away[0].test)
            hth_fetch_cancel(c->away[0].test);
        memmove(c->away, c->away + 1, --c->aways * sizeof(c->away[0]));
    }
    a = &c->away[c->aways++];
    *a = (struct away){ .node = node, .say_ms = HTH_NEVER };
    return a;
}

int apart_is_away(const struct hth_commit *c, uint32_t node)
{
    for (uint32_t i = 0; i < c->aways; i++)
        if (c->away[i].node == node)
            return c->away[i].down || c->away[i].cut;
    return 0;
}

/* Some rank's objects have a place on both nodes; in the tree they are parent and child. */
static int away_is_needed(const struct hth_commit *c, uint32_t node)
{
    uint32_t self = c->ctx->epoch->self;

    if (hth_tree_is_neighbour(c->ctx, node))
        return 1;
    for (uint32_t r = 0; r < c->ctx->epoch->world; r++)
        if (holders_have(c, r, self) && holders_have(c, r, node))
            return 1;
    return 0;
}

static int away_is_stalled(const struct hth_commit *c, const struct away *a)
{
    return a->stalls >= STALLS && !hth_breaks(c->ctx, HTH_BREAK_STALLED);
}

/* Said from now on, where it is to be said. What has passed before the map had the pair is taken
 * back at the next tick: the coordinator would else count the next report as its continuation, and
 * cut the pair at the first sign of a node that is silent to all. */
static void away_look(struct hth_commit *c, struct away *a)
{
    int can = !a->down && !away_is_stalled(c, a);
    int says = !a->cut && !can && away_is_needed(c, a->node);

    if (says && (a->say_ms == HTH_NEVER || a->over)) {
        a->says = 0;
        a->over = 0;
        a->say_ms = hth_now_ms(&c->ctx->clock);
    } else if (!says && !a->cut && !a->over) {
        a->over = can && a->say_ms != HTH_NEVER && a->says;
        a->say_ms = a->over ? hth_now_ms(&c->ctx->clock) : HTH_NEVER;
    }
}

/* It is well as far as this node knows. */
static void away_tidy(struct hth_commit *c, struct away *a)
{
    if (!a->down && !a->cut && !a->stalls && !a->over)
        away_remove(c, a);
}

/* ---- What is noticed ------------------------------------------------------------------------- */

/* The coordinator calls lost what it cannot reach, and a node that cannot reach it is lost. */
void apart_down(struct hth_commit *c, uint32_t node)
{
    struct away *a;

    if (!node || hth_is_coordinator(c->ctx) || c->ctx->down[node])
        return;
    a = away_get(c, node);
    a->down = 1;
    a->fine = 0;
    away_look(c, a);
    if (a->say_ms == HTH_NEVER) /* else it is said at the next tick */
        fact_unreached(c, node, UNREACHED_DOWN);
    for (struct track *t = c->tracks; t; t = t->next)
        if (t->repair_ms != HTH_NEVER) /* other nodes may have what it was to bring */
            t->repair_ms = hth_now_ms(&c->ctx->clock);
}

void apart_up(struct hth_commit *c, uint32_t node)
{
    struct away *a = away_find(c, node);

    if (!a)
        return;
    a->down = 0;
    if (a->cut)
        a->say_ms = hth_now_ms(&c->ctx->clock);
    away_look(c, a);
    away_tidy(c, a);
}

/* Pulls that are under way together stall together: that is once. */
static void apart_stalled(struct hth_commit *c, uint32_t node, uint64_t len)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock);
    struct away *a = away_get(c, node);

    if (!a->stalls || now_ms - a->stall_ms >= c->ctx->opts.retry_ms) {
        a->stalls += a->stalls < STALLS;
        a->stall_ms = now_ms;
    }
    a->stall_bytes = a->stall_bytes && a->stall_bytes < len ? a->stall_bytes : len;
    a->fine = 0;
    if (a->test) /* each stall costs the connection: the test asks once */
        hth_fetch_cancel(a->test);
    away_look(c, a);
}

/* A shorter pull says nothing: it may fit into packets that pass. */
void apart_pulled(struct hth_commit *c, uint32_t node, uint64_t len, int code)
{
    struct away *a;

    if (c->ctx->down[node])
        return;
    if (code) {
        apart_stalled(c, node, len);
        return;
    }
    a = away_find(c, node);
    if (!a || !a->stalls || len < a->stall_bytes)
        return;
    a->stalls = 0;
    a->stall_bytes = 0;
    away_look(c, a);
    away_tidy(c, a);
}

/* ---- A pair that the map has ----------------------------------------------------------------- */

static void away_tested(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err)
{
    struct hth_commit *c = self;

    (void)err;
    for (uint32_t i = 0; i < c->aways; i++) {
        struct away *a = &c->away[i];

        if (a->test != fetch)
            continue;
        a->test = NULL;
        a->fine = a->cut && !a->down && !code;
        a->say_ms = a->fine ? hth_now_ms(&c->ctx->clock) : a->say_ms;
    }
    if (!code)
        hth_fetch_release(fetch);
}

/* 2: its rank wrote it, and it is surely there; 1: the map gives it a copy; 0: it has none. */
static int away_has(const struct hth_commit *c, uint32_t node, const struct hth_object *o)
{
    uint32_t rank = stand_in(c->ctx, o->owner);

    if (o->kind != HTH_OBJECT_SHARD || !holders_have(c, rank, node))
        return 0;
    return 1 + (c->ctx->epoch->rank_node[rank] == node);
}

/* Of this save, the object that is most surely on the node; NULL: none is. */
static const struct hth_object *away_object_of(
        const struct hth_commit *c, uint32_t node, const struct hth_held_save *s)
{
    const struct hth_object *best = NULL;
    int has = 0;

    for (uint32_t i = 0; i < s->manifest.objects; i++) {
        const struct hth_object *o = &s->manifest.object[i];
        int now = away_has(c, node, o);

        best = now > has ? o : best;
        has = now > has ? now : has;
    }
    return best;
}

/* An object of what is kept that is on the node; NULL: there is none. */
static const struct hth_object *away_object(
        const struct hth_commit *c, uint32_t node, struct hth_save_id *out_save)
{
    const struct hth_object *best = NULL;

    for (uint32_t k = 0; k < c->ctx->keep.saves && !best; k++) {
        const struct hth_held_save *s = hth_holdings_find(c->ctx, c->ctx->keep.save[k]);

        if (s && s->has_manifest && (best = away_object_of(c, node, s)))
            *out_save = s->id;
    }
    return best;
}

/* Its block and first chunk are pulled, into memory that is given back. Nothing to pull: a
 * connection is enough. */
static void away_test(struct hth_commit *c, struct away *a)
{
    struct hth_fetch_want want = { .count = 1,
        .sources = &a->node,
        .class = HTH_FETCH_REPLICA,
        .len = HTH_BLOCK + 1,
        .deadline_ms = 4 * c->ctx->opts.dead_ms,
        .done = away_tested,
        .self = c };
    const struct hth_object *o = away_object(c, a->node, &want.save);

    if (!o) {
        a->fine = 1;
        return;
    }
    want.object = *o;
    if (!o->data_len)
        want.len = HTH_BLOCK;
    if (hth_fetch_start(c->ctx, &want, &a->test, NULL))
        a->test = NULL; /* it is tried again */
    a->tests++;
}

/* Less and less often: a test that stalls takes with it what is on its way. */
static uint64_t away_wait_ms(const struct hth_commit *c, const struct away *a)
{
    uint64_t wait_ms = (4 * (uint64_t)c->ctx->opts.dead_ms) << (a->tests < 5 ? a->tests : 5);

    return wait_ms < TEST_MS ? wait_ms : TEST_MS;
}

static void away_try(struct hth_commit *c, struct away *a, uint64_t now_ms)
{
    const struct hth_ctx_opts *o = &c->ctx->opts;

    a->say_ms = now_ms + away_wait_ms(c, a);
    if (!hth_session_is_connected(c->ctx->session, a->node)) {
        fact_knock(c, a->node);
        return;
    }
    a->down = 0;
    if (!a->fine && !a->test)
        away_test(c, a);
    if (!a->fine)
        return;
    a->say_ms = now_ms + o->retry_ms;
    fact_unreached(c, a->node, UNREACHED_AGAIN);
}

static void away_cut(struct hth_commit *c, uint32_t node)
{
    struct away *a = away_get(c, node);

    if (a->cut)
        return;
    a->cut = 1;
    a->fine = a->over = 0;
    a->tests = 0;
    a->say_ms = hth_now_ms(&c->ctx->clock) + 2 * (uint64_t)c->ctx->opts.dead_ms;
    hth_transfer_peer_apart(c->ctx, node);
}

static void away_mend(struct away *a)
{
    a->cut = a->fine = 0;
    a->stalls = 0;
    a->stall_bytes = 0;
    a->say_ms = HTH_NEVER;
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* At the coordinator the fact has its effect at once, on what is known here too. */
static void away_take_back(struct hth_commit *c, struct away *a)
{
    uint32_t node = a->node;

    a->over = 0;
    a->say_ms = HTH_NEVER;
    away_tidy(c, a);
    fact_unreached(c, node, UNREACHED_AGAIN);
}

void apart_mapped(struct hth_commit *c)
{
    uint32_t self = c->ctx->epoch->self;

    for (uint32_t i = c->aways; i-- > 0;) {
        struct away *a = &c->away[i];

        if (a->cut && !hth_tree_is_cut(c->ctx, self, a->node))
            away_mend(a);
        if (c->ctx->down[a->node] && !a->cut)
            away_remove(c, a);
    }
    for (uint32_t i = 0; i < c->ctx->aparts; i++) {
        const struct hth_apart *p = &c->ctx->apart[i];

        if (p->cut && (p->a == self || p->b == self))
            away_cut(c, p->a == self ? p->b : p->a);
    }
    for (uint32_t i = c->aways; i-- > 0;) {
        away_look(c, &c->away[i]);
        away_tidy(c, &c->away[i]);
    }
}

void apart_forget(struct hth_commit *c)
{
    while (c->aways)
        away_remove(c, &c->away[0]);
}

int apart_any(const struct hth_commit *c)
{
    for (uint32_t i = 0; i < c->aways; i++)
        if (c->away[i].down || c->away[i].cut)
            return 1;
    return 0;
}

void apart_tick(struct hth_commit *c, uint64_t now_ms)
{
    for (uint32_t i = 0; i < c->aways; i++) {
        struct away *a = &c->away[i];

        if (now_ms < a->say_ms)
            continue;
        if (a->cut || a->over) {
            if (a->cut)
                away_try(c, a, now_ms);
            else
                away_take_back(c, a);
            continue;
        }
        a->say_ms = now_ms + ((uint64_t)c->ctx->opts.retry_ms << (a->says < 3 ? a->says++ : 3));
        fact_knock(c, a->node);
        fact_unreached(c, a->node, a->down ? UNREACHED_DOWN : UNREACHED_STALLED);
    }
}

uint64_t apart_due_ms(const struct hth_commit *c)
{
    uint64_t due_ms = HTH_NEVER;

    for (uint32_t i = 0; i < c->aways; i++)
        due_ms = c->away[i].say_ms < due_ms ? c->away[i].say_ms : due_ms;
    return due_ms;
}
