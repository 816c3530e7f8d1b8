/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk.h"

#include "core/base/crc.h"

void hth_chunk_prove(struct hth_proof *out, const void *bytes, uint64_t len)
{
    out->crc = hth_crc32c(bytes, len);
}

int hth_chunk_is(const struct hth_proofs *proofs, uint32_t chunk, const void *bytes)
{
    return hth_crc32c(bytes, hth_chunk_len(proofs->data_len, chunk)) == proofs->crc[chunk];
}
