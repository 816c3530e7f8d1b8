/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "rank.h"

#include "client/read/box.h"

#include "core/format/block.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROWS 700
#define COLS 900

static float stored[ROWS][COLS];
static const char blob[] = "optimizer state";

/* One save of a table in two pieces (halves of the rows), a byte string and a common object. */
static void save_halves(struct rank *r, uint64_t step)
{
    static const int64_t half[] = { ROWS / 2, COLS }, global[] = { ROWS, COLS };
    static const int64_t lower[] = { ROWS / 2, 0 };
    struct hearth_piece piece[2];
    struct hearth_bytes b = { .struct_size = sizeof(b),
        .key = "blob",
        .key_len = 4,
        .data = (void *)(uintptr_t)blob,
        .len = sizeof(blob) };
    struct hearth_save *save;
    struct hearth_handle *handle;

    rank_fill(&stored[0][0], (size_t)ROWS * COLS, (float)step);
    piece[0] = rank_piece("table", stored, 2, half);
    piece[1] = rank_piece("table", stored[ROWS / 2], 2, half);
    piece[0].global_shape = piece[1].global_shape = global;
    piece[1].global_offset = lower;
    must(hearth_save_begin(r->h, step, hearth_save_bytes(piece, 1, &b, 1), NULL, &save, NULL));
    must(hearth_save_add(save, piece, 1, NULL));
    must(hearth_save_add_bytes(save, &b, 1, NULL));
    must(hearth_save_next_object(save, "second", hearth_save_bytes(&piece[1], 1, NULL, 0), NULL));
    must(hearth_save_add(save, &piece[1], 1, NULL));
    must(hearth_save_put_common(save, ".metadata", "meta", 4, NULL));
    must(hearth_save_commit(save, &handle, NULL));
    must(hearth_wait(handle, HEARTH_PROTECTED, 5000, NULL));
    hearth_handle_close(handle);
}

static struct hearth_checkpoint *start(struct rank *r, int remote)
{
    rank_start(r);
    rank_open(r);
    save_halves(r, 3);
    fake_remote(r->fake, remote);
    return rank_recover(r->h, 3);
}

/* The box [y, y + h) x [x, x + w) of the table into a strided destination. */
static void check_load(struct hearth_checkpoint *c, int64_t y, int64_t x, int64_t h, int64_t w)
{
    const int64_t shape[] = { h, w }, global[] = { ROWS, COLS }, offset[] = { y, x };
    const int64_t strides[] = { 2, 2 * h }; /* column-major with gaps */
    float *got = malloc(sizeof(*got) * (size_t)(2 * h * w));
    struct hearth_piece piece = rank_piece("table", got, 2, shape);
    struct hearth_error err = { 0 };

    for (int64_t i = 0; i < 2 * h * w; i++)
        got[i] = -1;
    piece.global_shape = global;
    piece.global_offset = offset;
    piece.strides = strides;
    cr_assert(eq(int, hearth_load(c, &piece, 1, 0, NULL, &err), 0), "%s", err.text);
    for (int64_t i = 0; i < h; i++)
        for (int64_t j = 0; j < w; j++) {
            cr_assert(epsilon_eq(flt, got[2 * i + 2 * h * j], stored[y + i][x + j], 0.0f));
            cr_assert(epsilon_eq(flt, got[2 * i + 2 * h * j + 1], -1.0f, 0.0f));
        }
    free(got);
}

Test(load, fills_any_box_from_the_pieces_that_cover_it)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);

    check_load(c, 0, 0, ROWS, COLS);
    check_load(c, 0, 0, 1, 1);
    check_load(c, ROWS / 2 - 3, 17, 6, 100);
    check_load(c, ROWS / 2, 0, ROWS / 2, 1);
    hearth_checkpoint_close(c);
    cr_assert(eq(u32, fake_counts(r.fake).leases, 0));
    rank_end(&r);
}

