/* SPDX-License-Identifier: Apache-2.0 */
/* What proves chunks, made by one thread, against that thread's copy of the same bytes: what
 * `integrity` costs a worker at each look. */
#include "bench.h"

#include "core/base/sha256.h"
#include "core/format/chunk.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct {
    uint64_t mib, chunks;
    unsigned rounds;
    const char *json;
} arg = { .mib = 256, .rounds = 5 };

static unsigned char *data, *back;
static struct hth_proof *proof;

static void chunk_copied(uint64_t c)
{
    memcpy(back + c * HTH_CHUNK, data + c * HTH_CHUNK, HTH_CHUNK);
}

static void chunk_crc32c(uint64_t c)
{
    hth_chunk_prove(&proof[c], data + c * HTH_CHUNK, HTH_CHUNK, 0);
}

static void chunk_strong(uint64_t c)
{
    hth_chunk_prove(&proof[c], data + c * HTH_CHUNK, HTH_CHUNK, 1);
}

static void chunk_libsodium(uint64_t c)
{
    hth_sha256(proof[c].sha256, data + c * HTH_CHUNK, HTH_CHUNK);
}

static void timed(void (*work)(uint64_t chunk), struct series *rate, struct series *cpu)
{
    double gb = (double)(arg.chunks * HTH_CHUNK) * 1e-9, wall = -now_s(), used = -cpu_s();

    for (uint64_t c = 0; c < arg.chunks; c++)
        work(c);
    wall += now_s();
    used += cpu_s();
    series_add(rate, gb / wall);
    series_add(cpu, used / gb);
}

static void one_proof(const char *name, void (*work)(uint64_t chunk))
{
    struct series rate = { 0 }, cpu = { 0 }, copy = { 0 }, copy_cpu = { 0 };

    for (unsigned round = 0; round <= arg.rounds; round++) {
        if (round == 1) /* the first is for pages and frequency */
            rate = cpu = copy = copy_cpu = (struct series){ 0 };
        timed(chunk_copied, &copy, &copy_cpu);
        timed(work, &rate, &cpu);
    }
    row_say(&(struct row){ .name = name,
            .limit_name = "one thread's copy",
            .rate = &rate,
            .limit = &copy,
            .cpu = &cpu,
            .limit_cpu = &copy_cpu,
            .unit = "GB/s" });
}

/* Both libraries, and all that compares, must say the same of these bytes. */
static void check_proofs(void)
{
    unsigned char other[HTH_SHA256];
    struct hth_proofs one = { .data_len = HTH_CHUNK };

    for (uint64_t c = 0; c < arg.chunks; c++) {
        chunk_strong(c);
        one.crc = &proof[c].crc;
        one.sha256 = proof[c].sha256;
        hth_sha256(other, data + c * HTH_CHUNK, HTH_CHUNK);
        if (!hth_chunk_is(&one, 0, data + c * HTH_CHUNK) ||
                memcmp(other, proof[c].sha256, HTH_SHA256) != 0)
            die("chunk %lu is not what it was proved to be", (unsigned long)c);
    }
}

static void take_args(int argc, char **argv)
{
    static const struct flag known[] = { { "--mib", .number = &arg.mib },
        { "--rounds", .count = &arg.rounds }, { "--json", .text = &arg.json }, { 0 } };

    flags_take(known, argc, argv);
    arg.chunks = arg.mib / 4;
    if (!arg.chunks || !arg.rounds || arg.rounds > ROUNDS_MAX)
        die("usage: bench_proof [--mib N] [--rounds 1..%d] [--json FILE]: --mib at least 4",
                ROUNDS_MAX);
}

int main(int argc, char **argv)
{
    struct hearth_error err;

    take_args(argc, argv);
    rows_open(arg.json, "", arg.mib << 20);
    data = memory(arg.chunks * HTH_CHUNK);
    back = memory(arg.chunks * HTH_CHUNK);
    proof = memory(arg.chunks * sizeof(*proof));
    fill((uint64_t *)(void *)data, arg.chunks * HTH_CHUNK, 1);
    check_proofs();
    one_proof("prove, integrity crc32c", chunk_crc32c);
    if (hth_sha256_ready(&err))
        printf("%s\n", err.text);
    else
        one_proof("prove, integrity strong", chunk_strong);
    one_proof("SHA-256 alone, libsodium", chunk_libsodium);
    return 0;
}
