/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a job that all its ranks have dropped. If one rank keeps the job, or dies before it
 * drops it, all is kept.
 *
 *     a node      WANTED ──all its ranks dropped──► SAID ──DROP──► FREED ──quiet for a while──► over
 *     coordinator            all nodes have SAID: on record, DROP, until all have FREED, or it is enough
 *
 * Each message is repeated until its answer shows that it was received. The keep record has the
 * epoch up to which all saves are given up. A node that missed the message frees them with the next
 * recovery's plan, if any node still has that record. So the coordinator, which ends last, leaves
 * its record if a node has not answered. An engine that was killed in the middle finds its own
 * record and finishes.
 *
 * An engine that is over goes when its clients have gone: a rank of the next job that has found it
 * goes on with it and with the memory that it has.
 */
#include "drop.h"

#include "why.h"

#include "engine/state/client.h"
#include "engine/state/node_state.h"

#include "core/base/bytes.h"
#include "replication/commit/release.h"
#include "replication/transfer/transfer.h"

#include <stdlib.h>

#define SAY_MAX_MS 60000u /* at most between two repetitions */

enum { WANTED, SAID, FREED };

struct drop {
    uint32_t state; /* this node's */
    uint8_t *rank;  /* [world] 1: a local rank, and it has dropped */
    uint32_t ranks; /* how many have */
    uint64_t due_ms, wait_ms;
    int over;     /* no message is left to send */
    int answered; /* no record of it is needed here any more */
    int finished; /* another engine's drop, of which nothing is left */
    /* The coordinator's. */
    uint8_t *from; /* [nodes] the furthest state that each node has sent */
    int decided;
    uint64_t enough_ms; /* a node that has not answered by then is not waited for */
};

int drop_open(struct hth_node *n, struct hearth_error *err)
{
    n->drop = calloc(1, sizeof(*n->drop));
    if (!n->drop)
        return hth_fail(err, HEARTH_ENOMEM, 0, "engine");
    n->drop->due_ms = HTH_NEVER;
    return HEARTH_OK;
}

void drop_join(struct hth_node *n)
{
    free(n->drop->rank);
    free(n->drop->from);
    *n->drop = (struct drop){ .due_ms = HTH_NEVER };
}

void drop_close(struct hth_node *n)
{
    if (!n->drop)
        return;
    drop_join(n);
    free(n->drop);
    n->drop = NULL;
}

static void drop_say(struct hth_node *n, uint32_t state)
{
    unsigned char body[4];

    hth_put32(body, state);
    hth_tree_up(&n->ctx, HTH_KIND_CLOSE, body, sizeof(body));
}

/* ---- Our ranks ------------------------------------------------------------------------------- */

static uint32_t drop_local_ranks(const struct hth_node *n)
{
    uint32_t ranks = 0;

    for (uint32_t r = 0; r < n->epoch.world; r++)
        ranks += n->epoch.rank_node[r] == n->epoch.self;
    return ranks;
}

void drop_rank(struct hth_node *n, const struct client *c)
{
    if (!n->ctx.epoch || c->helper || c->epoch != n->epoch.epoch || c->nonce != n->epoch.nonce ||
            c->rank >= n->epoch.world || n->epoch.rank_node[c->rank] != n->epoch.self)
        return;
    if (!n->drop->rank)
        n->drop->rank = calloc(n->epoch.world, 1);
    if (!n->drop->rank || n->drop->rank[c->rank])
        return;
    n->drop->rank[c->rank] = 1;
    if (++n->drop->ranks < drop_local_ranks(n) || n->drop->state != WANTED)
        return;
    n->drop->state = SAID;
    n->drop->wait_ms = n->ctx.opts.retry_ms;
    n->drop->due_ms = hth_now_ms(&n->ctx.clock) + n->drop->wait_ms;
    drop_say(n, SAID);
}

/* ---- Freeing --------------------------------------------------------------------------------- */

/* The drop is on record before anything is freed: if this engine is killed, the next engine
 * finishes it. */
static void drop_record(struct hth_node *n)
{
    unsigned char bytes[HTH_KEEP_BYTES];
    struct hth_keep keep = { .epoch = n->epoch.epoch,
        .serial = n->ctx.keep.epoch == n->epoch.epoch ? n->ctx.keep.serial + 1 : 1,
        .dropped = n->epoch.epoch };
    struct hearth_error err;

    hth_keep_encode(&keep, bytes);
    if (n->env.store->ops->record_put(n->env.store, "keep", bytes, sizeof(bytes), &err))
        hth_say(&n->ctx.log, HEARTH_LOG_WARN, "keep-failed",
                "the job was dropped, and that cannot be put on record: %s", err.text);
    n->ctx.keep = keep;
}

