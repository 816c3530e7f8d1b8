/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "rank.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static void load(struct hearth *h, uint64_t step, const struct hearth_piece *pieces, size_t count)
{
    struct hearth_checkpoint *ckpt = rank_recover(h, step);
    struct hearth_error err = { 0 };

    cr_assert(eq(int, hearth_load(ckpt, pieces, count, 0, NULL, &err), 0), "%s", err.text);
    hearth_checkpoint_close(ckpt);
}

Test(save, comes_back_as_it_was)
{
    struct rank r;
    static float x[300][70], was[300][70];
    int64_t shape[] = { 300, 70 };
    struct hearth_piece piece = rank_piece("layer.0.weight", x, 2, shape);

    rank_start(&r);
    rank_open(&r);
    rank_fill(&x[0][0], 300 * 70, 3);
    memcpy(was, x, sizeof(x));
    rank_save(r.h, 7, &piece, 1, NULL, 0);
    memset(x, 0, sizeof(x));
    load(r.h, 7, &piece, 1);
    cr_assert(zero(int, memcmp(x, was, sizeof(x))));
    rank_end(&r);
}

Test(save, of_every_dtype_and_of_empty_and_scalar_tensors)
{
    static const uint32_t dtypes[] = {
#define HEARTH_X(name, value, text, bytes) name,
        HEARTH_DTYPES(HEARTH_X)
#undef HEARTH_X
    };
    enum { N = sizeof(dtypes) / sizeof(dtypes[0]) };
    struct rank r;
    static unsigned char in[N][16 * 6], out[N][16 * 6];
    static char key[N][16];
    struct hearth_piece piece[3 * N];
    int64_t shape[] = { 2, 3 }, none[] = { 4, 0 };

    rank_start(&r);
    rank_open(&r);
    for (size_t i = 0; i < N; i++) {
        for (size_t j = 0; j < sizeof(in[i]); j++)
            in[i][j] = (unsigned char)(i * 31 + j);
        snprintf(key[i], sizeof(key[i]), "k%zu", i);
        piece[3 * i] = rank_piece(key[i], in[i], 2, shape);
        piece[3 * i + 1] = rank_piece(key[i], in[i], 2, none);
        piece[3 * i + 2] = rank_piece(key[i], in[i], 0, NULL);
        for (size_t j = 0; j < 3; j++) {
            piece[3 * i + j].dtype = dtypes[i];
            piece[3 * i + j].key_len = strlen(key[i]) + (j ? 1 : 0); /* with its NUL: another key */
        }
        piece[3 * i + 2].key = (char *)key[i] + 1;
    }
    rank_save(r.h, 1, piece, 3 * N, NULL, 0);
    for (size_t i = 0; i < N; i++)
        piece[3 * i].data = piece[3 * i + 1].data = out[i];
    for (size_t i = 0; i < N; i++)
        load(r.h, 1, &piece[3 * i], 2);
    for (size_t i = 0; i < N; i++)
        cr_assert(zero(int, memcmp(in[i], out[i], 6 * hearth_dtype_bytes(dtypes[i]))), "%zu", i);
    rank_end(&r);
}

Test(save, makes_strided_sources_contiguous)
{
    struct rank r;
    static float x[40][50][6], got[50][6][20];
    int64_t shape[] = { 50, 6, 20 };
    int64_t strides[] = { 6, 1, 2 * 300 }; /* of x transposed, every second plane */
    struct hearth_piece piece = rank_piece("t", x, 3, shape);

    rank_start(&r);
    rank_open(&r);
    rank_fill(&x[0][0][0], 40 * 50 * 6, 1);
    piece.strides = strides;
    rank_save(r.h, 1, &piece, 1, NULL, 0);
    piece.data = got;
    piece.strides = NULL;
    load(r.h, 1, &piece, 1);
    for (int i = 0; i < 50; i++)
        for (int j = 0; j < 6; j++)
            for (int k = 0; k < 20; k++)
                cr_assert(epsilon_eq(flt, got[i][j][k], x[2 * k][i][j], 0.0f));
    rank_end(&r);
}

