/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the engine's, seen from here: slots that were lent, objects that are leased. */
#ifndef HEARTH_CLIENT_SLOTS_H
#define HEARTH_CLIENT_SLOTS_H

#include "client/link/link.h"
#include "core/format/table.h"

struct hth_slot_map { /* a slot of the engine's, mapped for writing; kept until close */
    struct hth_slot_map *next;
    dev_t dev;
    ino_t ino;
    unsigned char *base;
    uint64_t bytes;
    uint32_t users; /* saves that write into it now */
};

/* Bytes of a file that holds these payload bytes and table records, wherever they are cut. */
static inline uint64_t hth_file_bytes(uint64_t bytes)
{
    return 2 * HTH_BLOCK + bytes + hth_table_bytes(bytes, 0);
}

/* The mapping of a lent slot, at least `bytes` long; fd stays the caller's. touch: they
 * are about to be written. */
int hth_slot_get(struct hearth *h, int fd, uint64_t bytes, int touch, struct hth_slot_map **out,
        struct hearth_error *err);
void hth_slot_put(struct hearth *h, struct hth_slot_map *slot);
void hth_slots_fini(struct hearth *h);

/* An object here: *out_fd is the caller's, *out_number for hth_lease_put(). HEARTH_ENOENT: not here. */
int hth_lease_get(struct hearth *h, struct hth_save_id save, uint64_t object,
        struct hth_local_mapped *out, int *out_fd, uint64_t *out_number, struct hearth_error *err);
/* The two halves of it, for many at once: what to ask; the lease `id` that was answered on the
 * connection `incarnation`, with the object's descriptor, which stays the caller's. */
struct hth_ask hth_lease_ask(struct hth_local_map *m, struct hth_local_mapped *out, int *out_fd);
int hth_lease_enter(struct hearth *h, struct hth_save_id save, uint64_t object, uint64_t id,
        uint64_t incarnation, int fd, uint64_t *out_number, struct hearth_error *err);
void hth_lease_put(struct hearth *h, uint64_t number);

#endif
