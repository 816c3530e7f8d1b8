/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wiring of one engine: which part receives which event. No logic of its own beyond that.
 *
 *   ranks ── serve.c ──► begin.c, epoch.c ──► commit, recover ──► transfer, blobs, tree ──► session
 *                                               ▲                                            │
 *                                               └──────────── on_message, on_peer_* ◄────────┘
 */
#include "engine/state/node.h"

#include "engine/job/drop.h"
#include "engine/job/elsewhere.h"
#include "engine/job/epoch.h"
#include "engine/job/fabric.h"
#include "engine/job/fetch.h"
#include "engine/job/life.h"
#include "engine/job/meet.h"
#include "engine/job/rank.h"
#include "engine/job/recovery.h"
#include "engine/job/upgrade.h"
#include "engine/job/why.h"
#include "engine/reads/bad_copy.h"
#include "engine/reads/find.h"
#include "engine/reads/keep.h"
#include "engine/reads/read.h"
#include "engine/saves/begin.h"
#include "engine/saves/committed.h"
#include "engine/saves/handover.h"
#include "engine/saves/lend_ahead.h"
#include "engine/saves/loan.h"
#include "engine/saves/progress.h"
#include "engine/saves/reserve.h"
#include "engine/state/answer.h"
#include "engine/state/client.h"
#include "engine/state/events.h"
#include "engine/state/history.h"
#include "engine/state/node_state.h"
#include "serve.h"

#include "core/base/options.h"
#include "replication/held/draft.h"
#include <stdlib.h>
#include <string.h>

#define REST_MS  1000u
#define SHORT_MS 100u

static void node_on_message(
        void *self, uint32_t from, uint16_t type, const unsigned char *body, size_t len)
{
    struct hth_node *n = self;

    if (from >= HTH_OUTSIDE)
        fetch_message(n, from, type, body, len);
    else if (!hth_tree_message(&n->ctx, from, type, body, len) &&
             !hth_blobs_message(&n->ctx, from, type, body, len) &&
             !hth_transfer_message(&n->ctx, from, type, body, len) &&
             !elsewhere_message(n, from, type, body, len))
        hth_say(&n->ctx.log, HEARTH_LOG_DEBUG, "message-unknown", "type %u from node %u", type,
                from);
}

static void node_on_peer_up(void *self, uint32_t node)
{
    struct hth_node *n = self;

    hth_tree_reach(&n->ctx, node, 1);
    hth_commit_peer_up(n->commit, node);
}

static void node_on_peer_down(void *self, uint32_t node, int code, const char *text)
{
    struct hth_node *n = self;

    if (node >= HTH_OUTSIDE) {
        fetch_peer_down(n, node, text);
        return;
    }
    hth_tree_reach(&n->ctx, node, 0);
    hth_transfer_peer_down(&n->ctx, node);
    hth_blobs_peer_down(&n->ctx, node);
    hth_recover_peer_down(n->recover, node, code, text);
    hth_commit_peer_down(n->commit, node);
    elsewhere_peer_down(n, node, text);
}

static void node_on_pulled(void *self, uint32_t node, uint64_t len, int code)
{
    struct hth_node *n = self;

    hth_commit_pulled(n->commit, node, len, code);
}

/* 1: this node and that node are neighbours in the tree, by which losses are noticed. */
static int node_is_watched(void *self, uint32_t node)
{
    struct hth_node *n = self;

    return hth_tree_is_neighbour(&n->ctx, node);
}

static void node_on_deliver(
        void *self, uint32_t origin, uint16_t kind, const unsigned char *bytes, size_t len)
{
    struct hth_node *n = self;

    if (drop_is_done(n) && kind != HTH_KIND_CLOSE && kind != HTH_KIND_DROP)
        return;
    if (kind < HTH_KIND_INVENTORY)
        hth_commit_deliver(n->commit, origin, kind, bytes, len);
    else if (kind == HTH_KIND_CLOSE || kind == HTH_KIND_DROP)
        drop_deliver(n, origin, kind, bytes, len);
    else
        hth_recover_deliver(n->recover, origin, kind, bytes, len);
}

static void node_on_sign(void *self, uint32_t origin, uint64_t life, uint64_t count)
{
    struct hth_node *n = self;

    hth_commit_sign_of_life(n->commit, origin, life, count);
}

