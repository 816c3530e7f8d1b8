/* SPDX-License-Identifier: Apache-2.0 */
/* Values that are shared, changed or named as no library does it: each rule of the `.metadata`
 * reader. */
#include "check.h"
#include "metadata_make.h"

#include <unistd.h>

static void limit(void)
{
    alarm(60);
}

TestSuite(metadata_rules, .init = limit, .timeout = 60);

/* A Metadata of an empty state with the opcodes `more` among its attributes. */
static int read_with(const char *more, size_t len)
{
    struct hearth_metadata *md = NULL;
    struct text t = { 0 };
    int rc;

    head(&t);
    PUT(&t, "}");
    classes(&t);
    put_properties(&t);
    put(&t, more, len);
    rc = finish(&t, &md);
    hearth_metadata_close(md);
    free(t.at);
    return rc;
}

static void refused(const char *more, size_t len, const char *words)
{
    must_fail(read_with(more, len), HEARTH_ECORRUPT);
    cr_assert(ne(ptr, strstr(err.text, words), NULL), "%s, not: %s", err.text, words);
}

#define REFUSED(more, words) refused(more, sizeof(more) - 1, words)

static void accepted(const char *more, size_t len)
{
    cr_assert(eq(int, read_with(more, len), 0), "%s", err.text);
}

#define ACCEPTED(more) accepted(more, sizeof(more) - 1)

Test(metadata_rules, attributes_are_texts_come_once_and_are_not_of_python)
{
    ACCEPTED("\x8c\x01qN");
    REFUSED("\x8c\x09__class__N", "begins with __");
    REFUSED("K\x01N", "is not a text");
    REFUSED("\x8c\x07versionN\x8c\x07versionN", "twice");
    REFUSED("\x8c\x07versionK\x01", "version");
    REFUSED("\x8c\x07version", "a key without a value");
}

Test(metadata_rules, what_stands_somewhere_does_not_change)
{
    ACCEPTED("\x8c\x01q]\x94\x8c\x01rh\x05");
    REFUSED("\x8c\x01q]\x94h\x05"
            "a",
            "a list in itself");
    REFUSED("\x8c\x01q]\x94h\x05\x85"
            "a",
            "may change");
    REFUSED("\x8c\x01q}\x94\x8c\x01kh\x05s", "a dict in itself");
    REFUSED("\x8c\x01q]\x94\x8c\x01r]h\x05"
            "ah\x05N"
            "aNN",
            "may change");
    REFUSED("\x8c\x01qh\x01)\x81", "without its state");
    REFUSED("\x8c\x01qh\x04}b", "BUILD of what is no new object");
}

Test(metadata_rules, a_class_or_function_is_no_value)
{
    REFUSED("\x8c\x01qh\x01", "stands as a value");
    REFUSED("\x8c\x01qh\x00h\x01\x86", "stands as a value");
    REFUSED("\x8c\x01q]h\x00"
            "a",
            "stands as a value");
    REFUSED("\x8c\x01qh\x00K\x01\x81", "no class");
    REFUSED("\x8c\x01qh\x01)R", "cannot be called");
    REFUSED("\x8c\x01qh\x01K\x01\x85\x81", "with arguments");
}

#define THING "\x8c\x01m\x8c\x05Thing\x93"

