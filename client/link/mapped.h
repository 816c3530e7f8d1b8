/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that the engine lent, mapped. */
#ifndef HEARTH_CLIENT_MAPPED_H
#define HEARTH_CLIENT_MAPPED_H

#include "client/base/member.h"
#include "core/format/table.h"
#include <sys/types.h>

struct hth_pin;

/* A slot of the engine's, mapped for writing. It stays mapped while its connection lasts. */
struct hth_slot_map {
    struct hth_slot_map *next;
    dev_t dev;
    ino_t ino;
    uint64_t slot;        /* the engine's number for it */
    uint64_t incarnation; /* of the connection that its descriptor came over */
    unsigned char *base;
    uint64_t bytes;
    uint32_t users;      /* saves that write into it now */
    int let_go;          /* the engine wants it unmapped once no save needs it */
    struct hth_pin *pin; /* registered with the GPU's driver, or about to be; NULL: not so */
};

/* A slot as the engine's answer LENT describes it; fd stays the caller's. */
struct hth_slot_lent {
    uint64_t slot, incarnation;
    int fd;
};

/* Bytes of a file that holds these payload bytes and table records, wherever they are cut and
 * whatever the integrity is. */
static inline uint64_t hth_file_bytes(uint64_t bytes)
{
    return 2 * HTH_BLOCK + bytes + hth_table_bytes(bytes, 0, 1);
}

/* The mapping of a lent slot, at least `bytes` long. touch: they are about to be written. */
int hth_slot_get(struct hearth *h, const struct hth_slot_lent *lent, uint64_t bytes, int touch,
        struct hth_slot_map **out, struct hearth_error *err);
void hth_slot_put(struct hearth *h, struct hth_slot_map *slot);
/* One more that needs it: hth_slot_put(). */
void hth_slot_hold(struct hearth *h, struct hth_slot_map *slot);
/* Has it pinned soon, if this rank saves GPU memory (h->device) and the option `pin` allows it. */
void hth_slot_pin(struct hearth *h, struct hth_slot_map *slot);
/* Unmaps what the engine waits for and no save needs. Before a slot is asked for. */
void hth_slots_let_go(struct hearth *h);
void hth_slots_fini(struct hearth *h);

/* With h->lock held: the same of all mappings of earlier connections, taken out of the list;
 * hth_slots_unmap() without the lock. */
struct hth_slot_map *hth_slots_old_locked(struct hearth *h);
void hth_slots_unmap(struct hth_slot_map *list);
/* With h->lock held: the engine requires that this slot be unmapped; _all: perhaps any slot. */
void hth_slot_let_go_locked(struct hearth *h, uint64_t slot);
void hth_slots_let_go_all_locked(struct hearth *h);

#endif
