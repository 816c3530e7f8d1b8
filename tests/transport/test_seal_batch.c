/* SPDX-License-Identifier: Apache-2.0 */
/* Records that are sealed and opened several at once are those that one by one would have been. */
#include "check.h"

#include "core/base/crc.h"
#include "core/base/guard.h"
#include "transport/tcp/crew.h"
#include "transport/tcp/seal.h"
#include "transport/tcp/seal_cipher.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MOST 3000u /* bytes of a record here */

static const unsigned char job_key[HTH_KEY] = { 1 };

struct two {
    struct hth_seal *dialler, *acceptor;
    struct hth_tcp_crew *crew;
};

static void two_open(struct two *t, enum hth_suite suite, enum hth_cipher_lib lib,
        uint64_t key_records, unsigned threads)
{
    struct hth_seal_opts opts = { .key = job_key,
        .suites = suite,
        .purpose = HTH_PURPOSE_MESSAGES,
        .lib = lib,
        .key_records = key_records };
    unsigned char hello_d[HTH_SEAL_HELLO], hello_a[HTH_SEAL_HELLO];
    unsigned char proof_d[HTH_SEAL_PROOF], proof_a[HTH_SEAL_PROOF];
    struct hth_seal_hand d, a;

    must(hth_seal_dial(&d, &opts, hello_d, NULL));
    must(hth_seal_accept(&a, &opts, hello_d, hello_a, NULL));
    must(hth_seal_answer(&d, hello_a, proof_d, NULL));
    must(hth_seal_admit(&a, proof_d, proof_a, &t->acceptor, NULL));
    must(hth_seal_finish(&d, proof_a, &t->dialler, NULL));
    hth_seal_drop(&d);
    hth_seal_drop(&a);
    t->crew = hth_tcp_crew_new(threads);
}

static void two_close(struct two *t)
{
    hth_seal_close(t->dialler);
    hth_seal_close(t->acceptor);
    hth_tcp_crew_free(t->crew);
}

struct bytes {
    unsigned char plain[HTH_SEAL_BATCH][MOST], record[HTH_SEAL_BATCH][MOST + HTH_SEAL_MORE],
            back[HTH_SEAL_BATCH][MOST];
    struct hth_seal_item out[HTH_SEAL_BATCH], in[HTH_SEAL_BATCH];
};

/* n records, each of another length and content than any before. */
static void bytes_roll(struct bytes *b, unsigned n, unsigned *seed)
{
    for (unsigned i = 0; i < n; i++) {
        uint32_t len = (uint32_t)rand_r(seed) % (MOST + 1);

        for (uint32_t k = 0; k < len; k++)
            b->plain[i][k] = (unsigned char)rand_r(seed);
        memset(b->back[i], 0x5a, MOST);
        b->out[i] = hth_seal_item(b->record[i], b->plain[i], len);
        b->in[i] = hth_seal_item(b->record[i], b->back[i], len);
        if (rand_r(seed) % 2)
            b->in[i].plain = b->in[i].sealed;
    }
}

static void bytes_seal(struct two *t, struct bytes *b, unsigned n, int at_once)
{
    if (at_once)
        must(hth_seal_put_all(t->dialler, t->crew, b->out, n));
    for (unsigned i = 0; i < n && !at_once; i++)
        must(hth_seal_put(t->dialler, b->record[i], b->plain[i], b->out[i].len));
}

static int bytes_open(struct two *t, struct bytes *b, unsigned n, int at_once)
{
    int rc = at_once ? hth_seal_take_all(t->acceptor, t->crew, b->in, n) : 0;

    for (unsigned i = 0; i < n && !at_once && !rc; i++)
        rc = hth_seal_take(
                t->acceptor, b->in[i].plain, b->in[i].head, b->in[i].sealed, b->in[i].tag);
    return rc;
}

static void goes_over(struct two *t, unsigned turns, unsigned *seed)
{
    static struct bytes b;
    int at_once;

    for (unsigned turn = 0; turn < turns; turn++) {
        unsigned n = (unsigned)rand_r(seed) % (HTH_SEAL_BATCH + 1);

        bytes_roll(&b, n, seed);
        bytes_seal(t, &b, n, rand_r(seed) % 2);
        at_once = rand_r(seed) % 2;
        must(bytes_open(t, &b, n, at_once));
        for (unsigned i = 0; i < n; i++) {
            cr_assert(zero(int, memcmp(b.plain[i], b.in[i].plain, b.out[i].len)), "turn %u", turn);
            if (at_once)
                cr_assert(eq(u32, b.in[i].crc, hth_crc32c(b.plain[i], b.out[i].len)));
        }
    }
}