static void node_on_blob(
        void *self, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    struct hth_node *n = self;

    if (drop_is_done(n))
        return;
    if (id->kind == HTH_BLOB_MAP)
        hth_commit_map(n->commit, bytes, len);
    else if (n->recovered && id->kind != HTH_BLOB_PLAN)
        hth_commit_blob(n->commit, id, bytes, len);
    else
        hth_recover_blob(n->recover, id, bytes, len);
}

static void node_on_blob_failed(
        void *self, const struct hth_blob_id *id, const struct hearth_error *err)
{
    struct hth_node *n = self;

    if (n->recovered || id->kind == HTH_BLOB_MAP)
        hth_commit_blob_failed(n->commit, id, err);
    else
        hth_recover_blob_failed(n->recover, id, err);
}

static void node_on_level(void *self, struct hth_save_id save, uint32_t rank,
        enum hearth_level level, int degraded, int code, const char *text)
{
    struct hth_node *n = self;

    for (struct loan *l = n->loans; l; l = l->next)
        if (l->has_id && hth_save_cmp(l->save, save) == 0 &&
                (rank == HTH_NODE_NONE || rank == l->rank))
            loan_event(n, l, level, degraded, code, text);
    if (code || level >= HEARTH_PROTECTED)
        n->lend_ahead_look = 1;
}

static void node_on_moment(void *self, struct hth_save_id save, const struct hth_happened *happened)
{
    why_moment(self, save, happened);
}

static void node_on_report(void *self, int vote, uint32_t node, uint32_t count, uint32_t due)
{
    why_recovery_report(self, vote, node, count, due);
}

static int node_is_staging(void *self, uint32_t rank)
{
    const struct hth_node *n = self;
    const struct loan *l = n->loans;

    while (l && !loan_is_staged(l, rank))
        l = l->next;
    return l != NULL;
}

static void node_on_recovered(void *self, int code, const struct hearth_error *err,
        struct hth_save_id save, const struct hearth_recovery *info)
{
    recovery_end(self, code, err, save, info);
}

static int node_offer_wanted(
        void *self, uint32_t from, struct hth_save_id save, const struct hth_object *object)
{
    struct hth_node *n = self;
    int rc = drop_is_done(n) ? HEARTH_EDENIED
                             : hth_commit_offer_wanted(n->commit, from, save, object);

    if (!rc)
        why_pull_begin(n, save, object->id, from);
    return rc;
}

static int node_early_wanted(
        void *self, uint32_t from, struct hth_save_id save, const struct hth_object *object)
{
    struct hth_node *n = self;

    return drop_is_done(n) ? HEARTH_EDENIED
                           : hth_commit_early_wanted(n->commit, from, save, object);
}

static void node_no_room(void *self, struct hth_save_id save, int code, const char *text)
{
    hth_commit_no_room(((struct hth_node *)self)->commit, save, code, text);
}

static void node_on_replica(void *self, struct hth_save_id save, uint64_t object)
{
    struct hth_node *n = self;

    reserve_ahead(n, save);
    why_pull_end(n, save, object);
    hth_commit_replica(n->commit, save, object);
}

static void node_on_wish_result(void *self, uint64_t number, int code, const char *text)
{
    keep_wish_result(self, number, code, text);
}

static void node_on_bad_copy(
        void *self, uint32_t from, struct hth_save_id save, uint64_t object, uint64_t chunk)
{
    bad_copy_peer(self, from, save, object, chunk);
}

/* ---- Open and close ------------------------------------------------------------------------- */

static int node_open_session(struct hth_node *n, struct hearth_error *err)
{
    struct hth_session_events events = {
        .self = n,
        .on_message = node_on_message,
        .on_peer_up = node_on_peer_up,
        .on_peer_down = node_on_peer_down,
        .is_watched = node_is_watched,
        .on_pulled = node_on_pulled,
    };
    struct hth_transport_events for_transport;
    int rc;

    n->env.session.store = n->env.store->ops->id(n->env.store);
    rc = hth_session_open(&n->env.session, &events, &n->ctx.clock, &n->ctx.random, &n->ctx.log,
            &n->ctx.session, err);

    if (rc)
        return rc;
    for_transport = hth_session_events_for(n->ctx.session);
    n->transport = n->env.transport(n->env.transport_self, &for_transport, err);
    if (!n->transport)
        return err ? err->code : HEARTH_EIO;
    hth_session_attach(n->ctx.session, n->transport);
    return HEARTH_OK;
}

