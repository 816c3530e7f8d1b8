/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Incoming packets: from any sender, out of order, twice. The packets of a connection are put in
 * order, and each goes to its receiver. The window is that of rdm_stream.c.
 */
#include "rdm.h"

#include <stdlib.h>
#include <string.h>

/* Adds a packet to a message of several packets. */
static int message_grow(
        struct hth_rdm_conn *c, const struct hth_rdm_head *h, const unsigned char *bytes)
{
    struct hth_ofi *o = &c->r->o;
    uint32_t len = c->whole_len + h->len;

    if (!c->whole)
        c->whole = malloc(HTH_MESSAGE_MAX);
    if (!c->whole)
        return HEARTH_ENOMEM;
    memcpy(c->whole + c->whole_len, bytes, h->len);
    c->whole_len = h->more ? len : 0;
    if (!h->more)
        o->events.on_message(o->events.self, c->link.id, c->whole, len);
    return HEARTH_OK;
}

static int message_take(
        struct hth_rdm_conn *c, const struct hth_rdm_head *h, const unsigned char *bytes)
{
    struct hth_ofi *o = &c->r->o;

    if (h->len > HTH_MESSAGE_MAX - c->whole_len)
        return HEARTH_EPROTO;
    if (h->more || c->whole_len)
        return message_grow(c, h, bytes);
    o->events.on_message(o->events.self, c->link.id, bytes, h->len);
    return HEARTH_OK;
}

/* Takes the packet whose turn it is. */
static void packet_take(
        struct hth_rdm_conn *c, const struct hth_rdm_head *h, const unsigned char *bytes)
{
    int rc = HEARTH_EPROTO;

    c->in_seq++;
    if (h->kind == HTH_RDM_ACCEPT)
        rc = hth_rdm_accepted(c, bytes, h->len);
    else if (c->link.state != HTH_OFI_UP)
        rc = HEARTH_EPROTO;
    else if (h->kind == HTH_RDM_DATA)
        rc = message_take(c, h, bytes);
    else if (h->kind == HTH_RDM_PULL_FROM)
        rc = hth_rdm_reader_told(c, bytes, h->len);
    else if (h->kind == HTH_RDM_PULL_OK)
        rc = hth_rdm_reader_taken(c, bytes, h->len);
    else if (h->kind == HTH_RDM_GRANTS)
        rc = hth_ofi_words_heard(&c->r->o, c->link.id, bytes, h->len);
    else if (h->kind == HTH_RDM_BYE) {
        hth_rdm_conn_leave(c, HEARTH_EPEER, "the peer has closed the connection", 0);
        return;
    }
    if (rc)
        hth_rdm_conn_leave(c, rc, "the peer does not keep to the protocol", 1);
}

static void packet_keep(
        struct hth_rdm_conn *c, uint64_t seq, const unsigned char *bytes, size_t len)
{
    struct hth_rdm_early **place = &c->early[seq % HTH_RDM_WINDOW];

    if (*place)
        return; /* it came twice */
    *place = malloc(sizeof(**place) + len);
    if (!*place) {
        hth_rdm_conn_leave(c, HEARTH_ENOMEM, "no memory for a packet", 1);
        return;
    }
    (*place)->len = (uint32_t)len;
    memcpy((*place)->bytes, bytes, len);
}

static void early_take(struct hth_rdm_conn *c)
{
    while (c->link.state == HTH_OFI_UP && c->early[c->in_seq % HTH_RDM_WINDOW]) {
        struct hth_rdm_early *early = c->early[c->in_seq % HTH_RDM_WINDOW];
        struct hth_rdm_head h;

        c->early[c->in_seq % HTH_RDM_WINDOW] = NULL;
        if (!hth_rdm_head_read(early->bytes, early->len, &h))
            packet_take(c, &h, early->bytes + HTH_RDM_HEAD);
        free(early);
    }
}

static void packet_order(struct hth_rdm_conn *c, const struct hth_rdm_head *h,
        const unsigned char *bytes, size_t len)
{
    uint64_t ahead = h->seq - c->in_seq;

    if (h->seq < c->in_seq)
        return; /* it came twice */
    if (ahead >= HTH_RDM_WINDOW) {
        hth_rdm_conn_leave(c, HEARTH_EPROTO, "a packet is too far ahead", 1);
    } else if (ahead) {
        packet_keep(c, h->seq, bytes, len);
    } else {
        packet_take(c, h, bytes + HTH_RDM_HEAD);
        early_take(c);
    }
    if (c->in_seq - c->in_told >= HTH_RDM_WINDOW / 2)
        c->want_ack = 1;
}

void hth_rdm_received(struct hth_rdm *r, const unsigned char *bytes, size_t len)
{
    struct hth_rdm_conn *c;
    struct hth_rdm_head h;

    if (hth_rdm_head_read(bytes, len, &h))
        return; /* any program may have sent it */
    if (h.kind == HTH_RDM_OPEN) {
        hth_rdm_greeted(r, bytes + HTH_RDM_HEAD, h.len);
        return;
    }
    c = hth_rdm_conn_get(r, h.to);
    if (!c || c->token != h.token || c->link.state == HTH_OFI_LEAVING ||
            c->link.state == HTH_OFI_DOOMED)
        return;
    if (h.ack > c->out_ack && h.ack <= c->out_seq)
        c->out_ack = h.ack;
    if (c->link.state == HTH_OFI_HALF_OPEN)
        hth_rdm_conn_up(c); /* the peer has the answer */
    if (h.kind != HTH_RDM_ACK && (c->link.state == HTH_OFI_UP || c->link.state == HTH_OFI_DIALLED))
        packet_order(c, &h, bytes, len);
    hth_rdm_sent(c);
}
