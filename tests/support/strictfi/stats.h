/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider's counters: the file that STRICTFI_STATS names, mapped by the provider and by the
 * test. "%p" in the name stands for the process's id; without it all processes count into one page.
 */
#ifndef STRICTFI_STATS_H
#define STRICTFI_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#define STRICTFI_STATS_VERSION 1u
#define STRICTFI_THREADS       32u

struct strictfi_thread {
    _Atomic uint32_t tid; /* 0: unused */
    _Atomic uint32_t registrations;
};

struct strictfi_stats {
    _Atomic uint32_t version;

    _Atomic uint64_t registrations, registered_bytes, deregistrations;
    _Atomic uint64_t registering;      /* now */
    _Atomic uint64_t registering_most; /* at once */
    struct strictfi_thread threads[STRICTFI_THREADS];

    _Atomic uint64_t lost_wakes; /* signals left out */
};
_Static_assert(sizeof(struct strictfi_stats) <= 4096, "one page");

#endif
