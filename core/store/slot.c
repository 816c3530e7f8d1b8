/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One slot: a file of the pool, mapped whole, and counted leases on it.
 *
 * A slot that another process has open is not FREE when it is given back: an engine that died had
 * lent it to ranks that may still write or read it, and a program may be reading an object by its
 * path. The kernel shows that: it gives a write lease on a file only to its one opener.
 *
 * The ranks of an engine that lives share its open file, which the kernel does not tell from the
 * engine. A slot whose rank is cut off before it handed the slot back is therefore opened and
 * mapped anew: from then on what the rank has is another open file, which ends with its mapping and
 * its process.
 *
 *     lent ──► open file 1: engine, rank        cut off ──► open file 1: rank        GIVEN until it is closed
 *                                                           open file 2: engine
 */
#include "tmpfs.h"

#include "core/base/open.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Made and ended
 * ----------------------------------------------------------------------------- */

void hth_slot_name(uint64_t id, char out[FILE_NAME_BYTES])
{
    snprintf(out, FILE_NAME_BYTES, "%016" PRIx64, id);
}

int hth_slot_adopt(struct hth_tmpfs *t, int fd, const struct stat *st, int foreign,
        struct tmpfs_slot **out, struct hearth_error *err)
{
    struct tmpfs_slot *slot = hth_sys_zalloc(t, sizeof(*slot)), **end = &t->slots;
    uint64_t capacity = (uint64_t)st->st_size;

    if (slot)
        slot->pub.base = hth_sys_map(t, fd, capacity, !foreign);
    if (!slot || !slot->pub.base) {
        free(slot);
        return hth_sys_fail(t, err, "map", "a slot");
    }
    slot->pub.id = st->st_ino;
    slot->pub.fd = fd;
    slot->pub.capacity = capacity;
    slot->taker = TAKER_NONE;
    slot->foreign = foreign;
    slot->made = (uint64_t)st->st_blocks * 512 >= capacity ? capacity : 0;
    while (*end)
        end = &(*end)->next;
    *end = slot;
    *out = slot;
    return 0;
}

static void slot_leave(struct hth_tmpfs *t, const struct tmpfs_slot *slot)
{
    struct tmpfs_slot **at = &t->slots;

    while (*at != slot)
        at = &(*at)->next;
    *at = slot->next;
}

void hth_slot_forget(struct hth_tmpfs *t, struct tmpfs_slot *slot)
{
    slot_leave(t, slot);
    hth_sys_unmap(slot->pub.base, slot->pub.capacity);
    close(slot->pub.fd);
    free(slot);
}

/* Its file goes too: no rank maps it and no transport has registered it. */
void hth_slot_drop(struct hth_tmpfs *t, struct tmpfs_slot *slot)
{
    char name[FILE_NAME_BYTES];

    hth_slot_name(slot->pub.id, name);
    unlinkat(t->pool_fd, name, 0);
    hth_slot_forget(t, slot);
}

void hth_slot_give_back(struct hth_tmpfs *t, struct tmpfs_slot *slot)
{
    char name[FILE_NAME_BYTES];

    hth_slot_name(slot->pub.id, name);
    unlinkat(t->pool_fd, name, 0);
    slot_leave(t, slot);
    hth_release(t, slot->pub.base, slot->pub.capacity, slot->pub.fd);
    free(slot);
}

static int new_file(struct hth_tmpfs *t, uint64_t capacity, int *out_fd, struct stat *st)
{
    char name[FILE_NAME_BYTES];
    int fd, rc, saved;

    unlinkat(t->own_fd, NEW_FILE, 0);
    fd = hth_sys_create(t, t->own_fd, NEW_FILE);
    if (fd < 0)
        return -1;
    rc = hth_sys_truncate(t, fd, capacity);
    if (!rc)
        rc = fstat(fd, st);
    if (!rc) {
        hth_slot_name(st->st_ino, name);
        rc = hth_sys_renameat2(t->own_fd, NEW_FILE, t->pool_fd, name, RENAME_NOREPLACE);
    }
    if (rc) {
        saved = errno;
        unlinkat(t->own_fd, NEW_FILE, 0);
        close(fd);
        errno = saved;
        return -1;
    }
    *out_fd = fd;
    return 0;
}

/* A free slot without memory behind it yet. */
int hth_slot_new(
        struct hth_tmpfs *t, uint64_t capacity, struct tmpfs_slot **out, struct hearth_error *err)
{
    char name[FILE_NAME_BYTES];
    struct stat st;
    int fd, rc;

    if (new_file(t, capacity, &fd, &st))
        return hth_sys_fail(t, err, "make", "a slot");
    rc = hth_slot_adopt(t, fd, &st, 0, out, err);
    if (!rc)
        (*out)->pub.generation = t->starts
                                 << 32; /* no older slot of that number, as a rank may know it */
    if (rc) {
        hth_slot_name(st.st_ino, name);
        unlinkat(t->pool_fd, name, 0);
        close(fd);
    }
    return rc;
}

