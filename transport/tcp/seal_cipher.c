/* SPDX-License-Identifier: Apache-2.0 */
/* The code that does the work: libcrypto's if it is installed, two to three times as fast, else
 * libsodium's ChaCha20-Poly1305. AES is offered only if the processor has instructions for it:
 * computed by tables, it is slow, and shows its key to programs that share the cache. */
#include "seal_cipher.h"

#include "core/base/libcrypto.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __aarch64__
#include <sys/auxv.h>
#endif

struct hth_cipher {
    enum hth_suite suite;
    int sealing;
    struct hth_evp *evp;        /* NULL: libsodium */
    unsigned char key[HTH_KEY]; /* libsodium's */
};

static int processor_has_aes(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__)
    return (getauxval(AT_HWCAP) & (HWCAP_AES | HWCAP_PMULL)) == (HWCAP_AES | HWCAP_PMULL);
#else
    return 0;
#endif
}

void hth_cipher_init(void)
{
    (void)hth_libcrypto();
}

/* Its EVP_CIPHER; NULL: `lib` is to be libsodium, or there is none. */
static const void *evp_cipher(enum hth_suite suite, enum hth_cipher_lib lib)
{
    const struct hth_libcrypto *l = lib == HTH_CIPHER_LIBSODIUM ? NULL : hth_libcrypto();

    if (l && suite == HTH_SUITE_AES_256_GCM && processor_has_aes())
        return l->aes;
    return l && suite == HTH_SUITE_CHACHA20_POLY1305 ? l->chacha : NULL;
}

uint32_t hth_cipher_suites(enum hth_cipher_lib lib)
{
    uint32_t suites = 0;

    if (lib != HTH_CIPHER_LIBCRYPTO || evp_cipher(HTH_SUITE_CHACHA20_POLY1305, lib))
        suites |= HTH_SUITE_CHACHA20_POLY1305;
    if (evp_cipher(HTH_SUITE_AES_256_GCM, lib))
        suites |= HTH_SUITE_AES_256_GCM;
    return suites;
}

const char *hth_seal_name(enum hth_suite suite)
{
    if (suite == HTH_SUITE_AES_256_GCM)
        return "AES-256-GCM (libcrypto)";
    if (suite == HTH_SUITE_CHACHA20_POLY1305)
        return evp_cipher(suite, HTH_CIPHER_ANY) ? "ChaCha20-Poly1305 (libcrypto)"
                                                 : "ChaCha20-Poly1305 (libsodium)";
    return "no cipher";
}

double hth_seal_rate(enum hth_suite suite)
{
    static const unsigned char key[HTH_KEY], nonce[HTH_AEAD_NONCE];
    enum { TIMES = 16 };
    struct hth_cipher *c = hth_cipher_new(suite, HTH_CIPHER_ANY, 1);
    unsigned char *bytes = calloc(1, HTH_SEAL_PLAIN), tag[HTH_AEAD_TAG];
    struct timespec from, to;
    double took_ns;
    int rc = !c || !bytes || hth_cipher_key(c, key);

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (int i = 0; i < TIMES && !rc; i++)
        rc = hth_cipher_seal(c, nonce, NULL, 0, bytes, bytes, HTH_SEAL_PLAIN, tag);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    took_ns = (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
    hth_cipher_free(c);
    free(bytes);
    return rc || took_ns <= 0 ? 0 : (double)TIMES * HTH_SEAL_PLAIN / took_ns;
}

/* 0: started. EVP itself returns 1 for success. */
static int evp_start(struct hth_cipher *c, const void *cipher)
{
    c->evp = hth_libcrypto()->ctx_new();
    return !c->evp || !hth_libcrypto()->init(c->evp, cipher, NULL, NULL, NULL, c->sealing);
}

struct hth_cipher *hth_cipher_new(enum hth_suite suite, enum hth_cipher_lib lib, int sealing)
{
    const void *cipher = evp_cipher(suite, lib);
    struct hth_cipher *c;

    if (!(hth_cipher_suites(lib) & suite))
        return NULL;
    c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->suite = suite;
    c->sealing = sealing;
    if (cipher && evp_start(c, cipher)) {
        hth_cipher_free(c);
        return NULL;
    }
    return c;
}

void hth_cipher_free(struct hth_cipher *c)
{
    if (!c)
        return;
    if (c->evp)
        hth_libcrypto()->ctx_free(c->evp); /* which wipes */
    hth_wipe(c, sizeof(*c));
    free(c);
}

int hth_cipher_key(struct hth_cipher *c, const unsigned char key[HTH_KEY])
{
    if (c->evp)
        return hth_libcrypto()->init(c->evp, NULL, NULL, key, NULL, -1) ? HEARTH_OK : HEARTH_EIO;
    memcpy(c->key, key, HTH_KEY);
    return HEARTH_OK;
}

int hth_cipher_seal(struct hth_cipher *c, const unsigned char nonce[HTH_AEAD_NONCE],
        const void *head, size_t head_len, unsigned char *out, const unsigned char *in, size_t len,
        unsigned char tag[HTH_AEAD_TAG])
{
    const struct hth_libcrypto *l = hth_libcrypto();
    unsigned char none[16];
    int n;

    if (!c->evp) {
        hth_chacha_seal(out, tag, in, len, head, head_len, nonce, c->key);
        return HEARTH_OK;
    }
    if (!l->init(c->evp, NULL, NULL, NULL, nonce, -1) ||
            !l->update(c->evp, NULL, &n, head, (int)head_len) ||
            (len && !l->update(c->evp, out, &n, in, (int)len)) || !l->final(c->evp, none, &n) ||
            !l->ctrl(c->evp, HTH_EVP_GET_TAG, HTH_AEAD_TAG, tag))
        return HEARTH_EIO;
    return HEARTH_OK;
}

int hth_cipher_open(struct hth_cipher *c, const unsigned char nonce[HTH_AEAD_NONCE],
        const void *head, size_t head_len, unsigned char *out, const unsigned char *in, size_t len,
        const unsigned char tag[HTH_AEAD_TAG])
{
    const struct hth_libcrypto *l = hth_libcrypto();
    unsigned char none[16], given[HTH_AEAD_TAG];
    int n;

    if (!c->evp)
        return hth_chacha_open(out, in, len, tag, head, head_len, nonce, c->key);
    memcpy(given, tag, sizeof(given)); /* ctrl() takes it unqualified */
    if (!l->init(c->evp, NULL, NULL, NULL, nonce, -1) ||
            !l->update(c->evp, NULL, &n, head, (int)head_len) ||
            (len && !l->update(c->evp, out, &n, in, (int)len)) ||
            !l->ctrl(c->evp, HTH_EVP_SET_TAG, HTH_AEAD_TAG, given))
        return HEARTH_EIO;
    return l->final(c->evp, none, &n) ? HEARTH_OK : HEARTH_EAUTH;
}
