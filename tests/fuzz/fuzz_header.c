/* SPDX-License-Identifier: Apache-2.0 */
/* A pickle without its length. What it decodes to is a valid tensor, and encodes to the same. */
#include "core/torch/header.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *framed = malloc(size + 4), again[HTH_HEADER_MAX];
    uint32_t len = (uint32_t)size;
    struct hth_header h, back;
    uint64_t bytes;
    size_t used, n;

    if (!framed)
        return 0;
    memcpy(framed, &len, 4);
    memcpy(framed + 4, data, size);
    if (hth_header_decode(&h, framed, size + 4, &used, NULL) == 0) {
        n = hth_header_encode(&h, again);
        if (used != size + 4 || hth_header_bytes(&h, &bytes, NULL) || !n ||
                hth_header_decode(&back, again, n, NULL, NULL) || memcmp(&h, &back, sizeof(h)) != 0)
            abort();
    }
    free(framed);
    return 0;
}
