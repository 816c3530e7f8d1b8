/* SPDX-License-Identifier: Apache-2.0 */
/* The one file that knows libsodium: digests, message authentication, the job key, the encryption
 * of connections. */
#ifndef HEARTH_CORE_BASE_AUTH_H
#define HEARTH_CORE_BASE_AUTH_H

#include "id.h"
#include <stddef.h>

#define HTH_KEY 32 /* bytes of a job key and of a session key */
#define HTH_MAC 16 /* bytes of a message authentication code */

/* Once before any other call here. Errors: HEARTH_EIO. */
int hth_auth_init(struct hearth_error *err);

/* BLAKE2b-256 of bytes[len]. */
void hth_digest(unsigned char out[HTH_DIGEST], const void *bytes, size_t len);

/* The same, piece by piece; may be copied and left unfinished. */
struct hth_digesting {
    unsigned char state[384]; /* libsodium's, at whatever address */
};
void hth_digest_begin(struct hth_digesting *d);
void hth_digest_add(struct hth_digesting *d, const void *bytes, size_t len);
void hth_digest_end(struct hth_digesting *d, unsigned char out[HTH_DIGEST]);

/* Keyed BLAKE2b-128 over two pieces (either may be empty). */
void hth_mac(unsigned char out[HTH_MAC], const unsigned char key[HTH_KEY], const void *a,
        size_t a_len, const void *b, size_t b_len);
int hth_mac_equal(const unsigned char a[HTH_MAC], const unsigned char b[HTH_MAC]); /* 1: equal */

/* Proves to a rank of the engine's node that the engine has this key. The rank drew the challenge
 * at random. */
#define HTH_LOCAL_CHALLENGE 16
void hth_local_proof(unsigned char out[HTH_MAC], const unsigned char key[HTH_KEY],
        const unsigned char challenge[HTH_LOCAL_CHALLENGE]);

/* A key for one purpose; neither the job's key nor that of another purpose can be computed from
 * it. */
void hth_subkey(
        unsigned char out[HTH_KEY], const unsigned char job_key[HTH_KEY], const char *purpose);

void hth_random_bytes(void *out, size_t len);

/* Derives a session's key, one for each purpose, from the job's key and from what both sides have
 * sent (`transcript`). */
void hth_session_key(unsigned char out[HTH_KEY], const unsigned char job_key[HTH_KEY],
        const char *purpose, const void *transcript, size_t len);

/*
 * The one copy of the job key in this process, or of both keys while an operator changes it: in
 * memory that is not swapped, dumped or inherited by a child, and wiped at close. Callers borrow
 * the pointers. An id names a key in logs and to an operator. It is computed from the key, so a
 * reader of the id can test guesses of the key with it: no message contains it.
 */
struct hth_key {
    const unsigned char *bytes; /* [HTH_KEY] to dial and prove with */
    const unsigned char *other; /* [HTH_KEY] accepted from peers as well; NULL: there is one key */
    uint32_t id, other_id;
    int locked; /* 0: RLIMIT_MEMLOCK leaves no room, so it may be swapped */
    struct hth_key_place *place;
};

/* Names the pattern by which these bytes differ from 32 random ones, as "a text"; NULL: no
 * pattern was found. */
const char *hth_key_weak(const unsigned char key[HTH_KEY]);

/* Opens a key file for a process that may not open it by its name. open() returns a descriptor,
 * which the caller closes; or -1 and errno: as open(2) with O_NOFOLLOW, or EPIPE: the process that
 * opens the file for this one has ended. */
struct hth_key_opener {
    int (*open)(void *self);
    void *self;
};

/* The key file: 32 bytes, or 64 hex digits and a newline, twice where there are two keys; no link;
 * mode 0600 or stricter, owned by us, or 0440 or stricter, owned by root, its group one of ours.
 * "fd:N" is an inherited descriptor of such a file, or of one without a name (memfd_create()). No
 * key that hth_key_weak() names. Errors: HEARTH_EINVAL with a sentence that says what to do,
 * HEARTH_ENOMEM. */
