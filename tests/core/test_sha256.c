/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256: the standard's examples, both ways of computing it, and a node without libcrypto. */
#include "check.h"

#include "core/base/env.h"
#include "core/base/libcrypto.h"
#include "core/base/sha256.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES 70000

static int hidden; /* 1: there is no libcrypto on this node */

void *dlopen(const char *name, int flags)
{
    void *next = dlsym(RTLD_NEXT, "dlopen");
    void *(*open)(const char *, int);

    memcpy(&open, &next, sizeof(open));
    return hidden && name && !strcmp(name, HTH_LIBCRYPTO) ? NULL : open(name, flags);
}

static void hex_of(char out[2 * HTH_SHA256 + 1], const unsigned char digest[HTH_SHA256])
{
    for (size_t i = 0; i < HTH_SHA256; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

static void gives(const void *bytes, size_t len, const char *want)
{
    unsigned char digest[HTH_SHA256];
    char hex[2 * HTH_SHA256 + 1];

    hth_sha256_bulk(digest, bytes, len);
    hex_of(hex, digest);
    cr_assert(eq(str, hex, (char *)(uintptr_t)want));
    hth_sha256(digest, bytes, len);
    hex_of(hex, digest);
    cr_assert(eq(str, hex, (char *)(uintptr_t)want));
}

static void gives_the_standards_examples(void)
{
    static char a[1000000];

    memset(a, 'a', sizeof(a));
    gives("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    gives("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    gives("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    gives(a, sizeof(a), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

Test(sha256, has_the_values_of_fips_180)
{
    gives_the_standards_examples();
}

Test(sha256, of_both_libraries_is_the_same_at_every_length_and_place)
{
    static unsigned char bytes[BYTES];
    uint64_t seed = 1;

    if (hth_sha256_ready(NULL))
        cr_skip_test("no libcrypto");
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)hth_splitmix64(&seed);
    for (size_t len = 0; len < BYTES; len = len < 300 ? len + 1 : len * 3 / 2) {
        unsigned char one[HTH_SHA256], other[HTH_SHA256];
        size_t from = len % 61 < BYTES - len ? len % 61 : 0;

        hth_sha256_bulk(one, bytes + from, len);
        hth_sha256(other, bytes + from, len);
        cr_assert(eq(int, memcmp(one, other, HTH_SHA256), 0), "%zu bytes from %zu", len, from);
    }
}

Test(sha256, without_libcrypto_is_computed_but_not_ready)
{
    struct hearth_error err;

    hidden = 1;
    must_fail(hth_sha256_ready(&err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "libcrypto.so.3 does not load"), NULL), "%s", err.text);
    gives_the_standards_examples();
}

Test(sha256, with_libcrypto_is_its)
{
    if (!dlopen(HTH_LIBCRYPTO, RTLD_LAZY)) /* asked of the system: ours might look for nothing */
        cr_skip_test("no libcrypto");
    must(hth_sha256_ready(NULL));
}
