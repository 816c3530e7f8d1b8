/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums finer than a chunk's, for slices that other nodes read. A chunk is compared with its
 * checksum in the table once, when a slice of it is first asked for. The same pass makes the CRC32C
 * of each 64 KiB span of it, which is kept: 256 bytes a chunk. From then on a slice is compared
 * with the spans that it touches, so that bytes which went wrong since are found too.
 */
#ifndef HEARTH_REPLICATION_SPANS_H
#define HEARTH_REPLICATION_SPANS_H

#include "holdings.h"

#define HTH_SPAN  (UINT64_C(64) << 10)
#define HTH_SPANS ((size_t)(HTH_CHUNK / HTH_SPAN)) /* of a chunk; the last has fewer */

/* The spans of a chunk that was right; NULL: it was not compared yet. Until the next call for this
 * object. */
const uint32_t *hth_spans_of(const struct hth_held *held, uint32_t chunk);
/* Copied. If there is no memory, the chunk is compared again. */
void hth_spans_keep(struct hth_held *held, uint32_t chunk, const uint32_t span[static HTH_SPANS]);
void hth_spans_forget(struct hth_held *held);

/* On a worker. Makes the spans of bytes[len], a chunk; 1: together they have the CRC32C `crc`. */
int hth_spans_make(
        uint32_t out[static HTH_SPANS], const unsigned char *bytes, uint64_t len, uint32_t crc);
/* On a worker. 1: the spans of bytes[len], a chunk, that bytes [from, to) of it touch are right. */
int hth_spans_are(const uint32_t span[static HTH_SPANS], const unsigned char *bytes, uint64_t len,
        uint64_t from, uint64_t to);

#endif
