/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrecy of one TCP connection, as functions on memory; the caller sends and receives the bytes.
 *
 *   dialler                                  acceptor
 *   hth_seal_dial    HELLO[128]    ──►       hth_seal_accept
 *   hth_seal_answer  ◄──    HELLO[128]
 *                    PROOF[32]     ──►       hth_seal_admit      the dialler is proved
 *   hth_seal_finish  ◄──     PROOF[32]                           the acceptor is proved
 *                    records      ◄─►        records
 *
 * The dialler's hello ends with a mac under a key of the job key. The acceptor checks it before any
 * curve operation and before it answers: a stranger costs two hashes, and receives nothing. An
 * attacker who sends a recorded hello again receives a hello that does not depend on the job key,
 * and proves nothing. An attacker who records a hello, or is dialled, can try job keys on its mac,
 * offline: a job key is 32 random bytes. docs/design/security.md has the handshake in the terms of
 * the Noise framework, with test vectors.
 *
 * A hello, little-endian, all of it in the proofs, so that no attacker on the path can turn down
 * version or suite:
 *
 *    0 u32 'HTCP'   4 u8 lowest version   5 u8 highest   6 u8 side (1 dials, 2 accepts)   7 u8 purpose
 *    8 u32 suites: those offered, or of the acceptor the one it takes (0: none of them)
 *   12 u32 zero
 *   16 16  of bulk: the id of its message connection, else zeros
 *   32 32  nonce
 *   64 32  X25519 public key, of this connection alone
 *   96 32  of the dialler: HMAC-SHA-256 of bytes 0 to 95, of the acceptor zeros
 *
 *   mac's key = HKDF-Expand(job key, "hello")
 *   secret    = HKDF-Extract(salt: job key, X25519 of both | secret of the message connection, or zeros)
 *   each key  = HKDF-Expand(secret, its name | SHA-256 of both hellos)
 *   proofs    = HMAC-SHA-256 of both hellos; the acceptor's also of the dialler's proof
 *
 * A record: u32 length of the plain bytes | as many sealed | tag[16]. The length is authenticated,
 * the nonce is the direction's first one XOR a counter that is not sent. A record that was changed,
 * left out, repeated, or belongs to another place, direction or connection does not open, and no
 * record after it opens. Each direction's key is followed by another one (HKDF) before its limit of
 * records or bytes.
 *
 * With HTH_SUITE_PROOF there are no records: both sides are proved, then bytes are sent as they
 * are, and an attacker on the path can read and change them. It is taken if both offer it, and only
 * then.
 */
#ifndef HEARTH_TRANSPORT_TCP_SEAL_H
#define HEARTH_TRANSPORT_TCP_SEAL_H

#include "core/base/auth.h"

#include <hearth/error.h>
#include <stddef.h>
#include <stdint.h>

#define HTH_SEAL_HELLO 128u /* bytes of a hello */
#define HTH_SEAL_PROOF 32u

#define HTH_SEAL_PLAIN (64u << 10) /* most plain bytes of a record */
#define HTH_SEAL_HEAD  4u
#define HTH_SEAL_TAG   16u
#define HTH_SEAL_MORE  (HTH_SEAL_HEAD + HTH_SEAL_TAG) /* what a record has beside its plain bytes */

enum hth_suite {
    HTH_SUITE_PROOF = 1, /* the best of `network = trusted`: offer it there and nowhere else */
    HTH_SUITE_CHACHA20_POLY1305 = 2,
    HTH_SUITE_AES_256_GCM = 4,
};

enum hth_purpose { HTH_PURPOSE_MESSAGES = 1, HTH_PURPOSE_BULK = 2 };

/* What binds a bulk connection to its message connection. Both ends of the latter have the same. */
struct hth_seal_bond {
    unsigned char id[16]; /* may be seen by all */
    unsigned char secret[HTH_KEY];
};

/* Whose code does the work: of tests. */
enum hth_cipher_lib { HTH_CIPHER_ANY, HTH_CIPHER_LIBCRYPTO, HTH_CIPHER_LIBSODIUM };

struct hth_seal_opts {
    const unsigned char *
            key; /* [HTH_KEY] the job's, zeros without one; borrowed until the handshake has ended */
    /* that this side offers or accepts: hth_seal_suites(), or HTH_SUITE_PROOF, or both */
    uint32_t suites;
    enum hth_purpose purpose; /* of the dialler; the acceptor reads it from the hello */
    /* Of bulk: its message connection's; copied. The acceptor's NULL: it has none of that id, and
     * refuses the proof in the same time and words as a wrong one. */
    const struct hth_seal_bond *bond;
    uint64_t key_records,
            key_bytes; /* limits of one key, for tests: the same on both sides; 0: 2^32, 2^38 */
    enum hth_cipher_lib lib; /* for tests */
};

/* Once before anything else here, by any thread: looks for libcrypto. Errors: HEARTH_EIO. */
int hth_seal_init(struct hearth_error *err);

/* The suites with secrecy that this machine can do well: ChaCha20-Poly1305 always, AES-256-GCM
 * where the processor and libcrypto have it. */
uint32_t hth_seal_suites(void);

