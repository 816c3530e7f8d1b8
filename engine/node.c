/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wiring of one engine: which part hears which event. No logic of its own beyond that.
 *
 *   ranks ── serve.c ──► lend.c, epoch.c ──► commit, recover ──► transfer, blobs, tree ──► session
 *                                               ▲                                            │
 *                                               └──────────── on_message, on_peer_* ◄────────┘
 */
#include "node_state.h"

#include <stdlib.h>
#include <string.h>

static void on_message(
        void *self, uint32_t from, uint16_t type, const unsigned char *body, size_t len)
{
    struct hth_node *n = self;

    if (!hth_tree_message(&n->ctx, from, type, body, len) &&
            !hth_blobs_message(&n->ctx, from, type, body, len) &&
            !hth_transfer_message(&n->ctx, from, type, body, len))
        hth_say(&n->ctx.log, HEARTH_LOG_DEBUG, "message-unknown", "type %u from node %u", type,
                from);
}

static void on_peer_up(void *self, uint32_t node)
{
    struct hth_node *n = self;

    hth_commit_peer_up(n->commit, node);
}

static void on_peer_down(void *self, uint32_t node, int code, const char *text)
{
    struct hth_node *n = self;

    hth_transfer_peer_down(&n->ctx, node);
    hth_blobs_peer_down(&n->ctx, node);
    hth_recover_peer_down(n->recover, node, code, text);
    hth_commit_peer_down(n->commit, node);
}

