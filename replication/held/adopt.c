/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a start the store has files, and the catalogue is empty. A file is identified by its own
 * bytes: block, then table against the block's digest; its name must be the block's. Payload is not
 * read here: `verified` stays 0 until the object is needed.
 *
 *   scan ─► every find noted ─► unfinished files given back ─► objects ─► manifests ─► raw objects
 *
 * The store's own list is not touched while it walks it. Files of foreign containers are known by
 * name and length alone; what came of them from other nodes is what the manifest says. Their
 * writers go on writing, so they are looked at anew at each recovery.
 */
#include "holdings_parts.h"
#include "region.h"

#include "core/base/auth.h"
#include "core/foreign/foreign.h"
#include "core/format/table.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct find {
    struct hth_save_id save;
    struct hth_slot *slot;
    int tmp, published, theirs, link, unfinished;
    char name[256];
};

struct finds {
    struct find *at; /* [len] */
    size_t len, cap;
    int no_memory;
};

static void find_note(void *arg, const struct hth_store_found *f)
{
    struct finds *finds = arg;
    struct find *find;
    uint64_t step;

    int theirs = hth_save_none(f->save);

    if (theirs && (!f->dir || hth_step_dir_theirs(f->dir, &step) || (!f->slot && !f->unfinished)))
        return; /* the find cannot be used */
    if (finds->len == finds->cap) {
        size_t cap = finds->cap ? 2 * finds->cap : 16;
        struct find *at = realloc(finds->at, cap * sizeof(*at));

        if (!at) {
            finds->no_memory = 1;
            return;
        }
        finds->at = at;
        finds->cap = cap;
    }
    find = &finds->at[finds->len++];
    *find = (struct find){ .save = f->save, .slot = f->slot, .tmp = f->tmp };
    if (theirs) {
        find->save = hth_save_of_foreign(step);
        find->theirs = 1;
        find->link = f->link;
        find->unfinished = f->unfinished;
    }
    find->published =
            !theirs && f->dir && !hth_step_dir_parse(f->dir, &step) && step == f->save.step;
    snprintf(find->name, sizeof(find->name), "%s", f->name ? f->name : "");
}

static int find_table_check(const struct hth_block *b, const struct hth_slot *slot,
        uint32_t *out_strong, struct hearth_error *err)
{
    unsigned char digest[HTH_DIGEST];
    struct hth_table table = { 0 };
    int rc;

    hth_digest(digest, slot->base + b->table_off, b->table_len);
    if (memcmp(digest, b->table_digest, HTH_DIGEST) != 0)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "its table does not have the block's digest");
    rc = hth_table_decode(&table, slot->base + b->table_off, b->table_len, err);
    if (!rc && table.data_len != b->data_len)
        rc = hth_fail(err, HEARTH_ECORRUPT, 0, "its table is of other data than its block");
    *out_strong = table.strong;
    return rc;
}

static int find_object(
        struct hth_ctx *ctx, const struct find *f, struct hth_object *out, struct hearth_error *err)
{
    struct hth_block b;
    uint32_t strong = 0;
    int rc = hth_block_decode(&b, f->slot->base, HTH_BLOCK, f->slot->capacity, err);

    if (rc)
        return rc;
    if (!b.own)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "its block is gone");
    if (strcmp(b.job, ctx->opts.job) != 0 || strcmp(b.name, f->name) != 0 ||
            hth_save_cmp(b.save, f->save) != 0)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "its block is that of '%s' in " HTH_SAVE " of job %s", b.name,
                HTH_SAVE_ARGS(b.save), b.job);
    rc = find_table_check(&b, f->slot, &strong, err);
    if (rc)
        return rc;
    *out = (struct hth_object){
        .id = b.object,
        .owner = b.owner,
        .kind = HTH_OBJECT_SHARD,
        .strong = strong,
        .data_len = b.data_len,
        .table_len = b.table_len,
    };
    memcpy(out->digest, b.table_digest, HTH_DIGEST);
    memcpy(out->name, b.name, sizeof(out->name));
    return HEARTH_OK;
}

