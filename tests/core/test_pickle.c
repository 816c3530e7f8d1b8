/* SPDX-License-Identifier: Apache-2.0 */
/* The pickle machine beyond tensor headers: lists, dicts, tuple states, calls, and its bounds. */
#include "check.h"

#include "core/torch/pickle.h"
#include "core/torch/pickle_write.h"

#include <stdlib.h>

enum { POINT = 1, PATH, CALL, COLOUR };

static const struct hth_pickle_global globals[] = {
    { .module = "m",
            .name = "Point",
            .id = POINT,
            .may = HTH_PICKLE_AS_NEW | HTH_PICKLE_STATE_DICT | HTH_PICKLE_STATE_TUPLE },
    { .module = "m", .name = "Path", .id = PATH, .args = "s*" },
    { .module = "m", .name = "call", .id = CALL, .args = "gi" },
    { .module = "m", .name = "Colour", .id = COLOUR, .may = HTH_PICKLE_AS_VALUE, .args = "i" },
};

static struct hth_pickle p;
static uint64_t memory[8192];
static struct hearth_error err;

static int load(const char *bytes, size_t len)
{
    return hth_pickle_load(&p, globals, 4, bytes, len, memory, sizeof(memory), &err);
}

#define LOAD(text) load("\x80\x04" text, sizeof(text) + 1)

static void refused(int rc, const char *words)
{
    cr_assert(eq(int, rc, HEARTH_ECORRUPT));
    cr_assert(ne(ptr, strstr(err.text, words), NULL), "%s", err.text);
}

static const struct hth_pickle_value *child(const struct hth_pickle_value *v, uint32_t i)
{
    uint32_t c = v->head;

    for (; i; i--)
        c = p.cell[c].next;
    return hth_pickle_child(&p, c);
}

#define M(name)   "\x8c\x01m\x8c" name "\x93"
#define NEW_POINT M("\x05Point") ")\x81"

Test(pickle, lists_and_dicts_grow_in_parts)
{
    const struct hth_pickle_value *root;

    must(LOAD("](K\x01K\x02"
              "eK\x03"
              "a."));
    root = hth_pickle_root(&p);
    cr_assert(eq(int, root->kind, HTH_PICKLE_LIST));
    cr_assert(eq(u32, root->n, 3));
    cr_assert(eq(i64, child(root, 2)->u.integer, 3));
    must(LOAD("}(\x8c\x01"
              "aK\x01\x8c\x01"
              "bK\x02u\x8c\x01"
              "cNs."));
    root = hth_pickle_root(&p);
    cr_assert(eq(u32, root->n, 6));
    cr_assert(eq(int, hth_pickle_is(&p, child(root, 4), "c"), 1));
    cr_assert(eq(int, child(root, 5)->kind, HTH_PICKLE_NONE));
}

Test(pickle, objects_take_a_dict_or_a_tuple)
{
    const struct hth_pickle_value *root;

    must(LOAD(NEW_POINT "}(\x8c\x01xK\x05\x8c\x01xK\x06ub."));
    root = hth_pickle_root(&p);
    cr_assert(eq(int, hth_pickle_id(&p, root), POINT));
    cr_assert(eq(i64, hth_pickle_attr(&p, root, "x")->u.integer, 6)); /* the last one holds */
    cr_assert(eq(ptr, (void *)(uintptr_t)hth_pickle_attr(&p, root, "y"), NULL));
    must(LOAD(NEW_POINT "K\x01K\x02\x86"
                        "b."));
    root = hth_pickle_root(&p);
    cr_assert(eq(u32, hth_pickle_at(&p, root->u.state)->n, 2));
    refused(LOAD(NEW_POINT "]b."), "state");
    refused(LOAD(NEW_POINT "}\x8c\x03__xK\x05sb."), "__");
}

