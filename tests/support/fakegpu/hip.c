/* SPDX-License-Identifier: Apache-2.0 */
/* HIP's functions, as libamdhip64.so.6 exports them: a current device in the place of contexts, and
 * a record of the last error. */
#include "client/device/hip_calls.h"
#include "inside.h"
#include <string.h>

#define FGPU_DECLARE(name, result, parameters) FGPU_API result name parameters;
HIP_CALLS(FGPU_DECLARE)
FGPU_API int hipPeekAtLastError(void);
FGPU_API int hsa_system_get_info(int what, void *out);

const char *const fgpu_usual_profile = "hip";
const int fgpu_capture_apart = HIP_CAPTURE_RELAXED;

static _Thread_local int last_error;

static int hip_noted(int rc)
{
    if (rc)
        last_error = rc;
    return rc;
}

/* The first device is current until a thread sets another one. */
static int hip_begin(const char *name, int needs)
{
    fgpu_started();
    if (!fgpu_context_now())
        fakegpu_current(fakegpu_context(0));
    return fgpu_begin(name, needs);
}

#define HIP_CALL(expression) HIP_CALL_IN(FGPU_CONTEXT, expression)
#define HIP_CALL_IN(needs, expression)        \
    do {                                      \
        int rc_ = hip_begin(__func__, needs); \
                                              \
        if (rc_)                              \
            return hip_noted(rc_);            \
        rc_ = (expression);                   \
        fgpu_end();                           \
        return hip_noted(rc_);                \
    } while (0)

/* Of the library that HIP's is linked with. */
int hsa_system_get_info(int what, void *out)
{
    uint16_t major = 1;

    if (!fgpu_is_started())
        return HSA_NOT_INITIALIZED;
    if (what == HSA_VERSION_MAJOR)
        memcpy(out, &major, sizeof(major));
    return 0;
}

int hipGetLastError(void)
{
    int rc = last_error;

    last_error = 0;
    return rc;
}

int hipPeekAtLastError(void)
{
    return last_error;
}

int hipRuntimeGetVersion(int *version)
{
    fgpu_started();
    *version = fgpu_profile()->version;
    return 0;
}

const char *hipGetErrorName(int error)
{
    switch (error) {
    case 1:
        return "hipErrorInvalidValue";
    case 700:
        return "hipErrorIllegalAddress";
    case 712:
        return "hipErrorHostMemoryAlreadyRegistered";
    case 713:
        return "hipErrorHostMemoryNotRegistered";
    default:
        return "hipErrorUnknown";
    }
}

static int count_get(int *count)
{
    *count = fgpu_devices();
    return 0;
}

int hipGetDeviceCount(int *count)
{
    HIP_CALL(count_get(count));
}

static int device_get(int *device)
{
    *device = fgpu_context_now()->device;
    return 0;
}

int hipGetDevice(int *device)
{
    HIP_CALL(device_get(device));
}

int hipSetDevice(int device)
{
    fgpu_started();
    if (device < 0 || device >= fgpu_devices())
        return hip_noted(HIP_INVALID_DEVICE);
    fakegpu_current(fakegpu_context(device));
    return 0;
}

static int pointer_get(struct hip_pointer *out, const void *p)
{
    struct fgpu_memory *m = fgpu_memory_at((uint64_t)(uintptr_t)p);

    *out = (struct hip_pointer){ 0 };
    if (!m)
        return p ? HIP_OK : HIP_INVALID_VALUE;
    out->type = m->kind == FAKEGPU_MANAGED ? HIP_MEMORY_MANAGED : HIP_MEMORY_DEVICE;
    out->managed = m->kind == FAKEGPU_MANAGED;
    out->device = m->context->device;
    return HIP_OK;
}

int hipPointerGetAttributes(struct hip_pointer *out, const void *p)
{
    HIP_CALL(pointer_get(out, p));
}

int hipHostRegister(void *base, size_t bytes, unsigned flags)
{
    HIP_CALL(fgpu_register(base, bytes, flags));
}

int hipHostUnregister(void *base)
{
    HIP_CALL(fgpu_unregister(base));
}

static int priorities_get(int *least, int *greatest)
{
    *least = 1;
    *greatest = -1;
    return 0;
}

int hipDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    HIP_CALL(priorities_get(least, greatest));
}

static int stream_create(void **stream)
{
    struct fgpu_stream *s;
    int rc = fgpu_stream_new(fgpu_context_now(), &s);

    if (!rc)
        *stream = s;
    return rc;
}

int hipStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
    (void)priority;
    if (!(flags & HIP_STREAM_NON_BLOCKING))
        fgpu_sin("guest", "a stream is created that waits for the caller's default stream");
    HIP_CALL(stream_create(stream));
}

int hipStreamDestroy(void *stream)
{
    HIP_CALL_IN(FGPU_ANY_CONTEXT, fgpu_stream_end(stream));
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

int hipStreamIsCapturing(void *stream, int *status)
{
    HIP_CALL(capture_get(stream, status));
}

int hipThreadExchangeStreamCaptureMode(int *mode)
{
    HIP_CALL_IN(FGPU_NOTHING, fgpu_capture_mode(mode));
}

int hipStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    (void)flags;
    HIP_CALL(fgpu_stream_after(stream, event));
}

int hipEventCreateWithFlags(void **event, unsigned flags)
{
    (void)flags;
    HIP_CALL(fgpu_event_new(event));
}

int hipEventDestroy(void *event)
{
    HIP_CALL_IN(FGPU_ANY_CONTEXT, fgpu_event_end(event));
}

int hipEventRecord(void *event, void *stream)
{
    HIP_CALL(fgpu_event_record(event, stream));
}

int hipEventQuery(void *event)
{
    HIP_CALL(fgpu_event_query(event));
}

static int rows_copy(void *dst, size_t dst_row, const void *src, size_t src_row, size_t width,
        size_t rows, int kind, void *stream)
{
    int to_device = kind == HIP_TO_DEVICE;
    uint64_t d = (uint64_t)(uintptr_t)dst, s = (uint64_t)(uintptr_t)src;
    struct fgpu_piece p = {
        .host = to_device ? s : d,
        .device = to_device ? d : s,
        .width = width,
        .rows = rows,
        .planes = 1,
        .host_row = to_device ? src_row : dst_row,
        .device_row = to_device ? dst_row : src_row,
        .to_device = to_device,
    };
    size_t bad;

    if (kind != HIP_TO_DEVICE && kind != HIP_TO_HOST)
        return HIP_INVALID_VALUE;
    return fgpu_copy(stream, &p, 1, &bad);
}

int hipMemcpyAsync(void *dst, const void *src, size_t bytes, int kind, void *stream)
{
    HIP_CALL(rows_copy(dst, bytes, src, bytes, bytes, 1, kind, stream));
}

int hipMemcpy2DAsync(void *dst, size_t dst_row, const void *src, size_t src_row, size_t width,
        size_t rows, int kind, void *stream)
{
    HIP_CALL(rows_copy(dst, dst_row, src, src_row, width, rows, kind, stream));
}
