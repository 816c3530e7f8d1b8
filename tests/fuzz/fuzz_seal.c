/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hello from anybody, as either side's: what decodes encodes to the same, a hello without a mac
 * is not answered, and a recorded one opens nothing.
 */
#include "transport/tcp/seal.h"
#include "transport/tcp/seal_hello.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void both_decode(const uint8_t *hello)
{
    static const enum hth_seal_side sides[] = { HTH_SEAL_DIALS, HTH_SEAL_ACCEPTS };
    unsigned char again[HTH_SEAL_HELLO];
    struct hth_seal_hello h;

    for (int i = 0; i < 2; i++) {
        if (hth_seal_hello_decode(&h, hello, sides[i], NULL))
            continue;
        hth_seal_hello_encode(&h, again);
        if (memcmp(again, hello, sizeof(again) - HTH_SHA256) != 0 ||
                (i && memcmp(again, hello, sizeof(again)) != 0) || h.side != sides[i] ||
                h.low > h.high || (i && (h.low != h.high || (h.suites & (h.suites - 1)))))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned char key[HTH_KEY] = { 1, 2, 3 };
    const struct hth_seal_opts opts = { .key = key,
        .suites = HTH_SUITE_PROOF | HTH_SUITE_CHACHA20_POLY1305 };
    unsigned char asks[HTH_SEAL_HELLO], hello[HTH_SEAL_HELLO], proof[HTH_SEAL_PROOF];
    struct hth_seal_hand hand;
    struct hth_seal *seal = NULL;
    size_t len;

    if (size < HTH_SEAL_HELLO + HTH_SEAL_PROOF || hth_seal_init(NULL))
        return 0;
    both_decode(data);
    if (!hth_seal_length(data, &len) && len > HTH_SEAL_PLAIN)
        abort();
    if (hth_seal_accept(&hand, &opts, data, hello, NULL) != HEARTH_EAUTH)
        abort();
    memcpy(asks, data, sizeof(asks));
    hth_seal_hello_sign(asks, key); /* as if it were a recording */
    if (!hth_seal_accept(&hand, &opts, asks, hello, NULL) &&
            !hth_seal_admit(&hand, data + HTH_SEAL_HELLO, proof, &seal, NULL))
        abort();
    hth_seal_drop(&hand);
    return 0;
}
