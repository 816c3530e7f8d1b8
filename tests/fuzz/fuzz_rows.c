/* SPDX-License-Identifier: Apache-2.0 */
/* Packed rows that unpack pack to the same bytes. The first two bytes: a row's length, how many. */
#include "core/format/rows.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char rows[255 * 255], again[255 * (255 + 4)];
    size_t len = size > 2 ? data[0] : 0;
    uint32_t count = size > 2 ? data[1] : 0;

    if (!len || !count || hth_rows_unpack(rows, len, count, data + 2, size - 2))
        return 0;
    if (hth_rows_most(len, count) > sizeof(again) || size - 2 > hth_rows_most(len, count) ||
            hth_rows_pack(again, rows, len, count) != size - 2 ||
            memcmp(again, data + 2, size - 2) != 0)
        abort();
    return 0;
}
