/* SPDX-License-Identifier: Apache-2.0 */
/* Copies in the fewest dimensions: for cuda.c and hip.c. */
#ifndef HEARTH_CLIENT_FOLD_H
#define HEARTH_CLIENT_FOLD_H

#include "client/device/driver.h"

/* Merges what is contiguous on both sides into longer rows and fewer of them. `most`: the largest
 * step that the driver's copies of rows can do. Afterwards rows 1 and planes 1: one run of `width`
 * bytes; planes 1: rows that a driver's copy of rows can do. In that case, and where planes > 1,
 * *out_rows is 1; it is 0 if the driver's copy of rows cannot do the steps, so that each row has
 * to be copied alone. A copy of nothing has width 0. */
void hth_copy_fold(struct hth_device_copy *copy, uint64_t most, int *out_rows);

/* One plane, or one row, of a folded copy. */
struct hth_device_copy hth_copy_plane(const struct hth_device_copy *copy, uint64_t plane);
struct hth_device_copy hth_copy_row(const struct hth_device_copy *copy, uint64_t row);

#endif