/* A class that is not known, made and filled in every way that pickles know. */
Test(metadata_rules, a_class_that_is_not_known_is_skipped_however_it_is_made)
{
    ACCEPTED("\x8c\x01q" THING);
    ACCEPTED("\x8c\x01q" THING ")\x81}\x8c\x01xK\x01sb");
    ACCEPTED("\x8c\x01q" THING ")\x81}K\x01K\x02s}\x8c\x01sK\x01s\x86"
             "b");
    ACCEPTED("\x8c\x01q" THING "]K\x01"
             "a}\x86R");
    ACCEPTED("\x8c\x01q" THING ")R");
    ACCEPTED("\x8c\x01q" THING ")}\x8c\x01yNs\x92");
    ACCEPTED("\x8c\x01q" THING ")\x81(K\x01]" THING "e");
    ACCEPTED("\x8c\x01q" THING ")\x81K\x01"
             "a");
    ACCEPTED("\x8c\x01q" THING ")\x81(K\x01" THING ")\x81u");
    ACCEPTED("\x8c\x01q" THING ")\x81K\x01]s");
    ACCEPTED("\x8c\x01q\x8f(K\x01\x8c\x01z\x90");
    ACCEPTED("\x8c\x01q(K\x01\x8c\x01z\x91");
    ACCEPTED("\x8c\x01q"
             "C\x02xy");
    ACCEPTED("\x8c\x01q"
             "B\x02\0\0\0xy");
    ACCEPTED("\x8c\x01q\x96\x02\0\0\0\0\0\0\0xy");
    REFUSED("\x8c\x01q" THING "}b", "BUILD of what is no new object");
    REFUSED("\x8c\x01q" THING "K\x01"
            "a",
            "no list below");
    REFUSED("\x8c\x01q" THING ")\x81)R", "cannot be called");
    REFUSED("\x8c\x01q(K\x01\x90", "no set below");
    REFUSED("\x8c\x01q\x8f(]\x90", "a key that is");
    REFUSED("\x8c\x01qh\x01)}\x92", "named arguments");
    REFUSED("\x8c\x01q\x96\xff\xff\xff\xff\0\0\0\0xy", "cut off");
}

/* -1 and -2, and numbers that differ by 2^61 - 1, have one hash; tuples of them as many as one
 * likes. */
Test(metadata_rules, keys_of_one_hash_are_refused)
{
    ACCEPTED("\x8c\x01q}J\xff\xff\xff\xffNs");
    ACCEPTED("\x8c\x01q}K\x01K\x02\x86Ns");
    REFUSED("\x8c\x01q}J\xff\xff\xff\xffK\x02\x86Ns", "out of range");
    REFUSED("\x8c\x01q}\x8c\x01zJ\xff\xff\xff\xff\x86Ns", "out of range");
    REFUSED("\x8c\x01q}K\x01\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x1f\x86Ns", "out of range");
    REFUSED("\x8c\x01q}G\0\0\0\0\0\0\0\0\x85Ns", "out of range");
    REFUSED("\x8c\x01q}h\x02)\x81}(\x8c\x03"
            "fqn\x8c\x01n\x8c\x06offseth\x00\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x1f\x85\x85RubNs",
            "out of range");
}

Test(metadata_rules, getattr_takes_the_members_of_one_enum)
{
#define GETATTR         \
    "\x8c\x01q\x8c\x08" \
    "builtins\x8c\x07getattr\x93"
#define CLASS "\x8c\x25torch.distributed.checkpoint.metadata\x8c"

    ACCEPTED(GETATTR CLASS "\x14_MEM_FORMAT_ENCODING\x93\x8c\x13TORCH_CHANNELS_LAST\x86R");
    REFUSED(GETATTR CLASS "\x14_MEM_FORMAT_ENCODING\x93\x8c\x08__init__\x86R", "these arguments");
    REFUSED(GETATTR CLASS "\x0bStorageMeta\x93\x8c\x13TORCH_CHANNELS_LAST\x86R", "these arguments");
    REFUSED(GETATTR "\x8c\x01x\x8c\x13TORCH_CHANNELS_LAST\x86R", "these arguments");
}

Test(metadata_rules, sizes_and_places_are_made_of_integers_where_they_stand)
{
    ACCEPTED("\x8c\x01qh\x00K\x01K\x02\x86\x85R");
    ACCEPTED("\x8c\x01qK\x01\x94K\x02\x86\x94\x8c\x01rh\x00h\x06\x85R");
    REFUSED("\x8c\x01qK\x01\x94\x8c\x01rh\x00h\x05\x85\x85R", "these arguments");
    REFUSED("\x8c\x01qh\x00J\xff\xff\xff\xff\x85\x85R", "these arguments");
    REFUSED("\x8c\x01qh\x00\x88\x85\x85R", "these arguments");
    ACCEPTED("\x8c\x01q\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00");
    REFUSED("\x8c\x01qh\x00\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00\x85\x85R",
            "these arguments");
}

