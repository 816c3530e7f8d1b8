/* SPDX-License-Identifier: Apache-2.0 */
/* The few functions that we call of libcrypto 3, found at run time: no header and no link, so that
 * a machine without it, or with another one in the same process, is a machine like any. */
#ifndef HEARTH_CORE_BASE_LIBCRYPTO_H
#define HEARTH_CORE_BASE_LIBCRYPTO_H

#include <stddef.h>
#include <stdint.h>

#define HTH_LIBCRYPTO   "libcrypto.so.3"

/* Their names in <openssl/evp.h> stand beside them. */
#define HTH_EVP_GET_TAG 0x10 /* EVP_CTRL_AEAD_GET_TAG */
#define HTH_EVP_SET_TAG 0x11 /* EVP_CTRL_AEAD_SET_TAG */

struct hth_evp; /* EVP_CIPHER_CTX */

struct hth_libcrypto {
    void *chacha, *aes; /* EVP_CIPHER; NULL: it has none */
    void *sha256;       /* EVP_MD, likewise */
    struct hth_evp *(*ctx_new)(void);
    void (*ctx_free)(struct hth_evp *);
    int (*init)(struct hth_evp *, const void *cipher, void *engine, const unsigned char *key,
            const unsigned char *nonce, int sealing);
    int (*update)(
            struct hth_evp *, unsigned char *out, int *out_len, const unsigned char *in, int len);
    int (*final)(struct hth_evp *, unsigned char *out, int *out_len);
    int (*ctrl)(struct hth_evp *, int what, int number, void *at);
    int (*digest)(const void *bytes, size_t len, unsigned char *out, unsigned *out_len,
            const void *md, void *engine);
};

/* The library, opened at the first call and never closed. NULL: it is not there, or not as we know
 * it. */
const struct hth_libcrypto *hth_libcrypto(void);

#endif
