/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pulls of the library's connections (pulls.c). A failed pull waits for the endpoint's close, like
 * a pull that never completes, so that nothing writes to its destination after on_pull().
 */
#include "ofi.h"

static void read_post(struct hth_ofi_conn *c, uint32_t index)
{
    struct hth_ofi_pull *p = &c->link.pull[index];
    const struct hth_ofi *o = c->link.o;
    size_t most = o->info->ep_attr->max_msg_size;
    ssize_t rc = -FI_EAGAIN;

    if (o->sockets && most > HTH_OFI_SIP)
        most = HTH_OFI_SIP;
    p->piece = p->left < most ? p->left : most;
    if (hth_ofi_conn_has_room(c, HTH_OFI_PULL))
        rc = fi_read(c->ep, p->into, p->piece, fi_mr_desc(p->region->mr), FI_ADDR_UNSPEC, p->from,
                p->key, hth_ofi_context(c, HTH_OFI_PULL, index));
    hth_ofi_pull_move_to(&c->link, p, rc ? HTH_OFI_PULL_WAITS : HTH_OFI_PULL_POSTED);
    if (rc)
        hth_ofi_conn_refused(c, rc);
    else
        hth_ofi_conn_hold(c, HTH_OFI_PULL);
}

void hth_ofi_pull_post(struct hth_ofi_link *c, uint32_t index)
{
    read_post((struct hth_ofi_conn *)c, index);
}

void hth_ofi_pulls_post(struct hth_ofi_conn *c)
{
    const struct hth_ofi_link *link = &c->link;

    for (uint32_t i = 0; link->pulls && link->state == HTH_OFI_UP && i < HTH_OFI_RING; i++)
        if (link->pull[i].state == HTH_OFI_PULL_WAITS)
            read_post(c, i);
}

void hth_ofi_pulled(struct hth_ofi_conn *c, uint32_t index)
{
    struct hth_ofi_pull *p = &c->link.pull[index];

    if (p->state != HTH_OFI_PULL_POSTED)
        return;
    if (hth_ofi_pull_came(&c->link, p) && c->link.code != HEARTH_ECANCELED)
        hth_ofi_pull_complete(&c->link, p, HEARTH_OK);
    else if (c->link.state == HTH_OFI_UP)
        read_post(c, index);
    else
        hth_ofi_pull_move_to(&c->link, p, HTH_OFI_PULL_FAILED);
}
