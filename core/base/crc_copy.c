/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies behind each other and the CRC32C of what they wrote, in one pass. Whole lines go past the
 * caches. Bytes that fill no line wait in a buffer for those that come next:
 *
 *     source   |    a    | b |           c             |      d ...
 *     target   | line | line | step | step | line | line | ...
 *                ^ a's end, b and c's beginning, from the buffer
 *
 * In steps the sum is kept folded: eight vectors, each of which stands for all bytes of its place
 * so far,
 *
 *     step   | v0 | v1 | ... | v7 | v0 | v1 | ...    sum[i] = sum[i] * x^(bits of a step) + v[i]
 *
 * and at the end they are summed up like the message that they are (Gopal, Ozturk and others,
 * "Fast CRC Computation ... Using PCLMULQDQ", Intel 2009). Loads that feed the sum are the ones
 * that are stored, so a source that changes meanwhile cannot come between them.
 */
#include "crc_copy.h"

#include "crc.h"

#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define BLOCK ((size_t)16 << 10) /* in a processor's cache */
#define LINE  HTH_CRC_LINE
#define AHEAD ((size_t)2 << 10) /* read into the cache before it is used */
#define SUMS  8

struct hth_crc_way {
    const char *name;
    /* Copies len bytes, a multiple of `step` and not 0, to the beginning of a line; `next` is read
     * soon after. NULL: no lines, and all is copied as it comes. */
    uint32_t (*steps)(uint32_t crc, unsigned char *to, const unsigned char *from, size_t len,
            const unsigned char *next);
    size_t step;
};

static void put_plain(struct hth_crc_stream *s, const unsigned char *from, size_t len)
{
    for (size_t n; len; len -= n, s->to += n, from += n) {
        n = len < BLOCK ? len : BLOCK;
        memcpy(s->to, from, n);
        s->crc = hth_crc32c_more(s->crc, s->to, n);
    }
}

#ifdef __x86_64__
/* x^(n + 32) and x^(n - 32) modulo the polynomial, n bits in a step; bits reversed, and so by one
 * bit too low in a product. */
#define FOLD_128_LOW  0x6992cea2ull
#define FOLD_128_HIGH 0x0d3b6092ull
#define FOLD_256_LOW  0xdcb17aa4ull
#define FOLD_256_HIGH 0xb9e02b86ull

__attribute__((target("sse4.2"))) static uint32_t sum_words(
        uint32_t crc, const void *at, size_t words)
{
    uint64_t sum = crc, word;

    for (size_t i = 0; i < words; i++) {
        memcpy(&word, (const unsigned char *)at + i * sizeof(word), sizeof(word));
        sum = _mm_crc32_u64(sum, word);
    }
    return (uint32_t)sum;
}

__attribute__((target("sse4.2"))) static uint32_t sum_bytes(
        uint32_t crc, const unsigned char *at, size_t len)
{
    crc = sum_words(~crc, at, len / sizeof(uint64_t));
    for (size_t i = len / sizeof(uint64_t) * sizeof(uint64_t); i < len; i++)
        crc = _mm_crc32_u8(crc, at[i]);
    return ~crc;
}

/* The source bytes that a step fetches: those that are copied AHEAD bytes later. */
static const char *fetch_from(
        const unsigned char *from, size_t at, size_t len, const unsigned char *next)
{
    return (const char *)(at + AHEAD < len ? from + at + AHEAD : next + (at + AHEAD - len));
}

/* Eight sums in registers: as an array the compiler keeps them in memory. */
#define EACH_SUM(do) \
    do               \
    (0) do(1) do(2) do(3) do(4) do(5) do(6) do(7)
#define ALL_SUMS                       \
    {                                  \
        s0, s1, s2, s3, s4, s5, s6, s7 \
    }

