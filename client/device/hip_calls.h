/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Hearth uses of HIP, declared here so that no package of ROCm is needed to build: as in
 * hip_runtime_api.h of HIP 7.1. For hip.c and for the driver of the tests.
 */
#ifndef HEARTH_CLIENT_HIP_CALLS_H
#define HEARTH_CLIENT_HIP_CALLS_H

#include <stddef.h>

enum {
    HIP_OK = 0,
    HIP_INVALID_VALUE = 1,
    HIP_NO_DEVICE = 100,
    HIP_INVALID_DEVICE = 101,
    HIP_NOT_READY = 600,
    HIP_NOT_SUPPORTED = 801,
    HIP_CAPTURE_UNSUPPORTED = 900,
};

enum { HIP_TO_DEVICE = 1, HIP_TO_HOST = 2 };
enum { HIP_REGISTER_PORTABLE = 1, HIP_STREAM_NON_BLOCKING = 1, HIP_EVENT_DISABLE_TIMING = 2 };
enum {
    HIP_MEMORY_UNREGISTERED = 0,
    HIP_MEMORY_HOST = 1,
    HIP_MEMORY_DEVICE = 2,
    HIP_MEMORY_MANAGED = 3,
};

enum { HIP_CAPTURE_GLOBAL = 0, HIP_CAPTURE_THREAD_LOCAL = 1, HIP_CAPTURE_RELAXED = 2 };
enum { HSA_VERSION_MAJOR = 0, HSA_NOT_INITIALIZED = 0x100b }; /* of hsa_system_get_info() */

#define HIP_MAX_PITCH 0x7fffffffu

struct hip_pointer {
    int type, device;
    void *device_pointer, *host_pointer;
    int managed;
    unsigned flags;
};

_Static_assert(sizeof(struct hip_pointer) == 32, "hipPointerAttribute_t");

/* Of each function: its name in the library, its result, its parameters. */
#define HIP_CALLS(X)                                                                           \
    X(hipRuntimeGetVersion, int, (int *version))                                               \
    X(hipGetDeviceCount, int, (int *count))                                                    \
    X(hipGetDevice, int, (int *device))                                                        \
    X(hipSetDevice, int, (int device))                                                         \
    X(hipGetErrorName, const char *, (int error))                                              \
    X(hipGetLastError, int, (void))                                                            \
    X(hipPointerGetAttributes, int, (struct hip_pointer * out, const void *p))                 \
    X(hipHostRegister, int, (void *base, size_t bytes, unsigned flags))                        \
    X(hipHostUnregister, int, (void *base))                                                    \
    X(hipDeviceGetStreamPriorityRange, int, (int *least, int *greatest))                       \
    X(hipStreamCreateWithPriority, int, (void **stream, unsigned flags, int priority))         \
    X(hipStreamDestroy, int, (void *stream))                                                   \
    X(hipStreamIsCapturing, int, (void *stream, int *status))                                  \
    X(hipThreadExchangeStreamCaptureMode, int, (int *mode))                                    \
    X(hipStreamWaitEvent, int, (void *stream, void *event, unsigned flags))                    \
    X(hipEventCreateWithFlags, int, (void **event, unsigned flags))                            \
    X(hipEventDestroy, int, (void *event))                                                     \
    X(hipEventRecord, int, (void *event, void *stream))                                        \
    X(hipEventQuery, int, (void *event))                                                       \
    X(hipMemcpyAsync, int, (void *dst, const void *src, size_t bytes, int kind, void *stream)) \
    X(hipMemcpy2DAsync, int,                                                                   \
            (void *dst, size_t dst_row, const void *src, size_t src_row, size_t width,         \
                    size_t rows, int kind, void *stream))

#endif