Test(save, of_large_and_odd_pieces_by_several_threads_is_the_same)
{
    struct rank r;
    enum { N = 5, LEN = 3 * 1024 * 1024 + 7 };
    int64_t shape[] = { LEN }, rows[] = { 1531, 2003 }, strides[] = { 1, 1531 };
    struct hearth_piece piece[N + 1];
    static const char *const keys[] = { "a", "bb", "ccc", "dddd", "eeeee" };
    float *x = malloc(N * sizeof(float) * LEN), *y = malloc((N + 1) * sizeof(float) * LEN);

    rank_start(&r);
    r.opts.copy_threads = 4;
    rank_open(&r);
    rank_fill(x, (size_t)N * LEN, 9);
    for (int i = 0; i < N; i++)
        piece[i] = rank_piece(keys[i], x + (size_t)i * LEN, 1, shape);
    piece[N] = rank_piece("turned", x, 2, rows); /* column-major: strided in the middle of it */
    piece[N].strides = strides;
    rank_save(r.h, 1, piece, N + 1, NULL, 0);
    for (int i = 0; i <= N; i++)
        piece[i].data = y + (size_t)i * LEN;
    piece[N].strides = NULL;
    load(r.h, 1, piece, N + 1);
    cr_assert(zero(int, memcmp(x, y, (size_t)N * LEN * sizeof(float))));
    for (size_t i = 0; i < 1531; i += 13)
        for (size_t j = 0; j < 2003; j++)
            cr_assert(epsilon_eq(flt, y[(size_t)N * LEN + i * 2003 + j], x[i + j * 1531], 0.0f));
    free(x);
    free(y);
    rank_end(&r);
}

#define LENGTHS (200 + 5 * 130)

/* Around the length from which bytes are written past the caches, and at all distances from a
 * line's beginning on both sides. */
static uint64_t length(size_t i)
{
    static const uint64_t around[] = { 2048, 4096, 65536, 262144, 1 << 20 };

    return i < 200 ? i + 1 : around[(i - 200) / 130] + (i - 200) % 130 - 65;
}

Test(save, of_pieces_of_any_length_and_place_is_the_same)
{
    struct hearth_piece *piece = calloc(LENGTHS, sizeof(*piece));
    int64_t *shape = calloc(LENGTHS, sizeof(*shape));
    char(*key)[16] = calloc(LENGTHS, sizeof(*key));
    unsigned char *x, *y;
    struct rank r;
    size_t total = 0;

    for (size_t i = 0; i < LENGTHS; i++)
        total += length(i) + 64;
    x = malloc(total);
    y = malloc(total);
    for (size_t i = 0; i < total; i++)
        x[i] = y[i] = (unsigned char)(i * 131 + i / 251);
    rank_start(&r);
    r.opts.copy_threads = 3;
    rank_open(&r);
    for (size_t i = 0, at = 0; i < LENGTHS; at += length(i) + i % 64, i++) {
        shape[i] = (int64_t)length(i);
        snprintf(key[i], sizeof(key[i]), "k%zu", i);
        piece[i] = rank_piece(key[i], x + at, 1, &shape[i]);
        piece[i].dtype = HEARTH_UINT8;
    }
    rank_save(r.h, 1, piece, LENGTHS, NULL, 0);
    for (size_t i = 0; i < LENGTHS; i++) {
        piece[i].data = y + ((unsigned char *)piece[i].data - x);
        memset(piece[i].data, 0, length(i));
    }
    load(r.h, 1, piece, LENGTHS);
    cr_assert(zero(int, memcmp(x, y, total)));
    rank_end(&r);
    free(piece);
    free(shape);
    free(key);
    free(x);
    free(y);
}