Test(load, fills_any_box_from_objects_of_other_nodes)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 1);

    check_load(c, 0, 0, ROWS, COLS);
    check_load(c, ROWS / 2 - 3, 17, 6, 100);
    cr_assert(gt(u32, fake_counts(r.fake).ranges, 0));
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(load, partial_reports_what_is_missing_and_whole_refuses)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);
    static float a[ROWS][COLS], b[4];
    int64_t whole[] = { ROWS, COLS }, four = 4;
    struct hearth_piece piece[2] = { rank_piece("table", a, 2, whole),
        rank_piece("nosuch", b, 1, &four) };
    struct hearth_report *report = NULL;
    struct hearth_error err = { 0 };
    size_t len = 0;

    must_fail(hearth_load(c, piece, 2, 0, NULL, &err), HEARTH_ENOENT);
    cr_assert(ne(ptr, strstr(err.text, "'nosuch'"), NULL), "%s", err.text);
    must(hearth_load(c, piece, 2, HEARTH_LOAD_PARTIAL, &report, &err), err);
    cr_assert(eq(sz, hearth_report_missing(report), 1));
    cr_assert(zero(int, memcmp(hearth_report_key(report, 0, &len), "nosuch", 6)));
    cr_assert(eq(sz, len, 6));
    hearth_report_close(report);
    cr_assert(zero(int, memcmp(a, stored, sizeof(a))));
    hearth_checkpoint_close(c);
    rank_end(&r);
}

/* A table that is there, and after it something that is not like that. */
static void check_untouched(struct hearth_checkpoint *c, struct hearth_piece bad, int code)
{
    static float got[ROWS][COLS];
    const int64_t shape[] = { ROWS, COLS };
    struct hearth_piece piece[2] = { rank_piece("table", got, 2, shape), bad };
    struct hearth_error err = { 0 };

    memset(got, 0xee, sizeof(got));
    must_fail(hearth_load(c, piece, 2, 0, NULL, &err), code);
    for (size_t i = 0; i < sizeof(got); i++)
        cr_assert(eq(u8, ((unsigned char *)got)[i], 0xee), "byte %zu: %s", i, err.text);
}

static void check_all_untouched(struct hearth_checkpoint *c)
{
    static float other[ROWS + 1][COLS];
    const int64_t one = 1, more[] = { ROWS + 1, COLS }, rest[] = { 2, COLS };
    const int64_t global[] = { ROWS, COLS }, outside[] = { ROWS - 1, 0 };
    struct hearth_piece beyond = rank_piece("table", other, 2, rest);

    check_untouched(c, rank_piece("nothing", other, 1, &one), HEARTH_ENOENT);
    check_untouched(c, rank_piece("table", other, 2, more), HEARTH_EINVAL);
    beyond.global_shape = global;
    beyond.global_offset = outside;
    check_untouched(c, beyond, HEARTH_EINVAL);
    beyond = rank_piece("blob", NULL, 1, &one);
    check_untouched(c, beyond, HEARTH_EINVAL);
}

Test(load, that_does_not_find_all_leaves_every_target_as_it_was)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);

    check_all_untouched(c);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(load, that_does_not_find_all_elsewhere_leaves_every_target_as_it_was)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 1);

    check_all_untouched(c);
    cr_assert(le(u64, fake_counts(r.fake).range_bytes, 3 * HTH_CHUNK)); /* tables alone */
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(load, refuses_another_dtype_or_shape_by_name)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);
    static float a[ROWS][COLS];
    int64_t whole[] = { ROWS, COLS }, other[] = { ROWS, COLS - 1 };
    struct hearth_piece piece = rank_piece("table", a, 2, other);
    struct hearth_error err = { 0 };

    must_fail(hearth_load(c, &piece, 1, HEARTH_LOAD_PARTIAL, NULL, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "'table'"), NULL), "%s", err.text);
    cr_assert(ne(ptr, strstr(err.text, "[700, 900]"), NULL), "%s", err.text);
    piece = rank_piece("table", a, 2, whole);
    piece.dtype = HEARTH_INT32;
    must_fail(hearth_load(c, &piece, 1, HEARTH_LOAD_PARTIAL, NULL, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "int32"), NULL), "%s", err.text);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(load, takes_a_byte_string_as_uint8)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);
    char got[sizeof(blob)] = "";
    int64_t n = sizeof(blob);
    struct hearth_piece piece = rank_piece("blob", got, 1, &n);

    piece.dtype = HEARTH_UINT8;
    must(hearth_load(c, &piece, 1, 0, NULL, NULL));
    must_say(got, blob);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(items, are_listed_and_found_by_key)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);
    struct hearth_item item[3] = { { .struct_size = sizeof(item[0]) } };
    size_t count = 0;

    must(hearth_item_at(c, 0, 0, &item[0], NULL));
    cr_assert(eq(u32, item[0].kind, 10));
    cr_assert(eq(i64, item[0].global_shape[0], ROWS));
    must(hearth_item_at(c, 0, 1, &item[0], NULL));
    cr_assert(eq(u32, item[0].kind, 20));
    cr_assert(eq(u64, item[0].bytes, sizeof(blob)));
    must(hearth_item_at(c, 1, 2, &item[0], NULL));
    must_say(item[0].object, "second");
    must_fail(hearth_item_at(c, 1, 3, &item[0], NULL), HEARTH_ENOENT);
    must(hearth_item_find(c, "table", 5, item, 1, &count, NULL));
    cr_assert(eq(sz, count, 2));
    must(hearth_item_find(c, "table", 5, item, 3, &count, NULL));
    cr_assert(eq(i64, item[0].global_offset[0] + item[1].global_offset[0], ROWS / 2));
    must(hearth_item_find(c, "tabl", 4, item, 3, &count, NULL));
    cr_assert(eq(sz, count, 0));
    cr_assert(eq(sz, hearth_checkpoint_objects(c), 3));
    hearth_checkpoint_close(c);
    rank_end(&r);
}

