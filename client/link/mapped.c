/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the engine's, seen from here. A slot that was lent once stays mapped while the
 * connection lasts: its pages and their entries in our tables are there when it is lent again. It
 * is recognised by its inode, which a recycled slot keeps.
 *
 * A mapping keeps the engine's open file. The next engine, which has the same file open anew, sees
 * that another process has it open, and lends the slot to no rank: this process might be writing.
 * So a mapping of an earlier connection ends as soon as no save needs it:
 *
 *     lent ─► written ─► SEAL ─► sealed ─► idle ── this connection lasts ──► kept for the next save
 *             └────── needed ──────┘         └──── it ended, LET_GO, join ─► unmapped
 */
#include "mapped.h"

#include "client/device/device.h"
#include "client/device/pin.h"
#include "core/base/map.h"
#include "kept.h"
#include "link_parts.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static struct hth_slot_map *slot_find_locked(struct hearth *h, const struct stat *st)
{
    struct hth_slot_map *s = h->slots;

    while (s && (s->dev != st->st_dev || s->ino != st->st_ino))
        s = s->next;
    return s;
}

/* A save writes into it, or its bytes are in no engine's hands yet. */
static int slot_is_needed_locked(const struct hearth *h, const struct hth_slot_map *m)
{
    int needed = m->users != 0;

    for (const struct hearth_handle *s = h->link->handles; s && !needed; s = s->next)
        for (uint32_t i = 0; i < s->objects && !needed; i++)
            needed = s->object[i].slot == m->slot;
    return needed;
}

static int slot_is_old_locked(const struct hearth *h, const struct hth_slot_map *m)
{
    return (m->let_go || m->incarnation != h->link->incarnation) && !slot_is_needed_locked(h, m);
}

struct hth_slot_map *hth_slots_old_locked(struct hearth *h)
{
    struct hth_slot_map **at = &h->slots, *old = NULL;

    while (*at) {
        struct hth_slot_map *m = *at;

        if (!slot_is_old_locked(h, m)) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        m->next = old;
        old = m;
    }
    return old;
}

/* A mapping that the driver knows is unmapped by the thread that tells the driver. */
static void slot_unmap(struct hth_slot_map *m)
{
    if (m->pin)
        hth_pin_close(m->pin);
    else
        munmap(m->base, m->bytes);
    m->pin = NULL;
}

void hth_slots_unmap(struct hth_slot_map *list)
{
    while (list) {
        struct hth_slot_map *m = list;

        list = m->next;
        slot_unmap(m);
        free(m);
    }
}

void hth_slot_let_go_locked(struct hearth *h, uint64_t slot)
{
    for (struct hth_slot_map *m = h->slots; m; m = m->next)
        m->let_go |= m->slot == slot;
}

void hth_slots_let_go_all_locked(struct hearth *h)
{
    for (struct hth_slot_map *m = h->slots; m; m = m->next)
        m->let_go = 1;
}

void hth_slots_let_go(struct hearth *h)
{
    struct hth_slot_map *old;

    pthread_mutex_lock(&h->lock);
    old = hth_slots_old_locked(h);
    pthread_mutex_unlock(&h->lock);
    hth_slots_unmap(old);
}

static int slot_map_whole(struct hth_slot_map *m, const struct hth_slot_lent *lent, uint64_t bytes,
        struct hearth_error *err)
{
    void *p = hth_map_shared(lent->fd, bytes, PROT_READ | PROT_WRITE);

    if (!p)
        return hth_fail(err, HEARTH_ENOMEM, errno, "map a slot of %" PRIu64 " bytes: %s", bytes,
                strerror(errno));
    if (m->base)
        slot_unmap(m);
    m->base = p;
    m->bytes = bytes;
    m->incarnation = lent->incarnation;
    m->let_go = 0;
    return HEARTH_OK;
}

static int slot_get_locked(struct hearth *h, const struct hth_slot_lent *lent,
        const struct stat *st, struct hth_slot_map **out, struct hearth_error *err)
{
    struct hth_slot_map *m = slot_find_locked(h, st);
    int made = !m, rc = HEARTH_OK;

    if (made && !(m = calloc(1, sizeof(*m))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a slot's mapping");
    if (m->bytes < (uint64_t)st->st_size || m->let_go || m->incarnation != lent->incarnation) {
        rc = m->users ? hth_fail(err, HEARTH_EPROTO, 0,
                                "the engine lent a slot that a save of this process still writes")
                      : slot_map_whole(m, lent, (uint64_t)st->st_size, err);
    }
    if (rc) {
        if (made)
            free(m);
        return rc;
    }
    if (made) {
        m->dev = st->st_dev;
        m->ino = st->st_ino;
        m->next = h->slots;
        h->slots = m;
    }
    m->slot = lent->slot;
    m->users++;
    *out = m;
    return HEARTH_OK;
}

int hth_slot_get(struct hearth *h, const struct hth_slot_lent *lent, uint64_t bytes, int touch,
        struct hth_slot_map **out, struct hearth_error *err)
{
    const struct hth_slot_map *known;
    const void *before;
    struct stat st;
    int rc;

    if (fstat(lent->fd, &st) != 0 || st.st_size <= 0 || (uint64_t)st.st_size < bytes)
        return hth_fail(err, HEARTH_EPROTO, 0,
                "the engine lent a slot of %lld bytes where %" PRIu64 " were asked for",
                (long long)st.st_size, bytes);
    pthread_mutex_lock(&h->lock);
    known = slot_find_locked(h, &st);
    before = known ? known->base : NULL;
    rc = slot_get_locked(h, lent, &st, out, err);
    pthread_mutex_unlock(&h->lock);
    /* A new mapping, also of a slot that was mapped before: page tables in one go, not by a fault
     * per page. The memory itself is there. */
    if (!rc && (*out)->base != before && touch)
        madvise((*out)->base, bytes, MADV_POPULATE_WRITE);
    if (!rc)
        hth_slot_pin(h, *out);
    return rc;
}

void hth_slot_pin(struct hearth *h, struct hth_slot_map *slot)
{
    pthread_mutex_lock(&h->lock);
    if (h->device && h->device->pin && !slot->pin)
        slot->pin = hth_pin_open(h->device, slot->base, slot->bytes, 0);
    pthread_mutex_unlock(&h->lock);
}

void hth_slot_hold(struct hearth *h, struct hth_slot_map *slot)
{
    pthread_mutex_lock(&h->lock);
    slot->users++;
    pthread_mutex_unlock(&h->lock);
}

void hth_slot_put(struct hearth *h, struct hth_slot_map *slot)
{
    struct hth_slot_map *old;

    if (!slot)
        return;
    pthread_mutex_lock(&h->lock);
    slot->users--;
    old = hth_slots_old_locked(h);
    pthread_mutex_unlock(&h->lock);
    hth_slots_unmap(old);
}

void hth_slots_fini(struct hearth *h)
{
    hth_slots_unmap(h->slots);
    h->slots = NULL;
}
