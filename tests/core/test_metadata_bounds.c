/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of `.metadata`: memory and time against the length of what is read. */
#include "check.h"
#include "metadata_make.h"

#include <sys/resource.h>
#include <unistd.h>

/* Processor time, so that a busy machine fails nothing. */
static void limit(void)
{
    const struct rlimit seconds = { 30, 30 };

    alarm(240);
    cr_assert(eq(int, setrlimit(RLIMIT_CPU, &seconds), 0));
}

TestSuite(metadata_bounds, .init = limit, .timeout = 240);

/* `chunks` places of one name, as pickle writes them but for the names of the attributes. */
static void many_places(struct text *t, uint32_t chunks)
{
    head(t);
    PUT(t, "}");
    classes(t);
    put_text(t, "storage_data");
    PUT(t, "}");
    for (uint32_t i = 0; i < chunks; i++) {
        if (i % 1000 == 0)
            PUT(t, "(");
        PUT(t, "h\x02)\x81\x94}\x94(\x8c\x03"
               "fqn\x8c\x04name\x94\x8c\x06offset\x94h\x00");
        put_int(t, i);
        PUT(t, "\x85\x94\x85\x94R\x94ubh\x03)\x81\x94}\x94(\x8c\x0drelative_path\x8c\x03"
               "a.b\x94"
               "\x8c\x06offset\x94K\x00\x8c\x06length\x94K\x01ub");
        if (i % 1000 == 999 || i == chunks - 1)
            PUT(t, "u");
    }
}

/* storage_data: so many places of the name that is memo number 4. */
static void places_of_memo_4(struct text *t, uint32_t count)
{
    put_text(t, "storage_data");
    PUT(t, "}");
    for (uint32_t i = 0; i < count; i++) {
        PUT(t, "h\x02)\x81}(\x8c\x03"
               "fqnh\x04\x8c\x06offseth\x00");
        put_int(t, i);
        PUT(t, "\x85\x85Rubh\x03)\x81}(\x8c\x0drelative_path\x8c\x03"
               "a.b\x8c\x06offsetK\x00"
               "\x8c\x06lengthK\x01ubs");
    }
}

static size_t memory_now(const char *what)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    size_t kib = 0;

    cr_assert(ne(ptr, f, NULL));
    while (fgets(line, sizeof(line), f))
        if (!strncmp(line, what, strlen(what)))
            kib = (size_t)strtoull(line + strlen(what), NULL, 10);
    fclose(f);
    return kib << 10;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* its own memory would be counted */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Peak memory beyond the input, in inputs. */
static double appetite(const struct text *t)
{
    struct hearth_metadata *md = NULL;
    FILE *reset = SANITIZED ? NULL : fopen("/proc/self/clear_refs", "w");
    size_t before;

    if (!reset || fputs("5", reset) < 0 || fclose(reset)) /* peak := now */
        return 0;
    before = memory_now("VmRSS:");
    (void)hearth_metadata_open(t->at, t->len, &md, &err);
    hearth_metadata_close(md);
    return ((double)memory_now("VmHWM:") - (double)before) / (double)t->len;
}

Test(metadata_bounds, memory_is_less_than_the_input_for_what_writers_write)
{
    struct text t = { 0 };
    struct hearth_metadata *md;
    struct hearth_metadata_head info = { .struct_size = sizeof(info) };

    many_places(&t, 300000);
    cr_assert(eq(int, finish(&t, &md), 0), "%s", err.text);
    must(hearth_metadata_info(md, &info, NULL));
    cr_assert(eq(sz, info.stored, 300000));
    hearth_metadata_close(md);
    cr_assert(lt(dbl, appetite(&t), 1.0), "%.2f", appetite(&t));
    free(t.at);
}

Test(metadata_bounds, memory_of_hostile_input_is_a_small_multiple_of_it)
{
    struct text t[4] = { 0 };

    head(&t[0]); /* dicts that the memo keeps */
    PUT(&t[0], "]");
    for (uint32_t i = 0; i < 300000; i++) {
        PUT(&t[0], "}\x94j");
        put(&t[0], (char *)&i, 4);
        PUT(&t[0], "\x86"
                   "a");
    }
    head(&t[1]); /* tuples that the memo keeps */
    PUT(&t[1], "](");
    for (uint32_t i = 0; i < 60000; i++)
        PUT(&t[1], "NNN\x87\x94h\x00");
    PUT(&t[1], "e");
    head(&t[2]); /* entries of one object */
    put_global(&t[2], D, "BytesStorageMetadata");
    PUT(&t[2], ")\x81\x94}");
    for (uint32_t i = 0; i < 400000; i++)
        PUT(&t[2], "\x8c\x01nh\x00s");
    begin(&t[3]); /* more on the stack than it holds */
    PUT(&t[3], "\x80\x04");
    for (uint32_t i = 0; i < 3000000; i++)
        PUT(&t[3], "}");
    for (size_t i = 0; i < 4; i++) {
        struct hearth_metadata *md = NULL;

        cr_assert(eq(int, finish(&t[i], &md), HEARTH_ECORRUPT), "%zu", i);
        cr_assert(lt(dbl, appetite(&t[i]), 24.0), "%zu: %.2f", i, appetite(&t[i]));
        free(t[i].at);
    }
}

