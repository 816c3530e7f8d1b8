/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that this one cannot reach, or cannot pull from. It reports (UNREACHABLE) each such node
 * that has a place of the same rank's objects, its parent and its children in the tree, and the
 * coordinator, again and again, until the map has the pair. The coordinator reports any node. It
 * knows the placement, and decides which copies move.
 *
 *     reachable ──no connection, or two pulls in a row stall──► reported ──the map has the pair──┐
 *      ▲ ▲ a connection; a pull as long as the one that stalled │                                │
 *      │ └──────────────────────────────────────────────────────┘                                ▼
 *      └── the map does not have the pair any more ── reported ◄── a pull of a test comes ── in map
 */
#include "commit_state.h"

#include <string.h>

#define TEST_MS 60000u /* at most between two tests */
#define STALLS  2u     /* in a row: a node that stood still for a moment causes one */

static struct unreachable *unreachable_find(struct hth_commit *c, uint32_t node)
{
    for (uint32_t i = 0; i < c->unreachables; i++)
        if (c->unreachable[i].node == node)
            return &c->unreachable[i];
    return NULL;
}

static void unreachable_remove(struct hth_commit *c, struct unreachable *a)
{
    if (a->test)
        hth_fetch_cancel(a->test);
    *a = c->unreachable[--c->unreachables];
}

/* Finds the entry or makes it; if all are in use, in place of the oldest. */
static struct unreachable *unreachable_get(struct hth_commit *c, uint32_t node)
{
    struct unreachable *a = unreachable_find(c, node);

    if (a)
        return a;
    if (c->unreachables == UNREACHABLES_MAX) {
        if (c->unreachable[0].test)
            hth_fetch_cancel(c->unreachable[0].test);
        memmove(c->unreachable, c->unreachable + 1, --c->unreachables * sizeof(c->unreachable[0]));
    }
    a = &c->unreachable[c->unreachables++];
    *a = (struct unreachable){
        .node = node, .send_ms = HTH_NEVER, .since_ms = hth_now_ms(&c->ctx->clock)
    };
    return a;
}

int unreachable_is(const struct hth_commit *c, uint32_t node)
{
    for (uint32_t i = 0; i < c->unreachables; i++)
        if (c->unreachable[i].node == node)
            return c->unreachable[i].disconnected || c->unreachable[i].in_map;
    return 0;
}

/* 1: the two nodes must reach each other: some rank's objects have a place on both, they are parent
 * and child in the tree, or one is the coordinator. */
static int unreachable_is_needed(const struct hth_commit *c, uint32_t node)
{
    uint32_t self = c->ctx->epoch->self;

    if (node == 0 || self == 0 || hth_tree_is_neighbour(c->ctx, node))
        return 1;
    for (uint32_t r = 0; r < c->ctx->epoch->world; r++)
        if (places_have(c, r, self) && places_have(c, r, node))
            return 1;
    return 0;
}

static int unreachable_is_stalled(const struct hth_commit *c, const struct unreachable *a)
{
    return a->stalls >= STALLS && !hth_breaks(c->ctx, HTH_BREAK_STALLED);
}

/* Reports the node from now on if the two must reach each other. A report whose cause has ended
 * before the map had the pair is taken back at the next tick. Otherwise the coordinator would count
 * a later report as its continuation, and call the pair unreachable at once. */
static void unreachable_update(struct hth_commit *c, struct unreachable *a)
{
    int can = !a->disconnected && !unreachable_is_stalled(c, a);
    int sends = !a->in_map && !can && unreachable_is_needed(c, a->node);

    if (sends && (a->send_ms == HTH_NEVER || a->retract)) {
        a->sends = 0;
        a->retract = 0;
        a->send_ms = hth_now_ms(&c->ctx->clock);
    } else if (!sends && !a->in_map && !a->retract) {
        a->retract = can && a->send_ms != HTH_NEVER && a->sends;
        a->send_ms = a->retract ? hth_now_ms(&c->ctx->clock) : HTH_NEVER;
    }
}

/* 1: nothing is known against the node any more, and `a` was removed. */
static int unreachable_tidy(struct hth_commit *c, struct unreachable *a)
{
    if (a->disconnected || a->in_map || a->stalls || a->retract)
        return 0;
    unreachable_remove(c, a);
    return 1;
}

/* ---- Connections and pulls ------------------------------------------------------------------- */

/* Not between the coordinator and its children in the tree: a child without this connection is
 * lost. */
