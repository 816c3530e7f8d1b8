/* SPDX-License-Identifier: Apache-2.0 */
/* For this folder alone. One direction's cipher: of libcrypto, which is opened at run time if it is
 * there, or of libsodium. */
#ifndef HEARTH_TRANSPORT_TCP_SEAL_CIPHER_H
#define HEARTH_TRANSPORT_TCP_SEAL_CIPHER_H

#include "seal.h"

struct hth_cipher;

/* Once before the rest, by any thread. */
void hth_cipher_init(void);

/* The suites with secrecy that `lib` has on this machine. */
uint32_t hth_cipher_suites(enum hth_cipher_lib lib);

/* To seal, or to open. NULL: no memory, or `lib` does not have it. */
struct hth_cipher *hth_cipher_new(enum hth_suite suite, enum hth_cipher_lib lib, int sealing);
void hth_cipher_free(struct hth_cipher *c); /* wipes the key. NULL: nothing */

/* Before the first call of seal or open, and for each new key. Errors: HEARTH_EIO. */
int hth_cipher_key(struct hth_cipher *c, const unsigned char key[HTH_KEY]);

/* out may be in. head[head_len] is authenticated too. Errors: HEARTH_EIO. */
int hth_cipher_seal(struct hth_cipher *c, const unsigned char nonce[HTH_AEAD_NONCE],
        const void *head, size_t head_len, unsigned char *out, const unsigned char *in, size_t len,
        unsigned char tag[HTH_AEAD_TAG]);

/* Errors: HEARTH_EAUTH, out[len] is undefined; HEARTH_EIO. */
int hth_cipher_open(struct hth_cipher *c, const unsigned char nonce[HTH_AEAD_NONCE],
        const void *head, size_t head_len, unsigned char *out, const unsigned char *in, size_t len,
        const unsigned char tag[HTH_AEAD_TAG]);

#endif
