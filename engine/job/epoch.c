/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining. The ranks have gathered all rows. The first rank of this node that sends JOIN makes the
 * engine leave its old session, write the epoch record, and accept the new members only. The other
 * ranks of the node send the same JOIN, and receive the same answer.
 *
 *     JOIN ──► in the epoch ──► it can take part ───────────────► recover
 *                  └──► it cannot, or another node cannot ──► failed: every rank that joins,
 *                       recovers or begins gets the same sentence, until a newer epoch is joined
 */
#include "epoch.h"

#include "drop.h"
#include "elsewhere.h"
#include "engine/saves/handover.h"
#include "engine/saves/mend.h"
#include "engine/saves/reserve.h"
#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"
#include "fabric.h"
#include "rank.h"
#include "recovery.h"
#include "running.h"

#include "core/base/options.h"
#include <stdlib.h>
#include <string.h>

/* The engine's command line comes before the ranks' settings. */
static void epoch_take_times(struct hth_node *n)
{
    const struct hth_session_opts *own = &n->env.session;
    struct hth_local_opts *o = &n->opts;

    o->heartbeat_ms = own->heartbeat_ms ? own->heartbeat_ms : o->heartbeat_ms;
    o->dead_ms = own->dead_ms ? own->dead_ms : o->dead_ms;
    o->stall_ms = own->stall_ms ? own->stall_ms : o->stall_ms;
    if (o->dead_ms)
        n->ctx.opts.dead_ms = o->dead_ms;
    if (o->heartbeat_ms)
        n->ctx.opts.heartbeat_ms = o->heartbeat_ms;
    hth_session_times(n->ctx.session, o->heartbeat_ms, o->dead_ms, o->stall_ms);
}

/* The option as a rank has set it; 0: the default. */
static uint32_t epoch_or_default(uint32_t said, enum hth_option_row row)
{
    return said ? said : hth_option_none(row);
}

static void epoch_take_opts(struct hth_node *n, const struct hth_local_opts *o)
{
    struct hth_ctx_opts *to = &n->ctx.opts;

    if (hth_breaks(&n->ctx, HTH_BREAK_OPTIONS) && n->opts.copies)
        return;
    n->opts = *o;
    n->opts.linger_s =
            epoch_or_default(o->linger_s ? o->linger_s : n->env.linger_s, HTH_AT_linger_s);
    to->copies = epoch_or_default(o->copies, HTH_AT_copies);
    if (to->copies > HTH_COPIES_MAX)
        to->copies = HTH_COPIES_MAX;
    to->min_copies = o->min_copies && o->min_copies <= to->copies ? o->min_copies : to->copies;
    to->keep = epoch_or_default(o->keep, HTH_AT_keep);
    if (to->keep > HTH_KEEP_MAX)
        to->keep = HTH_KEEP_MAX;
    to->allow_degraded = o->allow_degraded;
    to->bad_after = o->bad_after;
    to->recover_ms = epoch_or_default(o->recover_ms, HTH_AT_recover_ms);
    to->save_ms = epoch_or_default(o->save_ms, HTH_AT_save_ms);
    to->inflight_bytes = (uint64_t)epoch_or_default(o->inflight_mib, HTH_AT_inflight_mib) << 20;
    n->opts.copies = to->copies;
    n->opts.min_copies = to->min_copies;
    n->opts.keep = to->keep;
    epoch_take_times(n);
}

/* Enters the epoch: all parts of the engine drop the old epoch's state. Before they do so,
 * ctx->epoch is the new epoch. */
static int epoch_enter(struct hth_node *n, struct hearth_error *err)
{
    uint32_t *down = calloc(n->epoch.nodes, sizeof(*down));

    if (!down)
        return hth_fail(err, HEARTH_ENOMEM, 0, "%" PRIu32 " members", n->epoch.nodes);
    free(n->ctx.lost);
    n->ctx.lost = down;
    n->ctx.epoch = &n->epoch;
    drop_join(n);
    recovery_join(n);
    n->failure = (struct hearth_error){ 0 };
    hth_session_join(n->ctx.session, &n->epoch);
    hth_blobs_join(&n->ctx);
    hth_transfer_join(&n->ctx);
    return hth_commit_join(n->commit, err);
}