void unreachable_disconnected(struct hth_commit *c, uint32_t node)
{
    struct unreachable *a;

    if (c->ctx->lost[node] ||
            ((!node || hth_is_coordinator(c->ctx)) && hth_tree_is_neighbour(c->ctx, node)))
        return;
    a = unreachable_get(c, node);
    a->disconnected = 1;
    a->test_passed = 0;
    unreachable_update(c, a);
    if (a->send_ms == HTH_NEVER) /* otherwise it is reported at the next tick */
        fact_unreachable(c, node, REPORT_DISCONNECTED);
    for (struct track *t = c->tracks; t; t = t->next)
        if (t->repair_ms != HTH_NEVER) /* other nodes may have the copies */
            t->repair_ms = hth_now_ms(&c->ctx->clock);
}

void unreachable_connected(struct hth_commit *c, uint32_t node)
{
    struct unreachable *a = unreachable_find(c, node);

    if (!a)
        return;
    a->disconnected = 0;
    if (a->in_map)
        a->send_ms = hth_now_ms(&c->ctx->clock);
    unreachable_update(c, a);
    (void)unreachable_tidy(c, a);
}

/* Pulls that run at the same time stall at the same time: they count as one. */
static void unreachable_pull_stalled(struct hth_commit *c, uint32_t node, uint64_t len)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock);
    struct unreachable *a = unreachable_get(c, node);

    if (!a->stalls || now_ms - a->stall_ms >= c->ctx->opts.retry_ms) {
        a->stalls += a->stalls < STALLS;
        a->stall_ms = now_ms;
    }
    a->stall_bytes = a->stall_bytes && a->stall_bytes < len ? a->stall_bytes : len;
    a->test_passed = 0;
    if (a->test) /* each stall costs the connection: the test asks once */
        hth_fetch_cancel(a->test);
    unreachable_update(c, a);
}

/* A shorter pull proves nothing: it may fit into packets that pass. */
void unreachable_pulled(struct hth_commit *c, uint32_t node, uint64_t len, int code)
{
    struct unreachable *a;

    if (c->ctx->lost[node])
        return;
    if (code) {
        unreachable_pull_stalled(c, node, len);
        return;
    }
    a = unreachable_find(c, node);
    if (!a || !a->stalls || len < a->stall_bytes)
        return;
    a->stalls = 0;
    a->stall_bytes = 0;
    unreachable_update(c, a);
    (void)unreachable_tidy(c, a);
}

/* ---- A pair that the map has ----------------------------------------------------------------- */

static void unreachable_tested(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err)
{
    struct hth_commit *c = self;

    (void)err;
    for (uint32_t i = 0; i < c->unreachables; i++) {
        struct unreachable *a = &c->unreachable[i];

        if (a->test != fetch)
            continue;
        a->test = NULL;
        a->test_passed = a->in_map && !a->disconnected && !code;
        a->send_ms = a->test_passed ? hth_now_ms(&c->ctx->clock) : a->send_ms;
    }
    if (!code)
        hth_fetch_release(fetch);
}

/* 2: a rank of the node wrote the object, so it is there; 1: the map gives the node a copy; 0:
 * no. */
static int unreachable_has(const struct hth_commit *c, uint32_t node, const struct hth_object *o)
{
    uint32_t rank = stand_in(c->ctx, o->owner);

    if (o->kind != HTH_OBJECT_SHARD || !places_have(c, rank, node))
        return 0;
    return 1 + (c->ctx->epoch->rank_node[rank] == node);
}

/* The object of this save that is most likely on the node; NULL: none is. */
static const struct hth_object *unreachable_object_of(
        const struct hth_commit *c, uint32_t node, const struct hth_held_save *s)
{
    const struct hth_object *best = NULL;
    int has = 0;

    for (uint32_t i = 0; i < s->manifest.objects; i++) {
        const struct hth_object *o = &s->manifest.object[i];
        int now = unreachable_has(c, node, o);

        best = now > has ? o : best;
        has = now > has ? now : has;
    }
    return best;
}

/* An object of a kept save that is on the node; NULL: there is none. */
static const struct hth_object *unreachable_object(
        const struct hth_commit *c, uint32_t node, struct hth_save_id *out_save)
{
    const struct hth_object *best = NULL;

    for (uint32_t k = 0; k < c->ctx->keep.saves && !best; k++) {
        const struct hth_held_save *s = hth_holdings_find(c->ctx, c->ctx->keep.save[k]);

        if (s && s->has_manifest && (best = unreachable_object_of(c, node, s)))
            *out_save = s->id;
    }
    return best;
}

/* Pulls the block and first chunk of an object, into memory that is given back. If there is no
 * object to pull, a connection is enough. */
static void unreachable_test(struct hth_commit *c, struct unreachable *a)
{
    struct hth_fetch_want want = { .count = 1,
        .sources = &a->node,
        .class = HTH_FETCH_REPLICA,
        .len = HTH_BLOCK + 1,
        .deadline_ms = 4 * c->ctx->opts.dead_ms,
        .done = unreachable_tested,
        .self = c };
    const struct hth_object *o = unreachable_object(c, a->node, &want.save);

    if (!o) {
        a->test_passed = 1;
        return;
    }
    want.object = *o;
    if (!o->data_len)
        want.len = HTH_BLOCK;
    if (hth_fetch_start(c->ctx, &want, &a->test, NULL))
        a->test = NULL; /* the test is repeated */
    a->tests++;
}

