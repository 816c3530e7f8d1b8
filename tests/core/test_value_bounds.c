/* SPDX-License-Identifier: Apache-2.0 */
/* Items in which much refers to one thing: that is looked at once. Were it looked at each time, the
 * processor time would end. */
#include "zipper.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define TIMES 300000

/* Processor time, so that a busy machine fails nothing. */
static void limit(void)
{
    const struct rlimit seconds = { 30, 30 };

    alarm(240);
    cr_assert(eq(int, setrlimit(RLIMIT_CPU, &seconds), 0));
}

TestSuite(value_bounds, .init = limit, .timeout = 240);

static char *item;
static size_t len;
static FILE *out;

static void begin(void)
{
    out = open_memstream(&item, &len);
    cr_assert(ne(ptr, out, NULL));
}

#define PUT(bytes) cr_assert(eq(sz, fwrite(bytes, 1, sizeof(bytes) - 1, out), sizeof(bytes) - 1))

static int end(void)
{
    int rc;

    cr_assert(eq(int, fclose(out), 0));
    rc = open_item(item, len);
    free(item);
    return rc;
}

#define LONG_KEY (1u << 20)

/* A text of LONG_KEY bytes that differ in the last one alone. */
static void put_key(char last)
{
    const uint32_t n = LONG_KEY;

    PUT("X");
    fwrite(&n, 4, 1, out);
    for (uint32_t i = 1; i < n; i++)
        fputc('k', out);
    fputc(last, out);
}

#define PREAMBLE                                                          \
    "\x80\2\x8a\n\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\3." \
    "\x80\2}X\x0d\0\0\0little_endian\x88s."
#define FLOATS "ctorch\nFloatStorage\n"

Test(value_bounds, time_is_linear_in_dicts_that_share_their_attributes)
{
    begin();
    PUT("\x80\2]}(X\1\0\0\0nq\1N"); /* attributes that all have one name: memo number 0 */
    for (int i = 1; i < TIMES; i++)
        PUT("h\1N");
    PUT("uq\0accollections\nOrderedDict\nq\2)Rh\0ba");
    for (int i = 1; i < TIMES; i++)
        PUT("h\2)Rh\0ba");
    PUT(".");
    cr_assert(eq(int, end(), 0), "%s", err.text);
}

Test(value_bounds, time_is_linear_in_tensors_that_share_their_metadata)
{
    begin();
    PUT(PREAMBLE "\x80\2]}(");
    for (int i = 0; i < TIMES; i++)
        PUT("NN");
    PUT("uq\0a"                                   /* metadata, and hooks: memo number 0 */
        "ctorch._utils\n_rebuild_tensor_v2\nq\1(" /* 1 */
        "(X\7\0\0\0storage" FLOATS "X\1\0\0\0000X\3\0\0\0cpuK\1tQq\2" /* the storage: 2 */
        "K\0K\1\x85q\3h\3\x89h\0h\0tRa");
    for (int i = 1; i < TIMES; i++)
        PUT("h\1(h\2K\0h\3h\3\x89h\0h\0tRa");
    PUT(".\x80\2]X\1\0\0\0000a.\1\0\0\0\0\0\0\0aaaa");
    cr_assert(eq(int, end(), 0), "%s", err.text);
}

/* Keys are numbers in torch's own files: one that is long is refused before it is compared. */
Test(value_bounds, keys_of_storages_are_short)
{
    begin();
    PUT(PREAMBLE "\x80\2](X\7\0\0\0storageq\0" FLOATS "q\1");
    put_key('a');
    PUT("q\2X\3\0\0\0cpuq\3K\1tQa");
    for (int i = 1; i < TIMES; i++)
        PUT("(h\0h\1h\2h\3K\1tQa");
    PUT(".\x80\2](");
    put_key('a');
    put_key('b');
    PUT("e.");
    refused(end(), HEARTH_ECORRUPT, "key");
}
