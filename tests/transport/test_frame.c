/* SPDX-License-Identifier: Apache-2.0 */
#include "damaged.h"

#include "transport/session/frame.h"

static const unsigned char key[HTH_KEY] = { 1, 2, 3 };

static size_t sample(unsigned char out[HTH_MESSAGE_MAX], size_t len)
{
    unsigned char body[HTH_BODY_MAX];
    struct hth_frame f = { .version = 1,
        .type = HTH_MSG_OFFER,
        .body_len = (uint32_t)len,
        .epoch = 5,
        .nonce = 6,
        .seq = 7,
        .body = body };

    memset(body, 0xb0, sizeof(body));
    return hth_frame_encode(&f, key, out);
}

Test(frame, what_goes_in_comes_out)
{
    static const size_t lens[] = { 0, 1, 100, HTH_BODY_MAX };
    unsigned char bytes[HTH_MESSAGE_MAX];
    struct hth_frame f;

    must(hth_auth_init(NULL));
    for (size_t i = 0; i < 4; i++) {
        size_t n = sample(bytes, lens[i]);

        cr_assert(eq(sz, n, HTH_FRAME_HEAD + lens[i]));
        must(hth_frame_decode(&f, bytes, n, NULL));
        cr_assert(hth_frame_check(bytes, n, key));
        cr_assert(eq(int, f.type, HTH_MSG_OFFER));
        cr_assert(eq(u64, f.epoch, 5));
        cr_assert(eq(u64, f.nonce, 6));
        cr_assert(eq(u64, f.seq, 7));
        cr_assert(eq(sz, f.body_len, lens[i]));
        cr_assert(eq(ptr, (void *)(uintptr_t)f.body, bytes + HTH_FRAME_HEAD));
    }
}

Test(frame, the_layout_is_the_one_in_the_header)
{
    static const unsigned char head[40] = { 'H', 'R', 'T', 'H', 1, 0, 32, 0, 3, 0, 0, 0, 0, 0, 0, 0,
        5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7 };
    static const unsigned char zeros[8];
    unsigned char bytes[HTH_MESSAGE_MAX], mac[HTH_MAC];

    must(hth_auth_init(NULL));
    sample(bytes, 3);
    cr_assert(zero(int, memcmp(bytes, head, sizeof(head))));
    hth_mac(mac, key, bytes, 40, bytes + 64, 3);
    cr_assert(zero(int, memcmp(bytes + 40, mac, HTH_MAC)));
    cr_assert(zero(int, memcmp(bytes + 56, zeros, 8)));
}

static int takes_message(const unsigned char *bytes, size_t len)
{
    struct hth_frame f;

    return hth_frame_decode(&f, bytes, len, NULL) || !hth_frame_check(bytes, len, key);
}

Test(frame, a_damaged_message_is_refused, .timeout = 60)
{
    unsigned char bytes[HTH_MESSAGE_MAX];

    must(hth_auth_init(NULL));
    refuses_all_damage(takes_message, bytes, sample(bytes, 0));
    refuses_all_damage(takes_message, bytes, sample(bytes, 20));
}

Test(frame, another_key_is_refused)
{
    unsigned char bytes[HTH_MESSAGE_MAX];
    size_t n;

    must(hth_auth_init(NULL));
    n = sample(bytes, 20);
    cr_assert(hth_frame_check(bytes, n, key));
    cr_assert(not(hth_frame_check(bytes, n, (const unsigned char[HTH_KEY]){ 1, 2, 4 })));
}

Test(frame, wrong_lengths_and_zeros_are_refused_in_words)
{
    static unsigned char bytes[HTH_MESSAGE_MAX + 1];
    struct hearth_error err;
    struct hth_frame f;
    size_t n;

    must(hth_auth_init(NULL));
    n = sample(bytes, 20);
    for (size_t len = 0; len < n; len++)
        must_fail(hth_frame_decode(&f, bytes, len, &err), HEARTH_EPROTO);
    must_fail(hth_frame_decode(&f, bytes, n + 1, &err), HEARTH_EPROTO);
    must_say(err.text, "a message of 85 bytes has 20 as the length of its body");
    must_fail(hth_frame_decode(&f, bytes, sizeof(bytes), &err), HEARTH_EPROTO);
    must_say(err.text, "a message of 8193 bytes, not 64 to 8192");
    bytes[60] = 1;
    must_fail(hth_frame_decode(&f, bytes, n, &err), HEARTH_EPROTO);
    must_say(err.text, "a message with bits set where zeros belong");
}
