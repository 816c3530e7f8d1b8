/* SPDX-License-Identifier: Apache-2.0 */
/* The writer of `.metadata`: read back by our own reader, and by Python's pickle. */
#include "check.h"

#include <hearth/metadata.h>
#include <hearth/read.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct hearth_error err;

static struct hearth_metadata_writer *begun(void)
{
    struct hearth_metadata_writer *w = NULL;

    must(hearth_metadata_write("/ckpt/step-5_ckpt", "save-1", &w, NULL));
    return w;
}

/* A piece of a tensor of 2 dimensions; global NULL: all of it. */
static int piece(struct hearth_metadata_writer *w, const char *name, enum hearth_dtype dtype,
        const int64_t *shape, const int64_t *global, const int64_t *offset, const char *path,
        uint64_t at)
{
    struct hearth_piece p = { .struct_size = sizeof(p),
        .key = name,
        .key_len = strlen(name),
        .dtype = dtype,
        .ndim = 2,
        .shape = shape,
        .global_shape = global,
        .global_offset = offset };

    return hearth_metadata_add_piece(w, &p, path, at, 100, &err);
}

#define D(...) ((const int64_t[]){ __VA_ARGS__ })

static char long_name[301];

/* Names in several orders, with pieces between those of others. */
static void sample(struct hearth_metadata_writer *w)
{
    static const struct hearth_metadata_step steps[] = { { .key = { "opt", 3 } }, { .index = 3 },
        { .key = { "lr", 2 } } };
    struct hearth_piece scalar = {
        .struct_size = sizeof(scalar), .key = "step", .key_len = 4, .dtype = HEARTH_INT64
    };
    struct hearth_piece deep = { .struct_size = sizeof(deep),
        .key = "h\xc3\xa4rth",
        .key_len = 6,
        .dtype = HEARTH_BFLOAT16,
        .ndim = 5,
        .shape = D(1, 300, 70000, 2147483648, 0) };

    memset(long_name, 'n', sizeof(long_name) - 1);
    must(piece(w, "w", HEARTH_FLOAT32, D(2, 3), D(4, 3), D(2, 0), "__1_0.distcp", 5000000000));
    must(hearth_metadata_add_bytes(w, "opt.3.lr", 8, "__0_0.distcp", 4096, 17, NULL));
    must(hearth_metadata_add_path(w, "opt.3.lr", 8, steps, 3, NULL));
    must(piece(w, long_name, HEARTH_UINT8, D(0, 3), D(4, 3), D(4, 0), "__0_0.distcp", 9));
    must(hearth_metadata_add_piece(w, &scalar, "__0_0.distcp", 0, 8, NULL));
    must(hearth_metadata_add_piece(w, &deep, "sub/__0_0.distcp", INT64_MAX - 70000, 70000, NULL));
    must(piece(w, "w", HEARTH_FLOAT32, D(2, 3), D(4, 3), D(0, 0), "__0_0.distcp", 300));
    must(piece(w, long_name, HEARTH_UINT8, D(4, 3), D(4, 3), NULL, "__0_0.distcp", 9));
    must(piece(w, long_name, HEARTH_UINT8, D(0, 3), D(4, 3), D(4, 0), "__1_0.distcp", 9));
}

/* Frames follow each other to the end, and end soon after 64 KiB, as Python's pickler has them:
 * a reader fetches a frame at a time. */
static void frames_are_whole(const unsigned char *bytes, size_t len)
{
    size_t at = 2;

    while (at < len) {
        uint64_t n;

        cr_assert(le(sz, at + 9, len));
        cr_assert(eq(int, bytes[at], 0x95));
        memcpy(&n, bytes + at + 1, sizeof(n));
        cr_assert(le(u64, n, len - at - 9));
        cr_assert(lt(u64, n, 2u * 65536));
        at += 9 + (size_t)n;
    }
}

static void *finished(struct hearth_metadata_writer *w, size_t *out_len)
{
    void *bytes = NULL;

    must(hearth_metadata_finish(w, &bytes, out_len, &err), err);
    frames_are_whole(bytes, *out_len);
    return bytes;
}

