/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Hearth uses of CUDA's driver interface, declared here so that no package of CUDA is needed
 * to build: names, numbers and structures as in cuda.h of CUDA 13.0, which do not change. For
 * cuda.c and for the driver of the tests.
 */
#ifndef HEARTH_CLIENT_CUDA_CALLS_H
#define HEARTH_CLIENT_CUDA_CALLS_H

#include <stddef.h>
#include <stdint.h>

enum {
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_STUB_LIBRARY = 34,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_INVALID_CONTEXT = 201,
    CU_ECC_UNCORRECTABLE = 214,
    CU_NVLINK_UNCORRECTABLE = 220,
    CU_OPERATING_SYSTEM = 304,
    CU_INVALID_HANDLE = 400,
    CU_NOT_READY = 600,
    CU_ILLEGAL_ADDRESS = 700,
    CU_CONTEXT_IS_DESTROYED = 709,
    CU_ALREADY_REGISTERED = 712,
    CU_NOT_REGISTERED = 713,
    CU_LAUNCH_FAILED = 719,
    CU_NOT_PERMITTED = 800,
    CU_NOT_SUPPORTED = 801,
    CU_SYSTEM_NOT_READY = 802,
    CU_DRIVER_MISMATCH = 803,
    CU_COMPAT_NOT_SUPPORTED = 804,
    CU_CAPTURE_UNSUPPORTED = 900,
    CU_CAPTURE_IMPLICIT = 906,
    CU_CAPTURE_WRONG_THREAD = 908,
};

enum { CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2, CU_MEMORY_ARRAY = 3, CU_MEMORY_UNIFIED = 4 };
enum { CU_POINTER_CONTEXT = 1, CU_POINTER_TYPE = 2, CU_POINTER_MANAGED = 8, CU_POINTER_DEVICE = 9 };
enum { CU_DEVICE_HOST_PAGE_TABLES = 100, CU_DEVICE_READ_ONLY_REGISTER = 113 };
enum { CU_REGISTER_PORTABLE = 1, CU_REGISTER_DEVICEMAP = 2, CU_REGISTER_READ_ONLY = 8 };
enum { CU_STREAM_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1 };
enum { CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_CAPTURE_GLOBAL = 0, CU_CAPTURE_THREAD_LOCAL = 1, CU_CAPTURE_RELAXED = 2 };
enum { CU_ORDER_STREAM = 1, CU_COPY_PREFER_OVERLAP = 1 };

#define CU_MAX_PITCH 0x7fffffffu /* CU_DEVICE_ATTRIBUTE_MAX_PITCH of all devices */

struct cu_place {
    size_t x, y;
    int type;
    const void *host;
    uint64_t device;
    void *array;
    size_t pitch;
};

struct cu_copy_2d {
    struct cu_place src, dst;
    size_t width, height;
};

struct cu_place_3d {
    size_t x, y, z, level;
    int type;
    const void *host;
    uint64_t device;
    void *array, *reserved;
    size_t pitch, height;
};

struct cu_copy_3d {
    struct cu_place_3d src, dst;
    size_t width, height, depth;
};

struct cu_location {
    int type, id;
};

struct cu_copy_attributes {
    int order;
    struct cu_location src, dst;
    unsigned flags;
};

_Static_assert(sizeof(struct cu_copy_2d) == 128, "CUDA_MEMCPY2D_v2");
_Static_assert(sizeof(struct cu_copy_3d) == 200, "CUDA_MEMCPY3D_v2");
_Static_assert(sizeof(struct cu_copy_attributes) == 24, "CUmemcpyAttributes_v1");

typedef int cu_batch_fn(uint64_t *dst, uint64_t *src, size_t *bytes, size_t count,
        struct cu_copy_attributes *attributes, size_t *first, size_t number, void *stream);
typedef int cu_batch_12_fn(uint64_t *dst, uint64_t *src, size_t *bytes, size_t count,
        struct cu_copy_attributes *attributes, size_t *first, size_t number, size_t *bad,
        void *stream);

/* Of each function: its name in the library, its parameters. */
#define CU_CALLS(X)                                                                         \
    X(cuDriverGetVersion, (int *version))                                                   \
    X(cuDeviceGetCount, (int *count))                                                       \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device))                        \
    X(cuGetErrorName, (int error, const char **name))                                       \
    X(cuPointerGetAttributes, (unsigned number, int *attributes, void **data, uint64_t at)) \
    X(cuCtxGetCurrent, (void **context))                                                    \
    X(cuCtxGetDevice, (int *device))                                                        \
    X(cuCtxPushCurrent_v2, (void *context))                                                 \
    X(cuCtxPopCurrent_v2, (void **context))                                                 \
    X(cuCtxGetStreamPriorityRange, (int *least, int *greatest))                             \
    X(cuDevicePrimaryCtxGetState, (int device, unsigned *flags, int *active))               \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                               \
    X(cuDevicePrimaryCtxRelease_v2, (int device))                                           \
    X(cuMemHostRegister_v2, (void *base, size_t bytes, unsigned flags))                     \
    X(cuMemHostUnregister, (void *base))                                                    \
    X(cuStreamCreateWithPriority, (void **stream, unsigned flags, int priority))            \
    X(cuStreamDestroy_v2, (void *stream))                                                   \
    X(cuStreamIsCapturing, (void *stream, int *status))                                     \
    X(cuThreadExchangeStreamCaptureMode, (int *mode))                                       \
    X(cuStreamWaitEvent, (void *stream, void *event, unsigned flags))                       \
    X(cuEventCreate, (void **event, unsigned flags))                                        \
    X(cuEventDestroy_v2, (void *event))                                                     \
    X(cuEventRecord, (void *event, void *stream))                                           \
    X(cuEventQuery, (void *event))                                                          \
    X(cuMemcpyDtoHAsync_v2, (void *dst, uint64_t src, size_t bytes, void *stream))          \
    X(cuMemcpyHtoDAsync_v2, (uint64_t dst, const void *src, size_t bytes, void *stream))    \
    X(cuMemcpy2DAsync_v2, (const struct cu_copy_2d *copy, void *stream))                    \
    X(cuMemcpy3DAsync_v2, (const struct cu_copy_3d *copy, void *stream))

#endif
