/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digests and message authentication: BLAKE2b in all its uses. A code over two pieces has the
 * length of the first in front, so that no bytes can move from one piece to the other.
 */
#include "auth.h"
#include "bytes.h"

#include <sodium.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int hth_auth_init(struct hearth_error *err)
{
    if (sodium_init() < 0)
        return hth_fail(err, HEARTH_EIO, 0,
                "libsodium did not start: the system gives it no random numbers");
    return HEARTH_OK;
}

void hth_digest(unsigned char out[HTH_DIGEST], const void *bytes, size_t len)
{
    crypto_generichash(out, HTH_DIGEST, bytes, len, NULL, 0);
}

_Static_assert(sizeof(crypto_generichash_state) <= sizeof(struct hth_digesting),
        "a digest's state is larger than it was");

void hth_digest_begin(struct hth_digesting *d)
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, NULL, 0, HTH_DIGEST);
    memcpy(d->state, &state, sizeof(state));
}

void hth_digest_add(struct hth_digesting *d, const void *bytes, size_t len)
{
    crypto_generichash_state state;

    memcpy(&state, d->state, sizeof(state));
    crypto_generichash_update(&state, bytes, len);
    memcpy(d->state, &state, sizeof(state));
}

void hth_digest_end(struct hth_digesting *d, unsigned char out[HTH_DIGEST])
{
    crypto_generichash_state state;

    memcpy(&state, d->state, sizeof(state));
    crypto_generichash_final(&state, out, HTH_DIGEST);
}

void hth_mac(unsigned char out[HTH_MAC], const unsigned char key[HTH_KEY], const void *a,
        size_t a_len, const void *b, size_t b_len)
{
    crypto_generichash_state state;
    unsigned char len[8];

    hth_put64(len, a_len);
    crypto_generichash_init(&state, key, HTH_KEY, HTH_MAC);
    crypto_generichash_update(&state, len, sizeof(len));
    crypto_generichash_update(&state, a, a_len);
    crypto_generichash_update(&state, b, b_len);
    crypto_generichash_final(&state, out, HTH_MAC);
    hth_wipe(&state, sizeof(state));
}

int hth_mac_equal(const unsigned char a[HTH_MAC], const unsigned char b[HTH_MAC])
{
    return sodium_memcmp(a, b, HTH_MAC) == 0;
}

void hth_local_proof(unsigned char out[HTH_MAC], const unsigned char key[HTH_KEY],
        const unsigned char challenge[HTH_LOCAL_CHALLENGE])
{
    static const char what[] = "engine of this node";

    hth_mac(out, key, what, sizeof(what), challenge, HTH_LOCAL_CHALLENGE);
}

/* The final NULs keep a name or purpose from being the beginning of another one. */
static void auth_derive(unsigned char out[HTH_KEY], const unsigned char job_key[HTH_KEY],
        const char *name, const char *purpose, const void *more, size_t len)
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, job_key, HTH_KEY, HTH_KEY);
    crypto_generichash_update(&state, (const unsigned char *)name, strlen(name) + 1);
    crypto_generichash_update(&state, (const unsigned char *)purpose, strlen(purpose) + 1);
    crypto_generichash_update(&state, more, len);
    crypto_generichash_final(&state, out, HTH_KEY);
    hth_wipe(&state, sizeof(state));
}

void hth_subkey(
        unsigned char out[HTH_KEY], const unsigned char job_key[HTH_KEY], const char *purpose)
{
    auth_derive(out, job_key, purpose, "", NULL, 0);
}

void hth_session_key(unsigned char out[HTH_KEY], const unsigned char job_key[HTH_KEY],
        const char *purpose, const void *transcript, size_t len)
{
    auth_derive(out, job_key, "hearth session 1", purpose, transcript, len);
}

void hth_random_bytes(void *out, size_t len)
{
    randombytes_buf(out, len);
}

/* libsodium's allocator puts guard pages around its memory and leaves it out of dumps. It does not
 * say whether it could lock the memory, so mlock() is asked once more. */
