/* SPDX-License-Identifier: Apache-2.0 */
/* All bytes of a foreign file are read: is it whole, and which items are in it? */
#include "check.h"

#include "core/base/bytes.h"
#include "core/foreign/foreign.h"
#include "core/torch/header.h"
#include "core/torch/pickle.h"
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void limit(void)
{
    alarm(60);
}

TestSuite(foreign, .init = limit);

static const char *data(void)
{
    const char *dir = getenv("HEARTH_TEST_DATA");

    return dir ? dir : "tests/data";
}

/* malloc'ed, of exactly its size. */
static unsigned char *read_file(const char *dir, const char *name, size_t *out_len)
{
    char path[512];
    unsigned char *bytes;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s/%s", data(), dir, name);
    f = fopen(path, "re");
    cr_assert(ne(ptr, f, NULL), "%s", path);
    fseek(f, 0, SEEK_END);
    *out_len = (size_t)ftell(f);
    rewind(f);
    bytes = malloc(*out_len);
    cr_assert(eq(sz, fread(bytes, 1, *out_len, f), *out_len));
    fclose(f);
    return bytes;
}

/* ---- Items
 * ------------------------------------------------------------------------------------- */

static void add_listed(struct hth_digesting *d, const json_t *item)
{
    const json_t *dims = json_object_get(item, "shape");
    int64_t shape[HTH_DIMS_MAX] = { 0 };
    uint32_t ndim = (uint32_t)json_array_size(dims);

    for (uint32_t i = 0; i < ndim; i++)
        shape[i] = json_integer_value(json_array_get(dims, i));
    hth_foreign_item(d, (uint64_t)json_integer_value(json_object_get(item, "offset")),
            (uint64_t)json_integer_value(json_object_get(item, "length")),
            !strcmp(json_string_value(json_object_get(item, "kind")), "tensor") ? shape : NULL,
            ndim);
}

/* Of the items that are listed the first look.items are those that were seen. */
static void check_object(const json_t *object, const char *dir)
{
    int zips = !strcmp(json_string_value(json_object_get(object, "format_signature")), "TORCH___");
    const char *name = json_string_value(json_object_get(object, "name"));
    const json_t *items = json_object_get(object, "items");
    struct hth_foreign_look look = { .flags = HTH_FOREIGN_LINK };
    unsigned char digest[HTH_DIGEST], *bytes;
    struct hearth_error err;
    struct hth_digesting d;
    size_t len;

    bytes = read_file(dir, name, &len);
    cr_assert(
            eq(int, hth_foreign_look(&look, name, bytes, len, &err), 0), "%s: %s", name, err.text);
    cr_assert(eq(u64, look.data_len,
                      (uint64_t)json_integer_value(json_object_get(object, "len_written_data"))),
            "%s", name);
    cr_assert(eq(u32, look.flags,
            HTH_FOREIGN_LINK | HTH_FOREIGN_SHAPED | HTH_FOREIGN_BLOCK |
                    (zips ? 0 : HTH_FOREIGN_TENSORS)));
    cr_assert(le(sz, look.items, json_array_size(items)), "%s", name);
    if (zips)
        cr_assert(eq(sz, look.items, json_array_size(items)), "%s", name);
    hth_digest_begin(&d);
    for (uint32_t i = 0; i < look.items; i++)
        add_listed(&d, json_array_get(items, i));
    hth_digest_end(&d, digest);
    cr_assert(zero(int, memcmp(digest, look.digest, HTH_DIGEST)), "%s", name);
    free(bytes);
}

static void check_list(const char *list, const char *dir)
{
    char path[512];
    json_t *root, *object;
    size_t i;

    snprintf(path, sizeof(path), "%s/%s", data(), list);
    root = json_load_file(path, 0, NULL);
    cr_assert(ne(ptr, root, NULL), "%s", path);
    json_array_foreach(json_object_get(root, "objects"), i, object) check_object(object, dir);
    cr_assert(gt(sz, i, 1));
    json_decref(root);
}

Test(foreign, the_tensors_of_an_object_are_seen_with_place_and_shape)
{
    check_list("container/step-12_ckpt.expected.json", "container/step-12_ckpt");
    check_list("container/step-7_ckpt.expected.json", "container/step-7_ckpt");
}

