/* SPDX-License-Identifier: Apache-2.0 */
#include "sha256.h"

#include "fail.h"
#include "libcrypto.h"

void hth_sha256_bulk(unsigned char out[HTH_SHA256], const void *bytes, size_t len)
{
    const struct hth_libcrypto *l = hth_libcrypto();

    if (!l || !l->sha256 || !l->digest(bytes, len, out, NULL, l->sha256, NULL))
        hth_sha256(out, bytes, len);
}

int hth_sha256_ready(struct hearth_error *err)
{
    const struct hth_libcrypto *l = hth_libcrypto();

    if (l && l->sha256)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, 0,
            "integrity = strong needs SHA-256 of OpenSSL's libcrypto, and %s on this node: install "
            "OpenSSL 3, or leave integrity at crc32c",
            l ? "the " HTH_LIBCRYPTO " that is loaded has none" : HTH_LIBCRYPTO " does not load");
}
