/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots of this process and objects that it reads, registered with the GPU's driver ("pinned"), so
 * that the copy engine uses them at the link's rate. A thread of its own makes all driver calls for
 * that: one may hold locks of the driver for a second and more, and every process of the machine
 * waits for them.
 *
 *     hth_pin_open ─► queued ─► parts of at most 1 GiB, with pauses ─► pinned
 *                                   │ refused at part n                │ hth_pin_close
 *                                   └► n-1, ..., 0 undone ─► refused   └► undone ─► unmapped
 *
 * The thread runs while there are pins. It blocks all signals. Functions are good in any thread.
 */
#ifndef HEARTH_CLIENT_PIN_H
#define HEARTH_CLIENT_PIN_H

#include "driver.h"

struct hth_device;
struct hth_pin;

/* Queues a mapping of a slot, whose data begins at byte HTH_BLOCK; reads: one that is only read.
 * The mapping is the pin's from here on. NULL: no memory, or the driver pins no such mapping; the
 * mapping is the caller's then. */
struct hth_pin *hth_pin_open(struct hth_device *of, void *base, uint64_t bytes, int reads);

/* Bytes from `at` on to the end of the registration that `at` lies in: no copy may go beyond. 0:
 * the mapping is not pinned (yet), and copies go through the ring. NULL is fine. */
uint64_t hth_pin_reach(const struct hth_pin *pin, const void *at);

/* Undoes it and unmaps the mapping, soon. The mapping is not used any more. */
void hth_pin_close(struct hth_pin *pin);

/* The membership ends, and its mappings stay: `of` is not used any more. */
void hth_pins_forget(const struct hth_device *of);

/* Waits until no mapping waits to be undone. 1: none does; 0: the time is over. */
int hth_pins_closed(uint64_t until_ms);

#endif
