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
