/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of this node that are read: they stay as they are until the lease is given back. */
#ifndef HEARTH_CLIENT_LEASE_H
#define HEARTH_CLIENT_LEASE_H

#include "client/link/link.h"

struct hth_lease;

/* An object here: *out_fd is the caller's, *out_lease until hth_lease_put(). HEARTH_ENOENT: not
 * here. */
int hth_lease_get(struct hearth *h, struct hth_save_id save, uint64_t object,
        struct hth_local_mapped *out, int *out_fd, struct hth_lease **out_lease,
        struct hearth_error *err);
/* The two halves of it, for many at once: what to ask; the lease `id` that was answered on the
 * connection `incarnation`, with the object's descriptor, which stays the caller's. */
struct hth_ask hth_lease_ask(struct hth_local_map *m, struct hth_local_mapped *out, int *out_fd);
int hth_lease_enter(struct hearth *h, struct hth_save_id save, uint64_t object, uint64_t id,
        uint64_t incarnation, int fd, struct hth_lease **out_lease, struct hearth_error *err);
void hth_lease_put(struct hearth *h, struct hth_lease *lease);

#endif
