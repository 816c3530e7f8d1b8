/* SPDX-License-Identifier: Apache-2.0 */
/* Node 1 owns rank 1's objects and holds the copies of rank 0's. Node 0 is a coordinator that
 * only listens. */
#ifndef HEARTH_TESTS_REPLICATION_MEMBER_H
#define HEARTH_TESTS_REPLICATION_MEMBER_H

#include "check.h"
#include "pair.h"
#include "store_mem.h"

#include "core/base/bytes.h"
#include "core/format/head.h"
#include "core/format/places.h"
#include "replication/commit/commit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NODES = 3 };
enum { SOON_MS = 1000 }; /* ten times retry_ms */

static const struct hth_save_id save = { 7, 77, 5, 1 };
static const uint64_t copy = 1;                      /* rank 0's object */
static const uint64_t own = UINT64_C(1) << 32 | 1;   /* rank 1's */
static const uint64_t other = UINT64_C(2) << 32 | 1; /* rank 2's: no place here at first */
static const uint64_t raw = UINT64_C(2) << 32 | 99;  /* everybody's, of rank 2 */

static struct pair *p;
static struct hth_ctx *ctx;
static struct hth_commit *commit;
static const uint32_t *said; /* by kind, how many facts node 0 has received */
static uint32_t copied;
static uint32_t ends, unknown; /* of handles; of these with HEARTH_EUNKNOWN */
/* Of the heads that are given: */
static int unsettled;
static struct hth_save_id cancelled; /* epoch 0: none */
static int cancelled_code = HEARTH_ETIMEOUT;
static struct hth_save_id decided; /* likewise */

static inline void on_level(void *none, struct hth_save_id id, uint32_t rank,
        enum hearth_level level, int degraded, int code, const char *text)
{
    (void)none, (void)id, (void)degraded, (void)text;
    ends += code != HEARTH_OK || level >= HEARTH_PROTECTED;
    unknown += code == HEARTH_EUNKNOWN;
    copied += level == HEARTH_COPIED && rank == 1;
}

static inline void engine_start(void)
{
    struct hth_commit_events events = { .on_level = on_level };

    must(hth_commit_open(ctx, &events, &commit, NULL));
    must(hth_commit_adopt(commit, NULL));
    must(hth_commit_join(commit, NULL));
    hth_commit_go(commit, (struct hth_save_id){ 0 });
}

/* A new engine on the same node: the objects that it holds stay. */
static inline void engine_again(void)
{
    hth_commit_close(commit);
    engine_start();
    hth_commit_resume(commit);
}

static inline void begin(void)
{
    static uint32_t rank_node[] = { 0, 1, 2, 1 }; /* the last where the world is of four */

    alarm(60);
    p = pair_open(NODES);
    ctx = &p->node[1].ctx;
    said = p->node[0].heard;
    p->node[1].epoch.rank_node = rank_node;
    engine_start();
}

static inline void end(void)
{
    hth_commit_close(commit);
    p->node[1].epoch.rank_node = NULL;
    pair_close(p);
}

/* How often node 0 receives a fact of this kind within so long. */
static inline uint32_t heard(uint16_t kind, uint64_t ms)
{
    uint32_t before = said[kind];

    for (uint64_t end_ms = p->now_ms + ms; p->now_ms < end_ms; hth_commit_tick(commit))
        if (!pair_step(p))
            p->now_ms += 10;
    return said[kind] - before;
}

static inline struct hth_held *seal(uint64_t id)
{
    struct hth_held *held = pair_seal(p, 1, save, id, 4096, id);

    held->verified = 1;
    return held;
}

/* The manifest of these objects comes, as the coordinator gives it. */
static inline void give_manifest_of(
        struct hth_save_id of, const struct hth_object *object, uint32_t count)
{
    struct hth_object list[4];
    struct hth_manifest m = {
        .save = of, .world = NODES, .nodes = NODES, .job = "pair", .objects = count, .object = list
    };
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, of, 0 };
    unsigned char *bytes = malloc(hth_manifest_bytes(&m));

    cr_assert(bytes != NULL);
    memcpy(list, object, count * sizeof(*object));
    must(hth_manifest_encode(&m, bytes, NULL));
    hth_commit_blob(commit, &id, bytes, hth_manifest_bytes(&m));
    free(bytes);
}

static inline void give_manifest(const struct hth_object *object, uint32_t count)
{
    give_manifest_of(save, object, count);
}

/* A head with this map. */
static inline void give_head(uint64_t position, struct hth_places *map, const struct hth_keep *keep)
{
    struct hth_head head = { .epoch = save.epoch,
        .nonce = save.nonce,
        .position = position,
        .mapped = position,
        .keep = *keep,
        .settled = keep->saves != 0 && !unsettled };
    unsigned char bytes[400], word[HTH_HEAD_BYTES + sizeof(bytes)];
    size_t len = hth_places_bytes(map);

    head.decided = decided;
    if (cancelled.epoch)
        head.cancelled[head.cancels++] = (struct hth_cancelled){ cancelled, cancelled_code, 0 };
    cr_assert(le(sz, len, sizeof(bytes)));
    hth_places_encode(map, bytes);
    hth_digest(head.map, bytes, len);
    hth_head_encode(&head, bytes, len, word);
    hth_commit_deliver(commit, 0, HTH_KIND_HEAD, word, hth_head_bytes(len));
}

/* The list of this epoch with this save on it, settled; no node is lost. */
static inline void give_list(void)
{
    struct hth_keep keep = { .epoch = save.epoch, .serial = 1, .saves = 1, .save = { save } };
    struct hth_places map;

    hth_places_first(&map, save.epoch, save.nonce);
    map.forerunner[31] = 1; /* a map after the first */
    give_head(1, &map, &keep);
}

#endif
