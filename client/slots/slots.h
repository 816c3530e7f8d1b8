/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that the engine lent, mapped. */
#ifndef HEARTH_CLIENT_SLOTS_H
#define HEARTH_CLIENT_SLOTS_H

#include "client/base/member.h"
#include "core/format/table.h"
#include <sys/types.h>

struct hth_slot_map { /* a slot of the engine's, mapped for writing; kept until close */
    struct hth_slot_map *next;
    dev_t dev;
    ino_t ino;
    unsigned char *base;
    uint64_t bytes;
    uint32_t users; /* saves that write into it now */
};

/* Bytes of a file that holds these payload bytes and table records, wherever they are cut and whatever
 * the integrity is. */
static inline uint64_t hth_file_bytes(uint64_t bytes)
{
    return 2 * HTH_BLOCK + bytes + hth_table_bytes(bytes, 0, 1);
}

/* The mapping of a lent slot, at least `bytes` long; fd stays the caller's. touch: they
 * are about to be written. */
int hth_slot_get(struct hearth *h, int fd, uint64_t bytes, int touch, struct hth_slot_map **out,
        struct hearth_error *err);
void hth_slot_put(struct hearth *h, struct hth_slot_map *slot);
void hth_slots_fini(struct hearth *h);

#endif
