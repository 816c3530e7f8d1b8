/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned host memory: what drivers accept and refuse, and how long calls wait. Run once for each
 * profile. */
#include "side.h"

#include <pthread.h>
#include <sys/wait.h>

#define MIB 1048576u

static int is(const char *profile)
{
    return strcmp(fakegpu_profile(), profile) == 0;
}

static unsigned char *pages_new(size_t bytes, int read_only)
{
    int fd = memfd_create("pages", MFD_CLOEXEC);
    void *p;

    cr_assert(zero(int, ftruncate(fd, (off_t)bytes)));
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memset(p, 0x22, bytes);
    if (read_only) {
        munmap(p, bytes);
        p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    }
    close(fd);
    cr_assert(ne(ptr, p, MAP_FAILED));
    return p;
}

Test(pins, are_counted_and_given_back)
{
    unsigned char *p;

    gpu_open(1);
    p = pages_new(MIB, 0);
    must(gpu->pin(p, MIB, 0, &gpu_err), gpu_err);
    cr_expect(eq(u64, fakegpu()->registered, 1));
    cr_expect(eq(u64, fakegpu()->register_most, MIB));
    cr_expect(eq(u64, fakegpu()->register_absent, 0));
    must(gpu->unpin(p, &gpu_err), gpu_err);
    cr_expect(eq(u64, fakegpu()->registered, 0));
    gpu_close();
}

Test(pins, that_overlap_are_refused_as_existing)
{
    unsigned char *p;

    gpu_open(1);
    p = pages_new(MIB, 0);
    must(gpu->pin(p + 100, 10000, 0, &gpu_err), gpu_err); /* the pages around it, too */
    must_fail(gpu->pin(p, 50, 0, &gpu_err), HEARTH_EEXIST);
    must_say(gpu_err.text, "pin 50 bytes: cuMemHostRegister_v2 returned error 712 "
                           "(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED): a part of this memory is "
                           "registered already");
    must_fail(gpu->pin(p + 8192, 4096, 0, &gpu_err), HEARTH_EEXIST);
    must(gpu->pin(p + 12288, 4096, 0, &gpu_err), gpu_err);
    must_fail(gpu->unpin(p, &gpu_err), HEARTH_ENOENT);
    cr_expect(eq(int, gpu_err.native, 713));
    must(gpu->unpin(p + 100, &gpu_err), gpu_err);
    must(gpu->unpin(p + 12288, &gpu_err), gpu_err);
    gpu_close();
}

Test(pins, of_nothing_or_of_more_than_the_most_are_refused)
{
    unsigned char *p;

    gpu_open(1);
    p = pages_new(MIB, 0);
    must_fail(gpu->pin(p, 0, 0, &gpu_err), HEARTH_EINVAL);
    fakegpu_calls_reset();
    must_fail(gpu->pin(p, gpu->pin_most + 1, 0, &gpu_err), HEARTH_EINVAL);
    cr_expect(eq(u64, fakegpu_calls(NULL), 0));
    gpu_close();
}

Test(pins, of_a_read_only_mapping_depend_on_the_device)
{
    struct hth_device_facts facts;
    unsigned char *p;
    uint64_t device;

    gpu_open(1);
    p = pages_new(MIB, 1);
    device = fakegpu_alloc(fakegpu_context(0), MIB, FAKEGPU_PLAIN);
    must(gpu->facts(0, &facts, &gpu_err), gpu_err);
    if (!facts.host_pages)
        must_fail(gpu->pin(p, MIB, 0, &gpu_err), HEARTH_EINVAL);
    if (facts.pin_read_only) {
        must(gpu->pin(p, MIB, 1, &gpu_err), gpu_err);
        must(copy_one(HTH_TO_DEVICE, p, device, MIB), gpu_err);
        must_fail(copy_one(HTH_FROM_DEVICE, p, device, MIB), HEARTH_EINVAL);
        gpu_drain();
        must(gpu->unpin(p, &gpu_err), gpu_err);
    } else {
        must_fail(gpu->pin(p, MIB, 1, &gpu_err), HEARTH_EUNSUPPORTED);
        cr_expect(eq(int, gpu_err.native, 801));
    }
    gpu_close();
}

