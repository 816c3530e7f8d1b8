/* SPDX-License-Identifier: Apache-2.0 */
#include "devices.h"

#include "client/base/clock.h"
#include "client/device/cut.h"
#include "client/device/device.h"
#include "copy.h"
#include "core/base/grow.h"
#include "core/format/table.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

struct hth_memory hth_memory_of(const struct hearth_piece *p)
{
    return (struct hth_memory){ .at = p->from,
        .memory = p->memory,
        .elem = hearth_dtype_bytes((enum hearth_dtype)p->dtype),
        .ndim = p->ndim,
        .shape = p->shape,
        .strides = p->strides,
        .key = p->key,
        .key_len = p->key_len };
}

void hth_devices_find(struct hth_devices *out)
{
    out->driver = NULL;
    out->why.code = HEARTH_OK;
    if (hth_driver_find(&out->driver, &out->why))
        out->driver = NULL;
}

/* ---- whose memory it is --------------------------------------------------------------------- */

static int memory_wrong(
        const struct hth_memory *m, int code, const char *what, struct hearth_error *err)
{
    char key[HTH_KEY_TEXT];

    return hth_fail(err, code, 0, "piece %s: %s", hth_key_text(m->key, m->key_len, key), what);
}

static int devices_no_driver(
        const struct hth_devices *d, const struct hth_memory *m, struct hearth_error *err)
{
    char key[HTH_KEY_TEXT];

    if (!d->why.code)
        return memory_wrong(m, HEARTH_EINVAL,
                "its memory is HEARTH_CUDA, and this process has no CUDA or HIP driver in use",
                err);
    if (err)
        *err = d->why;
    return hth_while(err, d->why.code, "piece %s", hth_key_text(m->key, m->key_len, key));
}

/* -1: this process may not ask. */
static int byte_is_readable(uintptr_t at)
{
    unsigned char byte;
    struct iovec to = { &byte, 1 }, from = { (void *)at, 1 };

    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1)
        return 1;
    return errno == EFAULT ? 0 : -1;
}

/* 1: the processor reads its first and its last element, so it is the host's; 0: it does not; -1:
 * not known. A driver answers no question once a context is broken, nor in the child of a fork. */
static int memory_is_readable(const struct hth_memory *m)
{
    uint64_t last = 0, packed = 1;
    int first;

    for (uint32_t i = m->ndim; i-- > 0;) {
        last += (uint64_t)(m->shape[i] - 1) * (m->strides ? (uint64_t)m->strides[i] : packed);
        packed *= (uint64_t)m->shape[i];
    }
    first = byte_is_readable((uintptr_t)m->at);
    return first == 1 ? byte_is_readable((uintptr_t)m->at + last * m->elem) : first;
}

int hth_devices_at(const struct hth_devices *d, const struct hth_memory *m,
        struct hth_device_at *out, struct hearth_error *err)
{
    char key[HTH_KEY_TEXT];
    int rc;

    if (!d->driver) /* one that cannot be used may still have made the memory */
        return m->memory == HEARTH_CUDA || (d->why.code && memory_is_readable(m) == 0)
                       ? devices_no_driver(d, m, err)
                       : 0;
    if ((rc = d->driver->at(m->at, out, err))) {
        if (m->memory != HEARTH_CUDA && memory_is_readable(m) == 1)
            return 0;
        return hth_while(err, rc, "piece %s", hth_key_text(m->key, m->key_len, key));
    }
    if (out->device < 0 && m->memory == HEARTH_CUDA)
        return memory_wrong(m, HEARTH_EINVAL,
                "its memory is HEARTH_CUDA, and its data is not in GPU memory", err);
    return out->device >= 0;
}

/* ---- the first time ------------------------------------------------------------------------- */

