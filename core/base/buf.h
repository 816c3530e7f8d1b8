/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that several parts of an engine keep, such as a manifest that is held and given on: once in
 * memory, freed with the last of them. One thread's; others may read.
 */
#ifndef HEARTH_CORE_BASE_BUF_H
#define HEARTH_CORE_BASE_BUF_H

#include "auth.h"
#include <stddef.h>
#include <stdint.h>

struct hth_buf {
    uint32_t users;
    size_t len;
    unsigned char digest[HTH_DIGEST]; /* of the bytes, once they are there */
    unsigned char at[];               /* [len] */
};

/* For bytes that will have this digest. The caller has it: hth_buf_put(). NULL: no memory. */
struct hth_buf *hth_buf_new(size_t len, const unsigned char digest[HTH_DIGEST]);
struct hth_buf *hth_buf_of(const void *bytes, size_t len); /* a copy */
struct hth_buf *hth_buf_get(struct hth_buf *b);            /* one user more */
void hth_buf_put(struct hth_buf *b);                       /* and one less; NULL is fine */

#endif