static struct hearth_item find(struct hearth_checkpoint *c, const char *key, int64_t first_row)
{
    struct hearth_item item[4] = { { .struct_size = sizeof(item[0]) } };
    size_t count = 0;

    must(hearth_item_find(c, key, strlen(key), item, 4, &count, NULL));
    for (size_t i = 0; i < count; i++)
        if (!item[i].ndim || item[i].global_offset[0] == first_row)
            return item[i];
    cr_assert(0 == 1, "no such item");
    return item[0];
}

static void check_boxes(struct hearth_checkpoint *c)
{
    struct hearth_item item = find(c, "table", ROWS / 2);
    const int64_t off[] = { 10, 300 }, shape[] = { 20, 5 }, strides[] = { 1, 20 };
    const int64_t over[] = { ROWS / 2, 5 };
    float got[5][20], plain[20][5];
    struct hearth_error err = { 0 };

    must(hearth_read_box(c, &item, off, shape, got, strides, NULL));
    must(hearth_read_box(c, &item, off, shape, plain, NULL, NULL));
    for (int i = 0; i < 20; i++)
        for (int j = 0; j < 5; j++) {
            cr_assert(epsilon_eq(flt, got[j][i], stored[ROWS / 2 + 10 + i][300 + j], 0.0f));
            cr_assert(epsilon_eq(flt, plain[i][j], got[j][i], 0.0f));
        }
    must_fail(hearth_read_box(c, &item, off, over, got, NULL, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "dimension 0"), NULL), "%s", err.text);
}

static void check_bytes(struct hearth_checkpoint *c)
{
    struct hearth_item item = find(c, "blob", 0);
    char part[6] = "", whole[sizeof(blob)] = "";

    must(hearth_read_bytes(c, &item, 0, whole, sizeof(whole), NULL));
    must_say(whole, blob);
    must(hearth_read_bytes(c, &item, 10, part, 5, NULL));
    must_say(part, "state");
    must_fail(hearth_read_bytes(c, &item, 10, part, sizeof(blob), NULL), HEARTH_EINVAL);
    must_fail(hearth_read_box(c, &item, NULL, NULL, part, NULL, NULL), HEARTH_EINVAL);
}

