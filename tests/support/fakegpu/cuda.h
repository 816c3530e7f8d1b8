/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of CUDA's driver that libcuda.so.1 of the tests has. */
#ifndef FAKEGPU_CUDA_H
#define FAKEGPU_CUDA_H

#include "client/device/cuda_calls.h"

#define FAKEGPU_API                       __attribute__((visibility("default")))

/* Every function that Hearth uses, declared as Hearth declares it. */
#define FAKEGPU_DECLARE(name, parameters) FAKEGPU_API int name parameters;
CU_CALLS(FAKEGPU_DECLARE)
FAKEGPU_API int cuInit(unsigned flags);
FAKEGPU_API int cuMemcpyBatchAsync(uint64_t *dst, uint64_t *src, size_t *bytes, size_t count,
        struct cu_copy_attributes *attributes, size_t *first, size_t number, size_t *bad,
        void *stream);
FAKEGPU_API int cuMemcpyBatchAsync_v2(uint64_t *dst, uint64_t *src, size_t *bytes, size_t count,
        struct cu_copy_attributes *attributes, size_t *first, size_t number, void *stream);

#endif
