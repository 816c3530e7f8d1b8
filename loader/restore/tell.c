/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member says what it holds: its inventory goes up the tree in parts, and again when it is asked
 * for. Raw objects and files of foreign containers have no checksums that could be verified later,
 * so workers digest them before.
 */
#include "restore_state.h"

#include "replication/held/seal.h"

#include "core/base/bytes.h"
#include "core/base/crc.h"

#include <stdlib.h>

/* Adds the object at this place of the manifest to the runs. */
static void tell_see_run(struct hth_seen_save *out, uint32_t place)
{
    struct hth_seen_run *last = out->runs ? &out->run[out->runs - 1] : NULL;

    if (last && place == last->first + last->count)
        last->count++;
    else
        out->run[out->runs++] = (struct hth_seen_run){ place, 1 };
}

static int tell_see_save(
        const struct hth_restore *r, struct hth_held_save *s, struct hth_seen_save *out)
{
    uint32_t n = 0;

    for (struct hth_held *h = s->held; h; h = h->next)
        n += h->state == HTH_HELD_SEALED;
    *out = (struct hth_seen_save){ .id = s->id, .has_manifest = s->has_manifest };
    if (s->has_manifest)
        memcpy(out->manifest, s->manifest.digest, HTH_DIGEST);
    out->object = calloc(n ? n : 1, sizeof(*out->object));
    out->run = calloc(n ? n : 1, sizeof(*out->run));
    if (!out->object || !out->run)
        return HEARTH_ENOMEM;
    for (struct hth_held *h = s->held; h; h = h->next) { /* in order of id, as the manifest */
        const struct hth_object *o =
                s->has_manifest ? hth_manifest_find(&s->manifest, h->object.id) : NULL;

        if (h->state != HTH_HELD_SEALED)
            continue;
        if (o && !r->lists && !memcmp(o->digest, h->object.digest, HTH_DIGEST)) {
            tell_see_run(out, (uint32_t)(o - s->manifest.object));
        } else {
            out->object[out->objects].id = h->object.id;
            memcpy(out->object[out->objects++].digest, h->object.digest, HTH_DIGEST);
        }
    }
    return HEARTH_OK;
}

/* From now on other nodes can fetch the manifest from here. */
static void tell_serve(struct hth_ctx *ctx, struct hth_held_save *s)
{
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, s->id, 0 };

    if (s->has_manifest)
        hth_blob_serve_buf(ctx, &id, s->manifest_buf, NULL);
}

/* ---- Looking
 * ----------------------------------------------------------------------------------- */

struct digesting {
    struct hth_restore *r;
    uint32_t generation;
};

static void tell_digested(struct hth_restore *r)
{
    struct hearth_error err;

    if (tell_make(r, &err))
        restore_end(r, err.code, &err);
    else
        tell_inventory(r);
}

static void tell_on_digested(void *self, struct hth_held_save *save, struct hth_held *held,
        int code, const struct hearth_error *err)
{
    struct digesting *d = self;
    struct hth_restore *r = d->r;
    int stale = d->generation != r->generation;

    free(d);
    if (code == HEARTH_ECORRUPT && !held->dropped) {
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "copy-bad", "%s", err->text);
        hth_held_condemn(r->ctx, save, held, "payload");
    } else if (code == HEARTH_ELOST && !held->dropped) {
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "foreign-left-out", "%s", err->text);
    }
    if (!stale && r->state == TOLD && r->digesting && --r->digesting == 0)
        tell_digested(r);
}

/* A worker digests it, and the inventory waits for that; a bad copy is put aside. */
static int tell_digest(struct hth_restore *r, struct hth_held_save *s, struct hth_held *h,
        struct hearth_error *err)
{
    struct digesting *d = malloc(sizeof(*d));
    int rc;

    if (!d)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to look at '%s'", h->object.name);
    *d = (struct digesting){ r, r->generation };
    if (h->object.kind == HTH_OBJECT_RAW)
        rc = hth_raw_look(r->ctx, s, h, tell_on_digested, d, err);
    else
        rc = hth_digest_start(r->ctx, s, h, tell_on_digested, d, err);
    if (rc)
        free(d);
    else
        r->digesting++;
    return rc;
}

static void tell_look_at_raws(struct hth_restore *r, struct hth_held_save *s)
{
    struct hearth_error err;
    struct hth_held *next;

    for (struct hth_held *h = s->held; h; h = next) {
        next = h->next;
        if (h->object.kind != HTH_OBJECT_RAW || h->state != HTH_HELD_SEALED ||
                !tell_digest(r, s, h, &err))
            continue;
        hth_say(&r->ctx->log, HEARTH_LOG_ERROR, "copy-bad", "%s", err.text);
        hth_held_drop(r->ctx, s, h);
    }
}

static void tell_look_at_foreign(struct hth_restore *r, struct hth_held_save *s, struct hth_held *h)
{
    struct hearth_error err;

    h->verified = 0;
    if (hth_held_same(r->ctx, h, &err) || tell_digest(r, s, h, &err))
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "foreign-left-out", "%s", err.text);
}

/* The save that the inventory lists next, from `s` on, when it lists `*told` already; NULL:
 * none. Saves are in order, the newest first, and an inventory has room for HTH_INVENTORY_SAVES. */
