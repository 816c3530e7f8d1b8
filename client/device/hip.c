/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HIP as a table, from ROCm 6.0 on, whose numbers are CUDA's. HIP has a current device in the place
 * of contexts, and keeps the last error for the thread's next question: an error of ours is cleared
 * again. Slots are not pinned: drivers refuse large registrations (256 GB on an MI325X), and
 * AMD warns of them; the ring's buffers are.
 */
#include "client/device/advice.h"
#include "client/device/driver.h"
#include "client/device/hip_calls.h"

#include "core/base/fail.h"
#include <dlfcn.h>
#include <string.h>

#include "client/device/fold.h"

#define LEAST    60000000             /* the numbers of kinds of memory changed there */
#define PIN_MOST (UINT64_C(64) << 20) /* of one call; buffers of a ring */
#define DEEP     8                    /* enter() within enter() */

/* All of them, once the driver was found. */
static struct {
#define HIP_FIELD(name, result, parameters) result(*name) parameters;
    HIP_CALLS(HIP_FIELD)
#undef HIP_FIELD
} hip;

/* The devices to go back to. */
static _Thread_local int hip_before[DEEP];
static _Thread_local int hip_depth;

static int hip_fail(struct hearth_error *err, const char *call, int rc)
{
    hip.hipGetLastError();
    return hth_device_fail(err, call, rc, hip.hipGetErrorName(rc));
}

#define HIP(err, name, ...) hip_done(err, #name, hip.name(__VA_ARGS__))

static int hip_done(struct hearth_error *err, const char *call, int rc)
{
    return rc == HIP_OK ? HEARTH_OK : hip_fail(err, call, rc);
}

/* As cuda_aside(). ROCm of older versions lets a thread query events beside captures of others in
 * the relaxed mode alone. */
static int hip_aside(void)
{
    int mode = HIP_CAPTURE_RELAXED;

    return hip_done(NULL, "hipThreadExchangeStreamCaptureMode",
                   hip.hipThreadExchangeStreamCaptureMode(&mode))
                   ? -1
                   : mode;
}

static void hip_aside_end(int mode)
{
    if (mode >= 0)
        hip.hipThreadExchangeStreamCaptureMode(&mode);
}

/* ---- memory and devices ---- */

static int hip_at(const void *p, struct hth_device_at *out, struct hearth_error *err)
{
    struct hip_pointer what = { 0 };
    int rc = hip.hipPointerGetAttributes(&what, p);

    if (rc == HIP_INVALID_VALUE) {
        hip.hipGetLastError();
        what.type = HIP_MEMORY_UNREGISTERED;
    } else if (rc != HIP_OK) {
        return hip_fail(err, "hipPointerGetAttributes", rc);
    }
    out->context = NULL;
    out->device = -1;
    if (what.type == HIP_MEMORY_DEVICE || what.type == HIP_MEMORY_MANAGED || what.managed)
        out->device = what.device;
    return HEARTH_OK;
}

static int hip_facts(int device, struct hth_device_facts *out, struct hearth_error *err)
{
    int count = 0;
    int rc = HIP(err, hipGetDeviceCount, &count);

    if (rc)
        return rc;
    if (device < 0 || device >= count)
        return hip_fail(err, "hipGetDeviceCount", HIP_INVALID_DEVICE);
    *out = (struct hth_device_facts){ 0 };
    return HEARTH_OK;
}

static int hip_enter(const struct hth_device_at *at, struct hearth_error *err)
{
    int rc;

    if (hip_depth == DEEP)
        return hth_fail(err, HEARTH_ESTATE, 0, "%d devices are entered and not left", DEEP);
    rc = HIP(err, hipGetDevice, &hip_before[hip_depth]);
    if (rc == HEARTH_OK)
        rc = HIP(err, hipSetDevice, at->device);
    if (rc == HEARTH_OK)
        hip_depth++;
    return rc;
}

static void hip_leave(void)
{
    if (hip_depth)
        hip_done(NULL, "hipSetDevice", hip.hipSetDevice(hip_before[--hip_depth]));
}

