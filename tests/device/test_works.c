/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that follows copies, from membership to membership. */
#include "side.h"

#include "client/base/clock.h"
#include "client/device/work.h"
#include "cuda.h"
#include <pthread.h>
#include <time.h>

static unsigned char page[4096] __attribute__((aligned(4096)));

static void *registers(void *arg)
{
    fakegpu_current(fakegpu_context(0));
    cuMemHostRegister_v2(page, sizeof(page), 0);
    cuMemHostUnregister(page);
    return arg;
}

/* A thread whose call holds the driver's lock for so long. */
static pthread_t block(uint64_t ms)
{
    const struct timespec soon = { .tv_nsec = 1000000 }, then = { .tv_nsec = 100000000 };
    uint64_t calls = fakegpu_calls("cuMemHostRegister_v2");
    pthread_t thread;

    fakegpu()->pin_ms = ms;
    must(pthread_create(&thread, NULL, registers, NULL));
    while (fakegpu_calls("cuMemHostRegister_v2") == calls)
        nanosleep(&soon, NULL);
    nanosleep(&then, NULL);
    return thread;
}

Test(works, a_driver_that_blocks_is_waited_for_no_longer_than_the_caller_says)
{
    struct hth_gpu *own;
    pthread_t thread;
    uint64_t since;

    gpu_open(1);
    must(hth_works_enter(&gpu_err), gpu_err);
    must(hth_gpu_of(&own, gpu, &gpu_at, &gpu_err), gpu_err);
    thread = block(1500);
    since = hth_mono_ms();
    hth_works_leave(hth_until_ms(300));
    cr_expect(lt(u64, hth_mono_ms() - since, 1000));
    must(hth_works_enter(&gpu_err), gpu_err); /* waits until that thread has ended */
    cr_expect(eq(ptr, hth_gpu_at(0), NULL));
    must(hth_gpu_of(&own, gpu, &gpu_at, &gpu_err), gpu_err);
    pthread_join(thread, NULL);
    thread = block(4000);
    hth_works_leave(hth_until_ms(300)); /* the thread wakes and is in the call then */
    must_fail(hth_works_enter(&gpu_err), HEARTH_ETIMEOUT);
    pthread_join(thread, NULL);
    must(hth_works_enter(&gpu_err), gpu_err);
    since = hth_mono_ms();
    hth_works_leave(hth_until_ms(5000));
    cr_expect(lt(u64, hth_mono_ms() - since, 1000));
    gpu_close();
}
