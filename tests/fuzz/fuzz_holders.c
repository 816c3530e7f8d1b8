/* SPDX-License-Identifier: Apache-2.0 */
/* A map of holders that decodes encodes to the same bytes, and finds what is in it. */
#include "core/format/holders.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *again = malloc(size + 1);
    struct hth_holders m;

    if (again && !hth_holders_decode(&m, data, size, NULL)) {
        if (hth_holders_bytes(&m) != size)
            abort();
        hth_holders_encode(&m, again);
        if (memcmp(data, again, size) != 0)
            abort();
        for (uint32_t i = 0; i < m.notes; i++)
            if (hth_holders_note(&m, m.note[i].node) != &m.note[i])
                abort();
        for (uint32_t i = 0; i < m.moves; i++)
            if (hth_holders_move(&m, m.move[i].rank, m.move[i].place) != &m.move[i])
                abort();
        for (uint32_t i = 0; i < m.pairs; i++)
            if (hth_holders_pair(&m, m.pair[i].b, m.pair[i].a) != &m.pair[i])
                abort();
        hth_holders_fini(&m);
    }
    free(again);
    return 0;
}