Test(save, of_thousands_of_small_items_in_one_call)
{
    struct rank r;
    enum { N = 20000 };
    struct hearth_piece *piece = calloc(N, sizeof(*piece));
    float *x = calloc(N, sizeof(*x)), *y = calloc(N, sizeof(*y));
    char(*key)[12] = calloc(N, sizeof(*key));

    rank_start(&r);
    rank_open(&r);
    rank_fill(x, N, 5);
    for (int i = 0; i < N; i++) {
        snprintf(key[i], sizeof(key[i]), "p%d", i);
        piece[i] = rank_piece(key[i], &x[i], 0, NULL);
    }
    rank_save(r.h, 1, piece, N, NULL, 0);
    for (int i = 0; i < N; i++)
        piece[i].data = &y[i];
    load(r.h, 1, piece, N);
    cr_assert(zero(int, memcmp(x, y, N * sizeof(*x))));
    free(piece);
    free(x);
    free(y);
    free(key);
    rank_end(&r);
}

Test(save, hearth_save_bytes_is_enough_and_one_less_is_not)
{
    struct rank r;
    float x[10] = { 0 };
    int64_t n = 10;
    struct hearth_piece piece = rank_piece("x", x, 1, &n);
    struct hearth_bytes b = {
        .struct_size = sizeof(b), .key = "b", .key_len = 1, .data = x, .len = 33
    };
    uint64_t bytes = hearth_save_bytes(&piece, 1, &b, 1);
    struct hearth_error err = { 0 };
    struct hearth_save *save;

    rank_start(&r);
    rank_open(&r);
    save = rank_begin(r.h, 1, bytes);
    must(hearth_save_add(save, &piece, 1, &err), err);
    must(hearth_save_add_bytes(save, &b, 1, &err), err);
    must_fail(hearth_save_add_bytes(save, &b, 1, &err), HEARTH_ENOSPC);
    hearth_handle_close(rank_commit(save));
    save = rank_begin(r.h, 2, bytes - 1);
    must(hearth_save_add(save, &piece, 1, &err), err);
    must_fail(hearth_save_add_bytes(save, &b, 1, &err), HEARTH_ENOSPC);
    cr_assert(ne(ptr, strstr(err.text, "hearth_save_bytes"), NULL), "%s", err.text);
    hearth_save_abort(save);
    rank_end(&r);
}

Test(save, wrong_pieces_are_refused_by_name_and_the_save_goes_on)
{
    struct rank r;
    float x[4] = { 1, 2, 3, 4 };
    int64_t four = 4, neg = -1, two = 2, three = 3;
    struct hearth_piece good = rank_piece("good", x, 1, &four), bad[9];
    struct hearth_error err = { 0 };
    struct hearth_save *save;
    int codes[9] = { HEARTH_EINVAL, HEARTH_EINVAL, HEARTH_EINVAL, HEARTH_EINVAL, HEARTH_EINVAL,
        HEARTH_EINVAL, HEARTH_EINVAL, HEARTH_EINVAL, HEARTH_EINVAL };

    for (int i = 0; i < 9; i++)
        bad[i] = rank_piece("bad.one", x, 1, &four);
    bad[0].key_len = 0;
    bad[1].dtype = 9;
    bad[2].shape = &neg;
    bad[3].memory = 10; /* of a GPU */
    bad[4].ndim = 65;
    bad[5].data = NULL;
    bad[6].global_shape = &three;
    bad[7].global_offset = &two;
    bad[8].reserved = 1;
    rank_start(&r);
    rank_open(&r);
    save = rank_begin(r.h, 1, 1 << 16);
    for (int i = 0; i < 9; i++) {
        struct hearth_piece both[2] = { good, bad[i] };

        cr_assert(eq(int, hearth_save_add(save, both, 2, &err), codes[i]), "%d: %s", i, err.text);
        cr_assert(i == 0 || strstr(err.text, "bad.one"), "%s", err.text);
    }
    must(hearth_save_add(save, &good, 1, &err), err);
    rank_protect(rank_commit(save));
    memset(x, 0, sizeof(x));
    load(r.h, 1, &good, 1);
    cr_assert(epsilon_eq(flt, x[3], 4.0f, 0.0f));
    rank_end(&r);
}

