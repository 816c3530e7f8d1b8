/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections. UCX does not say when a dialled endpoint stands, so both sides greet:
 *
 *   connect() -> DIALING -- welcome --> UP -+
 *                   |                       +- error, drop, close --> FAILED
 *   request --> CALLED  --- hello ----> UP -+                           |  next progress()
 *                   |                                                   v
 *                   +------ deadline, error -----------------------> CLOSING
 *                                                                       |  UCX has let go of it all
 *                              freed <-- on_down() noted and run --- GONE
 *
 * Everything that fails goes the same way, and pulls complete on the step to GONE: until then
 * UCX may write into their buffers.
 */
#include "ucx.h"

#include <stdarg.h>
#include <stdlib.h>

#define GREETING_MAGIC   0x58435548u /* "HUCX" */
#define GREETING_VERSION 1u
#define CLOSE_ROUNDS     1000 /* a forced close ends after a few; else the next progress() goes on */

#define CLOSING_MS       1 /* between looks at a close that takes its time */

enum { HELLO = 1, WELCOME = 2 };

struct hth_ucx_conn *hth_ucx_conn_get(struct hth_ucx *t, hth_conn handle)
{
    return hth_handles_get(&t->conns, handle);
}

struct hth_ucx_conn *hth_ucx_conn_of(struct hth_ucx *t, const ucp_am_recv_param_t *param)
{
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP))
        return NULL;
    for (uint32_t i = 0; i < t->conns.cap; i++) {
        struct hth_ucx_conn *c = hth_handles_at(&t->conns, i);

        if (c && c->ep && c->ep == param->reply_ep)
            return c;
    }
    return NULL;
}

void hth_ucx_conn_fail(struct hth_ucx *t, struct hth_ucx_conn *c, int code, const char *fmt, ...)
{
    va_list args;

    if (c->state >= HTH_UCX_FAILED)
        return;
    c->state = HTH_UCX_FAILED;
    c->code = code;
    va_start(args, fmt);
    vsnprintf(c->detail, sizeof(c->detail), fmt, args);
    va_end(args);
    t->failing++;
}

void hth_ucx_conn_broke(struct hth_ucx_conn *c, ucs_status_t status)
{
    const char *what =
            c->state == HTH_UCX_DIALING ? "the peer cannot be reached" : "the connection broke";

    hth_ucx_conn_fail(c->t, c, HEARTH_EPEER, "%s: %s", what, ucs_status_string(status));
}

/* UCX's word that an endpoint has failed. It stays ours until it is closed. */
static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    hth_ucx_conn_broke(arg, status);
}

static struct hth_ucx_conn *conn_new(struct hth_ucx *t, enum hth_ucx_state state)
{
    struct hth_ucx_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->handle = hth_handles_add(&t->conns, c);
    if (!c->handle) {
        free(c);
        return NULL;
    }
    c->t = t;
    c->state = state;
    c->accepted = state == HTH_UCX_CALLED;
    c->announced = !c->accepted;
    c->out_end = &c->out;
    c->due_ms = hth_now_ms(&t->clock) + t->connect_ms;
    return c;
}

/* Both sides watch their peer (UCP_ERR_HANDLING_MODE_PEER): without, a death is never told. */
static void make_ep(struct hth_ucx *t, struct hth_ucx_conn *c, ucp_ep_params_t *params)
{
    ucs_status_t status;

    params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler = (ucp_err_handler_t){ .cb = on_error, .arg = c };
    status = ucp_ep_create(t->worker, params, &c->ep);
    if (status != UCS_OK) {
        c->ep = NULL;
        hth_ucx_conn_broke(c, status);
    }
}

static void greet(struct hth_ucx *t, struct hth_ucx_conn *c, uint16_t what)
{
    unsigned char bytes[HTH_UCX_GREETING];

    hth_put32(bytes, GREETING_MAGIC);
    hth_put16(bytes + 4, GREETING_VERSION);
    hth_put16(bytes + 6, what);
    hth_ucx_post(t, c, HTH_UCX_AM_GREETING, bytes, sizeof(bytes));
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
    c = conn_new(t, HTH_UCX_DIALING);
    if (!c)
        return hth_fail(
                err, HEARTH_ENOMEM, 0, "no room for more than %u connections", HTH_UCX_CONNS);
    params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr.addr = (const struct sockaddr *)(const void *)&ss;
    params.sockaddr.addrlen = hth_ucx_sockaddr_len(&ss);
    make_ep(t, c, &params);
    if (c->ep)
        greet(t, c, HELLO);
    *out_conn = c->handle;
    return 0;
}

void hth_ucx_conn_accept(struct hth_ucx *t, ucp_conn_request_h request)
{
    ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
        .conn_request = request };
    struct hth_ucx_conn *c = t->closed ? NULL : conn_new(t, HTH_UCX_CALLED);

    if (c)
        make_ep(t, c, &params); /* UCX takes the request, also when it fails */
    else if (t->listener)
        ucp_listener_reject(t->listener, request);
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
        greet(t, c, WELCOME);
    hth_ucx_fds_close_on_exec(t, 1);
    if (c->accepted && t->events.on_accept)
        t->events.on_accept(t->events.self, c->handle);
    if (!c->accepted && t->events.on_up)
        t->events.on_up(t->events.self, c->handle);
}

