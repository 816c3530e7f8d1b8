/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies from a device at a limited rate, `mib_s` of their work's owner, so that training beside
 * them has its part of the link and of the memory. The thread of work.c enqueues at most 16 MiB at
 * once, and the next ones when the time for these is over: from the first one on, no more than
 * 16 MiB + rate * time are enqueued. Under the lock of works, but hth_pace_copy().
 */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_PACE_H
#define HEARTH_CLIENT_PACE_H

#include "work_parts.h"

uint64_t hth_pace_now_us(void);
/* Until the job's next copies may be enqueued; 0: now. */
uint64_t hth_pace_wait_us(const struct hth_gpu *gpu, const struct hth_ring_job *job);
/* Copies of the job were enqueued, from `now_us` on, as which it had taken `before` bytes. */
void hth_pace_took(
        struct hth_gpu *gpu, const struct hth_ring_job *job, uint64_t before, uint64_t now_us);
/* Enqueues the next 16 MiB of a job into pinned memory, and the event behind them, as
 * hth_gpu_copy(). For the thread of work.c alone. */
int hth_pace_copy(struct hth_gpu *gpu, void *event, struct hth_ring_job *job, int *out_unmarked,
        struct hearth_error *err);

#endif
