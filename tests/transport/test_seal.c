/* SPDX-License-Identifier: Apache-2.0 */
/* Secrecy of a connection: which peer is admitted and which is not, and that nothing of a record
 * can be changed. */
#include "check.h"

#include "core/base/bytes.h"
#include "transport/tcp/seal.h"
#include "transport/tcp/seal_cipher.h"
#include "transport/tcp/seal_hello.h"

#include <stdlib.h>

static const unsigned char job_key[HTH_KEY] = { 1 }, other_key[HTH_KEY] = { [0] = 1, [31] = 1 };

static const enum hth_suite sealed_suites[] = { HTH_SUITE_CHACHA20_POLY1305,
    HTH_SUITE_AES_256_GCM };
static const enum hth_cipher_lib libs[] = { HTH_CIPHER_LIBCRYPTO, HTH_CIPHER_LIBSODIUM };

static void seal_setup(void)
{
    must(hth_seal_init(NULL));
}

/* ---- two sides ---- */

struct shake {
    struct hth_seal_opts dials, accepts;
    struct hth_seal_hand d, a;
    unsigned char hello_d[HTH_SEAL_HELLO], hello_a[HTH_SEAL_HELLO];
    unsigned char proof_d[HTH_SEAL_PROOF], proof_a[HTH_SEAL_PROOF];
    struct hth_seal *dialler, *acceptor;
    struct hearth_error err;
};

static void shake_init(struct shake *s)
{
    *s = (struct shake){
        .dials = { .key = job_key, .suites = hth_seal_suites(), .purpose = HTH_PURPOSE_MESSAGES },
        .accepts = { .key = job_key, .suites = hth_seal_suites() }
    };
}

static void shake_fini(struct shake *s)
{
    hth_seal_drop(&s->d);
    hth_seal_drop(&s->a);
    hth_seal_close(s->dialler);
    hth_seal_close(s->acceptor);
    s->dialler = s->acceptor = NULL;
}

/* A byte of message `which` of the four, or -1, has `change` put into it; the first refusal, or
 * 0. */
static int shake_with(struct shake *s, int which, size_t at, unsigned char change)
{
    unsigned char *message[] = { s->hello_d, s->hello_a, s->proof_d, s->proof_a };
    int rc = hth_seal_dial(&s->d, &s->dials, s->hello_d, &s->err);

    for (int i = 0; !rc && i < 4; i++) {
        if (i == which)
            message[i][at] ^= change;
        if (i == 0)
            rc = hth_seal_accept(&s->a, &s->accepts, s->hello_d, s->hello_a, &s->err);
        else if (i == 1)
            rc = hth_seal_answer(&s->d, s->hello_a, s->proof_d, &s->err);
        else if (i == 2)
            rc = hth_seal_admit(&s->a, s->proof_d, s->proof_a, &s->acceptor, &s->err);
        else
            rc = hth_seal_finish(&s->d, s->proof_a, &s->dialler, &s->err);
    }
    return rc;
}

static int shake(struct shake *s)
{
    return shake_with(s, -1, 0, 0);
}

/* len bytes from one to the other. */
static int goes_over(struct hth_seal *from, struct hth_seal *to, size_t len)
{
    unsigned char *plain = malloc(len + 1), *record = malloc(len + HTH_SEAL_MORE),
                  *back = malloc(len + 1);
    size_t claimed = 0;
    int rc;

    cr_assert(plain && record && back);
    for (size_t i = 0; i < len; i++)
        plain[i] = (unsigned char)(i * 7 + len);
    rc = hth_seal_put(from, record, plain, len);
    if (!rc) {
        must(hth_seal_length(record, &claimed));
        cr_assert(eq(sz, claimed, len));
        cr_assert(
                len < 32 || memmem(record, len + HTH_SEAL_MORE, plain, 16) == NULL, "in the clear");
        rc = hth_seal_take(to, back, record, record + HTH_SEAL_HEAD, record + HTH_SEAL_HEAD + len);
    }
    if (!rc)
        cr_assert(zero(int, memcmp(plain, back, len)), "%zu bytes came as others", len);
    free(plain);
    free(record);
    free(back);
    return rc;
}

