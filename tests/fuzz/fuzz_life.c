/* SPDX-License-Identifier: Apache-2.0 */
/* With its digest made good, a record of lives that decodes encodes to the same bytes. */
#include "core/base/auth.h"
#include "core/format/life.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = calloc(1, size + 1), again[HTH_LIFE_BYTES];
    uint64_t starts;

    if (!copy)
        return 0;
    memcpy(copy, data, size);
    if (size >= HTH_DIGEST)
        hth_digest(copy + size - HTH_DIGEST, copy, size - HTH_DIGEST);
    if (!hth_life_decode(&starts, copy, size, NULL)) {
        hth_life_encode(starts, again);
        if (size != HTH_LIFE_BYTES || memcmp(copy, again, size) != 0)
            abort();
    }
    free(copy);
    return 0;
}