Test(save, tensors_after_bytes_need_another_object)
{
    struct rank r;
    float x = 5;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL), first = rank_piece("w", &x, 0, NULL);
    struct hearth_bytes b = {
        .struct_size = sizeof(b), .key = "b", .key_len = 1, .data = &x, .len = 4
    };
    struct hearth_error err = { 0 };
    struct hearth_save *save;

    rank_start(&r);
    rank_open(&r);
    save = rank_begin(r.h, 1, 8192);
    must(hearth_save_add(save, &first, 1, &err), err);
    must(hearth_save_add_bytes(save, &b, 1, &err), err);
    must_fail(hearth_save_add(save, &piece, 1, &err), HEARTH_ESTATE);
    must(hearth_save_next_object(save, "more", 8192, &err), err);
    must(hearth_save_add(save, &piece, 1, &err), err);
    rank_protect(rank_commit(save));
    x = 0;
    load(r.h, 1, &piece, 1);
    cr_assert(epsilon_eq(flt, x, 5.0f, 0.0f));
    rank_end(&r);
}

/* How often this process has a slot of the stand-in mapped, which has each once itself. */
static int slots_mapped(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;

    while (fgets(line, sizeof(line), maps))
        count += strstr(line, "fake-slot") != NULL;
    fclose(maps);
    return count;
}

Test(save, a_slot_stays_mapped_until_the_engine_wants_it_unmapped)
{
    struct hearth_save *save;
    struct rank r;

    rank_start(&r);
    rank_open(&r);
    for (uint64_t step = 1; step < 4; step++)
        rank_protect(rank_commit(rank_begin(r.h, step, 8192)));
    cr_assert(eq(int, slots_mapped(), 2 * (int)fake_counts(r.fake).slots));
    for (uint64_t slot = 0; slot < fake_counts(r.fake).slots; slot++)
        fake_let_go(r.fake, slot);
    (void)fake_counts(r.fake);
    save = rank_begin(r.h, 4, 8192);
    cr_assert(eq(int, slots_mapped(), (int)fake_counts(r.fake).slots + 1), "the new one alone");
    for (uint64_t slot = 0; slot < fake_counts(r.fake).slots; slot++)
        fake_let_go(r.fake, slot); /* and not while it is written */
    rank_protect(rank_commit(save));
    rank_protect(rank_commit(rank_begin(r.h, 5, 8192)));
    cr_assert(eq(int, slots_mapped(), (int)fake_counts(r.fake).slots + 1));
    rank_protect(rank_commit(rank_begin(r.h, 6, 8192)));
    fake_crash(r.fake);
    fake_back(r.fake);
    save = rank_begin(r.h, 7, 8192);
    cr_assert(eq(int, slots_mapped(), (int)fake_counts(r.fake).slots + 1), "by another engine");
    hearth_save_abort(save);
    rank_end(&r);
}

Test(save, a_refused_further_object_changes_nothing)
{
    struct rank r;
    float x = 5, y = 6;
    struct hearth_piece piece[2] = { rank_piece("x", &x, 0, NULL), rank_piece("y", &y, 0, NULL) };
    struct hearth_error err = { 0 };
    struct hearth_save *save;
    struct hearth_place place;
    uint64_t room;
    size_t count;
    void *data;

    rank_start(&r);
    rank_open(&r);
    save = rank_begin(r.h, 1, 16384);
    must(hearth_save_add(save, &piece[0], 1, &err), err);
    must(hearth_save_places(save, &place, 1, &count, &err), err);
    must(hearth_save_data(save, &data, &room, &err), err);
    memset((char *)data + place.length, 'w', room - place.length); /* as who fills places does */
    fake_refuse(r.fake, HTH_LOCAL_BEGIN, HEARTH_ENOSPC, "no room in the store");
    must_fail(hearth_save_next_object(save, "more", 8192, &err), HEARTH_ENOSPC);
    for (uint64_t i = place.length; i < room; i++)
        cr_assert(eq(chr, ((char *)data)[i], 'w'), "byte %u", (unsigned)i);
    must(hearth_save_add(save, &piece[1], 1, &err), err);
    fake_refuse(r.fake, HTH_LOCAL_BEGIN, HEARTH_OK, "");
    must(hearth_save_next_object(save, "more", 8192, &err), err);
    rank_protect(rank_commit(save));
    x = y = 0;
    load(r.h, 1, piece, 2);
    cr_assert(epsilon_eq(flt, x, 5.0f, 0.0f));
    cr_assert(epsilon_eq(flt, y, 6.0f, 0.0f));
    rank_end(&r);
}

