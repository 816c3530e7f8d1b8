/* SPDX-License-Identifier: Apache-2.0 */
/* A block that was decoded encodes to the same bytes: all of Hearth's, the first two fields of
 * others. */
#include "core/foreign/items.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char again[HTH_BLOCK];
    struct hth_block b;
    struct hth_items it;
    struct hth_found found;
    uint64_t end = 0;

    if (hth_block_decode(&b, data, size, size, NULL))
        return 0;
    hth_block_encode(&b, again);
    if (memcmp(data, again, b.own ? HTH_BLOCK : 8) != 0)
        abort();
    hth_items_init(&it, b.signature, data + HTH_BLOCK, size - HTH_BLOCK);
    while (hth_items_next(&it, &found, NULL) == 0) {
        if (found.offset != end || found.length == 0)
            abort();
        end += found.length;
    }
    return 0;
}