static int devices_enter(const struct hth_devices *d, struct hearth *h,
        const struct hth_device_at *at, struct hearth_error *err)
{
    struct hth_device_facts facts = { 0 };
    struct hth_device *made;
    int rc;

    pthread_mutex_lock(&h->lock);
    made = h->device;
    pthread_mutex_unlock(&h->lock);
    if (made)
        return HEARTH_OK;
    if (!(made = calloc(1, sizeof(*made))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for copies of GPU memory");
    made->driver = d->driver;
    made->at = *at;
    made->lines = &h->lines;
    made->pin = h->opts.pin != HEARTH_PIN_NO;
    if (!d->driver->facts(at->device, &facts, NULL)) {
        made->pin_reads = facts.pin_read_only || facts.host_pages;
        made->read_only = facts.pin_read_only;
    }
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
    if (made) { /* another call of this rank was faster */
        free(made);
        hth_works_leave(hth_until_ms(0));
    }
    return HEARTH_OK;
}

int hth_devices_use(const struct hth_devices *d, struct hearth *h, const struct hth_memory *m,
        const struct hth_device_at *at, struct hth_gpu **out, struct hearth_error *err)
{
    char key[HTH_KEY_TEXT];
    int rc = devices_enter(d, h, at, err);

    if (!rc)
        rc = hth_gpu_of(out, d->driver, at, err);
    return rc ? hth_while(err, rc, "piece %s: GPU %d", hth_key_text(m->key, m->key_len, key),
                        at->device)
              : HEARTH_OK;
}

/* ---- copies --------------------------------------------------------------------------------- */

static int land_note(struct hth_copies *list, enum hth_device_way way, const struct hth_landing *l)
{
    const struct hth_device_copy *c = &l->of;
    int from = way == HTH_FROM_DEVICE;
    struct hth_strided s; /* of rows; its arrays are long, and two of each are used */
    void *dst = from ? c->host : l->at;
    const void *src = from ? l->at : c->host;

    if ((c->rows == 1 || c->host_row == c->width) &&
            (c->planes == 1 || c->host_plane == c->rows * c->width))
        return hth_copies_add(list, dst, src, hth_device_bytes(c), NULL);
    s.ndim = 2;
    s.elem = (uint32_t)c->width; /* a part is not larger than a buffer */
    s.count = c->rows * c->planes;
    s.shape[0] = (int64_t)c->planes;
    s.shape[1] = (int64_t)c->rows;
    s.dst[0] = (int64_t)(from ? c->host_plane : c->width * c->rows);
    s.dst[1] = (int64_t)(from ? c->host_row : c->width);
    s.src[0] = (int64_t)(from ? c->width * c->rows : c->host_plane);
    s.src[1] = (int64_t)(from ? c->width : c->host_row);
    return hth_copies_add(list, dst, src, hth_device_bytes(c), &s);
}

int hth_devices_land(
        void *h, enum hth_device_way way, const struct hth_landing *parts, size_t count)
{
    struct hth_copies list = { 0 };
    int rc = HEARTH_OK;

    for (size_t i = 0; i < count && !rc; i++)
        rc = land_note(&list, way, &parts[i]);
    if (!rc)
        hth_crew_run(((const struct hearth *)h)->crew, &list);
    hth_copies_fini(&list);
    return rc;
}

int hth_device_note(struct hth_device_list *list, const struct hth_memory *m, struct hth_gpu *gpu,
        const void *host, const int64_t *host_strides, struct hearth_error *err)
{
    struct hth_device_shape s; /* its arrays are long, and used as far as there are dimensions */
    struct hth_work_piece *more = NULL;

    hth_device_shape(&s, m->elem, m->ndim, m->shape, host_strides, m->strides);
    if (s.copies < SIZE_MAX - list->count)
        more = hth_grow(list->piece, &list->room, list->count + s.copies, 64, sizeof(*more));
    if (!more)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of copies");
    list->piece = more;
    for (uint64_t i = 0; i < s.copies; i++) {
        struct hth_work_piece *w = &more[list->count++];

        *w = (struct hth_work_piece){ .gpu = gpu, .key = m->key, .key_len = m->key_len };
        hth_device_shape_at(&s, i, (void *)(uintptr_t)host, (uintptr_t)m->at, &w->copy);
    }
    return HEARTH_OK;
}
