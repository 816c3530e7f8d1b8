/* SPDX-License-Identifier: Apache-2.0 */
/* Declared here as client/device does: no package of CUDA is needed to build. */
#include "device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

#define BLOCKS  1024u
#define THREADS 256u

/* Each thread adds 1 to every word of its own, `times` over. Text, so that no compiler is needed;
 * the driver translates it for its device. */
static const char kernel[] = ".version 6.0\n"
                             ".target sm_50\n"
                             ".address_size 64\n"
                             ".visible .entry work(.param .u64 at, .param .u64 words,\n"
                             "                     .param .u32 times)\n"
                             "{\n"
                             "    .reg .pred %p<3>;\n"
                             "    .reg .b32 %r<10>;\n"
                             "    .reg .b64 %d<10>;\n"
                             "    ld.param.u64 %d1, [at];\n"
                             "    ld.param.u64 %d2, [words];\n"
                             "    ld.param.u32 %r1, [times];\n"
                             "    cvta.to.global.u64 %d5, %d1;\n"
                             "    mov.u32 %r2, %ctaid.x;\n"
                             "    mov.u32 %r3, %ntid.x;\n"
                             "    mov.u32 %r4, %tid.x;\n"
                             "    mad.lo.s32 %r5, %r2, %r3, %r4;\n"
                             "    cvt.u64.u32 %d3, %r5;\n"
                             "    mov.u32 %r6, %nctaid.x;\n"
                             "    mul.lo.s32 %r7, %r6, %r3;\n"
                             "    cvt.u64.u32 %d4, %r7;\n"
                             "again:\n"
                             "    mov.u64 %d6, %d3;\n"
                             "next:\n"
                             "    setp.ge.u64 %p1, %d6, %d2;\n"
                             "    @%p1 bra done;\n"
                             "    shl.b64 %d7, %d6, 2;\n"
                             "    add.s64 %d8, %d5, %d7;\n"
                             "    ld.global.u32 %r8, [%d8];\n"
                             "    add.s32 %r8, %r8, 1;\n"
                             "    st.global.u32 [%d8], %r8;\n"
                             "    add.s64 %d6, %d6, %d4;\n"
                             "    bra next;\n"
                             "done:\n"
                             "    sub.s32 %r1, %r1, 1;\n"
                             "    setp.gt.s32 %p2, %r1, 0;\n"
                             "    @%p2 bra again;\n"
                             "    ret;\n"
                             "}\n";

/* name, parameters: of both drivers, then of the real one alone */
#define BOTH(X)                                                                  \
    X(cuInit, (unsigned flags))                                                  \
    X(cuDriverGetVersion, (int *version))                                        \
    X(cuDeviceGetCount, (int *count))                                            \
    X(cuMemHostRegister_v2, (void *base, size_t bytes, unsigned flags))          \
    X(cuMemHostUnregister, (void *base))                                         \
    X(cuMemcpyDtoHAsync_v2, (void *to, uint64_t at, size_t bytes, void *stream)) \
    X(cuMemcpyHtoDAsync_v2, (uint64_t at, const void *from, size_t bytes, void *s))
#define REAL(X)                                                                               \
    X(cuDeviceGet, (int *device, int ordinal))                                                \
    X(cuDeviceGetName, (char *name, int len, int device))                                     \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                 \
    X(cuCtxSetCurrent, (void *context))                                                       \
    X(cuMemGetInfo_v2, (size_t * room, size_t * all))                                         \
    X(cuMemAlloc_v2, (uint64_t * at, size_t bytes))                                           \
    X(cuMemFree_v2, (uint64_t at))                                                            \
    X(cuMemcpyHtoD_v2, (uint64_t at, const void *from, size_t bytes))                         \
    X(cuMemcpyDtoH_v2, (void *to, uint64_t at, size_t bytes))                                 \
    X(cuMemsetD8Async, (uint64_t at, unsigned char value, size_t bytes, void *s))             \
    X(cuStreamCreate, (void **stream, unsigned flags))                                        \
    X(cuStreamSynchronize, (void *stream))                                                    \
    X(cuModuleLoadData, (void **module, const void *image))                                   \
    X(cuModuleGetFunction, (void **function, void *module, const char *name))                 \
    X(cuLaunchKernel,                                                                         \
            (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
                    unsigned bz, unsigned shared, void *stream, void **parameters, void **extra))
/* name, result, parameters: of tests/support/fakegpu/fakegpu.h */
#define FAKE(X)                                                                 \
    X(fakegpu_start, void, (const char *profile, int devices))                  \
    X(fakegpu_context, void *, (int device))                                    \
    X(fakegpu_current, void, (void *context))                                   \
    X(fakegpu_alloc, uint64_t, (void *context, size_t bytes, int kind))         \
    X(fakegpu_free, void, (uint64_t at))                                        \
    X(fakegpu_poke, void, (uint64_t at, const void *from, size_t bytes))        \
    X(fakegpu_peek, void, (uint64_t at, void *to, size_t bytes))                \
    X(fakegpu_stream, void *, (void))                                           \
    X(fakegpu_fill, void, (void *stream, uint64_t at, int value, size_t bytes)) \
    X(fakegpu_wait, void, (void *stream))

static struct {
#define FIELD(name, parameters) int(*name) parameters;
    BOTH(FIELD) REAL(FIELD)
#undef FIELD
} cu;
static struct {
#define FIELD(name, result, parameters) result(*name) parameters;
    FAKE(FIELD)
#undef FIELD
} fake;
static int is_fake;
static void *context, *function;
static char device_name[200];

