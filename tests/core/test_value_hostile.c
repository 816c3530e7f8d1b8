/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items that no honest program writes: tensors that reach out of their storage, storages of another
 * size, pickles that would run a program. Also every prefix and every small change of a file that
 * torch wrote.
 */
#include "vectors.h"
#include "zipper.h"

#include <unistd.h>

/* --- tensors --- */

#define TEXT(n, text) "X" n "\0\0\0" text
#define STORAGE(class, key, elements) \
    "(" TEXT("\x07", "storage") class TEXT("\x01", key) TEXT("\x03", "cpu") elements "tQ"
#define FLOATS                                  "ctorch\nFloatStorage\n"
#define SIX                                     STORAGE(FLOATS, "0", "K\x06")
#define HOOKS                                   "ccollections\nOrderedDict\n)R"
#define V2                                      "ctorch._utils\n_rebuild_tensor_v2\n"
#define REST                                    "\x89" HOOKS "tR"
#define TENSOR(storage, offset, shape, strides) V2 "(" storage offset shape strides REST
#define TWO(a, b)                               a b "\x86"
#define HUGE_                                   "\x8a\x08\0\0\0\0\0\0\0\x40" /* 2^62 */

/* A zip with this pickle and a storage "0" of 24 bytes. */
static int open_pickle(const char *pickle, size_t n)
{
    struct zipper z = { 0 };
    unsigned char all[2048] = "\x80\x02", storage[24] = { 0 };

    cr_assert(lt(sz, n, sizeof(all) - 3));
    memcpy(all + 2, pickle, n);
    all[n + 2] = '.';
    member(&z, "x/data.pkl", all, n + 3);
    member(&z, "x/data/0", storage, sizeof(storage));
    return open_zip(&z);
}

#define OPEN(text) open_pickle(text, sizeof(text) - 1)
#define GOOD       TENSOR(SIX, "K\0", TWO("K\2", "K\3"), TWO("K\3", "K\1"))

Test(value_tensor, what_is_odd_and_right_is_read)
{
    must(OPEN(GOOD));
    must(OPEN(TENSOR(SIX, "K\5", ")", ")"))); /* 0-d */
    must(OPEN(TENSOR(SIX, "K\5", TWO("M\xe8\3", "M\xe8\3"), TWO("K\0", "K\0"))));
    must(OPEN(TENSOR(SIX, "K\x09", TWO("K\0", "K\3"), TWO("K\3", "K\1")))); /* past the end */
    must(OPEN(TENSOR(SIX, "K\0", TWO("K\0", HUGE_), TWO(HUGE_, "K\1"))));   /* empty */
    must(OPEN("ctorch._utils\n_rebuild_parameter\n(" GOOD "\x88" HOOKS "tR"));
    must(OPEN("ctorch._utils\n_rebuild_tensor\n(" SIX "K\0" TWO("K\2", "K\3")
                    TWO("K\3", "K\1") "tR"));
}

Test(value_tensor, what_reaches_out_of_its_storage_is_refused)
{
    refused(OPEN(TENSOR(SIX, "K\1", TWO("K\2", "K\3"), TWO("K\3", "K\1"))), HEARTH_ECORRUPT,
            "reaches out of its storage of 6 elements");
    refused(OPEN(TENSOR(SIX, "K\0", TWO("K\2", "K\3"), TWO("K\4", "K\1"))), HEARTH_ECORRUPT,
            "reaches out");
    refused(OPEN(TENSOR(SIX, "K\0", "K\7\x85", "K\1\x85")), HEARTH_ECORRUPT, "reaches out");
    refused(OPEN(TENSOR(SIX, "K\6", ")", ")")), HEARTH_ECORRUPT, "reaches out");
    refused(OPEN(TENSOR(SIX, HUGE_, ")", ")")), HEARTH_ECORRUPT, "reaches out");
    refused(OPEN(TENSOR(SIX, "K\0", TWO("K\5", "K\5"), TWO(HUGE_, HUGE_))), HEARTH_ECORRUPT,
            "reaches out"); /* 2^64 */
    refused(OPEN(TENSOR(SIX, "K\0", TWO(HUGE_, HUGE_), TWO("K\0", "K\0"))), HEARTH_ECORRUPT,
            "too many bytes");
}