/* Copies that were verified in the old epoch are verified again before this node votes for them or
 * promises them in the new one: memory can go bad while a process lives. */
static void epoch_unverify(struct hth_node *n)
{
    for (struct hth_held_save *s = hth_holdings_first(&n->ctx); s; s = s->next)
        for (struct hth_held *h = s->held; h; h = h->next)
            if (h->state == HTH_HELD_SEALED && h->object.kind != HTH_OBJECT_FOREIGN)
                h->verified = 0;
}

static int epoch_write(struct hth_node *n, const struct hth_epoch *e, struct hearth_error *err)
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

/* This node is a member and cannot take part: sends the reason, so that all ranks of the job get
 * it. */
static void epoch_refuse(struct hth_node *n, int code, const char *why)
{
    hth_fail(&n->failure, code, 0, "node %s cannot take part in epoch %" PRIu64 ": %s", n->env.node,
            n->epoch.epoch, why);
    hth_say(&n->ctx.log, HEARTH_LOG_ERROR, "join-failed", "%s", n->failure.text);
    hth_recover_refuse(n->recover, &n->failure);
}

/* The node joins the epoch even if it cannot take part: it sends its refusal to the other members
 * within the epoch. */
static void epoch_switch(struct hth_node *n, struct hth_epoch *next, const struct hth_local_join *m,
        const unsigned char *table)
{
    struct hearth_error err;
    int rc, entered;

    hth_point(&n->ctx.points, "join");
    epoch_take_opts(n, &m->opts);
    rc = epoch_write(n, next, &err);
    rc = rc ? rc : reserve_sizes(n, table, m->world, &err);
    hth_recover_join(n->recover); /* ends what waits, still in the old epoch */
    handover_new_epoch(n);
    elsewhere_over(n);
    hth_epoch_fini(&n->epoch);
    n->epoch = *next;
    epoch_unverify(n);
    entered = epoch_enter(n, rc ? NULL : &err);
    rc = rc ? rc : entered;
    mend_slots(n);
    rc = rc ? rc : reserve_slots(n, &err);
    if (rc) {
        epoch_refuse(n, rc, err.text);
        return;
    }
    fabric_keep(n);
    hth_say(&n->ctx.log, HEARTH_LOG_INFO, "joined",
            "epoch %" PRIu64 ": node %" PRIu32 " of %" PRIu32 ", %" PRIu32 " ranks, copies %" PRIu32
            " (min %" PRIu32 "), keep %" PRIu32,
            n->epoch.epoch, n->epoch.self, n->epoch.nodes, n->epoch.world, n->ctx.opts.copies,
            n->ctx.opts.min_copies, n->ctx.opts.keep);
}

/* Whether `next` is the epoch that this node is in, or may come after it. The higher number wins;
 * if two launches chose the same number, the higher nonce. */
static int epoch_may_follow(
        struct hth_node *n, const struct hth_epoch *next, struct hearth_error *err)
{
    uint64_t unused = 0, seen = hth_holdings_highest_epoch(&n->ctx, &unused);

    if (next->epoch == n->forgot_epoch && next->nonce == n->forgot_nonce &&
            !hth_breaks(&n->ctx, HTH_BREAK_FORGOT))
        return hth_fail(err, HEARTH_ESTATE, 0,
                "the record of what node %s has decided in epoch %" PRIu64
                " is damaged or gone, and another decision could contradict it: recover in place, or "
                "start the job again",
                n->env.node, next->epoch);
    if (next->epoch > seen ||
            (next->epoch == seen && (n->epoch.epoch != seen || next->nonce >= n->epoch.nonce)))
        return HEARTH_OK;
    return hth_fail(err, HEARTH_ESTATE, 0,
            "epoch %" PRIu64 " is over, node %s has seen epoch %" PRIu64
            ": the job was started again; end this process",
            next->epoch, n->env.node, seen);
}

