/* SPDX-License-Identifier: Apache-2.0 */
/* A coordinator, node 0: made-up facts that it receives, and what it puts on record. */
#ifndef HEARTH_TESTS_REPLICATION_COORDINATOR_H
#define HEARTH_TESTS_REPLICATION_COORDINATOR_H

#include "check.h"
#include "pair.h"
#include "raws.h"

#include "core/base/bytes.h"
#include "core/format/head.h"
#include "core/format/places.h"
#include "replication/commit/commit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAVE  32u /* bytes, in front of each fact */
#define EPOCH 7u
#define NONCE 77u

static struct hth_save_id save; /* the save that facts are about */
static struct pair *p;
static struct hth_ctx *ctx;
static struct hth_commit *commit; /* of node 0 */
static struct hth_save_id chosen; /* by recovery */
static const struct hth_store_ops *real;
static struct hth_store_ops ops; /* the store's, but for these */
static int refuses;              /* heads cannot be written */
static int refuses_manifests;

static inline int head_put(struct hth_store *s, const char *name, const void *bytes, size_t len,
        struct hearth_error *err)
{
    if (refuses && !strcmp(name, "head"))
        return hth_fail(err, HEARTH_ENOSPC, 0, "no room for a head");
    if (refuses_manifests && strstr(name, "manifest"))
        return hth_fail(err, HEARTH_ENOSPC, 0, "no room for a manifest");
    return real->record_put(s, name, bytes, len, err);
}

static inline void on_level(void *none, struct hth_save_id id, uint32_t rank,
        enum hearth_level level, int degraded, int code, const char *text)
{
    (void)none, (void)id, (void)rank, (void)level, (void)degraded, (void)code, (void)text;
}

static inline void engine_join(void)
{
    struct hth_commit_events events = { .on_level = on_level };

    must(hth_commit_open(ctx, &events, &commit, NULL));
    must(hth_commit_adopt(commit, NULL));
    must(hth_commit_join(commit, NULL));
}

static inline void engine_start(void)
{
    engine_join();
    hth_commit_go(commit, chosen);
}

static inline void engine_again(void)
{
    hth_commit_close(commit);
    engine_start();
    hth_commit_resume(commit);
}

/* A rank on each node; the engine is not started. */
static inline void coordinator_open(uint32_t nodes)
{
    static uint32_t rank_node[] = { 0, 1, 2, 3 };

    alarm(60);
    p = pair_open(nodes);
    ctx = &p->node[0].ctx;
    p->node[0].epoch.rank_node = rank_node;
    real = p->node[0].store->ops;
    ops = *real;
    ops.record_put = head_put;
    p->node[0].store->ops = &ops;
    refuses = refuses_manifests = 0;
    save = (struct hth_save_id){ EPOCH, NONCE, 5, 1 };
    chosen = (struct hth_save_id){ 0 };
}

static inline void coordinator_close(void)
{
    hth_commit_close(commit);
    p->node[0].epoch.rank_node = NULL;
    p->node[0].store->ops = real;
    pair_close(p);
}

static inline void fact(uint32_t origin, uint16_t kind, const void *more, size_t len)
{
    unsigned char body[400] = { 0 };

    hth_put64(body, save.epoch);
    hth_put64(body + 8, save.nonce);
    hth_put64(body + 16, save.step);
    hth_put32(body + 24, save.attempt);
    if (len)
        memcpy(body + SAVE, more, len);
    hth_commit_deliver(commit, origin, kind, body, SAVE + len);
}

/* out_map: the caller's; NULL: not wanted. */
static inline struct hth_head on_record(struct hth_places *out_map)
{
    return pair_head(p, 0, out_map);
}

static inline void say_done(uint32_t origin)
{
    unsigned char none[16] = { 0 };

    hth_put32(none + 4, 1); /* parts */
    fact(origin, HTH_KIND_DONE, none, sizeof(none));
}

static inline void done_and_held(void)
{
    for (uint32_t n = 0; n < p->nodes; n++)
        say_done(n);
    hth_commit_tick(commit);
    for (uint32_t n = 0; n < p->nodes; n++)
        fact(n, HTH_KIND_HELD, NULL, 0);
    hth_commit_tick(commit);
}

static inline void promise_of(uint32_t origin, uint64_t store, const unsigned char map[HTH_DIGEST])
{
    unsigned char body[8 + HTH_DIGEST];

    hth_put64(body, store);
    memcpy(body + 8, map, HTH_DIGEST);
    fact(origin, HTH_KIND_PROMISE, body, sizeof(body));
    hth_commit_tick(commit);
}

static inline void promise(uint32_t origin, const unsigned char map[HTH_DIGEST])
{
    promise_of(origin, p->node[0].epoch.member[origin].store, map);
}

#endif