/* Of another save, of the same one opened twice, and of one that was closed and opened again. */
Test(items, are_of_the_checkpoint_they_were_taken_from_and_no_other)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0), *other = NULL;
    struct hearth_item item = { .struct_size = sizeof(item) }, same = item;
    struct hearth_view view = { .struct_size = sizeof(view) };
    const int64_t origin[] = { 0, 0 }, shape[] = { 1, 1 };
    struct hearth_error err = { 0 };
    char got[sizeof(blob)] = "";
    float x = 0;

    must(hearth_item_at(c, 1, 0, &item, NULL));
    for (uint64_t step = 4; step < 6; step++) {
        save_halves(&r, step);
        must(hearth_checkpoint_open(r.h, step, &other, NULL));
        must(hearth_item_at(other, 1, 0, &same, NULL));
        cr_assert(eq(u64, same.handle, item.handle));
        must_fail(hearth_read_box(other, &item, origin, shape, &x, NULL, &err), HEARTH_EINVAL);
        cr_assert(ne(ptr, strstr(err.text, "another checkpoint"), NULL), "%s", err.text);
        must_fail(hearth_read_bytes(other, &item, 0, got, 4, &err), HEARTH_EINVAL);
        must_fail(hearth_view_open(other, &item, &view, &err), HEARTH_EINVAL);
        must_fail(hearth_prefetch(other, &item, 1, &err), HEARTH_EINVAL);
        must(hearth_read_box(other, &same, origin, shape, &x, NULL, &err), err);
        cr_assert(epsilon_eq(flt, x, stored[0][0], 0.0f));
        item = same;
        hearth_checkpoint_close(other);
    }
    must(hearth_checkpoint_open(r.h, 5, &other, NULL));
    must(hearth_item_at(other, 1, 0, &same, NULL));
    must_fail(hearth_read_box(other, &item, origin, shape, &x, NULL, &err), HEARTH_EINVAL);
    hearth_checkpoint_close(other);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(read, boxes_and_bytes_here)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);

    check_boxes(c);
    check_bytes(c);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(read, boxes_and_bytes_from_other_nodes)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 1);
    struct hearth_item item = find(c, "table", 0);

    cr_assert(eq(u32, item.local, 0));
    check_boxes(c);
    check_bytes(c);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(read, a_wrong_byte_from_another_node_is_asked_again_then_named)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 1);
    struct hearth_item item = find(c, "table", 0);
    const int64_t off[] = { 0, 0 }, shape[] = { 1, 1 };
    struct hearth_error err = { 0 };
    float x = 0;

    fake_flip(r.fake, 2);
    must_fail(hearth_read_box(c, &item, off, shape, &x, NULL, &err), HEARTH_ECORRUPT);
    cr_assert(ne(ptr, strstr(err.text, "chunk 0"), NULL), "%s", err.text);
    cr_assert(eq(u32, fake_counts(r.fake).bads, 2)); /* the library has reported both */
    cr_assert(eq(u64, fake_counts(r.fake).bad_chunk, 0));
    fake_flip(r.fake, 1);
    must(hearth_read_box(c, &item, off, shape, &x, NULL, &err), err);
    cr_assert(eq(u32, fake_counts(r.fake).bads, 3));
    cr_assert(epsilon_eq(flt, x, stored[0][0], 0.0f));
    hearth_checkpoint_close(c);
    rank_end(&r);
}

/* Its key is so long that the middle of its table lies there: a byte wrong in it, and the table is
 * one of an item of another name, with nothing else against it. */
Test(read, a_table_from_another_node_that_is_not_the_manifests_is_asked_again_then_named)
{
    struct rank r;
    char key[200];
    struct hearth_bytes b = { .struct_size = sizeof(b),
        .key = key,
        .key_len = sizeof(key),
        .data = (void *)(uintptr_t)blob,
        .len = sizeof(blob) };
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_checkpoint *c;
    struct hearth_error err = { 0 };

    memset(key, 'k', sizeof(key));
    rank_start(&r);
    rank_open(&r);
    rank_save(r.h, 3, NULL, 0, &b, 1);
    fake_remote(r.fake, 1);
    c = rank_recover(r.h, 3);
    fake_flip(r.fake, 2);
    must_fail(hearth_item_at(c, 0, 0, &item, &err), HEARTH_ECORRUPT);
    cr_assert(ne(ptr, strstr(err.text, "its table is not the one of"), NULL), "%s", err.text);
    cr_assert(eq(u32, fake_counts(r.fake).bads, 1)); /* the library has reported it */
    fake_flip(r.fake, 1);
    must(hearth_item_at(c, 0, 0, &item, &err), err);
    cr_assert(eq(u32, fake_counts(r.fake).bads, 2));
    cr_assert(eq(sz, item.key_len, sizeof(key)));
    cr_assert(zero(int, memcmp(item.key, key, sizeof(key))));
    hearth_checkpoint_close(c);
    rank_end(&r);
}

