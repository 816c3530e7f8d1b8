/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Incoming messages: UCX calls a handler for each active message, which copies it into a note; when
 * UCX has returned, the note goes where it belongs. Only answers to this node's pulls are handled
 * at once (pull.c).
 */
#include "ucx.h"

#include <stdlib.h>

/* Copies it into a note: header, then data. */
static void am_note(struct hth_ucx *t, struct hth_ucx_conn *c, enum hth_ucx_am id,
        const void *header, size_t header_len, const void *bytes, size_t len)
{
    struct hth_ucx_inbound *in = malloc(sizeof(*in) + header_len + len);

    if (!in) {
        hth_ucx_conn_fail(t, c, HEARTH_EPEER, "this node has no memory for a message");
        return;
    }
    in->conn = c->id;
    in->id = id;
    in->len = header_len + len;
    if (header_len)
        memcpy(in->bytes, header, header_len);
    if (len)
        memcpy(in->bytes + header_len, bytes, len);
    hth_ucx_note(t, &in->event, HTH_UCX_INBOUND);
}

static ucs_status_t am_on_message(void *arg, const void *header, size_t header_len, void *data,
        size_t len, const ucp_am_recv_param_t *param)
{
    struct hth_ucx *t = arg;
    struct hth_ucx_conn *c = hth_ucx_conn_of(t, param);

    (void)header;
    if (!c)
        return UCS_OK;
    if (header_len || len > HTH_MESSAGE_MAX || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
        hth_ucx_conn_fail(t, c, HEARTH_EPROTO, "the peer sent a message that is none of ours");
    else
        am_note(t, c, HTH_UCX_AM_MESSAGE, NULL, 0, data, len);
    return UCS_OK;
}

static ucs_status_t am_on_header(struct hth_ucx *t, enum hth_ucx_am id, size_t expected,
        const void *header, size_t header_len, size_t len, const ucp_am_recv_param_t *param)
{
    struct hth_ucx_conn *c = hth_ucx_conn_of(t, param);

    if (!c)
        return UCS_OK;
    if (header_len != expected || len || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
        hth_ucx_conn_fail(t, c, HEARTH_EPROTO, "the peer sent a message that is none of ours");
    else
        am_note(t, c, id, header, header_len, NULL, 0);
    return UCS_OK;
}

static ucs_status_t am_on_ask(void *arg, const void *header, size_t header_len, void *data,
        size_t len, const ucp_am_recv_param_t *param)
{
    (void)data;
    return am_on_header(arg, HTH_UCX_AM_ASK, HTH_UCX_ASK, header, header_len, len, param);
}

static ucs_status_t am_on_greeting(void *arg, const void *header, size_t header_len, void *data,
        size_t len, const ucp_am_recv_param_t *param)
{
    (void)data;
    return am_on_header(arg, HTH_UCX_AM_GREETING, HTH_UCX_GREETING, header, header_len, len, param);
}

static ucs_status_t am_on_key(void *arg, const void *header, size_t header_len, void *data,
        size_t len, const ucp_am_recv_param_t *param)
{
    struct hth_ucx *t = arg;
    struct hth_ucx_conn *c = hth_ucx_conn_of(t, param);

    if (!c)
        return UCS_OK;
    if (header_len != HTH_UCX_KEY || len > HTH_MESSAGE_MAX ||
            (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
        hth_ucx_conn_fail(t, c, HEARTH_EPROTO, "the peer sent a message that is none of ours");
    else
        am_note(t, c, HTH_UCX_AM_KEY, header, header_len, data, len);
    return UCS_OK;
}

ucs_status_t hth_ucx_handlers_set(struct hth_ucx *t)
{
    static const struct {
        enum hth_ucx_am id;
        ucp_am_recv_callback_t cb;
    } handler[] = {
        { HTH_UCX_AM_MESSAGE, am_on_message },
        { HTH_UCX_AM_ASK, am_on_ask },
        { HTH_UCX_AM_REPLY, hth_ucx_replied },
        { HTH_UCX_AM_GREETING, am_on_greeting },
        { HTH_UCX_AM_KEY, am_on_key },
    };
    ucs_status_t status = UCS_OK;

    for (size_t i = 0; i < sizeof(handler) / sizeof(handler[0]) && status == UCS_OK; i++) {
        ucp_am_handler_param_t param = { 0 };

        param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                           UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
        param.id = (unsigned)handler[i].id;
        param.flags = UCP_AM_FLAG_WHOLE_MSG;
        param.cb = handler[i].cb;
        param.arg = t;
        status = ucp_worker_set_am_recv_handler(t->worker, &param);
    }
    return status;
}

void hth_ucx_received(struct hth_ucx *t, struct hth_ucx_inbound *in)
{
    struct hth_ucx_conn *c = hth_ucx_conn_get(t, in->conn);

    if (c)
        c->settled = 1; /* or the peer could not speak */
    if (c && !c->muted) {
        if (in->id == HTH_UCX_AM_GREETING)
            hth_ucx_conn_greeted(t, c, in->bytes, in->len);
        else if (!c->announced)
            hth_ucx_conn_fail(t, c, HEARTH_EPROTO, "the peer spoke before its greeting");
        else if (in->id == HTH_UCX_AM_ASK)
            hth_ucx_serve(t, c, in->bytes);
        else if (in->id == HTH_UCX_AM_KEY)
            hth_ucx_key_heard(t, c, in->bytes, in->len);
        else if (t->events.on_message)
            t->events.on_message(t->events.self, in->conn, in->bytes, in->len);
    }
    free(in);
}
