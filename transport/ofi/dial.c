/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How connections begin: dialled or accepted. Both have their receives posted before they are up.
 * dialler.c makes the endpoint of a dialled connection; then dialling goes on here.
 */
#include "ofi.h"

#include <stdlib.h>
#include <string.h>

static struct fi_info *dial_info(struct hth_ofi *o, const union hth_addr *peer)
{
    struct fi_info *info = o->lib->dupinfo(o->info);
    union hth_addr *src;
    size_t len = hth_addr_len(peer);

    if (!info)
        return NULL;
    free(info->dest_addr);
    info->dest_addr = malloc(len);
    free(info->src_addr);
    info->src_addr = src = malloc(sizeof(*src));
    if (!info->dest_addr || !src) {
        o->lib->freeinfo(info);
        return NULL;
    }
    memcpy(info->dest_addr, peer, len);
    info->dest_addrlen = len;
    *src = o->self;
    src->in.sin_port = 0; /* from this node's address, but not from its listening port */
    info->src_addrlen = len;
    return info;
}

/* A lack of endpoints or descriptors on this node gets another code, since the peer is not the
 * cause. */
static int dial_code(int rc)
{
    return hth_ofi_is_used_up(rc) ? HEARTH_EBUSY : HEARTH_EPEER;
}

static void dial_go_on(struct hth_ofi_conn *c, struct hth_ofi_dial *dial)
{
    struct hth_ofi *o = c->link.o;
    int rc = dial->rc ? dial->rc : hth_ofi_endpoint_enable(o, dial->ep);

    if (!rc)
        c->ep = dial->ep;
    if (!rc)
        rc = hth_ofi_message_init(c);
    if (!rc)
        rc = fi_connect(c->ep, dial->info->dest_addr, NULL, 0);
    hth_ofi_fds_seal(NULL, &o->self);
    if (rc)
        hth_ofi_conn_doom(c, dial_code(rc), o->lib->strerror(-rc));
}

int hth_ofi_dials_take(struct hth_ofi *o)
{
    return hth_ofi_dialled(o, dial_go_on);
}

int hth_ofi_connect(struct hth_transport *t, const unsigned char *addr, uint32_t len,
        hth_conn *out_conn, struct hearth_error *err)
{
    struct hth_ofi *o = hth_ofi_of(t);
    struct hth_ofi_conn *c;
    struct fi_info *info;
    union hth_addr peer;
    int rc = hth_addr_unpack(addr, len, &o->self, &peer, err);

    if (rc)
        return rc;
    if (o->closing)
        return hth_fail(err, HEARTH_ECANCELED, 0, "the transport is being closed");
    c = hth_ofi_conn_new(o, HTH_OFI_DIALLED, &peer);
    if (!c)
        return hth_fail(err, HEARTH_EBUSY, 0,
                "no memory for a connection, or %u connections stand already", o->base.conns_max);
    c->link.dialled = c->link.known = 1;
    info = dial_info(o, &peer);
    rc = info ? hth_ofi_dial(o, c, info) : -FI_ENOMEM;
    if (rc)
        hth_ofi_conn_doom(c, dial_code(rc), o->lib->strerror(-rc));
    *out_conn = c->link.id;
    return HEARTH_OK;
}

void hth_ofi_accept(struct hth_ofi *o, struct fi_info *info)
{
    union hth_addr peer = { 0 };
    struct hth_ofi_conn *c;
    int rc = -FI_ENOMEM;

    if (info->dest_addr)
        memcpy(&peer, info->dest_addr,
                info->dest_addrlen < sizeof(peer) ? info->dest_addrlen : sizeof(peer));
    c = hth_ofi_conn_new(o, HTH_OFI_HALF_OPEN, &peer);
    if (c)
        rc = hth_ofi_endpoint(o, info, &c->ep);
    if (!rc)
        rc = hth_ofi_message_init(c);
    if (!rc)
        rc = fi_accept(c->ep, NULL, 0);
    if (rc) {
        /* The request stays this side's until it is accepted, even if an endpoint was made of
         * it. */
        fi_reject(o->pep, info->handle, NULL, 0);
        hth_say(&o->log, HEARTH_LOG_WARN, "ofi-accept", "a connection was not accepted: %s",
                o->lib->strerror(-rc));
        if (c)
            hth_ofi_conn_doom(c, HEARTH_EPEER, "not accepted");
    }
    o->lib->freeinfo(info);
    hth_ofi_fds_seal(NULL, &o->self);
}
