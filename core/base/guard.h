/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings of files that another program may cut short while we read or write them. The size is
 * looked at before, where that can be; between the look and the last byte a cut is SIGBUS, in our
 * own loops, in the transport's libraries and in the kernel's copies alike. A process that owns its
 * signals calls hth_guard_patch() in its handler: zeros take the place of what is gone, checksums
 * find them, and the slot is seen to be broken when its size is looked at next. In a process that
 * is not ours there is no handler.
 */
#ifndef HEARTH_CORE_BASE_GUARD_H
#define HEARTH_CORE_BASE_GUARD_H

#include <stdint.h>

void hth_guard_add(void *base, uint64_t len); /* at a multiple of the page size; any thread */
void hth_guard_remove(void *base);            /* before munmap(); NULL: nothing */

/* Zeros of our own from the page of `at` to its mapping's end. 1: go on; 0: it is none of these
 * mappings. In a signal handler, on any thread. */
int hth_guard_patch(void *at);

#endif
