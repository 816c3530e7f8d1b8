/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's own limit: each thread copies one part. The plain copy is the better of memcpy()
 * and stores past the caches, found at the first call, so that the limit is no straw man.
 */
#include "bench.h"

#include <pthread.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define THREADS_MAX 64u

struct part {
    unsigned char *dst;
    const unsigned char *src;
    uint64_t bytes;             /* plain */
    uint64_t row, step, rows;   /* rows of `row` bytes, `step` apart in src */
    uint64_t cols, first, last; /* turned: rows x cols of 4 bytes; rows first to last of dst */
    void (*run)(const struct part *p);
    pthread_t thread;
};

static void plain(const struct part *p)
{
    memcpy(p->dst, p->src, p->bytes);
}

static void streamed(const struct part *p)
{
#ifdef __SSE2__
    uint64_t lead = -(uintptr_t)p->dst & 15, i = lead;

    memcpy(p->dst, p->src, lead);
    for (; i + 64 <= p->bytes; i += 64)
        for (unsigned k = 0; k < 64; k += 16)
            _mm_stream_si128(
                    (void *)(p->dst + i + k), _mm_loadu_si128((const void *)(p->src + i + k)));
    memcpy(p->dst + i, p->src + i, p->bytes - i);
    _mm_sfence();
#else
    plain(p);
#endif
}

static void by_rows(const struct part *p)
{
    for (uint64_t r = 0; r < p->rows; r++)
        memcpy(p->dst + r * p->row, p->src + r * p->step, p->row);
}

static void turned(const struct part *p)
{
    uint32_t *dst = (void *)p->dst;
    const uint32_t *src = (const void *)p->src;

    for (uint64_t r = p->first; r < p->last; r++)
        for (uint64_t c = 0; c < p->cols; c++)
            dst[r * p->cols + c] = src[c * p->rows + r];
}

static void *start(void *arg)
{
    const struct part *p = arg;

    p->run(p);
    return NULL;
}

static double run(struct part *part, unsigned threads)
{
    double begin = now_s();

    for (unsigned i = 1; i < threads; i++)
        if (pthread_create(&part[i].thread, NULL, start, &part[i]))
            die("no thread for the copy");
    start(&part[0]);
    for (unsigned i = 1; i < threads; i++)
        pthread_join(part[i].thread, NULL);
    return now_s() - begin;
}

static double copy_with(void (*how)(const struct part *), void *dst, const void *src,
        uint64_t bytes, unsigned threads)
{
    struct part part[THREADS_MAX];
    uint64_t each = bytes / threads / 64 * 64;

    for (unsigned i = 0; i < threads; i++)
        part[i] = (struct part){ .dst = (unsigned char *)dst + i * each,
            .src = (const unsigned char *)src + i * each,
            .bytes = i + 1 < threads ? each : bytes - i * each,
            .run = how };
    return run(part, threads);
}

double copy_s(void *dst, const void *src, uint64_t bytes, unsigned threads)
{
    static void (*best)(const struct part *);

    if (!best) {
        double a, b;

        copy_with(plain, dst, src, bytes, threads);
        a = copy_with(plain, dst, src, bytes, threads);
        b = copy_with(streamed, dst, src, bytes, threads);
        best = a < b ? plain : streamed;
    }
    return copy_with(best, dst, src, bytes, threads);
}

double copy_rows_s(
        void *dst, const void *src, uint64_t row, uint64_t step, uint64_t rows, unsigned threads)
{
    struct part part[THREADS_MAX];
    uint64_t each = rows / threads;

    for (unsigned i = 0; i < threads; i++)
        part[i] = (struct part){ .dst = (unsigned char *)dst + i * each * row,
            .src = (const unsigned char *)src + i * each * step,
            .row = row,
            .step = step,
            .rows = i + 1 < threads ? each : rows - i * each,
            .run = by_rows };
    return run(part, threads);
}

double copy_turned_s(
        uint32_t *dst, const uint32_t *src, uint64_t rows, uint64_t cols, unsigned threads)
{
    struct part part[THREADS_MAX];

    for (unsigned i = 0; i < threads; i++)
        part[i] = (struct part){ .dst = (void *)dst,
            .src = (const void *)src,
            .rows = rows,
            .cols = cols,
            .first = rows * i / threads,
            .last = rows * (i + 1) / threads,
            .run = turned };
    return run(part, threads);
}