/* The wait grows with each test: a test that stalls ends the connection, and the transfers on
 * it. */
static uint64_t unreachable_wait_ms(const struct hth_commit *c, const struct unreachable *a)
{
    uint64_t wait_ms = (4 * (uint64_t)c->ctx->opts.dead_ms) << (a->tests < 5 ? a->tests : 5);

    return wait_ms < TEST_MS ? wait_ms : TEST_MS;
}

static void unreachable_try(struct hth_commit *c, struct unreachable *a, uint64_t now_ms)
{
    const struct hth_ctx_opts *o = &c->ctx->opts;

    a->send_ms = now_ms + unreachable_wait_ms(c, a);
    if (!hth_session_is_connected(c->ctx->session, a->node)) {
        fact_dial(c, a->node);
        return;
    }
    a->disconnected = 0;
    if (!a->test_passed && !a->test)
        unreachable_test(c, a);
    if (!a->test_passed)
        return;
    a->send_ms = now_ms + o->retry_ms;
    fact_unreachable(c, a->node, REPORT_REACHABLE);
}

static void unreachable_enter_map(struct hth_commit *c, uint32_t node)
{
    struct unreachable *a = unreachable_get(c, node);

    if (a->in_map)
        return;
    a->in_map = 1;
    a->test_passed = a->retract = 0;
    a->tests = 0;
    a->send_ms = hth_now_ms(&c->ctx->clock) + 2 * (uint64_t)c->ctx->opts.dead_ms;
    hth_transfer_peer_unreachable(c->ctx, node);
}

static void unreachable_leave_map(struct unreachable *a)
{
    a->in_map = a->test_passed = 0;
    a->stalls = 0;
    a->stall_bytes = 0;
    a->send_ms = HTH_NEVER;
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* Last: the report may take effect within the call, on `a` too. */
static void unreachable_retract(struct hth_commit *c, struct unreachable *a)
{
    uint32_t node = a->node;

    a->retract = 0;
    a->send_ms = HTH_NEVER;
    (void)unreachable_tidy(c, a);
    fact_unreachable(c, node, REPORT_REACHABLE);
}

void unreachable_mapped(struct hth_commit *c)
{
    uint32_t self = c->ctx->epoch->self;

    for (uint32_t i = c->unreachables; i-- > 0;) {
        struct unreachable *a = &c->unreachable[i];

        if (a->in_map && !hth_tree_is_unreachable(c->ctx, self, a->node))
            unreachable_leave_map(a);
        if (c->ctx->lost[a->node] && !a->in_map)
            unreachable_remove(c, a);
    }
    for (uint32_t i = 0; i < c->ctx->pairs; i++) {
        const struct hth_pair_note *p = &c->ctx->pair[i];

        if (p->unreachable && (p->a == self || p->b == self))
            unreachable_enter_map(c, p->a == self ? p->b : p->a);
    }
    for (uint32_t i = c->unreachables; i-- > 0;) {
        unreachable_update(c, &c->unreachable[i]);
        (void)unreachable_tidy(c, &c->unreachable[i]);
    }
}

void unreachable_forget(struct hth_commit *c)
{
    while (c->unreachables)
        unreachable_remove(c, &c->unreachable[0]);
}

int unreachable_any(const struct hth_commit *c)
{
    for (uint32_t i = 0; i < c->unreachables; i++)
        if (c->unreachable[i].disconnected || c->unreachable[i].in_map)
            return 1;
    return 0;
}

void unreachable_tick(struct hth_commit *c, uint64_t now_ms)
{
    for (uint32_t i = 0; i < c->unreachables; i++) {
        struct unreachable *a = &c->unreachable[i];

        if (now_ms < a->send_ms)
            continue;
        if (a->in_map || a->retract) {
            if (a->in_map)
                unreachable_try(c, a, now_ms);
            else
                unreachable_retract(c, a);
            continue;
        }
        a->send_ms = now_ms + ((uint64_t)c->ctx->opts.retry_ms << (a->sends < 3 ? a->sends++ : 3));
        fact_dial(c, a->node);
        fact_unreachable(c, a->node, a->disconnected ? REPORT_DISCONNECTED : REPORT_STALLED);
    }
}

uint64_t unreachable_due_ms(const struct hth_commit *c)
{
    uint64_t due_ms = HTH_NEVER;

    for (uint32_t i = 0; i < c->unreachables; i++)
        due_ms = c->unreachable[i].send_ms < due_ms ? c->unreachable[i].send_ms : due_ms;
    return due_ms;
}