Test(save, reserved_places_are_filled_before_the_step_is_known)
{
    struct rank r;
    int64_t n = 1000;
    static float x[1000], y[1000];
    struct hearth_piece piece[2] = { rank_piece("x", NULL, 1, &n), rank_piece("y", NULL, 1, &n) };
    struct hearth_place place[2];
    struct hearth_error err = { 0 };
    struct hearth_handle *handle = NULL;
    struct hearth_save *save;
    const void *asked[3];
    uint64_t offset[3];
    void *data[2];
    size_t count;

    rank_start(&r);
    rank_open(&r);
    save = rank_begin(r.h, HEARTH_STEP_LATER, hearth_save_bytes(piece, 2, NULL, 0));
    must(hearth_save_reserve(save, piece, 2, data, &err), err);
    must(hearth_save_put_common(save, ".metadata", "staged", 6, &err), err);
    rank_fill(x, 1000, 1);
    rank_fill(y, 1000, 2);
    memcpy(data[0], x, sizeof(x));
    memcpy(data[1], y, sizeof(y));
    must(hearth_save_places(save, place, 2, &count, &err), err);
    cr_assert(eq(sz, count, 2));
    cr_assert(eq(u64, place[0].offset, 0));
    cr_assert(eq(u64, place[1].offset, place[0].length));
    asked[0] = data[1];
    asked[1] = x;
    asked[2] = (char *)data[0] + 1;
    must(hearth_save_locate(save, asked, 3, offset, &err), err);
    cr_assert(eq(u64, offset[0], place[1].offset + place[1].length - sizeof(y)));
    cr_assert(eq(u64, offset[1], UINT64_MAX));
    cr_assert(eq(u64, offset[2], place[0].length - sizeof(x) + 1));
    must(hearth_save_set_step(save, 12, &err), err);
    must_fail(hearth_save_set_step(save, 13, &err), HEARTH_ESTATE);
    must(hearth_save_commit(save, &handle, &err), err);
    must(hearth_wait(handle, HEARTH_PROTECTED, 5000, &err), err);
    hearth_handle_close(handle);
    save = rank_begin(r.h, HEARTH_STEP_LATER, 8192);
    must_fail(hearth_save_commit(save, &handle, &err), HEARTH_ESTATE);
    memset(x, 0, sizeof(x));
    piece[0].data = x;
    load(r.h, 12, piece, 1);
    cr_assert(epsilon_eq(flt, x[999], 999 * 1.5f + 1, 0.0f));
    rank_end(&r);
}

Test(save, before_recover_is_a_state_error)
{
    struct rank r;
    struct hearth_save *save;
    struct hearth_error err = { 0 };

    rank_start(&r);
    must(hearth_open(&r.opts, &r.h, &err), err);
    must_fail(hearth_save_begin(r.h, 1, 100, NULL, &save, &err), HEARTH_ESTATE);
    cr_assert(ne(ptr, strstr(err.text, "hearth_recover"), NULL), "%s", err.text);
    rank_end(&r);
}

Test(save, busy_is_handed_on)
{
    struct rank r;
    struct hearth_save *save;
    struct hearth_error err = { 0 };

    rank_start(&r);
    rank_open(&r);
    fake_refuse(r.fake, HTH_LOCAL_BEGIN, HEARTH_EBUSY, "step 3 is undecided: it waits for node b");
    must_fail(hearth_save_begin(r.h, 4, 100, NULL, &save, &err), HEARTH_EBUSY);
    cr_assert(ne(ptr, strstr(err.text, "node b"), NULL), "%s", err.text);
    must_fail(hearth_save_begin(r.h, 4, UINT64_MAX, NULL, &save, &err), HEARTH_ENOSPC);
    rank_end(&r);
}