static float forged_read(uint32_t strong, int *out_code, struct hearth_error *err)
{
    const int64_t off[] = { 0, 0 }, shape[] = { 1, 1 };
    struct hearth_checkpoint *c;
    struct hearth_item item;
    float x = stored[0][0];
    struct rank r;

    rank_start(&r);
    if (strong)
        fake_strong(r.fake);
    rank_open(&r);
    save_halves(&r, 3);
    fake_remote(r.fake, 1);
    c = rank_recover(r.h, 3);
    item = find(c, "table", 0); /* brings the table */
    fake_forge(r.fake, 2);
    *out_code = hearth_read_box(c, &item, off, shape, &x, NULL, err);
    hearth_checkpoint_close(c);
    rank_end(&r);
    return x;
}

Test(read, bytes_forged_under_their_crc_are_found_by_a_strong_save_alone)
{
    struct hearth_error err = { 0 };
    int code;

    forged_read(0, &code, &err);
    must(code); /* they get through: a CRC finds accidents */
    forged_read(1, &code, &err);
    must_fail(code, HEARTH_ECORRUPT);
    cr_assert(ne(ptr, strstr(err.text, "chunk 0 is wrong"), NULL), "%s", err.text);
}

Test(read, a_box_of_a_large_remote_object_moves_its_chunks_only)
{
    struct rank r;
    enum { N = 16 << 20 }; /* 64 MiB: 4096 x 4096 */
    float *x = malloc(sizeof(*x) * N), got[64];
    int64_t shape[] = { 4096, 4096 }, off[] = { 4095, 100 }, box[] = { 1, 64 };
    int64_t column[] = { 4096, 1 }, first[] = { 0, 5 };
    struct hearth_piece piece = rank_piece("x", x, 2, shape);
    struct hearth_checkpoint *c;
    struct hearth_item item;
    uint64_t before;

    rank_start(&r);
    rank_open(&r);
    rank_fill(x, N, 2);
    rank_save(r.h, 1, &piece, 1, NULL, 0);
    fake_remote(r.fake, 1);
    c = rank_recover(r.h, 1);
    item = find(c, "x", 0);
    before = fake_counts(r.fake).range_bytes;
    must(hearth_read_box(c, &item, off, box, got, NULL, NULL));
    cr_assert(le(u64, fake_counts(r.fake).range_bytes - before, 2 * HTH_CHUNK));
    cr_assert(zero(int, memcmp(got, x + 4095 * 4096 + 100, sizeof(got))));
    before = fake_counts(r.fake).range_bytes;
    must(hearth_read_box(c, &item, first, column, x + 1, NULL, NULL)); /* each chunk about once */
    cr_assert(le(u64, fake_counts(r.fake).range_bytes - before, 40 * HTH_CHUNK));
    cr_assert(epsilon_eq(flt, x[1 + 4095], (float)((4095 * 4096 + 5) % 100000) * 1.5f + 2, 0.0f));
    hearth_checkpoint_close(c);
    free(x);
    rank_end(&r);
}

#define STRING_LEN (16u << 20)

/* A byte string of STRING_LEN that another node holds; its bytes are the caller's to free. */
static struct hearth_checkpoint *start_string(
        struct rank *r, unsigned char **out_bytes, struct hearth_item *out_item)
{
    unsigned char *x = malloc(STRING_LEN);
    struct hearth_bytes b = {
        .struct_size = sizeof(b), .key = "x", .key_len = 1, .data = x, .len = STRING_LEN
    };
    struct hearth_checkpoint *c;

    for (size_t i = 0; i < STRING_LEN; i++)
        x[i] = (unsigned char)(i * 2654435761u >> 13);
    rank_start(r);
    rank_open(r);
    rank_save(r->h, 1, NULL, 0, &b, 1);
    fake_remote(r->fake, 1);
    c = rank_recover(r->h, 1);
    *out_item = find(c, "x", 0);
    *out_bytes = x;
    return c;
}

