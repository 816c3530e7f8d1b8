/* SPDX-License-Identifier: Apache-2.0 */
#include "need.h"

#define RESERVE_MAX  (UINT64_C(64) << 20)
#define RESERVE_PART 16u /* of the mount */
#define PAGE         4096u

uint64_t hth_need_slot(uint64_t bytes)
{
    uint64_t padded = bytes + bytes / 16;

    return (padded + HTH_SLOT_ROUND - 1) / HTH_SLOT_ROUND * HTH_SLOT_ROUND;
}

size_t hth_need_part(const struct hth_sizes *part, uint32_t keep, uint64_t *out)
{
    size_t count = 0;

    for (size_t i = 0; i < HTH_SIZES; i++)
        for (uint64_t k = 0; k < (uint64_t)part->count[i] * (keep + 1); k++)
            out[count++] = part->bytes[i];
    return count;
}

size_t hth_need_readers(uint64_t bytes, uint64_t largest, uint64_t *out)
{
    size_t count = 0;

    while (largest && bytes && count < HTH_NEED_READERS) {
        out[count++] = largest;
        bytes = bytes > largest ? bytes - largest : 0;
    }
    return count;
}

size_t hth_need_moving(uint32_t nodes, uint64_t largest, uint64_t *out)
{
    size_t count = 0;

    while (nodes > 1 && largest && count < HTH_NEED_MOVING)
        out[count++] = largest;
    return count;
}

uint64_t hth_need_reserve(uint64_t mount)
{
    uint64_t part = mount / RESERVE_PART;

    return part < RESERVE_MAX ? part : RESERVE_MAX;
}

uint64_t hth_need_mount(uint64_t slots)
{
    uint64_t rest = slots % (RESERVE_PART - 1),
             mount = slots / (RESERVE_PART - 1) * RESERVE_PART + rest + (rest ? 1 : 0);

    if (mount / RESERVE_PART >= RESERVE_MAX)
        mount = slots + RESERVE_MAX;
    return (mount + PAGE - 1) / PAGE * PAGE;
}