Test(save, recycles_slots_and_their_mappings)
{
    struct rank r;
    static float x[1 << 18];
    int64_t n = 1 << 18;
    struct hearth_piece piece = rank_piece("x", x, 1, &n);
    char line[512];
    int maps = 0;
    FILE *f;

    rank_start(&r);
    rank_open(&r);
    for (uint64_t step = 1; step <= 50; step++) {
        rank_fill(x, 1 << 18, (float)step);
        rank_save(r.h, step, &piece, 1, NULL, 0);
    }
    cr_assert(le(u32, fake_counts(r.fake).slots, 3));
    f = fopen("/proc/self/maps", "re");
    while (fgets(line, sizeof(line), f))
        maps += strstr(line, "fake-slot") != NULL;
    fclose(f);
    cr_assert(le(int, maps, 6)); /* the engine's and ours */
    memset(x, 0, sizeof(x));
    load(r.h, 50, &piece, 1);
    cr_assert(epsilon_eq(flt, x[0], 50.0f, 0.0f));
    rank_end(&r);
}

Test(handle, shows_levels_and_times_out_by_name)
{
    struct rank r;
    float x = 1;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);
    struct hearth_status st = { .struct_size = sizeof(st) };
    struct hearth_error err = { 0 };
    struct hearth_handle *handle;
    struct hearth_save *save;

    rank_start(&r);
    rank_open(&r);
    fake_hold(r.fake, HEARTH_COPIED);
    save = rank_begin(r.h, 5, 8192);
    must(hearth_save_add(save, &piece, 1, &err), err);
    handle = rank_commit(save);
    must(hearth_wait(handle, HEARTH_COPIED, 5000, &err), err);
    must_fail(hearth_wait(handle, HEARTH_PROTECTED, 100, &err), HEARTH_ETIMEOUT);
    cr_assert(ne(ptr, strstr(err.text, "COPIED and not PROTECTED"), NULL), "%s", err.text);
    cr_assert(ne(ptr, strstr(err.text, "node b"), NULL), "%s", err.text);
    must_fail(hearth_wait(handle, HEARTH_PROTECTED, 0, &err), HEARTH_EINVAL);
    must_fail(hearth_wait(handle, (enum hearth_level)50, 1, &err), HEARTH_EUNSUPPORTED);
    fake_hold(r.fake, 0);
    must(hearth_wait(handle, HEARTH_PROTECTED, 5000, &err), err);
    must(hearth_test(handle, &st, &err), err);
    cr_assert(eq(u32, st.level, HEARTH_PROTECTED));
    cr_assert(eq(u64, st.step, 5));
    cr_assert(gt(u64, st.copied, 0));
    hearth_handle_close(handle);
    rank_end(&r);
}

Test(handle, copied_is_waited_for_where_it_comes_after_complete)
{
    struct rank r;
    float x = 1;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);
    struct hearth_error err = { 0 };
    struct hearth_handle *handle;
    struct hearth_save *save;

    rank_start(&r);
    rank_open(&r);
    fake_hold(r.fake, HEARTH_COMPLETE); /* it says nothing of the levels below */
    save = rank_begin(r.h, 5, 8192);
    must(hearth_save_add(save, &piece, 1, &err), err);
    handle = rank_commit(save);
    must(hearth_wait(handle, HEARTH_COMPLETE, 5000, &err), err);
    must_fail(hearth_wait(handle, HEARTH_COPIED, 100, &err), HEARTH_ETIMEOUT);
    cr_assert(ne(ptr, strstr(err.text, "COMPLETE and not COPIED"), NULL), "%s", err.text);
    fake_hold(r.fake, 0);
    must(hearth_wait(handle, HEARTH_COPIED, 5000, &err), err);
    hearth_handle_close(handle);
    rank_end(&r);
}