static int hip_may_use(void *stream, struct hearth_error *err)
{
    int status = 0;
    int rc = HIP(err, hipStreamIsCapturing, stream, &status);

    if (rc == HEARTH_OK && status)
        rc = hth_device_fail(err, "hipStreamIsCapturing", HIP_CAPTURE_UNSUPPORTED,
                "hipErrorStreamCaptureUnsupported");
    return rc;
}

static int hip_pin(void *base, uint64_t bytes, int read_only, struct hearth_error *err)
{
    int rc, mode;

    if (bytes > PIN_MOST)
        return hth_fail(err, HEARTH_EINVAL, 0, "at most %" PRIu64 " bytes are pinned in one call",
                (uint64_t)PIN_MOST);
    if (read_only)
        return hth_device_fail(err, "hipHostRegister", HIP_NOT_SUPPORTED, "hipErrorNotSupported");
    mode = hip_aside();
    rc = HIP(err, hipHostRegister, base, bytes, HIP_REGISTER_PORTABLE);
    hip_aside_end(mode);
    return rc ? hth_while(err, rc, "pin %" PRIu64 " bytes", bytes) : HEARTH_OK;
}

static int hip_unpin(void *base, struct hearth_error *err)
{
    int mode = hip_aside();
    int rc = HIP(err, hipHostUnregister, base);

    hip_aside_end(mode);
    return rc;
}

/* ---- streams and events ---- */

static int hip_stream_open(void **out, struct hearth_error *err)
{
    int least = 0, greatest = 0;
    int rc = HIP(err, hipDeviceGetStreamPriorityRange, &least, &greatest);

    if (rc)
        return rc;
    return HIP(err, hipStreamCreateWithPriority, out, HIP_STREAM_NON_BLOCKING, least);
}

static void hip_stream_close(void *stream)
{
    hip_done(NULL, "hipStreamDestroy", hip.hipStreamDestroy(stream));
}

static int hip_event_open(void **out, struct hearth_error *err)
{
    return HIP(err, hipEventCreateWithFlags, out, HIP_EVENT_DISABLE_TIMING);
}

static void hip_event_close(void *event)
{
    hip_done(NULL, "hipEventDestroy", hip.hipEventDestroy(event));
}

static int hip_record(void *event, void *stream, struct hearth_error *err)
{
    return HIP(err, hipEventRecord, event, stream);
}

static int hip_after(void *stream, void *event, struct hearth_error *err)
{
    return HIP(err, hipStreamWaitEvent, stream, event, 0);
}

static int hip_event_done(void *event, int *out_done, struct hearth_error *err)
{
    int mode = hip_aside();
    int rc = hip.hipEventQuery(event);

    hip_aside_end(mode);
    if (rc != HIP_OK && rc != HIP_NOT_READY)
        return hip_fail(err, "hipEventQuery", rc);
    if (rc == HIP_NOT_READY)
        hip.hipGetLastError();
    *out_done = rc == HIP_OK;
    return HEARTH_OK;
}

/* ---- copies ---- */

static int hip_run(void *stream, enum hth_device_way way, const struct hth_device_copy *c,
        struct hearth_error *err)
{
    void *device = (void *)(uintptr_t)c->device;

    if (way == HTH_FROM_DEVICE)
        return HIP(err, hipMemcpyAsync, c->host, device, c->width, HIP_TO_HOST, stream);
    return HIP(err, hipMemcpyAsync, device, c->host, c->width, HIP_TO_DEVICE, stream);
}

static int hip_rows(void *stream, enum hth_device_way way, const struct hth_device_copy *c,
        struct hearth_error *err)
{
    void *device = (void *)(uintptr_t)c->device;

    if (way == HTH_FROM_DEVICE)
        return HIP(err, hipMemcpy2DAsync, c->host, c->host_row, device, c->device_row, c->width,
                c->rows, HIP_TO_HOST, stream);
    return HIP(err, hipMemcpy2DAsync, device, c->device_row, c->host, c->host_row, c->width,
            c->rows, HIP_TO_DEVICE, stream);
}

