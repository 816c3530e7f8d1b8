/* SPDX-License-Identifier: Apache-2.0 */
/* With its digest made good, a keep record that decodes encodes to the same bytes, if it is of the
 * version that is written. */
#include "core/base/auth.h"
#include "core/base/bytes.h"
#include "core/format/keep.h"
#include "core/format/versions.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = calloc(1, size + 1), *again = malloc(size + 1);
    struct hth_keep x;

    if (copy && again)
        memcpy(copy, data, size);
    if (copy && size >= HTH_DIGEST)
        hth_digest(copy + size - HTH_DIGEST, copy, size - HTH_DIGEST);
    if (copy && again && hth_keep_decode(&x, copy, size, NULL) == 0) {
        if (size != HTH_KEEP_BYTES)
            abort();
        hth_keep_encode(&x, again);
        if (hth_get32(copy + 8) == hth_version_written(HTH_FORMAT_KEEP) &&
                memcmp(copy, again, size) != 0)
            abort();
    }
    free(copy);
    free(again);
    return 0;
}