static int node_open_parts(struct hth_node *n, struct hearth_error *err)
{
    struct hth_commit_events commit = {
        .self = n,
        .on_wish_result = node_on_wish_result,
        .on_level = node_on_level,
        .on_moment = node_on_moment,
        .is_staging = node_is_staging,
    };
    struct hth_recover_events recover = {
        .self = n, .on_end = node_on_recovered, .on_report = node_on_report
    };
    struct hth_blob_events blobs = {
        .self = n, .arrived = node_on_blob, .failed = node_on_blob_failed
    };
    struct hth_transfer_events transfer = {
        .self = n,
        .wanted = node_offer_wanted,
        .early = node_early_wanted,
        .sealed = node_on_replica,
        .bad_copy = node_on_bad_copy,
        .no_room = node_no_room,
    };
    int rc = hth_holdings_open(&n->ctx, &n->ctx.holdings, err);

    rc = rc ? rc : hth_tree_open(&n->ctx, node_on_deliver, n, &n->ctx.tree, err);
    if (!rc)
        hth_tree_on_sign(&n->ctx, node_on_sign);
    rc = rc ? rc : hth_blobs_open(&n->ctx, &blobs, &n->ctx.blobs, err);
    rc = rc ? rc : hth_transfer_open(&n->ctx, &transfer, &n->ctx.transfer, err);
    rc = rc ? rc : hth_commit_open(&n->ctx, &commit, &n->commit, err);
    rc = rc ? rc : hth_recover_open(&n->ctx, &recover, &n->recover, err);
    return rc;
}

/* A damaged record is ignored; a record of another version must not be written over. */
static int node_load_keep(struct hth_node *n, struct hearth_error *err)
{
    void *bytes = NULL;
    size_t len = 0;
    int rc;

    if (n->env.store->ops->record_get(n->env.store, "keep", &bytes, &len, NULL))
        return HEARTH_OK;
    rc = hth_keep_decode(&n->ctx.keep, bytes, len, err);
    free(bytes);
    if (!rc || rc == HEARTH_EUNSUPPORTED)
        return rc;
    n->ctx.keep = (struct hth_keep){ 0 };
    hth_say(&n->ctx.log, HEARTH_LOG_ERROR, "keep-bad", "%s", err->text);
    return HEARTH_OK;
}

/* The settings until an epoch is joined. */
static void node_take_env(struct hth_node *n)
{
    const struct hth_node_env *env = &n->env;
    const struct hth_log counted = metrics_log(&n->metrics, &env->log);

    n->ctx = (struct hth_ctx){
        .clock = env->clock,
        .random = env->random,
        .workers = env->workers,
        .log = events_log(n->events, &counted),
        .points = env->points,
        .store = env->store,
        .opts = {
                .copies = hth_option_none(HTH_AT_copies),
                .min_copies = hth_option_none(HTH_AT_copies),
                .keep = hth_option_none(HTH_AT_keep),
                .save_ms = hth_option_none(HTH_AT_save_ms),
                .recover_ms = hth_option_none(HTH_AT_recover_ms),
                .dead_ms = env->session.dead_ms ? env->session.dead_ms
                                                : hth_option_none(HTH_AT_dead_ms),
                .heartbeat_ms = env->session.heartbeat_ms ? env->session.heartbeat_ms
                                                          : hth_option_none(HTH_AT_heartbeat_ms),
                .retry_ms = env->retry_ms ? env->retry_ms : 500,
                .inflight_bytes = (uint64_t)hth_option_none(HTH_AT_inflight_mib) << 20,
                .tree_degree = env->tree_degree,
                .breaks = env->breaks,
        },
    };
    n->metrics.since_wall_ms = env->clock.wall_ms(env->clock.self);
    n->opts.linger_s = env->linger_s ? env->linger_s : hth_option_none(HTH_AT_linger_s);
    memcpy(n->ctx.opts.job, env->session.job, sizeof(n->ctx.opts.job));
    n->ctx.opts.strong = env->strong != 0;
    n->ctx.opts.foreign_last = env->foreign_last;
}

