/* SPDX-License-Identifier: Apache-2.0 */
/* Any number of greetings: those that decode encode to the same, and an epoch of them is sound; a
 * fabric that is chosen is one that all of them have. */
#include "core/base/bytes.h"
#include "core/format/fabric.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void choose(const uint8_t *table, uint32_t world)
{
    struct hth_fabric_choice c;
    struct hth_gather g;

    if (hth_fabric_choose(table, world, &c, NULL) || !c.fabric)
        return;
    for (uint32_t i = 0; i < world; i++)
        if (!hth_gather_decode(&g, table + (size_t)i * HTH_GATHER, NULL) && g.fabrics &&
                !(g.fabrics & HTH_FABRIC_BIT(c.fabric)))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char again[HTH_GATHER];
    uint32_t world = (uint32_t)(size / HTH_GATHER);
    struct hth_gather g;
    struct hth_epoch e;

    for (uint32_t i = 0; i < world; i++) {
        if (hth_gather_decode(&g, data + (size_t)i * HTH_GATHER, NULL))
            return 0;
        hth_gather_encode(&g, again);
        memcpy(again + 8, data + (size_t)i * HTH_GATHER + 8,
                4); /* the version may be an older one ... */
        if (again[8] < 9)
            memset(again + 436, 0, 48); /* ... which has no sizes there */
        if (again[8] < 10 && !(g.flags & HTH_GATHER_ABSENT))
            hth_put64(again + 352, g.objects.bytes[0]); /* ... or the largest, and no machine */
        if (memcmp(data + (size_t)i * HTH_GATHER, again, HTH_GATHER) != 0)
            abort();
    }
    choose(data, world);
    if (!world || hth_epoch_make(&e, data, world, g.store, NULL))
        return 0;
    if (e.self != e.rank_node[world - 1] || e.rank_node[0] != 0 || e.nodes > world)
        abort();
    hth_epoch_fini(&e);
    return 0;
}
