/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEARTH_CORE_BASE_FAIL_H
#define HEARTH_CORE_BASE_FAIL_H

#include <hearth/error.h>
#include <inttypes.h>
#include <stddef.h>

#define HTH_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Record the cause and return `code`, so that a failing function ends in one
 * line: `return hth_fail(err, HEARTH_EPEER, ret, "node %u: ...", node);` */
int hth_fail(struct hearth_error *err, int code, int native, const char *fmt, ...) HTH_PRINTF(4, 5);

/* Put what the caller was doing in front of the cause, and set and return the
 * code: "all 3 holders failed: node 5: checksum mismatch". A text that is too long
 * loses its middle: the outermost doing and the cause stay. */
int hth_while(struct hearth_error *err, int code, const char *fmt, ...) HTH_PRINTF(3, 4);

/* A key for a sentence: printable, quoted, cut. */
#define HTH_KEY_TEXT 72
const char *hth_key_text(const void *key, size_t len, char out[HTH_KEY_TEXT]);

#endif
