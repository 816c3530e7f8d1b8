/* SPDX-License-Identifier: Apache-2.0 */
/* With its digest made good, a manifest that decodes encodes to the same bytes. */
#include "core/base/auth.h"
#include "core/base/bytes.h"
#include "core/format/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = calloc(1, size + 1), *again = malloc(size + 1);
    struct hth_manifest x;

    if (copy && again)
        memcpy(copy, data, size);
    if (copy && size >= HTH_DIGEST)
        hth_digest(copy + size - HTH_DIGEST, copy, size - HTH_DIGEST);
    if (copy && again && hth_manifest_decode(&x, copy, size, NULL) == 0) {
        if (hth_manifest_bytes(&x) != size || hth_manifest_encode(&x, again, NULL))
            abort();
        hth_put32(again + 8, hth_get32(copy + 8)); /* the version before had the same form */
        hth_digest(again + size - HTH_DIGEST, again, size - HTH_DIGEST);
        if (memcmp(copy, again, size) != 0)
            abort();
        hth_manifest_fini(&x);
    }
    free(copy);
    free(again);
    return 0;
}