static void both_ways(struct shake *s, size_t len)
{
    must(goes_over(s->dialler, s->acceptor, len));
    must(goes_over(s->acceptor, s->dialler, len));
}

Test(seal, each_suite_of_each_library_understands_the_other, .init = seal_setup)
{
    unsigned pairs = 0;

    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 4; k++) {
            struct shake s;

            shake_init(&s);
            s.dials.lib = libs[k & 1];
            s.accepts.lib = libs[k >> 1];
            s.dials.suites = s.accepts.suites = sealed_suites[i];
            if (!(hth_cipher_suites(s.dials.lib) & hth_cipher_suites(s.accepts.lib) &
                        sealed_suites[i]))
                continue;
            must(shake(&s));
            cr_assert(eq(int, (int)hth_seal_suite(s.dialler), (int)sealed_suites[i]));
            for (size_t len = 0; len <= 70000; len += len < 300 ? 1 : len / 9)
                if (len <= HTH_SEAL_PLAIN)
                    both_ways(&s, len);
            both_ways(&s, HTH_SEAL_PLAIN);
            shake_fini(&s);
            pairs++;
        }
    cr_assert(ge(uint, pairs, 1));
}

Test(seal, a_record_is_at_most_64_kib, .init = seal_setup)
{
    static unsigned char in[HTH_SEAL_PLAIN + 1], out[sizeof(in) + HTH_SEAL_MORE];
    struct shake s;

    shake_init(&s);
    must(shake(&s));
    must_fail(hth_seal_put(s.dialler, out, in, sizeof(in)), HEARTH_EINVAL);
    both_ways(&s, 100); /* a refused call has done nothing */
    hth_put32(out, HTH_SEAL_PLAIN + 1);
    must_fail(hth_seal_take(s.acceptor, in, out, out + HTH_SEAL_HEAD, out), HEARTH_EPROTO);
    must_fail(goes_over(s.dialler, s.acceptor, 100), HEARTH_ESTATE);
    shake_fini(&s);
}

Test(seal, a_record_is_sealed_and_opened_where_it_lies, .init = seal_setup)
{
    unsigned char bytes[HTH_SEAL_MORE + 500], plain[500];
    struct shake s;

    for (int lib = 0; lib < 2; lib++) {
        shake_init(&s);
        s.dials.lib = s.accepts.lib = libs[lib];
        s.dials.suites = s.accepts.suites = hth_cipher_suites(libs[lib]);
        if (!s.dials.suites)
            continue;
        must(shake(&s));
        memset(plain, 3, sizeof(plain));
        memcpy(bytes + HTH_SEAL_HEAD, plain, sizeof(plain));
        must(hth_seal_put(s.dialler, bytes, bytes + HTH_SEAL_HEAD, sizeof(plain)));
        cr_assert(ne(int, memcmp(bytes + HTH_SEAL_HEAD, plain, sizeof(plain)), 0));
        must(hth_seal_take(s.acceptor, bytes + HTH_SEAL_HEAD, bytes, bytes + HTH_SEAL_HEAD,
                bytes + HTH_SEAL_HEAD + sizeof(plain)));
        cr_assert(zero(int, memcmp(bytes + HTH_SEAL_HEAD, plain, sizeof(plain))));
        shake_fini(&s);
    }
}

/* ---- as seal.h says, once more ---- */

/* HKDF-Expand(secret, name | more), and HMAC under it of a | b. */
static void said_key(unsigned char out[HTH_KEY], const unsigned char *secret, const char *name,
        const void *more, size_t more_len)
{
    unsigned char info[100];
    size_t n = strlen(name);

    memcpy(info, name, n);
    memcpy(info + n, more, more_len);
    hth_hkdf_expand(out, HTH_KEY, secret, info, n + more_len);
}

static void said_proof(const unsigned char *want, const unsigned char *secret, const char *name,
        const unsigned char *hash, const unsigned char *hellos, const unsigned char *more,
        size_t more_len)
{
    unsigned char key[HTH_KEY], proof[HTH_SEAL_PROOF];

    said_key(key, secret, name, hash, HTH_SHA256);
    hth_hmac(proof, key, sizeof(key), hellos, (size_t)2 * HTH_SEAL_HELLO, more, more_len);
    cr_assert(zero(int, memcmp(want, proof, sizeof(proof))), "%s", name);
}

