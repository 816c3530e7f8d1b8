/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums that a rank makes while it copies. */
#include "check.h"
#include "rank.h"

#include "client/slots/copy.h"
#include "core/base/env.h"
#include "core/format/chunk.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUM_CALLS = 12, SUM_PIECES = 40, SUM_BYTES = 2 << 20 };

static struct {
    struct hearth_piece piece[SUM_PIECES];
    int64_t shape[SUM_PIECES][2], strides[SUM_PIECES][2];
    char key[SUM_CALLS * SUM_PIECES + 1][16];
    size_t keys;
} sum;

/* A random piece of the source, every second one transposed or with gaps, of elements that are 1 to
 * 16 bytes. */
static void sum_piece(size_t i, unsigned char *src, uint64_t *seed)
{
    static const uint32_t dtypes[] = { HEARTH_UINT8, HEARTH_INT16, HEARTH_FLOAT32, HEARTH_FLOAT64,
        HEARTH_COMPLEX128 };
    uint32_t dtype = dtypes[hth_splitmix64(seed) % 5], each = (uint32_t)hearth_dtype_bytes(dtype);
    uint64_t max = hth_splitmix64(seed) % 3 ? 3000 : SUM_BYTES;
    int64_t n = (int64_t)(hth_splitmix64(seed) % (max / each)),
            rows = (int64_t)(hth_splitmix64(seed) % 9);
    struct hearth_piece *p = &sum.piece[i];

    snprintf(sum.key[sum.keys], sizeof(sum.key[0]), "k%zu", sum.keys);
    sum.shape[i][0] = rows;
    sum.shape[i][1] = rows ? n / rows : n;
    sum.strides[i][0] = 1;
    sum.strides[i][1] = rows;
    *p = rank_piece(sum.key[sum.keys++], src + hth_splitmix64(seed) % 64 * 16, 2, sum.shape[i]);
    p->dtype = dtype;
    if (hth_splitmix64(seed) % 2) { /* rows with a gap behind each */
        sum.strides[i][0] = sum.shape[i][1] + 3;
        sum.strides[i][1] = 1;
    }
    if (hth_splitmix64(seed) % 4 < 2)
        p->strides = sum.strides[i];
}

static void sum_call(struct hearth_save *save, unsigned char *src, uint64_t *seed)
{
    size_t count = 1 + hth_splitmix64(seed) % (SUM_PIECES - 1);
    struct hearth_error err = { 0 };

    for (size_t i = 0; i < count; i++)
        sum_piece(i, src, seed);
    if (hth_splitmix64(seed) % 3 == 0) { /* its first key is there twice */
        sum.piece[count] = sum.piece[0];
        must_fail(hearth_save_add(save, sum.piece, count + 1, &err),
                sum.shape[0][0] && sum.shape[0][1] ? HEARTH_EINVAL : HEARTH_OK);
        if (!(sum.shape[0][0] && sum.shape[0][1]))
            return;
    }
    cr_assert(eq(int, hearth_save_add(save, sum.piece, count, &err), 0), "%s", err.text);
}

/* The fake engine compares the sums of each SEAL with those of the bytes. */
Test(sums, are_those_of_the_chunks_whatever_calls_a_save_is_made_of)
{
    unsigned char *src = malloc(SUM_BYTES + 2048);
    struct hearth_bytes text = {
        .struct_size = sizeof(text), .key = "text", .key_len = 4, .data = src
    };
    struct hearth_error err = { 0 };
    uint64_t seed = 20;
    struct rank r;

    for (size_t i = 0; i < SUM_BYTES + 2048; i++)
        src[i] = (unsigned char)(i * 131 + i / 251);
    rank_start(&r);
    r.opts.copy_threads = 3;
    rank_open(&r);
    for (uint32_t round = 1; round <= 12; round++) {
        struct hearth_save *save = rank_begin(r.h, round, (uint64_t)64 << 20);

        sum.keys = 0;
        for (uint32_t i = 0; i < hth_splitmix64(&seed) % SUM_CALLS; i++)
            sum_call(save, src, &seed);
        text.len = hth_splitmix64(&seed) % SUM_BYTES;
        cr_assert(eq(int, hearth_save_add_bytes(save, &text, 1, &err), 0), "%s", err.text);
        rank_protect(rank_commit(save));
        cr_assert(eq(u32, fake_counts(r.fake).summed, round));
    }
    rank_end(&r);
    free(src);
}