Test(value_tensor, numbers_that_are_none_of_a_shape)
{
    refused(OPEN(TENSOR(SIX, "J\xff\xff\xff\xff", ")", ")")), HEARTH_ECORRUPT, "negative offset");
    refused(OPEN(TENSOR(SIX, "K\0", "J\xff\xff\xff\xff\x85", "K\1\x85")), HEARTH_ECORRUPT,
            "negative dimension");
    refused(OPEN(TENSOR(SIX, "K\5", "K\2\x85", "J\xff\xff\xff\xff\x85")), HEARTH_ECORRUPT,
            "negative stride");
    refused(OPEN(TENSOR(SIX, "K\0", "K\2\x85", TWO("K\1", "K\1"))), HEARTH_ECORRUPT,
            "1 dimensions and 2 strides");
    refused(OPEN(TENSOR(SIX, "K\0", "N\x85", "K\1\x85")), HEARTH_ECORRUPT, "no integer");
    refused(OPEN(TENSOR(SIX, "K\0", "K\1\x85", "G\0\0\0\0\0\0\0\0\x85")), HEARTH_ECORRUPT,
            "no integer");
    refused(OPEN(TENSOR(SIX, "N", ")", ")")), HEARTH_ECORRUPT, "does not take these arguments");
    refused(OPEN("ctorch\nSize\n(K\1Nt\x85R"), HEARTH_ECORRUPT, "no integer");
}

Test(value_tensor, a_storage_is_what_its_id_says)
{
    refused(OPEN(TENSOR(STORAGE(FLOATS, "0", "K\5"), "K\0", ")", ")")), HEARTH_ECORRUPT,
            "5 elements of float32 that has 24 bytes");
    refused(OPEN(TENSOR(STORAGE(FLOATS, "0", HUGE_), "K\0", ")", ")")), HEARTH_ECORRUPT,
            "that has 24 bytes"); /* 2^64 bytes are 0 */
    refused(OPEN(TENSOR(STORAGE(FLOATS, "0", "J\xff\xff\xff\xff"), "K\0", ")", ")")),
            HEARTH_ECORRUPT, "less than no elements");
    refused(OPEN(TENSOR(STORAGE("ctorch\nDoubleStorage\n", "0", "K\6"), "K\0", ")", ")")),
            HEARTH_ECORRUPT, "6 elements of float64");
    must(OPEN(TENSOR(STORAGE("ctorch\nDoubleStorage\n", "0", "K\3"), "K\2", ")", ")")));
    must(OPEN(
            TENSOR(STORAGE("ctorch.storage\nUntypedStorage\n", "0", "K\x18"), "K\x17", ")", ")")));
    refused(OPEN(TENSOR(STORAGE(FLOATS, "1", "K\6"), "K\0", ")", ")")), HEARTH_ECORRUPT,
            "not there");
    refused(OPEN(TENSOR(STORAGE("ctorch\nfloat32\n", "0", "K\6"), "K\0", ")", ")")),
            HEARTH_ECORRUPT, "no storage's class");
    refused(OPEN(TENSOR("(" TEXT("\x06", "module") FLOATS TEXT("\1", "0") TEXT("\3", "cpu") "K\6tQ",
                    "K\0", ")", ")")),
            HEARTH_ECORRUPT, "none of a storage");
    refused(OPEN(TENSOR("(" TEXT("\x07", "storage") FLOATS TEXT("\1", "0")
                                TEXT("\3", "cpu") "K\6)tQ",
                    "K\0", ")", ")")),
            HEARTH_ECORRUPT, "view of a storage");
    refused(OPEN(TENSOR("K\1Q", "K\0", ")", ")")), HEARTH_ECORRUPT, "no tuple");
    refused(OPEN(SIX), HEARTH_ECORRUPT, "storage without a tensor");
}