/* The first two records of a direction whose keys seal one each, opened by hand. */
static void said_records(struct hth_seal *from, enum hth_suite suite, const unsigned char *secret,
        const char *name, const unsigned char *hash)
{
    struct hth_cipher *c = hth_cipher_new(suite, HTH_CIPHER_ANY, 0);
    unsigned char way[HTH_KEY], key[HTH_KEY], nonce[HTH_AEAD_NONCE], out[HTH_SEAL_MORE + 3];

    said_key(way, secret, name, hash, HTH_SHA256);
    for (int i = 0; i < 2; i++) {
        must(hth_seal_put(from, out, "abc", 3));
        said_key(key, way, "key", "", 0);
        hth_hkdf_expand(nonce, sizeof(nonce), way, "nonce", 5);
        must(hth_cipher_key(c, key));
        must(hth_cipher_open(c, nonce, "\3\0\0", 4, out + 4, out + 4, 3, out + 7));
        cr_assert(zero(int, memcmp(out + 4, "abc", 3)));
        said_key(key, way, "next", "", 0);
        memcpy(way, key, sizeof(way));
    }
    hth_cipher_free(c);
}

Test(seal, proofs_and_keys_come_of_all_that_was_said, .init = seal_setup)
{
    unsigned char hellos[2 * HTH_SEAL_HELLO], hash[HTH_SHA256], shared[HTH_KEY], secret[HTH_KEY];
    const unsigned char none[HTH_KEY] = { 0 };
    struct hth_seal_hello theirs;
    struct shake s;

    shake_init(&s);
    s.dials.key_records = s.accepts.key_records = 1;
    must(hth_seal_dial(&s.d, &s.dials, s.hello_d, NULL));
    memcpy(secret, s.d.secret, sizeof(secret));
    must(hth_seal_accept(&s.a, &s.accepts, s.hello_d, s.hello_a, NULL));
    must(hth_seal_answer(&s.d, s.hello_a, s.proof_d, NULL));
    must(hth_seal_admit(&s.a, s.proof_d, s.proof_a, &s.acceptor, NULL));
    must(hth_seal_finish(&s.d, s.proof_a, &s.dialler, NULL));

    memcpy(hellos, s.hello_d, sizeof(s.hello_d));
    memcpy(hellos + sizeof(s.hello_d), s.hello_a, sizeof(s.hello_a));
    hth_sha256(hash, hellos, sizeof(hellos));
    must(hth_seal_hello_decode(&theirs, s.hello_a, HTH_SEAL_ACCEPTS, NULL));
    must(hth_exchange(shared, secret, theirs.public_key));
    hth_hmac(secret, job_key, HTH_KEY, shared, HTH_KEY, none, HTH_KEY);
    said_proof(s.proof_d, secret, "dialler proves", hash, hellos, none, 0);
    said_proof(s.proof_a, secret, "acceptor proves", hash, hellos, s.proof_d, HTH_SEAL_PROOF);
    said_records(s.dialler, hth_seal_suite(s.dialler), secret, "dialler seals", hash);
    said_records(s.acceptor, hth_seal_suite(s.dialler), secret, "acceptor seals", hash);
    shake_fini(&s);
}

/* ---- who gets in ---- */

Test(seal, no_byte_of_a_handshake_can_be_changed, .init = seal_setup)
{
    static const size_t lengths[] = { HTH_SEAL_HELLO, HTH_SEAL_HELLO, HTH_SEAL_PROOF,
        HTH_SEAL_PROOF };
    static const unsigned char changes[] = { 1, 3, 0x10, 0x40 };

    for (int which = 0; which < 4; which++)
        for (size_t at = 0; at < lengths[which]; at++)
            for (size_t c = 0; c < sizeof(changes); c++) {
                struct shake s;

                shake_init(&s);
                cr_assert(ne(int, shake_with(&s, which, at, changes[c]), 0),
                        "byte %zu of message %d", at, which);
                cr_assert(eq(ptr, s.dialler, NULL));
                cr_assert(which == 3 || !s.acceptor, "let in by byte %zu of message %d", at, which);
                shake_fini(&s);
            }
}