static int hip_copy_one(void *stream, enum hth_device_way way, struct hth_device_copy c,
        size_t *calls, struct hearth_error *err)
{
    int rows, rc = HEARTH_OK;

    hth_copy_fold(&c, HIP_MAX_PITCH, &rows);
    if (!c.width)
        return HEARTH_OK;
    for (uint64_t p = 0; rc == HEARTH_OK && p < c.planes; p++) {
        struct hth_device_copy plane = hth_copy_plane(&c, p);

        if (rows && c.rows > 1) {
            *calls += 1;
            rc = hip_rows(stream, way, &plane, err);
            continue;
        }
        for (uint64_t r = 0; rc == HEARTH_OK && r < c.rows; r++) {
            struct hth_device_copy row = hth_copy_row(&plane, r);

            *calls += 1;
            rc = hip_run(stream, way, &row, err);
        }
    }
    return rc;
}

static int hip_copy(void *stream, enum hth_device_way way, const struct hth_device_copy *copies,
        size_t count, size_t *out_calls, size_t *out_bad, struct hearth_error *err)
{
    int rc = HEARTH_OK;

    *out_calls = *out_bad = 0;
    for (size_t i = 0; rc == HEARTH_OK && i < count; i++) {
        *out_bad = i;
        rc = hip_copy_one(stream, way, copies[i], out_calls, err);
    }
    return rc;
}

/* ---- the table ---- */

static int hip_symbols(void *library, struct hearth_error *err)
{
    struct {
        const char *name;
        void *at;
    } all[] = {
#define HIP_SYMBOL(name, result, parameters) { #name, (void *)&hip.name },
        HIP_CALLS(HIP_SYMBOL)
#undef HIP_SYMBOL
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        void *found = dlsym(library, all[i].name);

        if (!found)
            return hth_fail(err, HEARTH_EUNSUPPORTED, 0, "libamdhip64.so has no %s", all[i].name);
        memcpy(all[i].at, &found, sizeof(found));
    }
    return HEARTH_OK;
}

/* 1: the process has HIP loaded and makes no use of it so far. HIP initialises itself with the
 * first call, and children of a fork could not use it then. HSA, on which it stands, says whether
 * it was. Where HIP has not been linked with HSA, it counts as initialised. */
static int hip_is_idle(void *library)
{
    int (*info)(int what, void *out);
    void *found = dlsym(library, "hsa_system_get_info");
    uint64_t major = 0;

    memcpy(&info, &found, sizeof(info));
    return found && info(HSA_VERSION_MAJOR, &major) == HSA_NOT_INITIALIZED;
}

int hth_hip_driver(void *library, struct hth_driver *out, struct hearth_error *err)
{
    int version = 0, count = 0, rc;

    if (hip_is_idle(library))
        return HEARTH_OK;
    rc = hip_symbols(library, err);
    if (rc == HEARTH_OK)
        rc = HIP(err, hipRuntimeGetVersion, &version);
    if (rc)
        return rc;
    if (version < LEAST)
        return hth_fail(err, HEARTH_EUNSUPPORTED, version,
                "the HIP library is of ROCm %d.%d: Hearth needs ROCm 6.0 or newer",
                version / 10000000, version / 100000 % 100);
    rc = HIP(err, hipGetDeviceCount, &count);
    if (rc == HEARTH_OK && !count)
        rc = hip_fail(err, "hipGetDeviceCount", HIP_NO_DEVICE);
    if (rc)
        return rc;
    *out = (struct hth_driver){
        .name = "HIP",
        .version = version,
        .pin_most = 0,
        .at = hip_at,
        .facts = hip_facts,
        .enter = hip_enter,
        .leave = hip_leave,
        .may_use = hip_may_use,
        .pin = hip_pin,
        .unpin = hip_unpin,
        .stream_open = hip_stream_open,
        .stream_close = hip_stream_close,
        .event_open = hip_event_open,
        .event_close = hip_event_close,
        .record = hip_record,
        .after = hip_after,
        .done = hip_event_done,
        .copy = hip_copy,
    };
    return HEARTH_OK;
}