/* --- our reader --- */

static struct hearth_metadata *md;

static struct hearth_metadata_entry found(const char *name)
{
    struct hearth_metadata_entry e = { .struct_size = sizeof(e) };

    must(hearth_metadata_entry_find(md, name, strlen(name), &e, &err), err);
    return e;
}

static void chunk_is(size_t entry, size_t i, const int64_t *offset, const int64_t *shape)
{
    struct hearth_metadata_chunk c = { .struct_size = sizeof(c) };

    must(hearth_metadata_chunk_at(md, entry, i, &c, &err), err);
    for (uint32_t d = 0; d < c.ndim; d++) {
        cr_assert(eq(i64, c.offset[d], offset[d]));
        cr_assert(eq(i64, c.shape[d], shape[d]));
    }
}

static void stored_is(const char *name, const int64_t *offset, uint32_t ndim, const char *path,
        uint64_t at, uint64_t len)
{
    struct hearth_metadata_stored s = { .struct_size = sizeof(s) };

    must(hearth_metadata_stored_find(md, name, strlen(name), offset, ndim, &s, &err), err);
    cr_assert(eq(sz, s.path.len, strlen(path)));
    cr_assert(eq(int, memcmp(s.path.data, path, s.path.len), 0));
    cr_assert(eq(u64, s.at, at));
    cr_assert(eq(u64, s.len, len));
}

Test(metadata_write, what_was_added_comes_back)
{
    struct hearth_metadata_head info = { .struct_size = sizeof(info) };
    struct hearth_metadata_writer *w = begun();
    struct hearth_metadata_entry e;
    struct hearth_metadata_step step;
    size_t len;
    void *bytes;

    sample(w);
    bytes = finished(w, &len);
    must(hearth_metadata_open(bytes, len, &md, &err), err);
    must(hearth_metadata_info(md, &info, NULL));
    cr_assert(eq(sz, info.entries, 5));
    cr_assert(eq(sz, info.chunks, 6));
    cr_assert(eq(sz, info.stored, 7));
    cr_assert(eq(int, memcmp(info.checkpoint_id.data, "/ckpt/step-5_ckpt", 17), 0));
    cr_assert(eq(u32, info.id_kind, HEARTH_ID_TEXT));
    cr_assert(eq(sz, info.save_id.len, 6));
    e = found("w");
    cr_assert(eq(u32, e.dtype, HEARTH_FLOAT32));
    cr_assert(eq(sz, e.chunks, 2));
    cr_assert(eq(i64, e.shape[0], 4));
    chunk_is(e.index, 0, D(2, 0), D(2, 3));
    chunk_is(e.index, 1, D(0, 0), D(2, 3));
    stored_is("w", D(2, 0), 2, "__1_0.distcp", 5000000000, 100);
    stored_is("w", D(0, 0), 2, "__0_0.distcp", 300, 100);
    stored_is("step", D(0), 0, "__0_0.distcp", 0, 8);
    stored_is("opt.3.lr", NULL, 0, "__0_0.distcp", 4096, 17);
    stored_is("h\xc3\xa4rth", D(0, 0, 0, 0, 0), 5, "sub/__0_0.distcp", INT64_MAX - 70000, 70000);
    e = found(long_name);
    cr_assert(eq(sz, e.chunks, 2)); /* the empty box came twice */
    e = found("opt.3.lr");
    cr_assert(eq(u32, e.kind, HEARTH_METADATA_BYTES));
    cr_assert(eq(sz, e.path, 3));
    must(hearth_metadata_path_at(md, e.index, 1, &step, NULL));
    cr_assert(eq(ptr, (void *)(uintptr_t)step.key.data, NULL));
    cr_assert(eq(i64, step.index, 3));
    e = found("step");
    cr_assert(eq(sz, e.path, 1));
    hearth_metadata_close(md);
    hearth_free(bytes);
}