Test(seal, without_the_job_key_nobody_gets_in, .init = seal_setup)
{
    struct shake s;

    shake_init(&s);
    s.dials.key = other_key;
    must_fail(shake(&s), HEARTH_EAUTH);
    cr_assert(eq(ptr, s.acceptor, NULL));
    cr_assert(zero(int, memcmp(s.proof_a, (unsigned char[HTH_SEAL_PROOF]){ 0 }, HTH_SEAL_PROOF)),
            "a stranger is told a proof");
    shake_fini(&s);
}

/* A dialler without the key gets no hello either: the mac is checked before a key pair is made. */
Test(seal, whose_hello_has_no_mac_of_the_job_key_is_not_answered, .init = seal_setup)
{
    static const unsigned char none[HTH_SEAL_HELLO];
    struct shake s;

    for (size_t at = 0; at < HTH_SEAL_HELLO; at++) {
        shake_init(&s);
        must_fail(shake_with(&s, 0, at, 0x10), HEARTH_EAUTH);
        cr_assert(zero(int, memcmp(s.hello_a, none, sizeof(none))), "byte %zu", at);
        cr_assert(zero(int, hth_seal_knows(job_key, s.hello_d)));
        shake_fini(&s);
    }
}

/* A process at an address of the job, without the key, can pretend to know the answer. */
Test(seal, a_dialler_does_not_believe_an_acceptor_without_the_key, .init = seal_setup)
{
    unsigned char hello[HTH_SEAL_HELLO];
    struct shake s;
    struct hth_seal *theirs = NULL;

    shake_init(&s);
    s.accepts.key = other_key;
    must(hth_seal_dial(&s.d, &s.dials, s.hello_d, NULL));
    memcpy(hello, s.hello_d, sizeof(hello));
    hth_seal_hello_sign(hello, other_key); /* so that it has something to answer */
    must(hth_seal_accept(&s.a, &s.accepts, hello, s.hello_a, NULL));
    must(hth_seal_answer(&s.d, s.hello_a, s.proof_d, NULL));
    must_fail(hth_seal_admit(&s.a, s.proof_d, s.proof_a, &s.acceptor, NULL), HEARTH_EAUTH);
    must_fail(hth_seal_finish(&s.d, s.proof_a, &theirs, NULL), HEARTH_EAUTH);
    must_fail(hth_seal_finish(&s.d, s.proof_a, &theirs, NULL), HEARTH_ESTATE); /* one try */
    cr_assert(eq(ptr, theirs, NULL));
    shake_fini(&s);
}

Test(seal, what_a_stranger_hears_is_independent_of_the_job_key, .init = seal_setup)
{
    struct shake s;
    struct hth_seal_hello h;

    shake_init(&s);
    must(hth_seal_dial(&s.d, &s.dials, s.hello_d, NULL));
    must(hth_seal_accept(&s.a, &s.accepts, s.hello_d, s.hello_a, NULL));
    must(hth_seal_hello_decode(&h, s.hello_a, HTH_SEAL_ACCEPTS, NULL));
    hth_exchange_public(s.proof_a, s.a.secret);
    cr_assert(zero(int, memcmp(h.public_key, s.proof_a, HTH_KEY)));
    must(hth_seal_accept(&s.a, &s.accepts, s.hello_d, s.hello_d, NULL));
    cr_assert(ne(int, memcmp(s.hello_a + 32, s.hello_d + 32, 64), 0), "nonce or key came twice");
    shake_fini(&s);
}