/* Counted are bytes that the library asks for. */
Test(read, a_slice_of_a_remote_object_moves_itself_and_many_in_a_row_their_chunks)
{
    enum { SLICE = 64 << 10 };
    static unsigned char got[SLICE];
    struct hearth_item item;
    struct rank r;
    unsigned char *x;
    struct hearth_checkpoint *c = start_string(&r, &x, &item);
    uint64_t before;

    before = fake_counts(r.fake).range_bytes;
    must(hearth_read_bytes(c, &item, 5000000, got, SLICE, NULL));
    cr_assert(zero(int, memcmp(got, x + 5000000, SLICE)));
    cr_assert(eq(u64, fake_counts(r.fake).range_bytes - before, SLICE));
    fake_flip(r.fake, 1); /* it is found by the checksum that comes with it, and asked for again */
    must(hearth_read_bytes(c, &item, 9000000, got, SLICE, NULL));
    cr_assert(zero(int, memcmp(got, x + 9000000, SLICE)));
    cr_assert(eq(u32, fake_counts(r.fake).bads, 1));
    cr_assert(eq(u64, fake_counts(r.fake).bad_chunk, 9000000 / HTH_CHUNK));
    before = fake_counts(r.fake).range_bytes;
    for (uint64_t at = 0; at < STRING_LEN; at += SLICE) {
        must(hearth_read_bytes(c, &item, at, got, SLICE, NULL));
        cr_assert(zero(int, memcmp(got, x + at, SLICE)));
    }
    cr_assert(le(u64, fake_counts(r.fake).range_bytes - before, STRING_LEN + 6 * SLICE));
    hearth_checkpoint_close(c);
    free(x);
    rank_end(&r);
}

/* Headers lie between their payloads, so none begins where the one before ended. */
Test(read, many_small_tensors_in_their_order_come_in_whole_chunks)
{
    enum { TENSORS = 500, ELEMENTS = 1024 };
    static float x[TENSORS][ELEMENTS], got[TENSORS][ELEMENTS];
    struct hearth_piece piece[TENSORS];
    char key[TENSORS][16];
    int64_t shape[] = { ELEMENTS };
    struct hearth_checkpoint *c;
    struct rank r;
    uint32_t before;

    for (int i = 0; i < TENSORS; i++) {
        for (int j = 0; j < ELEMENTS; j++)
            x[i][j] = (float)(i * 7 + j);
        snprintf(key[i], sizeof(key[i]), "%d", i);
        piece[i] = rank_piece(key[i], x[i], 1, shape);
    }
    rank_start(&r);
    rank_open(&r);
    rank_save(r.h, 1, piece, TENSORS, NULL, 0);
    fake_remote(r.fake, 1);
    c = rank_recover(r.h, 1);
    for (int i = 0; i < TENSORS; i++)
        piece[i].data = got[i];
    before = fake_counts(r.fake).ranges;
    must(hearth_load(c, piece, TENSORS, 0, NULL, NULL));
    cr_assert(zero(int, memcmp(x, got, sizeof(x))));
    cr_assert(le(u32, fake_counts(r.fake).ranges - before, 8));
    hearth_checkpoint_close(c);
    rank_end(&r);
}

/* An older holder gives whole chunks for a slice: the second slice of a chunk is there already. */
Test(read, slices_of_an_older_holder_move_their_chunk_once)
{
    enum { SLICE = 8 << 10 };
    static unsigned char got[SLICE];
    struct hearth_item item;
    struct rank r;
    unsigned char *x;
    struct hearth_checkpoint *c = start_string(&r, &x, &item);
    uint32_t before;

    fake_without_sums(r.fake);
    before = fake_counts(r.fake).ranges;
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t at = HTH_CHUNK + i * 2654435761u % (HTH_CHUNK - SLICE);

        must(hearth_read_bytes(c, &item, at, got, SLICE, NULL));
        cr_assert(zero(int, memcmp(got, x + at, SLICE)));
    }
    cr_assert(le(u32, fake_counts(r.fake).ranges - before, 2));
    hearth_checkpoint_close(c);
    free(x);
    rank_end(&r);
}