/* The engine compares them when it makes its SHA-256. */
Test(sums, are_made_where_integrity_is_strong_too)
{
    float x[4] = { 1, 2, 3, 4 };
    int64_t shape[] = { 4 };
    struct hearth_piece piece = rank_piece("x", x, 1, shape);
    struct rank r;

    rank_start(&r);
    r.opts.integrity = HEARTH_INTEGRITY_STRONG;
    rank_open(&r);
    rank_save(r.h, 1, &piece, 1, NULL, 0);
    cr_assert(eq(u32, fake_counts(r.fake).summed, 1));
    rank_end(&r);
}

Test(sums, of_a_save_that_its_caller_may_write_into_are_left_to_the_engine)
{
    float x[4] = { 1, 2, 3, 4 };
    int64_t shape[] = { 4 };
    struct hearth_piece piece = rank_piece("x", x, 1, shape), more = rank_piece("y", x, 1, shape);
    struct hearth_save *save;
    struct rank r;
    uint64_t room;
    void *at;

    rank_start(&r);
    rank_open(&r);
    for (uint64_t step = 1; step <= 3; step++) {
        save = rank_begin(r.h, step, 4096);
        must(hearth_save_add(save, &piece, 1, NULL));
        if (step == 1)
            must(hearth_save_stage(save, &more, 1, &at, NULL));
        else if (step == 2)
            must(hearth_save_reserve(save, &more, 1, &at, NULL));
        else
            must(hearth_save_data(save, &at, &room, NULL));
        memset(at, 7, sizeof(x));
        rank_protect(rank_commit(save));
    }
    cr_assert(eq(u32, fake_counts(r.fake).summed, 0));
    save = rank_begin(r.h, 4, 4096);
    must(hearth_save_add(save, &piece, 1, NULL));
    must_fail(hearth_save_stage(save, &piece, 1, &at, NULL), HEARTH_EINVAL);
    rank_protect(rank_commit(save));
    cr_assert(eq(u32, fake_counts(r.fake).summed, 1), "a call that was refused gave no place");
    rank_end(&r);
}

/* ---- Progress of a copy --------------------------------------------------------------------- */

#define PROGRESS (((size_t)200 << 20) + 4321)

static struct {
    unsigned char *src, *dst;
    uint64_t told;
    uint32_t calls, wrong;
} progress;

/* What is reported has been copied, while other threads copy on. */
static void progress_said(void *self, uint64_t bytes)
{
    (void)self;
    progress.calls++;
    progress.wrong += memcmp(progress.dst + progress.told, progress.src + progress.told,
                              bytes - progress.told) != 0;
    progress.told = bytes;
}

static void progress_of(uint32_t threads, uint64_t at)
{
    struct hth_crew *crew = hth_crew_open(threads);
    struct hth_copies list = { .at = at, .progress = progress_said };

    memset(progress.dst, 0, PROGRESS);
    progress.told = progress.calls = progress.wrong = 0;
    list.crc = calloc(HTH_CHUNKS(at + PROGRESS) + 1, sizeof(*list.crc));
    for (size_t off = 0, len; off < PROGRESS; off += len) {
        len = PROGRESS - off < 1000003 ? PROGRESS - off : 1000003;
        must(hth_copies_add(&list, progress.dst + off, progress.src + off, len, NULL));
    }
    hth_crew_run(crew, &list);
    if (threads == 1) /* with more, one of them may stand still in an early part */
        cr_assert(eq(u32, progress.calls, 3));
    cr_assert(zero(u32, progress.wrong), "%u threads", threads);
    cr_assert(zero(u64, progress.told ? (at + progress.told) % HTH_CHUNK : 0));
    cr_assert(zero(int, memcmp(progress.dst, progress.src, PROGRESS)));
    free(list.crc);
    hth_copies_fini(&list);
    hth_crew_close(crew);
}

Test(sums, a_copy_reports_only_what_is_copied)
{
    uint64_t seed = 5;

    progress.src = malloc(PROGRESS);
    progress.dst = malloc(PROGRESS);
    for (size_t i = 0; i + 8 <= PROGRESS; i += 4096)
        *(uint64_t *)(void *)(progress.src + i) = hth_splitmix64(&seed) | 1;
    for (uint32_t threads = 1; threads <= 8; threads *= 2)
        progress_of(threads, threads * 12345);
    free(progress.src);
    free(progress.dst);
}