Test(seal, a_recorded_dialler_is_not_let_in_again, .init = seal_setup)
{
    struct shake s, again;

    shake_init(&s);
    must(shake(&s));
    shake_init(&again);
    must(hth_seal_accept(&again.a, &again.accepts, s.hello_d, again.hello_a, NULL));
    must_fail(hth_seal_admit(&again.a, s.proof_d, again.proof_a, &again.acceptor, NULL),
            HEARTH_EAUTH);
    must_fail(hth_seal_admit(&again.a, s.proof_d, again.proof_a, &again.acceptor, NULL),
            HEARTH_ESTATE);
    shake_fini(&again);
    shake_init(&again); /* nor is a recorded acceptor believed */
    must(hth_seal_dial(&again.d, &again.dials, again.hello_d, NULL));
    must(hth_seal_answer(&again.d, s.hello_a, again.proof_d, NULL));
    must_fail(hth_seal_finish(&again.d, s.proof_a, &again.dialler, NULL), HEARTH_EAUTH);
    shake_fini(&again);
    shake_fini(&s);
}

Test(seal, what_a_side_said_is_not_taken_from_its_peer, .init = seal_setup)
{
    struct shake s, t;

    shake_init(&s);
    must(hth_seal_dial(&s.d, &s.dials, s.hello_d, NULL));
    must_fail(hth_seal_answer(&s.d, s.hello_d, s.proof_d, NULL), HEARTH_EPROTO);
    shake_fini(&s);

    shake_init(&s); /* its own proof, back */
    must_fail(shake_with(&s, 3, 0, 1), HEARTH_EAUTH);
    must(hth_seal_dial(&s.d, &s.dials, s.hello_d, NULL));
    must(hth_seal_accept(&s.a, &s.accepts, s.hello_d, s.hello_a, NULL));
    must(hth_seal_answer(&s.d, s.hello_a, s.proof_d, NULL));
    hth_seal_close(s.acceptor);
    s.acceptor = NULL;
    must_fail(hth_seal_finish(&s.d, s.proof_d, &s.dialler, NULL), HEARTH_EAUTH);
    shake_fini(&s);

    shake_init(&s); /* an acceptor's hello, dialled with */
    must(shake(&s));
    shake_init(&t);
    must_fail(hth_seal_accept(&t.a, &t.accepts, s.hello_a, t.hello_a, NULL), HEARTH_EAUTH);
    hth_seal_hello_sign(s.hello_a, job_key);
    must_fail(hth_seal_accept(&t.a, &t.accepts, s.hello_a, t.hello_a, NULL), HEARTH_EPROTO);
    must_fail(hth_seal_admit(&t.a, s.proof_a, t.proof_a, &t.acceptor, NULL), HEARTH_ESTATE);
    shake_fini(&s);
    shake_fini(&t);
}

Test(seal, a_record_sent_back_to_its_sender_does_not_open, .init = seal_setup)
{
    struct shake s;

    shake_init(&s);
    must(shake(&s));
    must_fail(goes_over(s.dialler, s.dialler, 100), HEARTH_EAUTH);
    shake_fini(&s);
}

/* ---- suites ---- */

Test(seal, the_better_suite_of_both_is_taken, .init = seal_setup)
{
    struct shake s;

    shake_init(&s);
    must(shake(&s));
    cr_assert(eq(int, (int)hth_seal_suite(s.acceptor),
            hth_seal_suites() & HTH_SUITE_AES_256_GCM ? HTH_SUITE_AES_256_GCM
                                                      : HTH_SUITE_CHACHA20_POLY1305));
    shake_fini(&s);
    shake_init(&s);
    s.accepts.suites = HTH_SUITE_CHACHA20_POLY1305;
    must(shake(&s));
    cr_assert(eq(int, (int)hth_seal_suite(s.dialler), HTH_SUITE_CHACHA20_POLY1305));
    both_ways(&s, 1000);
    shake_fini(&s);
}

/* The suites stand at byte 8 of a hello. */
Test(seal, nobody_on_the_path_turns_the_suite_down, .init = seal_setup)
{
    struct shake s;

    shake_init(&s);
    s.dials.suites |= HTH_SUITE_PROOF;
    s.accepts.suites |= HTH_SUITE_PROOF;
    must_fail(shake_with(&s, 0, 8, HTH_SUITE_PROOF),
            HEARTH_EAUTH); /* the dialler never offered it, it seems */
    shake_fini(&s);

    if (!(hth_seal_suites() & HTH_SUITE_AES_256_GCM))
        return;
    shake_init(&s);
    must_fail(shake_with(&s, 0, 8, HTH_SUITE_AES_256_GCM), HEARTH_EAUTH);
    shake_fini(&s);
    shake_init(&s);
    must_fail(shake_with(&s, 1, 8, HTH_SUITE_AES_256_GCM ^ HTH_SUITE_CHACHA20_POLY1305),
            HEARTH_EAUTH);
    shake_fini(&s);
}

