/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining. The ranks have gathered who is there; the first of this node to say so makes the engine
 * leave its old session, write the epoch record, and listen to the new members only. The others of
 * the node say the same and are told so.
 *
 *     JOIN ──► in the epoch ──► it can take part ───────────────► recover
 *                  └──► it cannot, or is told that another cannot ──► failed: every rank that joins,
 *                       recovers or begins hears the same sentence, until a newer epoch is joined
 */
#include "node_state.h"

#include <stdlib.h>
#include <string.h>

/* The engine's command line comes first, then what the ranks say. */
static void take_times(struct hth_node *n)
{
    const struct hth_session_opts *own = &n->env.session;
    struct hth_local_opts *o = &n->opts;

    o->heartbeat_ms = own->heartbeat_ms ? own->heartbeat_ms : o->heartbeat_ms;
    o->dead_ms = own->dead_ms ? own->dead_ms : o->dead_ms;
    o->stall_ms = own->stall_ms ? own->stall_ms : o->stall_ms;
    if (o->dead_ms)
        n->ctx.opts.dead_ms = o->dead_ms;
    hth_session_times(n->ctx.session, o->heartbeat_ms, o->dead_ms, o->stall_ms);
}

static void take_opts(struct hth_node *n, const struct hth_local_opts *o)
{
    struct hth_ctx_opts *to = &n->ctx.opts;

    n->opts = *o;
    n->opts.linger_s = o->linger_s ? o->linger_s : n->env.linger_s ? n->env.linger_s : LINGER_S;
    to->copies = o->copies ? o->copies : 1;
    if (to->copies > HTH_COPIES_MAX)
        to->copies = HTH_COPIES_MAX;
    to->min_copies = o->min_copies && o->min_copies <= to->copies ? o->min_copies : to->copies;
    to->keep = o->keep ? o->keep : 1;
    if (to->keep > HTH_KEEP_MAX)
        to->keep = HTH_KEEP_MAX;
    to->allow_degraded = o->allow_degraded;
    to->recover_ms = o->recover_ms ? o->recover_ms : 300000;
    to->save_ms = o->save_ms ? o->save_ms : 600000;
    to->inflight_bytes = (uint64_t)(o->inflight_mib ? o->inflight_mib : 64) << 20;
    n->opts.copies = to->copies;
    n->opts.min_copies = to->min_copies;
    n->opts.keep = to->keep;
    take_times(n);
}

#define EXTRA_SLOTS 1024u /* for readers and repair together */

/* Slots for keep + 1 saves of what our ranks own and we hold for others, and one largest each. */
static int reserve(struct hth_node *n, struct hearth_error *err)
{
    const struct hth_epoch *e = &n->epoch;
    uint32_t generations = n->ctx.opts.keep + 1;
    uint64_t *bytes = calloc((size_t)(e->world + 1) * generations + EXTRA_SLOTS, sizeof(*bytes));
    uint32_t holder[HTH_COPIES_MAX];
    uint64_t largest = 0;
    uint64_t extra = n->opts.lease_bytes + n->opts.spare_bytes;
    size_t count = 0;
    int rc;

    if (!bytes)
        return hth_fail(err, HEARTH_ENOMEM, 0, "reservation");
    for (uint32_t r = 0; r < e->world; r++) {
        uint32_t copies = hth_commit_holders(n->commit, r, holder);
        int here = e->rank_node[r] == e->self;

        for (uint32_t i = 0; i < copies; i++)
            here |= holder[i] == e->self;
        if (!here || !n->shard_bytes[r])
            continue;
        largest = n->shard_bytes[r] > largest ? n->shard_bytes[r] : largest;
        for (uint32_t g = 0; g < generations; g++)
            bytes[count++] = n->shard_bytes[r];
    }
    for (uint32_t g = 0; g < generations && largest; g++)
        bytes[count++] = largest;
    for (uint32_t i = 0; i < EXTRA_SLOTS && largest && extra; i++) {
        bytes[count++] = largest;
        extra = extra > largest ? extra - largest : 0;
    }
    hth_point(&n->ctx.points, "reserve");
    rc = count ? n->env.store->ops->reserve(n->env.store, bytes, count, err) : HEARTH_OK;
    free(bytes);
    return rc;
}

