/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest of the plan's save. The plan names it by digest; a node that was there when the save
 * was made has it, and one that is new pulls it by blob from its parent, which has it or is pulling
 * it too:
 *
 *   held under that digest ──► nothing to do
 *   come by blob ──► read, by a worker where it is large ──► held, on record
 *   neither ──► our parent is asked; after 2 * dead_ms, or where another one came, the coordinator
 */
#include "restore_state.h"

#include <stdlib.h>
#include <string.h>

static int manifest_is_held(const struct hth_restore *r, const struct hth_held_save *s)
{
    return s && s->has_manifest && !memcmp(s->manifest.digest, r->plan.manifest, HTH_DIGEST);
}

const struct hth_manifest *restore_manifest(const struct hth_restore *r)
{
    const struct hth_held_save *s = r->has_plan ? hth_holdings_find(r->ctx, r->plan.chosen) : NULL;

    return manifest_is_held(r, s) && s->manifest.objects == r->plan.from.objects ? &s->manifest
                                                                                 : NULL;
}

static struct hth_blob_id manifest_blob(const struct hth_restore *r)
{
    return (struct hth_blob_id){ HTH_BLOB_MANIFEST, r->plan.chosen, 0 };
}

void manifest_leave(struct hth_restore *r)
{
    hth_draft_free(r->draft);
    r->draft = NULL;
}

/* A manifest ends with its own digest. NULL: no manifest has come, or another one, or a damaged
 * one. */
static const unsigned char *manifest_came(struct hth_restore *r, size_t *out_len)
{
    struct hth_blob_id id = manifest_blob(r);
    const unsigned char *bytes = hth_blob_find(r->ctx, &id, out_len);

    if (!bytes || (*out_len >= HTH_DIGEST &&
                          !memcmp(bytes + *out_len - HTH_DIGEST, r->plan.manifest, HTH_DIGEST)))
        return bytes;
    hth_say(&r->ctx->log, HEARTH_LOG_WARN, "manifest-bad", HTH_SAVE ": what came is not the plan's",
            HTH_SAVE_ARGS(id.save));
    hth_blobs_forget(r->ctx, id.save);
    r->manifest_bad = 1;
    r->manifest_ms = 0;
    return NULL;
}

/* Requests the manifest's blob. The blob repeats the request by itself, so this function requests
 * it once, and again only to ask another node. */
static void manifest_ask(struct hth_restore *r)
{
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);
    struct hth_blob_id id = manifest_blob(r);
    int late = r->manifest_ms && now_ms >= r->manifest_ms + 2 * (uint64_t)r->ctx->opts.dead_ms;

    if (r->manifest_ms && !late)
        return;
    r->manifest_ms = now_ms;
    (void)hth_blob_fetch(r->ctx, &id, late || r->manifest_bad ? 0 : HTH_NODE_NONE, NULL);
}

/* Reads the manifest that has come. 0: it has been read, or there is no memory for that. */
static int manifest_is_read(struct hth_restore *r, hth_draft_fn *read)
{
    struct hth_blob_id id = manifest_blob(r);

    if (!r->draft)
        r->draft = hth_draft_read(r->ctx, hth_blob_buf(r->ctx, &id), read, r);
    return r->draft && !hth_draft_ended(r->draft);
}

int manifest_lacks(struct hth_restore *r, hth_draft_fn *read)
{
    int asked = r->manifest_ms != 0;
    size_t len;

    if (hth_save_none(r->plan.chosen) ||
            manifest_is_held(r, hth_holdings_find(r->ctx, r->plan.chosen)))
        return 0;
    if (r->draft || manifest_came(r, &len))
        return manifest_is_read(r, read);
    if (hth_is_coordinator(r->ctx))
        return 0;
    if (!asked || r->manifest_ms) /* else another one has just come: with the next retry */
        manifest_ask(r);
    return 1;
}

/* Keeps the manifest that has come and was read as the manifest of s. */
static int manifest_take(struct hth_restore *r, struct hth_held_save *s, struct hearth_error *err)
{
    size_t len;
    int rc;

    if (!r->draft)
        return manifest_came(r, &len)
                       ? hth_fail(err, HEARTH_ENOMEM, 0, "no memory to read the manifest")
                       : hth_fail(err, HEARTH_ENOENT, 0, "the manifest has not come");
    hth_held_forget_manifest(s); /* of a foreign save each recovery makes a new one */
    rc = hth_held_keep_draft(r->ctx, s, r->draft, err);
    manifest_leave(r);
    if (rc == HEARTH_ECORRUPT) { /* the next plan for this save pulls it again */
        hth_blobs_forget(r->ctx, s->id);
        r->manifest_bad = 1;
    }
    return rc;
}

int manifest_hold(struct hth_restore *r, struct hth_held_save *s, struct hearth_error *err)
{
    int rc = manifest_is_held(r, s) ? HEARTH_OK : manifest_take(r, s, err);

    if (!rc && s->manifest.objects != r->plan.from.objects)
        rc = hth_fail(err, HEARTH_EPROTO, 0,
                "the plan is of %" PRIu32 " objects, and its manifest of %" PRIu32,
                r->plan.from.objects, s->manifest.objects);
    return rc;
}
