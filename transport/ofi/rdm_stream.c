/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages over packets, which the fabric may bring in any order. A packet has a number when the
 * library takes it; the receiver puts the numbers in order again, and says now and then up to where
 * it has come. The sender is never more than a window ahead of that, so what comes early has room.
 * A message longer than a packet goes in several.
 */
#include "rdm.h"

#include <stdlib.h>
#include <string.h>

#define WRITABLE (HTH_RDM_KEPT / 4) /* free places before on_writable() */

/* ---- sending ---- */

int hth_rdm_queue(struct hth_rdm_conn *c, enum hth_rdm_kind kind, const void *bytes, size_t len)
{
    struct hth_rdm_out *out = malloc(sizeof(*out) + len);

    if (!out)
        return HEARTH_ENOMEM;
    *out = (struct hth_rdm_out){ .kind = kind, .len = (uint32_t)len };
    if (len)
        memcpy(out->bytes, bytes, len);
    c->owed += kind == HTH_RDM_PULL_OK;
    *c->out_end = out;
    c->out_end = &out->next;
    return HEARTH_OK;
}

/* 0 or -fi_errno; -FI_EAGAIN where too much is under way. */
static ssize_t packet_post(struct hth_rdm_conn *c, struct hth_rdm_head *head, const void *bytes)
{
    struct hth_rdm_end *e = &c->r->home;
    struct hth_rdm_op *op = hth_rdm_op_take(e, c->peer, c->link.id, 0);
    ssize_t rc;

    if (!op)
        return -FI_EAGAIN;
    head->to = c->peer_id;
    head->token = c->peer_token;
    head->ack = c->in_seq;
    hth_rdm_head_write(head, op->bytes);
    if (head->len)
        memcpy(op->bytes + HTH_RDM_HEAD, bytes, head->len);
    rc = fi_send(e->ep, op->bytes, HTH_RDM_HEAD + head->len, e->mr ? fi_mr_desc(e->mr) : NULL,
            c->peer->home, op);
    if (rc) {
        hth_rdm_op_give(op);
        return rc;
    }
    c->sends++;
    c->in_told = c->in_seq;
    c->want_ack = 0;
    hth_rdm_conn_taken(c);
    return 0;
}

static ssize_t greeting_post(struct hth_rdm_conn *c)
{
    struct hth_rdm_hello hello = {
        .id = c->link.id, .token = c->token, .packet = c->r->packet, .addr_len = c->r->address_len
    };
    unsigned char bytes[HTH_RDM_LEAST];
    struct hth_rdm_head head = { .kind = HTH_RDM_OPEN };
    ssize_t rc;

    memcpy(hello.addr, c->r->address, c->r->address_len);
    head.len = (uint32_t)hth_rdm_hello_write(&hello, bytes);
    rc = packet_post(c, &head, bytes);
    c->greeted = !rc;
    return rc;
}

static void out_drop_first(struct hth_rdm_conn *c)
{
    struct hth_rdm_out *out = c->out;

    c->kept -= out->kind == HTH_RDM_DATA;
    c->owed -= out->kind == HTH_RDM_PULL_OK;
    c->words -= out->kind == HTH_RDM_GRANTS;
    c->out = out->next;
    if (!c->out)
        c->out_end = &c->out;
    free(out);
}

static ssize_t out_post_first(struct hth_rdm_conn *c)
{
    struct hth_rdm_out *out = c->out;
    uint32_t room = c->packet - HTH_RDM_HEAD, left = out->len - out->sent;
    struct hth_rdm_head head = {
        .kind = out->kind, .more = left > room, .len = left > room ? room : left, .seq = c->out_seq
    };
    ssize_t rc = packet_post(c, &head, out->bytes + out->sent);

    if (rc)
        return rc;
    c->out_seq++;
    out->sent += head.len;
    if (!head.more)
        out_drop_first(c);
    return 0;
}

/* At most one packet of words is queued at a time. Its words fit into the shortest packet. */
static void words_queue(struct hth_rdm_conn *c)
{
    unsigned char bytes[HTH_RDM_LEAST - HTH_RDM_HEAD];
    size_t len;

    if (c->link.state != HTH_OFI_UP || !c->link.grants.words || c->words)
        return;
    len = hth_ofi_words_take(&c->link.grants, bytes, sizeof(bytes));
    if (hth_rdm_queue(c, HTH_RDM_GRANTS, bytes, len))
        hth_rdm_conn_leave(c, HEARTH_ENOMEM, "no memory for words about grants", 1);
    else
        c->words = 1;
}

void hth_rdm_grants_flush(struct hth_ofi *o, hth_conn conn)
{
    struct hth_rdm_conn *c = hth_ids_get(&o->conns, conn);

    if (c)
        hth_rdm_flush(c);
}

void hth_rdm_flush(struct hth_rdm_conn *c)
{
    ssize_t rc = 0;

    words_queue(c);

    if (c->link.state == HTH_OFI_DIALLED) {
        rc = c->greeted ? 0 : greeting_post(c);
        if (rc)
            hth_rdm_conn_refused(c, rc);
        return;
    }
    if (c->link.state != HTH_OFI_UP && c->link.state != HTH_OFI_HALF_OPEN)
        return;
    while (!rc && c->out && c->sends < HTH_RDM_EACH &&
            c->out_seq - c->out_ack < HTH_RDM_WINDOW - 1) /* BYE has room, too */
        rc = out_post_first(c);
    if (!rc && c->want_ack) {
        struct hth_rdm_head head = { .kind = HTH_RDM_ACK };

        rc = packet_post(c, &head, NULL);
    }
    if (rc)
        hth_rdm_conn_refused(c, rc);
}

int hth_rdm_send(struct hth_transport *t, hth_conn conn, const void *bytes, size_t len)
{
    struct hth_rdm *r = hth_rdm_of(t);
    struct hth_rdm_conn *c = hth_rdm_conn_get(r, conn);

    if (len > HTH_MESSAGE_MAX || (len && !bytes))
        return HEARTH_EINVAL;
    if (!c || c->link.state != HTH_OFI_UP)
        return HEARTH_EPEER;
    if (c->blocked || c->kept == HTH_RDM_KEPT || hth_rdm_queue(c, HTH_RDM_DATA, bytes, len)) {
        c->blocked = 1;
        return HEARTH_EBUSY;
    }
    c->kept++;
    r->lately_us = hth_rdm_real_us();
    hth_rdm_flush(c);
    return HEARTH_OK;
}

void hth_rdm_sent(struct hth_rdm_conn *c)
{
    hth_rdm_flush(c);
    if (!c->blocked || c->link.state != HTH_OFI_UP || HTH_RDM_KEPT - c->kept < WRITABLE)
        return;
    c->blocked = 0;
    c->r->o.events.on_writable(c->r->o.events.self, c->link.id);
}

void hth_rdm_stream_fini(struct hth_rdm_conn *c)
{
    while (c->out)
        out_drop_first(c);
    for (uint32_t i = 0; i < HTH_RDM_WINDOW; i++)
        free(c->early[i]);
    free(c->whole);
}
