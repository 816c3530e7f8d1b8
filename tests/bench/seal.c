/* SPDX-License-Identifier: Apache-2.0 */
/* Records of one connection, sealed and opened by one thread, cipher by cipher, against that
 * thread's copy of the same bytes; and handshakes. */
#include "bench.h"

#include "transport/tcp/seal.h"
#include "transport/tcp/seal_cipher.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STRIDE (HTH_SEAL_PLAIN + HTH_SEAL_MORE)

static struct {
    uint64_t mib, records;
    unsigned rounds;
    const char *json;
} arg = { .mib = 256, .rounds = 5 };

static unsigned char *plain, *sealed, *back;

struct pair {
    struct hth_seal *from, *to;
};

static struct pair pair_open(uint32_t suite, enum hth_cipher_lib lib)
{
    static const unsigned char key[HTH_KEY] = { 1 };
    const struct hth_seal_opts opts = {
        .key = key, .suites = suite, .purpose = HTH_PURPOSE_MESSAGES, .lib = lib
    };
    unsigned char hello[2][HTH_SEAL_HELLO], proof[2][HTH_SEAL_PROOF];
    struct hth_seal_hand d, a;
    struct hearth_error err;
    struct pair p;

    if (hth_seal_dial(&d, &opts, hello[0], &err) ||
            hth_seal_accept(&a, &opts, hello[0], hello[1], &err) ||
            hth_seal_answer(&d, hello[1], proof[0], &err) ||
            hth_seal_admit(&a, proof[0], proof[1], &p.to, &err) ||
            hth_seal_finish(&d, proof[1], &p.from, &err))
        die("handshake: %s", err.text);
    return p;
}

static void pair_close(struct pair *p)
{
    hth_seal_close(p->from);
    hth_seal_close(p->to);
}

static void all_sealed(struct hth_seal *s)
{
    for (uint64_t i = 0; i < arg.records; i++)
        if (hth_seal_put(s, sealed + i * STRIDE, plain + i * HTH_SEAL_PLAIN, HTH_SEAL_PLAIN))
            die("sealing failed");
}

static void all_opened(struct hth_seal *s)
{
    for (uint64_t i = 0; i < arg.records; i++) {
        const unsigned char *r = sealed + i * STRIDE, *body = r + HTH_SEAL_HEAD;

        if (hth_seal_take(s, back + i * HTH_SEAL_PLAIN, r, body, body + HTH_SEAL_PLAIN))
            die("a record does not open");
    }
}

static void all_copied(struct hth_seal *s)
{
    (void)s;
    memcpy(back, plain, arg.records * HTH_SEAL_PLAIN);
}

/* One round of it, into rate and processor's time. */
static void timed(void (*work)(struct hth_seal *), struct hth_seal *s, struct series *rate,
        struct series *cpu)
{
    double gb = (double)(arg.records * HTH_SEAL_PLAIN) * 1e-9, wall = -now_s(), used = -cpu_s();

    work(s);
    wall += now_s();
    used += cpu_s();
    series_add(rate, gb / wall);
    series_add(cpu, used / gb);
}

static void one_cipher(const char *name, uint32_t suite, enum hth_cipher_lib lib)
{
    struct series put = { 0 }, put_cpu = { 0 }, take = { 0 }, take_cpu = { 0 }, copy = { 0 },
                  copy_cpu = { 0 };
    struct pair p;
    char text[2][64];

    if (!(hth_cipher_suites(lib) & suite)) {
        printf("seal, %s: not on this machine\n", name);
        return;
    }
    p = pair_open(suite, lib);
    for (unsigned round = 0; round <= arg.rounds; round++) {
        if (round == 1) /* the first is for pages and frequency */
            put = put_cpu = take = take_cpu = copy = copy_cpu = (struct series){ 0 };
        timed(all_copied, NULL, &copy, &copy_cpu);
        timed(all_sealed, p.from, &put, &put_cpu);
        memset(back, 0, arg.records * HTH_SEAL_PLAIN);
        timed(all_opened, p.to, &take, &take_cpu);
        check((const uint64_t *)(const void *)back, arg.records * HTH_SEAL_PLAIN, 1);
    }
    pair_close(&p);
    snprintf(text[0], sizeof(text[0]), "seal, %s", name);
    snprintf(text[1], sizeof(text[1]), "open, %s", name);
    row_say(&(struct row){ .name = text[0],
            .limit_name = "one thread's copy",
            .rate = &put,
            .limit = &copy,
            .cpu = &put_cpu,
            .limit_cpu = &copy_cpu,
            .unit = "GB/s" });
    row_say(&(struct row){ .name = text[1],
            .limit_name = "one thread's copy",
            .rate = &take,
            .limit = &copy,
            .cpu = &take_cpu,
            .limit_cpu = &copy_cpu,
            .unit = "GB/s" });
}

static void handshakes(void)
{
    struct series rate = { 0 };

    for (unsigned round = 0; round < arg.rounds; round++) {
        double took = -now_s();

        for (int i = 0; i < 200; i++) {
            struct pair p = pair_open(hth_seal_suites(), HTH_CIPHER_ANY);

            pair_close(&p);
        }
        series_add(&rate, 200 / (took + now_s()));
    }
    row_say(&(struct row){
            .name = "handshakes, both sides by one thread", .rate = &rate, .unit = "/s" });
}

static void take_args(int argc, char **argv)
{
    static const struct flag known[] = { { "--mib", .number = &arg.mib },
        { "--rounds", .count = &arg.rounds }, { "--json", .text = &arg.json }, { 0 } };

    flags_take(known, argc, argv);
    arg.records = arg.mib << 20 >> 16;
    if (!arg.records || !arg.rounds || arg.rounds > ROUNDS_MAX)
        die("usage: bench_seal [--mib N] [--rounds 1..%d] [--json FILE]: --mib at least 1",
                ROUNDS_MAX);
}

int main(int argc, char **argv)
{
    struct hearth_error err;

    take_args(argc, argv);
    if (hth_seal_init(&err))
        die("%s", err.text);
    rows_open(arg.json, "", arg.mib << 20);
    plain = memory(arg.records * HTH_SEAL_PLAIN);
    back = memory(arg.records * HTH_SEAL_PLAIN);
    sealed = memory(arg.records * STRIDE);
    fill((uint64_t *)(void *)plain, arg.records * HTH_SEAL_PLAIN, 1);
    one_cipher("AES-256-GCM, libcrypto", HTH_SUITE_AES_256_GCM, HTH_CIPHER_LIBCRYPTO);
    one_cipher("ChaCha20-Poly1305, libcrypto", HTH_SUITE_CHACHA20_POLY1305, HTH_CIPHER_LIBCRYPTO);
    one_cipher("ChaCha20-Poly1305, libsodium", HTH_SUITE_CHACHA20_POLY1305, HTH_CIPHER_LIBSODIUM);
    handshakes();
    return 0;
}
