/* SPDX-License-Identifier: Apache-2.0 */
#include "ring.h"

#include "core/base/fail.h"
#include "core/base/map.h"
#include "cut.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUFFERS    2u
#define PARTS_MOST 4096u /* copies that fill a buffer */

struct hth_ring {
    const struct hth_driver *driver;
    unsigned char *memory;
    int pinned;
    uint64_t filled, landed; /* buffers so far */
    struct hth_ring_buffer {
        void *event;
        int unmarked; /* the event behind its copies was refused */
        struct hth_work *work;
        enum hth_device_way way;
        size_t count;
        struct hth_landing part[PARTS_MOST];
    } buffer[BUFFERS];
    struct hth_device_copy copy[PARTS_MOST]; /* of the call that runs */
};

void *hth_ring_pinned(const struct hth_ring *ring)
{
    return ring && ring->pinned ? ring->memory : NULL;
}

void hth_ring_close(struct hth_ring *ring, int keep)
{
    if (!ring)
        return;
    for (unsigned i = 0; i < BUFFERS; i++)
        if (ring->buffer[i].event)
            ring->driver->event_close(ring->buffer[i].event);
    if (ring->memory && !keep)
        hth_unmap_memory(ring->memory, BUFFERS * HTH_RING_BYTES);
    free(ring);
}

int hth_ring_open(struct hth_ring **out, const struct hth_driver *driver, struct hearth_error *err)
{
    struct hth_ring *ring = calloc(1, sizeof(*ring));
    int rc = HEARTH_OK;

    if (!ring)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the buffers of a GPU");
    ring->driver = driver;
    if (!(ring->memory = hth_map_memory(BUFFERS * HTH_RING_BYTES)))
        rc = hth_fail(err, HEARTH_ENOMEM, errno, "no memory for the buffers of a GPU");
    for (unsigned i = 0; i < BUFFERS && !rc; i++)
        rc = driver->event_open(&ring->buffer[i].event, err);
    if (rc) {
        hth_ring_close(ring, 0);
        return rc;
    }
    memset(ring->memory, 0,
            BUFFERS * HTH_RING_BYTES); /* pages are present before they are pinned */
    ring->pinned = !driver->pin(ring->memory, BUFFERS * HTH_RING_BYTES, 0, NULL);
    *out = ring;
    return HEARTH_OK;
}

int hth_ring_has_room(const struct hth_ring *ring)
{
    return ring->filled - ring->landed < BUFFERS;
}

uint64_t hth_ring_job_next(struct hth_ring_job *job, uint64_t most, struct hth_device_copy *out)
{
    const struct hth_device_copy *whole = &job->copy[job->at];
    uint64_t bytes = hth_device_part(whole, job->off, most, UINT64_MAX, out);

    job->taken += bytes;
    job->off += bytes;
    if (job->off == hth_device_bytes(whole)) {
        job->at++;
        job->off = 0;
    }
    return bytes;
}

static void ring_cut(struct hth_ring *ring, struct hth_ring_buffer *b, struct hth_ring_job *job)
{
    unsigned char *at = ring->memory + (size_t)(b - ring->buffer) * HTH_RING_BYTES;
    uint64_t room = HTH_RING_BYTES;

    for (b->count = 0; b->count < PARTS_MOST && room && job->at < job->count; b->count++) {
        struct hth_landing *part = &b->part[b->count];
        uint64_t bytes = hth_ring_job_next(job, room, &part->of);

        part->at = at;
        ring->copy[b->count] = part->of;
        hth_device_pack(&ring->copy[b->count], at);
        at += bytes;
        room -= bytes;
    }
}

int hth_ring_take(struct hth_ring *ring, struct hth_ring_job *job, enum hth_device_way way,
        hth_land_fn *land, void *arg)
{
    struct hth_ring_buffer *b = &ring->buffer[ring->filled % BUFFERS];

    ring_cut(ring, b, job);
    b->work = job->work;
    b->way = way;
    return way == HTH_TO_DEVICE ? land(arg, way, b->part, b->count) : HEARTH_OK;
}

int hth_ring_send(struct hth_ring *ring, void *stream, struct hearth_error *err)
{
    struct hth_ring_buffer *b = &ring->buffer[ring->filled % BUFFERS];
    size_t calls, bad;
    int rc, recorded;

    rc = ring->driver->copy(stream, b->way, ring->copy, b->count, &calls, &bad, err);
    /* Where one was refused others may run, and use the buffer until the event is done. */
    recorded = ring->driver->record(b->event, stream, rc ? NULL : err);
    b->unmarked = recorded != HEARTH_OK;
    ring->filled++;
    return rc ? rc : recorded;
}

int hth_ring_is_unmarked(const struct hth_ring *ring)
{
    return ring->filled != ring->landed && ring->buffer[ring->landed % BUFFERS].unmarked;
}

int hth_ring_mark(struct hth_ring *ring, void *stream, struct hearth_error *err)
{
    struct hth_ring_buffer *b = &ring->buffer[ring->landed % BUFFERS];
    int rc = ring->driver->record(b->event, stream, err);

    b->unmarked = rc != HEARTH_OK;
    return rc;
}

int hth_ring_look(
        struct hth_ring *ring, struct hth_work **out_work, int *out_done, struct hearth_error *err)
{
    struct hth_ring_buffer *b = &ring->buffer[ring->landed % BUFFERS];

    *out_work = NULL;
    *out_done = 0;
    if (ring->filled == ring->landed)
        return HEARTH_OK;
    *out_work = b->work;
    return b->unmarked ? HEARTH_OK : ring->driver->done(b->event, out_done, err);
}

int hth_ring_land(struct hth_ring *ring, hth_land_fn *land, void *arg)
{
    struct hth_ring_buffer *b = &ring->buffer[ring->landed % BUFFERS];
    int moves = land && b->way == HTH_FROM_DEVICE;
    int rc = moves ? land(arg, b->way, b->part, b->count) : HEARTH_OK;

    ring->landed++;
    return rc;
}
