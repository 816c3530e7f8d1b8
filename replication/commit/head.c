/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The newest head that this node knows, and its map: on record in `.hearth/head` before anything
 * follows from it, and read again by the next engine of the store.
 */
#include "commit_state.h"

#include "core/base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORD "head"

/* ---- What it says ---------------------------------------------------------------------------- */

static int head_is_of_now(const struct hth_commit *c, struct hth_save_id save)
{
    return save.epoch == c->head.epoch && save.nonce == c->head.nonce;
}

static const struct hth_cancelled *head_cancelled(
        const struct hth_commit *c, struct hth_save_id save)
{
    for (uint32_t i = 0; i < c->head.cancels; i++)
        if (hth_save_cmp(c->head.cancelled[i].save, save) == 0)
            return &c->head.cancelled[i];
    return NULL;
}

/* 1: after GO, the save is newer than the chosen save but of an earlier epoch, so the plan has
 * freed it. Until the first head of this epoch comes, the list that this node has on record may
 * still name the save, and another node may still serve its manifest: this node does not take it.
 * After a restart of this engine, `chosen` is empty if a list of this epoch already contains the
 * save. */
static int head_ruled_out(const struct hth_commit *c, struct hth_save_id save, int now)
{
    struct hth_save_id newest = hth_save_foreign(c->chosen) ? (struct hth_save_id){ 0 } : c->chosen;

    if (hth_save_none(newest) && now)
        newest = c->ctx->keep.save[0];
    return c->running && !hth_save_none(newest) && !hth_save_foreign(save) &&
           !head_is_of_now(c, save) && hth_save_cmp(save, newest) > 0 &&
           !hth_breaks(c->ctx, HTH_BREAK_RULED_OUT);
}

/* Copies of a foreign container that recovery chose stay until a save of this epoch is PROTECTED:
 * kept saves of earlier epochs are older than the container. */
static int head_spares(const struct hth_commit *c, struct hth_save_id save)
{
    return hth_save_foreign(save) && !hth_save_cmp(save, c->chosen) &&
           !head_is_of_now(c, c->ctx->keep.save[0]);
}

/* The fate of a save. If the list came from recovery, the chosen save is open: the coordinator has
 * not counted its copies yet. */
enum fate head_fate(const struct hth_commit *c, struct hth_save_id save)
{
    const struct hth_keep *k = &c->ctx->keep;
    int now = c->ctx->epoch && k->epoch == c->ctx->epoch->epoch && k->saves;

    if (head_ruled_out(c, save, now))
        return FATE_SUPERSEDED;
    if (hth_keep_has(k, save))
        return now || hth_save_cmp(save, c->chosen) != 0 ? FATE_KEPT : FATE_OPEN;
    if (head_cancelled(c, save))
        return FATE_CANCELLED;
    if (now && hth_save_cmp(save, k->save[0]) < 0)
        return head_spares(c, save) ? FATE_OPEN : FATE_SUPERSEDED;
    return head_is_of_now(c, save) && hth_save_cmp(save, c->head.decided) <= 0 ? FATE_SUPERSEDED
                                                                               : FATE_OPEN;
}

int head_is_open(const struct hth_commit *c, struct hth_save_id save)
{
    return hth_save_cmp(save, c->chosen) != 0 && head_fate(c, save) == FATE_OPEN;
}

int head_frees(const struct hth_commit *c, struct hth_save_id save)
{
    enum fate fate = head_fate(c, save);

    return fate == FATE_CANCELLED || fate == FATE_SUPERSEDED;
}

int head_code(const struct hth_commit *c, struct hth_save_id save, const char **out_why)
{
    const struct hth_cancelled *x = head_cancelled(c, save);

    *out_why = "it was cancelled";
    if (x && x == &c->head.cancelled[c->head.cancels - 1] && c->head.why[0])
        *out_why = c->head.why;
    return x ? x->code : HEARTH_EFAILED;
}

struct hth_blob_id head_map_id(const struct hth_head *head)
{
    return (struct hth_blob_id){ HTH_BLOB_MAP, { head->epoch, head->nonce, head->mapped, 0 }, 0 };
}

