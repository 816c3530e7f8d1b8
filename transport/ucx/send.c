/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes out. Messages, questions and greetings of a connection leave one
 * at a time, in order, each copied into a packet; the next goes when UCX has taken the one before.
 * (UCX alone keeps no order between a send that had to wait and a later one that had not.)
 * Rendezvous replies leave beside that queue.
 */
#include "ucx.h"

#include <stdlib.h>

#define QUEUE_MAX     256u /* messages waiting on one connection */
#define QUEUE_ALL_MAX 512u /* with questions and answers: a peer with more does not read */
#define QUEUE_LOW     64u  /* on_writable() at that many */

static void packet_unlink(struct hth_ucx_packet *p)
{
    if (p->next)
        p->next->prev = p->prev;
    if (p->prev)
        p->prev->next = p->next;
    else
        p->t->packets = p->next;
}

struct hth_ucx_packet *hth_ucx_packet_new(
        struct hth_ucx *t, struct hth_ucx_conn *c, enum hth_ucx_am id, size_t room)
{
    struct hth_ucx_packet *p = malloc(sizeof(*p) + room);

    if (!p)
        return NULL;
    *p = (struct hth_ucx_packet){ .t = t, .conn = c->id, .id = id };
    return p;
}

/* UCX is done with the packet. */
static void packet_finish(struct hth_ucx_packet *p, ucs_status_t status)
{
    struct hth_ucx *t = p->t;
    struct hth_ucx_conn *c = hth_ucx_conn_get(t, p->conn);

    if (p->region) {
        p->region->serving--;
        if (c)
            c->serving--;
    } else if (c) {
        c->sending = 0;
    }
    if (p->holds)
        hth_ucx_region_put(t, p->holds);
    packet_unlink(p);
    if (c && status != UCS_OK)
        hth_ucx_conn_broke(c, status);
    if (c && p->region && status == UCS_OK)
        hth_ucx_note(t, &p->event, HTH_UCX_SERVED);
    else
        free(p);
}

static void packet_on_sent(void *request, ucs_status_t status, void *arg)
{
    struct hth_ucx_packet *p = arg;
    struct hth_ucx *t = p->t;
    struct hth_ucx_conn *c = p->region ? NULL : hth_ucx_conn_get(t, p->conn);

    ucp_request_free(request);
    packet_finish(p, status);
    if (c && c->state < HTH_UCX_FAILED && (c->out || c->choked) && !c->writable_noted) {
        c->writable_noted = 1;
        hth_ucx_note(t, &c->writable, HTH_UCX_WRITABLE);
    }
}

/* From here on the packet is UCX's; it comes back in packet_finish(), maybe before this returns. */
void hth_ucx_packet_start(struct hth_ucx *t, struct hth_ucx_conn *c, struct hth_ucx_packet *p)
{
    ucp_request_param_t param = { 0 };
    ucs_status_ptr_t request;

    param.op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    param.cb.send = packet_on_sent;
    param.user_data = p;
    param.flags =
            UCP_AM_SEND_FLAG_REPLY | (p->region ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER);
    if (p->region) { /* UCX 1.18 crashes when it gives up a send that it registered itself */
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
        param.memh = p->region->memh;
    }
    p->prev = NULL;
    p->next = t->packets;
    if (p->next)
        p->next->prev = p;
    t->packets = p;
    request = ucp_am_send_nbx(c->ep, (unsigned)p->id, p->header_len ? p->header : NULL,
            p->header_len, p->data, p->data_len, &param);
    if (!UCS_PTR_IS_PTR(request))
        packet_finish(p, UCS_PTR_STATUS(request));
}

/* Send until UCX keeps one for later. */
static void packet_pump(struct hth_ucx *t, struct hth_ucx_conn *c)
{
    while (c->out && !c->sending && c->state < HTH_UCX_FAILED) {
        struct hth_ucx_packet *p = c->out;

        c->out = p->next;
        if (!c->out)
            c->out_end = &c->out;
        c->out_len--;
        c->sending = 1;
        hth_ucx_packet_start(t, c, p);
    }
}

