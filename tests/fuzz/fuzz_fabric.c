/* SPDX-License-Identifier: Apache-2.0 */
/* With its digest made good, a fabric record that decodes encodes to the same bytes. */
#include "core/base/auth.h"
#include "core/format/fabric.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = calloc(1, size + 1), *again = malloc(size + 1);
    struct hth_fabric_record x;

    if (copy && again)
        memcpy(copy, data, size);
    if (copy && size >= HTH_DIGEST)
        hth_digest(copy + size - HTH_DIGEST, copy, size - HTH_DIGEST);
    if (copy && again && hth_fabric_decode(&x, copy, size, NULL) == 0) {
        if (size != HTH_FABRIC_BYTES)
            abort();
        hth_fabric_encode(&x, again);
        if (memcmp(copy, again, size) != 0)
            abort();
    }
    free(copy);
    free(again);
    return 0;
}
