/* SPDX-License-Identifier: Apache-2.0 */
/* An item of this node as memory: where its object is mapped; of another program's file a copy,
 * since that program may write it again. */
#include "items.h"

#include "client/slots/shared.h"
#include "core/base/opts.h"
#include "foreign.h"
#include "source.h"
#include "window.h"
#include <stdlib.h>
#include <string.h>

/* The kind of view->map, in view->lease. */
enum { VIEW_COPY = 0, VIEW_SHARED = 1 };

static int view_share(
        struct hearth_view *v, const struct hth_source *s, uint64_t at, struct hearth_error *err)
{
    int rc = hth_shared_view(s->shared, err);

    if (rc)
        return rc;
    v->map = s->shared;
    v->lease = VIEW_SHARED;
    v->data = s->shared->map + s->data_at + at;
    return HEARTH_OK;
}

static int view_copy(struct hearth_view *v, struct hearth_checkpoint *c, struct hth_source *s,
        uint64_t at, struct hearth_error *err)
{
    const unsigned char *from;
    void *copy = malloc(v->bytes ? v->bytes : 1);
    int rc;

    if (!copy)
        return hth_fail(
                err, HEARTH_ENOMEM, 0, "no memory for a view of %" PRIu64 " bytes", v->bytes);
    if (!(rc = hth_source_at(c, s, at, v->bytes, &from, err))) {
        memcpy(copy, from, v->bytes);
        rc = hth_source_same(c, s, err);
    }
    if (rc) {
        free(copy);
        return rc;
    }
    v->data = v->map = copy;
    v->map_bytes = v->bytes;
    v->lease = VIEW_COPY;
    return HEARTH_OK;
}

/* Without the last field of the first version a view cannot be closed. */
#define VIEW_LEAST (offsetof(struct hearth_view, lease) + sizeof(uint64_t))

int hearth_view_open(struct hearth_checkpoint *ckpt, const struct hearth_item *item,
        struct hearth_view *out, struct hearth_error *err)
{
    struct hearth_view v = { .struct_size = sizeof(v) };
    const struct hth_entry *e;
    struct hth_source *s;
    uint64_t at;
    int rc;

    if ((rc = hth_checkpoint_enter(ckpt, err)) || (rc = hth_item_taken(ckpt, item, &e, err)))
        return rc;
    if (!out || out->struct_size < VIEW_LEAST || out->struct_size > HTH_STRUCT_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "the view is NULL or its struct_size is not sizeof(struct hearth_view)");
    s = &ckpt->source[e->source];
    if (!s->local)
        return hth_source_not_here(s, err);
    at = e->item.offset + e->item.payload;
    v.bytes = e->item.length - e->item.payload;
    rc = s->theirs ? view_copy(&v, ckpt, s, at, err) : view_share(&v, s, at, err);
    return rc ? rc : hth_give(out, &v, sizeof(v), err);
}

void hearth_view_close(struct hearth *h, struct hearth_view *view)
{
    struct hearth_view none = HEARTH_VIEW_INIT;

    (void)h; /* a view that was closed too late outlives it */
    if (!view || view->struct_size < VIEW_LEAST || !view->map)
        return;
    if (view->lease == VIEW_SHARED)
        hth_shared_view_put(view->map);
    else
        free(view->map);
    hth_give(view, &none, sizeof(none), NULL);
}
