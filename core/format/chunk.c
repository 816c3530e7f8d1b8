/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk.h"

#include "core/base/crc.h"
#include "core/base/sha256.h"
#include <string.h>

void hth_chunk_prove(struct hth_proof *out, const void *bytes, uint64_t len, uint32_t strong)
{
    out->crc = hth_crc32c(bytes, len);
    if (strong)
        hth_sha256_bulk(out->sha256, bytes, len);
}

int hth_chunk_is(const struct hth_proofs *proofs, uint32_t chunk, const void *bytes)
{
    uint64_t len = hth_chunk_len(proofs->data_len, chunk);
    unsigned char digest[HTH_SHA256];

    if (hth_crc32c(bytes, len) != proofs->crc[chunk]) /* an accident: the cheaper one finds it */
        return 0;
    if (!proofs->sha256)
        return 1;
    hth_sha256_bulk(digest, bytes, len);
    return memcmp(digest, proofs->sha256 + (uint64_t)chunk * HTH_SHA256, HTH_SHA256) == 0;
}
