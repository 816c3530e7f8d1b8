/* SPDX-License-Identifier: Apache-2.0 */
/* A box of one stored piece. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_PART_H
#define HEARTH_CLIENT_PART_H

#include "box.h"
#include "checkpoint.h"
#include "client/slots/copy.h"

/* A box counted in the item's local piece into dst. list: local bytes are only noted there. A byte
 * string is a vector of uint8. */
int hth_read_part(struct hearth_checkpoint *c, const struct hth_entry *entry,
        const struct hth_box *box, void *dst, const int64_t *dst_strides, struct hth_copies *list,
        struct hearth_error *err);
/* The range of the object's data that such a box lies in. 1: it is worth bringing as one. */
int hth_part_cover(
        const struct hth_entry *entry, const struct hth_box *box, uint64_t *off, uint64_t *len);

#endif