/* Limits of 512 GiB and 2 GiB become 512 KiB. */
Test(pins, above_the_limit_of_a_driver_or_a_kernel_are_refused)
{
    unsigned char *p;

    gpu_open(1);
    p = pages_new(MIB, 0);
    fakegpu()->scale = is("r580") ? MIB : 4096;
    if (is("r580") || is("kernel-6.12")) {
        must_fail(gpu->pin(p, MIB, 0, &gpu_err), is("r580") ? HEARTH_ENOMEM : HEARTH_EINVAL);
        cr_expect(eq(int, gpu_err.native, is("r580") ? 2 : 1));
        must(gpu->pin(p, MIB / 4, 0, &gpu_err), gpu_err);
        must(gpu->pin(p + MIB / 4, MIB / 4, 0, &gpu_err), gpu_err);
        must(gpu->unpin(p + MIB / 4, &gpu_err), gpu_err);
        must(gpu->unpin(p, &gpu_err), gpu_err);
    } else {
        must(gpu->pin(p, MIB, 0, &gpu_err), gpu_err);
        must(gpu->unpin(p, &gpu_err), gpu_err);
    }
    gpu_close();
}

Test(pins, that_two_copies_straddle_refuse_them)
{
    unsigned char *p;
    uint64_t device;

    gpu_open(1);
    p = pages_new(MIB, 0);
    device = fakegpu_alloc(fakegpu_context(0), MIB, FAKEGPU_PLAIN);
    must(gpu->pin(p, 8192, 0, &gpu_err), gpu_err);
    must(gpu->pin(p + 8192, 8192, 0, &gpu_err), gpu_err);
    must_fail(copy_one(HTH_FROM_DEVICE, p + 4096, device, 8192), HEARTH_EINVAL);
    must_fail(copy_one(HTH_FROM_DEVICE, p + 12288, device, 8192), HEARTH_EINVAL);
    must(copy_one(HTH_FROM_DEVICE, p + 4096, device, 4096), gpu_err);
    gpu_drain();
    must(gpu->unpin(p, &gpu_err), gpu_err);
    must(gpu->unpin(p + 8192, &gpu_err), gpu_err);
    gpu_close();
}

Test(pins, that_fail_at_a_chunk_are_undone_in_reverse)
{
    unsigned char *p;
    int n = 0;

    gpu_open(1);
    p = pages_new(MIB, 0);
    fakegpu_refuse("cuMemHostRegister_v2", 5, 2);
    while (n < 8 && gpu->pin(p + n * 4096, 4096, 0, &gpu_err) == HEARTH_OK)
        n++;
    cr_expect(eq(int, n, 5));
    while (n-- > 0)
        must(gpu->unpin(p + n * 4096, &gpu_err), gpu_err);
    cr_expect(eq(u64, fakegpu()->registered, 0));
    gpu_close();
}

Test(pins, are_needed_for_a_copy_whose_call_returns_before_it_is_done)
{
    unsigned char *p;
    uint64_t device;

    gpu_open(1);
    p = pages_new(MIB, 0);
    device = fakegpu_alloc(fakegpu_context(0), MIB, FAKEGPU_PLAIN);
    fakegpu_poke(device, "here", 4);
    must(copy_one(HTH_FROM_DEVICE, p, device, MIB), gpu_err);
    cr_expect(zero(int, memcmp(p, "here", 4)));
    cr_expect(eq(u64, fakegpu()->staged, 1));
    cr_expect(eq(u64, fakegpu()->staged_bytes, MIB));
    gpu_close();
}

static void *pin_slowly(void *p)
{
    must(gpu->enter(&gpu_at, NULL));
    must(gpu->pin(p, MIB, 0, NULL));
    gpu->leave();
    return NULL;
}

Test(pins, stall_other_calls_while_they_take)
{
    unsigned char *p;
    pthread_t thread;

    gpu_open(1);
    p = pages_new(MIB, 0);
    fakegpu()->pin_ms = 300;
    pthread_create(&thread, NULL, pin_slowly, p);
    while (!fakegpu()->registered) /* one of these waits for the registration */
        gpu_drain();
    pthread_join(thread, NULL);
    cr_expect(ge(u64, fakegpu()->stalled_ms, 100));
    cr_expect(ne(u32, fakegpu()->register_threads[0], (uint32_t)getpid()));
    fakegpu()->pin_ms = 0;
    must(gpu->unpin(p, &gpu_err), gpu_err);
    gpu_close();
}
