/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the engine's, seen from here. A slot that was lent once stays mapped until close:
 * its pages and their entries in our tables are there when it is lent again. It is recognised by
 * its inode, which a recycled slot keeps and a restarted engine does not change.
 */
#include "slots.h"

#include "core/base/map.h"
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

static int slot_map_whole(struct hth_slot_map *s, int fd, uint64_t bytes, struct hearth_error *err)
{
    void *p = hth_map_shared(fd, bytes, PROT_READ | PROT_WRITE);

    if (!p)
        return hth_fail(err, HEARTH_ENOMEM, errno, "map a slot of %" PRIu64 " bytes: %s", bytes,
                strerror(errno));
    if (s->base)
        munmap(s->base, s->bytes);
    s->base = p;
    s->bytes = bytes;
    return HEARTH_OK;
}

static int slot_get_locked(struct hearth *h, int fd, const struct stat *st,
        struct hth_slot_map **out, struct hearth_error *err)
{
    struct hth_slot_map *s = slot_find_locked(h, st);
    int fresh = !s, rc = HEARTH_OK;

    if (fresh && !(s = calloc(1, sizeof(*s))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a slot's mapping");
    if (s->bytes < (uint64_t)st->st_size) {
        rc = s->users ? hth_fail(err, HEARTH_EPROTO, 0,
                                "the engine lent one slot twice, and grew it meanwhile")
                      : slot_map_whole(s, fd, (uint64_t)st->st_size, err);
    }
    if (rc) {
        if (fresh)
            free(s);
        return rc;
    }
    if (fresh) {
        s->dev = st->st_dev;
        s->ino = st->st_ino;
        s->next = h->slots;
        h->slots = s;
    }
    s->users++;
    *out = s;
    return HEARTH_OK;
}

int hth_slot_get(struct hearth *h, int fd, uint64_t bytes, int touch, struct hth_slot_map **out,
        struct hearth_error *err)
{
    struct stat st;
    int rc, fresh;

    if (fstat(fd, &st) != 0 || st.st_size <= 0 || (uint64_t)st.st_size < bytes)
        return hth_fail(err, HEARTH_EPROTO, 0,
                "the engine lent a slot of %lld bytes where %" PRIu64 " were asked for",
                (long long)st.st_size, bytes);
    pthread_mutex_lock(&h->lock);
    fresh = !slot_find_locked(h, &st);
    rc = slot_get_locked(h, fd, &st, out, err);
    pthread_mutex_unlock(&h->lock);
    /* Page tables in one go, not by a fault per page. The memory itself is there. */
    if (!rc && fresh && touch)
        madvise((*out)->base, bytes, MADV_POPULATE_WRITE);
    return rc;
}

void hth_slot_put(struct hearth *h, struct hth_slot_map *slot)
{
    if (!slot)
        return;
    pthread_mutex_lock(&h->lock);
    slot->users--;
    pthread_mutex_unlock(&h->lock);
}

void hth_slots_fini(struct hearth *h)
{
    while (h->slots) {
        struct hth_slot_map *s = h->slots;

        h->slots = s->next;
        munmap(s->base, s->bytes);
        free(s);
    }
}