static int head_message(
        const struct hth_commit *c, int with_map, unsigned char **out, size_t *out_len)
{
    size_t len = with_map ? hth_places_bytes(&c->map) : 0;
    unsigned char *map = malloc(len ? len : 1);

    *out_len = hth_head_bytes(len);
    *out = map ? malloc(*out_len) : NULL;
    if (*out) {
        if (len)
            hth_places_encode(&c->map, map);
        hth_head_encode(&c->head, map, len, *out);
    }
    free(map);
    return *out ? HEARTH_OK : HEARTH_ENOMEM;
}

/* ---- Names of maps --------------------------------------------------------------------------- */

/* Only if a simulator run leaves out the rule that a promise names its map by digest: the number of
 * maps before this one in the coordinator's life. */
static uint64_t head_map_number(const struct hth_commit *c)
{
    return c->head.mapped ? hth_get64(c->map.forerunner) : 0;
}

static void head_chain(const struct hth_commit *c, unsigned char out[HTH_DIGEST])
{
    memcpy(out, c->head.map, HTH_DIGEST);
    if (!hth_breaks(c->ctx, HTH_BREAK_NUMBER))
        return;
    memset(out, 0, HTH_DIGEST);
    hth_put64(out, head_map_number(c) + 1);
}

void head_map_name(const struct hth_commit *c, unsigned char out[HTH_DIGEST])
{
    memcpy(out, c->head.map, HTH_DIGEST);
    if (!hth_breaks(c->ctx, HTH_BREAK_NUMBER))
        return;
    memset(out, 0, HTH_DIGEST);
    hth_put64(out, head_map_number(c));
}

/* ---- On record ------------------------------------------------------------------------------- */

static int head_encode(const struct hth_head *head, const struct hth_places *map,
        unsigned char **out, size_t *out_len, struct hearth_error *err)
{
    size_t map_len = hth_places_bytes(map);
    unsigned char *bytes = malloc(map_len);

    *out_len = hth_head_bytes(map_len);
    *out = malloc(*out_len);
    if (!bytes || !*out) {
        free(bytes);
        free(*out);
        return hth_fail(err, HEARTH_ENOMEM, 0, "a head of %zu bytes", *out_len);
    }
    hth_places_encode(map, bytes);
    hth_head_encode(head, bytes, map_len, *out);
    free(bytes);
    return HEARTH_OK;
}

/* 1: a simulator run leaves out the rule that heads, or those that cancel a save, are on record. */
static int head_is_unwritten(const struct hth_commit *c, const struct hth_head *head)
{
    return hth_breaks(c->ctx, HTH_BREAK_RECORD) ||
           (hth_breaks(c->ctx, HTH_BREAK_CANCELLED) && head->cancels &&
                   !head_cancelled(c, head->cancelled[head->cancels - 1].save));
}

/* 1: the list differs, even if both are of the same decision: a recovery removes saves from the
 * list that its plan has not kept. */
static int head_changes_list(const struct hth_commit *c, const struct hth_keep *keep)
{
    unsigned char old[HTH_KEEP_BYTES], new[HTH_KEEP_BYTES];

    hth_keep_encode(&c->ctx->keep, old);
    hth_keep_encode(keep, new);
    return memcmp(old, new, sizeof(old)) != 0;
}

int head_put(struct hth_commit *c, const struct hth_head *head, struct hth_places *map,
        struct hearth_error *err)
{
    struct hth_store *s = c->ctx->store;
    int kept = head_changes_list(c, &head->keep);
    unsigned char *bytes;
    size_t len;
    int rc = head_encode(head, map ? map : &c->map, &bytes, &len, err);