void hth_ucx_drop(struct hth_transport *base, hth_conn handle)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    struct hth_ucx_conn *c = hth_ucx_conn_get(t, handle);

    if (!c)
        return;
    c->muted = 1;
    hth_ucx_conn_fail(t, c, HEARTH_ECANCELED, "dropped by this node");
}

void hth_ucx_conns_fail(struct hth_ucx *t, int code, const char *why)
{
    for (uint32_t i = 0; i < t->conns.cap; i++) {
        struct hth_ucx_conn *c = hth_handles_at(&t->conns, i);

        if (!c)
            continue;
        c->muted = 1;
        hth_ucx_conn_fail(t, c, code, "%s", why);
    }
}

static int is_young(const struct hth_ucx_conn *c)
{
    return c && (c->state == HTH_UCX_DIALING || c->state == HTH_UCX_CALLED);
}

/* When the next of them is over, or has to be looked at; 0: at once. */
uint64_t hth_ucx_conns_due_ms(struct hth_ucx *t)
{
    uint64_t now = hth_now_ms(&t->clock), due = HTH_NEVER;

    for (uint32_t i = 0; i < t->conns.cap; i++) {
        const struct hth_ucx_conn *c = hth_handles_at(&t->conns, i);

        if (c && c->state == HTH_UCX_FAILED)
            return 0;
        if (c && c->state == HTH_UCX_CLOSING && now + CLOSING_MS < due)
            due = now + CLOSING_MS;
        if (is_young(c) && c->due_ms < due)
            due = c->due_ms;
    }
    return due;
}

int hth_ucx_conns_expire(struct hth_ucx *t)
{
    uint64_t now = hth_now_ms(&t->clock);
    int done = 0;

    for (uint32_t i = 0; i < t->conns.cap; i++) {
        struct hth_ucx_conn *c = hth_handles_at(&t->conns, i);

        if (!is_young(c) || c->due_ms > now)
            continue;
        hth_ucx_conn_fail(t, c, HEARTH_ETIMEOUT, "no answer within %" PRIu32 " ms", t->connect_ms);
        done++;
    }
    return done;
}

/* Forced: waits for nobody, cuts what is under way. */
static void begin_close(struct hth_ucx_conn *c)
{
    ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_EP_CLOSE_FLAG_FORCE };
    ucs_status_ptr_t request = NULL;

    c->state = HTH_UCX_CLOSING;
    if (c->ep)
        request = ucp_ep_close_nbx(c->ep, &param);
    c->ep = NULL;
    c->close = UCS_PTR_IS_PTR(request) ? request : NULL;
}

/* Closed, and every destination given back: that comes a little after the close. */
static int is_closed(struct hth_ucx *t, struct hth_ucx_conn *c)
{
    for (int i = 0; (c->close || c->receiving) && i < CLOSE_ROUNDS; i++) {
        if (c->close && ucp_request_check_status(c->close) != UCS_INPROGRESS) {
            ucp_request_free(c->close);
            c->close = NULL;
        } else {
            ucp_worker_progress(t->worker);
        }
    }
    return !c->close && !c->receiving;
}

static void gone(struct hth_ucx *t, struct hth_ucx_conn *c)
{
    c->state = HTH_UCX_GONE;
    t->failing--;
    hth_ucx_packets_forget(t, c);
    hth_ucx_grants_drop(t, NULL, c->handle);
    hth_ucx_pulls_fail(t, c);
    hth_ucx_note(t, &c->down, HTH_UCX_DOWN);
}

int hth_ucx_conns_close(struct hth_ucx *t)
{
    int done = 0;

    for (uint32_t i = 0; t->failing && i < t->conns.cap; i++) {
        struct hth_ucx_conn *c = hth_handles_at(&t->conns, i);

        if (!c || (c->state != HTH_UCX_FAILED && c->state != HTH_UCX_CLOSING))
            continue;
        if (c->state == HTH_UCX_FAILED)
            begin_close(c);
        if (!is_closed(t, c))
            continue;
        gone(t, c);
        done++;
    }
    return done;
}

/* The worker is gone, and with it what kept a connection from closing. */
void hth_ucx_conns_forget(struct hth_ucx *t)
{
    for (uint32_t i = 0; t->failing && i < t->conns.cap; i++) {
        struct hth_ucx_conn *c = hth_handles_at(&t->conns, i);

        if (c && (c->state == HTH_UCX_FAILED || c->state == HTH_UCX_CLOSING))
            gone(t, c);
    }
}

void hth_ucx_conn_down(struct hth_ucx *t, struct hth_ucx_conn *c)
{
    hth_handles_remove(&t->conns, c->handle);
    if (c->announced && t->events.on_down)
        t->events.on_down(t->events.self, c->handle, c->code, c->detail);
    free(c);
}
