/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Candidates: every save of which some node has a valid manifest. The manifest is fetched, from the
 * next holder if one does not give it; then a worker checks it (background.c).
 */
#include "choice_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int candidate_newest_first(const void *a, const void *b)
{
    const struct candidate *x = a;
    const struct candidate *y = b;

    return hth_save_cmp(y->id, x->id);
}

/* Foreign containers have no epoch: each is placed before the first save of Hearth whose step is
 * lower. They come sorted, behind all saves of Hearth. */
static void candidates_merge(struct hth_choice *co)
{
    uint32_t own = 0, at = 0;

    while (own < co->candidates && !hth_save_foreign(co->candidate[own].id))
        own++;
    for (uint32_t f = own; f < co->candidates; f++, at++) {
        struct candidate c = co->candidate[f];

        while (at < f && co->candidate[at].id.step >= c.id.step)
            at++;
        memmove(&co->candidate[at + 1], &co->candidate[at], (f - at) * sizeof(c));
        co->candidate[at] = c;
    }
}

struct candidate *candidate_find(struct hth_choice *co, struct hth_save_id id)
{
    for (uint32_t i = 0; i < co->candidates; i++)
        if (hth_save_cmp(co->candidate[i].id, id) == 0)
            return &co->candidate[i];
    return NULL;
}

/* 1: all ranks have dropped the save. A node that still lists it has not received that, or has not
 * freed it yet. */
static int candidate_is_dropped(const struct hth_choice *co, struct hth_save_id id)
{
    return !hth_save_foreign(id) && id.epoch <= co->ctx->keep.dropped;
}

struct candidate *candidate_add(struct hth_choice *co, struct hth_save_id id)
{
    struct candidate *more = realloc(co->candidate, (co->candidates + 1) * sizeof(*co->candidate));

    if (!more)
        return NULL;
    co->candidate = more;
    more[co->candidates] = (struct candidate){ .id = id };
    return &more[co->candidates++];
}

static int candidates_of_node(struct hth_choice *co, uint32_t node)
{
    const struct hth_inventory *inv = &co->from[node].inventory;

    for (uint32_t i = 0; i < inv->saves; i++) {
        struct candidate *c;

        if (!inv->save[i].has_manifest || candidate_find(co, inv->save[i].id) ||
                candidate_is_dropped(co, inv->save[i].id))
            continue;
        c = candidate_add(co, inv->save[i].id);
        if (!c)
            return HEARTH_ENOMEM;
        c->holder = node;
        memcpy(c->digest, inv->save[i].manifest, HTH_DIGEST);
    }
    return HEARTH_OK;
}

/* This node takes over the newest keep list of all nodes. Copies of that list differ if `hearth rm`
 * has removed saves from some of them: a save that is removed on one node stays with the others, so
 * the copies are united. The newest save that any list names is the watermark. Saves that were
 * dropped since do not count, even if only one node has that on record. */
static void candidates_take_keep(struct hth_choice *co)
{
    struct hth_keep *ours = &co->ctx->keep;
    uint64_t dropped = ours->dropped;

    for (uint32_t n = 0; n < co->nodes; n++) {
        const struct hth_keep *k = &co->from[n].inventory.keep;

        if (k->saves && hth_save_cmp(k->save[0], co->watermark) > 0)
            co->watermark = k->save[0];
        if (k->dropped > dropped)
            dropped = k->dropped;
        if (k->epoch > ours->epoch || (k->epoch == ours->epoch && k->serial > ours->serial))
            *ours = *k;
        else if (k->epoch == ours->epoch && k->serial == ours->serial)
            hth_keep_unite(ours, k);
    }
    hth_keep_drop(ours, dropped);
    if (candidate_is_dropped(co, co->watermark))
        co->watermark = (struct hth_save_id){ 0 };
}

int candidates_keep(const struct hth_choice *co, struct hearth_error *err)
{
    struct hth_store *s = co->ctx->store;
    unsigned char bytes[HTH_KEEP_BYTES];

    if (!co->ctx->keep.epoch)
        return HEARTH_OK;
    hth_keep_encode(&co->ctx->keep, bytes);
    return s->ops->record_put(s, "keep", bytes, sizeof(bytes), err);
}

int candidates_find(struct hth_choice *co)
{
    candidates_take_keep(co);
    for (uint32_t n = 0; n < co->nodes; n++)
        if (candidates_of_node(co, n))
            return HEARTH_ENOMEM;
    return HEARTH_OK;
}