int hth_slot_counts(const struct tmpfs_slot *s)
{
    return !s->foreign && !s->broken && s->state != TMPFS_CONDEMNED && s->state != TMPFS_LOST;
}

/* ---- Lent
 * --------------------------------------------------------------------------------------- */

/* By its descriptor: the name may be gone, or another file's by now. */
int hth_slot_reader(
        struct hth_store *s, const struct hth_slot *slot, int *out_fd, struct hearth_error *err)
{
    int fd;

    if (hth_broken_look(hth_tmpfs_of(s), (struct tmpfs_slot *)(uintptr_t)slot, err))
        return HEARTH_ECORRUPT; /* what is missing would be SIGBUS for the reader */
    fd = hth_open_again(slot->fd, O_RDONLY);
    if (fd < 0)
        return hth_fail(err, HEARTH_EIO, errno,
                "a slot cannot be opened for reading: descriptor %d: %s; is /proc mounted, and does "
                "the limit (ulimit -n) leave descriptors?",
                slot->fd, strerrordesc_np(errno));
    *out_fd = fd;
    return HEARTH_OK;
}

/* The file of a slot in the pool, opened once more; -1. */
static int slot_open(struct hth_tmpfs *t, const struct tmpfs_slot *slot)
{
    char name[FILE_NAME_BYTES];
    struct stat st;
    int fd;

    hth_slot_name(slot->pub.id, name);
    fd = hth_sys_open_file(t->pool_fd, name, O_RDWR);
    if (fd >= 0 && !fstat(fd, &st) && st.st_ino == slot->pub.id &&
            (uint64_t)st.st_size >= slot->pub.capacity)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Address and pages stay the same, and so does a registration with a transport. -1 while a worker
 * has the slot: the caller tries again later. */
static int slot_part(struct hth_tmpfs *t, struct tmpfs_slot *slot)
{
    int fd = slot->busy ? -1 : slot_open(t, slot);

    if (fd < 0)
        return -1;
    if (hth_sys_map_over(slot->pub.base, fd, slot->pub.capacity)) {
        hth_say(&t->opts.log, HEARTH_LOG_ERROR, "slot-lost",
                "%s: a slot of %" PRIu64 " bytes cannot be mapped and is not used again: %s",
                t->path, slot->pub.capacity, strerrordesc_np(errno));
        close(fd);
        slot->state = TMPFS_LOST;
        return -1;
    }
    close(slot->pub.fd);
    slot->pub.fd = fd;
    slot->touched = 0;
    slot->lent = 0;
    return 0;
}

/* Descriptors that were lent share ours, until slot_part(). */
static int slot_is_open_elsewhere(const struct tmpfs_slot *slot)
{
    int elsewhere = hth_sys_open_elsewhere(slot->pub.fd);

    return elsewhere < 0 ? slot->orphan != ORPHAN_NOT : elsewhere;
}

void hth_slot_settle(struct hth_tmpfs *t, struct tmpfs_slot *slot)
{
    uint32_t others = slot->pub.leases - (slot->busy != 0); /* a worker touches its pages */

    if (slot->orphan == ORPHAN_SHARES && !others && !slot_part(t, slot))
        slot->orphan = ORPHAN_ALONE;
    if (slot->state == TMPFS_LOST)
        return;
    slot->state = others || slot->orphan == ORPHAN_SHARES || slot_is_open_elsewhere(slot)
                          ? TMPFS_GIVEN
                          : TMPFS_FREE;
    if (slot->state == TMPFS_FREE)
        slot->orphan = ORPHAN_NOT;
}

void hth_slots_settle(struct hth_tmpfs *t)
{
    for (struct tmpfs_slot *slot = t->slots; slot; slot = slot->next)
        if (slot->state == TMPFS_GIVEN && !slot->pub.leases && !slot->foreign)
            hth_slot_settle(t, slot);
}

void hth_slot_lease(struct hth_store *s, struct hth_slot *slot)
{
    (void)s;
    slot->leases++;
}

void hth_slot_unlease(struct hth_store *s, struct hth_slot *pub)
{
    struct tmpfs_slot *slot = hth_tmpfs_slot(pub);

    if (!pub->leases || --pub->leases)
        return;
    if (slot->state == TMPFS_GIVEN)
        hth_slot_settle(hth_tmpfs_of(s), slot);
    else if (slot->state == TMPFS_CONDEMNED)
        hth_slot_forget(hth_tmpfs_of(s), slot);
}

void hth_slot_lost(struct hth_tmpfs *t, struct tmpfs_slot *slot, const struct hearth_error *err)
{
    hth_say(&t->opts.log, HEARTH_LOG_ERROR, "slot-lost", "a reserved slot is given up: %s",
            err->text);
    if (slot->pub.user)
        slot->state = TMPFS_LOST;
    else
        hth_slot_drop(t, slot);
}
