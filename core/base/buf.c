/* SPDX-License-Identifier: Apache-2.0 */
#include "buf.h"

#include <stdlib.h>
#include <string.h>

struct hth_buf *hth_buf_new(size_t len, const unsigned char digest[HTH_DIGEST])
{
    struct hth_buf *b = len < SIZE_MAX - sizeof(*b) ? malloc(sizeof(*b) + len) : NULL;

    if (!b)
        return NULL;
    b->users = 1;
    b->len = len;
    memcpy(b->digest, digest, HTH_DIGEST);
    return b;
}

struct hth_buf *hth_buf_of(const void *bytes, size_t len)
{
    unsigned char digest[HTH_DIGEST];
    struct hth_buf *b;

    hth_digest(digest, bytes, len);
    b = hth_buf_new(len, digest);
    if (b && len)
        memcpy(b->at, bytes, len);
    return b;
}

struct hth_buf *hth_buf_get(struct hth_buf *b)
{
    b->users++;
    return b;
}

void hth_buf_put(struct hth_buf *b)
{
    if (b && --b->users == 0)
        free(b);
}