static void drop_free_saves(struct hth_node *n)
{
    struct hth_held_save *next;

    for (struct hth_held_save *s = hth_holdings_first(&n->ctx); s; s = next) {
        next = s->next;
        if (s->removed || (!hth_save_foreign(s->id) && s->id.epoch > n->ctx.keep.dropped))
            continue;
        hth_save_release(&n->ctx, s);
    }
}

static void drop_all(struct hth_node *n)
{
    uint64_t now_ms = hth_now_ms(&n->ctx.clock);

    if (n->drop->state != FREED) {
        drop_record(n);
        hth_point(&n->ctx.points, "drop");
        n->drop->state = FREED;
        hth_commit_stop(n->commit);
        why_over(n, "the job was dropped before this was decided");
        (void)hth_transfer_make_way(&n->ctx); /* chunks of saves that are not known here */
        drop_free_saves(n);
        hth_say(&n->ctx.log, HEARTH_LOG_INFO, "dropped",
                "all ranks of all nodes have dropped the job: what was kept of it is freed");
    }
    if (!hth_is_coordinator(&n->ctx))
        n->drop->due_ms = now_ms + 3 * (uint64_t)n->ctx.opts.retry_ms;
    drop_say(n, FREED);
}

int drop_is_done(const struct hth_node *n)
{
    return n->drop->state == FREED;
}

void drop_resume(struct hth_node *n)
{
    if (!n->ctx.keep.dropped)
        return;
    drop_free_saves(n);
    n->drop->finished = 1;
    for (struct hth_held_save *s = hth_holdings_first(&n->ctx); s; s = s->next)
        n->drop->finished &= s->removed || hth_save_foreign(s->id);
}

/* ---- The coordinator
 * -------------------------------------------------------------------------- */

static uint32_t drop_count(const struct hth_node *n, uint8_t state)
{
    uint32_t nodes = 0;

    for (uint32_t i = 0; i < n->epoch.nodes; i++)
        nodes += n->drop->from[i] >= state;
    return nodes;
}

static void drop_tell_all(struct hth_node *n)
{
    unsigned char none[4] = { 0 };

    n->drop->due_ms = hth_now_ms(&n->ctx.clock) + n->ctx.opts.retry_ms;
    hth_tree_down(&n->ctx, HTH_KIND_DROP, none, sizeof(none));
}

static void drop_on_fact(struct hth_node *n, uint32_t origin, uint32_t state)
{
    if (!n->drop->from)
        n->drop->from = calloc(n->epoch.nodes, 1);
    if (!n->drop->from || origin >= n->epoch.nodes || state < SAID || state > FREED)
        return;
    if (n->drop->from[origin] < state)
        n->drop->from[origin] = (uint8_t)state;
    if (!n->drop->decided && drop_count(n, SAID) == n->epoch.nodes) {
        n->drop->decided = 1;
        n->drop->enough_ms = hth_now_ms(&n->ctx.clock) + 2 * (uint64_t)n->ctx.opts.dead_ms;
        drop_tell_all(n);
    }
    if (n->drop->state == FREED && drop_count(n, FREED) == n->epoch.nodes)
        n->drop->over = n->drop->answered = 1;
}

void drop_deliver(
        struct hth_node *n, uint32_t origin, uint16_t kind, const unsigned char *bytes, size_t len)
{
    if (kind == HTH_KIND_DROP)
        drop_all(n);
    else if (hth_is_coordinator(&n->ctx) && len == 4)
        drop_on_fact(n, origin, hth_get32(bytes));
}

/* ---- Time
 * -------------------------------------------------------------------------------------- */

void drop_tick(struct hth_node *n)
{
    uint64_t now_ms = hth_now_ms(&n->ctx.clock);

    if (n->drop->over || now_ms < n->drop->due_ms)
        return;
    if (n->drop->decided && now_ms < n->drop->enough_ms) {
        drop_tell_all(n);
    } else if (n->drop->state == FREED) {
        n->drop->over = 1;
        n->drop->answered = !hth_is_coordinator(&n->ctx);
    } else {
        drop_say(n, SAID);
        n->drop->wait_ms = n->drop->wait_ms < SAY_MAX_MS / 2 ? 2 * n->drop->wait_ms : SAY_MAX_MS;
        n->drop->due_ms = now_ms + n->drop->wait_ms;
    }
}

uint64_t drop_due_ms(const struct hth_node *n)
{
    return n->drop->over ? HTH_NEVER : n->drop->due_ms;
}

int drop_is_over(const struct hth_node *n)
{
    return n->drop->over;
}

enum hth_leftover drop_leftover(const struct hth_node *n)
{
    if ((n->drop->finished && n->epoch.epoch <= n->ctx.keep.dropped) || n->drop->answered)
        return HTH_LEAVE_NOTHING;
    return n->drop->state == FREED ? HTH_LEAVE_RECORDS : HTH_LEAVE_ALL;
}