Test(value_tensor, what_is_not_supported_is_refused_by_name)
{
    refused(OPEN("ctorch._utils\n_rebuild_qtensor\n)R"), HEARTH_ECORRUPT,
            "data.pkl: byte 2: the global '_rebuild_qtensor' of 'torch._utils'");
    refused(OPEN("ctorch._utils\n_rebuild_sparse_tensor\n)R"), HEARTH_ECORRUPT, "_rebuild_sparse");
    refused(OPEN("cposix\nsystem\nX\4\0\0\0true\x85R"), HEARTH_ECORRUPT, "'system' of 'posix'");
    refused(OPEN("c__builtin__\neval\nX\1\0\0\0"
                 "1\x85R"),
            HEARTH_ECORRUPT, "'eval'");
    refused(OPEN("ctorch.storage\n_load_from_bytes\n)R"), HEARTH_ECORRUPT, "_load_from_bytes");
    refused(OPEN("ctorch\nTensor\n"), HEARTH_ECORRUPT, "no value");
    refused(OPEN("ctorch\nTensor\n)R"), HEARTH_ECORRUPT, "called");
    refused(OPEN("\x8f"), HEARTH_ECORRUPT, "opcode 8f"); /* a set */
    refused(OPEN("ctorch._utils\n_rebuild_parameter\n(ctorch\nSize\n)\x85R\x88" HOOKS "tR"),
            HEARTH_ECORRUPT, "this is no tensor");
    refused(OPEN("ctorch._utils\n_rebuild_device_tensor_from_cpu_tensor\n(" GOOD
                 "ctorch\nfloat16\nX\3\0\0\0xla\x89tR"),
            HEARTH_ECORRUPT, "changes its dtype");
    refused(OPEN("ctorch._tensor\n_rebuild_from_type_v2\n(ctorch\nTensor\nctorch\nTensor\n)NtR"),
            HEARTH_ECORRUPT, "makes no tensor");
    refused(OPEN("ctorch._tensor\n_rebuild_from_type_v2\n(" V2 "ctorch\nTensor\n)NtR"),
            HEARTH_ECORRUPT, "does not take these arguments");
    refused(OPEN("ctorch._tensor\n_rebuild_from_type_v2\n(" V2 "ctorch\nfloat32\n)NtR"),
            HEARTH_ECORRUPT, "not torch.Tensor");
    refused(OPEN("c_codecs\nencode\nX\3\0\0\0\xe2\x82\xacX\6\0\0\0latin1\x86R"), HEARTH_ECORRUPT,
            "U+00FF");
    refused(OPEN("c_codecs\nencode\nX\0\0\0\0X\5\0\0\0utf-8\x86R"), HEARTH_ECORRUPT, "latin1");
}

/* --- the older form --- */

#define PREAMBLE                                                          \
    "\x80\2\x8a\n\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\3." \
    "\x80\2}" TEXT("\x0d", "little_endian") "\x88s."
#define OLD(key, elements) TENSOR(STORAGE(FLOATS, key, elements), "K\0", elements "\x85", "K\1\x85")
#define KEYS               "\x80\2](" TEXT("\1", "1") TEXT("\1", "0") "e."
#define ONE                "\1\0\0\0\0\0\0\0"
#define TWO8               "\2\0\0\0\0\0\0\0"

#define OPEN_OLD(text)     open_item(text, sizeof(text) - 1)

Test(value_older, storages_lie_in_the_order_of_the_list)
{
    static const char item[] = PREAMBLE "\x80\2" OLD("0", "K\1")
            OLD("1", "K\2") "\x86." KEYS TWO8 "bbbbcccc" ONE "aaaa";
    struct hearth_value root = { .struct_size = sizeof(root) }, t = root;
    struct hearth_values *v = NULL;

    must(hearth_values_open(item, sizeof(item) - 1, &v, NULL));
    must(hearth_value_root(v, &root, NULL));
    must(hearth_value_child(v, &root, 0, &t, NULL));
    cr_assert(eq(int, memcmp(t.data, "aaaa", 4), 0));
    cr_assert(eq(u64, t.storage, 1));
    must(hearth_value_child(v, &root, 1, &t, NULL));
    cr_assert(eq(int, memcmp(t.data, "bbbbcccc", 8), 0));
    cr_assert(eq(u64, t.storage, 0));
    hearth_values_close(v);
}