    if (rc)
        return rc;
    if (kept)
        hth_point(&c->ctx->points, "keep");
    rc = head_is_unwritten(c, head) ? HEARTH_OK : s->ops->record_put(s, RECORD, bytes, len, err);
    free(bytes);
    if (rc)
        return rc;
    if (map)
        hth_blobs_forget(c->ctx, head_map_id(&c->head).save);
    c->head = *head;
    if (map)
        places_take(c, map);
    if (kept && head->keep.epoch) {
        struct hearth_error cause;

        /* not a failure: the head on record has the list as well */
        if (kept_write(c, &head->keep, &cause))
            hth_say(&c->ctx->log, HEARTH_LOG_WARN, "keep-failed", "%s", cause.text);
        c->ctx->keep = head->keep;
    }
    return HEARTH_OK;
}

/* ---- Read again ------------------------------------------------------------------------------ */

/* Reads the head on record. out->epoch 0: there is no head, or it is damaged, which is logged. The
 * map is the caller's. */
static int head_read(struct hth_commit *c, struct hth_head *out, struct hth_places *out_map,
        struct hearth_error *err)
{
    struct hth_store *s = c->ctx->store;
    const unsigned char *map;
    unsigned char name[HTH_DIGEST];
    struct hearth_error cause;
    void *bytes = NULL;
    size_t len = 0, map_len;
    int rc;

    *out = (struct hth_head){ 0 };
    *out_map = (struct hth_places){ 0 };
    if (s->ops->record_get(s, RECORD, &bytes, &len, NULL))
        return HEARTH_OK;
    rc = hth_head_decode(out, &map, &map_len, bytes, len, &cause);
    if (!rc)
        rc = hth_places_decode(out_map, map, map_len, &cause);
    if (!rc) {
        hth_digest(name, map, map_len);
        if (memcmp(name, out->map, HTH_DIGEST) != 0)
            rc = hth_fail(&cause, HEARTH_ECORRUPT, 0, "the head names another map than it has");
    }
    free(bytes);
    if (!rc)
        return HEARTH_OK;
    hth_places_fini(out_map);
    *out = (struct hth_head){ 0 };
    if (rc == HEARTH_EUNSUPPORTED || rc == HEARTH_ENOMEM)
        return hth_fail(err, rc, 0, "%s", cause.text);
    hth_say(&c->ctx->log, HEARTH_LOG_ERROR, "head-bad", "%s", cause.text);
    c->head_bad = 1;
    return HEARTH_OK;
}

/* The head is written before the keep record, so it may have one decision more than the record. */
static void head_take_keep(struct hth_commit *c, const struct hth_head *head)
{
    struct hth_keep *k = &c->ctx->keep;

    if (head->keep.epoch > k->epoch ||
            (head->keep.epoch == k->epoch && head->keep.serial > k->serial))
        *k = head->keep;
}

int hth_commit_adopt(struct hth_commit *c, struct hearth_error *err)
{
    struct hth_places map;
    struct hth_head head;
    int rc = head_read(c, &head, &map, err);

    hth_places_fini(&map);
    if (rc)
        return rc;
    c->found_epoch = head.epoch;
    c->found_nonce = head.nonce;
    if (head.epoch)
        head_take_keep(c, &head);
    return HEARTH_OK;
}

int hth_commit_knows(const struct hth_commit *c, const struct hth_epoch *e)
{
    return (c->found_epoch == e->epoch && c->found_nonce == e->nonce) ||
           hth_breaks(c->ctx, HTH_BREAK_RECORD);
}

int hth_commit_head_bad(const struct hth_commit *c)
{
    return c->head_bad;
}

static int head_first(struct hth_commit *c, struct hearth_error *err)
{
    const struct hth_epoch *e = c->ctx->epoch;
    struct hth_head head = { .epoch = e->epoch, .nonce = e->nonce, .keep = c->ctx->keep };
    struct hth_places map;
    unsigned char *bytes;
    size_t len;

    hth_places_first(&map, e->epoch, e->nonce);
    len = hth_places_bytes(&map);
    bytes = malloc(len);
    if (!bytes)
        return hth_fail(err, HEARTH_ENOMEM, 0, "a head of %zu bytes", len);
    hth_places_encode(&map, bytes);
    hth_digest(head.map, bytes, len);
    free(bytes);
    return head_put(c, &head, &map, err);
}

