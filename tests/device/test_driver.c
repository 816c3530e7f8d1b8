/* SPDX-License-Identifier: Apache-2.0 */
/* Which drivers are found, the errors of those that cannot be used; memory and contexts. */
#include "side.h"

#include "cuda.h"
#include <pthread.h>
#include <sys/wait.h>

Test(driver, that_is_not_initialised_is_none_until_it_is)
{
    const struct hth_driver *driver = (void *)1;

    must(hth_driver_find(&driver, &gpu_err), gpu_err);
    cr_expect(eq(ptr, driver, NULL));
    fakegpu_start("recent", 1);
    must(hth_driver_find(&driver, &gpu_err), gpu_err);
    cr_assert(ne(ptr, driver, NULL));
    must_say(driver->name, "CUDA");
    cr_expect(eq(int, driver->version, 13000));
}

static void must_be_refused(const char *profile, const char *text)
{
    const struct hth_driver *driver;

    fakegpu_start(profile, 1);
    must_fail(hth_driver_find(&driver, &gpu_err), HEARTH_EUNSUPPORTED);
    must_say(gpu_err.text, text);
    must_fail(hth_driver_find(&driver, NULL), HEARTH_EUNSUPPORTED);
}

Test(driver, of_a_toolkit_is_named_as_a_stub)
{
    must_be_refused("stub",
            "cuDriverGetVersion returned error 34 (CUDA_ERROR_STUB_LIBRARY): the library is a "
            "toolkit's stub: take its folder out of LD_LIBRARY_PATH");
    cr_expect(eq(int, gpu_err.native, 34));
}

Test(driver, that_is_too_old_is_named_with_the_least_that_is_enough)
{
    must_be_refused("old",
            "the driver is of CUDA 10.2: Hearth needs the driver of CUDA 11.0 (450.36) or newer");
}

Test(driver, without_a_device_is_named)
{
    must_be_refused("none",
            "cuDeviceGetCount returned error 100 (CUDA_ERROR_NO_DEVICE): no device is visible: a "
            "container has to be started with its devices");
}

static struct hth_device_at where(const void *p)
{
    struct hth_device_at at;

    must(gpu->at(p, &at, &gpu_err), gpu_err);
    return at;
}

static void must_be_at(uint64_t p, int device, void *context)
{
    struct hth_device_at at = where((void *)(uintptr_t)p);

    cr_expect(eq(int, at.device, device));
    cr_expect(eq(ptr, at.context, context));
}

Test(driver, tells_memory_of_a_device_from_the_hosts)
{
    unsigned char *pinned;
    int local;

    gpu_open(2);
    pinned = host_new(8192);
    must_be_at((uintptr_t)&local, -1, NULL);
    must_be_at((uintptr_t)pinned, -1, NULL);
    must_be_at(0, -1, NULL);
    must_be_at(
            fakegpu_alloc(fakegpu_context(0), 4096, FAKEGPU_PLAIN) + 4095, 0, fakegpu_context(0));
    must_be_at(fakegpu_alloc(fakegpu_context(1), 4096, FAKEGPU_PLAIN), 1, fakegpu_context(1));
    must_be_at(fakegpu_alloc(fakegpu_context(1), 4096, FAKEGPU_MANAGED), 1, fakegpu_context(1));
    host_free(pinned, 8192);
    gpu_close();
}

Test(driver, asks_for_all_properties_of_a_pointer_in_one_call)
{
    gpu_open(1);
    fakegpu_calls_reset();
    must_be_at(fakegpu_alloc(fakegpu_context(0), 4096, FAKEGPU_PLAIN), 0, fakegpu_context(0));
    cr_expect(eq(u64, fakegpu_calls(NULL), 1));
    gpu_close();
}

