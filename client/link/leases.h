/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that stay as they are while we read them; taken again from a restarted engine. */
#ifndef HEARTH_CLIENT_LEASES_H
#define HEARTH_CLIENT_LEASES_H

#include "client/base/member.h"
#include <sys/types.h>

/* In a list: those of an earlier connection come before those of this one. */
struct hth_lease {
    struct hth_lease *next, *before;
    /* The object that is leased. These do not change. */
    struct hth_save_id save;
    uint64_t object;
    dev_t dev;
    ino_t ino;
    /* Under h->lock. */
    uint64_t id;          /* the engine's; 0: the restarted engine gave none */
    uint64_t incarnation; /* of the connection that id belongs to */
};

/* *lease is copied; *out until hth_leases_drop(). HEARTH_ENOMEM; HEARTH_EENGINE: the connection
 * that it came over is gone, and so is the lease. */
int hth_leases_add(struct hearth *h, const struct hth_lease *lease, uint64_t incarnation,
        struct hth_lease **out);
/* Forgotten, and given back to the engine. */
void hth_leases_drop(struct hearth *h, struct hth_lease *lease);

/* With h->lock held: the next lease that the engine of this connection was not asked for; from then
 * on it counts as asked for. NULL: none. The caller may release the lock while it asks the
 * engine. */
struct hth_lease *hth_leases_renew_locked(struct hearth *h);
/* With h->lock held: enters the engine's answer for that lease; 0: the engine gave none. If the
 * lease was dropped meanwhile, the new one goes back. */
void hth_leases_renewed_locked(struct hearth *h, uint64_t id);

#endif
