/* SPDX-License-Identifier: Apache-2.0 */
#include "from_device.h"

#include "client/base/clock.h"
#include "client/device/device.h"
#include "save.h"
#include <stdlib.h>

/* What the device thread needs of a save that its caller may be done with. */
struct hth_from {
    struct hearth *h;
    struct hearth_handle *handle;
    struct hth_work *work;
    struct hth_slot_map *slot[HTH_OBJECTS_MAX]; /* held; NULL: the object has nothing of a GPU's */
};

void hth_from_begin(struct hearth_save *s)
{
    hth_devices_find(&s->scratch.from.devices);
}

int hth_from_where(struct hearth_save *s, const struct hth_laid *laid, struct hth_device_at *out,
        struct hearth_error *err)
{
    struct hth_memory m = hth_memory_of(laid->piece);

    return laid->payload ? hth_devices_at(&s->scratch.from.devices, &m, out, err) : 0;
}

/* By the thread that makes the rings. */
static uint32_t from_pinned(const struct hth_device *d)
{
    unsigned slots = atomic_load(&d->slots_pinned);
    uint32_t how = HTH_LOCAL_PINNED_RING;
    const struct hth_gpu *gpu;

    if (slots)
        return HTH_LOCAL_PINNED_SLOTS | (slots - 1) << 2;
    for (unsigned i = 0; (gpu = hth_gpu_at(i)); i++)
        if (gpu->ring && !hth_ring_pinned(gpu->ring))
            how = HTH_LOCAL_PINNED_NOT;
    return how;
}

static void from_done(void *arg, const struct hearth_error *err)
{
    struct hth_from *from = arg;

    /* First: once the engine hears that they are written, it may lend them to this rank again. */
    for (unsigned i = 0; i < HTH_OBJECTS_MAX; i++)
        hth_slot_put(from->h, from->slot[i]);
    hth_handle_copied(from->handle, from_pinned(from->h->device), err);
    hth_slots_let_go(from->h);
    free(from);
}

static int from_open(struct hearth_save *s, struct hearth_error *err)
{
    struct hth_work_owner owner = {
        .owner = s->h, .mib_s = s->h->opts.copy_mib_s, .land = hth_devices_land, .done = from_done
    };
    struct hth_from *from;
    int rc;

    if (s->from)
        return HEARTH_OK;
    if (!(from = calloc(1, sizeof(*from))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for copies of GPU memory");
    from->h = s->h;
    from->handle = s->handle;
    owner.arg = from;
    if ((rc = hth_work_open(&from->work, &owner, err))) {
        free(from);
        return rc;
    }
    hth_handle_copies(s->handle, from->work);
    s->from = from;
    return HEARTH_OK;
}

/* ---- pieces --------------------------------------------------------------------------------- */

int hth_from_note(struct hearth_save *s, const struct hth_laid *laid,
        const struct hth_device_at *at, void *dst, struct hearth_error *err)
{
    struct hth_from_list *list = &s->scratch.from;
    struct hth_memory m = hth_memory_of(laid->piece);
    struct hth_gpu *gpu;
    int rc = hth_devices_use(&list->devices, s->h, &m, at, &gpu, err);

    return rc ? rc : hth_device_note(&list->noted, &m, gpu, dst, NULL, err);
}

int hth_from_run(struct hearth_save *s, struct hearth_error *err)
{
    struct hth_device_list *list = &s->scratch.from.noted;
    struct hth_slot_map *slot = hth_save_open_object(s)->slot;
    uint32_t index = s->objects - 1;
    int rc;

    if (!list->count)
        return HEARTH_OK;
    if ((rc = from_open(s, err)))
        return rc;
    if (!s->from->slot[index]) {
        hth_slot_hold(s->h, slot);
        s->from->slot[index] = slot;
    }
    hth_slot_pin(s->h, slot);
    for (size_t i = 0; i < list->count; i++)
        list->piece[i].pin = slot->pin;
    return hth_work_add(s->from->work, s->stream, list->piece, list->count, err);
}

void hth_from_clear(struct hearth_save *s)
{
    s->scratch.from.noted.count = 0;
}

void hth_from_list_fini(struct hth_from_list *list)
{
    free(list->noted.piece);
}

/* ---- the end -------------------------------------------------------------------------------- */

void hth_from_end(struct hearth_save *s, int dropped)
{
    if (s->from)
        hth_work_end(s->from->work, dropped); /* from is the thread's */
    s->from = NULL;
}

int hth_from_wait(struct hearth_save *s, uint64_t wait_ms, struct hearth_error *err)
{
    return s->from ? hth_work_fence(s->from->work, NULL, hth_until_ms(wait_ms), err) : HEARTH_OK;
}
