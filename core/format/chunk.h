/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unit of checksum and transfer: 4 MiB of an object's data, the last one less. A chunk's
 * checksums are made here when an object is sealed, and compared here wherever its bytes have
 * crossed a boundary.
 *
 * A CRC32C finds accidents. An attacker who changes bytes can change four more so that the CRC
 * stays the same. So where integrity is strong there is a SHA-256 beside it. It has no key: it lies
 * in the table, whose digest is in the manifest, whose digest is in authenticated messages.
 */
#ifndef HEARTH_CORE_FORMAT_CHUNK_H
#define HEARTH_CORE_FORMAT_CHUNK_H

#include "core/base/auth.h"
#include <stdint.h>

#define HTH_CHUNK     (UINT64_C(4) << 20) /* bytes */
#define HTH_CHUNKS(n) (((n) + HTH_CHUNK - 1) / HTH_CHUNK)
#define HTH_SLICE_MAX (HTH_CHUNK / 2) /* bytes that are read without their whole chunks */

/* The checksums of one chunk. */
struct hth_proof {
    uint32_t crc;                     /* CRC32C */
    unsigned char sha256[HTH_SHA256]; /* strong */
};

/* The checksums of all chunks of an object, where its table has them. */
struct hth_proofs {
    uint64_t data_len;
    const uint32_t *crc;         /* [HTH_CHUNKS(data_len)] */
    const unsigned char *sha256; /* [HTH_CHUNKS(data_len)][HTH_SHA256]; NULL: not strong */
};

/* Bytes of a chunk of data_len bytes of data. */
static inline uint64_t hth_chunk_len(uint64_t data_len, uint32_t chunk)
{
    uint64_t left = data_len - chunk * HTH_CHUNK;

    return left < HTH_CHUNK ? left : HTH_CHUNK;
}

/* bytes[len] of one chunk. It takes a while: on a worker. */
void hth_chunk_prove(struct hth_proof *out, const void *bytes, uint64_t len, uint32_t strong);

/* 1: bytes[hth_chunk_len()] match all checksums of that chunk. */
int hth_chunk_is(const struct hth_proofs *proofs, uint32_t chunk, const void *bytes);

#endif
