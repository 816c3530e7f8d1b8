/* SPDX-License-Identifier: Apache-2.0 */
/* The changes that rm makes in `.hearth/keep`. */
/* For this folder alone. */
#ifndef CLI_FORGET_H
#define CLI_FORGET_H

#include "cli.h"
#include <sys/types.h>

/* This save leaves the keep list; `id` NULL: all saves of the step do. A save with a row stays: it
 * lies here (rows NULL: wherever it lies). The job's lock is held; the record stays the owner's.
 * *out_count: how many have left. No record is no list. Errors: HEARTH_EUNSUPPORTED (another
 * version's; nothing is touched), HEARTH_EIO, HEARTH_ENOMEM. */
int forget_saves(int records, uid_t owner, const struct hth_save_id *id, uint64_t step,
        const struct save_row *rows, int *out_count, struct hearth_error *err);

#endif
