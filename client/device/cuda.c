/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's driver as a table. The driver's interface returns errors directly and keeps none for the
 * runtime's next call, unlike the runtime's own. Contexts are the caller's: none is created, and no
 * flags of any are set.
 */
#include "client/device/advice.h"
#include "client/device/cuda_calls.h"
#include "client/device/driver.h"

#include "core/base/fail.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "client/device/fold.h"

#define LEAST    11000 /* cuDevicePrimaryCtxRelease_v2; all others are older */
#define BATCH    12080 /* cuMemcpyBatchAsync, with the index of a refused copy */
#define BATCH_2  13000 /* the same without */
#define AT_ONCE  4000u /* copies of a batch: their lists stay below malloc()'s mappings */
#define FEW      64u   /* room for rows of copies that the driver cannot do as such */
#define PIN_MOST (UINT64_C(1) << 30)

/* All of them, once the driver was found. */
static struct {
#define CU_FIELD(name, parameters) int(*name) parameters;
    CU_CALLS(CU_FIELD)
#undef CU_FIELD
    cu_batch_fn *batch;       /* NULL: the driver has none */
    cu_batch_12_fn *batch_12; /* NULL: the driver has none, or the newer one */
} cu;

static int cuda_fail(struct hearth_error *err, const char *call, int rc)
{
    const char *name = NULL;

    if (cu.cuGetErrorName && cu.cuGetErrorName(rc, &name) != CU_OK)
        name = NULL;
    return hth_device_fail(err, call, rc, name);
}

#define CUDA(err, name, ...) cuda_done(err, #name, cu.name(__VA_ARGS__))

static int cuda_done(struct hearth_error *err, const char *call, int rc)
{
    return rc == CU_OK ? HEARTH_OK : cuda_fail(err, call, rc);
}

/* Calls that a capture of another thread forbids: one that began in the global mode, which is
 * torch's default, is invalidated by a query of an event in any other thread whose mode is global.
 * For the time of the call this thread's mode is its own captures alone. */
static int cuda_aside(void)
{
    int mode = CU_CAPTURE_THREAD_LOCAL;

    return cu.cuThreadExchangeStreamCaptureMode(&mode) == CU_OK ? mode : -1;
}

static void cuda_aside_end(int mode)
{
    if (mode >= 0)
        cu.cuThreadExchangeStreamCaptureMode(&mode);
}

/* ---- memory and contexts ---- */

/* Memory that cuMemCreate() made has no context: the current one, if it is of that device, or the
 * primary one, if there is one. */
static int cuda_context_of(int device, void **out, struct hearth_error *err)
{
    void *context = NULL;
    unsigned flags = 0;
    int other = -1, active = 0, rc;

    if (cu.cuCtxGetCurrent(&context) == CU_OK && context && cu.cuCtxGetDevice(&other) == CU_OK &&
            other == device) {
        *out = context;
        return HEARTH_OK;
    }
    rc = CUDA(err, cuDevicePrimaryCtxGetState, device, &flags, &active);
    if (rc)
        return rc;
    if (!active)
        return hth_fail(err, HEARTH_ESTATE, CU_INVALID_CONTEXT,
                "device %d has no context in this process: none is current, and its primary "
                "context is not active",
                device);
    rc = CUDA(err, cuDevicePrimaryCtxRetain, &context, device);
    if (rc)
        return rc;
    cu.cuDevicePrimaryCtxRelease_v2(device); /* it was active: its users keep it */
    *out = context;
    return HEARTH_OK;
}

static int cuda_at(const void *p, struct hth_device_at *out, struct hearth_error *err)
{
    int kinds[] = { CU_POINTER_CONTEXT, CU_POINTER_TYPE, CU_POINTER_MANAGED, CU_POINTER_DEVICE };
    void *context = NULL;
    unsigned type = 0, managed = 0;
    int device = -1, rc;
    void *data[] = { &context, &type, &managed, &device };

    rc = cu.cuPointerGetAttributes(4, kinds, data, (uint64_t)(uintptr_t)p);
    if (rc != CU_OK && rc != CU_INVALID_VALUE)
        return cuda_fail(err, "cuPointerGetAttributes", rc);
    if (rc != CU_OK || (type != CU_MEMORY_DEVICE && !(managed & 0xff))) {
        out->device = -1;
        out->context = NULL;
        return HEARTH_OK;
    }
    if (!context) {
        rc = cuda_context_of(device, &context, err);
        if (rc)
            return hth_while(err, rc, "memory of device %d", device);
    }
    out->device = device;
    out->context = context;
    return HEARTH_OK;
}