Test(foreign, zips_one_behind_the_other_are_seen_like_that_too)
{
    check_list("legacy/expected.json", "legacy");
}

Test(foreign, what_looks_like_the_end_of_a_zip_in_its_payload_is_not_it)
{
    struct hth_foreign_look look = { 0 }, other = { 0 };
    size_t len;
    unsigned char *bytes = read_file("legacy", "raw_view.distcp", &len);

    must(hth_foreign_look(&look, "x", bytes, len, NULL));
    memcpy(bytes + HTH_BLOCK + 704, "PK\5\6", 4);
    must(hth_foreign_look(&other, "x", bytes, len, NULL));
    cr_assert(zero(int, memcmp(&look, &other, sizeof(look))));
    free(bytes);
}

Test(foreign, an_object_whose_tensor_is_cut_off_is_torn)
{
    struct hth_foreign_look look = { 0 };
    size_t len;
    unsigned char *bytes = read_file("container/step-12_ckpt", "__0__0_src0.distcp", &len);

    must(hth_foreign_look(&look, "x", bytes, len, NULL));
    hth_put64(bytes, 200);
    must_fail(hth_foreign_look(&look, "x", bytes, len, NULL), HEARTH_ECORRUPT);
    free(bytes);
}

/* ---- `.metadata`
 * ------------------------------------------------------------------------------- */

static int look_at(const void *bytes, size_t len, struct hth_foreign_look *out)
{
    unsigned char *copy = malloc(len ? len : 1); /* so that a byte too far is found */
    int rc;

    memcpy(copy, bytes, len);
    *out = (struct hth_foreign_look){ 0 };
    rc = hth_foreign_look(out, HTH_METADATA, copy, len, NULL);
    free(copy);
    return rc;
}

Test(foreign, a_metadata_that_was_cut_anywhere_is_torn)
{
    struct hth_foreign_look look;
    unsigned char *bytes;
    struct dirent *e;
    char path[512];
    unsigned seen = 0;
    DIR *dir;
    size_t len;

    snprintf(path, sizeof(path), "%s/metadata", data());
    dir = opendir(path);
    cr_assert(ne(ptr, dir, NULL));
    while ((e = readdir(dir))) {
        if (!strstr(e->d_name, ".metadata"))
            continue;
        bytes = read_file("metadata", e->d_name, &len);
        cr_assert(eq(int, look_at(bytes, len, &look), 0), "%s", e->d_name);
        cr_assert(eq(u32, look.flags, HTH_FOREIGN_READABLE), "%s", e->d_name);
        for (size_t cut = 0; cut < len && len < 100000; cut += 1 + len / 997)
            cr_assert(eq(int, look_at(bytes, cut, &look), HEARTH_ECORRUPT), "%s", e->d_name);
        free(bytes);
        seen++;
    }
    closedir(dir);
    cr_assert(gt(u32, seen, 5));
}

Test(foreign, a_pickle_of_anything_is_whole_and_not_understood)
{
    /* Of each kind of argument one, and opcodes that only another library's class needs. */
    static const char pickle[] = "\x80\x04\x95\x01\0\0\0\0\0\0\0"
                                 "cos\nsystem\n(X\x02\0\0\0ls\x8c\x01xC\x01.M\1\2J\1\2\3\4"
                                 "\x8d\x01\0\0\0\0\0\0\0.F1.5\nG\1\2\3\4\5\6\7.tRq\x01\x94.";
    struct hth_foreign_look look;

    must(look_at(pickle, sizeof(pickle) - 1, &look));
    cr_assert(eq(u32, look.flags, 0));
    for (size_t cut = 0; cut < sizeof(pickle) - 1; cut++)
        must_fail(look_at(pickle, cut, &look), HEARTH_ECORRUPT);
    must_fail(look_at(pickle, sizeof(pickle), &look), HEARTH_ECORRUPT); /* a byte behind it */
    must_fail(look_at("none", 4, &look), HEARTH_ECORRUPT);
    must_fail(look_at("\x80\x04\0\0\0.", 6, &look), HEARTH_ECORRUPT); /* a hole of zeros */
    must_fail(look_at("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", 12, &look), HEARTH_ECORRUPT);
}