Test(seal, no_cipher_is_used_only_where_both_want_none, .init = seal_setup)
{
    unsigned char out[100];
    struct shake s;

    shake_init(&s);
    s.dials.suites = HTH_SUITE_PROOF;
    must_fail(shake(&s), HEARTH_EUNSUPPORTED);
    cr_assert(ne(ptr, strstr(s.err.text, "network"), NULL));
    must_fail(hth_seal_answer(&s.d, s.hello_a, s.proof_d, &s.err),
            HEARTH_EUNSUPPORTED); /* the dialler learns why */
    must_fail(hth_seal_admit(&s.a, s.proof_d, s.proof_a, &s.acceptor, NULL), HEARTH_ESTATE);
    shake_fini(&s);

    shake_init(&s);
    s.accepts.suites = HTH_SUITE_PROOF;
    must_fail(shake(&s), HEARTH_EUNSUPPORTED);
    shake_fini(&s);
    shake_init(&s); /* and an acceptor that takes what was not offered */
    must_fail(shake_with(&s, 1, 8,
                      HTH_SUITE_PROOF ^ (hth_seal_suites() & HTH_SUITE_AES_256_GCM
                                                        ? HTH_SUITE_AES_256_GCM
                                                        : HTH_SUITE_CHACHA20_POLY1305)),
            HEARTH_EPROTO);
    shake_fini(&s);

    shake_init(&s);
    s.dials.suites = s.accepts.suites = HTH_SUITE_PROOF | hth_seal_suites();
    must(shake(&s));
    cr_assert(eq(int, (int)hth_seal_suite(s.dialler), HTH_SUITE_PROOF));
    must_fail(hth_seal_put(s.dialler, out, "x", 1), HEARTH_EINVAL);
    must_fail(hth_seal_take(s.acceptor, out, out, out, out), HEARTH_EINVAL);
    shake_fini(&s);
    shake_init(&s); /* and the key is proved all the same */
    s.dials.suites = s.accepts.suites = HTH_SUITE_PROOF;
    s.dials.key = other_key;
    must_fail(shake(&s), HEARTH_EAUTH);
    shake_fini(&s);
}

Test(seal, another_version_is_refused_in_words, .init = seal_setup)
{
    struct hth_seal_hello h;
    struct shake s;

    shake_init(&s);
    must(hth_seal_dial(&s.d, &s.dials, s.hello_d, NULL));
    must(hth_seal_hello_decode(&h, s.hello_d, HTH_SEAL_DIALS, NULL));
    h.low = h.high = 3;
    hth_seal_hello_encode(&h, s.hello_d);
    hth_seal_hello_sign(s.hello_d, job_key);
    must_fail(hth_seal_accept(&s.a, &s.accepts, s.hello_d, s.hello_a, &s.err), HEARTH_EUNSUPPORTED);
    cr_assert(ne(ptr, strstr(s.err.text, "version"), NULL));
    must_fail(hth_seal_answer(&s.d, s.hello_a, s.proof_d, &s.err), HEARTH_EUNSUPPORTED);
    shake_fini(&s);
}

Test(seal, what_no_side_can_offer_is_refused_here, .init = seal_setup)
{
    struct shake s;

    shake_init(&s);
    s.dials.suites = 0;
    must_fail(shake(&s), HEARTH_EINVAL);
    s.dials.suites = 0x100;
    must_fail(shake(&s), HEARTH_EINVAL);
    s.dials.suites = HTH_SUITE_AES_256_GCM;
    s.dials.lib = HTH_CIPHER_LIBSODIUM;
    must_fail(shake(&s), HEARTH_EINVAL);
    shake_init(&s);
    s.dials.purpose = HTH_PURPOSE_BULK;
    must_fail(shake(&s), HEARTH_EINVAL);
}