static void object_adopt(struct hth_ctx *ctx, const struct find *f)
{
    struct hth_held_save *save;
    struct hth_object object = { 0 };
    struct hth_held *held;
    struct hearth_error err = { 0 };
    int rc = hth_save_none(f->save) ? HEARTH_ENOENT : find_object(ctx, f, &object, &err);

    if (rc == HEARTH_ENOENT) /* a foreign container's: left as it is */
        return;
    save = rc ? NULL : hth_holdings_get(ctx, f->save);
    if (save && hth_held_find(save, object.id))
        rc = hth_fail(&err, HEARTH_ECORRUPT, 0, "its object is here under another name already");
    if (rc) {
        hth_say(&ctx->log, HEARTH_LOG_ERROR, "adopt-bad",
                HTH_SAVE " object '%s' of this node is not used: %s", HTH_SAVE_ARGS(f->save),
                f->name, err.text);
        hth_slot_condemn(ctx, f->slot, "adopt");
        return;
    }
    held = save ? hth_held_add(save, &object, HTH_HELD_SEALED, f->slot) : NULL;
    if (!held) {
        hth_say(&ctx->log, HEARTH_LOG_ERROR, "adopt-failed",
                HTH_SAVE " object '%s' is not used: no memory", HTH_SAVE_ARGS(f->save), f->name);
        return;
    }
    save->published |= f->published;
}

/* ---- Foreign containers ---------------------------------------------------------------------- */

static const char *foreign_unusable(const struct find *f)
{
    struct hth_foreign_data data;
    struct hth_block b;

    if (hth_object_name_check(f->name, NULL))
        return "its name is longer or stranger than that of an object of Hearth's may be";
    if (hth_foreign_data(&data, f->slot->base, f->slot->capacity, NULL))
        return "it is torn: its block speaks of more data than there is";
    if (f->slot->capacity >= HTH_BLOCK && data.at &&
            (hth_block_decode(&b, f->slot->base, HTH_BLOCK, f->slot->capacity, NULL) || b.own))
        return "it is an object of another job of Hearth's";
    return NULL;
}

/* A file of another program's container. This node reports it to no other node before it has a
 * digest. */
static void foreign_adopt(struct hth_ctx *ctx, const struct find *f)
{
    struct hth_held_save *save = hth_holdings_get(ctx, f->save);
    const char *why = f->slot ? foreign_unusable(f) : NULL;
    struct hth_object object;
    struct hth_held *held = NULL;

    if (!f->slot) {
        if (save)
            save->unfinished |= f->unfinished;
        return;
    }
    if (!why) {
        object = hth_foreign_object(f->name, f->slot->capacity);
        if (save && hth_held_find(save, object.id))
            why = "one of that name is here already, or came from another node";
        else if (save)
            held = hth_held_add(save, &object, HTH_HELD_SEALED, f->slot);
    }
    if (held) {
        held->theirs = 1;
        held->look.flags = f->link ? HTH_FOREIGN_LINK : 0;
    } else {
        hth_say(&ctx->log, HEARTH_LOG_WARN, "foreign-left-out",
                "step-%" PRIu64 "_ckpt/%.200s is left alone: %s", f->save.step, f->name,
                why ? why : "no memory");
    }
}

/* bytes: from the store, freed. */
static int manifest_know(
        struct hth_held_save *save, void *bytes, size_t len, struct hearth_error *err)
{
    struct hth_buf *buf = hth_buf_of(bytes, len);
    int rc = buf ? hth_held_know_manifest(save, buf, err)
                 : hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a manifest of %zu bytes", len);

    hth_buf_put(buf);
    free(bytes);
    return rc;
}

