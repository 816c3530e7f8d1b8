/* SPDX-License-Identifier: Apache-2.0 */
/* With its digest made good, a record of plans that decodes encodes to the same bytes, if it is of
 * the version that is written. */
#include "core/base/auth.h"
#include "core/base/bytes.h"
#include "core/format/plans.h"
#include "core/format/versions.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = calloc(1, size + 1), *again = malloc(size + 1);
    struct hth_plans x;

    if (copy && again)
        memcpy(copy, data, size);
    if (copy && size >= HTH_DIGEST)
        hth_digest(copy + size - HTH_DIGEST, copy, size - HTH_DIGEST);
    if (copy && again && hth_plans_decode(&x, copy, size, NULL) == 0) {
        if (size != hth_plans_bytes(&x))
            abort();
        hth_plans_encode(&x, again);
        if (hth_get32(copy + 8) == hth_version_written(HTH_FORMAT_PLANS) &&
                memcmp(copy, again, size) != 0)
            abort();
    }
    free(copy);
    free(again);
    return 0;
}