Test(pickle, calls_take_what_their_row_says)
{
    must(LOAD(M("\x04Path") "\x8c\x01/\x8c\x01"
                            "a\x86R."));
    cr_assert(eq(int, hth_pickle_id(&p, hth_pickle_root(&p)), PATH));
    must(LOAD(M("\x04Path") ")R."));
    refused(LOAD(M("\x04Path") "\x8c\x01/K\x01\x86R."), "arguments");
    must(LOAD(M("\x04"
                "call") M("\x06"
                          "Colour") "K\x01\x86R."));
    refused(LOAD(M("\x04"
                   "call") M("\x06"
                             "Colour") "\x85R."),
            "arguments");
    refused(LOAD(M("\x04"
                   "call") M("\x05Point") "K\x01\x86R."),
            "not a value");
    refused(LOAD(M("\x05Point") ")R."), "called");
    refused(LOAD("]" M("\x04"
                       "call") "a."),
            "not a value");
}

Test(pickle, a_container_in_use_does_not_change)
{
    refused(LOAD("]\x94h\x00"
                 "a."),
            "in itself");
    refused(LOAD("]\x94h\x00\x85"
                 "a."),
            "in use"); /* l = []; l.append((l,)) */
    refused(LOAD("}\x94\x8c\x01"
                 "ah\x00\x85s."),
            "in use");
    refused(LOAD(NEW_POINT "\x94h\x00\x85"
                           "b."),
            "BUILD");
}

Test(pickle, shared_values_are_one_value)
{
    const struct hth_pickle_value *root;

    must(LOAD("](]\x94h\x00"
              "e."));
    root = hth_pickle_root(&p);
    cr_assert(eq(ptr, (void *)(uintptr_t)child(root, 0), (void *)(uintptr_t)child(root, 1)));
}

Test(pickle, memory_handed_in_is_the_limit)
{
    char bytes[2000];
    size_t n = 0;

    bytes[n++] = '\x80';
    bytes[n++] = '\x04';
    bytes[n++] = '(';
    while (n < 1000)
        bytes[n++] = 'N';
    bytes[n++] = 't';
    bytes[n++] = '.';
    must(hth_pickle_load(&p, globals, 4, bytes, n, memory, hth_pickle_memory(1000), &err), err);
    cr_assert(eq(u32, hth_pickle_root(&p)->n, 997));
    refused(hth_pickle_load(&p, globals, 4, bytes, n, memory, hth_pickle_memory(500), &err),
            "more than 501 values");
    refused(hth_pickle_load(&p, globals, 4, bytes, n, memory, 0, &err), "more than 0 values");
}

/* `levels` tuples, one in the other. */
static int nested(int levels)
{
    char bytes[300] = "\x80\x04";
    size_t n = 2;

    bytes[n++] = ')';
    for (int i = 1; i < levels; i++)
        bytes[n++] = '\x85';
    bytes[n++] = '.';
    return load(bytes, n);
}

Test(pickle, nesting_has_a_limit)
{
    must(nested(HTH_PICKLE_DEPTH + 1));
    refused(nested(HTH_PICKLE_DEPTH + 2), "nested deeper");
}

Test(pickle, integers_fit_in_64_bits)
{
    must(LOAD("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."));
    cr_assert(eq(i64, hth_pickle_root(&p)->u.integer, INT64_MAX));
    must(LOAD("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."));
    cr_assert(eq(i64, hth_pickle_root(&p)->u.integer, INT64_MIN));
    must(LOAD("\x8a\x0a\xfe\xff\xff\xff\xff\xff\xff\xff\xff\xff."));
    cr_assert(eq(i64, hth_pickle_root(&p)->u.integer, -2));
    must(LOAD("J\xff\xff\xff\xff."));
    cr_assert(eq(i64, hth_pickle_root(&p)->u.integer, -1));
    refused(LOAD("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00."), "64 bits");
    refused(LOAD("\x8a\x09\x02\x00\x00\x00\x00\x00\x00\x00\x01."), "64 bits");
}

