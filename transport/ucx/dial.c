/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How connections begin: an endpoint of UCX's, dialled or accepted, and the greeting over it, since
 * UCX does not say when a dialled one stands.
 */
#include "ucx.h"

#define GREETING_MAGIC   0x58435548u /* "HUCX" */
#define GREETING_VERSION 3u /* 2: a word after the bytes of a pull; 3: keys in messages alone */

enum { HELLO = 1, WELCOME = 2 };

/* UCX reports that an endpoint has failed. The endpoint stays this module's until it is closed. */
static void dial_on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    hth_ucx_conn_broke(arg, status);
}

/* Both sides watch their peer (UCP_ERR_HANDLING_MODE_PEER): otherwise UCX never reports a death. */
static void dial_endpoint(struct hth_ucx *t, struct hth_ucx_conn *c, ucp_ep_params_t *params)
{
    ucs_status_t status;

    params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler = (ucp_err_handler_t){ .cb = dial_on_error, .arg = c };
    status = ucp_ep_create(t->worker, params, &c->ep);
    if (status != UCS_OK) {
        c->ep = NULL;
        hth_ucx_conn_broke(c, status);
    }
}

static void dial_greet(struct hth_ucx *t, struct hth_ucx_conn *c, uint16_t what)
{
    unsigned char bytes[HTH_UCX_GREETING];

    hth_put32(bytes, GREETING_MAGIC);
    hth_put16(bytes + 4, GREETING_VERSION);
    hth_put16(bytes + 6, what);
    hth_ucx_post(t, c, HTH_UCX_AM_GREETING, bytes, sizeof(bytes));
}

static int conns_are_full(const struct hth_ucx *t)
{
    return t->conns.count >= HTH_UCX_CONNS + t->leaving;
}

int hth_ucx_connect(struct hth_transport *base, const unsigned char *addr, uint32_t len,
        hth_conn *out_conn, struct hearth_error *err)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    struct sockaddr_storage ss;
    ucp_ep_params_t params = { 0 };
    struct hth_ucx_conn *c;

    if (hth_ucx_blob_decode(&ss, addr, len) < 0)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%" PRIu32 " bytes that are no address of the ucx transport: do all nodes use "
                "the same one?",
                len);
    if (t->closed)
        return hth_fail(err, HEARTH_ECANCELED, 0, "the transport is being closed");
    c = conns_are_full(t) ? NULL : hth_ucx_conn_new(t, HTH_UCX_DIALING);
    if (!c)
        return hth_fail(
                err, HEARTH_EBUSY, 0, "no room for more than %u connections", HTH_UCX_CONNS);
    params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr.addr = (const struct sockaddr *)(const void *)&ss;
    params.sockaddr.addrlen = hth_ucx_sockaddr_len(&ss);
    dial_endpoint(t, c, &params);
    if (c->ep)
        dial_greet(t, c, HELLO);
    *out_conn = c->id;
    return 0;
}

/* A dialler for which there is no room is refused. If this UCX cannot bear a refusal during the
 * handshake, the connection is ended when it stands (close.c). */
void hth_ucx_conn_accept(struct hth_ucx *t, ucp_conn_request_h request)
{
    ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
        .conn_request = request };
    int full = conns_are_full(t);
    struct hth_ucx_conn *c =
            t->closed || (full && !t->settles) ? NULL : hth_ucx_conn_new(t, HTH_UCX_CALLED);

    if (c)
        dial_endpoint(t, c, &params); /* UCX takes the request, also when it fails */
    else if (t->listener)
        ucp_listener_reject(t->listener, request);
    if (c && full)
        hth_ucx_conn_fail(t, c, HEARTH_EBUSY, "no room for it");
}

void hth_ucx_conn_greeted(
        struct hth_ucx *t, struct hth_ucx_conn *c, const unsigned char *bytes, size_t len)
{
    uint16_t expected = c->accepted ? HELLO : WELCOME;

    if (c->state != HTH_UCX_CALLED && c->state != HTH_UCX_DIALING) {
        hth_ucx_conn_fail(t, c, HEARTH_EPROTO, "the peer greeted twice");
        return;
    }
    if (len != HTH_UCX_GREETING || hth_get32(bytes) != GREETING_MAGIC ||
            hth_get16(bytes + 6) != expected) {
        hth_ucx_conn_fail(t, c, HEARTH_EPROTO, "what answers there is not Hearth");
        return;
    }
    if (hth_get16(bytes + 4) != GREETING_VERSION) {
        hth_ucx_conn_fail(t, c, HEARTH_EPROTO,
                "the peer speaks version %u of the ucx transport, this node %u",
                (unsigned)hth_get16(bytes + 4), GREETING_VERSION);
        return;
    }
    c->state = HTH_UCX_UP;
    c->announced = 1;
    if (c->accepted)
        dial_greet(t, c, WELCOME);
    hth_ucx_fds_close_on_exec(t, 1);
    if (c->accepted && t->events.on_accept)
        t->events.on_accept(t->events.self, c->id);
    if (!c->accepted && t->events.on_up)
        t->events.on_up(t->events.self, c->id);
}