/* An attribute that the driver does not know is 0. */
static int cuda_facts(int device, struct hth_device_facts *out, struct hearth_error *err)
{
    struct {
        int attribute, value;
    } asked[] = { { CU_DEVICE_READ_ONLY_REGISTER, 0 }, { CU_DEVICE_HOST_PAGE_TABLES, 0 } };

    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        int rc = cu.cuDeviceGetAttribute(&asked[i].value, asked[i].attribute, device);

        if (rc == CU_INVALID_VALUE)
            asked[i].value = 0;
        else if (rc != CU_OK)
            return cuda_fail(err, "cuDeviceGetAttribute", rc);
    }
    out->pin_read_only = asked[0].value;
    out->host_pages = asked[1].value;
    return HEARTH_OK;
}

static int cuda_enter(const struct hth_device_at *at, struct hearth_error *err)
{
    return CUDA(err, cuCtxPushCurrent_v2, at->context);
}

static void cuda_leave(void)
{
    void *context;

    cu.cuCtxPopCurrent_v2(&context);
}

static int cuda_may_use(void *stream, struct hearth_error *err)
{
    int status = 0;
    int rc = CUDA(err, cuStreamIsCapturing, stream, &status);

    if (rc == HEARTH_OK && status)
        rc = hth_device_fail(err, "cuStreamIsCapturing", CU_CAPTURE_UNSUPPORTED,
                "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED");
    return rc;
}

static int cuda_pin(void *base, uint64_t bytes, int read_only, struct hearth_error *err)
{
    unsigned flags = CU_REGISTER_PORTABLE | (read_only ? CU_REGISTER_READ_ONLY : 0);
    int rc, mode;

    if (bytes > PIN_MOST)
        return hth_fail(err, HEARTH_EINVAL, 0, "at most %" PRIu64 " bytes are pinned in one call",
                (uint64_t)PIN_MOST);
    mode = cuda_aside();
    rc = CUDA(err, cuMemHostRegister_v2, base, bytes, flags);
    cuda_aside_end(mode);
    return rc ? hth_while(err, rc, "pin %" PRIu64 " bytes", bytes) : HEARTH_OK;
}

static int cuda_unpin(void *base, struct hearth_error *err)
{
    int mode = cuda_aside();
    int rc = CUDA(err, cuMemHostUnregister, base);

    cuda_aside_end(mode);
    return rc;
}

/* ---- streams and events ---- */

static int cuda_stream_open(void **out, struct hearth_error *err)
{
    int least = 0, greatest = 0;
    int rc = CUDA(err, cuCtxGetStreamPriorityRange, &least, &greatest);

    if (rc)
        return rc;
    return CUDA(err, cuStreamCreateWithPriority, out, CU_STREAM_NON_BLOCKING, least);
}

static void cuda_stream_close(void *stream)
{
    cu.cuStreamDestroy_v2(stream);
}

static int cuda_event_open(void **out, struct hearth_error *err)
{
    return CUDA(err, cuEventCreate, out, CU_EVENT_DISABLE_TIMING);
}

static void cuda_event_close(void *event)
{
    cu.cuEventDestroy_v2(event);
}

static int cuda_record(void *event, void *stream, struct hearth_error *err)
{
    return CUDA(err, cuEventRecord, event, stream);
}

static int cuda_after(void *stream, void *event, struct hearth_error *err)
{
    return CUDA(err, cuStreamWaitEvent, stream, event, 0);
}

static int cuda_event_done(void *event, int *out_done, struct hearth_error *err)
{
    int mode = cuda_aside();
    int rc = cu.cuEventQuery(event);

    cuda_aside_end(mode);

    if (rc != CU_OK && rc != CU_NOT_READY)
        return cuda_fail(err, "cuEventQuery", rc);
    *out_done = rc == CU_OK;
    return HEARTH_OK;
}

/* ---- copies ---- */

/* One call of copy(), and the runs that it has not enqueued yet. */
struct cuda_queue {
    void *stream;
    enum hth_device_way way;
    size_t calls, bad; /* copies: `bad` is the index of the one in hand, then of a refused one */
    struct hearth_error *err;
    size_t count, room;
    uint64_t *dst, *src; /* [room] */
    size_t *bytes, *of;  /* [room] */
};

static int cuda_one_run(struct cuda_queue *q, void *host, uint64_t device, uint64_t bytes)
{
    q->calls++;
    if (q->way == HTH_FROM_DEVICE)
        return CUDA(q->err, cuMemcpyDtoHAsync_v2, host, device, bytes, q->stream);
    return CUDA(q->err, cuMemcpyHtoDAsync_v2, device, host, bytes, q->stream);
}

