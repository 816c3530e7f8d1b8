/* SPDX-License-Identifier: Apache-2.0 */
/* A box of one stored piece. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_PART_H
#define HEARTH_CLIENT_PART_H

#include "box.h"
#include "checkpoint.h"
#include "client/slots/copy.h"
#include "to_device.h"

/* Where a box goes. */
struct hth_target {
    void *dst;
    const int64_t *strides;  /* elements; NULL: C order */
    struct hth_copies *list; /* local bytes for host memory are only noted there; NULL: none is */
    struct hth_to *to;       /* the call's; NULL: it has no target in GPU memory */
    struct hth_gpu *gpu;     /* of dst, whose copies are noted in `to`; NULL: host memory */
};

/* A box counted in the item's local piece into the target. A byte string is a vector of uint8. */
int hth_read_part(struct hearth_checkpoint *c, const struct hth_entry *entry,
        const struct hth_box *box, const struct hth_target *target, struct hearth_error *err);
/* The range of the object's data that such a box lies in. 1: it is worth bringing as one. */
int hth_part_cover(
        const struct hth_entry *entry, const struct hth_box *box, uint64_t *off, uint64_t *len);

#endif