static void packet_enqueue(struct hth_ucx *t, struct hth_ucx_conn *c, struct hth_ucx_packet *p)
{
    p->next = NULL;
    *c->out_end = p;
    c->out_end = &p->next;
    c->out_len++;
    packet_pump(t, c);
}

void hth_ucx_writable(struct hth_ucx *t, struct hth_ucx_conn *c)
{
    c->writable_noted = 0;
    packet_pump(t, c);
    if (c->state != HTH_UCX_UP || !c->choked || c->out_len > QUEUE_LOW)
        return;
    c->choked = 0;
    if (t->events.on_writable)
        t->events.on_writable(t->events.self, c->id);
}

void hth_ucx_post(struct hth_ucx *t, struct hth_ucx_conn *c, enum hth_ucx_am id,
        const unsigned char *header, size_t header_len)
{
    struct hth_ucx_packet *p;

    if (c->out_len >= QUEUE_ALL_MAX) {
        hth_ucx_conn_fail(t, c, HEARTH_EPROTO, "the peer asks, but does not take the answers");
        return;
    }
    p = hth_ucx_packet_new(t, c, id, 0);
    if (!p) {
        hth_ucx_conn_fail(t, c, HEARTH_EPEER, "this node has no memory for a message");
        return;
    }
    p->header_len = header_len;
    memcpy(p->header, header, header_len);
    packet_enqueue(t, c, p);
}

/* Also beyond the queue's limit: there is at most one for each of this node's regions. */
void hth_ucx_post_data(struct hth_ucx *t, struct hth_ucx_conn *c, enum hth_ucx_am id,
        const unsigned char *header, size_t header_len, const void *data, size_t len)
{
    struct hth_ucx_packet *p = hth_ucx_packet_new(t, c, id, len);

    if (!p) {
        hth_ucx_conn_fail(t, c, HEARTH_EPEER, "this node has no memory for a message");
        return;
    }
    p->header_len = header_len;
    memcpy(p->header, header, header_len);
    if (len)
        memcpy(p->bytes, data, len);
    p->data = p->bytes;
    p->data_len = len;
    packet_enqueue(t, c, p);
}

int hth_ucx_send(struct hth_transport *base, hth_conn id, const void *bytes, size_t len)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    struct hth_ucx_conn *c = hth_ucx_conn_get(t, id);
    struct hth_ucx_packet *p;

    if (len > HTH_MESSAGE_MAX || (!bytes && len))
        return HEARTH_EINVAL;
    if (!c || c->state != HTH_UCX_UP)
        return HEARTH_EPEER;
    if (c->out_len >= QUEUE_MAX) {
        c->choked = 1;
        return HEARTH_EBUSY;
    }
    p = hth_ucx_packet_new(t, c, HTH_UCX_AM_MESSAGE, len);
    if (!p) {
        hth_ucx_conn_fail(t, c, HEARTH_EPEER, "this node has no memory for a message");
        return HEARTH_EPEER;
    }
    if (len)
        memcpy(p->bytes, bytes, len);
    p->data = p->bytes;
    p->data_len = len;
    packet_enqueue(t, c, p);
    return 0;
}

/* The connection is closed: UCX reads none of its memory any more, whatever it reports and when. */
void hth_ucx_packets_forget(struct hth_ucx *t, struct hth_ucx_conn *c)
{
    for (struct hth_ucx_packet *p = t->packets; p; p = p->next) {
        if (p->conn != c->id || !p->region)
            continue;
        p->region->serving--;
        p->region = NULL;
        p->conn = 0;
    }
    while (c->out) {
        struct hth_ucx_packet *p = c->out;

        c->out = p->next;
        free(p);
    }
    c->out_end = &c->out;
    c->out_len = 0;
}