Test(handle, fails_with_the_reason_and_the_next_save_works)
{
    struct rank r;
    float x = 1;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);
    struct hearth_error err = { 0 };
    struct hearth_handle *handle;
    struct hearth_save *save;

    rank_start(&r);
    rank_open(&r);
    fake_hold(r.fake, HEARTH_SEALED);
    save = rank_begin(r.h, 5, 8192);
    must(hearth_save_add(save, &piece, 1, &err), err);
    handle = rank_commit(save);
    fake_cancel_all(r.fake, "node c has no room");
    must_fail(hearth_wait(handle, HEARTH_PROTECTED, 5000, &err), HEARTH_EFAILED);
    cr_assert(ne(ptr, strstr(err.text, "node c has no room"), NULL), "%s", err.text);
    hearth_handle_close(handle);
    fake_hold(r.fake, 0);
    rank_save(r.h, 6, &piece, 1, NULL, 0);
    rank_end(&r);
}

Test(handle, cancel_fails_it)
{
    struct rank r;
    float x = 1;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);
    struct hearth_handle *handle;
    struct hearth_save *save;

    rank_start(&r);
    rank_open(&r);
    fake_hold(r.fake, HEARTH_SEALED);
    save = rank_begin(r.h, 5, 8192);
    must(hearth_save_add(save, &piece, 1, NULL));
    handle = rank_commit(save);
    must(hearth_cancel(handle, NULL));
    must_fail(hearth_wait(handle, HEARTH_PROTECTED, 5000, NULL), HEARTH_EFAILED);
    hearth_handle_close(handle);
    rank_end(&r);
}

static void *bring_back(void *arg)
{
    usleep(200000);
    fake_back(arg);
    return NULL;
}

Test(engine, that_dies_and_comes_back_is_followed)
{
    struct rank r;
    float x = 8;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);
    struct hearth_error err = { 0 };
    struct hearth_handle *handle;
    struct hearth_save *save, *open_one;
    pthread_t t;

    rank_start(&r);
    rank_open(&r);
    fake_hold(r.fake, HEARTH_SEALED);
    save = rank_begin(r.h, 5, 8192);
    must(hearth_save_add(save, &piece, 1, &err), err);
    handle = rank_commit(save);
    open_one = rank_begin(r.h, 6, 8192);
    must(hearth_save_add(open_one, &piece, 1, &err), err);
    fake_crash(r.fake);
    pthread_create(&t, NULL, bring_back, r.fake);
    must_fail(hearth_wait(handle, HEARTH_PROTECTED, 1000, &err), HEARTH_ETIMEOUT);
    pthread_join(t, NULL);
    fake_hold(r.fake, 0);
    must(hearth_wait(handle, HEARTH_PROTECTED, 5000, &err), err);
    cr_assert(ge(u32, fake_counts(r.fake).regains, 1)); /* of the other one at least */
    hearth_handle_close(handle);
    rank_protect(rank_commit(open_one)); /* it was being written when the engine died */
    rank_save(r.h, 7, &piece, 1, NULL, 0);
    rank_end(&r);
}

static void *end_while_it_is_asked(void *arg)
{
    usleep(300000);
    fake_crash(arg);
    fake_silence(arg, 0);
    fake_back(arg);
    return NULL;
}

/* It ends once more just as it is asked about the save: that is no verdict on the save. */
Test(engine, that_dies_again_at_once_is_followed)
{
    struct rank r;
    float x = 8;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);
    struct hearth_error err = { 0 };
    struct hearth_handle *handle;
    struct hearth_save *save;
    pthread_t t;

    rank_start(&r);
    rank_open(&r);
    fake_hold(r.fake, HEARTH_SEALED);
    save = rank_begin(r.h, 5, 8192);
    must(hearth_save_add(save, &piece, 1, &err), err);
    handle = rank_commit(save);
    fake_crash(r.fake);
    fake_silence(r.fake, HTH_LOCAL_FOLLOW);
    fake_hold(r.fake, 0);
    fake_back(r.fake);
    pthread_create(&t, NULL, end_while_it_is_asked, r.fake);
    cr_assert(eq(int, hearth_wait(handle, HEARTH_PROTECTED, 10000, &err), 0), "%s", err.text);
    pthread_join(t, NULL);
    hearth_handle_close(handle);
    rank_end(&r);
}