/* For a line at open: of which suite, and whose code, "AES-256-GCM (libcrypto)"; and GB/s that one
 * core seals, found with a megabyte. 0: it could not be. */
const char *hth_seal_name(enum hth_suite suite);
double hth_seal_rate(enum hth_suite suite);

/* ---- handshake: a few hundred bytes of the caller's until the key is proved ---- */

struct hth_seal_hand {
    struct hth_seal_opts opts; /* without bond */
    unsigned char secret[HTH_KEY], bond[HTH_KEY];
    unsigned char transcript[2 * HTH_SEAL_HELLO]; /* dialler's, acceptor's */
    unsigned char proof[HTH_SEAL_PROOF];          /* dialler's */
    uint32_t suite;
    int stage;
};

struct hth_seal;

/* 1: a dialler with this job key has written it, now or before. Two hashes. */
int hth_seal_knows(const unsigned char job_key[HTH_KEY], const unsigned char hello[HTH_SEAL_HELLO]);
/* 1: the hello's version has no mac, so it is an older Hearth's. Not proved. */
int hth_seal_is_older(const unsigned char hello[HTH_SEAL_HELLO]);

/* The fields of a dialler's hello, not proved: with them the acceptor finds the bond. Errors:
 * HEARTH_EPROTO for values that no dialler writes. */
struct hth_seal_asked {
    enum hth_purpose purpose;
    uint32_t suites;
    unsigned char id[16];
};
int hth_seal_asks(const unsigned char hello[HTH_SEAL_HELLO], struct hth_seal_asked *out,
        struct hearth_error *err);

/* Dialler: writes the hello. Errors: HEARTH_EINVAL. */
int hth_seal_dial(struct hth_seal_hand *h, const struct hth_seal_opts *opts,
        unsigned char out[HTH_SEAL_HELLO], struct hearth_error *err);

/* Acceptor: writes the hello that answers the dialler's. Errors: HEARTH_EAUTH, not of this job's
 * key, and HEARTH_EPROTO, not a known hello: close; HEARTH_EUNSUPPORTED, no suite or version in
 * common: `out` has that, send it and close. */
int hth_seal_accept(struct hth_seal_hand *h, const struct hth_seal_opts *opts,
        const unsigned char hello[HTH_SEAL_HELLO], unsigned char out[HTH_SEAL_HELLO],
        struct hearth_error *err);

/* Dialler: writes its proof, which answers the acceptor's hello. Errors: HEARTH_EPROTO;
 * HEARTH_EUNSUPPORTED. Neither is proved to come from a member. */
int hth_seal_answer(struct hth_seal_hand *h, const unsigned char hello[HTH_SEAL_HELLO],
        unsigned char out[HTH_SEAL_PROOF], struct hearth_error *err);

/* Acceptor: checks the dialler's proof, then writes its own. Errors: HEARTH_EAUTH, close without an
 * answer; HEARTH_ENOMEM. */
int hth_seal_admit(struct hth_seal_hand *h, const unsigned char proof[HTH_SEAL_PROOF],
        unsigned char out[HTH_SEAL_PROOF], struct hth_seal **out_seal, struct hearth_error *err);

/* Dialler: checks the acceptor's proof. Errors: HEARTH_EAUTH, HEARTH_ENOMEM. */
int hth_seal_finish(struct hth_seal_hand *h, const unsigned char proof[HTH_SEAL_PROOF],
        struct hth_seal **out_seal, struct hearth_error *err);

/* Wipes the hand, at any stage, also one that is all zeros. Always call it, also after admit and
 * finish. */
void hth_seal_drop(struct hth_seal_hand *h);

/* ---- records: each direction by one thread at a time, the two at once by two threads ---- */

enum hth_suite hth_seal_suite(const struct hth_seal *s);

/* Of a message connection. */
void hth_seal_bond(const struct hth_seal *s, struct hth_seal_bond *out);

/* Seals in[len], len <= HTH_SEAL_PLAIN, as the record out[len + HTH_SEAL_MORE]. `in` is out +
 * HTH_SEAL_HEAD, or does not overlap. Errors: HEARTH_EINVAL, HEARTH_ESTATE: this direction has
 * failed before, HEARTH_EIO. */
int hth_seal_put(struct hth_seal *s, unsigned char *out, const void *in, size_t len);

/* The plain length that a record's head claims. Errors: HEARTH_EPROTO: no record of this protocol
 * is so long. */
int hth_seal_length(const unsigned char head[HTH_SEAL_HEAD], size_t *out_len);

/* Opens sealed[len] into out[len]; `sealed` is `out`, or does not overlap. Head and tag may lie
 * elsewhere than between the records, so that bytes are received where they will stay. Errors:
 * HEARTH_EAUTH: not what was sent, out[len] is zeros, and nothing opens from here on;
 * HEARTH_ESTATE: has failed before; HEARTH_EPROTO. */
int hth_seal_take(struct hth_seal *s, void *out, const unsigned char head[HTH_SEAL_HEAD],
        const void *sealed, const unsigned char tag[HTH_SEAL_TAG]);

void hth_seal_close(struct hth_seal *s); /* wipes the keys. NULL: nothing */

#endif