Test(read, prefetch_brings_bytes_that_a_later_read_takes)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 1);
    struct hearth_item item = find(c, "table", 0);
    const int64_t off[] = { 0, 0 }, shape[] = { ROWS / 2, COLS };
    static float got[ROWS / 2][COLS];
    uint32_t ranges = fake_counts(r.fake).ranges;

    must(hearth_prefetch(c, &item, 1, NULL));
    must(hearth_read_box(c, &item, off, shape, got, NULL, NULL));
    cr_assert(eq(u32, fake_counts(r.fake).ranges, ranges + 1));
    cr_assert(zero(int, memcmp(got, stored, sizeof(got))));
    must(hearth_prefetch(c, &item, 1, NULL)); /* and one whose bytes are not read */
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(read, common_objects_are_checked_and_free_to_keep)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);
    struct hearth_error err = { 0 };
    void *bytes = NULL;
    size_t len = 0;

    must(hearth_read_common(c, ".metadata", &bytes, &len, NULL));
    cr_assert(eq(sz, len, 4));
    cr_assert(zero(int, memcmp(bytes, "meta", 4)));
    hearth_free(bytes);
    fake_flip(r.fake, 2); /* the library reports it, and asks once more */
    must_fail(hearth_read_common(c, ".metadata", &bytes, &len, &err), HEARTH_ECORRUPT);
    cr_assert(ne(ptr, strstr(err.text, "not the one of the manifest"), NULL), "%s", err.text);
    must_fail(hearth_read_common(c, "common.pt", &bytes, &len, NULL), HEARTH_ENOENT);
    must_fail(hearth_read_common(c, "../x", &bytes, &len, NULL), HEARTH_EINVAL);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(read, a_common_object_that_ends_early_is_not_given)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);
    struct hearth_error err = { 0 };
    void *bytes = NULL;
    size_t len = 0;

    fake_cut(r.fake, 2); /* the library reports it, and asks once more */
    must_fail(hearth_read_common(c, ".metadata", &bytes, &len, &err), HEARTH_ECORRUPT);
    cr_assert(ne(ptr, strstr(err.text, "not the one of the manifest"), NULL), "%s", err.text);
    cr_assert(zero(ptr, bytes));
    cr_assert(eq(u32, fake_counts(r.fake).bads, 2));
    fake_cut(r.fake, 1);
    must(hearth_read_common(c, ".metadata", &bytes, &len, NULL));
    cr_assert(eq(sz, len, 4));
    hearth_free(bytes);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(read, an_object_is_a_descriptor_to_map)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);
    struct hearth_item item = find(c, "table", ROWS / 2);
    uint64_t offset, bytes;
    unsigned char *p;
    int fd;

    must(hearth_object_fd(c, "second", &fd, &offset, &bytes, NULL));
    p = mmap(NULL, offset + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    cr_assert(ne(ptr, p, MAP_FAILED));
    cr_assert(zero(int, memcmp(p + offset + bytes - item.bytes, stored[ROWS / 2], item.bytes)));
    cr_assert(lt(int, (int)pwrite(fd, "x", 1, 0), 0)); /* read-only */
    munmap(p, offset + bytes);
    close(fd);
    must_fail(hearth_object_fd(c, "third", &fd, &offset, &bytes, NULL), HEARTH_ENOENT);
    must_fail(hearth_object_fd(c, NULL, &fd, &offset, &bytes, NULL), HEARTH_EINVAL);
    must_fail(hearth_object_fd(c, "second", NULL, &offset, &bytes, NULL), HEARTH_EINVAL);
    must_fail(hearth_object_fd(c, "second", &fd, NULL, &bytes, NULL), HEARTH_EINVAL);
    must_fail(hearth_object_fd(c, "second", &fd, &offset, NULL, NULL), HEARTH_EINVAL);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(view, outlives_the_checkpoint)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);
    struct hearth_item item = find(c, "table", 0);
    struct hearth_view view = { .struct_size = sizeof(view) }, again = view;

    must(hearth_view_open(c, &item, &view, NULL));
    cr_assert(eq(u64, view.bytes, sizeof(stored) / 2));
    cr_assert(zero(int, memcmp(view.data, stored, view.bytes)));
    must(hearth_view_open(c, &item, &again, NULL));
    cr_assert(zero(int, memcmp(again.data, stored, again.bytes)));
    hearth_checkpoint_close(c);
    cr_assert(eq(u32, fake_counts(r.fake).leases, 1));
    hearth_view_close(r.h, &view);
    cr_assert(eq(u32, fake_counts(r.fake).leases, 1));
    hearth_view_close(r.h, &again);
    hearth_view_close(r.h, &again);
    cr_assert(eq(u32, fake_counts(r.fake).leases, 0));
    rank_end(&r);
}