int hth_node_open(const struct hth_node_env *env, struct hth_node **out, struct hearth_error *err)
{
    struct hth_node *n = calloc(1, sizeof(*n));
    struct hearth_error cause;
    int rc;

    if (!n)
        return hth_fail(err, HEARTH_ENOMEM, 0, "engine");
    n->env = *env;
    n->next_id = 1;
    n->events = events_open(&env->clock);
    if (!n->events) {
        free(n);
        return hth_fail(err, HEARTH_ENOMEM, 0, "events");
    }
    node_take_env(n);
    n->history = history_open();
    n->elsewhere = elsewhere_open();
    rc = n->history && n->elsewhere ? drop_open(n, &cause)
                                    : hth_fail(&cause, HEARTH_ENOMEM, 0, "history");
    rc = rc ? rc : fabric_load(n, &cause);
    rc = rc ? rc : node_open_session(n, &cause);
    rc = rc ? rc : node_open_parts(n, &cause);
    rc = rc ? rc : hth_holdings_adopt(&n->ctx, &cause);
    rc = rc ? rc : life_begin(n, &cause);
    rc = rc ? rc : node_load_keep(n, &cause);
    rc = rc ? rc : hth_commit_adopt(n->commit, &cause);
    rc = rc ? rc : committed_read(n, &cause);
    if (!rc) {
        drop_resume(n);
        rc = epoch_resume(n, &cause);
    }
    rank_expect(n);
    if (rc) {
        if (err)
            *err = cause;
        hth_node_close(n);
        return rc;
    }
    *out = n;
    return HEARTH_OK;
}

uint32_t hth_node_rekeyed(struct hth_node *n)
{
    return hth_session_rekeyed(n->ctx.session);
}

