/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the engine's, seen from here. A slot that was lent once stays mapped until close:
 * its pages and their entries in our tables are there when it is lent again. It is recognised by
 * its inode, which a recycled slot keeps and a restarted engine does not change.
 */
#include "client.h"

#include <errno.h>
#include <hearth/internal/core/map.h>
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

static int enter_lease(struct hearth *h, struct hth_save_id save, uint64_t object, uint64_t id,
        int fd, uint64_t *out_number)
{
    struct hth_lease *lease = calloc(1, sizeof(*lease));
    struct stat st;

    if (!lease || fstat(fd, &st) != 0) {
        free(lease);
        return HEARTH_ENOMEM;
    }
    *lease = (struct hth_lease){
        .save = save, .object = object, .id = id, .dev = st.st_dev, .ino = st.st_ino
    };
    pthread_mutex_lock(&h->lock);
    lease->number = *out_number = ++h->numbers;
    lease->next = h->leases;
    h->leases = lease;
    pthread_mutex_unlock(&h->lock);
    return HEARTH_OK;
}

int hth_lease_get(struct hearth *h, struct hth_save_id save, uint64_t object,
        struct hth_local_mapped *out, int *out_fd, uint64_t *out_number, struct hearth_error *err)
{
    struct hth_local_map m = { .save = hth_local_save_of(save), .object = object };
    int fd = -1;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_MAP,
        .want = HTH_LOCAL_MAPPED,
        .fd = -1,
        .again = 1,
        .answer = out,
        .answer_len = sizeof(*out),
        .out_fd = &fd,
        .wait_ms = HTH_REQUEST_MS,
        .what = "map an object" };
    int rc = hth_ask(h, &ask, err);

    if (rc)
        return rc;
    if (fd < 0)
        return hth_fail(err, HEARTH_EPROTO, 0, "map an object: the engine sent no descriptor");
    if (enter_lease(h, save, object, out->lease, fd, out_number)) {
        close(fd);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a lease");
    }
    *out_fd = fd;
    return HEARTH_OK;
}

void hth_lease_put(struct hearth *h, uint64_t number)
{
    struct hth_lease **at = &h->leases, *lease;
    struct hth_local_unmap m = { .lease = 0 };
    struct hth_local_head a;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_UNMAP,
        .want = HTH_LOCAL_OK,
        .fd = -1,
        .answer = &a,
        .answer_len = sizeof(a),
        .wait_ms = HTH_REQUEST_MS,
        .what = "give a lease back" };
    int connected;

    pthread_mutex_lock(&h->lock);
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    lease = *at;
    if (lease) {
        *at = lease->next;
        m.lease = lease->id;
    }
    connected = h->fd >= 0;
    pthread_mutex_unlock(&h->lock);
    if (lease && connected)
        hth_ask(h, &ask, NULL);
    free(lease);
}
