/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "core/base/auth.h"
#include "core/format/epoch.h"
#include "core/format/rows.h"
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 40 };

static void round_trip(const unsigned char *rows, size_t len, uint32_t count)
{
    size_t most = (size_t)hth_rows_most(len, count), n;
    unsigned char *packed = malloc(most), *again = malloc(len * count);

    n = hth_rows_pack(packed, rows, len, count);
    cr_assert(le(sz, n, most));
    must(hth_rows_unpack(again, len, count, packed, n));
    cr_assert(zero(int, memcmp(rows, again, len * count)));
    for (size_t cut = 0; cut < n; cut += 1 + n / 50) /* a part of it is no table */
        cr_assert(eq(int, hth_rows_unpack(again, len, count, packed, cut), HEARTH_EPROTO));
    if (count > 1)
        cr_assert(eq(int, hth_rows_unpack(again, len, count - 1, packed, n), HEARTH_EPROTO));
    free(packed);
    free(again);
}

Test(rows, of_any_length_unpack_to_what_was_packed)
{
    unsigned char rows[MOST * 8];
    uint64_t x = 88172645463325252u;

    for (size_t len = 1; len <= MOST; len++)
        for (int alike = 0; alike < 4; alike++) {
            for (size_t i = 0; i < len * 8; i++) {
                x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                rows[i] = i >= len && alike && x >> 32 & 3 ? rows[i - len] : (unsigned char)x;
                rows[i] = alike == 3 ? 0 : rows[i];
            }
            round_trip(rows, len, 8);
        }
}

Test(rows, have_one_packed_form)
{
    static const unsigned char fine[] = { 1, 1, 2, 3, 4, 5, 6, 7, 8, 2, 9, 10 };
    unsigned char rows[2 * 10], bent[sizeof(fine)];

    must(hth_rows_unpack(rows, 10, 2, fine, sizeof(fine)));
    cr_assert(eq(u8, rows[0], 1));
    cr_assert(eq(u8, rows[18], 9));
    memcpy(bent, fine, sizeof(fine));
    bent[0] = 5; /* a bit of no word */
    must_fail(hth_rows_unpack(rows, 10, 2, bent, sizeof(bent)), HEARTH_EPROTO);
    memcpy(bent, fine, sizeof(fine));
    bent[10] = bent[11] = 0; /* called different, and the same */
    must_fail(hth_rows_unpack(rows, 10, 2, bent, sizeof(bent)), HEARTH_EPROTO);
}

/* The bytes of one answer of rank 0, in a job whose every node has its own name, store, address and
 * machine, and whose every rank has its own random number, clock and proof. */
static size_t packed_bytes(uint32_t nodes, uint32_t per_node)
{
    uint32_t count = nodes * per_node;
    unsigned char *rows = malloc((size_t)count * HTH_GATHER);
    unsigned char *packed = malloc((size_t)hth_rows_most(HTH_GATHER, count));
    size_t n;

    must(hth_auth_init(NULL));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t node = i / per_node;
        struct hth_gather g = { .job = "a-large-job",
            .store = node * UINT64_C(0x9e3779b97f4a7c15) | 1,
            .machine = node * UINT64_C(0xd1342543de82ef95) | 1,
            .loopback = node * 2 + 2,
            .highest_epoch = 1764000000000u,
            .wall_ms = 1764000000000u + i,
            .copies = 1,
            .min_copies = 1,
            .keep = 1,
            .heartbeat_ms = 1000,
            .dead_ms = 10000,
            .transport = "ofi",
            .provider = "verbs",
            .version_low = 6,
            .version_high = 6,
            .addr_len = 48,
            .domain = { 1 + node / 32, 1 + node / 1024 },
            .fabrics = 7,
            .rank = i,
            .world = count };

        hth_random_bytes(&g.random, sizeof(g.random));
        hth_random_bytes(g.proof, sizeof(g.proof));
        memset(g.addr, 0x5a, g.addr_len);
        memcpy(g.addr + 8, &g.store, sizeof(g.store));
        memcpy(g.addr + 24, &g.machine, sizeof(g.machine));
        snprintf(g.node, sizeof(g.node), "gpu-node-%05u.cluster", node);
        hth_gather_encode(&g, rows + (size_t)i * HTH_GATHER);
    }
    n = hth_rows_pack(packed, rows, HTH_GATHER, count);
    round_trip(rows, HTH_GATHER, 8);
    free(rows);
    free(packed);
    return n;
}

Test(rows, of_1024_nodes_by_8_ranks_take_less_than_a_ninth_packed)
{
    size_t n = packed_bytes(1024, 8);

    cr_assert(lt(sz, n, (size_t)8192 * HTH_GATHER / 9), "%zu bytes", n);
}

Test(rows, of_16384_nodes_by_8_ranks_take_less_than_8_mib_packed)
{
    size_t n = packed_bytes(16384, 8);

    cr_assert(lt(sz, n, (size_t)8 << 20), "%zu bytes", n);
}