void hth_node_close(struct hth_node *n)
{
    if (!n)
        return;
    if (n->transport)
        n->transport->ops->close(n->transport); /* pulls end, so nothing writes any more */
    answer_close(n);
    hth_recover_close(n->recover);
    hth_commit_close(n->commit);
    if (n->ctx.transfer)
        hth_transfer_close(&n->ctx);
    hth_jobs_close(&n->ctx);
    hth_drafts_close(&n->ctx);
    if (n->ctx.blobs)
        hth_blobs_close(&n->ctx);
    if (n->ctx.tree)
        hth_tree_close(&n->ctx);
    begin_close(n);
    loan_close(n);
    find_close(n);
    bad_copy_close(n);
    keep_close(n);
    fetch_close(n);
    meet_close(n);
    read_close(n);
    if (n->ctx.holdings)
        hth_holdings_close(&n->ctx);
    hth_session_close(n->ctx.session);
    client_close(n);
    free(n->ctx.lost);
    reserve_close(n);
    committed_close(n);
    drop_close(n);
    upgrade_close(n);
    history_close(n->history);
    elsewhere_close(n->elsewhere);
    events_close(n->events);
    hth_epoch_fini(&n->epoch);
    free(n);
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* How many slots workers make ahead: all of them. While a recovery pulls, only the slots that it
 * waits for, because clearing memory takes processor time from its pulls. */
static unsigned node_slots(const struct hth_node *n)
{
    return n->recovering ? hth_recover_put_off(n->recover) : HTH_WORK_ALL;
}

/* A network card reads pinned pages at any time, and its library watches the mapping. */
static void node_rest(struct hth_node *n, uint64_t now)
{
    struct hth_store *store = n->env.store;
    int pins = n->transport && n->transport->ops->caps(n->transport) & HTH_CAP_PINS;

    if (!store->ops->rest) {
        n->rest_ms = HTH_NEVER;
        return;
    }
    if (now < n->rest_ms)
        return;
    n->rest_ms = now + (!pins && store->ops->rest(store) ? SHORT_MS : REST_MS);
}

void hth_node_tick(struct hth_node *n)
{
    hth_session_tick(n->ctx.session);
    if (n->ctx.epoch) {
        hth_tree_tick(&n->ctx);
        hth_blobs_tick(&n->ctx);
        hth_transfer_tick(&n->ctx);
        hth_recover_tick(n->recover);
        hth_commit_tick(n->commit);
        drop_tick(n);
    }
    rank_tick(n, hth_now_ms(&n->ctx.clock));
    begin_tick(n, hth_now_ms(&n->ctx.clock));
    lend_ahead_tick(n);
    find_tick(n, hth_now_ms(&n->ctx.clock));
    bad_copy_tick(n, hth_now_ms(&n->ctx.clock));
    read_tick(n, hth_now_ms(&n->ctx.clock));
    keep_tick(n, hth_now_ms(&n->ctx.clock));
    fetch_tick(n, hth_now_ms(&n->ctx.clock));
    meet_tick(n);
    elsewhere_tick(n, hth_now_ms(&n->ctx.clock));
    reserve_tick(n, hth_now_ms(&n->ctx.clock));
    progress_tick(n, hth_now_ms(&n->ctx.clock));
    upgrade_tick(n, hth_now_ms(&n->ctx.clock));
    n->made_ms = n->env.store->ops->work(n->env.store, node_slots(n));
    node_rest(n, hth_now_ms(&n->ctx.clock));
}

static uint64_t least_ms(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t hth_node_due_ms(struct hth_node *n)
{
    uint64_t due_ms = hth_session_due_ms(n->ctx.session);

    if (n->ctx.epoch) {
        due_ms = least_ms(due_ms, hth_tree_due_ms(&n->ctx));
        due_ms = least_ms(due_ms, hth_blobs_due_ms(&n->ctx));
        due_ms = least_ms(due_ms, hth_transfer_due_ms(&n->ctx));
        due_ms = least_ms(due_ms, hth_recover_due_ms(n->recover));
        due_ms = least_ms(due_ms, hth_commit_due_ms(n->commit));
        due_ms = least_ms(due_ms, drop_due_ms(n));
    }
    due_ms = least_ms(due_ms, rank_due_ms(n));
    due_ms = least_ms(due_ms, begin_due_ms(n));
    due_ms = least_ms(due_ms, find_due_ms(n));
    due_ms = least_ms(due_ms, bad_copy_due_ms(n));
    due_ms = least_ms(due_ms, read_due_ms(n));
    due_ms = least_ms(due_ms, keep_due_ms(n));
    due_ms = least_ms(due_ms, fetch_due_ms(n));
    due_ms = least_ms(due_ms, meet_due_ms(n));
    due_ms = least_ms(due_ms, elsewhere_due_ms(n));
    due_ms = least_ms(due_ms, reserve_due_ms(n));
    due_ms = least_ms(due_ms, progress_due_ms(n));
    due_ms = least_ms(due_ms, upgrade_due_ms(n));
    due_ms = least_ms(due_ms, n->rest_ms);
    return least_ms(due_ms, n->made_ms);
}

/* ---- Clients --------------------------------------------------------------------------------- */

void hth_node_request(struct hth_node *n, uint32_t client, const void *bytes, size_t len,
        struct hth_content *content)
{
    serve_request(n, client, bytes, len, &content);
    if (content)
        content->end(content);
}

void hth_node_fail(struct hth_node *n, const struct hearth_error *why)
{
    n->over = *why;
    loan_fail_all(n, why);
    begin_fail_all(n, why);
    meet_fail_all(n, why);
    if (n->recovering)
        recovery_end(n, why->code, why, (struct hth_save_id){ 0 }, NULL);
}

void hth_node_client_gone(struct hth_node *n, uint32_t client)
{
    handover_gone(n, client);
    begin_gone(n, client);
    find_gone(n, client);
    bad_copy_gone(n, client);
    keep_gone(n, client);
    elsewhere_gone(n, client);
    upgrade_gone(n, client);
    meet_gone(n, client);
    read_gone(n, client);
    answer_gone(n, client);
    client_remove(n, client);
}

void hth_node_table(struct hth_node *n, uint32_t round, struct hth_buf *table)
{
    meet_table(n, round, table);
}

void hth_node_ticket(
        struct hth_node *n, uint32_t round, uint32_t wait_ms, const struct hth_ticket *ticket)
{
    fetch_ticket(n, round, wait_ms, ticket);
}

void hth_node_met(struct hth_node *n, uint32_t rank, uint32_t round, int code, const char *text)
{
    meet_done(n, rank, round, code, text);
}

uint32_t hth_node_clients(const struct hth_node *n)
{
    return client_count(n);
}

/* ---- What the driver asks -------------------------------------------------------------------- */

struct hth_transport *hth_node_transport(struct hth_node *n)
{
    return n->transport;
}

int hth_node_ends(const struct hth_node *n)
{
    return n->ends;
}

int hth_node_hands_over(const struct hth_node *n)
{
    return n->hands_over;
}

uint32_t hth_node_linger_s(const struct hth_node *n)
{
    return n->opts.linger_s;
}

int hth_node_done(const struct hth_node *n)
{
    return drop_is_over(n) && !client_count(n);
}

enum hth_leftover hth_node_leftover(const struct hth_node *n)
{
    return drop_leftover(n);
}

struct hth_ctx *hth_node_ctx(struct hth_node *n)
{
    return &n->ctx;
}

const struct history *hth_node_history(const struct hth_node *n)
{
    return n->history;
}

struct hth_slot *hth_node_lent(struct hth_node *n, uint64_t slot)
{
    return loan_slot(n, slot);
}
