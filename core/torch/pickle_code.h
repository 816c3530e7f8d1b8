/* SPDX-License-Identifier: Apache-2.0 */
/* The argument of each opcode of a pickle, for every pass over one. */
/* For this folder alone. */
#ifndef HEARTH_CORE_TORCH_PICKLE_CODE_H
#define HEARTH_CORE_TORCH_PICKLE_CODE_H

#include <stddef.h>
#include <stdint.h>

/* An argument: `fixed` bytes; or as many as a number of `prefix` bytes in front says; or `lines`
 * texts, each with a newline. */
struct hth_pickle_code {
    uint8_t known; /* 0: protocols 0 to 5 have no such opcode */
    uint8_t fixed, prefix, lines;
};
extern const struct hth_pickle_code hth_pickle_codes[256];

/* The argument of `code`, which begins at at[left]: [*out_n], without its length; the next opcode
 * follows it. NULL: it is cut off. */
const unsigned char *hth_pickle_argument(
        unsigned char code, const unsigned char *at, size_t left, size_t *out_n);

/* LONG1: two's complement of n bytes, which may be more than are needed. NULL, or why not. */
const char *hth_pickle_long(const unsigned char *arg, size_t n, int64_t *out);

#endif