/* ---- bulk ---- */

Test(seal, bulk_belongs_to_its_message_connection, .init = seal_setup)
{
    struct shake s, other, bulk;
    struct hth_seal_bond bond, same, stranger;
    struct hth_seal_asked asked;

    shake_init(&s);
    must(shake(&s));
    shake_init(&other);
    must(shake(&other));
    hth_seal_bond(s.dialler, &bond);
    hth_seal_bond(s.acceptor, &same);
    hth_seal_bond(other.acceptor, &stranger);
    cr_assert(zero(int, memcmp(&bond, &same, sizeof(bond))));
    cr_assert(ne(int, memcmp(bond.id, stranger.id, sizeof(bond.id)), 0));

    shake_init(&bulk);
    bulk.dials.purpose = HTH_PURPOSE_BULK;
    bulk.dials.bond = &bond;
    must(hth_seal_dial(&bulk.d, &bulk.dials, bulk.hello_d, NULL));
    must(hth_seal_asks(bulk.hello_d, &asked, NULL));
    cr_assert(eq(int, (int)asked.purpose, HTH_PURPOSE_BULK));
    cr_assert(zero(int, memcmp(asked.id, same.id, sizeof(same.id))));
    bulk.accepts.bond = &same;
    must(shake(&bulk));
    both_ways(&bulk, 5000);
    shake_fini(&bulk);

    bulk.accepts.bond = NULL; /* gone here */
    must_fail(shake(&bulk), HEARTH_EAUTH);
    shake_fini(&bulk);
    bulk.accepts.bond = &stranger;
    must_fail(shake(&bulk), HEARTH_EAUTH);
    shake_fini(&bulk);
    memcpy(bond.secret, stranger.secret,
            sizeof(bond.secret)); /* a member that has seen the id go by */
    bulk.accepts.bond = &same;
    must_fail(shake(&bulk), HEARTH_EAUTH);
    shake_fini(&bulk);
    shake_fini(&s);
    shake_fini(&other);
}

/* ---- records ---- */

struct record {
    unsigned char bytes[HTH_SEAL_MORE + 200];
    size_t len;
};

static void record_make(struct hth_seal *s, struct record *r, size_t len, unsigned char fill)
{
    unsigned char plain[200];

    memset(plain, fill, len);
    r->len = len;
    must(hth_seal_put(s, r->bytes, plain, len));
}

/* As a stream reads it: the head says where the tag is. */
static int record_open(struct hth_seal *s, const struct record *r, unsigned char out[200])
{
    size_t len;
    int rc = hth_seal_length(r->bytes, &len);

    if (!rc && len > r->len)
        return HEARTH_EPEER; /* it waits for more, and the connection ends */
    return rc ? rc
              : hth_seal_take(
                        s, out, r->bytes, r->bytes + HTH_SEAL_HEAD, r->bytes + HTH_SEAL_HEAD + len);
}

static void every_change_of_a_record(enum hth_suite suite, enum hth_cipher_lib lib)
{
    unsigned char out[200], zeros[200] = { 0 };
    struct record r;
    struct shake s;

    for (size_t at = 0; at < 150 + HTH_SEAL_MORE; at++)
        for (int bit = 0; bit < 8; bit += 3) {
            shake_init(&s);
            s.dials.lib = s.accepts.lib = lib;
            s.dials.suites = s.accepts.suites = suite;
            must(shake(&s));
            record_make(s.dialler, &r, 150, 9);
            r.bytes[at] ^= (unsigned char)(1 << bit);
            memset(out, 9, sizeof(out));
            cr_assert(ne(int, record_open(s.acceptor, &r, out), 0), "byte %zu", at);
            if (at >= HTH_SEAL_HEAD) {
                cr_assert(zero(int, memcmp(out, zeros, 150)), "unproved bytes are left, byte %zu",
                        at);
                r.bytes[at] ^= (unsigned char)(1 << bit);
                must_fail(record_open(s.acceptor, &r, out), HEARTH_ESTATE);
            }
            shake_fini(&s);
        }
}