void *hth_secret_alloc(size_t len, int *out_locked)
{
    unsigned char *secret = sodium_init() < 0 ? NULL : sodium_malloc(len);
    uintptr_t page = (uintptr_t)secret & -(uintptr_t)sysconf(_SC_PAGESIZE);
    size_t span = (uintptr_t)secret + len - page;

    if (!secret)
        return NULL;
    if (out_locked)
        *out_locked = mlock((const void *)page, span) == 0;
    madvise((void *)page, span, MADV_DONTDUMP);
    madvise((void *)page, span, MADV_DONTFORK);
    return secret;
}

void hth_secret_free(void *secret)
{
    sodium_free(secret);
}

void hth_wipe(void *secret, size_t len)
{
    sodium_memzero(secret, len);
}

int hth_secret_equal(const void *a, const void *b, size_t len)
{
    return sodium_memcmp(a, b, len) == 0;
}

void hth_sha256(unsigned char out[HTH_SHA256], const void *bytes, size_t len)
{
    crypto_hash_sha256(out, bytes, len);
}

void hth_hmac(unsigned char out[HTH_SHA256], const void *key, size_t key_len, const void *a,
        size_t a_len, const void *b, size_t b_len)
{
    crypto_auth_hmacsha256_state state;

    crypto_auth_hmacsha256_init(&state, key, key_len);
    crypto_auth_hmacsha256_update(&state, a, a_len);
    crypto_auth_hmacsha256_update(&state, b, b_len);
    crypto_auth_hmacsha256_final(&state, out);
    hth_wipe(&state, sizeof(state));
}

void hth_hkdf_expand(unsigned char *out, size_t len, const unsigned char key[HTH_SHA256],
        const void *info, size_t info_len)
{
    crypto_auth_hmacsha256_state state;
    unsigned char block[HTH_SHA256];
    size_t before = 0;

    for (unsigned char i = 1; len; i++) {
        size_t n = len < sizeof(block) ? len : sizeof(block);

        crypto_auth_hmacsha256_init(&state, key, HTH_SHA256);
        crypto_auth_hmacsha256_update(&state, block, before);
        crypto_auth_hmacsha256_update(&state, info, info_len);
        crypto_auth_hmacsha256_update(&state, &i, 1);
        crypto_auth_hmacsha256_final(&state, block);
        memcpy(out, block, n);
        before = sizeof(block);
        out += n;
        len -= n;
    }
    hth_wipe(&state, sizeof(state));
    hth_wipe(block, sizeof(block));
}

void hth_exchange_public(unsigned char out[HTH_KEY], const unsigned char secret[HTH_KEY])
{
    crypto_scalarmult_curve25519_base(out, secret);
}

int hth_exchange(unsigned char out[HTH_KEY], const unsigned char secret[HTH_KEY],
        const unsigned char public_key[HTH_KEY])
{
    return crypto_scalarmult_curve25519(out, secret, public_key) ? HEARTH_EAUTH : HEARTH_OK;
}

void hth_chacha_seal(unsigned char *out, unsigned char tag[HTH_AEAD_TAG], const unsigned char *in,
        size_t len, const void *head, size_t head_len, const unsigned char nonce[HTH_AEAD_NONCE],
        const unsigned char key[HTH_KEY])
{
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(
            out, tag, NULL, in, len, head, head_len, NULL, nonce, key);
}

int hth_chacha_open(unsigned char *out, const unsigned char *in, size_t len,
        const unsigned char tag[HTH_AEAD_TAG], const void *head, size_t head_len,
        const unsigned char nonce[HTH_AEAD_NONCE], const unsigned char key[HTH_KEY])
{
    return crypto_aead_chacha20poly1305_ietf_decrypt_detached(
                   out, NULL, in, len, tag, head, head_len, nonce, key)
                   ? HEARTH_EAUTH
                   : HEARTH_OK;
}
