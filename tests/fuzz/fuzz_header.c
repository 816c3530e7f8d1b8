/* SPDX-License-Identifier: Apache-2.0 */
/* A pickle without its length, and with it. What it decodes to is a valid tensor, and encodes to
 * the same. */
#include "core/base/bytes.h"
#include "core/torch/header.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How many bytes it takes; 0: it is none. */
static size_t header_look(const unsigned char *bytes, size_t size)
{
    unsigned char again[HTH_HEADER_MAX];
    struct hth_header h, back;
    uint64_t len;
    size_t used, n;

    if (hth_header_decode(&h, bytes, size, &used, NULL))
        return 0;
    n = hth_header_encode(&h, again);
    if (!used || used > size || hth_header_bytes(&h, &len, NULL) || !n ||
            hth_header_decode(&back, again, n, NULL, NULL) || memcmp(&h, &back, sizeof(h)) != 0)
        abort();
    return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *framed = malloc(size + 4);
    size_t used;

    header_look(data, size);
    if (!framed)
        return 0;
    hth_put32(framed, (uint32_t)size);
    memcpy(framed + 4, data, size);
    if ((used = header_look(framed, size + 4)) && used != size + 4)
        abort();
    free(framed);
    return 0;
}