/* Memory of cuMemCreate(). */
Test(driver, gives_memory_without_a_context_the_current_one_or_the_primary_one)
{
    void *other, *mine;
    uint64_t on_0, on_1;

    gpu_open(2);
    gpu_close();
    other = fakegpu_context_more(1);
    mine = fakegpu_context_more(0);
    on_0 = fakegpu_alloc(mine, 4096, FAKEGPU_MAPPED);
    on_1 = fakegpu_alloc(other, 4096, FAKEGPU_MAPPED);
    fakegpu_current(mine);
    must_be_at(on_0, 0, mine);
    must_fail(gpu->at((void *)(uintptr_t)on_1, &gpu_at, &gpu_err), HEARTH_ESTATE);
    must_say(gpu_err.text,
            "memory of device 1: device 1 has no context in this process: none is current, and its "
            "primary context is not active");
    fakegpu_context(1);
    must_be_at(on_1, 1, fakegpu_context(1));
    fakegpu_current(NULL);
    must_be_at(on_0, 0, fakegpu_context(0));
    cr_expect(eq(u64, fakegpu()->sins, 0), "%s", fakegpu()->sin);
}

Test(driver, leaves_the_context_as_it_was)
{
    struct hth_device_at at = { .device = 1 };
    void *now;

    gpu_open(2);
    at.context = fakegpu_context(1);
    must(gpu->enter(&at, &gpu_err), gpu_err);
    cuCtxGetCurrent(&now);
    cr_expect(eq(ptr, now, at.context));
    gpu->leave();
    cuCtxGetCurrent(&now);
    cr_expect(eq(ptr, now, gpu_at.context));
    gpu_close();
}

Test(driver, refuses_calls_without_a_context_by_number)
{
    void *event;

    gpu_open(1);
    fakegpu_current(NULL);
    must_fail(gpu->event_open(&event, &gpu_err), HEARTH_ESTATE);
    must_say(gpu_err.text,
            "cuEventCreate returned error 201 (CUDA_ERROR_INVALID_CONTEXT): no context of this "
            "device is current");
}

Test(driver, refuses_a_stream_that_captures_a_graph)
{
    void *stream;

    gpu_open(1);
    stream = fakegpu_stream();
    must(gpu->may_use(stream, &gpu_err), gpu_err);
    must(gpu->may_use(NULL, &gpu_err), gpu_err);
    fakegpu_capture(stream, 1);
    must_fail(gpu->may_use(stream, &gpu_err), HEARTH_EUNSUPPORTED);
    must_fail(gpu->may_use(NULL, &gpu_err), HEARTH_EUNSUPPORTED);
    fakegpu_capture(stream, 0);
    must(gpu->may_use(NULL, &gpu_err), gpu_err);
    gpu_close();
}

static void *done_elsewhere(void *event)
{
    int done, mode = 0;

    must(gpu->done(event, &done, NULL));
    cuThreadExchangeStreamCaptureMode(&mode);
    return (void *)(intptr_t)mode;
}

/* torch's default; PyTorch's watchdog of NCCL ended captures in this way. */
Test(driver, of_hearths_threads_leaves_the_trainers_capture_alone)
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
    cr_expect(eq(int, (int)(intptr_t)mode, 0)); /* as it was */
    gpu->event_close(event);
    gpu_close();
}

Test(driver, is_not_usable_in_a_child)
{
    struct hth_device_at at;
    int status;
    pid_t pid;

    gpu_open(1);
    pid = fork();
    if (pid == 0)
        _exit(gpu->at(&at, &at, &gpu_err) == HEARTH_ESTATE && gpu_err.native == 3 ? 0 : 1);
    waitpid(pid, &status, 0);
    cr_expect(eq(int, status, 0));
    gpu_close();
}

static void facts_are(const char *profile, int read_only, int host_pages)
{
    struct hth_device_facts facts;

    fakegpu_start(profile, 1);
    must(gpu->facts(0, &facts, &gpu_err), gpu_err);
    cr_expect(eq(int, facts.pin_read_only, read_only), "%s", profile);
    cr_expect(eq(int, facts.host_pages, host_pages), "%s", profile);
}

Test(driver, has_the_facts_of_each_device)
{
    struct hth_device_facts facts;

    gpu_open(1);
    facts_are("recent", 1, 0);
    facts_are("12.0", 0, 0);
    facts_are("gh200", 1, 1);
    facts_are("old", 0, 0); /* an attribute that it does not know */
    must_fail(gpu->facts(7, &facts, &gpu_err), HEARTH_EINVAL);
    gpu_close();
}