Test(seal, no_byte_of_a_record_can_be_changed, .init = seal_setup, .timeout = 60)
{
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            if (hth_cipher_suites(libs[k]) & sealed_suites[i])
                every_change_of_a_record(sealed_suites[i], libs[k]);
}

Test(seal, a_record_cut_short_or_given_another_length_does_not_open, .init = seal_setup)
{
    unsigned char out[200];
    struct record r;
    struct shake s;

    for (uint32_t len = 0; len < 150; len++) {
        shake_init(&s);
        must(shake(&s));
        record_make(s.dialler, &r, 150, 9);
        hth_put32(r.bytes, len);
        must_fail(record_open(s.acceptor, &r, out), HEARTH_EAUTH);
        shake_fini(&s);
    }
}

Test(seal, a_record_opens_once_and_in_its_place, .init = seal_setup)
{
    unsigned char out[200];
    struct record r[3];
    struct shake s;

    for (int wrong = 0; wrong < 3; wrong++) {
        shake_init(&s);
        must(shake(&s));
        for (int i = 0; i < 3; i++)
            record_make(s.dialler, &r[i], 50, (unsigned char)i);
        if (wrong == 0) { /* again */
            must(record_open(s.acceptor, &r[0], out));
            must_fail(record_open(s.acceptor, &r[0], out), HEARTH_EAUTH);
        } else { /* before another one; without the one between */
            if (wrong == 2)
                must(record_open(s.acceptor, &r[0], out));
            must_fail(record_open(s.acceptor, &r[wrong == 1 ? 1 : 2], out), HEARTH_EAUTH);
        }
        shake_fini(&s);
    }
}

Test(seal, a_record_of_another_connection_does_not_open, .init = seal_setup)
{
    unsigned char out[200];
    struct shake s, t;
    struct record r;

    shake_init(&s);
    must(shake(&s));
    shake_init(&t);
    must(shake(&t));
    record_make(s.dialler, &r, 50, 1);
    must_fail(record_open(t.acceptor, &r, out), HEARTH_EAUTH);
    shake_fini(&s);
    shake_fini(&t);
}

Test(seal, the_key_is_another_one_after_its_limit, .init = seal_setup)
{
    static const struct {
        uint64_t records, bytes, theirs_records, theirs_bytes;
        unsigned good; /* records of 100 bytes that open */
    } cases[] = {
        { 4, 0, 4, 0, 40 },
        { 0, 450, 0, 450, 40 },
        { 0, 400, 0, 400, 40 },
        { 0, 10, 0, 10, 40 }, /* less than one record: a key each */
        { 1, 0, 1, 0, 40 },
        { 4, 0, 5, 0,
                4 }, /* the fifth is under the next key, and the other side does not look for it there */
        { 0, 400, 0, 500, 4 },
        { 0, 450, 0, 499, 40 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct shake s;
        unsigned good = 0;

        shake_init(&s);
        s.dials.key_records = cases[i].records;
        s.dials.key_bytes = cases[i].bytes;
        s.accepts.key_records = cases[i].theirs_records;
        s.accepts.key_bytes = cases[i].theirs_bytes;
        must(shake(&s));
        while (good < 40 && !goes_over(s.dialler, s.acceptor, 100))
            good++;
        cr_assert(eq(uint, good, cases[i].good), "case %zu: %u", i, good);
        shake_fini(&s);
    }
}

Test(seal, nothing_of_a_hand_is_left, .init = seal_setup)
{
    struct shake s;
    const unsigned char *bytes = (const unsigned char *)&s.d;

    shake_init(&s);
    must(shake(&s));
    for (size_t i = 0; i < sizeof(s.d.secret); i++)
        cr_assert(zero(int, s.d.secret[i] | s.a.secret[i] | s.d.bond[i]));
    must(hth_seal_dial(&s.d, &s.dials, s.hello_d, NULL));
    hth_seal_drop(&s.d);
    for (size_t i = 0; i < offsetof(struct hth_seal_hand, stage); i++)
        cr_assert(zero(int, bytes[i]));
    shake_fini(&s);
}
