/* SPDX-License-Identifier: Apache-2.0 */
/* The next event: first due first and, of one time, first pushed first. Needs no memory of its
 * own. */
/* For this folder alone. */
#ifndef HEARTH_TRANSPORT_LOOP_HEAP_H
#define HEARTH_TRANSPORT_LOOP_HEAP_H

#include <stddef.h>
#include <stdint.h>

/* Embedded in what waits; in one heap at a time. */
struct hth_due {
    uint64_t ms;
    uint64_t seq;
    struct hth_due *child, *next;
};

/* A heap is a pointer to its first; NULL: empty. */
void hth_heap_push(struct hth_due **heap, struct hth_due *due);
struct hth_due *hth_heap_pop(struct hth_due **heap); /* NULL: empty */

#endif
