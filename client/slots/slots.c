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

static struct hth_slot_map *find_locked(struct hearth *h, const struct stat *st)
{
    struct hth_slot_map *s = h->slots;

    while (s && (s->dev != st->st_dev || s->ino != st->st_ino))
        s = s->next;
    return s;
}

static int map_whole(struct hth_slot_map *s, int fd, uint64_t bytes, struct hearth_error *err)
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

static int get_locked(struct hearth *h, int fd, const struct stat *st, struct hth_slot_map **out,
        struct hearth_error *err)
{
    struct hth_slot_map *s = find_locked(h, st);
    int fresh = !s, rc = HEARTH_OK;

    if (fresh && !(s = calloc(1, sizeof(*s))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a slot's mapping");
    if (s->bytes < (uint64_t)st->st_size) {
        rc = s->users ? hth_fail(err, HEARTH_EPROTO, 0,
                                "the engine lent one slot twice, and grew it meanwhile")
                      : map_whole(s, fd, (uint64_t)st->st_size, err);
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
    fresh = !find_locked(h, &st);
    rc = get_locked(h, fd, &st, out, err);
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
    while (h->leases) {
        struct hth_lease *lease = h->leases;

        h->leases = lease->next;
        free(lease);
    }
}

/* Only to the engine that gave it: another one's leases have the same numbers. */
static void give_back(struct hearth *h, uint64_t id, uint64_t incarnation)
{
    struct hth_local_unmap m = { .lease = id };
    struct hth_local_head a;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_UNMAP,
        .want = HTH_LOCAL_OK,
        .fd = -1,
        .incarnation = incarnation,
        .answer = &a,
        .answer_len = sizeof(a),
        .wait_ms = HTH_REQUEST_MS,
        .what = "give a lease back" };

    hth_ask(h, &ask, NULL);
}

static int enter(struct hearth *h, struct hth_lease *lease, uint64_t incarnation)
{
    int rc = HEARTH_OK;

    pthread_mutex_lock(&h->lock);
    if (incarnation == h->incarnation) {
        lease->number = ++h->numbers;
        lease->next = h->leases;
        h->leases = lease;
    } else {
        rc = HEARTH_EENGINE; /* the one that gave it is gone, and so is the lease */
    }
    pthread_mutex_unlock(&h->lock);
    return rc;
}

int hth_lease_enter(struct hearth *h, struct hth_save_id save, uint64_t object, uint64_t id,
        uint64_t incarnation, int fd, uint64_t *out_number, struct hearth_error *err)
{
    struct hth_lease *lease;
    struct stat st;
    int rc;

    if (fd < 0 || fstat(fd, &st) != 0) {
        give_back(h, id, incarnation);
        return hth_fail(err, HEARTH_EPROTO, 0, "map an object: " HTH_NO_DESCRIPTOR);
    }
    if (!(lease = calloc(1, sizeof(*lease)))) {
        give_back(h, id, incarnation);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a lease");
    }
    *lease = (struct hth_lease){
        .save = save, .object = object, .id = id, .dev = st.st_dev, .ino = st.st_ino
    };
    if ((rc = enter(h, lease, incarnation))) {
        free(lease);
        return hth_fail(err, rc, 0, "map an object: this node's engine was restarted meanwhile");
    }
    *out_number = lease->number;
    return HEARTH_OK;
}

struct hth_ask hth_lease_ask(struct hth_local_map *m, struct hth_local_mapped *out, int *out_fd)
{
    return (struct hth_ask){ .msg = m,
        .len = sizeof(*m),
        .type = HTH_LOCAL_MAP,
        .want = HTH_LOCAL_MAPPED,
        .fd = -1,
        .again = 1,
        .answer = out,
        .answer_len = sizeof(*out),
        .out_fd = out_fd,
        .wait_ms = HTH_REQUEST_MS,
        .what = "map an object" };
}

int hth_lease_get(struct hearth *h, struct hth_save_id save, uint64_t object,
        struct hth_local_mapped *out, int *out_fd, uint64_t *out_number, struct hearth_error *err)
{
    struct hth_local_map m = { .save = hth_local_save_of(save), .object = object };
    int fd = -1;
    struct hth_ask ask = hth_lease_ask(&m, out, &fd);
    int rc = hth_ask(h, &ask, err);

    if (rc)
        return rc;
    rc = hth_lease_enter(h, save, object, out->lease, ask.answered, fd, out_number, err);
    if (!rc)
        *out_fd = fd;
    else if (fd >= 0)
        close(fd);
    return rc;
}

void hth_lease_put(struct hearth *h, uint64_t number)
{
    struct hth_lease **at = &h->leases, *lease;
    uint64_t incarnation;
    int connected;

    pthread_mutex_lock(&h->lock);
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    lease = *at;
    if (lease)
        *at = lease->next;
    connected = h->fd >= 0;
    incarnation = h->incarnation;
    pthread_mutex_unlock(&h->lock);
    if (lease && connected)
        give_back(h, lease->id, incarnation);
    free(lease);
}