static void epoch_answer(struct hth_node *n, struct client *c, const struct hth_local_join *m)
{
    struct hth_local_joined answer = { .head = { sizeof(answer), HTH_LOCAL_JOINED, m->head.request,
                                               0 } };

    c->epoch = answer.epoch = n->epoch.epoch;
    c->nonce = answer.nonce = n->epoch.nonce;
    rank_is_here(n);
    answer.opts = n->opts;
    answer.nodes = n->epoch.nodes;
    answer.self = n->epoch.self;
    reply_packet(n, c->id, &answer, sizeof(answer));
}

static void epoch_join_table(struct hth_node *n, struct client *c, const struct hth_local_join *m,
        const void *attach, size_t attach_len)
{
    uint64_t started_ms = hth_now_ms(&n->ctx.clock);
    struct hearth_error err;
    struct hth_epoch next;
    int rc = rank_may_join(c, m, &err), made, ours;

    if (!rc && (m->world == 0 || attach_len != (size_t)m->world * HTH_GATHER))
        rc = hth_fail(&err, HEARTH_EINVAL, 0,
                "the table of %" PRIu32
                " ranks came to the engine with %zu bytes in place of %zu: if "
                "the engine may open no more files, raise that limit (ulimit -n)",
                m->world, attach_len, (size_t)m->world * HTH_GATHER);
    rc = rc ? rc
            : hth_epoch_make(&next, attach, m->world, n->env.store->ops->id(n->env.store), &err);
    made = !rc;
    ours = made && n->ctx.epoch && next.epoch == n->epoch.epoch && next.nonce == n->epoch.nonce;
    if (made && !ours)
        rc = epoch_may_follow(n, &next, &err);
    if (made && (ours || rc)) { /* another rank of this node was first, or it is over */
        hth_epoch_fini(&next);
    } else if (made) {
        epoch_switch(n, &next, m, attach);
        memcpy(n->first_row, attach, HTH_GATHER);
        n->join_ms = hth_now_ms(&n->ctx.clock) - started_ms;
    }
    if (rc || n->failure.code) {
        reply_error(n, c->id, m->head.request, rc ? &err : &n->failure);
        return;
    }
    epoch_answer(n, c, m);
}

/* 1: another rank of this node has handed in the table of the present epoch: its first row has the
 * number that rank 0 has drawn for this gathering alone. Otherwise each rank's table would be read
 * and made into an epoch. */
static int epoch_is_joined(
        struct hth_node *n, const struct hth_local_join *m, struct hth_content *content)
{
    unsigned char row[HTH_GATHER];

    return n->ctx.epoch && content && m->world == n->epoch.world &&
           content->len == (uint64_t)m->world * HTH_GATHER &&
           !content->read(content, 0, row, sizeof(row)) && !memcmp(row, n->first_row, sizeof(row));
}

/* Joins a rank after the first of its node. */
static void epoch_join_also(struct hth_node *n, struct client *c, const struct hth_local_join *m)
{
    struct hearth_error err;
    int rc = rank_may_join(c, m, &err);

    if (rc || n->failure.code)
        reply_error(n, c->id, m->head.request, rc ? &err : &n->failure);
    else
        epoch_answer(n, c, m);
}

/* The ranks' table: small beside what else a join does. */
void epoch_join(struct hth_node *n, struct client *c, const struct hth_local_join *m,
        struct hth_content *content)
{
    size_t len = content ? content->len : 0;
    void *table;

    if (epoch_is_joined(n, m, content)) {
        epoch_join_also(n, c, m);
        return;
    }
    table = malloc(len ? len : 1);
    if (!table)
        reply_refusal(n, c->id, m->head.request, HEARTH_ENOMEM, "no memory for the ranks' table");
    else if (len && content->read(content, 0, table, len))
        reply_refusal(n, c->id, m->head.request, HEARTH_EPROTO,
                "the ranks' table changed while it was read");
    else
        epoch_join_table(n, c, m, table, len);
    free(table);
}

/* ---- After a restart under living ranks
 * --------------------------------------------------------- */

/* 1: the epoch has this node's present address, so the other members reach it. The address of the
 * only member may change, because no engine connects to it. */