/* The parts forget the old session; ctx->epoch is the new one already. */
static int enter(struct hth_node *n, struct hearth_error *err)
{
    uint32_t *down = calloc(n->epoch.nodes, sizeof(*down));

    if (!down)
        return hth_fail(err, HEARTH_ENOMEM, 0, "%" PRIu32 " members", n->epoch.nodes);
    free(n->ctx.down);
    n->ctx.down = down;
    n->ctx.epoch = &n->epoch;
    drop_join(n);
    n->recovering = 0;
    n->recovered = 0;
    n->failure = (struct hearth_error){ 0 };
    hth_session_join(n->ctx.session, &n->epoch);
    hth_blobs_join(&n->ctx);
    hth_transfer_join(&n->ctx);
    return hth_commit_join(n->commit, err);
}

/* What was right in the old epoch is looked at again before it is voted for or promised in this one:
 * memory can go bad while a process lives. */
static void doubt(struct hth_node *n)
{
    for (struct hth_held_save *s = hth_holdings_first(&n->ctx); s; s = s->next)
        for (struct hth_held *h = s->held; h; h = h->next)
            if (h->state == HTH_HELD_SEALED && h->object.kind != HTH_OBJECT_FOREIGN)
                h->verified = 0;
}

static int read_shards(
        struct hth_node *n, const unsigned char *table, uint32_t world, struct hearth_error *err)
{
    struct hth_gather g;

    free(n->shard_bytes);
    n->shard_bytes = calloc(world, sizeof(*n->shard_bytes));
    if (!n->shard_bytes)
        return hth_fail(err, HEARTH_ENOMEM, 0, "%" PRIu32 " ranks", world);
    for (uint32_t r = 0; r < world; r++) {
        int rc = hth_gather_decode(&g, table + (size_t)r * HTH_GATHER, err);

        if (rc)
            return rc;
        n->shard_bytes[r] = g.shard_bytes;
    }
    return HEARTH_OK;
}

static int write_epoch(struct hth_node *n, const struct hth_epoch *e, struct hearth_error *err)
{
    size_t len = hth_epoch_bytes(e);
    unsigned char *bytes = malloc(len);
    int rc;

    if (!bytes)
        return hth_fail(err, HEARTH_ENOMEM, 0, "epoch record");
    hth_epoch_encode(e, bytes);
    rc = n->env.store->ops->record_put(n->env.store, "epoch", bytes, len, err);
    free(bytes);
    return rc;
}

/* We are a member, and cannot do our part: all ranks of the job are to hear why. */
static void refuse(struct hth_node *n, int code, const char *why)
{
    hth_fail(&n->failure, code, 0, "node %s cannot take part in epoch %" PRIu64 ": %s", n->env.node,
            n->epoch.epoch, why);
    hth_say(&n->ctx.log, HEARTH_LOG_ERROR, "join-failed", "%s", n->failure.text);
    hth_recover_refuse(n->recover, &n->failure);
}

/* The epoch is joined in any case: that it fails is told in it. */
static void join(struct hth_node *n, struct hth_epoch *next, const struct hth_local_join *m,
        const unsigned char *table)
{
    struct hearth_error err;
    int rc, entered;

    hth_point(&n->ctx.points, "join");
    take_opts(n, &m->opts);
    rc = write_epoch(n, next, &err);
    rc = rc ? rc : read_shards(n, table, m->world, &err);
    hth_recover_join(n->recover); /* ends what waits, still in the old epoch */
    lend_new_epoch(n);
    hth_epoch_fini(&n->epoch);
    n->epoch = *next;
    doubt(n);
    entered = enter(n, rc ? NULL : &err);
    rc = rc ? rc : entered;
    rc = rc ? rc : reserve(n, &err);
    if (rc) {
        refuse(n, rc, err.text);
        return;
    }
    hth_say(&n->ctx.log, HEARTH_LOG_INFO, "joined",
            "epoch %" PRIu64 ": node %" PRIu32 " of %" PRIu32 ", %" PRIu32 " ranks, copies %" PRIu32
            " (min %" PRIu32 "), keep %" PRIu32,
            n->epoch.epoch, n->epoch.self, n->epoch.nodes, n->epoch.world, n->ctx.opts.copies,
            n->ctx.opts.min_copies, n->ctx.opts.keep);
}

