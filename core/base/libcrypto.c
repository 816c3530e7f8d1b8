/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcrypto with a context of its own: what the process around us, or a file of the system's, has
 * set for its own use of the library is not ours, and what we do is not seen by it. The library is
 * set to leave no atexit() handler: our threads may still work while the program ends.
 */
#include "libcrypto.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define NO_CONFIG   UINT64_C(0x00000080) /* OPENSSL_INIT_NO_LOAD_CONFIG */
#define NO_ATEXIT   UINT64_C(0x00080000) /* OPENSSL_INIT_NO_ATEXIT */
#define NO_PROPERTY NULL

static struct hth_libcrypto library;
static int library_is_there;
static pthread_once_t library_once = PTHREAD_ONCE_INIT;

/* A function by its name: 0 if it is not there. */
static int symbol_find(void *handle, const char *name, void *out)
{
    void *found = dlsym(handle, name);

    memcpy(out, &found, sizeof(found));
    return found != NULL;
}

static void libcrypto_open(void)
{
    void *handle = dlopen(HTH_LIBCRYPTO, RTLD_NOW | RTLD_LOCAL);
    int (*start)(uint64_t, const void *);
    void *(*context_new)(void);
    void *(*fetch)(void *, const char *, const char *);
    void *(*digest_fetch)(void *, const char *, const char *);
    struct hth_libcrypto l = { 0 };
    void *context;

    if (!handle)
        return;
    if (!symbol_find(handle, "OPENSSL_init_crypto", &start) ||
            !symbol_find(handle, "OSSL_LIB_CTX_new", &context_new) ||
            !symbol_find(handle, "EVP_CIPHER_fetch", &fetch) ||
            !symbol_find(handle, "EVP_CIPHER_CTX_new", &l.ctx_new) ||
            !symbol_find(handle, "EVP_CIPHER_CTX_free", &l.ctx_free) ||
            !symbol_find(handle, "EVP_CipherInit_ex", &l.init) ||
            !symbol_find(handle, "EVP_CipherUpdate", &l.update) ||
            !symbol_find(handle, "EVP_CipherFinal_ex", &l.final) ||
            !symbol_find(handle, "EVP_CIPHER_CTX_ctrl", &l.ctrl) ||
            !symbol_find(handle, "EVP_MD_fetch", &digest_fetch) ||
            !symbol_find(handle, "EVP_Digest", &l.digest))
        return;
    if (!start(NO_CONFIG | NO_ATEXIT, NULL) || !(context = context_new()))
        return;
    l.chacha = fetch(context, "ChaCha20-Poly1305", NO_PROPERTY);
    l.aes = fetch(context, "AES-256-GCM", NO_PROPERTY);
    l.sha256 = digest_fetch(context, "SHA2-256", NO_PROPERTY);
    library = l;
    library_is_there = 1;
}

const struct hth_libcrypto *hth_libcrypto(void)
{
    pthread_once(&library_once, libcrypto_open);
    return library_is_there ? &library : NULL;
}
