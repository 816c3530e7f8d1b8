/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that stay as they are while we read them; taken again from a restarted engine. */
#ifndef HEARTH_CLIENT_LEASES_H
#define HEARTH_CLIENT_LEASES_H

#include "client/base/member.h"
#include <sys/types.h>

struct hth_lease {
    struct hth_lease *next;
    struct hth_save_id save;
    uint64_t object;
    uint64_t id, number;  /* the engine's, and ours */
    uint64_t incarnation; /* of the connection that id belongs to */
    dev_t dev;
    ino_t ino;
};

/* *lease is copied, its number is ours to give. HEARTH_ENOMEM; HEARTH_EENGINE: the connection that
 * it came over is gone, and so is the lease. */
int hth_leases_add(struct hearth *h, const struct hth_lease *lease, uint64_t incarnation,
        uint64_t *out_number);
/* Forgotten, and given back to the engine. */
void hth_leases_drop(struct hearth *h, uint64_t number);

#endif