/* Batches are not for the default streams, whose handles are 0 to 2. */
static int cuda_can_batch(const struct cuda_queue *q)
{
    return (cu.batch || cu.batch_12) && (uintptr_t)q->stream > 2;
}

static int cuda_flush(struct cuda_queue *q)
{
    struct cu_copy_attributes how = { .order = CU_ORDER_STREAM, .flags = CU_COPY_PREFER_OVERLAP };
    size_t first = 0, bad = SIZE_MAX, count = q->count;
    int rc, from = q->way == HTH_FROM_DEVICE;

    q->count = 0;
    if (!count)
        return HEARTH_OK;
    if (count == 1) {
        q->bad = q->of[0];
        return cuda_one_run(q, (void *)(uintptr_t)(from ? q->dst[0] : q->src[0]),
                from ? q->src[0] : q->dst[0], q->bytes[0]);
    }
    q->calls++;
    if (cu.batch)
        rc = cu.batch(q->dst, q->src, q->bytes, count, &how, &first, 1, q->stream);
    else
        rc = cu.batch_12(q->dst, q->src, q->bytes, count, &how, &first, 1, &bad, q->stream);
    if (rc == CU_OK)
        return HEARTH_OK;
    q->bad = q->of[bad < count ? bad : 0];
    return cuda_fail(q->err, "cuMemcpyBatchAsync", rc);
}

static int cuda_run(struct cuda_queue *q, const struct hth_device_copy *c)
{
    uint64_t host = (uint64_t)(uintptr_t)c->host;
    size_t i = q->count;

    if (!cuda_can_batch(q))
        return cuda_one_run(q, c->host, c->device, c->width);
    q->dst[i] = q->way == HTH_FROM_DEVICE ? host : c->device;
    q->src[i] = q->way == HTH_FROM_DEVICE ? c->device : host;
    q->bytes[i] = c->width;
    q->of[i] = q->bad;
    q->count++;
    return q->count < q->room ? HEARTH_OK : cuda_flush(q);
}

static int cuda_rows(struct cuda_queue *q, const struct hth_device_copy *c)
{
    struct cu_place host = { .type = CU_MEMORY_HOST, .host = c->host, .pitch = c->host_row };
    struct cu_place device = {
        .type = CU_MEMORY_DEVICE, .device = c->device, .pitch = c->device_row
    };
    int from = q->way == HTH_FROM_DEVICE;
    struct cu_copy_2d copy = {
        .src = from ? device : host,
        .dst = from ? host : device,
        .width = c->width,
        .height = c->rows,
    };

    q->calls++;
    return CUDA(q->err, cuMemcpy2DAsync_v2, &copy, q->stream);
}

static int cuda_planes(struct cuda_queue *q, const struct hth_device_copy *c)
{
    struct cu_place_3d host = {
        .type = CU_MEMORY_HOST,
        .host = c->host,
        .pitch = c->host_row,
        .height = c->host_plane / c->host_row,
    };
    struct cu_place_3d device = {
        .type = CU_MEMORY_DEVICE,
        .device = c->device,
        .pitch = c->device_row,
        .height = c->device_plane / c->device_row,
    };
    int from = q->way == HTH_FROM_DEVICE;
    struct cu_copy_3d copy = {
        .src = from ? device : host,
        .dst = from ? host : device,
        .width = c->width,
        .height = c->rows,
        .depth = c->planes,
    };

    q->calls++;
    return CUDA(q->err, cuMemcpy3DAsync_v2, &copy, q->stream);
}

/* CUDA counts a plane's step in rows. */
static int cuda_planes_fit(const struct hth_device_copy *c)
{
    return c->host_plane % c->host_row == 0 && c->device_plane % c->device_row == 0 &&
           c->host_plane / c->host_row >= c->rows && c->device_plane / c->device_row >= c->rows;
}

static int cuda_copy_one(struct cuda_queue *q, struct hth_device_copy c)
{
    int rows, rc = HEARTH_OK;

    hth_copy_fold(&c, CU_MAX_PITCH, &rows);
    if (!c.width)
        return HEARTH_OK;
    if (c.rows == 1 && c.planes == 1)
        return cuda_run(q, &c);
    if (rows && c.planes > 1 && cuda_planes_fit(&c))
        return cuda_planes(q, &c);
    for (uint64_t p = 0; rc == HEARTH_OK && p < c.planes; p++) {
        struct hth_device_copy plane = hth_copy_plane(&c, p);

        if (rows)
            rc = cuda_rows(q, &plane);
        for (uint64_t r = 0; !rows && rc == HEARTH_OK && r < c.rows; r++) {
            struct hth_device_copy row = hth_copy_row(&plane, r);

            rc = cuda_run(q, &row);
        }
    }
    return rc;
}

