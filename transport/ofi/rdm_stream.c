/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages over packets, which the fabric may bring in any order. A packet has a number when the
 * library takes it; the receiver puts the numbers in order again, and says now and then up to where it has
 * come. The sender is never more than a window ahead of that, so what comes early has room.
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
    struct hth_rdm_op *op = hth_rdm_op_take(e, c->peer, c->id, 0);
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
        .id = c->id, .token = c->token, .packet = c->r->packet, .addr_len = c->r->address_len
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

void hth_rdm_flush(struct hth_rdm_conn *c)
{
    ssize_t rc = 0;

    if (c->state == HTH_RDM_DIALLED) {
        rc = c->greeted ? 0 : greeting_post(c);
        if (rc)
            hth_rdm_conn_refused(c, rc);
        return;
    }
    if (c->state != HTH_RDM_UP && c->state != HTH_RDM_HALF_OPEN)
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
    if (!c || c->state != HTH_RDM_UP)
        return HEARTH_EPEER;
    if (c->blocked || c->kept == HTH_RDM_KEPT || hth_rdm_queue(c, HTH_RDM_DATA, bytes, len)) {
        c->blocked = 1;
        return HEARTH_EBUSY;
    }
    c->kept++;
    r->lately_ms = hth_rdm_now(r);
    hth_rdm_flush(c);
    return HEARTH_OK;
}

void hth_rdm_sent(struct hth_rdm_conn *c)
{
    hth_rdm_flush(c);
    if (!c->blocked || c->state != HTH_RDM_UP || HTH_RDM_KEPT - c->kept < WRITABLE)
        return;
    c->blocked = 0;
    c->r->o.events.on_writable(c->r->o.events.self, c->id);
}

/* ---- receiving ---- */

/* A message of several packets, one more of them. */
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
        o->events.on_message(o->events.self, c->id, c->whole, len);
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
    o->events.on_message(o->events.self, c->id, bytes, h->len);
    return HEARTH_OK;
}

/* A packet whose turn it is. */
static void packet_take(
        struct hth_rdm_conn *c, const struct hth_rdm_head *h, const unsigned char *bytes)
{
    int rc = HEARTH_EPROTO;

    c->in_seq++;
    if (h->kind == HTH_RDM_ACCEPT)
        rc = hth_rdm_accepted(c, bytes, h->len);
    else if (c->state != HTH_RDM_UP)
        rc = HEARTH_EPROTO;
    else if (h->kind == HTH_RDM_DATA)
        rc = message_take(c, h, bytes);
    else if (h->kind == HTH_RDM_PULL_FROM)
        rc = hth_rdm_reader_told(c, bytes, h->len);
    else if (h->kind == HTH_RDM_PULL_OK)
        rc = hth_rdm_reader_taken(c, bytes, h->len);
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
    while (c->state == HTH_RDM_UP && c->early[c->in_seq % HTH_RDM_WINDOW]) {
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
        return; /* from anybody */
    if (h.kind == HTH_RDM_OPEN) {
        hth_rdm_greeted(r, bytes + HTH_RDM_HEAD, h.len);
        return;
    }
    c = hth_rdm_conn_get(r, h.to);
    if (!c || c->token != h.token || c->state == HTH_RDM_LEAVING || c->state == HTH_RDM_DOOMED)
        return;
    if (h.ack > c->out_ack && h.ack <= c->out_seq)
        c->out_ack = h.ack;
    if (c->state == HTH_RDM_HALF_OPEN)
        hth_rdm_conn_up(c); /* it has our answer */
    if (h.kind != HTH_RDM_ACK && (c->state == HTH_RDM_UP || c->state == HTH_RDM_DIALLED))
        packet_order(c, &h, bytes, len);
    hth_rdm_sent(c);
}

void hth_rdm_stream_fini(struct hth_rdm_conn *c)
{
    while (c->out)
        out_drop_first(c);
    for (uint32_t i = 0; i < HTH_RDM_WINDOW; i++)
        free(c->early[i]);
    free(c->whole);
}
