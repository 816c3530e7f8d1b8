/* SPDX-License-Identifier: Apache-2.0 */
/* One work for each draft. The worker owns its objects or bytes: a caller that gives it up only
 * leaves it. */
#include "draft.h"
#include "holdings_parts.h"

#include <stdlib.h>

#define AT_ONCE 1000u /* objects: 1 ms, and a worker may have checksums before it for longer */

struct hth_draft {
    struct hth_work work;
    struct hth_ctx *ctx;
    struct hth_draft *next; /* ctx->drafts, while a worker has it */
    hth_draft_fn *done;
    void *self;
    int ended, left;        /* left: its caller has given it up */
    struct hth_manifest of; /* to be made, of ... */
    unsigned char *objects; /* ... these */
    struct hth_buf *buf;    /* NULL: not made yet */
    struct hth_manifest manifest;
    int code;
    struct hearth_error err;
};

/* ---- On a worker ----------------------------------------------------------------------------- */

static int draft_decode(struct hth_draft *d)
{
    struct hth_manifest *m = &d->of;

    m->object = calloc((size_t)m->objects + 1, sizeof(*m->object));
    if (!m->object)
        return hth_fail(&d->err, HEARTH_ENOMEM, 0, "%" PRIu32 " objects", m->objects);
    for (uint32_t i = 0; i < m->objects; i++)
        if (hth_object_decode(&m->object[i], d->objects + (size_t)i * HTH_MANIFEST_OBJECT, NULL))
            return hth_fail(&d->err, HEARTH_EPROTO, 0, "a report of objects that makes no sense");
    return HEARTH_OK;
}

static int draft_encode(struct hth_draft *d)
{
    size_t len = hth_manifest_bytes(&d->of);
    unsigned char *bytes = malloc(len);
    int rc = bytes ? hth_manifest_encode(&d->of, bytes, &d->err) : HEARTH_ENOMEM;

    d->buf = rc ? NULL : hth_buf_of(bytes, len);
    free(bytes);
    if (rc && bytes)
        return rc;
    return d->buf ? HEARTH_OK : hth_fail(&d->err, HEARTH_ENOMEM, 0, "manifest of %zu bytes", len);
}

static void draft_make(struct hth_draft *d)
{
    d->code = draft_decode(d);
    d->code = d->code ? d->code : draft_encode(d);
    hth_manifest_fini(&d->of);
}

static void draft_run(struct hth_work *work)
{
    struct hth_draft *d = hth_owner_of(struct hth_draft, work, work);

    if (!d->buf)
        draft_make(d);
    if (!d->code)
        d->code = hth_manifest_decode(&d->manifest, d->buf->at, d->buf->len, &d->err);
}

/* ---- On the engine's thread ------------------------------------------------------------------ */

static void draft_drop(struct hth_draft *d)
{
    free(d->objects);
    hth_manifest_fini(&d->manifest);
    hth_buf_put(d->buf);
    free(d);
}

static void draft_unlink(struct hth_draft *d)
{
    struct hth_draft **at = &d->ctx->drafts;

    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
}

static void draft_done(struct hth_work *work)
{
    struct hth_draft *d = hth_owner_of(struct hth_draft, work, work);

    draft_unlink(d);
    d->ended = 1;
    if (d->left)
        draft_drop(d);
    else
        d->done(d->self); /* last: may free it */
}

static void draft_begin(struct hth_draft *d, uint32_t objects)
{
    struct hth_ctx *ctx = d->ctx;

    d->work = (struct hth_work){ .run = draft_run, .done = draft_done };
    if (objects < AT_ONCE && !hth_breaks(ctx, HTH_TEST_WORKER)) {
        draft_run(&d->work);
        d->ended = 1;
        return;
    }
    d->next = ctx->drafts;
    ctx->drafts = d;
    ctx->workers.submit(ctx->workers.self, &d->work);
}

static struct hth_draft *draft_new(struct hth_ctx *ctx, hth_draft_fn *done, void *self)
{
    struct hth_draft *d = calloc(1, sizeof(*d));

    if (!d)
        return NULL;
    d->ctx = ctx;
    d->done = done;
    d->self = self;
    return d;
}

struct hth_draft *hth_draft_make(struct hth_ctx *ctx, const struct hth_manifest *of,
        unsigned char *objects, hth_draft_fn *done, void *self)
{
    struct hth_draft *d = draft_new(ctx, done, self);

    if (!d)
        return NULL;
    d->of = *of;
    d->objects = objects;
    draft_begin(d, of->objects);
    return d;
}

struct hth_draft *hth_draft_read(
        struct hth_ctx *ctx, struct hth_buf *buf, hth_draft_fn *done, void *self)
{
    struct hth_draft *d = draft_new(ctx, done, self);

    if (!d)
        return NULL;
    d->buf = hth_buf_get(buf);
    draft_begin(d, (uint32_t)(buf->len / HTH_MANIFEST_OBJECT));
    return d;
}

int hth_draft_ended(const struct hth_draft *d)
{
    return d->ended;
}

unsigned char *hth_draft_objects(struct hth_draft *d)
{
    unsigned char *objects = d->objects;

    d->objects = NULL;
    return objects;
}

int hth_draft_result(const struct hth_draft *d, struct hth_buf **out_buf, struct hearth_error *err)
{
    if (d->code && err)
        *err = d->err;
    if (!d->code)
        *out_buf = d->buf;
    return d->code;
}

int hth_held_keep_draft(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_draft *d,
        struct hearth_error *err)
{
    struct hth_manifest m = d->manifest;
    struct hth_buf *buf;
    int rc = save->has_manifest ? HEARTH_OK : hth_draft_result(d, &buf, err);

    if (rc || save->has_manifest)
        return rc;
    d->manifest = (struct hth_manifest){ 0 };
    return hth_held_write_manifest(ctx, save, buf, &m, err);
}

void hth_draft_free(struct hth_draft *d)
{
    if (d && d->ended)
        draft_drop(d);
    else if (d)
        d->left = 1;
}

void hth_drafts_close(struct hth_ctx *ctx)
{
    struct hth_draft *d;

    while ((d = ctx->drafts)) {
        ctx->drafts = d->next;
        draft_drop(d);
    }
}