Test(seal_batch, several_at_once_are_as_one_by_one, .timeout = 100)
{
    static const enum hth_suite suites[] = { HTH_SUITE_CHACHA20_POLY1305, HTH_SUITE_AES_256_GCM };
    static const enum hth_cipher_lib libs[] = { HTH_CIPHER_LIBCRYPTO, HTH_CIPHER_LIBSODIUM };
    unsigned seed = 7;

    must(hth_seal_init(NULL));
    for (int suite = 0; suite < 2; suite++)
        for (int lib = 0; lib < 2; lib++)
            for (unsigned threads = 0; threads < 4; threads += 3) {
                struct two t;

                if (!(hth_cipher_suites(libs[lib]) & suites[suite]))
                    continue;
                /* A key is over in the middle of what is sealed at once, or with each record. */
                for (uint64_t records = 1; records < 20; records += 4) {
                    two_open(&t, suites[suite], libs[lib], records, threads);
                    goes_over(&t, 40, &seed);
                    two_close(&t);
                }
            }
}

Test(seal_batch, what_was_changed_fails_all_that_it_came_with_and_all_after, .timeout = 100)
{
    static struct bytes b;
    unsigned seed = 9;

    must(hth_seal_init(NULL));
    for (unsigned bad = 0; bad < HTH_SEAL_BATCH; bad++) {
        struct two t;

        two_open(&t, HTH_SUITE_CHACHA20_POLY1305, HTH_CIPHER_ANY, 5, 2);
        bytes_roll(&b, HTH_SEAL_BATCH, &seed);
        bytes_seal(&t, &b, HTH_SEAL_BATCH, 1);
        b.record[bad][HTH_SEAL_HEAD] ^= 1;
        must_fail(bytes_open(&t, &b, HTH_SEAL_BATCH, 1), HEARTH_EAUTH);
        for (uint32_t k = 0; k < b.in[bad].len; k++)
            cr_assert(b.in[bad].plain[k] == 0 || b.in[bad].plain[k] == 0x5a, "record %u", bad);
        bytes_roll(&b, 1, &seed);
        bytes_seal(&t, &b, 1, 1);
        must_fail(bytes_open(&t, &b, 1, 0), HEARTH_ESTATE);
        must_fail(bytes_open(&t, &b, 1, 1), HEARTH_ESTATE);
        two_close(&t);
    }
}

/* Two of one batch under another's nonce would be two secrets under one: neither may open as the
 * other. */
Test(seal_batch, each_record_has_a_place_of_its_own)
{
    static struct bytes b;
    unsigned seed = 11;
    struct two t;

    must(hth_seal_init(NULL));
    two_open(&t, HTH_SUITE_CHACHA20_POLY1305, HTH_CIPHER_ANY, 0, 2);
    bytes_roll(&b, 2, &seed);
    for (unsigned i = 0; i < 2; i++) {
        b.out[i] = hth_seal_item(b.record[i], b.plain[i], 100);
        b.in[i] = hth_seal_item(b.record[1 - i], b.back[i], 100);
    }
    bytes_seal(&t, &b, 2, 1);
    must_fail(bytes_open(&t, &b, 2, 1), HEARTH_EAUTH);
    two_close(&t);
}

static atomic_uint stopped; /* threads that have come upon what was cut off */

/* The first waits for a second one, which comes only if another thread works at the same time. */
static void on_bus(int sig, siginfo_t *info, void *context)
{
    const struct timespec moment = { .tv_nsec = 1000000 };

    (void)sig, (void)context;
    atomic_fetch_add(&stopped, 1);
    for (int ms = 0; atomic_load(&stopped) < 2 && ms < 20000; ms++)
        nanosleep(&moment, NULL);
    if (!hth_guard_patch(info->si_addr))
        _exit(99);
}

Test(seal_batch, threads_open_at_the_same_time_and_none_ends_of_memory_that_is_cut_short,
        .timeout = 100)
{
    const size_t size = (size_t)HTH_SEAL_BATCH << 16;
    struct sigaction action = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };
    int fd = memfd_create("memory", MFD_CLOEXEC);
    static struct bytes b;
    unsigned seed = 13;
    unsigned char *at;
    struct two t;

    cr_assert(zero(int, ftruncate(fd, (off_t)size)));
    at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert(ne(ptr, at, MAP_FAILED));
    cr_assert(zero(int, sigaction(SIGBUS, &action, NULL)));
    hth_guard_add(at, size);
    must(hth_seal_init(NULL));
    two_open(&t, HTH_SUITE_CHACHA20_POLY1305, HTH_CIPHER_ANY, 0, 2);
    bytes_roll(&b, HTH_SEAL_BATCH, &seed);
    for (unsigned i = 0; i < HTH_SEAL_BATCH; i++) {
        b.out[i] = hth_seal_item(b.record[i], b.plain[i], 1000);
        b.in[i] = hth_seal_item(b.record[i], at + ((size_t)i << 16), 1000);
    }
    bytes_seal(&t, &b, HTH_SEAL_BATCH, 1);
    cr_assert(zero(int, ftruncate(fd, 0)));
    must(bytes_open(&t, &b, HTH_SEAL_BATCH, 1));
    cr_expect(ge(uint, atomic_load(&stopped), 2u), "one thread did it all by itself");
    two_close(&t);
    munmap(at, size);
    close(fd);
}
