/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that several keep: they stay until the last has given them up, with their digest. */
#include "check.h"

#include "core/base/buf.h"

#include <string.h>

Test(buf, stays_until_the_last_user_has_put_it)
{
    unsigned char digest[HTH_DIGEST];
    struct hth_buf *b = hth_buf_of("bytes", 5), *same = hth_buf_get(b);

    hth_digest(digest, "bytes", 5);
    cr_assert(ne(ptr, b, NULL));
    cr_assert(eq(ptr, same, b));
    hth_buf_put(b);
    cr_assert(eq(sz, same->len, 5));
    cr_assert(zero(int, memcmp(same->at, "bytes", 5)));
    cr_assert(zero(int, memcmp(same->digest, digest, HTH_DIGEST)));
    cr_assert(eq(u32, same->users, 1));
    hth_buf_put(same);
    hth_buf_put(NULL);
}

Test(buf, may_be_empty)
{
    struct hth_buf *b = hth_buf_of(NULL, 0);

    cr_assert(ne(ptr, b, NULL));
    cr_assert(eq(sz, b->len, 0));
    hth_buf_put(b);
}