static void manifest_adopt(struct hth_ctx *ctx, struct hth_held_save *save)
{
    char name[HTH_MANIFEST_NAME];
    struct hearth_error err = { 0 };
    void *bytes;
    size_t len;

    hth_record_manifest(save->id, name);
    if (save->has_manifest || ctx->store->ops->record_get(ctx->store, name, &bytes, &len, &err))
        return;
    if (!manifest_know(save, bytes, len, &err))
        return;
    hth_say(&ctx->log, HEARTH_LOG_ERROR, "manifest-bad",
            "the manifest of " HTH_SAVE " is not used: %s", HTH_SAVE_ARGS(save->id), err.text);
    ctx->store->ops->record_remove(ctx->store, name);
}

/* A save consists of what its manifest names: if an object here differs from it, the object is
 * damaged. */
static void manifest_compare(struct hth_ctx *ctx, struct hth_held_save *save)
{
    struct hth_held *next;

    if (hth_save_foreign(save->id))
        return; /* foreign files are compared when their digests are made */
    for (struct hth_held *h = save->held; h && save->has_manifest; h = next) {
        const struct hth_object *o = hth_manifest_find(&save->manifest, h->object.id);

        next = h->next;
        if (!o || memcmp(o->digest, h->object.digest, HTH_DIGEST) == 0)
            continue;
        hth_say(&ctx->log, HEARTH_LOG_ERROR, "adopt-bad",
                HTH_SAVE " object '%s' of this node is not the one that its manifest names",
                HTH_SAVE_ARGS(save->id), h->object.name);
        hth_held_condemn(ctx, save, h, "manifest");
    }
}

/* A raw object of the right length is added; its bytes are verified before any node relies on
 * it. */
static void raw_adopt(struct hth_ctx *ctx, struct hth_held_save *save, const struct hth_object *o)
{
    struct hth_raw *raw = NULL;

    if (ctx->store->ops->raw_open(ctx->store, save->id, o->name, &raw, NULL))
        return;
    if (raw->len == o->data_len)
        (void)hth_held_add(save, o, HTH_HELD_SEALED, NULL);
    else
        hth_say(&ctx->log, HEARTH_LOG_ERROR, "copy-bad",
                HTH_SAVE " '%s' of this node has not the length that its manifest names",
                HTH_SAVE_ARGS(save->id), o->name);
    ctx->store->ops->raw_close(ctx->store, raw);
}

static int manifest_is_right(const struct hth_held_save *save, const void *bytes, size_t len)
{
    struct hth_manifest m;
    int right;

    if (hth_manifest_decode(&m, bytes, len, NULL))
        return 0;
    right = memcmp(m.digest, save->manifest.digest, HTH_DIGEST) == 0;
    hth_manifest_fini(&m);
    return right;
}

/* The manifest is here twice, in memory and as a record. If one of the two is damaged, the other
 * replaces it. */
void hth_held_look(struct hth_ctx *ctx, struct hth_held_save *save)
{
    char name[HTH_MANIFEST_NAME];
    void *bytes = NULL;
    size_t len = 0;
    int ours, gone;

    if (!save->has_manifest || hth_save_foreign(save->id))
        return;
    hth_record_manifest(save->id, name);
    gone = ctx->store->ops->record_get(ctx->store, name, &bytes, &len, NULL);
    if (!gone && len == save->manifest_len && memcmp(bytes, save->manifest_bytes, len) == 0) {
        free(bytes);
        return;
    }
    ours = manifest_is_right(save, save->manifest_bytes, save->manifest_len);
    hth_say(&ctx->log, HEARTH_LOG_ERROR, "manifest-bad",
            "the %s of the manifest of " HTH_SAVE " %s", ours ? "record" : "engine's copy",
            HTH_SAVE_ARGS(save->id), ours ? "is written again" : "is not used any more");
    if (ours) {
        (void)ctx->store->ops->record_put(
                ctx->store, name, save->manifest_bytes, save->manifest_len, NULL);
    } else {
        hth_held_forget_manifest(save);
        if (!gone)
            (void)manifest_know(save, bytes, len, NULL);
        bytes = NULL;
    }
    free(bytes);
}