Test(metadata_write, nothing_added_is_a_metadata_too)
{
    struct hearth_metadata_head info = { .struct_size = sizeof(info) };
    struct hearth_metadata_writer *w = NULL;
    size_t len;
    void *bytes;

    must(hearth_metadata_write(NULL, NULL, &w, NULL));
    bytes = finished(w, &len);
    must(hearth_metadata_open(bytes, len, &md, &err), err);
    must(hearth_metadata_info(md, &info, NULL));
    cr_assert(eq(sz, info.entries, 0));
    cr_assert(eq(u32, info.id_kind, HEARTH_ID_NONE));
    cr_assert(eq(u32, info.has_stored, 1));
    hearth_metadata_close(md);
    hearth_free(bytes);
}

/* As a 70B model on 64 ranks has them: every rank a row of every tensor, rank by rank. */
Test(metadata_write, pieces_of_many_ranks_stay_compact, .timeout = 120)
{
    enum { TENSORS = 700, RANKS = 64 };
    struct hearth_metadata_writer *w = begun();
    struct hearth_metadata_head info = { .struct_size = sizeof(info) };
    char name[64], path[32];
    size_t len;
    void *bytes;

    alarm(120);
    for (int r = 0; r < RANKS; r++)
        for (int t = 0; t < TENSORS; t++) {
            snprintf(name, sizeof(name), "model.layers.%d.self_attention.weight", t);
            snprintf(path, sizeof(path), "__%d_0.distcp", r);
            must(piece(w, name, HEARTH_FLOAT32, D(128, 8192), D(8192, 8192), D(r * 128, 0), path,
                    (uint64_t)t * 4194400));
        }
    bytes = finished(w, &len);
    cr_assert(lt(sz, len, (size_t)TENSORS * RANKS * 120));
    must(hearth_metadata_open(bytes, len, &md, &err), err);
    must(hearth_metadata_info(md, &info, NULL));
    cr_assert(eq(sz, info.entries, TENSORS));
    cr_assert(eq(sz, info.stored, TENSORS * RANKS));
    stored_is("model.layers.699.self_attention.weight", D(63 * 128, 0), 2, "__63_0.distcp",
            UINT64_C(699) * 4194400, 100);
    stored_is("model.layers.0.self_attention.weight", D(1408, 0), 2, "__11_0.distcp", 0, 100);
    hearth_metadata_close(md);
    hearth_free(bytes);
}

/* --- Python --- */

Test(metadata_write, python_loads_what_was_added)
{
    static const char want[] =
            "1.0.0 {'checkpoint_id': '/ckpt/step-5_ckpt', 'save_id': 'save-1', 'load_id': None, "
            "'modules': []}\n"
            "tensor 'w' float32 (4, 3)\n"
            " chunk (2, 0) (2, 3)\n"
            " chunk (0, 0) (2, 3)\n"
            "bytes 'opt.3.lr'\n"
            "tensor 'LONG' uint8 (4, 3)\n"
            " chunk (4, 0) (0, 3)\n"
            " chunk (0, 0) (4, 3)\n"
            "tensor 'step' int64 ()\n"
            " chunk () ()\n"
            "tensor 'h\\xe4rth' bfloat16 (1, 300, 70000, 2147483648, 0)\n"
            " chunk (0, 0, 0, 0, 0) (1, 300, 70000, 2147483648, 0)\n"
            "path 'w' ('w',)\n"
            "path 'opt.3.lr' ('opt', 3, 'lr')\n"
            "path 'LONG' ('LONG',)\n"
            "path 'step' ('step',)\n"
            "path 'h\\xe4rth' ('h\\xe4rth',)\n"
            "stored 'w' 0 (2, 0) {'relative_path': '__1_0.distcp', 'offset': 5000000000, "
            "'length': 100}\n"
            "stored 'w' 1 (0, 0) {'relative_path': '__0_0.distcp', 'offset': 300, 'length': 100}\n"
            "stored 'opt.3.lr' None None {'relative_path': '__0_0.distcp', 'offset': 4096, "
            "'length': 17}\n"
            "stored 'LONG' 0 (4, 0) {'relative_path': '__0_0.distcp', 'offset': 9, 'length': "
            "100}\n"
            "stored 'LONG' 1 (0, 0) {'relative_path': '__0_0.distcp', 'offset': 9, 'length': "
            "100}\n"
            "stored 'step' 0 () {'relative_path': '__0_0.distcp', 'offset': 0, 'length': 8}\n"
            "stored 'h\\xe4rth' 0 (0, 0, 0, 0, 0) {'relative_path': 'sub/__0_0.distcp', "
            "'offset': 9223372036854705807, 'length': 70000}\n";
    struct hearth_metadata_writer *w = begun();
    char name[] = "/tmp/hearth-metadata-XXXXXX", command[1024], got[8192];
    size_t len, n;
    void *bytes;
    FILE *python;
    int fd;

    if (system("python3 -c '' 2>/dev/null") != 0)
        cr_skip_test("no python3");
    alarm(60);
    sample(w);
    bytes = finished(w, &len);
    fd = mkstemp(name);
    cr_assert(eq(int, write(fd, bytes, len) == (ssize_t)len, 1));
    close(fd);
    snprintf(command, sizeof(command),
            "python3 %s/../core/metadata_standin.py %s | sed s/%s/LONG/g",
            getenv("HEARTH_TEST_DATA"), name, long_name);
    cr_assert(ne(ptr, (python = popen(command, "r")), NULL));
    n = fread(got, 1, sizeof(got) - 1, python);
    got[n] = '\0';
    cr_assert(eq(int, pclose(python), 0));
    must_say(got, want);
    unlink(name);
    hearth_free(bytes);
}

