/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large the objects of one save of a rank are, in a fixed number of bytes: up to four sizes,
 * the largest first, each with how many objects have it. Where a save has more sizes than that,
 * those that lie nearest to the next larger one count as that one.
 */
#ifndef HEARTH_CORE_FORMAT_SIZES_H
#define HEARTH_CORE_FORMAT_SIZES_H

#include <stddef.h>
#include <stdint.h>

#define HTH_SIZES         4u
#define HTH_SIZES_OBJECTS 64u /* at most, in one save of a rank */

struct hth_sizes {
    uint64_t bytes[HTH_SIZES];
    uint32_t count[HTH_SIZES]; /* 0: no more sizes */
};

/* bytes[count], of at most HTH_SIZES_OBJECTS objects, none of 0 bytes; all zeros where count is
 * 0. */
void hth_sizes_of(struct hth_sizes *out, const uint64_t *bytes, size_t count);
uint32_t hth_sizes_objects(const struct hth_sizes *s);
/* 1: as hth_sizes_of() makes them. */
int hth_sizes_are(const struct hth_sizes *s);

#endif