/* A file that an earlier engine received from another node's foreign container. */
static void received_adopt(struct hth_ctx *ctx, const struct find *f)
{
    struct hth_held_save *save = hth_holdings_get(ctx, f->save);
    const struct hth_object *o = NULL;

    if (save)
        manifest_adopt(ctx, save);
    for (uint32_t i = 0; save && save->has_manifest && i < save->manifest.objects && !o; i++)
        if (!strcmp(save->manifest.object[i].name, f->name))
            o = &save->manifest.object[i];
    if (!o || o->data_len > f->slot->capacity || hth_held_find(save, o->id) ||
            !hth_held_add(save, o, HTH_HELD_SEALED, f->slot))
        ctx->store->ops->give(ctx->store, f->slot);
}

static void finds_adopt(struct hth_ctx *ctx, const struct finds *finds)
{
    for (size_t i = 0; i < finds->len; i++) {
        const struct find *f = &finds->at[i];
        struct hth_held_save *save;

        if (f->theirs)
            foreign_adopt(ctx, f);
        else if (f->tmp)
            ctx->store->ops->give(ctx->store, f->slot);
        else if (f->slot && hth_save_foreign(f->save))
            received_adopt(ctx, f);
        else if (f->slot)
            object_adopt(ctx, f);
        else if ((save = hth_holdings_get(ctx, f->save)))
            save->published |= f->published;
    }
}

typedef int adopt_scan_fn(struct hth_store *s,
        void (*found)(void *arg, const struct hth_store_found *f), void *arg,
        struct hearth_error *err);

static int adopt_all(struct hth_ctx *ctx, adopt_scan_fn *scan, struct hearth_error *err)
{
    struct finds finds = { 0 };
    int rc = scan(ctx->store, find_note, &finds, err);

    if (!rc && finds.no_memory)
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the list of what the store has");
    if (!rc)
        finds_adopt(ctx, &finds);
    free(finds.at);
    return rc;
}

int hth_holdings_adopt(struct hth_ctx *ctx, struct hearth_error *err)
{
    int rc = adopt_all(ctx, ctx->store->ops->scan, err);

    if (rc)
        return rc;
    for (struct hth_held_save *s = ctx->holdings->first; s; s = s->next) {
        manifest_adopt(ctx, s);
        manifest_compare(ctx, s);
        for (uint32_t i = 0; s->has_manifest && i < s->manifest.objects; i++)
            if (s->manifest.object[i].kind == HTH_OBJECT_RAW &&
                    !hth_held_find(s, s->manifest.object[i].id))
                raw_adopt(ctx, s, &s->manifest.object[i]);
    }
    return HEARTH_OK;
}

static void theirs_forget(struct hth_ctx *ctx, struct hth_held_save *save)
{
    struct hth_held *next;

    save->unfinished = 0;
    for (struct hth_held *h = save->held; h; h = next) {
        next = h->next;
        if (!h->theirs)
            continue;
        if (h->slot)
            hth_slot_region_end(ctx, h->slot);
        hth_held_drop(ctx, save, h);
    }
}

int hth_holdings_look_anew(struct hth_ctx *ctx, struct hearth_error *err)
{
    struct hth_held_save *next;
    int rc;

    if (!ctx->store->ops->theirs)
        return HEARTH_OK;
    for (struct hth_held_save *s = ctx->holdings->first; s; s = s->next)
        if (hth_save_foreign(s->id))
            theirs_forget(ctx, s);
    rc = adopt_all(ctx, ctx->store->ops->theirs, err);
    for (struct hth_held_save *s = ctx->holdings->first; s; s = next) {
        next = s->next;
        if (hth_save_foreign(s->id) && !s->held && !s->unfinished)
            hth_holdings_free_save(ctx, s);
    }
    return rc;
}
