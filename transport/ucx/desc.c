/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A grant as bytes, as peers bring them.
 *
 *     0 "HUCX"  4 u32 1  8 u64 grant   16 u64 nonce    24 u64 length of the grant
 *     0 "HUCX"  4 u32 2  8 u64 region  16 u64 address  24 u64 length, where the card reads
 */
#include "ucx.h"

#define DESC_MAGIC 0x58435548u
#define DESC_BYTES HTH_UCX_DESC
#define DESC_ASK   1u
#define DESC_GET   2u
_Static_assert(DESC_BYTES <= HTH_DESC_MAX, "a descriptor must fit into its message");

uint32_t hth_ucx_desc_encode(
        const struct hth_ucx *t, const struct hth_ucx_desc *d, unsigned char *out)
{
    hth_put32(out, DESC_MAGIC);
    hth_put32(out + 4, t->gets ? DESC_GET : DESC_ASK);
    hth_put64(out + 8, d->grant);
    hth_put64(out + 16, d->at);
    hth_put64(out + 24, d->len);
    return DESC_BYTES;
}

int hth_ucx_desc_decode(
        const struct hth_ucx *t, const unsigned char *bytes, uint32_t len, struct hth_ucx_desc *out)
{
    if (!bytes || len != DESC_BYTES || hth_get32(bytes) != DESC_MAGIC ||
            hth_get32(bytes + 4) != (t->gets ? DESC_GET : DESC_ASK))
        return HEARTH_EINVAL;
    *out = (struct hth_ucx_desc){
        .grant = hth_get64(bytes + 8), .at = hth_get64(bytes + 16), .len = hth_get64(bytes + 24)
    };
    return 0;
}
