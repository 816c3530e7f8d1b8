/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's side of a GPU: a real one through libcuda.so.1, or that of tests/support/fakegpu.
 * Calls that fail end the program with the driver's number. */
#ifndef HEARTH_TESTS_GPU_DEVICE_H
#define HEARTH_TESTS_GPU_DEVICE_H

#include <stddef.h>
#include <stdint.h>

/* Device 0 and its primary context, current in this thread. 0, or -1 and why there is none. fake:
 * the library that is found must be the tests' own; without it, it must not be. */
int gpu_start(int fake, char *why, size_t len);
const char *gpu_name(void); /* of the device, with the driver's version */
uint64_t gpu_room(void);    /* bytes of its memory that are free; the call takes driver locks */

uint64_t gpu_alloc(uint64_t bytes);
void gpu_free(uint64_t at);
void gpu_put(uint64_t at, const void *from, uint64_t bytes); /* returns when it is done */
void gpu_get(void *to, uint64_t at, uint64_t bytes);         /* likewise */
void gpu_pin(void *host, uint64_t bytes);
void gpu_unpin(void *host);

void *gpu_stream(void);
void gpu_wait(void *stream);
void gpu_out(void *stream, void *to, uint64_t at, uint64_t bytes);
void gpu_in(void *stream, uint64_t at, const void *from, uint64_t bytes);
void gpu_set(void *stream, uint64_t at, int value, uint64_t bytes);
/* Training: reads and writes these bytes so many times. */
void gpu_work(void *stream, uint64_t at, uint64_t bytes, unsigned times);

#endif
