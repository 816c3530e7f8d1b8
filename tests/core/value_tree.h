/* SPDX-License-Identifier: Apache-2.0 */
/* Values compared with JSON: with trees of tests/data/value/make.py, and with plain JSON. */
#ifndef VALUE_TREE_H
#define VALUE_TREE_H

#include "check.h"

#include <hearth/value.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

/* The digest of a tensor's elements in C order, by shape and strides alone. */
static inline void sha256_is(const struct hearth_value *t, const char *want)
{
    unsigned element = hearth_dtype_bytes((enum hearth_dtype)t->dtype);
    unsigned char digest[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof(digest) + 1];
    crypto_hash_sha256_state sha;
    int64_t at[64] = { 0 };
    uint64_t elements = 1;

    crypto_hash_sha256_init(&sha);
    for (uint32_t i = 0; i < t->ndim; i++)
        elements *= (uint64_t)t->shape[i];
    for (uint64_t n = 0; n < elements; n++) {
        uint64_t offset = 0;

        for (uint32_t i = 0; i < t->ndim; i++)
            offset += (uint64_t)(at[i] * t->strides[i]);
        cr_assert(le(u64, (offset + 1) * element, t->len));
        crypto_hash_sha256_update(&sha, (const unsigned char *)t->data + offset * element, element);
        for (uint32_t i = t->ndim; i-- && ++at[i] == t->shape[i];)
            at[i] = 0;
    }
    crypto_hash_sha256_final(&sha, digest);
    sodium_bin2hex(hex, sizeof(hex), digest, sizeof(digest));
    must_say(hex, want);
}

static inline void shape_is(const struct hearth_value *t, const json_t *want)
{
    cr_assert(eq(sz, (size_t)t->ndim, json_array_size(want)));
    for (uint32_t i = 0; i < t->ndim; i++)
        cr_assert(eq(i64, t->shape[i], json_integer_value(json_array_get(want, i))));
}

static inline void hex_is(const struct hearth_value *v, const json_t *want, const char *where)
{
    char *hex = malloc(2 * v->len + 1);

    sodium_bin2hex(hex, 2 * v->len + 1, v->data, v->len);
    cr_assert(eq(str, hex, (char *)(uintptr_t)json_string_value(want)), "%s", where);
    free(hex);
}

/* Tensors that share a storage there share one here: storages[theirs] is ours, plus 1. */
static inline void tree_tensor(const struct hearth_value *t, const json_t *want, uint64_t *storages)
{
    size_t theirs = (size_t)json_integer_value(json_object_get(want, "storage"));

    cr_assert(lt(sz, theirs, 64));
    must_say(hearth_dtype_name((enum hearth_dtype)t->dtype),
            json_string_value(json_object_get(want, "dtype")));
    shape_is(t, json_object_get(want, "shape"));
    sha256_is(t, json_string_value(json_object_get(want, "sha256")));
    cr_assert(eq(int, (int)t->requires_grad, json_is_true(json_object_get(want, "requires_grad"))));
    cr_assert(eq(int, (int)t->conj, json_is_true(json_object_get(want, "conj"))));
    cr_assert(eq(int, (int)t->neg, json_is_true(json_object_get(want, "neg"))));
    if (!storages[theirs])
        storages[theirs] = t->storage + 1;
    cr_assert(eq(u64, storages[theirs], t->storage + 1));
}

static inline const char *tree_kind(uint32_t kind)
{
    static const char *const names[] = { [HEARTH_VALUE_NONE] = "none",
        [HEARTH_VALUE_BOOL] = "bool",
        [HEARTH_VALUE_INT] = "int",
        [HEARTH_VALUE_FLOAT] = "float",
        [HEARTH_VALUE_TEXT] = "text",
        [HEARTH_VALUE_BYTES] = "bytes",
        [HEARTH_VALUE_TUPLE] = "tuple",
        [HEARTH_VALUE_LIST] = "list",
        [HEARTH_VALUE_DICT] = "dict",
        [HEARTH_VALUE_SIZE] = "size",
        [HEARTH_VALUE_DTYPE] = "dtype",
        [HEARTH_VALUE_TENSOR] = "tensor" };

    return kind < sizeof(names) / sizeof(names[0]) && names[kind] ? names[kind] : "?";
}