/* A name of 1 MiB, always the same. */
static void put_mib(struct text *t)
{
    static char name[1 << 20];
    const uint32_t len = sizeof(name);

    memset(name, 'n', len);
    PUT(t, "X");
    put(t, (const char *)&len, 4);
    put(t, name, len);
}

static void must_be_read(struct text *t)
{
    struct hearth_metadata *md;

    cr_assert(eq(int, finish(t, &md), 0), "%s", err.text);
    hearth_metadata_close(md);
    free(t->at);
}

/* A shared value is read once. Were it read each time, the processor time would end. */
Test(metadata_bounds, time_is_linear_in_what_is_shared)
{
    struct text t = { 0 };

    head(&t); /* 200000 places of a name of 1 MiB, and a path of planner_data with it */
    PUT(&t, "}");
    classes(&t);
    put_text(&t, "w");
    put_mib(&t);
    PUT(&t, "\x94");
    put_text(&t, "planner_data");
    PUT(&t, "}h\x04(");
    for (uint32_t i = 0; i < 30000; i++)
        PUT(&t, "h\x04");
    PUT(&t, "t\x94s");
    put_text(&t, "v"); /* as many dicts with that path */
    PUT(&t, "]");
    for (uint32_t i = 0; i < 50000; i++)
        PUT(&t, "}h\x04h\x05sa");
    places_of_memo_4(&t, 200000);
    must_be_read(&t);
}

/* Two tuples of 60,000 elements, memo numbers 0 and 1; the second one ends with an object of an
 * unknown class. Each is fetched into a list a million times, and the second one is a path
 * 300,000 times. */
Test(metadata_bounds, time_is_linear_in_tuples_that_are_shared)
{
    struct text t = { 0 };

    head(&t);
    PUT(&t, "}");
    for (int unknown = 0; unknown < 2; unknown++) {
        put_text(&t, "more");
        PUT(&t, "(");
        for (uint32_t i = 0; i < 60000; i++)
            PUT(&t, "\x8c\x01n");
        if (unknown) {
            put_global(&t, "later", "Class");
            PUT(&t, ")R");
        }
        PUT(&t, "t\x94");
        put_text(&t, "lists");
        PUT(&t, "]");
        for (uint32_t i = 0; i < 1000000; i++)
            put(&t, (char[]){ 'h', (char)unknown, 'a' }, 3);
    }
    put_text(&t, "planner_data");
    PUT(&t, "}");
    for (uint32_t i = 0; i < 300000; i++)
        PUT(&t, "\x8c\x01kh\x01s");
    must_be_read(&t);
}

/* 300,000 paths with an unknown class in them, all of one name of 1 MiB, which is an entry's
 * name too. */
Test(metadata_bounds, time_is_linear_in_names_of_what_is_not_known)
{
    struct text t = { 0 };

    head(&t);
    PUT(&t, "}");
    put_mib(&t);
    put_global(&t, D, "BytesStorageMetadata");
    PUT(&t, ")\x81s");
    put_text(&t, "later");
    put_mib(&t);
    PUT(&t, "\x94");
    put_text(&t, "tuple");
    put_text(&t, "n");
    put_global(&t, "later", "Class");
    PUT(&t, ")R\x86\x94");
    put_text(&t, "planner_data");
    PUT(&t, "}");
    for (uint32_t i = 0; i < 300000; i++)
        PUT(&t, "h\x00h\x01s");
    must_be_read(&t);
}