/* Is it the epoch that this node is in, or one that may come after it? Numbers come first, and the
 * nonce decides between two launches that came to the same one. */
static int may_follow(struct hth_node *n, const struct hth_epoch *next, struct hearth_error *err)
{
    uint64_t unused = 0, seen = hth_holdings_highest_epoch(&n->ctx, &unused);

    if (next->epoch > seen ||
            (next->epoch == seen && (n->epoch.epoch != seen || next->nonce >= n->epoch.nonce)))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_ESTATE, 0,
            "epoch %" PRIu64 " is over, node %s has seen epoch %" PRIu64
            ": the job was started again; end this process",
            next->epoch, n->env.node, seen);
}

void epoch_join(struct hth_node *n, struct client *c, const struct hth_local_join *m,
        const void *attach, size_t attach_len)
{
    uint64_t started_ms = hth_now_ms(&n->ctx.clock);
    struct hth_local_joined answer = { .head = { sizeof(answer), HTH_LOCAL_JOINED, m->head.request,
                                               0 } };
    struct hearth_error err;
    struct hth_epoch next;
    int rc = rank_may_join(c, m, &err), made, ours;

    if (!rc && (m->world == 0 || attach_len != (size_t)m->world * HTH_GATHER))
        rc = hth_fail(&err, HEARTH_EINVAL, 0, "a join of %" PRIu32 " ranks with %zu bytes",
                m->world, attach_len);
    rc = rc ? rc
            : hth_epoch_make(&next, attach, m->world, n->env.store->ops->id(n->env.store), &err);
    made = !rc;
    ours = made && n->ctx.epoch && next.epoch == n->epoch.epoch && next.nonce == n->epoch.nonce;
    if (made && !ours)
        rc = may_follow(n, &next, &err);
    if (made && (ours || rc)) { /* another rank of this node was first, or it is over */
        hth_epoch_fini(&next);
    } else if (made) {
        join(n, &next, m, attach);
        n->join_ms = hth_now_ms(&n->ctx.clock) - started_ms;
    }
    if (rc || n->failure.code) {
        reply_error(n, c->id, m->head.request, rc ? &err : &n->failure);
        return;
    }
    c->epoch = answer.epoch = n->epoch.epoch;
    c->nonce = answer.nonce = n->epoch.nonce;
    answer.opts = n->opts;
    answer.nodes = n->epoch.nodes;
    answer.self = n->epoch.self;
    n->env.reply(n->env.reply_self, c->id, &answer, sizeof(answer), -1, NULL, 0);
}

/* ---- After a restart under living ranks --------------------------------------------------------- */

/* `.hearth/running`: what a member has to know besides the epoch to go on in it. Native layout: the
 * record never leaves the machine, and its first field says when it does not fit. */
struct running {
    uint32_t bytes; /* sizeof */
    uint32_t world;
    uint64_t epoch, nonce;
    struct hth_local_opts opts;
    struct hth_local_save chosen;
};

void epoch_write_running(struct hth_node *n)
{
    struct running r = {
        .bytes = sizeof(r),
        .world = n->epoch.world,
        .epoch = n->epoch.epoch,
        .nonce = n->epoch.nonce,
        .opts = n->opts,
        .chosen = hth_local_save_of(n->chosen),
    };
    struct hearth_error err;

    hth_point(&n->ctx.points, "running");
    if (n->env.store->ops->record_put(n->env.store, "running", &r, sizeof(r), &err))
        hth_say(&n->ctx.log, HEARTH_LOG_WARN, "running-failed", "%s", err.text);
}

