/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of callers: arrays of structs of any age, steps, sizes. */
#ifndef HEARTH_CLIENT_ARGS_H
#define HEARTH_CLIENT_ARGS_H

#include <hearth/error.h>
#include <stddef.h>
#include <stdint.h>

/* It is a step, or `but`, the one constant that the call takes as well (0: none). */
int hth_step_check(uint64_t step, uint64_t but, struct hearth_error *err);

/* Element i of a caller's array of structs `what` of any age, whose first one's struct_size is the
 * stride: *out is it, or mine[size] filled from it. */
int hth_array_at(const void **out, void *mine, size_t size, const void *array, size_t i,
        const char *what, struct hearth_error *err);

/* The sum, or UINT64_MAX where it is more: callers' sizes are added up before they are believed. */
static inline uint64_t hth_add_up(uint64_t a, uint64_t b)
{
    return a < UINT64_MAX - b ? a + b : UINT64_MAX;
}

#endif
