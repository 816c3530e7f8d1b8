/* SPDX-License-Identifier: Apache-2.0 */
/* With its digest made good, a head that decodes encodes to the same bytes, if its keep record is
 * of the version that is written, and so does its map. */
#include "core/base/auth.h"
#include "core/base/bytes.h"
#include "core/format/head.h"
#include "core/format/places.h"

#include <stdlib.h>
#include <string.h>

#define KEEP_AT (HTH_HEAD_BYTES - HTH_DIGEST - 8u - HTH_KEEP_BYTES)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void map_again(const unsigned char *map, size_t len)
{
    unsigned char *again = malloc(len + 1);
    struct hth_places m;

    if (again && hth_places_decode(&m, map, len, NULL) == 0) {
        if (hth_places_bytes(&m) != len)
            abort();
        hth_places_encode(&m, again);
        if (memcmp(map, again, len) != 0)
            abort();
        hth_places_fini(&m);
    }
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *copy = calloc(1, size + 1), *again = malloc(size + 1);
    const unsigned char *map;
    struct hth_head h;
    size_t len;

    if (copy && again)
        memcpy(copy, data, size);
    if (copy && size >= HTH_DIGEST)
        hth_digest(copy + size - HTH_DIGEST, copy, size - HTH_DIGEST);
    if (copy && again && hth_head_decode(&h, &map, &len, copy, size, NULL) == 0) {
        if (hth_head_bytes(len) != size)
            abort();
        hth_head_encode(&h, map, len, again);
        if (hth_get32(copy + KEEP_AT + 8) == hth_version_written(HTH_FORMAT_KEEP) &&
                memcmp(copy, again, size) != 0)
            abort();
        map_again(map, len);
    }
    free(copy);
    free(again);
    return 0;
}
