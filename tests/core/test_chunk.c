/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a chunk against what proves it. */
#include "check.h"
#include "forge.h"

#include "core/format/chunk.h"

#define LAST 1000 /* bytes of the second chunk of two */

static unsigned char bytes[LAST], sha256[2][HTH_SHA256];
static uint32_t crc[2];

/* The last chunk as it was sealed; nothing proves the first. */
static struct hth_proofs proofs_of_last(uint32_t strong)
{
    struct hth_proof proof;

    for (size_t i = 0; i < LAST; i++)
        bytes[i] = (unsigned char)(i * 7);
    hth_chunk_prove(&proof, bytes, LAST, strong);
    crc[1] = proof.crc;
    if (strong)
        memcpy(sha256[1], proof.sha256, HTH_SHA256);
    return (struct hth_proofs){
        .data_len = HTH_CHUNK + LAST, .crc = crc, .sha256 = strong ? sha256[0] : NULL
    };
}

Test(chunk, is_what_it_was_when_it_was_proved_in_its_own_place)
{
    for (uint32_t strong = 0; strong < 2; strong++) {
        struct hth_proofs proofs = proofs_of_last(strong);

        cr_assert(eq(int, hth_chunk_is(&proofs, 1, bytes), 1));
        bytes[LAST - 1] ^= 1;
        cr_assert(zero(int, hth_chunk_is(&proofs, 1, bytes)));
    }
}

Test(chunk, with_bytes_forged_under_its_crc_is_found_by_its_sha256_alone)
{
    for (uint32_t strong = 0; strong < 2; strong++) {
        struct hth_proofs proofs = proofs_of_last(strong);

        forge(bytes + LAST / 2);
        cr_assert(eq(int, hth_chunk_is(&proofs, 1, bytes), !strong)); /* a CRC finds accidents */
        forge(bytes + LAST / 2);
        cr_assert(eq(int, hth_chunk_is(&proofs, 1, bytes), 1));
    }
}