static int read_running(struct hth_node *n, struct running *out)
{
    void *bytes = NULL;
    size_t len = 0;
    int fits;

    if (n->env.store->ops->record_get(n->env.store, "running", &bytes, &len, NULL))
        return 0;
    fits = len == sizeof(*out);
    if (fits)
        memcpy(out, bytes, sizeof(*out));
    free(bytes);
    return fits && out->bytes == sizeof(*out) && out->epoch == n->epoch.epoch &&
           out->nonce == n->epoch.nonce;
}

/* Saves of this epoch that have their manifest, and nobody decided yet: promise them again. */
static void go_on(struct hth_node *n, const struct running *r)
{
    n->recovered = 1;
    n->chosen = hth_local_save_to(r->chosen);
    n->info = (struct hearth_recovery){ .struct_size = sizeof(n->info),
        .step = n->chosen.step,
        .epoch = n->chosen.epoch,
        .now_epoch = n->epoch.epoch };
    hth_recover_resume(n->recover);
    hth_commit_go(
            n->commit, hth_keep_has(&n->ctx.keep, n->chosen) && n->ctx.keep.epoch == n->epoch.epoch
                               ? (struct hth_save_id){ 0 }
                               : n->chosen);
    hth_commit_resume(n->commit);
}

/* An engine that died comes back under its ranks: same memory, same address, same epoch. Had
 * recovery ended, the job goes on; saves that nobody finishes are cancelled by their deadline. */
int epoch_resume(struct hth_node *n, struct hearth_error *err)
{
    unsigned char addr[HTH_ADDR_MAX];
    uint32_t addr_len = 0;
    void *bytes = NULL;
    size_t len = 0;
    const struct hth_member *me;
    struct running running;
    int rc;

    if (n->env.store->ops->record_get(n->env.store, "epoch", &bytes, &len, NULL))
        return HEARTH_OK;
    rc = hth_epoch_decode(&n->epoch, bytes, len, err);
    free(bytes);
    if (rc) {
        hth_say(&n->ctx.log, HEARTH_LOG_ERROR, "epoch-bad", "%s", err->text);
        n->env.store->ops->record_remove(n->env.store, "epoch");
        return HEARTH_OK;
    }
    if (n->epoch.epoch <= n->ctx.keep.dropped)
        return HEARTH_OK;
    me = &n->epoch.member[n->epoch.self];
    if (n->transport->ops->address(n->transport, addr, &addr_len, NULL) ||
            addr_len != me->addr_len || memcmp(addr, me->addr, addr_len) != 0 ||
            me->store != n->env.store->ops->id(n->env.store)) {
        hth_say(&n->ctx.log, HEARTH_LOG_INFO, "epoch-over",
                "epoch %" PRIu64 " knows us by another address: its ranks have to join again",
                n->epoch.epoch);
        return HEARTH_OK;
    }
    if (!read_running(n, &running)) { /* its options are not known either */
        hth_say(&n->ctx.log, HEARTH_LOG_INFO, "epoch-over",
                "epoch %" PRIu64 " has not recovered yet: its ranks join again", n->epoch.epoch);
        return HEARTH_OK;
    }
    take_opts(n, &running.opts);
    n->shard_bytes = calloc(n->epoch.world, sizeof(*n->shard_bytes));
    rc = n->shard_bytes ? enter(n, err) : hth_fail(err, HEARTH_ENOMEM, 0, "resume");
    if (rc)
        return rc;
    go_on(n, &running);
    hth_say(&n->ctx.log, HEARTH_LOG_INFO, "resumed", "epoch %" PRIu64 ", node %" PRIu32,
            n->epoch.epoch, n->epoch.self);
    return HEARTH_OK;
}