static inline void tree_is(struct hearth_values *v, const struct hearth_value *at,
        const json_t *want, uint64_t *storages, const char *where)
{
    const json_t *value = json_object_get(want, "value");
    struct hearth_value kid = { .struct_size = sizeof(kid) };
    int pairs = at->kind == HEARTH_VALUE_DICT;
    char number[32];

    must_say(tree_kind(at->kind), json_string_value(json_object_get(want, "kind")));
    if (at->kind == HEARTH_VALUE_TENSOR)
        tree_tensor(at, want, storages);
    if (at->kind == HEARTH_VALUE_TEXT || at->kind == HEARTH_VALUE_BYTES)
        hex_is(at, json_object_get(want, "hex"), where);
    if (at->kind == HEARTH_VALUE_BOOL)
        cr_assert(eq(i64, at->integer, json_integer_value(value)));
    if (at->kind == HEARTH_VALUE_INT) {
        snprintf(number, sizeof(number), "%lld", (long long)at->integer);
        must_say(number, json_string_value(value));
    }
    if (at->kind == HEARTH_VALUE_FLOAT) {
        double real = strtod(json_string_value(value), NULL);

        cr_assert(eq(int, memcmp(&real, &at->real, sizeof(real)), 0), "%s: %g", where, at->real);
    }
    if (at->kind == HEARTH_VALUE_DTYPE)
        must_say(hearth_dtype_name((enum hearth_dtype)at->integer), json_string_value(value));
    if (!json_is_array(value))
        return;
    cr_assert(eq(sz, at->count, json_array_size(value)), "%s", where);
    for (size_t i = 0; i < at->count << pairs; i++) {
        const json_t *one = json_array_get(value, i >> pairs);

        must(hearth_value_child(v, at, i, &kid, NULL));
        tree_is(v, &kid, pairs ? json_array_get(one, i & 1) : one, storages, where);
    }
    must_fail(hearth_value_child(v, at, at->count << pairs, &kid, NULL), HEARTH_ENOENT);
}

static inline void value_is(struct hearth_values *v, const json_t *want, const char *where)
{
    struct hearth_value root = { .struct_size = sizeof(root) };
    uint64_t storages[64] = { 0 };

    must(hearth_value_root(v, &root, NULL));
    tree_is(v, &root, want, storages, where);
}

/* The plain JSON of tests/data/dcp: {"tuple": []} is a tuple, {"bytes_hex": ""} bytes,
 * {"tensor": {}} a tensor. */
static inline void plain_at(
        struct hearth_values *v, const struct hearth_value *at, const json_t *want)
{
    struct hearth_value kid = { .struct_size = sizeof(kid) };
    const json_t *tuple = json_object_get(want, "tuple");
    const json_t *list = tuple ? tuple : want;

    switch (at->kind) {
    case HEARTH_VALUE_NONE:
        cr_assert(eq(int, json_is_null(want), 1));
        return;
    case HEARTH_VALUE_BOOL:
        cr_assert(eq(int, json_is_true(want), (int)at->integer));
        return;
    case HEARTH_VALUE_INT:
        cr_assert(eq(i64, json_integer_value(want), at->integer));
        return;
    case HEARTH_VALUE_FLOAT:
        cr_assert(eq(dbl, json_real_value(want), at->real));
        return;
    case HEARTH_VALUE_TEXT:
        cr_assert(eq(sz, json_string_length(want), at->len));
        cr_assert(eq(int, memcmp(json_string_value(want), at->data, at->len), 0));
        return;
    case HEARTH_VALUE_BYTES:
        hex_is(at, json_object_get(want, "bytes_hex"), "plain");
        return;
    case HEARTH_VALUE_TENSOR:
        want = json_object_get(want, "tensor");
        must_say(hearth_dtype_name((enum hearth_dtype)at->dtype),
                json_string_value(json_object_get(want, "dtype")));
        shape_is(at, json_object_get(want, "shape"));
        sha256_is(at, json_string_value(json_object_get(want, "sha256")));
        return;
    default:
        break;
    }
    cr_assert(eq(int, (int)at->kind, tuple ? HEARTH_VALUE_TUPLE : HEARTH_VALUE_LIST));
    cr_assert(eq(sz, json_array_size(list), at->count));
    for (size_t i = 0; i < at->count; i++) {
        must(hearth_value_child(v, at, i, &kid, NULL));
        plain_at(v, &kid, json_array_get(list, i));
    }
}

static inline void plain_is(struct hearth_values *v, const json_t *want)
{
    struct hearth_value root = { .struct_size = sizeof(root) };

    must(hearth_value_root(v, &root, NULL));
    plain_at(v, &root, want);
}

#endif
