/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking a data section without a table. Where no tensor header can be read, the tensors have
 * ended and the rest is bytes; but a header whose payload is cut off is damage, not the beginning
 * of them.
 */
#include "items.h"

#include <string.h>

#define ZIP_LOCAL "PK\3\4" /* what torch.save writes first */

int hth_object_check(
        const struct hth_block *block, const void *data, size_t len, struct hearth_error *err)
{
    int zip = len >= 4 && memcmp(data, ZIP_LOCAL, 4) == 0;

    if (block->signature == HTH_SIG_UNKNOWN)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "the object's signature is neither MLF_TENS nor TORCH___: its items cannot be "
                "read");
    if (block->signature == HTH_SIG_TORCH && block->data_len && !zip)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "the object's signature is TORCH___, but it does not begin with a zip of "
                "torch.save");
    return HEARTH_OK;
}

void hth_items_init(
        struct hth_items *it, enum hth_signature signature, const void *data, uint64_t len)
{
    *it = (struct hth_items){ .at = data, .len = len, .signature = signature };
}

/* The tensor at the front of bytes[len]. HEARTH_ENOENT: there is none, `no_tensor` says why. */
static int tensor_front(struct hth_found *out, const unsigned char *at, uint64_t len,
        struct hearth_error *no_tensor, struct hearth_error *err)
{
    struct hth_found f = { .kind = HTH_ITEM_TENSOR };
    uint64_t bytes;
    size_t used;

    if (hth_header_decode(&f.header, at, len, &used, no_tensor) ||
            hth_header_bytes(&f.header, &bytes, no_tensor))
        return HEARTH_ENOENT;
    if (bytes > len - used)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "a tensor of %" PRIu64 " bytes is cut off after %" PRIu64, bytes, len - used);
    f.payload = used;
    f.length = used + bytes;
    *out = f;
    return HEARTH_OK;
}

int hth_found_tensor(
        struct hth_found *out, const void *bytes, uint64_t len, struct hearth_error *err)
{
    struct hth_found f = { 0 };
    int rc = tensor_front(&f, bytes, len, err, err);

    if (rc)
        return hth_while(err, HEARTH_ECORRUPT, "tensor item");
    if (f.length != len)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "tensor item: %" PRIu64 " bytes more than the tensor has", len - f.length);
    *out = f;
    return HEARTH_OK;
}

int hth_items_next(struct hth_items *it, struct hth_found *out, struct hearth_error *err)
{
    struct hth_found f = { .kind = HTH_ITEM_BYTES, .length = it->len - it->pos };
    int rc = HEARTH_ENOENT;

    if (it->pos >= it->len)
        return HEARTH_ENOENT;
    if (it->signature == HTH_SIG_TENSORS)
        rc = tensor_front(&f, it->at + it->pos, it->len - it->pos, NULL, err);
    if (rc && rc != HEARTH_ENOENT)
        return hth_while(err, rc, "item at byte %" PRIu64, it->pos);
    f.offset = it->pos;
    it->pos += f.length;
    *out = f;
    return HEARTH_OK;
}