struct saver {
    struct hearth *h;
    int id, failed;
};

static void *save_many(void *arg)
{
    struct saver *s = arg;
    float x = (float)s->id;
    char name[20] = "t";
    struct hearth_piece piece = rank_piece(name, &x, 0, NULL);
    struct hearth_begin_opts o = { .struct_size = sizeof(o), .name = name };

    for (int i = 0; i < 30; i++) {
        struct hearth_save *save;
        struct hearth_handle *handle;

        snprintf(name, sizeof(name), "t%d", s->id);
        if (hearth_save_begin(s->h, (uint64_t)(s->id + 4 * i), 8192, &o, &save, NULL) ||
                hearth_save_add(save, &piece, 1, NULL) || hearth_save_commit(save, &handle, NULL))
            s->failed++;
        else if (hearth_wait(handle, HEARTH_SEALED, 10000, NULL))
            s->failed++;
        else
            hearth_handle_close(handle);
    }
    return NULL;
}

Test(threads, share_one_connection)
{
    struct rank r;
    struct saver s[4];
    pthread_t t[4];

    rank_start(&r);
    rank_open(&r);
    for (int i = 0; i < 4; i++) {
        s[i] = (struct saver){ r.h, i, 0 };
        pthread_create(&t[i], NULL, save_many, &s[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        cr_assert(eq(int, s[i].failed, 0));
    }
    rank_end(&r);
}

Test(copying, threads_block_all_signals)
{
    struct rank r;
    enum { N = 8 << 20 };
    float *x = calloc(N, sizeof(*x));
    int64_t n = N;
    struct hearth_piece piece = rank_piece("x", x, 1, &n);
    char path[300], line[256];
    struct dirent *e;
    DIR *tasks;
    int blocked = 0;

    rank_start(&r);
    rank_open(&r);
    rank_save(r.h, 1, &piece, 1, NULL, 0);
    tasks = opendir("/proc/self/task");
    while (tasks && (e = readdir(tasks))) {
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "re");

        while (f && fgets(line, sizeof(line), f))
            blocked += !strncmp(line, "SigBlk:\tfffffffe", 16);
        if (f)
            fclose(f);
    }
    if (tasks)
        closedir(tasks);
    cr_assert(ge(int, blocked, 1));
    free(x);
    rank_end(&r);
}

/* A common object of `len` bytes is put under that limit, and must be refused with `says`. */
static void refused_under(int resource, rlim_t limit, size_t len, const char *says)
{
    static const char bytes[8192];
    struct rank r;
    struct hearth_error err = { 0 };
    struct rlimit was, less;
    struct hearth_save *save;
    int rc;

    rank_start(&r);
    rank_open(&r);
    save = rank_begin(r.h, 1, 1 << 20);
    cr_assert(zero(int, getrlimit(resource, &was)));
    less = (struct rlimit){ limit, was.rlim_max };
    cr_assert(zero(int, setrlimit(resource, &less)));
    rc = hearth_save_put_common(save, "c", bytes, len, &err);
    cr_assert(zero(int, setrlimit(resource, &was)));
    must_fail(rc, HEARTH_ENOMEM);
    cr_assert(ne(ptr, strstr(err.text, says), NULL), "%s", err.text);
    hearth_save_abort(save);
    rank_end(&r);
}

Test(save, a_common_object_without_a_descriptor_for_it_is_refused_in_words)
{
    refused_under(RLIMIT_NOFILE, 0, 8, "ulimit -n");
}

/* The kernel's own answer is a signal that ends the process. */
Test(save, a_common_object_above_the_limit_of_a_file_is_refused_in_words)
{
    refused_under(RLIMIT_FSIZE, 4096, 8192, "ulimit -f");
}
