/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C: the check value, both ways of computing it, and continuing. */
#include "check.h"

#include "core/base/crc.h"
#include "core/base/crc_copy.h"
#include "core/base/env.h"

#include <pthread.h>
#include <stdatomic.h>

#define BYTES 70000

static unsigned char bytes[BYTES];

static void fill(uint64_t seed)
{
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)hth_splitmix64(&seed);
}

Test(crc, has_the_check_value_of_castagnoli)
{
    cr_assert(eq(u32, hth_crc32c("123456789", 9), 0xe3069283u));
    cr_assert(eq(u32, hth_crc32c_portable("123456789", 9), 0xe3069283u));
}

Test(crc, has_the_values_of_rfc_3720)
{
    unsigned char block[32] = { 0 };

    cr_assert(eq(u32, hth_crc32c(block, 32), 0x8a9136aau));
    memset(block, 0xff, sizeof(block));
    cr_assert(eq(u32, hth_crc32c(block, 32), 0x62a8ab43u));
    cr_assert(eq(u32, hth_crc32c(block, 0), 0u));
}

Test(crc, both_ways_agree_on_any_length_and_address)
{
    uint64_t seed = 1;

    fill(7);
    for (int round = 0; round < 4000; round++) {
        size_t from = hth_splitmix64(&seed) % 64;
        size_t max = round % 2 ? 40 : BYTES - 64;
        size_t len = hth_splitmix64(&seed) % max;

        cr_assert(eq(u32, hth_crc32c(bytes + from, len), hth_crc32c_portable(bytes + from, len)),
                "%zu bytes from %zu", len, from);
    }
}

Test(crc, goes_on_where_it_stopped)
{
    uint32_t whole;

    fill(9);
    whole = hth_crc32c(bytes, BYTES);
    for (size_t cut = 0; cut <= BYTES; cut += 977) {
        uint32_t front = hth_crc32c(bytes, cut);

        cr_assert(eq(u32, hth_crc32c_more(front, bytes + cut, BYTES - cut), whole));
        cr_assert(eq(u32, hth_crc32c_portable_more(front, bytes + cut, BYTES - cut), whole));
    }
}

Test(crc, of_two_parts_joins_to_that_of_the_whole)
{
    uint64_t seed = 3;

    fill(11);
    for (int round = 0; round < 20000; round++) {
        size_t len = hth_splitmix64(&seed) % (round % 2 ? 300 : BYTES);
        size_t cut = hth_splitmix64(&seed) % (len + 1);
        uint32_t front = hth_crc32c(bytes, cut), back = hth_crc32c(bytes + cut, len - cut);

        cr_assert(eq(u32, hth_crc32c_join(front, back, len - cut), hth_crc32c(bytes, len)),
                "%zu and %zu bytes", cut, len - cut);
    }
}

/* Lengths too large to go over their bytes: by pairs of equal parts, as often as it takes. */
Test(crc, of_parts_of_any_length_joins)
{
    uint32_t zeros = hth_crc32c("", 1), ones = hth_crc32c("\1", 1);

    for (int k = 0; k < 62; k++) {
        uint64_t len = UINT64_C(1) << k;
        uint32_t left = hth_crc32c_join(ones, zeros, len);

        /* (ones || zeros) || zeros is ones || (zeros || zeros) */
        cr_assert(eq(u32, hth_crc32c_join(left, zeros, len),
                          hth_crc32c_join(ones, hth_crc32c_join(zeros, zeros, len), 2 * len)),
                "2^%d bytes", k);
        zeros = hth_crc32c_join(zeros, zeros, len);
        if (k == 15)
            cr_assert(eq(u32, zeros, hth_crc32c(memset(bytes, 0, BYTES), 65536)));
    }
}

/* ---- sums of what is copied ------------------------------------------------------------------ */

static unsigned char copied[BYTES + 128];

struct way {
    const struct hth_crc_way *way;
    const char *name;
};

/* In puts of at most `most` bytes each. */
static uint32_t copy_by(struct way w, uint32_t crc, size_t to, size_t from, size_t len, size_t most)
{
    struct hth_crc_stream s;
    uint64_t seed = len + most;

    hth_crc_stream_begin(&s, w.way, copied + to, crc);
    for (size_t n; len; from += n, len -= n) {
        n = hth_splitmix64(&seed) % most + 1;
        n = n < len ? n : len;
        hth_crc_stream_put(&s, bytes + from, n, n % 3 ? bytes + from + n : NULL);
    }
    crc = hth_crc_stream_end(&s);
    hth_crc32c_copied();
    return crc;
}