/* --- what is refused --- */

#define refused(call, code, words)                                           \
    do {                                                                     \
        must_fail((call), (code));                                           \
        cr_assert(ne(ptr, strstr(err.text, (words)), NULL), "%s", err.text); \
    } while (0)

Test(metadata_write, pieces_of_one_tensor_agree)
{
    struct hearth_metadata_writer *w = begun();
    size_t len;

    must(piece(w, "w", HEARTH_FLOAT32, D(2, 3), D(4, 3), D(0, 0), "a", 0));
    refused(piece(w, "w", HEARTH_FLOAT64, D(2, 3), D(4, 3), D(2, 0), "a", 0), HEARTH_EINVAL,
            "'w': its dtype or global shape");
    refused(piece(w, "w", HEARTH_FLOAT32, D(2, 3), D(5, 3), D(2, 0), "a", 0), HEARTH_EINVAL,
            "global shape");
    refused(piece(w, "w", HEARTH_FLOAT32, D(2, 3), D(4, 3), D(0, 0), "b", 0), HEARTH_EEXIST,
            "two pieces at one place");
    refused(piece(w, "w", HEARTH_FLOAT32, D(2, 3), D(4, 3), D(3, 0), "b", 0), HEARTH_EINVAL,
            "reaches out");
    refused(piece(w, "w", HEARTH_FLOAT32, D(-1, 3), D(4, 3), D(3, 0), "b", 0), HEARTH_EINVAL,
            "reaches out");
    refused(piece(w, "w", HEARTH_FLOAT32, D(2, INT64_MAX), D(4, INT64_MAX), D(2, 1), "b", 0),
            HEARTH_EINVAL, "reaches out");
    refused(piece(w, "v", HEARTH_DTYPE_NONE, D(2, 3), NULL, NULL, "b", 0), HEARTH_EINVAL, "dtype");
    refused(hearth_metadata_add_bytes(w, "w", 1, "a", 0, 1, &err), HEARTH_EEXIST, "taken");
    must(hearth_metadata_add_bytes(w, "b", 1, "a", 0, 1, &err), err);
    refused(hearth_metadata_add_bytes(w, "b", 1, "a", 0, 1, &err), HEARTH_EEXIST, "taken");
    refused(piece(w, "b", HEARTH_FLOAT32, D(2, 3), NULL, NULL, "b", 0), HEARTH_EINVAL,
            "a byte item and a tensor");
    hearth_free(finished(w, &len)); /* and goes on */
}

