/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's functions, as libcuda.so.1 exports them. */
#include "cuda.h"
#include "inside.h"

#include <stdlib.h>
#include <string.h>

const char *const fgpu_usual_profile = "recent";
const int fgpu_capture_apart = CU_CAPTURE_THREAD_LOCAL;

int cuInit(unsigned flags)
{
    (void)flags;
    fgpu_started();
    return fgpu_profile()->no_device ? CU_NO_DEVICE : fgpu_profile()->version_code;
}

/* Works before cuInit(). */
int cuDriverGetVersion(int *version)
{
    *version = fgpu_profile()->version;
    return fgpu_profile()->version_code;
}

int cuGetErrorName(int error, const char **name)
{
    static const struct {
        int error;
        const char *name;
    } names[] = {
        { CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE" },
        { CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY" },
        { CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED" },
        { CU_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY" },
        { CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE" },
        { CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT" },
        { CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE" },
        { CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS" },
        { CU_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" },
        { CU_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED" },
        { CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED" },
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].error == error) {
            *name = names[i].name;
            return CU_OK;
        }
    *name = NULL;
    return CU_INVALID_VALUE;
}

static int devices_get(int *count)
{
    *count = fgpu_devices();
    return CU_OK;
}

int cuDeviceGetCount(int *count)
{
    FGPU_CALL("cuDeviceGetCount", FGPU_NOTHING, devices_get(count));
}

static int attribute_get(int *value, int attribute, int device)
{
    if (device < 0 || device >= fgpu_devices())
        return CU_INVALID_DEVICE;
    if (attribute == CU_DEVICE_READ_ONLY_REGISTER && fgpu_profile()->version < 11010)
        return CU_INVALID_VALUE;
    *value = attribute == CU_DEVICE_READ_ONLY_REGISTER ? fgpu_profile()->read_only
             : attribute == CU_DEVICE_HOST_PAGE_TABLES ? fgpu_profile()->host_pages
                                                       : 0;
    return CU_OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    FGPU_CALL("cuDeviceGetAttribute", FGPU_NOTHING, attribute_get(value, attribute, device));
}

/* Of an unknown pointer the attributes are empty. */
static int pointer_get(unsigned number, const int *attributes, void **data, uint64_t at)
{
    struct fgpu_memory *m = fgpu_memory_at(at);

    for (unsigned i = 0; i < number; i++)
        switch (attributes[i]) {
        case CU_POINTER_CONTEXT:
            *(void **)data[i] = m && m->kind != FAKEGPU_MAPPED ? m->context : NULL;
            break;
        case CU_POINTER_TYPE:
            *(unsigned *)data[i] = !m                           ? 0
                                   : m->kind == FAKEGPU_MANAGED ? CU_MEMORY_HOST
                                                                : CU_MEMORY_DEVICE;
            break;
        case CU_POINTER_MANAGED: /* one byte */
            *(unsigned char *)data[i] = m && m->kind == FAKEGPU_MANAGED;
            break;
        case CU_POINTER_DEVICE:
            *(int *)data[i] = m ? m->context->device : -2;
            break;
        default:
            return CU_INVALID_VALUE;
        }
    return CU_OK;
}

int cuPointerGetAttributes(unsigned number, int *attributes, void **data, uint64_t at)
{
    FGPU_CALL("cuPointerGetAttributes", FGPU_NOTHING, pointer_get(number, attributes, data, at));
}

/* ---- contexts ---- */

static int current_get(void **context)
{
    *context = fgpu_context_now();
    return CU_OK;
}

int cuCtxGetCurrent(void **context)
{
    FGPU_CALL("cuCtxGetCurrent", FGPU_NOTHING, current_get(context));
}

static int current_device(int *device)
{
    *device = fgpu_context_now()->device;
    return CU_OK;
}

int cuCtxGetDevice(int *device)
{
    FGPU_CALL("cuCtxGetDevice", FGPU_CONTEXT, current_device(device));
}

int cuCtxPushCurrent_v2(void *context)
{
    FGPU_CALL("cuCtxPushCurrent_v2", FGPU_NOTHING, fgpu_push(context));
}

int cuCtxPopCurrent_v2(void **context)
{
    FGPU_CALL("cuCtxPopCurrent_v2", FGPU_NOTHING, fgpu_pop(context));
}

static int priorities_get(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return CU_OK;
}

int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    FGPU_CALL("cuCtxGetStreamPriorityRange", FGPU_CONTEXT, priorities_get(least, greatest));
}

static int primary_state(int device, unsigned *flags, int *active)
{
    if (device < 0 || device >= fgpu_devices())
        return CU_INVALID_DEVICE;
    *flags = 0;
    *active = fgpu_primary(device)->active;
    return CU_OK;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    FGPU_CALL("cuDevicePrimaryCtxGetState", FGPU_NOTHING, primary_state(device, flags, active));
}

static int primary_retain(void **context, int device)
{
    if (device < 0 || device >= fgpu_devices())
        return CU_INVALID_DEVICE;
    if (!fgpu_primary(device)->active)
        fgpu_sin("guest", "the primary context of device %d is created", device);
    *context = fgpu_primary(device);
    return CU_OK;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    FGPU_CALL("cuDevicePrimaryCtxRetain", FGPU_NOTHING, primary_retain(context, device));
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    FGPU_CALL("cuDevicePrimaryCtxRelease_v2", FGPU_NOTHING, CU_OK);
}

/* What a guest in the caller's process leaves alone. */
#define FGPU_FORBIDDEN(name)                      \
    FGPU_API int name(void);                      \
    int name(void)                                \
    {                                             \
        fgpu_sin("guest", "%s is called", #name); \
        return CU_NOT_SUPPORTED;                  \
    }

FGPU_FORBIDDEN(cuCtxCreate_v2)
FGPU_FORBIDDEN(cuCtxCreate_v4)
FGPU_FORBIDDEN(cuCtxSetFlags)
FGPU_FORBIDDEN(cuCtxSynchronize)
FGPU_FORBIDDEN(cuDevicePrimaryCtxSetFlags_v2)
FGPU_FORBIDDEN(cuDevicePrimaryCtxReset_v2)

/* Of the thread. */
int cuThreadExchangeStreamCaptureMode(int *mode)
{
    FGPU_CALL("cuThreadExchangeStreamCaptureMode", FGPU_NOTHING, fgpu_capture_mode(mode));
}

/* ---- registered memory, streams, events ---- */

int cuMemHostRegister_v2(void *base, size_t bytes, unsigned flags)
{
    FGPU_CALL("cuMemHostRegister_v2", FGPU_CONTEXT, fgpu_register(base, bytes, flags));
}

int cuMemHostUnregister(void *base)
{
    FGPU_CALL("cuMemHostUnregister", FGPU_CONTEXT, fgpu_unregister(base));
}

static int stream_create(void **stream, unsigned flags)
{
    struct fgpu_stream *s;
    int rc = fgpu_stream_new(fgpu_context_now(), &s);

    if (!(flags & CU_STREAM_NON_BLOCKING))
        fgpu_sin("guest", "a stream is created that waits for the caller's default stream");
    if (!rc)
        *stream = s;
    return rc;
}

int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
    (void)priority;
    FGPU_CALL("cuStreamCreateWithPriority", FGPU_CONTEXT, stream_create(stream, flags));
}

int cuStreamDestroy_v2(void *stream)
{
    FGPU_CALL("cuStreamDestroy_v2", FGPU_ANY_CONTEXT, fgpu_stream_end(stream));
}

static int capture_get(void *stream, int *status)
{
    struct fgpu_stream *s;
    int rc = fgpu_stream_of(stream, &s);

    if (!rc && !stream && fgpu_captures(fgpu_context_now()))
        return CU_CAPTURE_IMPLICIT;
    if (!rc)
        *status = fgpu_capture_of(s);
    return rc;
}

int cuStreamIsCapturing(void *stream, int *status)
{
    FGPU_CALL("cuStreamIsCapturing", FGPU_CONTEXT, capture_get(stream, status));
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    (void)flags;
    FGPU_CALL("cuStreamWaitEvent", FGPU_CONTEXT, fgpu_stream_after(stream, event));
}

int cuEventCreate(void **event, unsigned flags)
{
    (void)flags;
    FGPU_CALL("cuEventCreate", FGPU_CONTEXT, fgpu_event_new(event));
}

int cuEventDestroy_v2(void *event)
{
    FGPU_CALL("cuEventDestroy_v2", FGPU_ANY_CONTEXT, fgpu_event_end(event));
}

int cuEventRecord(void *event, void *stream)
{
    FGPU_CALL("cuEventRecord", FGPU_CONTEXT, fgpu_event_record(event, stream));
}

int cuEventQuery(void *event)
{
    FGPU_CALL("cuEventQuery", FGPU_NOTHING, fgpu_event_query(event));
}

/* ---- copies ---- */

static int run_copy(uint64_t host, uint64_t device, size_t bytes, int to_device, void *stream)
{
    struct fgpu_piece p = {
        .host = host,
        .device = device,
        .width = bytes,
        .rows = 1,
        .planes = 1,
        .to_device = to_device,
    };
    size_t bad;

    return fgpu_copy(stream, &p, 1, &bad);
}

int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, void *stream)
{
    FGPU_CALL("cuMemcpyDtoHAsync_v2", FGPU_CONTEXT,
            run_copy((uint64_t)(uintptr_t)dst, src, bytes, 0, stream));
}

int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, void *stream)
{
    FGPU_CALL("cuMemcpyHtoDAsync_v2", FGPU_CONTEXT,
            run_copy((uint64_t)(uintptr_t)src, dst, bytes, 1, stream));
}

static int space_copy(const struct cu_copy_3d *c, void *stream)
{
    int to_device = c->dst.type == CU_MEMORY_DEVICE;
    const struct cu_place_3d *d = to_device ? &c->dst : &c->src;
    const struct cu_place_3d *h = to_device ? &c->src : &c->dst;
    struct fgpu_piece p = {
        .host = (uint64_t)(uintptr_t)h->host + (h->z * h->height + h->y) * h->pitch + h->x,
        .device = d->device + (d->z * d->height + d->y) * d->pitch + d->x,
        .width = c->width,
        .rows = c->height,
        .planes = c->depth,
        .host_row = h->pitch,
        .host_plane = h->pitch * h->height,
        .device_row = d->pitch,
        .device_plane = d->pitch * d->height,
        .to_device = to_device,
    };
    size_t bad;

    if (h->type != CU_MEMORY_HOST || d->type != CU_MEMORY_DEVICE)
        return CU_INVALID_VALUE;
    if (c->depth > 1 && (h->height < c->height || d->height < c->height))
        return CU_INVALID_VALUE;
    return fgpu_copy(stream, &p, 1, &bad);
}

static struct cu_place_3d flat_place(const struct cu_place *p)
{
    return (struct cu_place_3d){
        .x = p->x,
        .y = p->y,
        .type = p->type,
        .host = p->host,
        .device = p->device,
        .pitch = p->pitch,
    };
}

static int plane_copy(const struct cu_copy_2d *c, void *stream)
{
    struct cu_copy_3d all = {
        .src = flat_place(&c->src),
        .dst = flat_place(&c->dst),
        .width = c->width,
        .height = c->height,
        .depth = 1,
    };

    return space_copy(&all, stream);
}

int cuMemcpy2DAsync_v2(const struct cu_copy_2d *copy, void *stream)
{
    FGPU_CALL("cuMemcpy2DAsync_v2", FGPU_CONTEXT, plane_copy(copy, stream));
}

int cuMemcpy3DAsync_v2(const struct cu_copy_3d *copy, void *stream)
{
    FGPU_CALL("cuMemcpy3DAsync_v2", FGPU_CONTEXT, space_copy(copy, stream));
}

/* `least`: of fgpu_profile.batch. Not for default streams, one set of attributes in order. */
static int batch_copy(int least, const uint64_t *dst, const uint64_t *src, const size_t *bytes,
        size_t count, const struct cu_copy_attributes *a, const size_t *first, size_t number,
        size_t *bad, void *stream)
{
    struct fgpu_piece *p;
    int rc;

    *bad = SIZE_MAX;
    if (fgpu_profile()->batch < least) {
        fgpu_sin("version", "the driver of this profile has no such batch");
        return CU_NOT_SUPPORTED;
    }
    if ((uintptr_t)stream <= 2 || !count || number != 1 || first[0] || a->order < 1 || a->order > 3)
        return CU_INVALID_VALUE;
    p = calloc(count, sizeof(*p));
    if (!p)
        return CU_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        p[i].to_device = fgpu_memory_at(dst[i]) != NULL;
        p[i].host = p[i].to_device ? src[i] : dst[i];
        p[i].device = p[i].to_device ? dst[i] : src[i];
        p[i].width = bytes[i];
        p[i].rows = p[i].planes = 1;
    }
    rc = fgpu_copy(stream, p, count, bad);
    free(p);
    return rc;
}

int cuMemcpyBatchAsync(uint64_t *dst, uint64_t *src, size_t *bytes, size_t count,
        struct cu_copy_attributes *attributes, size_t *first, size_t number, size_t *bad,
        void *stream)
{
    FGPU_CALL("cuMemcpyBatchAsync", FGPU_CONTEXT,
            batch_copy(1, dst, src, bytes, count, attributes, first, number, bad, stream));
}

int cuMemcpyBatchAsync_v2(uint64_t *dst, uint64_t *src, size_t *bytes, size_t count,
        struct cu_copy_attributes *attributes, size_t *first, size_t number, void *stream)
{
    size_t bad;

    FGPU_CALL("cuMemcpyBatchAsync_v2", FGPU_CONTEXT,
            batch_copy(2, dst, src, bytes, count, attributes, first, number, &bad, stream));
}
