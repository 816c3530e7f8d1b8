/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A packet, little-endian:
 *
 *    0 u8 1 (version)   1 u8 kind   2 u8 1: the message goes on   3 u8 0   4 u32 bytes that follow
 *    8 u64 receiver's id of the connection   16 u64 the secret that goes with it
 *   24 u64 place in the order                32 u64 all places before this have come
 *   40 what the kind says: a message, or a greeting:
 *
 *    0 u64 sender's id, 8 u64 its secret (PULL_FROM: the endpoint's number, 0)
 *   16 u32 bytes of its buffers   20 u32 bytes of the address   24 address
 */
#include "rdm.h"

#include "core/base/bytes.h"
#include <string.h>

#define VERSION 1u
#define HELLO   24u

_Static_assert(HTH_RDM_HEAD + HELLO + HTH_ADDR_MAX <= HTH_RDM_LEAST, "a greeting fits");

void hth_rdm_head_write(const struct hth_rdm_head *h, unsigned char out[HTH_RDM_HEAD])
{
    memset(out, 0, HTH_RDM_HEAD);
    out[0] = VERSION;
    out[1] = (unsigned char)h->kind;
    out[2] = (unsigned char)h->more;
    hth_put32(out + 4, h->len);
    hth_put64(out + 8, h->to);
    hth_put64(out + 16, h->token);
    hth_put64(out + 24, h->seq);
    hth_put64(out + 32, h->ack);
}

int hth_rdm_head_read(const unsigned char *in, size_t len, struct hth_rdm_head *out)
{
    if (len < HTH_RDM_HEAD || in[0] != VERSION || in[1] < HTH_RDM_OPEN || in[1] > HTH_RDM_GRANTS ||
            in[2] > 1 || hth_get32(in + 4) != len - HTH_RDM_HEAD)
        return HEARTH_EPROTO;
    *out = (struct hth_rdm_head){ .kind = (enum hth_rdm_kind)in[1],
        .more = in[2],
        .len = hth_get32(in + 4),
        .to = hth_get64(in + 8),
        .token = hth_get64(in + 16),
        .seq = hth_get64(in + 24),
        .ack = hth_get64(in + 32) };
    return HEARTH_OK;
}

size_t hth_rdm_hello_write(const struct hth_rdm_hello *h, unsigned char out[HTH_RDM_LEAST])
{
    hth_put64(out, h->id);
    hth_put64(out + 8, h->token);
    hth_put32(out + 16, h->packet);
    hth_put32(out + 20, h->addr_len);
    memcpy(out + HELLO, h->addr, h->addr_len);
    return HELLO + h->addr_len;
}

int hth_rdm_hello_read(const unsigned char *in, size_t len, struct hth_rdm_hello *out)
{
    if (len < HELLO || hth_get32(in + 20) > HTH_ADDR_MAX || hth_get32(in + 20) != len - HELLO ||
            hth_get32(in + 16) < HTH_RDM_LEAST)
        return HEARTH_EPROTO;
    *out = (struct hth_rdm_hello){ .id = hth_get64(in),
        .token = hth_get64(in + 8),
        .packet = hth_get32(in + 16),
        .addr_len = hth_get32(in + 20) };
    memcpy(out->addr, in + HELLO, out->addr_len);
    return HEARTH_OK;
}
