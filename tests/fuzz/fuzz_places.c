/* SPDX-License-Identifier: Apache-2.0 */
/* A map of holders that decodes encodes to the same bytes, and finds what is in it. */
#include "core/format/places.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *again = malloc(size + 1);
    struct hth_places m;

    if (again && !hth_places_decode(&m, data, size, NULL)) {
        if (hth_places_bytes(&m) != size)
            abort();
        hth_places_encode(&m, again);
        if (memcmp(data, again, size) != 0)
            abort();
        for (uint32_t i = 0; i < m.notes; i++)
            if (hth_places_note(&m, m.note[i].node) != &m.note[i])
                abort();
        for (uint32_t i = 0; i < m.moves; i++)
            if (hth_places_move(&m, m.move[i].rank, m.move[i].place) != &m.move[i])
                abort();
        for (uint32_t i = 0; i < m.pairs; i++)
            if (hth_places_pair(&m, m.pair[i].b, m.pair[i].a) != &m.pair[i])
                abort();
        hth_places_fini(&m);
    }
    free(again);
    return 0;
}