/* 1: a simulator run leaves out the rule that the next engine goes on from the head on record. */
static int head_is_forgotten(const struct hth_commit *c)
{
    return hth_breaks(c->ctx, HTH_BREAK_RECORD) ||
           (hth_breaks(c->ctx, HTH_BREAK_SERIAL) && hth_is_coordinator(c->ctx));
}

/* An engine that was restarted in its epoch goes on from the head of the engine before it. */
int head_join(struct hth_commit *c, struct hearth_error *err)
{
    const struct hth_epoch *e = c->ctx->epoch;
    struct hth_places map;
    struct hth_head head;
    int rc = head_read(c, &head, &map, err);

    if (rc)
        return rc;
    if (head.epoch != e->epoch || head.nonce != e->nonce || head_is_forgotten(c)) {
        hth_places_fini(&map);
        return head_first(c, err);
    }
    c->head = head;
    head_take_keep(c, &head);
    places_take(c, &map);
    return HEARTH_OK;
}

/* ---- The coordinator appends ------------------------------------------------------------- */

static int head_name_map(struct hth_commit *c, struct hth_head *next, struct hth_places *map)
{
    size_t len = hth_places_bytes(map);
    unsigned char *bytes = malloc(len);

    if (!bytes)
        return HEARTH_ENOMEM;
    head_chain(c, map->forerunner);
    hth_places_encode(map, bytes);
    hth_digest(next->map, bytes, len);
    free(bytes);
    next->mapped = next->position;
    next->settled = 0; /* no promise was given under the new map */
    return HEARTH_OK;
}

/* The map is new, so no earlier promise counts any more. */
static void head_void_promises(struct hth_commit *c)
{
    for (struct tally *t = c->coord.tallies; t; t = t->next) {
        t->nodes_promised = 0;
        for (uint32_t n = 0; n < c->ctx->epoch->nodes; n++)
            t->node[n].promised = 0;
    }
}

int head_append(struct hth_commit *c, struct hth_head *next, struct hth_places *map)
{
    struct hth_ctx *ctx = c->ctx;
    struct hearth_error err = { .text = "no memory" };
    int rc;

    next->position = c->head.position + 1;
    rc = map ? head_name_map(c, next, map) : HEARTH_OK;
    rc = rc ? rc : head_put(c, next, map, &err);
    if (map)
        hth_places_fini(map);
    if (rc) {
        hth_say(&ctx->log, HEARTH_LOG_ERROR, "head-failed",
                "nothing is decided while that cannot be put on record: %s", err.text);
        c->coord.look = 1;
        c->coord.look_ms = hth_now_ms(&ctx->clock) + ctx->opts.retry_ms;
        return rc;
    }
    if (next->mapped == next->position)
        head_void_promises(c);
    head_send(c, HTH_NODE_NONE, next->mapped == next->position);
    return HEARTH_OK;
}

/* All nodes pull the map as a blob. */
static void head_give_map(struct hth_commit *c, size_t len)
{
    struct hth_blob_id id = head_map_id(&c->head);
    unsigned char *bytes = malloc(len);
    struct hearth_error err;

    if (!bytes)
        return;
    hth_places_encode(&c->map, bytes);
    if (hth_blob_give(c->ctx, &id, bytes, len, &err))
        hth_say(&c->ctx->log, HEARTH_LOG_ERROR, "map-failed", "%s", err.text);
    free(bytes);
}

void head_send(struct hth_commit *c, uint32_t node, int with_map)
{
    size_t map_len = hth_places_bytes(&c->map);
    int fits = hth_head_bytes(map_len) <= HTH_TREE_MAX && !hth_breaks(c->ctx, HTH_TEST_BLOB);
    unsigned char *word;
    size_t len;

    if (with_map && !fits)
        head_give_map(c, map_len);
    if (head_message(c, with_map && fits, &word, &len))
        return; /* a member that has missed the head sends ALIVE */
    if (node == HTH_NODE_NONE)
        hth_tree_down(c->ctx, HTH_KIND_HEAD, word, len);
    else
        hth_tree_to(c->ctx, node, HTH_KIND_HEAD, word, len);
    free(word);
}
