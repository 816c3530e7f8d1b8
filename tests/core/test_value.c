/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items of other programs' checkpoints as values: files of torch, compared with what torch reads of
 * them; and items that no program should write.
 */
#include "check.h"
#include "value_tree.h"
#include "vectors.h"

#include <unistd.h>

/* bytes[len] in memory of its own, so that ASan sees a byte too far. */
static struct hearth_values *opened(const void *bytes, size_t len, unsigned char **out_copy)
{
    struct hearth_values *v = NULL;
    struct hearth_error err = { 0 };
    int rc;

    *out_copy = malloc(len ? len : 1);
    memcpy(*out_copy, bytes, len);
    rc = hearth_values_open(*out_copy, len, &v, &err);
    cr_assert(eq(int, rc, 0), "%s", err.text);
    return v;
}

static json_t *json_of(const char *name)
{
    struct file f = file_read(name);
    json_t *json = json_loadb((char *)f.at, f.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);

    cr_assert(ne(ptr, json, NULL), "%s", name);
    free(f.at);
    return json;
}

static size_t number(const json_t *object, const char *key)
{
    return (size_t)json_integer_value(json_object_get(object, key));
}

static const char *word(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* --- what torch wrote --- */

Test(value, every_form_and_protocol_is_read_as_torch_reads_it, .timeout = 60)
{
    json_t *all = json_of("value/expected.json"), *row;
    size_t i, files = json_array_size(json_object_get(all, "files"));

    alarm(60);
    json_array_foreach(json_object_get(all, "files"), i, row)
    {
        const json_t *want = json_object_get(json_object_get(all, "objects"), word(row, "object"));
        char name[256];
        struct hearth_values *v;
        unsigned char *copy;
        struct file f;

        snprintf(name, sizeof(name), "value/%s", word(row, "file"));
        f = file_read(name);
        v = opened(f.at, f.len, &copy);
        value_is(v, want, name);
        hearth_values_close(v);
        free(copy);
        free(f.at);
    }
    cr_assert(eq(sz, files, 36));
    json_decref(all);
}

static void tensor_is(const struct file *f, size_t at, size_t len, const char *dtype,
        const json_t *shape, const char *sha256)
{
    struct hearth_value root = { .struct_size = sizeof(root) };
    struct hearth_values *v;
    unsigned char *copy;

    cr_assert(le(sz, at + len, f->len));
    v = opened(f->at + at, len, &copy);
    must(hearth_value_root(v, &root, NULL));
    cr_assert(eq(int, (int)root.kind, HEARTH_VALUE_TENSOR));
    must_say(hearth_dtype_name((enum hearth_dtype)root.dtype), dtype);
    shape_is(&root, shape);
    if (sha256)
        sha256_is(&root, sha256);
    hearth_values_close(v);
    free(copy);
}

Test(value, every_object_of_torch_items, .timeout = 60)
{
    json_t *all = json_of("legacy/expected.json"), *object, *item;
    size_t i, k, tensors = 0, bytes = 0;

    json_array_foreach(json_object_get(all, "objects"), i, object)
    {
        char name[256];
        struct file f;

        snprintf(name, sizeof(name), "legacy/%s", word(object, "name"));
        f = file_read(name);
        json_array_foreach(json_object_get(object, "items"), k, item)
        {
            size_t at = 4096 + number(item, "offset"), len = number(item, "length");

            if (!strcmp(word(item, "kind"), "tensor")) {
                /* Where storage and tensor differ, the digest is the storage's. */
                int raw = !strncmp(word(object, "name"), "raw_", 4);

                tensor_is(&f, at, len, word(item, "dtype"), json_object_get(item, "shape"),
                        raw ? NULL : word(item, "payload_sha256"));
                tensors++;
            } else {
                unsigned char *copy;
                struct hearth_values *v = opened(f.at + at, len, &copy);

                plain_is(v, json_object_get(item, "value"));
                hearth_values_close(v);
                free(copy);
                bytes++;
            }
        }
        free(f.at);
    }
    cr_assert(eq(sz, tensors, 13));
    cr_assert(eq(sz, bytes, 2));
    json_decref(all);
}

/* One checkpoint of tests/data/dcp: its chunks, then its byte items. */
static void checkpoint(const char *name, size_t *tensors, size_t *items)
{
    json_t *all, *tensor, *chunk, *item;
    size_t i, k;
    char path[512];
    struct file f;

    snprintf(path, sizeof(path), "dcp/%s/expected.json", name);
    all = json_of(path);
    json_array_foreach(json_object_get(all, "tensors"), i, tensor)
    {
        json_array_foreach(json_object_get(tensor, "chunks"), k, chunk)
        {
            snprintf(path, sizeof(path), "dcp/%s/%s", name, word(chunk, "file"));
            f = file_read(path);
            tensor_is(&f, number(chunk, "item_offset"), number(chunk, "item_length"),
                    word(tensor, "dtype"), json_object_get(chunk, "sizes"), word(chunk, "sha256"));
            free(f.at);
            (*tensors)++;
        }
    }
    json_array_foreach(json_object_get(all, "bytes_items"), i, item)
    {
        struct hearth_values *v;
        unsigned char *copy;

        snprintf(path, sizeof(path), "dcp/%s/%s", name, word(item, "file"));
        f = file_read(path);
        v = opened(f.at + number(item, "offset"), number(item, "length"), &copy);
        plain_is(v, json_object_get(item, "value"));
        hearth_values_close(v);
        free(copy);
        free(f.at);
        (*items)++;
    }
    json_decref(all);
}

Test(value, every_item_of_three_checkpoints, .timeout = 60)
{
    size_t tensors = 0, items = 0;

    alarm(60);
    checkpoint("single", &tensors, &items);
    checkpoint("nested", &tensors, &items);
    checkpoint("sharded4", &tensors, &items);
    cr_assert(eq(sz, tensors, 12u + 10 + 19));
    cr_assert(eq(sz, items, 0u + 13 + 1));
}

Test(value, tensors_of_one_storage_are_seen_to_share_it)
{
    struct hearth_value root = { .struct_size = sizeof(root) }, a = root, b = root, c = root;
    struct file f = file_read("value/tensors.zip");
    struct hearth_values *v;

    must(hearth_values_open(f.at, f.len, &v, NULL));
    must(hearth_value_root(v, &root, NULL));
    must(hearth_value_child(v, &root, 1, &a, NULL)); /* transposed */
    must(hearth_value_child(v, &root, 3, &b, NULL)); /* view, 8 elements behind */
    must(hearth_value_child(v, &root, 9, &c, NULL)); /* scalar */
    cr_assert(eq(u64, a.storage, b.storage));
    cr_assert(ne(u64, a.storage, c.storage));
    cr_assert(eq(u64, b.offset, 8));
    cr_assert(eq(ptr, (void *)(uintptr_t)b.data, (void *)((uintptr_t)a.data + 32)));
    cr_assert(eq(sz, a.len, 96));
    cr_assert(eq(sz, b.len, 64));
    cr_assert(eq(i64, a.strides[0], 1));
    cr_assert(eq(i64, a.strides[1], 6));
    hearth_values_close(v);
    free(f.at);
}

/* --- calls --- */

Test(value, wrong_calls_are_told)
{
    struct hearth_value root = { .struct_size = sizeof(root) }, out = root, none = { 0 };
    struct file f = file_read("value/tuple.pickle2");
    struct hearth_values *v = NULL;

    must_fail(hearth_values_open(NULL, 1, &v, NULL), HEARTH_EINVAL);
    must_fail(hearth_values_open(f.at, f.len, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_value_root(NULL, &out, NULL), HEARTH_EINVAL);
    must(hearth_values_open(f.at, f.len, &v, NULL));
    must_fail(hearth_value_root(v, &none, NULL), HEARTH_EINVAL);
    must(hearth_value_root(v, &root, NULL));
    cr_assert(eq(sz, root.count, 2));
    must_fail(hearth_value_child(v, &root, 2, &out, NULL), HEARTH_ENOENT);
    must_fail(hearth_value_child(v, &none, 0, &out, NULL), HEARTH_EINVAL);
    must(hearth_value_child(v, &root, 1, &out, NULL));
    must_fail(hearth_value_child(v, &out, 0, &root, NULL), HEARTH_EINVAL); /* a number */
    out.handle = 1u << 30;
    must_fail(hearth_value_child(v, &out, 0, &root, NULL), HEARTH_EINVAL);
    hearth_values_close(v);
    hearth_values_close(NULL);
    free(f.at);
}
