/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy and the CRC32C of what it wrote, in one pass. The sum of a long run is kept folded: eight
 * vectors, each of which stands for all bytes of its place so far,
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

#define STREAM_MIN ((size_t)2 << 10)  /* below, the partial lines at both ends cost more */
#define BLOCK      ((size_t)16 << 10) /* in a processor's cache */
#define LINE       ((size_t)64)
#define AHEAD      ((size_t)2 << 10) /* read into the cache before it is used */
#define SUMS       8

static uint32_t copy_plain(uint32_t crc, void *dst, const void *src, size_t len)
{
    unsigned char *to = dst;
    const unsigned char *from = src;

    for (size_t n; len; len -= n, to += n, from += n) {
        n = len < BLOCK ? len : BLOCK;
        memcpy(to, from, n);
        crc = hth_crc32c_more(crc, to, n);
    }
    return crc;
}

#ifdef __x86_64__
typedef uint32_t copy_steps_fn(
        uint32_t crc, unsigned char *to, const unsigned char *from, size_t len);

/* x^(n + 32) and x^(n - 32) modulo the polynomial, n bits in a step; bits reversed, and so by one
 * bit too low in a product. */
#define FOLD_128_LOW  0x6992cea2ull
#define FOLD_128_HIGH 0x0d3b6092ull
#define FOLD_256_LOW  0xdcb17aa4ull
#define FOLD_256_HIGH 0xb9e02b86ull

__attribute__((target("sse4.2"))) static uint32_t fold_end(const void *sums, size_t len)
{
    uint64_t crc = 0, word;

    for (size_t i = 0; i < len; i += sizeof(word)) {
        memcpy(&word, (const unsigned char *)sums + i, sizeof(word));
        crc = _mm_crc32_u64(crc, word);
    }
    return ~(uint32_t)crc;
}

/* len is a multiple of a step and not 0; `to` is at the beginning of a line. */
__attribute__((target("sse4.2,pclmul"))) static uint32_t copy_steps_128(
        uint32_t crc, unsigned char *to, const unsigned char *from, size_t len)
{
    const __m128i fold = _mm_set_epi64x(FOLD_128_HIGH, FOLD_128_LOW);
    const size_t step = SUMS * sizeof(fold);
    __m128i sum[SUMS];

    for (size_t i = 0; i < SUMS; i++) {
        sum[i] = _mm_loadu_si128((const __m128i *)from + i);
        _mm_stream_si128((__m128i *)to + i, sum[i]);
    }
    sum[0] = _mm_xor_si128(sum[0], _mm_cvtsi32_si128((int)~crc));
    for (size_t at = step; at < len; at += step) {
        const __m128i *v = (const void *)(from + at);
        __m128i *out = (void *)(to + at);

        for (size_t line = 0; line < step && at + AHEAD < len; line += LINE)
            _mm_prefetch((const char *)v + AHEAD + line, _MM_HINT_NTA);
#pragma GCC unroll 8
        for (size_t i = 0; i < SUMS; i++) {
            __m128i next = _mm_loadu_si128(v + i);
            __m128i low = _mm_clmulepi64_si128(sum[i], fold, 0x00);
            __m128i high = _mm_clmulepi64_si128(sum[i], fold, 0x11);

            _mm_stream_si128(out + i, next);
            sum[i] = _mm_xor_si128(_mm_xor_si128(low, high), next);
        }
    }
    return fold_end(sum, sizeof(sum));
}

__attribute__((target("avx2,sse4.2,pclmul,vpclmulqdq"))) static uint32_t copy_steps_256(
        uint32_t crc, unsigned char *to, const unsigned char *from, size_t len)
{
    const __m256i fold =
            _mm256_set_epi64x(FOLD_256_HIGH, FOLD_256_LOW, FOLD_256_HIGH, FOLD_256_LOW);
    const size_t step = SUMS * sizeof(fold);
    __m256i sum[SUMS];

    for (size_t i = 0; i < SUMS; i++) {
        sum[i] = _mm256_loadu_si256((const __m256i *)from + i);
        _mm256_stream_si256((__m256i *)to + i, sum[i]);
    }
    sum[0] = _mm256_xor_si256(sum[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)~crc)));
    for (size_t at = step; at < len; at += step) {
        const __m256i *v = (const void *)(from + at);
        __m256i *out = (void *)(to + at);

        for (size_t line = 0; line < step && at + AHEAD < len; line += LINE)
            _mm_prefetch((const char *)v + AHEAD + line, _MM_HINT_NTA);
#pragma GCC unroll 8
        for (size_t i = 0; i < SUMS; i++) {
            __m256i next = _mm256_loadu_si256(v + i);
            __m256i low = _mm256_clmulepi64_epi128(sum[i], fold, 0x00);
            __m256i high = _mm256_clmulepi64_epi128(sum[i], fold, 0x11);

            _mm256_stream_si256(out + i, next);
            sum[i] = _mm256_xor_si256(_mm256_xor_si256(low, high), next);
        }
    }
    return fold_end(sum, sizeof(sum));
}

static uint32_t copy_by_steps(copy_steps_fn *steps, size_t step, uint32_t crc, unsigned char *to,
        const unsigned char *from, size_t len)
{
    size_t lead = -(uintptr_t)to & (LINE - 1), whole;

    if (len < STREAM_MIN)
        return copy_plain(crc, to, from, len);
    crc = copy_plain(crc, to, from, lead);
    whole = (len - lead) / step * step;
    crc = steps(crc, to + lead, from + lead, whole);
    return copy_plain(crc, to + lead + whole, from + lead + whole, len - lead - whole);
}

static uint32_t copy_128(uint32_t crc, void *dst, const void *src, size_t len)
{
    return copy_by_steps(copy_steps_128, SUMS * sizeof(__m128i), crc, dst, src, len);
}

static uint32_t copy_256(uint32_t crc, void *dst, const void *src, size_t len)
{
    return copy_by_steps(copy_steps_256, SUMS * sizeof(__m256i), crc, dst, src, len);
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
void hth_crc32c_copied(void)
{
}
#endif

static const struct hth_crc_copier copiers[] = {
#ifdef __x86_64__
    { "vpclmulqdq, 256 bits", copy_256 },
    { "pclmul, 128 bits", copy_128 },
#endif
    { "plain", copy_plain },
};

const struct hth_crc_copier *hth_crc_copiers(size_t *out_count)
{
    size_t skip = 0;

#ifdef __x86_64__
    skip = may_256() ? 0 : may_128() ? 1 : 2;
#endif
    *out_count = sizeof(copiers) / sizeof(copiers[0]) - skip;
    return copiers + skip;
}

uint32_t hth_crc32c_copy(uint32_t crc, void *dst, const void *src, size_t len)
{
    size_t count;

    return hth_crc_copiers(&count)->copy(crc, dst, src, len);
}
