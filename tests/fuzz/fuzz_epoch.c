/* SPDX-License-Identifier: Apache-2.0 */
/* With its digest made good, a epoch record that decodes encodes to the same bytes. */
#include "core/base/auth.h"
#include "core/format/epoch.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = calloc(1, size + 1), *again = malloc(size + 1);
    struct hth_epoch x;

    if (copy && again)
        memcpy(copy, data, size);
    if (copy && size >= HTH_DIGEST)
        hth_digest(copy + size - HTH_DIGEST, copy, size - HTH_DIGEST);
    if (copy && again && hth_epoch_decode(&x, copy, size, NULL) == 0) {
        if (hth_epoch_bytes(&x) != size)
            abort();
        hth_epoch_encode(&x, again);
        memcpy(again + 8, copy + 8, 4); /* the version may be an older one */
        hth_digest(again + size - HTH_DIGEST, again, size - HTH_DIGEST);
        if (memcmp(copy, again, size) != 0)
            abort();
        hth_epoch_fini(&x);
    }
    free(copy);
    free(again);
    return 0;
}
