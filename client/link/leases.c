/* SPDX-License-Identifier: Apache-2.0 */
/* Which leases we have. Getting one is client/slots/lease.c's. */
#include "leases.h"

#include "link_parts.h"
#include <stdlib.h>

int hth_leases_add(
        struct hearth *h, const struct hth_lease *lease, uint64_t incarnation, uint64_t *out_number)
{
    struct hth_lease *own = malloc(sizeof(*own));
    int rc = HEARTH_OK;

    if (!own)
        return HEARTH_ENOMEM;
    *own = *lease;
    pthread_mutex_lock(&h->lock);
    if (incarnation == h->link->incarnation) {
        *out_number = own->number = ++h->link->numbers;
        own->incarnation = incarnation;
        own->next = h->link->leases;
        h->link->leases = own;
    } else {
        rc = HEARTH_EENGINE; /* the one that gave it is gone, and so is the lease */
    }
    pthread_mutex_unlock(&h->lock);
    if (rc)
        free(own);
    return rc;
}

void hth_leases_drop(struct hearth *h, uint64_t number)
{
    struct hth_lease **at, *lease;

    pthread_mutex_lock(&h->lock);
    at = &h->link->leases;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    lease = *at;
    if (lease)
        *at = lease->next;
    if (lease && h->link->fd >= 0 && lease->incarnation == h->link->incarnation)
        hth_give_locked(h, HTH_LOCAL_UNMAP, lease->id);
    pthread_mutex_unlock(&h->lock);
    free(lease);
}
