/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of rows of one length, packed. Rows of one node differ in few bytes, and rows of two
 * nodes in not many more, so each row is written as its difference from the row before it; the
 * first row, from zeros:
 *
 *     a bit for each 8 bytes of the row, in whole bytes, lowest bit first: 1: they differ
 *     those 8 bytes (the end of the row may be shorter), each in turn
 *
 * There is one packed form of a table.
 */
#ifndef HEARTH_CORE_FORMAT_ROWS_H
#define HEARTH_CORE_FORMAT_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* The most bytes that rows[count][len] take when they are packed. */
uint64_t hth_rows_most(size_t len, uint32_t count);

/* out[hth_rows_most()]; returns the bytes that were written. */
size_t hth_rows_pack(unsigned char *out, const unsigned char *rows, size_t len, uint32_t count);

/* rows[count][len] of all of in[in_len]. Errors: HEARTH_EPROTO, with any bytes in `rows`. */
int hth_rows_unpack(
        unsigned char *rows, size_t len, uint32_t count, const unsigned char *in, size_t in_len);

#endif