/* A chunk of no dimensions is memo number 5; a list of them is in as many tensors. */
Test(metadata_bounds, time_is_linear_in_tensors_that_share_their_chunks)
{
    struct text t = { 0 };
    char name[16];

    head(&t);
    PUT(&t, "}");
    classes(&t);
    put_properties(&t);
    put_text(&t, "chunk");
    PUT(&t, "h\x01)\x81}(");
    put_text(&t, "offsets");
    put_size(&t, 1, 0);
    put_text(&t, "sizes");
    put_size(&t, 1, 7);
    PUT(&t, "ub\x94");
    put_text(&t, "chunks");
    PUT(&t, "](");
    for (uint32_t i = 0; i < 60000; i++)
        PUT(&t, "h\x05");
    PUT(&t, "e\x94");
    for (uint32_t k = 0; k < 3; k++) {
        put_text(&t, "more");
        PUT(&t, "h\x06");
    }
    put_text(&t, "tensors");
    PUT(&t, "}");
    for (uint32_t i = 0; i < 200000; i++) {
        snprintf(name, sizeof(name), "%u", i);
        put_text(&t, name);
        put_global(&t, D, "TensorStorageMetadata");
        PUT(&t, ")\x81}(");
        put_text(&t, "properties");
        PUT(&t, "h\x04");
        put_text(&t, "size");
        put_size(&t, 1, 7);
        put_text(&t, "chunks");
        PUT(&t, "h\x06ubs");
    }
    must_be_read(&t);
}

/* That there is a tensor of more than 2^63 bytes has its places summed up: by their names, each of
 * which is 1 MiB here. */
Test(metadata_bounds, time_is_linear_in_places_beside_a_huge_tensor)
{
    struct hearth_metadata *md = NULL;
    struct text t = { 0 };

    head(&t);
    PUT(&t, "}");
    put_text(&t, "huge");
    put_global(&t, D, "TensorStorageMetadata");
    PUT(&t, ")\x81}(");
    put_text(&t, "properties");
    put_global(&t, D, "TensorProperties");
    PUT(&t, ")\x81(");
    put_global(&t, "torch", "float32");
    put_global(&t, "torch.serialization", "_get_layout");
    put_text(&t, "torch.strided");
    PUT(&t, "\x85R\x89");
    put_global(&t, D, "_MEM_FORMAT_ENCODING");
    PUT(&t, "K\x00\x85R\x89tb");
    put_text(&t, "size");
    put_global(&t, "torch", "Size");
    PUT(&t, "\x8a\x08\0\0\0\0\0\0\0\x40\x8a\x08\0\0\0\0\0\0\0\x40\x86\x85R");
    put_text(&t, "chunks");
    PUT(&t, "]ubs");
    classes(&t);
    put_text(&t, "w");
    put_mib(&t);
    PUT(&t, "\x94");
    places_of_memo_4(&t, 400000);
    cr_assert(eq(int, finish(&t, &md), HEARTH_ECORRUPT));
    cr_assert(ne(ptr, strstr(err.text, "more than 2^63 bytes"), NULL), "%s", err.text);
    free(t.at);
}

/* Reads a file with the first `len` bytes of `key` in front of a value in a dict that is not looked
 * up. */
static int with_key(const char *key, size_t len)
{
    struct hearth_metadata *md = NULL;
    struct text t = { 0 };
    int rc;

    head(&t);
    PUT(&t, "}");
    put_text(&t, "storage_data");
    PUT(&t, "}");
    put_text(&t, "later");
    PUT(&t, "}");
    put(&t, key, len);
    PUT(&t, "K\x01s");
    rc = finish(&t, &md);
    hearth_metadata_close(md);
    free(t.at);
    return rc;
}

#define WITH_KEY(key) with_key(key, sizeof(key) - 1)

/* A program that unpickles the file hashes its keys: thirty tuples of the tuple before, twice each,
 * are 2^30. */
Test(metadata_bounds, a_key_is_hashed_in_no_time)
{
    enum { WIDE = 60000 };
    char shared[5 + 30 * 9 + 2] = "K\x63)\x94s"; /* values 0 to 30 in the memo */
    char *wide = malloc(WIDE + 2);
    size_t len = 5;

    for (char i = 0; i < 30; i++, len += 9)
        memcpy(shared + len, (char[]){ 'K', i, 'h', i, 'h', i, (char)0x86, (char)0x94, 's' }, 9);
    memcpy(shared + len, (char[]){ 'h', 30 }, 2);
    cr_expect(eq(int, with_key(shared, len + 2), HEARTH_ECORRUPT));
    cr_expect(ne(ptr, strstr(err.text, "a key that is"), NULL), "%s", err.text);
    wide[0] = '(';
    memset(wide + 1, 'N', WIDE);
    wide[WIDE + 1] = 't';
    cr_expect(eq(int, with_key(wide, WIDE + 2), HEARTH_ECORRUPT));
    cr_expect(ne(ptr, strstr(err.text, "a key that is"), NULL), "%s", err.text);
    cr_expect(eq(int, WITH_KEY("]"), HEARTH_ECORRUPT));
    cr_expect(eq(int, WITH_KEY("\x8c\x01xK\x05\x86"), HEARTH_OK), "%s", err.text); /* ("x", 5) */
    cr_expect(eq(int, WITH_KEY("K\x05"), HEARTH_OK), "%s", err.text);
    free(wide);
}
