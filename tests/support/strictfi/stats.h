/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the provider counted, and two words by which a test stops it: the file that STRICTFI_STATS
 * names, mapped by the provider and by the test. "%p" in the name stands for the process's id;
 * without it all processes count into one page.
 */
#ifndef STRICTFI_STATS_H
#define STRICTFI_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#define STRICTFI_STATS_VERSION 1u
#define STRICTFI_THREADS       32u
#define STRICTFI_ALL           UINT32_MAX /* hang_endpoint: every endpoint of the process */

struct strictfi_thread {
    _Atomic uint32_t tid; /* 0: unused */
    _Atomic uint32_t registrations;
};

struct strictfi_stats {
    _Atomic uint32_t version;

    /* Written by tests. An endpoint that hangs takes nothing and answers nothing: its peers'
     * operations never complete. The number is the first four bytes of its address. */
    _Atomic uint32_t hang_endpoint;

    _Atomic uint64_t registrations, registered_bytes, deregistrations;
    _Atomic uint64_t registering;      /* now */
    _Atomic uint64_t registering_most; /* at once */
    struct strictfi_thread threads[STRICTFI_THREADS];

    _Atomic uint64_t sends, injects, receives, reads, read_bytes; /* operations accepted */
    _Atomic uint64_t again;                                       /* -FI_EAGAIN instead */
    _Atomic uint64_t completions, errors;                         /* read by the program */
    _Atomic uint64_t discarded;                                   /* with their endpoint */

    _Atomic uint64_t polls, empty_polls; /* reads of a completion queue; without a result */
    _Atomic uint64_t turns;              /* progress of an endpoint */
    _Atomic uint64_t trywaits;           /* granted: the program goes to sleep */
    _Atomic uint64_t wakes, lost_wakes;  /* signals given, and left out */

    _Atomic uint64_t served_reads, served_bytes; /* of peers */
    _Atomic uint64_t unexpected;                 /* messages that found no receive */
    _Atomic uint64_t endpoints, endpoints_closed, addresses;
};
_Static_assert(sizeof(struct strictfi_stats) <= 4096, "one page");

#endif