Test(metadata_write, names_and_paths_are_what_a_reader_takes)
{
    static const char *const paths[] = { "", "/a", "a/", "a//b", "..", "a/../b", ".", "./a" };
    static const struct hearth_metadata_step step = { .key = { "a", 1 } },
                                             bad = { .key = { "\xff", 1 } };
    struct hearth_metadata_writer *w = begun(), *none = NULL;
    char longest[1100];
    void *out;
    size_t len;

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        must_fail(hearth_metadata_add_bytes(w, "b", 1, paths[i], 0, 1, &err), HEARTH_EINVAL);
    memset(longest, 'a', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    refused(hearth_metadata_add_bytes(w, "b", 1, longest, 0, 1, &err), HEARTH_EINVAL, "1099");
    refused(hearth_metadata_add_bytes(w, "b", 1, NULL, 0, 1, &err), HEARTH_EINVAL, "path");
    refused(hearth_metadata_add_bytes(w, "\xc3", 1, "a", 0, 1, &err), HEARTH_EINVAL, "UTF-8");
    refused(hearth_metadata_add_bytes(w, "b", 1, "\xff", 0, 1, &err), HEARTH_EINVAL, "UTF-8");
    refused(hearth_metadata_add_bytes(w, "b", 1, "a", INT64_MAX, 1, &err), HEARTH_EINVAL,
            "63 bits");
    refused(hearth_metadata_write("\xff", NULL, &none, &err), HEARTH_EINVAL, "UTF-8");
    refused(hearth_metadata_add_path(w, "b", 1, &step, 0, &err), HEARTH_EINVAL, "step");
    refused(hearth_metadata_add_path(w, "b", 1, &bad, 1, &err), HEARTH_EINVAL, "UTF-8");
    must(hearth_metadata_add_path(w, "b", 1, &step, 1, &err), err);
    refused(hearth_metadata_add_path(w, "b", 1, &step, 1, &err), HEARTH_EEXIST, "path");
    refused(hearth_metadata_finish(w, &out, &len, &err), HEARTH_EINVAL, "'b': it has a path");
    must_fail(hearth_metadata_finish(NULL, &out, &len, &err), HEARTH_EINVAL);
    hearth_metadata_abandon(begun());
    hearth_metadata_abandon(NULL);
}

/* ---- Without memory -------------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* its allocator is not replaced */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifndef SANITIZED
void *__libc_realloc(void *at, size_t len);
static unsigned refuse_in; /* calls; 0: none is refused */

void *realloc(void *at, size_t len)
{
    return refuse_in && !--refuse_in ? NULL : __libc_realloc(at, len);
}

Test(metadata_write, a_piece_that_finds_no_memory_leaves_no_entry)
{
    const int64_t shape[] = { 3 };
    const struct hearth_piece piece = { .struct_size = sizeof(piece),
        .key = "only",
        .key_len = 4,
        .dtype = HEARTH_FLOAT32,
        .ndim = 1,
        .shape = shape };
    struct hearth_metadata_head info = { .struct_size = sizeof(info) };
    struct hearth_metadata_writer *w;
    unsigned refused = 0;
    void *bytes;
    size_t len;
    int rc;

    for (unsigned call = 1; call <= 20; call++) {
        must(hearth_metadata_write("id", NULL, &w, &err), err);
        refuse_in = call;
        rc = hearth_metadata_add_piece(w, &piece, "a.distcp", 0, 12, &err);
        refuse_in = 0;
        refused += rc == HEARTH_ENOMEM;
        must(hearth_metadata_finish(w, &bytes, &len, &err), err);
        must(hearth_metadata_open(bytes, len, &md, &err), err);
        must(hearth_metadata_info(md, &info, &err), err);
        cr_expect(eq(sz, info.entries, rc ? 0 : 1), "call %u", call);
        cr_expect(eq(sz, info.stored, rc ? 0 : 1), "call %u", call);
        hearth_metadata_close(md);
        free(bytes);
    }
    cr_expect(ge(uint, refused, 3));
}
#endif