Test(view, of_an_object_elsewhere_says_what_to_use)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 1);
    struct hearth_item item = find(c, "table", 0);
    struct hearth_view view = { .struct_size = sizeof(view) };
    struct hearth_error err = { 0 };

    must_fail(hearth_view_open(c, &item, &view, &err), HEARTH_ENOENT);
    cr_assert(ne(ptr, strstr(err.text, "hearth_read_box"), NULL), "%s", err.text);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(view, keeps_its_lease_over_a_restart_of_the_engine)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);
    struct hearth_item item = find(c, "table", 0);
    struct hearth_view view = { .struct_size = sizeof(view) };
    char text[300];
    uint32_t level;
    int lost = 0;

    must(hearth_view_open(c, &item, &view, NULL));
    fake_crash(r.fake);
    fake_back(r.fake);
    check_bytes(c);
    hearth_view_close(r.h, &view);
    hearth_checkpoint_close(c);
    while (hearth_log_poll(r.h, &level, text, sizeof(text)))
        lost += strstr(text, "lease-lost") != NULL;
    cr_assert(eq(int, lost, 0));
    cr_assert(eq(u32, fake_counts(r.fake).leases, 0));
    rank_end(&r);
}

static void *open_newest(void *h)
{
    struct hearth_checkpoint *c = NULL;

    return hearth_checkpoint_open(h, HEARTH_STEP_NEWEST, &c, NULL) ? NULL : c;
}

static void until_silenced(struct rank *r, uint32_t count)
{
    for (int i = 0; i < 5000 && fake_counts(r->fake).silenced < count; i++)
        usleep(1000);
    cr_assert(eq(u32, fake_counts(r->fake).silenced, count));
}

/* Of two engines that came back the first one goes before it has given all leases again; one of
 * them was given up meanwhile. The second one numbers its own from 1 again. */
Test(view, a_lease_that_an_engine_took_with_it_is_no_other_ones, .timeout = 30)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);
    struct hearth_item upper = find(c, "table", 0), lower = find(c, "table", ROWS / 2);
    struct hearth_view one = HEARTH_VIEW_INIT, other = one;
    void *third = NULL;
    pthread_t thread;

    must(hearth_view_open(c, &upper, &one, NULL));
    must(hearth_view_open(c, &lower, &other, NULL));
    hearth_checkpoint_close(c);
    cr_assert(eq(u32, fake_counts(r.fake).leases, 2));
    fake_crash(r.fake);
    fake_silence(r.fake, HTH_LOCAL_MAP);
    fake_back(r.fake);
    must(pthread_create(&thread, NULL, open_newest, r.h));
    until_silenced(&r, 1);
    hearth_view_close(r.h, &one);
    fake_map_late(r.fake);
    until_silenced(&r, 2);
    fake_crash(r.fake);
    fake_silence(r.fake, 0);
    fake_back(r.fake);
    must(pthread_join(thread, &third));
    cr_assert(ne(ptr, third, NULL));
    cr_assert(eq(u32, fake_counts(r.fake).leases, 1));
    hearth_checkpoint_close(third);
    hearth_view_close(r.h, &other);
    rank_end(&r);
}

/* A box of 300 by 300 of which every second row and column is there. */
Test(rest, of_more_pieces_than_are_kept_is_an_error_and_no_smaller_rest)
{
    enum { SIDE = 600 };
    struct hth_box whole = { .shape = { SIDE, SIDE } }, meet;
    struct hth_rest rest;
    int rc;

    must(hth_rest_init(&rest, 2, &whole));
    rc = HEARTH_OK;
    for (int64_t at = 0; !rc && at < 2 * SIDE; at += 2) {
        struct hth_box strip = whole;

        strip.offset[at >= SIDE] = at % SIDE;
        strip.shape[at >= SIDE] = 1;
        for (size_t i = rest.count; !rc && i-- > 0;)
            if (hth_box_meet(2, &rest.box[i], &strip, &meet))
                rc = hth_rest_cut(&rest, i, &meet);
    }
    cr_assert(eq(int, rc, HEARTH_ENOMEM));
    hth_rest_fini(&rest);
}