Test(value_older, storages_and_keys_fit_together)
{
    refused(OPEN_OLD(PREAMBLE "\x80\2" OLD("0", "K\1") "." KEYS TWO8 "bbbbcccc" ONE "aaaa"),
            HEARTH_ECORRUPT, "nothing speaks of");
    refused(OPEN_OLD(PREAMBLE "\x80\2" OLD("2", "K\1") ".\x80\2]."), HEARTH_ECORRUPT, "not there");
    refused(OPEN_OLD(PREAMBLE "\x80\2N.\x80\2](" TEXT("\1", "1") TEXT("\1", "1") "e."),
            HEARTH_ECORRUPT, "twice");
    refused(OPEN_OLD(PREAMBLE "\x80\2N.\x80\2]K\1a."), HEARTH_ECORRUPT, "no text");
    refused(OPEN_OLD(PREAMBLE "\x80\2N.\x80\2N."), HEARTH_ECORRUPT, "no list");
    refused(OPEN_OLD(PREAMBLE "\x80\2N.\x80\2].x"), HEARTH_ECORRUPT, "behind the last storage");
    refused(OPEN_OLD(PREAMBLE "\x80\2" OLD("0", "K\2") ".\x80\2]" TEXT("\1", "0") "a." ONE "aaaa"),
            HEARTH_ECORRUPT, "2 elements of float32 that has 4 bytes");
    refused(OPEN_OLD(PREAMBLE "\x80\2cposix\nsystem\n."), HEARTH_ECORRUPT, "'system' of 'posix'");
}

Test(value_older, the_preamble_says_what_follows)
{
    static const char magic[] = "\x80\2\x8a\n\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    char item[64];

    must(OPEN_OLD(PREAMBLE "\x80\2N.\x80\2]."));
    memcpy(item, magic, 15);
    memcpy(item + 15, "\x80\2M\xe8\3.", 6);
    refused(open_item(item, 21), HEARTH_EUNSUPPORTED, "1001");
    memcpy(item + 15, "\x80\2M\xe9\3.\x80\2}.", 10);
    refused(open_item(item, 25), HEARTH_ECORRUPT, "little_endian");
    memcpy(item + 15, "\x80\2M\xe9\3.\x80\2}X\x0d\0\0\0little_endian\x89s.", 30);
    refused(open_item(item, 45), HEARTH_EUNSUPPORTED, "big-endian");
}

/* --- an OrderedDict has items, and attributes that are not read --- */

Test(value_dict, an_ordered_dict_takes_its_state_once)
{
    must(OPEN(HOOKS "X\1\0\0\0aK\1s}X\1\0\0\0bK\2sb"));
    refused(OPEN(HOOKS "}b}b"), HEARTH_ECORRUPT, "BUILD");
    refused(OPEN("}}b"), HEARTH_ECORRUPT, "BUILD");
    refused(OPEN(HOOKS "q\0h\0b"), HEARTH_ECORRUPT, "");
    refused(OPEN(HOOKS "Nb"), HEARTH_ECORRUPT, "no dict");
    refused(OPEN(HOOKS "}X\x09\0\0\0__class__Nsb"), HEARTH_ECORRUPT, "__");
    refused(OPEN("ccollections\nOrderedDict\n]\x85R"), HEARTH_ECORRUPT, "arguments");
}

/* --- files --- */