#define CU(name, ...) cu_must(#name, cu.name(__VA_ARGS__))

static void cu_must(const char *call, int rc)
{
    if (rc)
        die("%s returned error %d", call, rc);
}

/* A function pointer is what dlsym() gives as an object's. */
static int symbol(void *library, const char *name, void *out)
{
    void *found = dlsym(library, name);

    memcpy(out, &found, sizeof(found));
    return found ? 0 : -1;
}

static int symbols(void *library, int of_fake)
{
    int rc = 0;

#define FIND(name, ...) rc |= symbol(library, #name, &cu.name);
    BOTH(FIND)
    if (!of_fake) {
        REAL(FIND)
    }
#undef FIND
#define FIND(name, ...) rc |= symbol(library, #name, &fake.name);
    if (of_fake) {
        FAKE(FIND)
    }
#undef FIND
    return rc;
}

static void real_start(void)
{
    void *module;
    int device, version = 0;
    char name[100] = "";

    CU(cuDeviceGet, &device, 0);
    CU(cuDeviceGetName, name, sizeof(name), device);
    CU(cuDriverGetVersion, &version);
    CU(cuDevicePrimaryCtxRetain, &context, device);
    CU(cuCtxSetCurrent, context);
    CU(cuModuleLoadData, &module, kernel);
    CU(cuModuleGetFunction, &function, module, "work");
    snprintf(device_name, sizeof(device_name), "%s, CUDA %d.%d", name, version / 1000,
            version % 1000 / 10);
}

int gpu_start(int fake_one, char *why, size_t len)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *of_tests;
    int rc, count = 0;

    if (!library) {
        snprintf(why, len, "%s", dlerror());
        return -1;
    }
    if ((symbol(library, "fakegpu_start", &of_tests) == 0) != fake_one ||
            symbols(library, fake_one)) {
        snprintf(why, len, "libcuda.so.1 is %s",
                fake_one ? "not the tests' own" : "the tests' own, or too old");
        return -1;
    }
    is_fake = fake_one;
    if (is_fake) {
        fake.fakegpu_start(NULL, 1);
        context = fake.fakegpu_context(0);
        fake.fakegpu_current(context);
        snprintf(device_name, sizeof(device_name), "the driver of the tests");
        return 0;
    }
    if ((rc = cu.cuInit(0)) || (rc = cu.cuDeviceGetCount(&count)) || !count) {
        snprintf(why, len, "the driver has no device: error %d", rc);
        return -1;
    }
    real_start();
    return 0;
}

const char *gpu_name(void)
{
    return device_name;
}

uint64_t gpu_room(void)
{
    size_t room = (size_t)1 << 32, all;
    int count;

    if (is_fake)
        CU(cuDeviceGetCount, &count);
    else
        CU(cuMemGetInfo_v2, &room, &all);
    return room;
}

uint64_t gpu_alloc(uint64_t bytes)
{
    uint64_t at;

    if (is_fake)
        return fake.fakegpu_alloc(context, bytes, 0);
    CU(cuMemAlloc_v2, &at, bytes);
    return at;
}

void gpu_free(uint64_t at)
{
    if (is_fake)
        fake.fakegpu_free(at);
    else
        CU(cuMemFree_v2, at);
}

void gpu_put(uint64_t at, const void *from, uint64_t bytes)
{
    if (is_fake)
        fake.fakegpu_poke(at, from, bytes);
    else
        CU(cuMemcpyHtoD_v2, at, from, bytes);
}

void gpu_get(void *to, uint64_t at, uint64_t bytes)
{
    if (is_fake)
        fake.fakegpu_peek(at, to, bytes);
    else
        CU(cuMemcpyDtoH_v2, to, at, bytes);
}

void gpu_pin(void *host, uint64_t bytes)
{
    CU(cuMemHostRegister_v2, host, bytes, 1);
}

void gpu_unpin(void *host)
{
    CU(cuMemHostUnregister, host);
}

void *gpu_stream(void)
{
    void *stream;

    if (is_fake)
        return fake.fakegpu_stream();
    CU(cuStreamCreate, &stream, 1); /* it does not wait for the default stream */
    return stream;
}

void gpu_wait(void *stream)
{
    if (is_fake)
        fake.fakegpu_wait(stream);
    else
        CU(cuStreamSynchronize, stream);
}

void gpu_out(void *stream, void *to, uint64_t at, uint64_t bytes)
{
    CU(cuMemcpyDtoHAsync_v2, to, at, bytes, stream);
}

void gpu_in(void *stream, uint64_t at, const void *from, uint64_t bytes)
{
    CU(cuMemcpyHtoDAsync_v2, at, from, bytes, stream);
}

void gpu_set(void *stream, uint64_t at, int value, uint64_t bytes)
{
    if (is_fake)
        fake.fakegpu_fill(stream, at, value, bytes);
    else
        CU(cuMemsetD8Async, at, (unsigned char)value, bytes, stream);
}

void gpu_work(void *stream, uint64_t at, uint64_t bytes, unsigned times)
{
    uint64_t words = bytes / 4;
    void *parameters[] = { &at, &words, &times };

    if (is_fake)
        for (unsigned i = 0; i < times; i++)
            fake.fakegpu_fill(stream, at, (int)i, bytes);
    else
        CU(cuLaunchKernel, function, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL);
}
