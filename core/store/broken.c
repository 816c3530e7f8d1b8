/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots whose files another program has removed or cut short under us. Bytes that are written to
 * one are lost, and a missing page is SIGBUS for each process that touches it. So the store looks
 * at a slot before it hands it out, shows it under a name, or lends it for reading, and at all
 * slots when the engine asks.
 *
 *     looked at ─► broken ─► told to the engine, which takes its memory back from the transport
 *                                 └─► condemn(): gone, and another one is made in its place
 */
#include "tmpfs.h"

#include <stdio.h>
#include <unistd.h>

/* Pages that were there and are not any more: punched, or cut and the file made long again. */
static int is_hollow(const struct hth_tmpfs *t, struct tmpfs_slot *slot, const struct stat *st)
{
    if (!t->on_tmpfs || slot->made < slot->pub.capacity)
        return 0;
    if (!slot->blocks)
        slot->blocks = st->st_blocks;
    return st->st_blocks < slot->blocks;
}

int hth_broken_look(struct hth_tmpfs *t, struct tmpfs_slot *slot, struct hearth_error *err)
{
    struct stat st;
    int whole;

    if (slot->foreign || slot->state == TMPFS_CONDEMNED || slot->state == TMPFS_LOST ||
            fstat(slot->pub.fd, &st))
        return 0;
    whole = st.st_nlink && (uint64_t)st.st_size >= slot->pub.capacity && !is_hollow(t, slot, &st);
    if (whole && !slot->broken)
        return 0;
    slot->broken = 1;
    return hth_fail(err, HEARTH_ECORRUPT, 0,
            "%.200s: the file of slot %016" PRIx64 "%s%.64s was %s by another program: %" PRIu64
            " of %" PRIu64 " bytes are left",
            t->path, slot->pub.id, slot->dir ? ", object " : "", slot->dir ? slot->name : "",
            st.st_nlink ? "cut" : "removed", st.st_nlink ? (uint64_t)st.st_blocks * 512 : 0,
            slot->pub.capacity);
}

/* 1: no report is due. The engine has had it; or the slot is being written, and its holder learns
 * of it when it seals the slot or gives it back. */
static int is_told(const struct tmpfs_slot *slot)
{
    return slot->state == TMPFS_HELD || slot->state == TMPFS_RECEIVED || slot->told;
}

struct hth_slot *hth_broken_next(struct hth_store *s, struct hearth_error *why)
{
    struct hth_tmpfs *t = hth_tmpfs_of(s);

    for (struct tmpfs_slot *slot = t->slots; slot; slot = slot->next) {
        if (is_told(slot) || !hth_broken_look(t, slot, why))
            continue;
        slot->told = 1;
        return &slot->pub;
    }
    return NULL;
}
