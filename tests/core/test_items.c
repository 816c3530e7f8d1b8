/* SPDX-License-Identifier: Apache-2.0 */
/* Whole containers of ml-flashpoint, item by item, against the list of what is in them. */
#include "check.h"
#include "vectors.h"

#include "core/foreign/items.h"

#include <jansson.h>
#include <sodium.h>

static json_t *list_read(const char *name)
{
    struct file f = file_read(name);
    json_t *all = json_loadb((const char *)f.at, f.len, 0, NULL);

    cr_assert(ne(ptr, all, NULL), "%s", name);
    free(f.at);
    return all;
}

static uint64_t number(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static const char *text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void sha_is(const unsigned char *bytes, size_t n, const char *want)
{
    unsigned char sum[32];
    char hex[65];

    crypto_hash_sha256(sum, bytes, n);
    sodium_bin2hex(hex, sizeof(hex), sum, sizeof(sum));
    must_say(hex, want);
}

static void tensor_is(const struct hth_found *found, const unsigned char *data, const json_t *want)
{
    const json_t *shape = json_object_get(want, "shape");

    cr_assert(eq(int, (int)found->kind, HTH_ITEM_TENSOR));
    cr_assert(eq(u64, found->offset, number(want, "offset")));
    cr_assert(eq(u64, found->length, number(want, "length")));
    cr_assert(eq(u64, found->offset + found->payload, number(want, "payload_offset")));
    must_say(hearth_dtype_name(found->header.dtype), text(want, "dtype"));
    cr_assert(eq(sz, found->header.ndim, json_array_size(shape)));
    for (uint32_t i = 0; i < found->header.ndim; i++)
        cr_assert(eq(i64, found->header.shape[i], json_integer_value(json_array_get(shape, i))));
    sha_is(data + found->offset + found->payload, found->length - found->payload,
            text(want, "payload_sha256"));
}

/* MLF_TENS: tensors one by one, then all that follows as one item. */
static void tensors_are(struct hth_items *it, const json_t *items)
{
    struct hth_found found, one;
    json_t *want;
    size_t i;

    json_array_foreach(items, i, want)
    {
        if (strcmp(text(want, "kind"), "tensor") != 0)
            break;
        must(hth_items_next(it, &found, NULL));
        tensor_is(&found, it->at, want);
        must(hth_found_tensor(&one, it->at + found.offset, found.length, NULL));
        cr_assert(eq(u64, one.payload, found.payload));
        must_fail(hth_found_tensor(&one, it->at + found.offset, found.length - 1, NULL),
                HEARTH_ECORRUPT);
    }
    if (it->pos < it->len) {
        must(hth_items_next(it, &found, NULL));
        cr_assert(eq(int, (int)found.kind, HTH_ITEM_BYTES));
        cr_assert(eq(u64, found.offset, number(json_array_get(items, i), "offset")));
        cr_assert(eq(u64, found.offset + found.length, it->len));
    }
    must_fail(hth_items_next(it, &found, NULL), HEARTH_ENOENT);
}

/* TORCH___: zips, which only the container's metadata takes apart. */
static void is_one_item(struct hth_items *it)
{
    struct hth_found found;

    if (!it->len)
        return;
    must(hth_items_next(it, &found, NULL));
    cr_assert(eq(int, (int)found.kind, HTH_ITEM_BYTES));
    cr_assert(eq(u64, found.length, it->len));
    must_fail(hth_items_next(it, &found, NULL), HEARTH_ENOENT);
}

static void object_is(const char *dir, const json_t *want)
{
    int tensors = !strcmp(text(want, "format_signature"), "MLF_TENS");
    struct hth_block block;
    struct hth_items it;
    struct file f;
    char name[256];

    snprintf(name, sizeof(name), "%s/%s", dir, text(want, "name"));
    f = file_read(name);
    must(hth_block_decode(&block, f.at, f.len, f.len, NULL));
    cr_assert(eq(u64, block.data_len, number(want, "len_written_data")));
    cr_assert(eq(int, (int)block.signature, tensors ? HTH_SIG_TENSORS : HTH_SIG_TORCH));
    must(hth_object_check(&block, f.at + HTH_BLOCK, block.data_len, NULL));
    hth_items_init(&it, block.signature, f.at + HTH_BLOCK, block.data_len);
    if (tensors)
        tensors_are(&it, json_object_get(want, "items"));
    else
        is_one_item(&it);
    free(f.at);
}

static void container_is(const char *dir, const char *list)
{
    json_t *all = list_read(list), *want;
    size_t i;

    json_array_foreach(json_object_get(all, "objects"), i, want)
    {
        object_is(dir, want);
    }
    cr_assert(gt(sz, i, 0));
    json_decref(all);
}

Test(items, of_whole_containers_are_found)
{
    container_is("container/step-7_ckpt", "container/step-7_ckpt.expected.json");
    container_is("container/step-12_ckpt", "container/step-12_ckpt.expected.json");
}

Test(items, of_legacy_objects_are_left_whole)
{
    container_is("legacy", "legacy/expected.json");
}

static size_t tensor(unsigned char *out, int64_t rows)
{
    struct hth_header h = { .dtype = HEARTH_INT8, .ndim = 1, .shape = { rows } };
    size_t n = hth_header_encode(&h, out);

    memset(out + n, 7, (size_t)rows);
    return n + (size_t)rows;
}

Test(items, a_tensor_that_is_cut_off_is_damage_and_not_bytes)
{
    unsigned char bytes[2 * HTH_HEADER_MAX + 200];
    size_t first = tensor(bytes, 100), second = tensor(bytes + first, 100);
    struct hth_items it;
    struct hth_found found;

    hth_items_init(&it, HTH_SIG_TENSORS, bytes, first + second - 1);
    must(hth_items_next(&it, &found, NULL));
    must_fail(hth_items_next(&it, &found, NULL), HEARTH_ECORRUPT);
    hth_items_init(&it, HTH_SIG_TENSORS, bytes, first + 20); /* no header: bytes */
    must(hth_items_next(&it, &found, NULL));
    must(hth_items_next(&it, &found, NULL));
    cr_assert(eq(int, (int)found.kind, HTH_ITEM_BYTES));
    cr_assert(eq(u64, found.length, 20));
}

Test(items, of_an_object_without_data_there_are_none)
{
    struct hth_items it;
    struct hth_found found;

    hth_items_init(&it, HTH_SIG_TENSORS, NULL, 0);
    must_fail(hth_items_next(&it, &found, NULL), HEARTH_ENOENT);
}