int hth_key_open(const char *path, struct hth_key *out, struct hearth_error *err);
/* The same by an opener; NULL, or a path that is a descriptor: without it. */
int hth_key_open_by(const struct hth_key_opener *opener, const char *path, struct hth_key *out,
        struct hearth_error *err);
/* Reads the file anew; from then on the keys are those that it holds. A key that stays keeps its
 * pointer. A key that has gone is overwritten, so no handshake under way can prove with it.
 * *out_changed: 1 if a key or the order of the keys has changed. Errors: as of open; the keys then
 * stay as they were. */
int hth_key_reload(struct hth_key *key, const struct hth_key_opener *opener, const char *path,
        int *out_changed, struct hearth_error *err);
void hth_key_close(struct hth_key *key); /* NULL and one of zeros: nothing */

#define HTH_KEY_LINE (2 * HTH_KEY + 1) /* a key's line in a file */
void hth_key_line(
        char out[HTH_KEY_LINE], const unsigned char key[HTH_KEY]); /* ends with a newline */

uint32_t hth_key_id(const unsigned char key[HTH_KEY]); /* never 0 */
/* The key of that id; for id 0, which means that the peer named no key, the first. NULL: there is
 * none. */
const unsigned char *hth_key_of(const struct hth_key *key, uint32_t id);
/* The descriptor that "fd:N" names; -1: it is a path. */
int hth_key_fd(const char *path);
/* Memory of this kind for another secret; NULL: none is left. out_locked may be NULL. */
void *hth_secret_alloc(size_t len, int *out_locked);
void hth_secret_free(void *secret); /* wipes it. NULL: nothing */

void hth_wipe(void *secret, size_t len);                        /* not optimised away */
int hth_secret_equal(const void *a, const void *b, size_t len); /* 1: equal; in the same time */

/* ---- of sealed connections ---- */

#define HTH_SHA256 32

void hth_sha256(unsigned char out[HTH_SHA256], const void *bytes, size_t len);
/* HMAC-SHA-256 of a | b (either may be empty); as well HKDF-Extract, its key then the salt. */
void hth_hmac(unsigned char out[HTH_SHA256], const void *key, size_t key_len, const void *a,
        size_t a_len, const void *b, size_t b_len);
/* HKDF-Expand (RFC 5869) of SHA-256; len <= 255 * HTH_SHA256. */
void hth_hkdf_expand(unsigned char *out, size_t len, const unsigned char key[HTH_SHA256],
        const void *info, size_t info_len);

/* X25519 (RFC 7748) with an ephemeral pair. hth_exchange_public(): the public key of `secret`.
 * hth_exchange(): the value that it shares with the owner of `public_key`; HEARTH_EAUTH for a
 * public key that makes this value the same for every secret. */
void hth_exchange_public(unsigned char out[HTH_KEY], const unsigned char secret[HTH_KEY]);
int hth_exchange(unsigned char out[HTH_KEY], const unsigned char secret[HTH_KEY],
        const unsigned char public_key[HTH_KEY]);

/* ChaCha20-Poly1305 (RFC 8439), tag apart; in may be out. Open: HEARTH_EAUTH, and out is not
 * written. */
#define HTH_AEAD_NONCE 12
#define HTH_AEAD_TAG   16
void hth_chacha_seal(unsigned char *out, unsigned char tag[HTH_AEAD_TAG], const unsigned char *in,
        size_t len, const void *head, size_t head_len, const unsigned char nonce[HTH_AEAD_NONCE],
        const unsigned char key[HTH_KEY]);
int hth_chacha_open(unsigned char *out, const unsigned char *in, size_t len,
        const unsigned char tag[HTH_AEAD_TAG], const void *head, size_t head_len,
        const unsigned char nonce[HTH_AEAD_NONCE], const unsigned char key[HTH_KEY]);

#endif