static int epoch_reaches_us(const struct hth_node *n)
{
    const struct hth_member *me = &n->epoch.member[n->epoch.self];
    unsigned char addr[HTH_ADDR_MAX];
    uint32_t addr_len = 0;

    return n->epoch.nodes == 1 ||
           (!n->transport->ops->address(n->transport, addr, &addr_len, NULL) &&
                   addr_len == me->addr_len && !memcmp(addr, me->addr, addr_len));
}

/* 1: the epoch is of this store. */
static int epoch_knows_us(const struct hth_node *n)
{
    return n->epoch.member[n->epoch.self].store == n->env.store->ops->id(n->env.store) &&
           epoch_reaches_us(n);
}

/* n->epoch.nodes 0: there is no record of an epoch, or it is damaged, which is logged. */
static int epoch_read(struct hth_node *n, struct hearth_error *err)
{
    void *bytes = NULL;
    size_t len = 0;
    int rc;

    if (n->env.store->ops->record_get(n->env.store, "epoch", &bytes, &len, NULL))
        return HEARTH_OK;
    rc = hth_epoch_decode(&n->epoch, bytes, len, err);
    free(bytes);
    if (!rc || rc == HEARTH_EUNSUPPORTED)
        return rc;
    hth_say(&n->ctx.log, HEARTH_LOG_ERROR, "epoch-bad", "%s", err->text);
    n->env.store->ops->record_remove(n->env.store, "epoch");
    return HEARTH_OK;
}

/* GO was sent in this epoch, so heads were sent too; or there is a record of heads, and its epoch
 * is not known. */
static void epoch_note_forgotten(struct hth_node *n, int go)
{
    if (n->epoch.self != 0 || hth_commit_knows(n->commit, &n->epoch) ||
            !(go || hth_commit_head_bad(n->commit)))
        return;
    n->forgot_epoch = n->epoch.epoch;
    n->forgot_nonce = n->epoch.nonce;
}

/* An engine that died is started again under its ranks: same memory, same address, same epoch. If
 * recovery had ended, the job continues; saves that no rank finishes are cancelled at their
 * deadline. A running record of another version may mean that GO was sent in this epoch: another
 * recovery in it could choose another save, and would write over the record. So no engine starts on
 * such a record. */
int epoch_resume(struct hth_node *n, struct hearth_error *err)
{
    struct hth_running running;
    struct hth_local_opts opts;
    int rc;

    if ((rc = running_read(n, &running, err)) || (rc = epoch_read(n, err)))
        return rc;
    if (!n->epoch.nodes || n->epoch.epoch <= n->ctx.keep.dropped)
        return HEARTH_OK;
    epoch_note_forgotten(n, running.epoch == n->epoch.epoch && running.nonce == n->epoch.nonce);
    if (!epoch_knows_us(n)) {
        hth_say(&n->ctx.log, HEARTH_LOG_INFO, "epoch-over",
                "epoch %" PRIu64 " has another address of this node: its ranks have to join again",
                n->epoch.epoch);
        return HEARTH_OK;
    }
    if (running.epoch != n->epoch.epoch || running.nonce != n->epoch.nonce) {
        hth_say(&n->ctx.log, HEARTH_LOG_INFO, "epoch-over", /* its options are not known either */
                "epoch %" PRIu64 " has not recovered yet: its ranks join again", n->epoch.epoch);
        return HEARTH_OK;
    }
    /* otherwise it could contradict what it has sent */
    if (!hth_commit_knows(n->commit, &n->epoch)) {
        hth_say(&n->ctx.log, HEARTH_LOG_INFO, "epoch-over",
                "what was decided in epoch %" PRIu64 " is not on record here: its ranks join again",
                n->epoch.epoch);
        return HEARTH_OK;
    }
    opts = running_opts(&running);
    epoch_take_opts(n, &opts);
    reserve_no_sizes(n);
    if ((rc = epoch_enter(n, err)) || (rc = recovery_resume(n, running.chosen, err)))
        return rc;
    handover_resume(n);
    fabric_keep(n);
    hth_say(&n->ctx.log, HEARTH_LOG_INFO, "resumed", "epoch %" PRIu64 ", node %" PRIu32,
            n->epoch.epoch, n->epoch.self);
    return HEARTH_OK;
}