/* The memo keeps a tuple whose elements would else be overwritten by those of the next. */
Test(metadata_rules, a_tuple_in_the_memo_keeps_its_elements)
{
    static const char more[] = "\x8c\x01q\x8c\x01"
                               "a\x8c\x01"
                               "b\x86\x94u(" /* 5 */
                               "\x8c\x0cplanner_data}(\x8c\x01m\x8c\x01"
                               "c\x8c\x01"
                               "d\x86"
                               "\x8c\x01nh\x05u";
    struct hearth_metadata_step step;
    struct hearth_metadata *md;
    struct text t = { 0 };
    static const char want[2][2] = { { 'c', 'd' }, { 'a', 'b' } };

    head(&t);
    PUT(&t, "}(");
    for (int i = 0; i < 2; i++) {
        put_text(&t, i ? "n" : "m");
        put_global(&t, D, "BytesStorageMetadata");
        PUT(&t, ")\x81");
    }
    PUT(&t, "u");
    classes(&t);
    put_properties(&t);
    put(&t, more, sizeof(more) - 1);
    cr_assert(eq(int, finish(&t, &md), 0), "%s", err.text);
    for (size_t e = 0; e < 2; e++)
        for (size_t i = 0; i < 2; i++) {
            must(hearth_metadata_path_at(md, e, i, &step, NULL));
            cr_assert(eq(chr, step.key.data[0], want[e][i]));
        }
    hearth_metadata_close(md);
    free(t.at);
}

/* Two tensors of `shapes`, one dimension each, that share a list of one chunk of 7. */
static int share(unsigned first, unsigned second)
{
    unsigned shape[2] = { first, second };
    struct hearth_metadata *md;
    struct text t = { 0 };
    int rc;

    head(&t);
    PUT(&t, "}");
    classes(&t);
    put_properties(&t);
    put_text(&t, "tensors");
    PUT(&t, "}");
    for (int i = 0; i < 2; i++) {
        put_text(&t, i ? "n" : "m");
        put_global(&t, D, "TensorStorageMetadata");
        PUT(&t, ")\x81}(");
        put_text(&t, "properties");
        PUT(&t, "h\x04");
        put_text(&t, "size");
        put_size(&t, 1, shape[i]);
        put_text(&t, "chunks");
        if (i == 0) {
            PUT(&t, "]\x94h\x01)\x81}(");
            put_text(&t, "offsets");
            put_size(&t, 1, 0);
            put_text(&t, "sizes");
            put_size(&t, 1, 7);
            PUT(&t, "ub"
                    "a");
        } else {
            PUT(&t, "h\x05");
        }
        PUT(&t, "ubs");
    }
    rc = finish(&t, &md);
    if (!rc)
        hearth_metadata_close(md);
    free(t.at);
    return rc;
}

Test(metadata_rules, tensors_share_chunks_only_if_they_have_one_shape)
{
    must(share(7, 7));
    must(share(9, 9));
    must_fail(share(9, 7), HEARTH_ECORRUPT);
    must_fail(share(7, 6), HEARTH_ECORRUPT);
    must_fail(share(6, 6), HEARTH_ECORRUPT);
}

Test(metadata_rules, opcodes_are_whole_within_frames_and_of_protocol_4_or_5)
{
    static const char good[] = "\x80\x04\x95\x02\0\0\0\0\0\0\0N.", text[] = "byte 0";
    struct hearth_metadata *md;

    must_fail(hearth_metadata_open(good, sizeof(good) - 1, &md, &err), HEARTH_ECORRUPT);
    cr_assert(ne(ptr, strstr(err.text, "no Metadata"), NULL), "%s", err.text);
    must_fail(hearth_metadata_open("\x80\x03N.", 4, &md, &err), HEARTH_ECORRUPT);
    cr_assert(ne(ptr, strstr(err.text, text), NULL), "%s", err.text);
    REFUSED("\x8c\x01q\x95\x09\0\0\0\0\0\0\0\x95\0\0\0\0\0\0\0\0N", "a frame in a frame");
    REFUSED("\x8c\x01q\x95\x01\0\0\0\0\0\0\0K\x01", "cut off");
    REFUSED("\x8c\x01q\x95\xff\xff\xff\xff\xff\xff\xff\xffN", "past the end");
    REFUSED("\x8c\x01qh\xff", "memo number 255 is not set");
    REFUSED("\x8c\x01q0", "opcode 30 is not allowed");
    REFUSED("\x8c\x01q\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
            "a",
            "cut off");
    ACCEPTED("\x8c\x01q\x8d\x01\0\0\0\0\0\0\0"
             "a");
    ACCEPTED("\x8c\x01q\x95\x01\0\0\0\0\0\0\0N");
}
