/* SPDX-License-Identifier: Apache-2.0 */
/* Head, mac and body of one message: the layout is drawn in frame.h. */
#include "frame.h"
#include "core/base/bytes.h"

#define MAGIC 0x48545248u /* "HRTH" as bytes */

enum { AT_VERSION = 4, AT_TYPE = 6, AT_LEN = 8, AT_EPOCH = 16, AT_NONCE = 24, AT_SEQ = 32 };
enum { AT_MAC = 40, AT_ZERO = 56 };

size_t hth_frame_encode(
        const struct hth_frame *frame, const unsigned char key[HTH_KEY], unsigned char *out)
{
    memset(out, 0, HTH_FRAME_HEAD);
    hth_put32(out, MAGIC);
    out[AT_VERSION] = frame->version;
    hth_put16(out + AT_TYPE, frame->type);
    hth_put32(out + AT_LEN, frame->body_len);
    hth_put64(out + AT_EPOCH, frame->epoch);
    hth_put64(out + AT_NONCE, frame->nonce);
    hth_put64(out + AT_SEQ, frame->seq);
    if (frame->body_len)
        memmove(out + HTH_FRAME_HEAD, frame->body, frame->body_len);
    hth_mac(out + AT_MAC, key, out, AT_MAC, out + HTH_FRAME_HEAD, frame->body_len);
    return HTH_FRAME_HEAD + frame->body_len;
}

int hth_frame_decode(struct hth_frame *out, const void *bytes, size_t len, struct hearth_error *err)
{
    const unsigned char *head = bytes;

    if (len < HTH_FRAME_HEAD || len > HTH_MESSAGE_MAX)
        return hth_fail(err, HEARTH_EPROTO, 0, "a message of %zu bytes, not %u to %u", len,
                HTH_FRAME_HEAD, HTH_MESSAGE_MAX);
    if (hth_get32(head) != MAGIC)
        return hth_fail(err, HEARTH_EPROTO, 0, "a message that is none of Hearth's");
    if (hth_get32(head + AT_LEN) != len - HTH_FRAME_HEAD)
        return hth_fail(err, HEARTH_EPROTO, 0,
                "a message of %zu bytes has %u as the length of its body", len,
                hth_get32(head + AT_LEN));
    if (!head[AT_VERSION] || head[5] || hth_get32(head + 12) || hth_get64(head + AT_ZERO))
        return hth_fail(err, HEARTH_EPROTO, 0, "a message with bits set where zeros belong");
    *out = (struct hth_frame){
        .version = head[AT_VERSION],
        .type = hth_get16(head + AT_TYPE),
        .body_len = hth_get32(head + AT_LEN),
        .epoch = hth_get64(head + AT_EPOCH),
        .nonce = hth_get64(head + AT_NONCE),
        .seq = hth_get64(head + AT_SEQ),
        .body = head + HTH_FRAME_HEAD,
    };
    return HEARTH_OK;
}

int hth_frame_check(const void *bytes, size_t len, const unsigned char key[HTH_KEY])
{
    const unsigned char *head = bytes;
    unsigned char mac[HTH_MAC];

    if (len < HTH_FRAME_HEAD)
        return 0;
    hth_mac(mac, key, head, AT_MAC, head + HTH_FRAME_HEAD, len - HTH_FRAME_HEAD);
    return hth_mac_equal(mac, head + AT_MAC);
}