static struct hth_held_save *tell_next(
        const struct hth_restore *r, struct hth_held_save *s, uint32_t *told)
{
    while (s && (s->removed || !foreign_listed(r, s)))
        s = s->next;
    if (*told == HTH_INVENTORY_SAVES)
        return NULL;
    *told += s != NULL;
    return s;
}

static void tell_left_out(const struct hth_restore *r)
{
    uint32_t told = 0, left_out = 0;
    uint64_t step = 0;

    for (struct hth_held_save *s = hth_holdings_first(r->ctx); s; s = s->next) {
        if (s->removed || !foreign_listed(r, s))
            continue;
        if (told++ < HTH_INVENTORY_SAVES)
            step = s->id.step;
        else
            left_out++;
    }
    if (left_out)
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "steps-left-out",
                "a recovery considers the newest %u steps of a node, here those from step %" PRIu64
                " on: %" PRIu32 " older ones in the job's directory are left out",
                HTH_INVENTORY_SAVES, step, left_out);
}

static void tell_look_at_containers(struct hth_restore *r)
{
    uint32_t told = 0;

    tell_left_out(r);
    for (struct hth_held_save *s = hth_holdings_first(r->ctx); (s = tell_next(r, s, &told));
            s = s->next) {
        if (!hth_save_foreign(s->id) || s->unfinished)
            continue;
        for (struct hth_held *h = s->held; h; h = h->next)
            if (h->state == HTH_HELD_SEALED && h->slot)
                tell_look_at_foreign(r, s, h);
    }
}

int tell_look(struct hth_restore *r)
{
    hth_held_mend(r->ctx, NULL, NULL);
    for (struct hth_held_save *s = hth_holdings_first(r->ctx); s; s = s->next) {
        if (s->removed || hth_save_foreign(s->id))
            continue;
        hth_held_look(r->ctx, s);
        tell_look_at_raws(r, s);
    }
    tell_look_at_containers(r);
    return r->digesting != 0;
}

/* ---- The inventory
 * ----------------------------------------------------------------------------- */

int tell_make(struct hth_restore *r, struct hearth_error *err)
{
    struct hth_ctx *ctx = r->ctx;
    struct hth_inventory inv = { .store = ctx->store->ops->id(ctx->store), .keep = ctx->keep };
    uint32_t told = 0;
    int rc = HEARTH_OK;

    hth_point(&ctx->points, "inventory");
    inv.save = calloc(HTH_INVENTORY_SAVES, sizeof(*inv.save));
    if (!inv.save)
        return hth_fail(err, HEARTH_ENOMEM, 0, "inventory");
    for (struct hth_held_save *s = hth_holdings_first(ctx); !rc && (s = tell_next(r, s, &told));
            s = s->next) {
        if (!hth_save_foreign(s->id))
            tell_serve(ctx, s);
        rc = hth_save_foreign(s->id) ? foreign_see(s, &inv.save[inv.saves++])
                                     : tell_see_save(r, s, &inv.save[inv.saves++]);
    }
    r->inventory_len = hth_inventory_bytes(&inv);
    r->inventory = rc ? NULL : malloc(r->inventory_len);
    if (r->inventory)
        hth_inventory_encode(&inv, r->inventory);
    else
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "inventory");
    hth_inventory_fini(&inv);
    return rc;
}

void tell_inventory(struct hth_restore *r)
{
    const size_t max = HTH_TREE_MAX - HTH_INVENTORY_HEAD;
    uint32_t parts = (uint32_t)((r->inventory_len + max - 1) / max);
    uint32_t crc = hth_crc32c(r->inventory, r->inventory_len);
    unsigned char body[HTH_TREE_MAX];

    for (uint32_t i = 0; i < parts; i++) {
        size_t n = i + 1 < parts ? max : r->inventory_len - i * max;

        hth_put32(body, i);
        hth_put32(body + 4, parts);
        hth_put32(body + 8, r->least);
        hth_put32(body + 12, crc);
        memcpy(body + HTH_INVENTORY_HEAD, r->inventory + i * max, n);
        hth_tree_up(r->ctx, HTH_KIND_INVENTORY, body, HTH_INVENTORY_HEAD + n);
    }
}

/* The coordinator's engine is a new one and does not have the plan that this node may have; or it
 * has another manifest of a save than this node, and accepts no runs. */
void tell_again(struct hth_restore *r, const unsigned char *bytes, size_t len)
{
    struct hearth_error err;
    int anew;

    if ((len != 4 && len != 8) || r->state == IDLE || r->state == ENDED ||
            hth_is_coordinator(r->ctx))
        return;
    if (hth_get32(bytes) > r->least)
        r->least = hth_get32(bytes);
    anew = len == 8 && !r->lists;
    r->lists |= anew;
    if (r->digesting || !(r->has_plan || anew))
        return; /* the inventory is repeated anyway until a plan comes */
    if (r->plan_waits && r->plan.serial <= r->least) {
        r->plan_waits = 0;
        r->has_plan = 0;
    }
    free(r->inventory);
    r->inventory = NULL;
    if (tell_make(r, &err))
        restore_end(r, err.code, &err);
    else
        tell_inventory(r);
}