static void on_deliver(
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

static void on_blob(
        void *self, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    struct hth_node *n = self;

    if (drop_is_done(n))
        return;
    if (n->recovered && id->kind != HTH_BLOB_PLAN)
        hth_commit_blob(n->commit, id, bytes, len);
    else
        hth_recover_blob(n->recover, id, bytes, len);
}

static void on_blob_failed(void *self, const struct hth_blob_id *id, const struct hearth_error *err)
{
    struct hth_node *n = self;

    if (n->recovered)
        hth_commit_blob_failed(n->commit, id, err);
    else
        hth_recover_blob_failed(n->recover, id, err);
}

static void on_level(void *self, struct hth_save_id save, uint32_t rank, enum hearth_level level,
        int degraded, int code, const char *text)
{
    struct hth_node *n = self;

    for (struct loan *l = n->loans; l; l = l->next)
        if (l->has_id && hth_save_cmp(l->save, save) == 0 &&
                (rank == HTH_NODE_NONE || rank == l->rank))
            serve_event(n, l, level, degraded, code, text);
}

static void on_recovered(void *self, int code, const struct hearth_error *err,
        struct hth_save_id save, const struct hearth_recovery *info)
{
    struct hth_node *n = self;

    n->recovering = 0;
    if (code == HEARTH_OK) {
        n->recovered = 1;
        n->chosen = save;
        n->info = *info;
        n->info.join_ms = (uint32_t)n->join_ms;
        epoch_write_running(n);
        hth_commit_go(n->commit, save);
    } else if (!n->failure.code) {
        n->failure = *err;
    }
    serve_recovered(n, code, err);
}

static int offer_wanted(
        void *self, uint32_t from, struct hth_save_id save, const struct hth_object *object)
{
    struct hth_node *n = self;

    return drop_is_done(n) ? 0 : hth_commit_offer_wanted(n->commit, from, save, object);
}

static void replica_sealed(void *self, struct hth_save_id save, uint64_t object)
{
    struct hth_node *n = self;

    lend_foresee(n, save);
    hth_commit_replica(n->commit, save, object);
}

/* ---- Open and close ------------------------------------------------------------------------- */

static int open_session(struct hth_node *n, struct hearth_error *err)
{
    struct hth_session_events events = {
        .self = n,
        .on_message = on_message,
        .on_peer_up = on_peer_up,
        .on_peer_down = on_peer_down,
    };
    struct hth_transport_events for_transport;
    int rc = hth_session_open(&n->env.session, &events, &n->ctx.clock, &n->ctx.random, &n->ctx.log,
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

static int open_parts(struct hth_node *n, struct hearth_error *err)
{
    struct hth_commit_events commit = { .self = n, .on_level = on_level };
    struct hth_recover_events recover = { .self = n, .on_end = on_recovered };
    struct hth_blob_events blobs = { .self = n, .arrived = on_blob, .failed = on_blob_failed };
    struct hth_transfer_events transfer = {
        .self = n, .wanted = offer_wanted, .sealed = replica_sealed
    };
    int rc = hth_holdings_open(&n->ctx, &n->ctx.holdings, err);

    rc = rc ? rc : hth_tree_open(&n->ctx, on_deliver, n, &n->ctx.tree, err);
    rc = rc ? rc : hth_blobs_open(&n->ctx, &blobs, &n->ctx.blobs, err);
    rc = rc ? rc : hth_transfer_open(&n->ctx, &transfer, &n->ctx.transfer, err);
    rc = rc ? rc : hth_commit_open(&n->ctx, &commit, &n->commit, err);
    rc = rc ? rc : hth_recover_open(&n->ctx, &recover, &n->recover, err);
    return rc;
}

static void load_keep(struct hth_node *n)
{
    void *bytes = NULL;
    size_t len = 0;
    struct hearth_error err;

    if (n->env.store->ops->record_get(n->env.store, "keep", &bytes, &len, NULL))
        return;
    if (hth_keep_decode(&n->ctx.keep, bytes, len, &err)) {
        n->ctx.keep = (struct hth_keep){ 0 };
        hth_say(&n->ctx.log, HEARTH_LOG_ERROR, "keep-bad", "%s", err.text);
    }
    free(bytes);
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
    drop_join(n);
    n->ctx = (struct hth_ctx){
        .clock = env->clock,
        .random = env->random,
        .workers = env->workers,
        .log = env->log,
        .points = env->points,
        .store = env->store,
        .opts = {
                .copies = 1,
                .min_copies = 1,
                .keep = 1,
                .save_ms = 600000,
                .recover_ms = 300000,
                .dead_ms = env->session.dead_ms ? env->session.dead_ms : 5000,
                .retry_ms = env->retry_ms ? env->retry_ms : 500,
                .inflight_bytes = UINT64_C(64) << 20,
                .breaks = env->breaks,
        },
    };
    n->opts.linger_s = env->linger_s ? env->linger_s : LINGER_S;
    memcpy(n->ctx.opts.job, env->session.job, sizeof(n->ctx.opts.job));
    rc = open_session(n, &cause);
    rc = rc ? rc : open_parts(n, &cause);
    rc = rc ? rc : hth_holdings_adopt(&n->ctx, &cause);
    if (!rc) {
        load_keep(n);
        drop_resume(n);
        rc = epoch_resume(n, &cause);
    }
    if (rc) {
        if (err)
            *err = cause;
        hth_node_close(n);
        return rc;
    }
    *out = n;
    return HEARTH_OK;
}

void hth_node_close(struct hth_node *n)
{
    if (!n)
        return;
    if (n->transport)
        n->transport->ops->close(n->transport); /* pulls end, so nothing writes any more */
    hth_recover_close(n->recover);
    hth_commit_close(n->commit);
    if (n->ctx.transfer)
        hth_transfer_close(&n->ctx);
    hth_jobs_close(&n->ctx);
    if (n->ctx.blobs)
        hth_blobs_close(&n->ctx);
    if (n->ctx.tree)
        hth_tree_close(&n->ctx);
    lend_close(n);
    find_close(n);
    read_close(n);
    if (n->ctx.holdings)
        hth_holdings_close(&n->ctx);
    hth_session_close(n->ctx.session);
    while (n->clients) {
        struct client *c = n->clients;

        n->clients = c->next;
        free(c);
    }
    free(n->ctx.down);
    free(n->shard_bytes);
    drop_join(n);
    hth_epoch_fini(&n->epoch);
    free(n);
}

/* ---- Time -------------------------------------------------------------------------------------- */

void hth_node_tick(struct hth_node *n)
{
    hth_session_tick(n->ctx.session);
    if (n->ctx.epoch) {
        hth_blobs_tick(&n->ctx);
        hth_transfer_tick(&n->ctx);
        hth_recover_tick(n->recover);
        hth_commit_tick(n->commit);
        drop_tick(n);
    }
    lend_tick(n, hth_now_ms(&n->ctx.clock));
    find_tick(n, hth_now_ms(&n->ctx.clock));
    progress_tick(n, hth_now_ms(&n->ctx.clock));
    n->made_ms = n->env.store->ops->work(n->env.store); /* of later saves, with the workers */
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t hth_node_due_ms(struct hth_node *n)
{
    uint64_t due_ms = hth_session_due_ms(n->ctx.session);

    if (n->ctx.epoch) {
        due_ms = least(due_ms, hth_blobs_due_ms(&n->ctx));
        due_ms = least(due_ms, hth_transfer_due_ms(&n->ctx));
        due_ms = least(due_ms, hth_recover_due_ms(n->recover));
        due_ms = least(due_ms, hth_commit_due_ms(n->commit));
        due_ms = least(due_ms, drop_due_ms(n));
    }
    due_ms = least(due_ms, lend_due_ms(n));
    due_ms = least(due_ms, find_due_ms(n));
    due_ms = least(due_ms, progress_due_ms(n));
    return least(due_ms, n->made_ms);
}

struct hth_transport *hth_node_transport(struct hth_node *n)
{
    return n->transport;
}

struct hth_ctx *hth_node_ctx(struct hth_node *n)
{
    return &n->ctx;
}

uint32_t hth_node_clients(const struct hth_node *n)
{
    uint32_t count = 0;

    for (const struct client *c = n->clients; c; c = c->next)
        count += c->attached != 0;
    return count;
}

uint32_t hth_node_linger_s(const struct hth_node *n)
{
    return n->opts.linger_s;
}