/* All that can be reached from a value, up to a number of steps: reads of what it points to. */
static void touch(struct hearth_values *v, const struct hearth_value *at, int *left)
{
    struct hearth_value kid = { .struct_size = sizeof(kid) };
    volatile unsigned char sum = 0;
    uint64_t last = 0;
    size_t kids = at->count << (at->kind == HEARTH_VALUE_DICT);
    int empty = 0;

    if (at->kind == HEARTH_VALUE_TENSOR) {
        for (uint32_t i = 0; i < at->ndim; i++) {
            empty |= at->shape[i] == 0;
            last += (uint64_t)(at->shape[i] - 1) * (uint64_t)at->strides[i];
        }
        if (!empty) {
            unsigned element = hearth_dtype_bytes((enum hearth_dtype)at->dtype);

            cr_assert(le(u64, (last + 1) * element, at->len));
            sum = ((const unsigned char *)at->data)[(last + 1) * element - 1];
        }
    } else if (at->len) {
        sum = ((const unsigned char *)at->data)[at->len - 1];
    }
    (void)sum;
    for (size_t i = 0; i < kids && --*left > 0; i++)
        if (!hearth_value_child(v, at, i, &kid, NULL))
            touch(v, &kid, left);
}

/* 1: accepted. Either way nothing bad happens. */
static int survives(const unsigned char *bytes, size_t len)
{
    struct hearth_value root = { .struct_size = sizeof(root) };
    struct hearth_error e = { 0 };
    struct hearth_values *v = NULL;
    int left = 2000, rc = hearth_values_open(bytes, len, &v, &e);

    if (rc) {
        cr_assert(ne(int, e.text[0], 0), "no sentence");
        cr_assert(ne(int, rc, HEARTH_EINVAL));
        return 0;
    }
    if (!hearth_value_root(v, &root, NULL))
        touch(v, &root, &left);
    hearth_values_close(v);
    return 1;
}

enum { FILE_NAME, READER, LAYER, VERDICT, WHAT, FIELDS };

Test(value_files, every_hostile_input_is_refused_or_harmless)
{
    struct file index = file_read("hostile/index.tsv");
    size_t pos = 0, rows = 0;
    char *field[FIELDS];

    alarm(60);
    row_next(&index, &pos, field, FIELDS);
    while (row_next(&index, &pos, field, FIELDS)) {
        char name[256];
        struct file f;
        int taken;

        snprintf(name, sizeof(name), "hostile/%s", field[FILE_NAME]);
        f = file_read(name);
        taken = survives(f.at, f.len);
        /* 20 levels of shared tuples are a value like any other. */
        if (!strcmp(field[READER], "both") && strcmp(field[FILE_NAME], "a_billion.pkl") != 0)
            cr_assert(eq(int, taken, 0), "%s was accepted: %s", name, field[WHAT]);
        if (!strcmp(field[READER], "item"))
            cr_assert(eq(int, taken, 0), "%s", name);
        rows++;
        free(f.at);
    }
    cr_assert(eq(sz, rows, 310));
    free(index.at);
}

/* One of each form; a large one is changed here and there only. */
static const char *const files[] = { "value/tensors.zip", "value/tensors.older", "value/module.zip",
    "value/attributes.zip4", "value/tuple.zip", "value/tuple.older5", "value/tuple.pickle2" };

Test(value_files, every_prefix_is_refused)
{
    alarm(100);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct file f = file_read(files[i]);

        cr_assert(eq(int, survives(f.at, f.len), 1));
        for (size_t cut = 0; cut < f.len; cut++) {
            unsigned char *exact = malloc(cut ? cut : 1);

            memcpy(exact, f.at, cut);
            cr_assert(eq(int, survives(exact, cut), 0), "%s cut to %zu", files[i], cut);
            free(exact);
        }
        free(f.at);
    }
}

Test(value_files, no_changed_byte_does_harm, .timeout = 100)
{
    static const unsigned char flips[] = { 0x01, 0x80, 0xff, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40 };

    alarm(100);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct file f = file_read(files[i]);
        size_t every = f.len > 4000 ? 5 : 1;

        for (size_t at = 0; at < f.len; at += every)
            for (size_t k = 0; k < sizeof(flips) / (every > 1 ? 3 : 1); k++) {
                f.at[at] ^= flips[k];
                survives(f.at, f.len);
                f.at[at] ^= flips[k];
            }
        free(f.at);
    }
}
