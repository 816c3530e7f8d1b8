/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large a node's tmpfs must be. All code and pages that reserve, refuse, warn or document sizes
 * count by this.
 *
 *     slot   = an object's file x 17/16, rounded up to 2 MiB
 *     slots  = (keep + 1) x slot of each object of the node's ranks, and of each copy that it
 *              holds; with more than one node also one of the largest slot
 *     mount  = slots + reserve;  reserve = 1/16 of the mount, at most 64 MiB
 *
 * The reserve is for records, common objects and whatever else lies on the mount: at most half of
 * it is taken by such files, or less fits.
 */
#ifndef HEARTH_CORE_STORE_NEED_H
#define HEARTH_CORE_STORE_NEED_H

#include "core/format/sizes.h"

#define HTH_SLOT_ROUND  (UINT64_C(2) << 20) /* bytes: slots are multiples of it */

/* Slots of the largest size on each node of several, beside those of its objects: a copy that a map
 * has moved here lies in such a slot. With so many places more than when the epoch began a node
 * surely has room for the copies of a kept save, and not for saves, which need keep + 1 slots for
 * each place. So maps give each place back as soon as its node is not lost, and reaches the
 * bytes. */
#define HTH_NEED_MOVING 1u

/* The files for which a node has slots: out[], bytes of each; they return how many. The engine
 * reserves by these functions, and `hearth plan` counts by them. */
/* keep + 1 saves of the part of one rank: of the node's own, or of one whose copies it holds. */
size_t hth_need_part(const struct hth_sizes *part, uint32_t keep, uint64_t *out);
/* For readers and repair (lease_bytes and spare_bytes together); largest: of all parts. */
#define HTH_NEED_READERS 1024u
size_t hth_need_readers(uint64_t bytes, uint64_t largest, uint64_t *out);
/* Of a node of several: for a copy that a map moves here. out[HTH_NEED_MOVING] */
size_t hth_need_moving(uint32_t nodes, uint64_t largest, uint64_t *out);

/* Of a slot for a file of so many bytes. */
uint64_t hth_need_slot(uint64_t bytes);
/* Bytes that slots leave free of a mount of so many bytes; UINT64_MAX: it has no limit. */
uint64_t hth_need_reserve(uint64_t mount);
/* The least mount on which slots of so many bytes altogether fit. */
uint64_t hth_need_mount(uint64_t slots);

#endif
