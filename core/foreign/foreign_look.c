/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads all bytes of a foreign file once, where they lie: is it whole, and which items are in it? A
 * list of items is long, so other nodes receive a digest of it:
 *
 *     MLF_TENS         tensors, up to the first byte item, which does not say where it ends
 *     all others       zips of torch.save, one behind the other
 *     `.metadata`      none; but is it a whole pickle, and one that we understand?
 *
 * If a zip may or may not hold a tensor, the digest leaves all shapes out.
 */
#include "core/base/bytes.h"
#include "core/torch/pickle.h"
#include "core/torch/zip.h"
#include "foreign.h"
#include "items.h"
#include <hearth/metadata.h>
#include <hearth/value.h>

#include <string.h>

void hth_foreign_item(
        struct hth_digesting *d, uint64_t at, uint64_t len, const int64_t *shape, uint32_t ndim)
{
    unsigned char head[20], dim[8];

    hth_put64(head, at);
    hth_put64(head + 8, len);
    hth_put32(head + 16, shape ? ndim : UINT32_MAX);
    hth_digest_add(d, head, sizeof(head));
    for (uint32_t i = 0; shape && i < ndim; i++) {
        hth_put64(dim, (uint64_t)shape[i]);
        hth_digest_add(d, dim, sizeof(dim));
    }
}

/* ---- Items
 * --------------------------------------------------------------------------------------- */

struct walk {
    uint32_t items;
    int unshaped;
    struct hth_digesting shaped, plain; /* with shapes, and without */
};

static void walk_item(struct walk *w, uint64_t at, uint64_t len, const int64_t *shape, uint32_t n)
{
    hth_foreign_item(&w->shaped, at, len, shape, n);
    hth_foreign_item(&w->plain, at, len, NULL, 0);
    w->items++;
}

static int walk_tensors(
        struct walk *w, const unsigned char *data, uint64_t len, struct hearth_error *err)
{
    struct hth_items it;
    struct hth_found f;
    int rc;

    hth_items_init(&it, HTH_SIG_TENSORS, data, len);
    while (!(rc = hth_items_next(&it, &f, err)) && f.kind == HTH_ITEM_TENSOR &&
            w->items < UINT32_MAX)
        walk_item(w, f.offset, f.length, f.header.shape, f.header.ndim);
    return rc == HEARTH_ENOENT ? HEARTH_OK : rc;
}

/* A zip whose root is not a tensor: its writer listed it as bytes in `.metadata`, so it has no
 * shape. */
static void walk_zip(struct walk *w, const unsigned char *data, uint64_t at, size_t len)
{
    struct hearth_value v = { .struct_size = sizeof(v) };
    struct hearth_values *values = NULL;

    if (hearth_values_open(data + at, len, &values, NULL) || hearth_value_root(values, &v, NULL))
        w->unshaped = 1;
    if (!w->unshaped && v.kind == HEARTH_VALUE_TENSOR)
        walk_item(w, at, len, v.ndim ? v.shape : (const int64_t[1]){ 0 }, v.ndim);
    else
        walk_item(w, at, len, NULL, 0);
    hearth_values_close(values);
}

static void walk_zips(struct walk *w, const unsigned char *data, uint64_t len)
{
    size_t n;

    for (uint64_t at = 0; w->items < UINT32_MAX && (n = hth_zip_front(data + at, len - at));
            at += n)
        walk_zip(w, data, at, n);
}

static int look_at_items(struct hth_foreign_look *out, const unsigned char *bytes, uint64_t len,
        struct hearth_error *err)
{
    struct hth_foreign_data d;
    struct walk w = { 0 };
    int rc = hth_foreign_data(&d, bytes, len, err);

    if (rc)
        return rc;
    hth_digest_begin(&w.shaped);
    hth_digest_begin(&w.plain);
    if (d.signature == HTH_SIG_TENSORS)
        rc = walk_tensors(&w, bytes + d.at, d.len, err);
    else
        walk_zips(&w, bytes + d.at, d.len);
    if (rc)
        return rc;
    out->items = w.items;
    out->data_len = d.len;
    out->flags |= (w.unshaped ? 0 : HTH_FOREIGN_SHAPED) | (d.at ? HTH_FOREIGN_BLOCK : 0) |
                  (d.signature == HTH_SIG_TENSORS ? HTH_FOREIGN_TENSORS : 0);
    hth_digest_end(w.unshaped ? &w.plain : &w.shaped, out->digest);
    return HEARTH_OK;
}

/* ---- `.metadata`
 * --------------------------------------------------------------------------------- */

static int look_at_metadata(struct hth_foreign_look *out, const unsigned char *bytes, uint64_t len,
        struct hearth_error *err)
{
    struct hearth_metadata *md;
    struct hearth_error why;
    int rc = hth_pickle_whole(bytes, len, err);

    if (rc)
        return rc;
    rc = hearth_metadata_open(bytes, len, &md, &why);
    if (rc == HEARTH_ENOMEM)
        return hth_fail(err, rc, 0, "%s", why.text);
    out->data_len = len;
    if (!rc) {
        out->flags |= HTH_FOREIGN_READABLE;
        hearth_metadata_close(md);
    }
    return HEARTH_OK;
}

int hth_foreign_look(struct hth_foreign_look *out, const char *name, const void *bytes,
        uint64_t len, struct hearth_error *err)
{
    struct hth_foreign_look look = { .flags = out->flags & HTH_FOREIGN_LINK };
    int rc = !strcmp(name, HTH_METADATA) ? look_at_metadata(&look, bytes, len, err)
                                         : look_at_items(&look, bytes, len, err);

    if (!rc)
        *out = look;
    return rc;
}
