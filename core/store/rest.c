/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a memory limit is near, the kernel ends the process that has the most pages mapped. Pages
 * of a tmpfs count for each process that maps them, and stay when it ends: an engine with all slots
 * mapped would be ended first, for nothing, and then the trainer. So both unmap them between uses.
 * The pages stay in the tmpfs, and come back at the next touch.
 */
#include "room.h"
#include "tmpfs.h"

#include <inttypes.h>
#include <sys/mman.h>

#define FAST_BYTES (UINT64_C(32) << 30)

/* No rank or peer writes into the slot through our mapping, and no worker touches it. */
static int slot_rests(const struct tmpfs_slot *slot)
{
    return !slot->busy && slot->pub.base &&
           (slot->state == TMPFS_SEALED || slot->state == TMPFS_FREE || slot->state == TMPFS_HELD);
}

static uint64_t rest_mapped(const struct hth_tmpfs *t)
{
    uint64_t bytes = 0;

    for (const struct tmpfs_slot *slot = t->slots; slot; slot = slot->next)
        bytes += slot_rests(slot) ? slot->pub.capacity : 0;
    return bytes;
}

/* A rank unmaps it too, once for each time that it had it, and maps it again when it is lent it. */
static void slot_rest(struct hth_tmpfs *t, struct tmpfs_slot *slot)
{
    (void)madvise(slot->pub.base, slot->pub.capacity, MADV_DONTNEED);
    if (slot->state == TMPFS_HELD || slot->taker >= TAKER_ENGINE ||
            slot->rested == slot->pub.generation)
        return;
    slot->rested = slot->pub.generation;
    slot->unmap = 1;
    t->unmaps++;
}

int hth_pool_rest(struct hth_store *s)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);
    uint64_t mapped = rest_mapped(t), left;
    struct hth_room room;

    if (!mapped || !t->on_tmpfs || hth_room_look(t->root_fd, t->opts.proc, &room, NULL))
        return 0;
    left = room.cgroup < room.memory ? room.cgroup : room.memory;
    /* A process that takes all of `left` until the next look has more memory than this engine. No
     * process takes FAST_BYTES in that time. */
    if (left >= mapped || left >= FAST_BYTES) {
        t->rests = 0;
        return 0;
    }
    for (struct tmpfs_slot *slot = t->slots; slot; slot = slot->next)
        if (slot_rests(slot))
            slot_rest(t, slot);
    if (!t->rests)
        hth_say(&t->opts.log, HEARTH_LOG_INFO, "slots-unmapped",
                "%s: %" PRIu64 " bytes of memory are left: engine and ranks unmap slots of %" PRIu64
                " bytes between uses, so that the kernel does not take it for the largest process",
                t->path, left, mapped);
    t->rests = 1;
    return 1;
}
