/* SPDX-License-Identifier: Apache-2.0 */
#include "pace.h"

#include <time.h>

#define AT_ONCE 4096u /* copies */

static struct hth_device_copy pace_list[AT_ONCE]; /* the thread's */

uint64_t hth_pace_now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t hth_pace_wait_us(const struct hth_gpu *gpu, const struct hth_ring_job *job)
{
    uint64_t now;

    if (!job->work->owner.mib_s || !gpu->due_us)
        return 0;
    now = hth_pace_now_us();
    return gpu->due_us > now ? gpu->due_us - now : 0;
}

void hth_pace_took(
        struct hth_gpu *gpu, const struct hth_ring_job *job, uint64_t before, uint64_t now_us)
{
    uint64_t rate = (uint64_t)job->work->owner.mib_s << 20;

    if (rate)
        gpu->due_us = now_us + ((job->taken - before) * 1000000 + rate - 1) / rate;
}

int hth_pace_copy(struct hth_gpu *gpu, void *event, struct hth_ring_job *job, int *out_unmarked,
        struct hearth_error *err)
{
    uint64_t room = HTH_RING_BYTES;
    size_t count = 0, bad;

    while (count < AT_ONCE && room && job->at < job->count)
        room -= hth_ring_job_next(job, room, &pace_list[count++]);
    return hth_gpu_copy(
            gpu, job->work->owner.way, event, pace_list, count, &bad, out_unmarked, err);
}