void candidates_sort(struct hth_choice *co)
{
    if (co->candidates)
        qsort(co->candidate, co->candidates, sizeof(*co->candidate), candidate_newest_first);
    if (!co->ctx->opts.foreign_last)
        candidates_merge(co);
}

/* ---- Its manifest ---------------------------------------------------------------------------- */

/* A manifest ends with its own digest; a worker checks whether the bytes have it (background.c). */
static int candidate_take_bytes(struct candidate *c, const unsigned char *bytes, size_t len)
{
    unsigned char *copy = NULL;

    if (len >= HTH_DIGEST && !memcmp(bytes + len - HTH_DIGEST, c->digest, HTH_DIGEST))
        copy = malloc(len);
    if (!copy)
        return HEARTH_ECORRUPT;
    memcpy(copy, bytes, len);
    c->bytes = copy;
    c->len = len;
    return HEARTH_OK;
}

int candidate_manifest(
        struct hth_choice *co, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    struct candidate *c = candidate_find(co, id->save);

    if (!c || c->bytes || id->kind != HTH_BLOB_MANIFEST)
        return 0;
    if (candidate_take_bytes(c, bytes, len))
        hth_say(&co->ctx->log, HEARTH_LOG_WARN, "manifest-bad", HTH_SAVE, HTH_SAVE_ARGS(id->save));
    return 1;
}

/* Takes the next node that has this manifest, after the node that did not give it. */
static void candidate_next_holder(struct hth_choice *co, struct candidate *c)
{
    for (uint32_t i = 1; i <= co->nodes; i++) {
        uint32_t n = (c->holder + i) % co->nodes;
        const struct hth_seen_save *s = hth_inventory_find(&co->from[n].inventory, c->id);

        if (s && s->has_manifest && memcmp(s->manifest, c->digest, HTH_DIGEST) == 0) {
            c->holder = n;
            return;
        }
    }
}

int candidate_has_manifest(struct hth_choice *co, struct candidate *c, uint64_t now_ms)
{
    struct hth_held_save *s = hth_holdings_find(co->ctx, c->id);
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, c->id, 0 };
    const unsigned char *came;
    size_t len;

    if (c->bytes)
        return 1;
    if (c->asked_ms && now_ms < c->asked_ms + 4 * (uint64_t)co->ctx->opts.retry_ms)
        return 0;
    if (s && s->has_manifest && !candidate_take_bytes(c, s->manifest_bytes, s->manifest_len))
        return 1;
    /* The engine before this one may have requested the manifest, so it may have come before there
     * were candidates. */
    if ((came = hth_blob_find(co->ctx, &id, &len)) && !candidate_take_bytes(c, came, len))
        return 1;
    if (c->asked_ms || c->holder == co->ctx->epoch->self)
        candidate_next_holder(co, c);
    c->asked_ms = now_ms;
    if (c->holder != co->ctx->epoch->self)
        hth_blob_fetch(co->ctx, &id, c->holder, NULL);
    return 0;
}

static void candidate_hold(struct hth_choice *co, const struct candidate *c)
{
    struct hth_held_save *s = hth_holdings_get(co->ctx, c->id);
    unsigned char *copy = s && !s->has_manifest && c->has_manifest ? malloc(c->len) : NULL;
    struct hearth_error err;

    if (!copy)
        return;
    memcpy(copy, c->bytes, c->len);
    if (hth_held_set_manifest(co->ctx, s, copy, c->len, &err))
        hth_say(&co->ctx->log, HEARTH_LOG_WARN, "manifest-failed", "%s", err.text);
}

void candidates_leave(struct hth_choice *co)
{
    struct hth_keep *k = &co->ctx->keep;

    if (hth_save_none(co->chosen))
        return; /* after an accepted loss the remains stay as they are */
    for (uint32_t i = k->saves; i-- > 0;) {
        const struct candidate *c = candidate_find(co, k->save[i]);

        if (c && c->whole && !hth_save_after(c->id, co->chosen))
            candidate_hold(co, c);
        else
            hth_keep_leave(k, (int)i);
    }
}

void candidates_free(struct candidate *c, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        hth_manifest_fini(&c[i].manifest);
        free(c[i].bytes);
        free(c[i].sources);
        free(c[i].look);
    }
    free(c);
}
