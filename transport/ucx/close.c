/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How connections end: UCX closes the endpoint and gives back this module's buffers; then pulls,
 * grants and packets of it end, and on_down() is noted.
 */
#include "ucx.h"

#include <stdlib.h>

#define CLOSE_ROUNDS 1000 /* a forced close ends after a few; else the next progress() goes on */

/*
 * HTH_UCX_CUT_HANDSHAKES: UCX connects in a thread of its own, by a list of descriptors that were
 * ready. If this module closes one of them meanwhile, its number may be another connection's when
 * the thread comes to it. So each handshake that was begun goes on to its end, or to its
 * deadline.
 */
static int close_must_wait(struct hth_ucx *t, const struct hth_ucx_conn *c)
{
    return t->settles && c->ep && !c->settled && !t->closed && hth_now_ms(&t->clock) < c->due_ms;
}

/* Nothing else was begun on the connection: its on_down() may run now. */
static void close_leave(struct hth_ucx *t, struct hth_ucx_conn *c)
{
    c->state = HTH_UCX_LEAVING;
    t->leaving++;
    hth_ucx_note(t, &c->down, HTH_UCX_DOWN);
}

/* Closes by force: waits for no peer, and cuts what is under way. */
static void close_begin(struct hth_ucx *t, struct hth_ucx_conn *c)
{
    ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_EP_CLOSE_FLAG_FORCE };
    ucs_status_ptr_t request = NULL;

    t->leaving -= c->state == HTH_UCX_LEAVING;
    c->state = HTH_UCX_CLOSING;
    if (c->ep)
        request = ucp_ep_close_nbx(c->ep, &param);
    c->ep = NULL;
    c->close = UCS_PTR_IS_PTR(request) ? request : NULL;
}

/* 1: closed, and every destination is given back, which happens a little after the close. */
static int close_is_done(struct hth_ucx *t, struct hth_ucx_conn *c)
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

static void close_gone(struct hth_ucx *t, struct hth_ucx_conn *c)
{
    c->state = HTH_UCX_GONE;
    t->failing--;
    hth_ucx_packets_forget(t, c);
    hth_ucx_grants_drop(t, NULL, c->id);
    hth_ucx_pulls_fail(t, c);
    hth_ucx_keys_drop(c);
    hth_ucx_note(t, &c->down, HTH_UCX_DOWN);
}

/* 1: a step further. */
static int close_goes_on(struct hth_ucx *t, struct hth_ucx_conn *c)
{
    if (c->state == HTH_UCX_FAILED && close_must_wait(t, c)) {
        close_leave(t, c);
        return 1;
    }
    if (c->state == HTH_UCX_FAILED || (c->state == HTH_UCX_LEAVING && !close_must_wait(t, c)))
        close_begin(t, c);
    if (c->state != HTH_UCX_CLOSING || !close_is_done(t, c))
        return 0;
    close_gone(t, c);
    return 1;
}

int hth_ucx_conns_close(struct hth_ucx *t)
{
    int done = 0;

    for (uint32_t i = 0; t->failing && i < t->conns.cap; i++) {
        struct hth_ucx_conn *c = hth_ids_at(&t->conns, i);

        if (c && close_goes_on(t, c))
            done++;
    }
    return done;
}

/* The worker is gone, and with it what kept a connection from closing. */
void hth_ucx_conns_forget(struct hth_ucx *t)
{
    for (uint32_t i = 0; t->failing && i < t->conns.cap; i++) {
        struct hth_ucx_conn *c = hth_ids_at(&t->conns, i);

        if (c && c->state >= HTH_UCX_FAILED && c->state < HTH_UCX_GONE)
            close_gone(t, c);
    }
}

void hth_ucx_conn_down(struct hth_ucx *t, struct hth_ucx_conn *c)
{
    int told = c->announced, gone = c->state == HTH_UCX_GONE;

    c->announced = 0;
    if (gone)
        hth_ids_drop(&t->conns, c->id);
    if (told && t->events.on_down)
        t->events.on_down(t->events.self, c->id, c->code, c->detail);
    if (gone)
        free(c);
}
