/* SPDX-License-Identifier: Apache-2.0 */
/* The items of a table that decodes lie in the data, and encode to the same bytes. Where it is not
 * aligned none decodes. */
#include "core/base/bytes.h"
#include "core/format/table.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void table_beside(const uint8_t *data, size_t size)
{
    unsigned char *copy = malloc(size + 1);
    struct hth_table t;

    if (copy)
        memcpy(copy + 1, data, size);
    if (copy && !hth_table_decode(&t, copy + 1, size, NULL))
        abort();
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = malloc(size + 1), *again = calloc(1, size + 1);
    struct hth_proof *proof = calloc(size / 4 + 1, sizeof(*proof));
    uint64_t pos = 0, end = 0;
    struct hth_table t;
    struct hth_item item;

    table_beside(data, size);
    if (copy && again && proof)
        memcpy(copy, data, size); /* malloc aligns */
    if (copy && again && proof && hth_table_decode(&t, copy, size, NULL) == 0) {
        for (unsigned char *at = again + HTH_TABLE_HEAD; !hth_item_next(&t, &pos, &item);) {
            hth_item_encode(&item, at);
            at += hth_item_bytes(item.ndim, item.key_len);
            end += item.length;
        }
        for (uint32_t c = 0; c < t.chunks; c++) {
            proof[c].crc = t.proofs.crc[c];
            if (t.strong)
                memcpy(proof[c].sha256, t.proofs.sha256 + HTH_SHA256 * (size_t)c, HTH_SHA256);
        }
        hth_table_finish(again, t.data_len, t.items, t.items_len, proof, t.strong);
        hth_put32(again + 8, hth_get32(copy + 8)); /* the first version had the same form */
        if (end > t.data_len || memcmp(copy, again, size) != 0)
            abort();
    }
    free(copy);
    free(again);
    free(proof);
    return 0;
}
