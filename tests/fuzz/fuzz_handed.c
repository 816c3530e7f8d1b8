/* SPDX-License-Identifier: Apache-2.0 */
/* With its digest made good, a commit record that decodes encodes to the same bytes. */
#include "core/base/auth.h"
#include "core/format/handed.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = calloc(1, size + 1), *again = malloc(size + 1);
    struct hth_handed *row = NULL;
    size_t rows = 0;

    if (copy && again)
        memcpy(copy, data, size);
    if (copy && size >= HTH_DIGEST)
        hth_digest(copy + size - HTH_DIGEST, copy, size - HTH_DIGEST);
    if (copy && again && hth_handed_decode(&row, &rows, copy, size, NULL) == 0) {
        if (size != hth_handed_bytes(rows))
            abort();
        hth_handed_encode(row, rows, again);
        if (memcmp(copy, again, size) != 0)
            abort();
    }
    free(row);
    free(copy);
    free(again);
    return 0;
}
