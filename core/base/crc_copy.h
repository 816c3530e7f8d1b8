/* SPDX-License-Identifier: Apache-2.0 */
/* Copies behind each other, past the caches, with the CRC32C of what they wrote. */
#ifndef HEARTH_CORE_BASE_CRC_COPY_H
#define HEARTH_CORE_BASE_CRC_COPY_H

#include <stddef.h>
#include <stdint.h>

#define HTH_CRC_LINE ((size_t)64)

struct hth_crc_way; /* one of this machine's */

/* Fields are for crc_copy.c alone. */
struct hth_crc_stream {
    const struct hth_crc_way *way;
    unsigned char *to; /* the line that is open, or its place */
    uint32_t crc;
    size_t begin, end; /* the bytes of `line` that are not written yet */
    unsigned char line[HTH_CRC_LINE];
};

/* Bytes go to dst, and crc is continued by them. way: NULL for the fastest. */
void hth_crc_stream_begin(
        struct hth_crc_stream *s, const struct hth_crc_way *way, void *dst, uint32_t crc);

/* src[len] goes behind what was put before. Each byte of src is read once, so sum and copy agree
 * even while another thread changes src. src and dst must not overlap. next: the caller puts bytes
 * from there soon; NULL: not known. */
void hth_crc_stream_put(struct hth_crc_stream *s, const void *src, size_t len, const void *next);

/* All is written. Returns the sum. Later ordinary stores of this thread may become visible before
 * the copy: call hth_crc32c_copied() before a store that announces the copy. */
uint32_t hth_crc_stream_end(struct hth_crc_stream *s);

/* Other threads and processes see the copied bytes before anything that this thread stores after
 * this call. */
void hth_crc32c_copied(void);

/* The i-th way that this machine has, for tests: the fastest first. NULL: there is none. */
const struct hth_crc_way *hth_crc_way(size_t i, const char **out_name);

#endif
