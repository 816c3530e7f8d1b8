/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A caller's piece in an object: checked, measured, its header encoded.
 *
 *     data   | u32 length, pickle | payload |   next item...      no padding
 *     table  | record: place, dtype, box in the global tensor, key |
 */
#include "layout.h"

#include "client/base/args.h"
#include "client/base/limits.h"

#include <string.h>

static const int64_t zeros[HTH_DIMS_MAX];

static int piece_wrong(
        struct hearth_error *err, const struct hearth_piece *p, int code, const char *what)
{
    char key[HTH_KEY_TEXT];

    return hth_fail(err, code, 0, "piece %s: %s", hth_key_text(p->key, p->key_len, key), what);
}

static int piece_check_key(const void *key, size_t len, size_t i, struct hearth_error *err)
{
    if (!key || !len || len > HTH_KEY_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "item %zu of the array has a key of %zu bytes: a key has 1 to %u", i, len,
                HTH_KEY_MAX);
    return HEARTH_OK;
}

static int piece_check_box(const struct hearth_piece *p, struct hearth_error *err)
{
    for (uint32_t i = 0; i < p->ndim; i++) {
        int64_t end, off = p->global_offset ? p->global_offset[i] : 0;

        if (p->shape[i] < 0)
            return piece_wrong(err, p, HEARTH_EINVAL, "its shape has a negative dimension");
        if (off < 0 || __builtin_add_overflow(off, p->shape[i], &end) ||
                end > (p->global_shape ? p->global_shape[i] : p->shape[i]))
            return piece_wrong(err, p, HEARTH_EINVAL,
                    "its box reaches out of the global tensor: global_offset + shape must be at "
                    "most global_shape");
    }
    return HEARTH_OK;
}

static int piece_check(const struct hearth_piece *p, size_t i, struct hearth_error *err)
{
    int rc;

    if ((rc = piece_check_key(p->key, p->key_len, i, err)))
        return rc;
    if (!hearth_dtype_bytes((enum hearth_dtype)p->dtype))
        return piece_wrong(err, p, HEARTH_EINVAL, "its dtype is none of enum hearth_dtype");
    if (p->memory != HEARTH_HOST && p->memory != HEARTH_CUDA)
        return piece_wrong(err, p, HEARTH_EINVAL, "its memory is none of enum hearth_memory");
    if (p->ndim > HTH_DIMS_MAX || (p->ndim && !p->shape))
        return piece_wrong(err, p, HEARTH_EINVAL, "it needs a shape of at most 64 dimensions");
    if (p->reserved)
        return piece_wrong(err, p, HEARTH_EINVAL, "`reserved` must be 0");
    return piece_check_box(p, err);
}

/* The header of the piece before is that of this one. */
static int laid_has_header(const struct hth_laid *laid)
{
    const struct hearth_piece *p = laid->piece;

    return laid->header_len && laid->of.dtype == (enum hearth_dtype)p->dtype &&
           laid->of.ndim == p->ndim &&
           (!p->ndim || !memcmp(laid->of.shape, p->shape, sizeof(p->shape[0]) * p->ndim));
}

static int laid_make_header(struct hth_laid *laid, struct hearth_error *err)
{
    const struct hearth_piece *p = laid->piece;

    laid->header_len = 0;
    laid->of.dtype = (enum hearth_dtype)p->dtype;
    laid->of.ndim = p->ndim;
    if (p->ndim)
        memcpy(laid->of.shape, p->shape, sizeof(p->shape[0]) * p->ndim);
    if (hth_header_bytes(&laid->of, &laid->payload, NULL))
        return piece_wrong(err, p, HEARTH_EINVAL, "its bytes do not fit in 63 bits");
    laid->header_len = hth_header_encode(&laid->of, laid->header);
    return HEARTH_OK;
}

int hth_piece_at(struct hth_laid *out, const struct hearth_piece *pieces, size_t i, int need_data,
        struct hearth_error *err)
{
    const void *at;
    int rc;

    if ((rc = hth_array_at(&at, &out->mine, sizeof(out->mine), pieces, i, "hearth_piece", err)))
        return rc;
    out->piece = at;
    if ((rc = piece_check(out->piece, i, err)))
        return rc;
    out->again = laid_has_header(out);
    if (!out->again && (rc = laid_make_header(out, err)))
        return rc;
    if (need_data && out->payload && !out->piece->data)
        return piece_wrong(err, out->piece, HEARTH_EINVAL, "its data is NULL");
    return HEARTH_OK;
}

int hth_bytes_at(const struct hearth_bytes **out, struct hearth_bytes *tmp,
        const struct hearth_bytes *items, size_t i, struct hearth_error *err)
{
    const void *at;
    int rc;

    if ((rc = hth_array_at(&at, tmp, sizeof(*tmp), items, i, "hearth_bytes", err)))
        return rc;
    *out = at;
    if ((rc = piece_check_key((*out)->key, (*out)->key_len, i, err)))
        return rc;
    if ((*out)->len && !(*out)->data)
        return hth_fail(err, HEARTH_EINVAL, 0, "byte item %zu: its data is NULL", i);
    return HEARTH_OK;
}

uint64_t hth_laid_bytes(const struct hth_laid *laid)
{
    return laid->header_len + laid->payload +
           hth_item_bytes(laid->piece->ndim, (uint32_t)laid->piece->key_len);
}

void hth_laid_item(struct hth_item *out, const struct hth_laid *laid, uint64_t offset)
{
    const struct hearth_piece *p = laid->piece;

    *out = (struct hth_item){ .offset = offset,
        .length = laid->header_len + laid->payload,
        .payload = laid->header_len,
        .kind = HTH_ITEM_TENSOR,
        .dtype = (enum hearth_dtype)p->dtype,
        .ndim = p->ndim,
        .key_len = (uint32_t)p->key_len,
        .shape = p->ndim ? p->shape : zeros,
        .global_shape = p->global_shape ? p->global_shape
                        : p->ndim       ? p->shape
                                        : zeros,
        .global_offset = p->global_offset ? p->global_offset : zeros,
        .key = p->key };
}

uint64_t hearth_save_bytes(const struct hearth_piece *pieces, size_t count,
        const struct hearth_bytes *items, size_t item_count)
{
    struct hth_laid laid;
    struct hearth_bytes tmp;
    const struct hearth_bytes *b;
    uint64_t total = 0;

    laid.header_len = 0;
    for (size_t i = 0; pieces && i < count; i++)
        if (!hth_piece_at(&laid, pieces, i, 0, NULL))
            total = hth_add_up(total, hth_laid_bytes(&laid));
    for (size_t i = 0; items && i < item_count; i++)
        if (!hth_bytes_at(&b, &tmp, items, i, NULL))
            total = hth_add_up(total, hth_add_up(b->len, hth_item_bytes(0, (uint32_t)b->key_len)));
    return total;
}
