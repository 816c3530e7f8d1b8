/* SPDX-License-Identifier: Apache-2.0 */
/* HIP's table, where it differs from CUDA's. The tests of copies run in this program, too. */
#include "side.h"

#include "client/device/hip_calls.h"
#include <pthread.h>

int hipPeekAtLastError(void);
int hipGetDevice(int *device);
int hipThreadExchangeStreamCaptureMode(int *mode);
int hipStreamCreateWithPriority(void **stream, unsigned flags, int priority);
int hsa_system_get_info(int what, void *out);

Test(hip, is_found_and_pins_no_slot)
{
    gpu_open(1);
    must_say(gpu->name, "HIP");
    cr_expect(eq(int, gpu->version, 60342131));
    cr_expect(eq(u64, gpu->pin_most, 0));
    gpu_close();
}

Test(hip, that_nobody_uses_is_not_initialised)
{
    const struct hth_driver *driver = (void *)1;
    uint64_t major;

    must(hth_driver_find(&driver, &gpu_err), gpu_err);
    cr_expect(eq(ptr, driver, NULL));
    cr_expect(ne(int, hsa_system_get_info(HSA_VERSION_MAJOR, &major), 0));
    fakegpu_start(NULL, 1);
    must(hth_driver_find(&driver, &gpu_err), gpu_err);
    cr_expect(ne(ptr, driver, NULL));
}

Test(hip, that_is_too_old_or_has_no_device_is_named)
{
    const struct hth_driver *driver;

    fakegpu_start("old", 1);
    must_fail(hth_driver_find(&driver, &gpu_err), HEARTH_EUNSUPPORTED);
    must_say(gpu_err.text, "the HIP library is of ROCm 0.0: Hearth needs ROCm 6.0 or newer");
}

Test(hip, without_a_device_is_named)
{
    const struct hth_driver *driver;

    fakegpu_start("hip-none", 1);
    must_fail(hth_driver_find(&driver, &gpu_err), HEARTH_EUNSUPPORTED);
    cr_expect(eq(int, gpu_err.native, 100));
}

Test(hip, tells_memory_of_a_device_from_the_hosts)
{
    struct hth_device_at at;
    int local;

    gpu_open(2);
    must(gpu->at(&local, &at, &gpu_err), gpu_err);
    cr_expect(eq(int, at.device, -1));
    must(gpu->at(NULL, &at, &gpu_err), gpu_err);
    cr_expect(eq(int, at.device, -1));
    for (int kind = FAKEGPU_PLAIN; kind <= FAKEGPU_MAPPED; kind++) {
        uint64_t p = fakegpu_alloc(fakegpu_context(1), 4096, (enum fakegpu_kind)kind);

        must(gpu->at((void *)(uintptr_t)p, &at, &gpu_err), gpu_err);
        cr_expect(eq(int, at.device, 1));
    }
    gpu_close();
}

Test(hip, has_the_device_before_again)
{
    struct hth_device_at at = { .device = 1 };
    int device = -1;

    gpu_open(2);
    must(gpu->enter(&at, &gpu_err), gpu_err);
    hipGetDevice(&device);
    cr_expect(eq(int, device, 1));
    gpu->leave();
    hipGetDevice(&device);
    cr_expect(eq(int, device, 0));
    at.device = 7;
    must_fail(gpu->enter(&at, &gpu_err), HEARTH_EINVAL);
    cr_expect(eq(int, gpu_err.native, 101));
    gpu_close();
}

/* HIP raises a pending error in the trainer's next call. */
Test(hip, leaves_no_error_behind)
{
    unsigned char *p;
    struct hth_device_at at;
    void *event;
    int done;

    gpu_open(1);
    p = host_new(8192);
    must_fail(gpu->pin(p, 4096, 0, &gpu_err), HEARTH_EEXIST);
    must_say(gpu_err.text, "pin 4096 bytes: hipHostRegister returned error 712 "
                           "(hipErrorHostMemoryAlreadyRegistered): a part of this memory is "
                           "registered already");
    cr_expect(eq(int, hipPeekAtLastError(), 0));
    must_fail(gpu->unpin(p + 4096, &gpu_err), HEARTH_ENOENT);
    cr_expect(eq(int, hipPeekAtLastError(), 0));
    must_fail(copy_one(HTH_FROM_DEVICE, p, 4096, 1), HEARTH_EINVAL);
    cr_expect(eq(int, hipPeekAtLastError(), 0));
    must(gpu->at(NULL, &at, &gpu_err), gpu_err);
    cr_expect(eq(int, hipPeekAtLastError(), 0));
    must(gpu->event_open(&event, &gpu_err), gpu_err);
    fakegpu()->hold = 1;
    must(gpu->record(event, gpu_stream, &gpu_err), gpu_err);
    must(gpu->done(event, &done, &gpu_err), gpu_err);
    cr_expect(eq(int, done, 0));
    cr_expect(eq(int, hipPeekAtLastError(), 0));
    fakegpu()->hold = 0;
    gpu_drain();
    gpu->event_close(event);
    host_free(p, 8192);
    gpu_close();
}

Test(hip, has_the_rules_of_cuda)
{
    void *stream;

    gpu_open(1);
    fakegpu()->forgive = 1;
    hipStreamCreateWithPriority(&stream, 0, 0);
    cr_expect(eq(u64, fakegpu()->sins, 1));
    must_say(fakegpu()->sin,
            "guest: a stream is created that waits for the caller's default stream");
}

Test(hip, pins_buffers_of_a_ring_and_no_more)
{
    unsigned char *p;

    gpu_open(1);
    p = mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1,
            0);
    must(gpu->pin(p, 32 << 20, 0, &gpu_err), gpu_err);
    must(gpu->unpin(p, &gpu_err), gpu_err);
    must_fail(gpu->pin(p, (64 << 20) + 1, 0, &gpu_err), HEARTH_EINVAL);
    must_fail(gpu->pin(p, 4096, 1, &gpu_err), HEARTH_EUNSUPPORTED);
    cr_expect(eq(u64, fakegpu()->registered, 0));
    gpu_close();
}

static void *done_elsewhere(void *event)
{
    int done, mode = HIP_CAPTURE_GLOBAL;

    must(gpu->done(event, &done, NULL));
    hipThreadExchangeStreamCaptureMode(&mode);
    return (void *)(intptr_t)mode;
}

/* hipEventQuery() in the thread's usual mode, the global one, invalidates all of them. */
Test(hip, leaves_captures_of_other_threads_alone)
{
    void *event, *stream, *mode;
    pthread_t thread;

    gpu_open(1);
    stream = fakegpu_stream();
    must(gpu->event_open(&event, &gpu_err), gpu_err);
    fakegpu()->global = 1;
    fakegpu_capture(stream, 1);
    pthread_create(&thread, NULL, done_elsewhere, event);
    pthread_join(thread, &mode);
    cr_expect(eq(int, fakegpu_capture(stream, 0), 1));
    cr_expect(eq(int, (int)(intptr_t)mode, HIP_CAPTURE_GLOBAL)); /* as it was */
    gpu->event_close(event);
    gpu_close();
}