Test(pickle, integers_are_written_as_they_are_read)
{
    static const int64_t edges[] = { 0, 255, 256, 65535, 65536, INT32_MAX, INT64_C(1) << 31,
        (INT64_C(1) << 39) - 1, INT64_C(1) << 39, INT64_MAX, -1, INT32_MIN, INT32_MIN - INT64_C(1),
        -(INT64_C(1) << 39), -(INT64_C(1) << 39) - 1, INT64_MIN };
    static const size_t bytes[] = { 2, 2, 3, 3, 5, 5, 7, 7, 8, 10, 5, 5, 7, 7, 8, 10 };

    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
        unsigned char all[2 + HTH_PICKLE_INT_MAX + 1] = { 0x80, 4 };
        size_t n = hth_pickle_int(all + 2, edges[i]);

        all[2 + n] = '.';
        cr_assert(eq(sz, n, bytes[i]), "%lld", (long long)edges[i]);
        must(load((const char *)all, n + 3));
        cr_assert(eq(i64, hth_pickle_root(&p)->u.integer, edges[i]));
    }
}

/* Values may have these, headers may not. */
Test(pickle, opcodes_of_values_are_for_values)
{
    static const char *const all[] = { "\x80\4G00000000.", "\x80\4C\1a.", "\x80\4)Q." };
    const struct hth_pickle_value *root;

    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(all[i]), len;
        uint32_t values;

        refused(load(all[i], n), "not allowed");
        must(hth_pickle_load_values(&p, globals, 4, all[i], n, memory, sizeof(memory), &err), err);
        must(hth_pickle_measure(all[i], n, &len, &values, &err), err);
        cr_assert(eq(sz, len, n));
        cr_assert(le(u32, p.values - 1, values));
    }
    root = hth_pickle_root(&p);
    cr_assert(eq(int, root->kind, HTH_PICKLE_PERSISTENT));
    cr_assert(eq(int, hth_pickle_at(&p, root->head)->kind, HTH_PICKLE_TUPLE));
    refused(hth_pickle_load_values(&p, globals, 4, "\x80\4K\1Q.", 6, memory, sizeof(memory), &err),
            "no tuple");
}

Test(pickle, what_may_be_missing_in_a_call)
{
    static const struct hth_pickle_global rows[] = {
        { .module = "m", .name = "f", .args = "i?sx" },
        { .module = "m", .name = "d", .may = HTH_PICKLE_AS_DICT, .args = "" },
    };
    static const struct {
        const char *text;
        int fits;
    } calls[] = { { ")", 0 }, { "K\1\x85", 1 }, { "K\1X\1\0\0\0a\x86", 1 }, { "K\1N\x86", 0 },
        { "K\1X\1\0\0\0aN\x87", 1 }, { "(K\1X\1\0\0\0aNNt", 0 } };
    static const size_t lens[] = { 1, 3, 9, 4, 10, 12 };

    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        char bytes[64] = "\x80\2cm\nf\n";
        size_t n = 7;

        memcpy(bytes + n, calls[i].text, lens[i]);
        memcpy(bytes + n + lens[i], "R.", 2);
        cr_assert(eq(int,
                          hth_pickle_load(&p, rows, 2, bytes, n + lens[i] + 2, memory,
                                  sizeof(memory), &err),
                          calls[i].fits ? HEARTH_OK : HEARTH_ECORRUPT),
                "%zu", i);
    }
    must(hth_pickle_load(&p, rows, 2, "\x80\2cm\nd\n)RK\1Ns}b.", 16, memory, sizeof(memory), &err));
    cr_assert(eq(int, hth_pickle_root(&p)->kind, HTH_PICKLE_DICT));
    cr_assert(eq(u32, hth_pickle_root(&p)->n, 2));
}

Test(pickle, texts_are_utf_8)
{
    must(LOAD("\x8c\x09\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80."));
    refused(LOAD("\x8c\x02\xc0\x80."), "UTF-8");         /* overlong */
    refused(LOAD("\x8c\x03\xed\xa0\x80."), "UTF-8");     /* half of a pair */
    refused(LOAD("\x8c\x04\xf4\x90\x80\x80."), "UTF-8"); /* past the last */
    refused(LOAD("\x8c\x02\xe2\x82."), "UTF-8");         /* cut off */
    refused(LOAD("\x8c\x01\x80."), "UTF-8");
}