static int cuda_copy(void *stream, enum hth_device_way way, const struct hth_device_copy *copies,
        size_t count, size_t *out_calls, size_t *out_bad, struct hearth_error *err)
{
    struct cuda_queue all = { .stream = stream, .way = way, .err = err }, *q = &all;
    int rc = HEARTH_OK;

    *out_calls = *out_bad = 0;
    q->room = count < FEW ? FEW : count < AT_ONCE ? count : AT_ONCE;
    q->dst = malloc(q->room * (2 * sizeof(*q->dst) + 2 * sizeof(*q->bytes)));
    if (!q->dst)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the lists of %zu copies", count);
    q->src = q->dst + q->room;
    q->bytes = (size_t *)(q->src + q->room);
    q->of = q->bytes + q->room;
    for (size_t i = 0; rc == HEARTH_OK && i < count; i++) {
        q->bad = i;
        rc = cuda_copy_one(q, copies[i]);
    }
    if (rc == HEARTH_OK)
        rc = cuda_flush(q);
    *out_calls = q->calls;
    *out_bad = q->bad;
    free(q->dst);
    return rc;
}

/* ---- the table ---- */

static int symbol_get(void *library, const char *name, void *out)
{
    void *found = dlsym(library, name);

    memcpy(out, &found, sizeof(found));
    return found != NULL;
}

static int cuda_too_old(struct hearth_error *err, int version)
{
    return hth_fail(err, HEARTH_EUNSUPPORTED, version,
            "the driver is of CUDA %d.%d: Hearth needs the driver of CUDA %d.0 (450.36) or newer",
            version / 1000, version % 1000 / 10, LEAST / 1000);
}

static int cuda_symbols(void *library, int version, struct hearth_error *err)
{
    struct {
        const char *name;
        void *at;
    } all[] = {
#define CU_SYMBOL(name, parameters) { #name, (void *)&cu.name },
        CU_CALLS(CU_SYMBOL)
#undef CU_SYMBOL
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (!symbol_get(library, all[i].name, all[i].at))
            return hth_fail(err, HEARTH_EUNSUPPORTED, version,
                    "libcuda.so.1 says that it is of CUDA %d.%d, and has no %s", version / 1000,
                    version % 1000 / 10, all[i].name);
    cu.batch = NULL;
    cu.batch_12 = NULL;
    if (version < BATCH_2 || !symbol_get(library, "cuMemcpyBatchAsync_v2", (void *)&cu.batch))
        if (version >= BATCH)
            symbol_get(library, "cuMemcpyBatchAsync", (void *)&cu.batch_12);
    return HEARTH_OK;
}

/* 1: a process that has not called cuInit() has no device memory, and may call it later. */
static int cuda_is_idle(int *out_rc)
{
    int count = 0;

    *out_rc = cu.cuDeviceGetCount(&count);
    if (*out_rc == CU_OK && count == 0)
        *out_rc = CU_NO_DEVICE;
    return *out_rc == CU_NOT_INITIALIZED;
}

int hth_cuda_driver(void *library, struct hth_driver *out, struct hearth_error *err)
{
    int version = 0, rc;

    if (!symbol_get(library, "cuDriverGetVersion", (void *)&cu.cuDriverGetVersion))
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0, "libcuda.so.1 has no cuDriverGetVersion");
    symbol_get(library, "cuGetErrorName", (void *)&cu.cuGetErrorName);
    rc = CUDA(err, cuDriverGetVersion, &version);
    if (rc)
        return rc;
    if (version < LEAST)
        return cuda_too_old(err, version);
    rc = cuda_symbols(library, version, err);
    if (rc)
        return rc;
    if (cuda_is_idle(&rc))
        return HEARTH_OK;
    if (rc != CU_OK)
        return cuda_fail(err, "cuDeviceGetCount", rc);
    *out = (struct hth_driver){
        .name = "CUDA",
        .version = version,
        .pin_most = PIN_MOST,
        .at = cuda_at,
        .facts = cuda_facts,
        .enter = cuda_enter,
        .leave = cuda_leave,
        .may_use = cuda_may_use,
        .pin = cuda_pin,
        .unpin = cuda_unpin,
        .stream_open = cuda_stream_open,
        .stream_close = cuda_stream_close,
        .event_open = cuda_event_open,
        .event_close = cuda_event_close,
        .record = cuda_record,
        .after = cuda_after,
        .done = cuda_event_done,
        .copy = cuda_copy,
    };
    return HEARTH_OK;
}
