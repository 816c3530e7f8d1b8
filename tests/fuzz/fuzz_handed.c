/* SPDX-License-Identifier: Apache-2.0 */
/* With its digest made good, a commit record of our version that decodes encodes to the same
 * bytes. */
#include "core/base/auth.h"
#include "core/format/handed.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = calloc(1, size + 1), *again = malloc(size + 1);
    struct hth_handed_record record = { 0 };

    if (copy && again)
        memcpy(copy, data, size);
    if (copy && size >= HTH_DIGEST)
        hth_digest(copy + size - HTH_DIGEST, copy, size - HTH_DIGEST);
    if (copy && again && hth_handed_decode(&record, copy, size, NULL) == 0 &&
            hth_get32(copy + 8) == hth_version_written(HTH_FORMAT_HANDED)) {
        if (size != hth_handed_bytes(&record))
            abort();
        hth_handed_encode(&record, again);
        if (memcmp(copy, again, size) != 0)
            abort();
    }
    hth_handed_fini(&record);
    free(copy);
    free(again);
    return 0;
}
