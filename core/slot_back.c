/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory behind slots. A new slot is an empty file of its full length; in the background it is
 * taken through two stages, a bounded piece at a time:
 *
 *     made        the pages are ours, no write can end in SIGBUS: huge ones where the kernel has
 *                 them, and fallocate
 *     touched     zeroed and in our page table: the first copy costs what the hundredth does
 *
 * A slot that is not made is never handed out; the second stage is speed only.
 */
#include "tmpfs.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define ALLOCATE_PIECE (UINT64_C(64) << 20) /* bytes, where somebody waits for all of it */
#define WORK_PIECE     (UINT64_C(8) << 20)  /* bytes: 1 to 30 ms of the engine's thread */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t hth_back_missing(const struct hth_tmpfs *t)
{
    uint64_t sum = 0;

    for (const struct tmpfs_slot *s = t->slots; s; s = s->next)
        if (!s->foreign && (s->state == TMPFS_FREE || s->state == TMPFS_GIVEN))
            sum += s->pub.capacity - s->made;
    return sum;
}

/* The kernel makes a huge page of a range with one page in it, without the 511 others: in a tenth
 * of the time that those take. It makes none of an empty range, so each gets its one page; by
 * pwrite, since a store into a full mount is SIGBUS. What fails here stays as small pages. */
static void collapse(struct hth_tmpfs *t, struct tmpfs_slot *slot, uint64_t len)
{
    for (uint64_t off = 0; off < len; off += HTH_SLOT_ROUND)
        if (pwrite(slot->pub.fd, "", 1, (off_t)(slot->made + off)) != 1)
            return;
    if (!madvise(slot->pub.base + slot->made, len, MADV_COLLAPSE) || errno != EINVAL)
        return;
    t->no_collapse = 1;
    hth_say(&t->opts.log, HEARTH_LOG_WARN, "no-huge-pages",
            "%s: no huge pages, so mapping and copying cost more; mount the tmpfs with "
            "huge=within_size",
            t->path);
}

static int make(
        struct hth_tmpfs *t, struct tmpfs_slot *slot, uint64_t piece, struct hearth_error *err)
{
    uint64_t len = least(piece, slot->pub.capacity - slot->made);

    if (slot->state == TMPFS_FREE && !slot->pub.user &&
            !t->no_collapse) /* neither bytes nor pins */
        collapse(t, slot, len);
    if (hth_sys_allocate(t, slot->pub.fd, slot->made, len))
        return hth_sys_fail(t, err, "allocate memory for", "a slot");
    slot->made += len;
    return 0;
}

int hth_back_all(struct hth_tmpfs *t, struct tmpfs_slot *slot, struct hearth_error *err)
{
    int rc = 0;

    while (!rc && slot->made < slot->pub.capacity)
        rc = make(t, slot, ALLOCATE_PIECE, err);
    return rc;
}

/* Nothing to be done about a kernel that cannot: the first copy into each slot is slower. */
static void touch(struct hth_tmpfs *t, struct tmpfs_slot *slot)
{
    uint64_t len = least(WORK_PIECE, slot->pub.capacity - slot->touched);

    if (madvise(slot->pub.base + slot->touched, len, MADV_POPULATE_WRITE) && errno != EINTR) {
        t->no_populate = 1;
        hth_say(&t->opts.log, HEARTH_LOG_WARN, "no-prefault",
                "%s: pages cannot be touched ahead (%s), so first copies will be slow; Linux 5.14 "
                "or newer can",
                t->path, strerrordesc_np(errno));
        return;
    }
    slot->touched += len;
}

int hth_back_piece(struct hth_tmpfs *t, struct tmpfs_slot *slot, struct hearth_error *err)
{
    int rc;

    if (slot->foreign || slot->state != TMPFS_FREE)
        return 0;
    if (slot->made < slot->pub.capacity) {
        rc = make(t, slot, WORK_PIECE, err);
        return rc ? rc : 1;
    }
    if (slot->touched < slot->pub.capacity && !t->opts.no_prefault && !t->no_populate) {
        touch(t, slot);
        return 1;
    }
    return 0;
}