#define FIRST_128(i)                                           \
    __m128i s##i = _mm_loadu_si128((const __m128i *)from + i); \
    _mm_stream_si128((__m128i *)to + i, s##i);
#define NEXT_128(i)                                                            \
    next_sum = _mm_loadu_si128((const __m128i *)(from + at) + i);              \
    _mm_stream_si128((__m128i *)(to + at) + i, next_sum);                      \
    s##i = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(s##i, fold, 0x00), \
                                 _mm_clmulepi64_si128(s##i, fold, 0x11)),      \
            next_sum);

__attribute__((target("sse4.2,pclmul"))) static uint32_t copy_steps_128(uint32_t crc,
        unsigned char *to, const unsigned char *from, size_t len, const unsigned char *next)
{
    const __m128i fold = _mm_set_epi64x(FOLD_128_HIGH, FOLD_128_LOW);
    const size_t step = SUMS * sizeof(fold);
    __m128i next_sum;

    EACH_SUM(FIRST_128)
    s0 = _mm_xor_si128(s0, _mm_cvtsi32_si128((int)~crc));
    for (size_t at = step; at < len; at += step) {
        const char *ahead = fetch_from(from, at, len, next);

        _mm_prefetch(ahead, _MM_HINT_T0);
        _mm_prefetch(ahead + LINE, _MM_HINT_T0);
        EACH_SUM(NEXT_128)
    }
    const __m128i sum[SUMS] = ALL_SUMS;
    return ~sum_words(0, sum, sizeof(sum) / (sizeof(uint64_t)));
}

#define FIRST_256(i)                                              \
    __m256i s##i = _mm256_loadu_si256((const __m256i *)from + i); \
    _mm256_stream_si256((__m256i *)to + i, s##i);
#define NEXT_256(i)                                                                      \
    next_sum = _mm256_loadu_si256((const __m256i *)(from + at) + i);                     \
    _mm256_stream_si256((__m256i *)(to + at) + i, next_sum);                             \
    s##i = _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(s##i, fold, 0x00), \
                                    _mm256_clmulepi64_epi128(s##i, fold, 0x11)),         \
            next_sum);

__attribute__((target("avx2,sse4.2,pclmul,vpclmulqdq"))) static uint32_t copy_steps_256(
        uint32_t crc, unsigned char *to, const unsigned char *from, size_t len,
        const unsigned char *next)
{
    const __m256i fold =
            _mm256_set_epi64x(FOLD_256_HIGH, FOLD_256_LOW, FOLD_256_HIGH, FOLD_256_LOW);
    const size_t step = SUMS * sizeof(fold);
    __m256i next_sum;

    EACH_SUM(FIRST_256)
    s0 = _mm256_xor_si256(s0, _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)~crc)));
    for (size_t at = step; at < len; at += step) {
        const char *ahead = fetch_from(from, at, len, next);

        _mm_prefetch(ahead, _MM_HINT_T0);
        _mm_prefetch(ahead + LINE, _MM_HINT_T0);
        _mm_prefetch(ahead + 2 * LINE, _MM_HINT_T0);
        _mm_prefetch(ahead + 3 * LINE, _MM_HINT_T0);
        EACH_SUM(NEXT_256)
    }
    const __m256i sum[SUMS] = ALL_SUMS;
    return ~sum_words(0, sum, sizeof(sum) / (sizeof(uint64_t)));
}

/* Writes what the line has. A line that is not whole may have other bytes in memory. */
static void line_write(struct hth_crc_stream *s)
{
    if (s->begin || s->end < LINE) {
        memcpy(s->to + s->begin, s->line + s->begin, s->end - s->begin);
    } else {
        for (size_t i = 0; i < LINE; i += sizeof(__m128i))
            _mm_stream_si128((void *)(s->to + i), _mm_loadu_si128((const void *)(s->line + i)));
    }
    s->to += LINE;
    s->begin = s->end = 0;
}

/* Returns how many of the bytes the line took. */
static size_t line_put(struct hth_crc_stream *s, const unsigned char *from, size_t len)
{
    size_t n = LINE - s->end < len ? LINE - s->end : len;

    memcpy(s->line + s->end, from, n);
    s->crc = sum_bytes(s->crc, s->line + s->end, n);
    s->end += n;
    if (s->end == LINE)
        line_write(s);
    return n;
}

static void put_lines(
        struct hth_crc_stream *s, const unsigned char *from, size_t len, const unsigned char *next)
{
    size_t n = len;

    next = next ? next : from + len;
    for (size_t at = 0; at < len && at + len < AHEAD; at += LINE)
        _mm_prefetch((const char *)next + at, _MM_HINT_T0);
    if (s->end && len) {
        n = line_put(s, from, len);
        from += n;
        len -= n;
    }
    n = len / s->way->step * s->way->step;
    if (n) {
        s->crc = s->way->steps(s->crc, s->to, from, n, next);
        s->to += n;
        from += n;
        len -= n;
    }
    for (; len; from += n, len -= n)
        n = line_put(s, from, len);
}

static int may_128(void)
{
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

static int may_256(void)
{
    return may_128() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
}

void hth_crc32c_copied(void)
{
    _mm_sfence();
}
#else
static void put_lines(
        struct hth_crc_stream *s, const unsigned char *from, size_t len, const unsigned char *next)
{
    (void)next;
    put_plain(s, from, len);
}

static void line_write(struct hth_crc_stream *s)
{
    (void)s;
}

void hth_crc32c_copied(void)
{
}
#endif

static const struct hth_crc_way ways[] = {
#ifdef __x86_64__
    { "vpclmulqdq, 256 bits", copy_steps_256, SUMS * sizeof(__m256i) },
    { "pclmul, 128 bits", copy_steps_128, SUMS * sizeof(__m128i) },
#endif
    { "plain", NULL, 1 },
};

const struct hth_crc_way *hth_crc_way(size_t i, const char **out_name)
{
#ifdef __x86_64__
    i += may_256() ? 0 : may_128() ? 1 : 2;
#endif
    if (i >= sizeof(ways) / sizeof(ways[0]))
        return NULL;
    *out_name = ways[i].name;
    return &ways[i];
}

void hth_crc_stream_begin(
        struct hth_crc_stream *s, const struct hth_crc_way *way, void *dst, uint32_t crc)
{
    const char *name;

    s->way = way ? way : hth_crc_way(0, &name);
    s->crc = crc;
    s->begin = s->end = s->way->steps ? (uintptr_t)dst % LINE : 0;
    s->to = (unsigned char *)dst - s->begin;
}

void hth_crc_stream_put(struct hth_crc_stream *s, const void *src, size_t len, const void *next)
{
    if (s->way->steps)
        put_lines(s, src, len, next);
    else
        put_plain(s, src, len);
}

uint32_t hth_crc_stream_end(struct hth_crc_stream *s)
{
    if (s->end > s->begin)
        line_write(s);
    return s->crc;
}
