/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our pulls: ask, and receive the reply's bytes straight into the destination.
 *
 *   pull() -- AM_ASK --> owner
 *   ASKED  <- AM_REPLY, code -----------------------------------------> on_pull(code)
 *      `----- AM_REPLY, rendezvous --> received, and AM_REPLY, code --> on_pull(code)
 *
 * UCX knows nothing of a question without its answer: 1 to 3 of 4 pulls get no completion when an
 * owner dies. So this table is the truth; what is left in it when a connection has been closed
 * fails then, and not earlier: UCX writes into a destination until it has given the receive back,
 * which after a forced close it does a little later than it reports the close.
 */
#include "ucx.h"

#include <stdlib.h>

static void ask_complete(struct hth_ucx_pull *p, int code)
{
    struct hth_ucx_conn *c = hth_ucx_conn_get(p->t, p->conn);

    p->completed = 1;
    p->region->pulls--;
    if (c)
        c->pulls--;
    p->code = code;
    hth_ucx_note(p->t, &p->event, HTH_UCX_PULLED);
}

void hth_ucx_pulled(struct hth_ucx_pull *p)
{
    struct hth_ucx *t = p->t;
    uint64_t cookie = p->cookie;
    int code = p->code;

    hth_ids_drop(&t->pulls, p->id);
    free(p);
    if (t->events.on_pull)
        t->events.on_pull(t->events.self, cookie, code);
}

int hth_ucx_pull(struct hth_transport *base, hth_conn id, const unsigned char *desc,
        uint32_t desc_len, uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len,
        uint64_t cookie)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    struct hth_ucx_conn *c = hth_ucx_conn_get(t, id);
    unsigned char ask[HTH_UCX_ASK];
    uint64_t grant, nonce;
    struct hth_ucx_pull *p;

    if (hth_ucx_desc_decode(desc, desc_len, &grant, &nonce) < 0 || len > UINT64_MAX - roff ||
            !region || doff > region->len || len > region->len - doff)
        return HEARTH_EINVAL;
    if (!c || c->state != HTH_UCX_UP)
        return HEARTH_EPEER;
    p = c->pulls < HTH_UCX_CONN_PULLS ? malloc(sizeof(*p)) : NULL;
    if (!p)
        return HEARTH_EBUSY;
    *p = (struct hth_ucx_pull){ .t = t,
        .conn = id,
        .region = region,
        .dst = region->base + doff,
        .len = len,
        .cookie = cookie };
    p->id = hth_ids_put(&t->pulls, p);
    if (!p->id) {
        free(p);
        return HEARTH_EBUSY;
    }
    c->pulls++;
    region->pulls++;
    hth_put64(ask, grant);
    hth_put64(ask + 8, nonce);
    hth_put64(ask + 16, roff);
    hth_put64(ask + 24, len);
    hth_put64(ask + 32, p->id);
    hth_ucx_post(t, c, HTH_UCX_AM_ASK, ask, sizeof(ask)); /* what fails here fails the connection */
    return 0;
}

/* UCX has given the destination back. */
static void ask_received(struct hth_ucx_pull *p, ucs_status_t status, size_t len)
{
    struct hth_ucx_conn *c = hth_ucx_conn_get(p->t, p->conn);

    c->receiving--; /* c is not NULL: a connection stays until this is 0 */
    p->received = status == UCS_OK && len == p->len;
    if (p->received && p->judged)
        ask_complete(p, p->code);
    else if (!p->received)
        hth_ucx_conn_fail(p->t, c, HEARTH_EPEER, "a pull broke off: %s", ucs_status_string(status));
}

static void ask_on_received(void *request, ucs_status_t status, size_t len, void *arg)
{
    ucp_request_free(request);
    ask_received(arg, status, len);
}

static ucs_status_t ask_receive(struct hth_ucx_pull *p, struct hth_ucx_conn *c, void *data)
{
    ucp_request_param_t param = { 0 };
    ucs_status_ptr_t request;

    param.op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMH;
    param.memh = p->region->memh;
    param.cb.recv_am = ask_on_received;
    param.user_data = p;
    c->receiving++;
    request = ucp_am_recv_data_nbx(p->t->worker, data, p->dst, p->len, &param);
    if (!UCS_PTR_IS_PTR(request))
        ask_received(p, UCS_PTR_STATUS(request), p->len);
    return UCS_INPROGRESS; /* `data` is UCX's again */
}

/* The reply's header, checked against our table: NULL when it answers no question of ours. */
static struct hth_ucx_pull *ask_find(
        struct hth_ucx *t, const struct hth_ucx_conn *c, const void *header, size_t header_len)
{
    struct hth_ucx_pull *p;

    if (header_len != HTH_UCX_REPLY)
        return NULL;
    p = hth_ids_get(&t->pulls, hth_get64(header));
    return p && p->conn == c->id && !p->judged && !p->completed ? p : NULL;
}

/* The owner's last word of bytes that it has sent: here already, or still on their way. */
static ucs_status_t ask_judge(struct hth_ucx_pull *p, int code)
{
    p->judged = 1;
    p->code = code == HEARTH_EDENIED ? code : 0;
    if (p->received)
        ask_complete(p, p->code);
    return UCS_OK;
}

ucs_status_t hth_ucx_replied(void *arg, const void *header, size_t header_len, void *data,
        size_t len, const ucp_am_recv_param_t *param)
{
    struct hth_ucx *t = arg;
    struct hth_ucx_conn *c = hth_ucx_conn_of(t, param);
    struct hth_ucx_pull *p;
    int code, has_data = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;

    if (!c || c->state != HTH_UCX_UP)
        return UCS_OK;
    p = ask_find(t, c, header, header_len);
    if (!p) {
        hth_ucx_conn_fail(t, c, HEARTH_EPROTO, "the peer answers what was not asked");
        return UCS_OK;
    }
    code = (int)hth_get32((const unsigned char *)header + 8);
    if (p->answered && !has_data && !len && (code == HEARTH_EDENIED || !code))
        return ask_judge(p, code);
    if (p->answered) {
        hth_ucx_conn_fail(t, c, HEARTH_EPROTO, "the peer answers a pull twice");
        return UCS_OK;
    }
    p->answered = 1;
    if (has_data && !code && len == p->len)
        return ask_receive(p, c, data);
    if (!has_data && !len && (code == HEARTH_EDENIED || (!code && !p->len))) {
        ask_complete(p, code);
        return UCS_OK;
    }
    ask_complete(p, HEARTH_EPROTO); /* nothing of it was received */
    hth_ucx_conn_fail(t, c, HEARTH_EPROTO,
            "the peer answers a pull of %" PRIu64 " bytes with %zu and code %d", p->len, len, code);
    return UCS_OK;
}

void hth_ucx_pulls_fail(struct hth_ucx *t, struct hth_ucx_conn *c)
{
    for (uint32_t i = 0; c->pulls && i < t->pulls.cap; i++) {
        struct hth_ucx_pull *p = hth_ids_at(&t->pulls, i);

        if (p && p->conn == c->id && !p->completed)
            ask_complete(p, c->code);
    }
}

/* After the worker is gone, and with it every callback that was still owed. */
void hth_ucx_pulls_fini(struct hth_ucx *t)
{
    for (uint32_t i = 0; i < t->pulls.cap; i++)
        free(hth_ids_at(&t->pulls, i));
    hth_ids_fini(&t->pulls);
}
