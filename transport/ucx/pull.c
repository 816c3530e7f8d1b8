/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our pulls: ask, and receive the reply's bytes straight into the destination.
 *
 *   pull() -- AM_ASK --> owner
 *   ASKED  <- AM_REPLY, code -----------------------------------------> on_pull(code)
 *      `----- AM_REPLY, rendezvous --> received, and AM_REPLY, code --> on_pull(code)
 */
#include "ucx.h"

#include <stdlib.h>

static void ask_post(struct hth_ucx *t, struct hth_ucx_conn *c, const struct hth_ucx_pull *p,
        const struct hth_ucx_desc *desc, uint64_t roff)
{
    unsigned char ask[HTH_UCX_ASK];

    hth_put64(ask, desc->grant);
    hth_put64(ask + 8, desc->at);
    hth_put64(ask + 16, roff);
    hth_put64(ask + 24, p->len);
    hth_put64(ask + 32, p->id);
    hth_ucx_post(t, c, HTH_UCX_AM_ASK, ask, sizeof(ask));
}

int hth_ucx_pull(struct hth_transport *base, hth_conn id, const unsigned char *desc,
        uint32_t desc_len, uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len,
        uint64_t cookie)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    struct hth_ucx_conn *c = hth_ucx_conn_get(t, id);
    struct hth_ucx_desc d;
    struct hth_ucx_pull *p;

    if (hth_ucx_desc_decode(t, desc, desc_len, &d) < 0 || len > UINT64_MAX - roff || !region ||
            doff > region->len || len > region->len - doff)
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
    if (t->gets)
        hth_ucx_get(c, p, &d, roff);
    else
        ask_post(t, c, p, &d, roff);
    return 0; /* what fails there fails the connection */
}

static void ask_on_received(void *request, ucs_status_t status, size_t len, void *arg)
{
    ucp_request_free(request);
    hth_ucx_pull_received(arg, status, len);
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
        hth_ucx_pull_received(p, UCS_PTR_STATUS(request), p->len);
    return UCS_INPROGRESS; /* `data` is UCX's again */
}

/* Finds the pull that a reply's header answers; NULL: it answers no request of this node. */
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
        hth_ucx_pull_complete(p, p->code);
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
        hth_ucx_pull_complete(p, code);
        return UCS_OK;
    }
    hth_ucx_pull_complete(p, HEARTH_EPROTO); /* nothing of it was received */
    hth_ucx_conn_fail(t, c, HEARTH_EPROTO,
            "the peer answers a pull of %" PRIu64 " bytes with %zu and code %d", p->len, len, code);
    return UCS_OK;
}