static void copy_and_check(struct way w, size_t from, size_t to, size_t len, size_t most)
{
    uint32_t before = (uint32_t)len * 2654435761u, crc;

    memset(copied, 0xa5, sizeof(copied));
    crc = copy_by(w, before, to, from, len, most);
    cr_assert(eq(u32, crc, hth_crc32c_portable_more(before, bytes + from, len)),
            "%s: %zu bytes from %zu to %zu, %zu at once", w.name, len, from, to, most);
    cr_assert(zero(int, memcmp(copied + to, bytes + from, len)), "%s: %zu", w.name, len);
    cr_assert(eq(u8, copied[to + len], 0xa5), "%s: a byte behind", w.name);
    cr_assert(to == 0 || copied[to - 1] == 0xa5, "%s: a byte in front", w.name);
}

Test(crc, each_way_to_copy_sums_up_what_it_wrote_at_any_length_and_address)
{
    uint64_t seed = 5;
    struct way w;
    size_t ways = 0;

    fill(13);
    for (; (w.way = hth_crc_way(ways, &w.name)); ways++) {
        for (int round = 0; round < 2000; round++) {
            size_t len = hth_splitmix64(&seed) % (round % 2 ? 5000 : BYTES - 64);
            size_t most = round % 4 < 2 ? len + 1 : round % 4 == 2 ? 200 : 6000;

            copy_and_check(w, hth_splitmix64(&seed) % 64, hth_splitmix64(&seed) % 64, len, most);
        }
        for (size_t len = 0; len <= 1100; len++)
            copy_and_check(w, len % 7, len % 64, len, len % 2 ? len : 40);
    }
    cr_assert(ge(sz, ways, 1));
    w.way = hth_crc_way(ways - 1, &w.name);
    cr_assert(zero(int, strcmp(w.name, "plain")));
}

/* Two streams that meet within a line leave each other's bytes alone. */
Test(crc, of_copies_that_share_a_line_are_each_of_its_own_bytes)
{
    struct hth_crc_stream left, right;

    fill(29);
    for (size_t cut = 1; cut < 400; cut++) {
        memset(copied, 0xa5, sizeof(copied));
        hth_crc_stream_begin(&right, NULL, copied + cut, 7);
        hth_crc_stream_begin(&left, NULL, copied, 9);
        hth_crc_stream_put(&right, bytes + cut, 1000 - cut, NULL);
        hth_crc_stream_put(&left, bytes, cut, NULL);
        cr_assert(eq(u32, hth_crc_stream_end(&left), hth_crc32c_portable_more(9, bytes, cut)));
        cr_assert(eq(u32, hth_crc_stream_end(&right),
                hth_crc32c_portable_more(7, bytes + cut, 1000 - cut)));
        hth_crc32c_copied();
        cr_assert(zero(int, memcmp(copied, bytes, 1000)), "%zu", cut);
    }
}

static atomic_int changing;

static void *change(void *arg)
{
    while (atomic_load(&changing))
        for (size_t i = 0; i < BYTES; i += 61)
            ((volatile unsigned char *)bytes)[i]++;
    return arg;
}

/* The bytes may be old or new ones; the sum is that of the bytes that arrived. */
__attribute__((no_sanitize("thread"))) static void copy_while_it_changes(struct way w, size_t most)
{
    for (int round = 0; round < 150; round++) {
        uint32_t crc = copy_by(w, 0, 0, 0, BYTES, most);

        cr_assert(eq(u32, crc, hth_crc32c_portable(copied, BYTES)), "%s", w.name);
    }
}

Test(crc, of_a_copy_agrees_with_it_while_the_source_changes)
{
    struct way w;
    pthread_t other;

    fill(17);
    atomic_store(&changing, 1);
    cr_assert(zero(int, pthread_create(&other, NULL, change, NULL)));
    for (size_t i = 0; (w.way = hth_crc_way(i, &w.name)); i++) {
        copy_while_it_changes(w, BYTES);
        copy_while_it_changes(w, 300);
    }
    atomic_store(&changing, 0);
    pthread_join(other, NULL);
}
