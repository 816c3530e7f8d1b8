/* SPDX-License-Identifier: Apache-2.0 */
#include "from_device.h"

#include "client/base/clock.h"
#include "client/device/cut.h"
#include "client/device/device.h"
#include "client/device/pin.h"
#include "client/device/work.h"
#include "core/base/grow.h"
#include "save.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

/* What the device thread needs of a save that its caller may be done with. */
struct hth_from {
    struct hearth *h;
    struct hearth_handle *handle;
    struct hth_work *work;
    struct hth_slot_map *slot[HTH_OBJECTS_MAX]; /* held; NULL: the object has nothing of a GPU's */
};

void hth_from_begin(struct hearth_save *s)
{
    struct hth_from_list *list = &s->scratch.from;

    list->driver = NULL;
    list->why.code = HEARTH_OK;
    if (hth_driver_find(&list->driver, &list->why))
        list->driver = NULL;
}

static int from_wrong(
        const struct hearth_piece *p, int code, const char *what, struct hearth_error *err)
{
    char key[HTH_KEY_TEXT];

    return hth_fail(err, code, 0, "piece %s: %s", hth_key_text(p->key, p->key_len, key), what);
}

static int from_no_driver(
        const struct hth_from_list *list, const struct hearth_piece *p, struct hearth_error *err)
{
    char key[HTH_KEY_TEXT];

    if (!list->why.code)
        return from_wrong(p, HEARTH_EINVAL,
                "its memory is HEARTH_CUDA, and this process has no CUDA or HIP driver in use",
                err);
    if (err)
        *err = list->why;
    return hth_while(err, list->why.code, "piece %s", hth_key_text(p->key, p->key_len, key));
}

/* -1: this process may not ask. */
static int from_byte_is_readable(uintptr_t at)
{
    unsigned char byte;
    struct iovec to = { &byte, 1 }, from = { (void *)at, 1 };

    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1)
        return 1;
    return errno == EFAULT ? 0 : -1;
}

/* 1: the processor reads its first and its last element, so it is the host's; 0: it does not; -1:
 * not known. A driver answers no question once a context is broken, nor in the child of a fork. */
static int from_is_readable(const struct hth_laid *laid)
{
    const struct hearth_piece *p = laid->piece;
    uint64_t elem = hearth_dtype_bytes((enum hearth_dtype)p->dtype);
    uint64_t last = p->strides ? 0 : laid->payload - elem;
    int first;

    for (uint32_t i = 0; p->strides && i < p->ndim; i++)
        last += (uint64_t)(p->shape[i] - 1) * (uint64_t)p->strides[i] * elem;
    first = from_byte_is_readable((uintptr_t)p->from);
    return first == 1 ? from_byte_is_readable((uintptr_t)p->from + last) : first;
}

int hth_from_where(struct hearth_save *s, const struct hth_laid *laid, struct hth_device_at *out,
        struct hearth_error *err)
{
    const struct hth_from_list *list = &s->scratch.from;
    const struct hearth_piece *p = laid->piece;
    char key[HTH_KEY_TEXT];
    int rc;

    if (!laid->payload)
        return 0;
    if (!list->driver) /* one that cannot be used may still have made the memory */
        return p->memory == HEARTH_CUDA || (list->why.code && from_is_readable(laid) == 0)
                       ? from_no_driver(list, p, err)
                       : 0;
    if ((rc = list->driver->at(p->from, out, err))) {
        if (p->memory != HEARTH_CUDA && from_is_readable(laid) == 1)
            return 0;
        return hth_while(err, rc, "piece %s", hth_key_text(p->key, p->key_len, key));
    }
    if (out->device < 0 && p->memory == HEARTH_CUDA)
        return from_wrong(p, HEARTH_EINVAL,
                "its memory is HEARTH_CUDA, and its data is not in GPU memory", err);
    return out->device >= 0;
}

/* ---- the first time ------------------------------------------------------------------------- */

static int from_device_open(
        struct hearth_save *s, const struct hth_device_at *at, struct hearth_error *err)
{
    struct hearth *h = s->h;
    struct hth_device *made;
    int rc;

    pthread_mutex_lock(&h->lock);
    made = h->device;
    pthread_mutex_unlock(&h->lock);
    if (made)
        return HEARTH_OK;
    if (!(made = calloc(1, sizeof(*made))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for copies from GPUs");
    made->driver = s->scratch.from.driver;
    made->at = *at;
    made->lines = &h->lines;
    made->pin = h->opts.pin != HEARTH_PIN_NO;
    if ((rc = hth_works_enter(err))) {
        free(made);
        return rc;
    }
    pthread_mutex_lock(&h->lock);
    if (!h->device) {
        h->device = made;
        made = NULL;
    }
    pthread_mutex_unlock(&h->lock);
    if (made) { /* another save of this rank was faster */
        free(made);
        hth_works_leave(hth_until_ms(0));
    }
    return HEARTH_OK;
}

static int from_land(void *owner, const struct hth_landing *parts, size_t count)
{
    const struct hearth *h = owner;
    struct hth_copies list = { 0 };
    int rc = HEARTH_OK;

    for (size_t i = 0; i < count && !rc; i++)
        rc = hth_copies_add(&list, parts[i].dst, parts[i].src, parts[i].bytes, NULL);
    if (!rc)
        hth_crew_run(h->crew, &list);
    hth_copies_fini(&list);
    return rc;
}

static void from_done(void *arg, const struct hearth_error *err)
{
    struct hth_from *from = arg;

    /* First: once the engine hears that they are written, it may lend them to this rank again. */
    for (unsigned i = 0; i < HTH_OBJECTS_MAX; i++)
        hth_slot_put(from->h, from->slot[i]);
    hth_handle_copied(from->handle, err);
    hth_slots_let_go(from->h);
    free(from);
}

static int from_open(struct hearth_save *s, struct hearth_error *err)
{
    struct hth_work_owner owner = {
        .owner = s->h, .mib_s = s->h->opts.copy_mib_s, .land = from_land, .done = from_done
    };
    struct hth_from *from;
    int rc;

    if (s->from)
        return HEARTH_OK;
    if (!(from = calloc(1, sizeof(*from))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for copies from GPUs");
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
    const struct hearth_piece *p = laid->piece;
    struct hth_work_piece *more, *w;
    int rc;

    more = hth_grow(list->piece, &list->room, list->count + 1, 64, sizeof(*more));
    if (!more)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of copies");
    list->piece = more;
    w = &more[list->count];
    *w = (struct hth_work_piece){ .key = p->key, .key_len = p->key_len };
    if (hth_device_shape(&w->copy, hearth_dtype_bytes((enum hearth_dtype)p->dtype), p->ndim,
                p->shape, p->strides))
        return from_wrong(p, HEARTH_EUNSUPPORTED,
                "the GPU's copy engine takes up to three dimensions of strides, and elements that "
                "neither overlap nor lie backwards: make it contiguous() first",
                err);
    if ((rc = from_device_open(s, at, err)) || (rc = hth_gpu_of(&w->gpu, list->driver, at, err)))
        return rc;
    w->copy.host = dst;
    w->copy.device = (uintptr_t)p->from;
    list->count++;
    return HEARTH_OK;
}

int hth_from_run(struct hearth_save *s, struct hearth_error *err)
{
    struct hth_from_list *list = &s->scratch.from;
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
    s->scratch.from.count = 0;
}

void hth_from_list_fini(struct hth_from_list *list)
{
    free(list->piece);
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
