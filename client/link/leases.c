/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which leases we have. Getting one is client/slots/lease.c's.
 *
 *     first ─► of the connection before ─► of this one ─► last
 *                └── renewed, to the end of the list ──────►┘
 */
#include "leases.h"

#include "link_parts.h"
#include <stdlib.h>

static void leases_append_locked(struct hth_link *link, struct hth_lease *lease)
{
    lease->next = NULL;
    lease->before = link->last_lease;
    *(lease->before ? &lease->before->next : &link->leases) = lease;
    link->last_lease = lease;
}

static void leases_remove_locked(struct hth_link *link, struct hth_lease *lease)
{
    *(lease->before ? &lease->before->next : &link->leases) = lease->next;
    *(lease->next ? &lease->next->before : &link->last_lease) = lease->before;
}

int hth_leases_add(struct hearth *h, const struct hth_lease *lease, uint64_t incarnation,
        struct hth_lease **out)
{
    struct hth_lease *own = malloc(sizeof(*own));
    int rc = HEARTH_OK;

    if (!own)
        return HEARTH_ENOMEM;
    *own = *lease;
    own->incarnation = incarnation;
    pthread_mutex_lock(&h->lock);
    if (incarnation == h->link->incarnation)
        leases_append_locked(h->link, own);
    else
        rc = HEARTH_EENGINE; /* the one that gave it is gone, and so is the lease */
    pthread_mutex_unlock(&h->lock);
    if (rc)
        free(own);
    else
        *out = own;
    return rc;
}

void hth_leases_drop(struct hearth *h, struct hth_lease *lease)
{
    struct hth_link *link = h->link;

    pthread_mutex_lock(&h->lock);
    leases_remove_locked(link, lease);
    if (link->renewing == lease)
        link->renewing = NULL; /* its new id is not known yet */
    else if (lease->id && lease->incarnation == link->incarnation &&
             (link->fd >= 0 || link->restoring))
        hth_give_locked(h, HTH_LOCAL_UNMAP, lease->id);
    pthread_mutex_unlock(&h->lock);
    free(lease);
}

struct hth_lease *hth_leases_renew_locked(struct hearth *h)
{
    struct hth_link *link = h->link;
    struct hth_lease *lease = link->leases;

    if (!lease || lease->incarnation == link->incarnation)
        return NULL;
    lease->incarnation = link->incarnation;
    leases_remove_locked(link, lease);
    leases_append_locked(link, lease);
    link->renewing = lease;
    return lease;
}

void hth_leases_renewed_locked(struct hearth *h, uint64_t id)
{
    struct hth_lease *lease = h->link->renewing;

    h->link->renewing = NULL;
    if (lease)
        lease->id = id;
    else if (id)
        hth_give_locked(h, HTH_LOCAL_UNMAP, id);
}
