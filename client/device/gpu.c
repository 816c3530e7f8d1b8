/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu.h"

#include "core/base/fail.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static struct {
    pthread_mutex_t lock; /* one at a time makes a device */
    _Atomic(struct hth_gpu *) gpu[HTH_GPUS_MOST];
} here = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct hth_gpu *hth_gpu_at(unsigned i)
{
    return i < HTH_GPUS_MOST ? atomic_load(&here.gpu[i]) : NULL;
}

static struct hth_gpu *gpu_find(const struct hth_device_at *at, unsigned *out_count)
{
    struct hth_gpu *gpu;

    for (*out_count = 0; (gpu = hth_gpu_at(*out_count)); (*out_count)++)
        if (gpu->at.device == at->device && gpu->at.context == at->context)
            return gpu;
    return NULL;
}

static int gpu_make(struct hth_gpu **out, const struct hth_driver *driver,
        const struct hth_device_at *at, struct hearth_error *err)
{
    struct hth_gpu *gpu = calloc(1, sizeof(*gpu));
    int rc;

    if (!gpu)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a GPU's stream");
    gpu->driver = driver;
    gpu->at = *at;
    if (!(rc = driver->enter(at, err))) {
        rc = driver->stream_open(&gpu->stream, err);
        driver->leave();
    }
    if (rc)
        free(gpu);
    else
        *out = gpu;
    return rc;
}

int hth_gpu_of(struct hth_gpu **out, const struct hth_driver *driver,
        const struct hth_device_at *at, struct hearth_error *err)
{
    unsigned count;
    int rc = HEARTH_OK;

    if ((*out = gpu_find(at, &count)))
        return HEARTH_OK;
    pthread_mutex_lock(&here.lock);
    if (!(*out = gpu_find(at, &count))) {
        if (count == HTH_GPUS_MOST)
            rc = hth_fail(err, HEARTH_ENOSPC, 0, "%u GPUs' contexts are used already", count);
        else if (!(rc = gpu_make(out, driver, at, err)))
            atomic_store(&here.gpu[count], *out);
    }
    pthread_mutex_unlock(&here.lock);
    return rc;
}

static int gpu_unpin(const struct hth_driver *driver, const struct hth_device_at *at, void *base)
{
    int rc = driver->enter(at, NULL);

    if (rc)
        return rc;
    rc = driver->unpin(base, NULL);
    driver->leave();
    return rc;
}

int hth_gpus_unpin(const struct hth_driver *driver, const struct hth_device_at *at, void *base)
{
    int rc = gpu_unpin(driver, at, base);
    const struct hth_gpu *gpu;

    for (unsigned i = 0; rc && (gpu = hth_gpu_at(i)); i++)
        if (gpu->driver == driver)
            rc = gpu_unpin(driver, &gpu->at, base);
    return rc;
}

int hth_gpu_copy(struct hth_gpu *gpu, enum hth_device_way way, void *event,
        const struct hth_device_copy *copies, size_t count, size_t *out_bad, int *out_unmarked,
        struct hearth_error *err)
{
    int rc, marked;
    size_t calls;

    *out_bad = 0;
    *out_unmarked = 0;
    if ((rc = gpu->driver->enter(&gpu->at, err)))
        return rc;
    rc = gpu->driver->copy(gpu->stream, way, copies, count, &calls, out_bad, err);
    marked = gpu->driver->record(event, gpu->stream, rc ? NULL : err);
    gpu->driver->leave();
    *out_unmarked = marked != HEARTH_OK;
    return rc ? rc : marked;
}

static void gpu_close(struct hth_gpu *gpu, int keep)
{
    int entered = !gpu->driver->enter(&gpu->at, NULL);

    hth_ring_close(gpu->ring, keep);
    gpu->driver->stream_close(gpu->stream);
    if (entered)
        gpu->driver->leave();
    free(gpu);
}

void hth_gpus_close(void)
{
    int keep[HTH_GPUS_MOST] = { 0 };
    struct hth_gpu *gpu;

    for (unsigned i = 0; (gpu = hth_gpu_at(i)); i++) {
        void *pinned = hth_ring_pinned(gpu->ring);

        keep[i] = pinned && hth_gpus_unpin(gpu->driver, &gpu->at, pinned);
    }
    for (unsigned i = 0; (gpu = hth_gpu_at(i)); i++) {
        atomic_store(&here.gpu[i], NULL);
        gpu_close(gpu, keep[i]);
    }
}
