/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of connections, and their states. Both sides greet (dial.c); the end is close.c.
 *
 *   connect() -> DIALING -- welcome --> UP -+
 *                   |                       +- error, drop, close --> FAILED
 *   request --> CALLED  --- hello ----> UP -+                           |  next progress()
 *                   |                                                   +--> LEAVING: told, closed after the handshake
 *                   |                                                   v       |
 *                   +------ deadline, error -----------------------> CLOSING <--+
 *                                                                       |  UCX has let go of it all
 *                              freed <-- on_down() noted and run --- GONE
 *
 * Everything that fails goes the same way, and pulls complete on the step to GONE: until then
 * UCX may write into their buffers.
 */
#include "ucx.h"

#include <stdarg.h>
#include <stdlib.h>

#define CLOSING_MS 1 /* between looks at a close that takes its time */

struct hth_ucx_conn *hth_ucx_conn_get(struct hth_ucx *t, hth_conn id)
{
    return hth_ids_get(&t->conns, id);
}

struct hth_ucx_conn *hth_ucx_conn_of(struct hth_ucx *t, const ucp_am_recv_param_t *param)
{
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP))
        return NULL;
    for (uint32_t i = 0; i < t->conns.cap; i++) {
        struct hth_ucx_conn *c = hth_ids_at(&t->conns, i);

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

    c->settled = 1;
    hth_ucx_conn_fail(c->t, c, HEARTH_EPEER, "%s: %s", what, ucs_status_string(status));
}

struct hth_ucx_conn *hth_ucx_conn_new(struct hth_ucx *t, enum hth_ucx_state state)
{
    struct hth_ucx_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->id = hth_ids_put(&t->conns, c);
    if (!c->id) {
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

void hth_ucx_drop(struct hth_transport *base, hth_conn id)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    struct hth_ucx_conn *c = hth_ucx_conn_get(t, id);

    if (!c)
        return;
    c->muted = 1;
    hth_ucx_conn_fail(t, c, HEARTH_ECANCELED, "dropped by this node");
}

void hth_ucx_conns_fail(struct hth_ucx *t, int code, const char *why)
{
    for (uint32_t i = 0; i < t->conns.cap; i++) {
        struct hth_ucx_conn *c = hth_ids_at(&t->conns, i);

        if (!c)
            continue;
        c->muted = 1;
        hth_ucx_conn_fail(t, c, code, "%s", why);
    }
}

static int conn_is_young(const struct hth_ucx_conn *c)
{
    return c && (c->state == HTH_UCX_DIALING || c->state == HTH_UCX_CALLED);
}

/* When the connection has to change its state, even if UCX does nothing. */
static uint64_t conn_due_ms(const struct hth_ucx_conn *c, uint64_t now)
{
    switch (c->state) {
    case HTH_UCX_FAILED:
        return 0;
    case HTH_UCX_LEAVING:
        return c->settled ? 0 : c->due_ms;
    case HTH_UCX_CLOSING:
        return now + CLOSING_MS;
    case HTH_UCX_DIALING:
    case HTH_UCX_CALLED:
        return c->due_ms;
    case HTH_UCX_UP:
    case HTH_UCX_GONE:
        break;
    }
    return HTH_NEVER;
}

/* When the next of them is over, or has to be looked at; 0: at once. */
uint64_t hth_ucx_conns_due_ms(struct hth_ucx *t)
{
    uint64_t now = hth_now_ms(&t->clock), due = HTH_NEVER;

    for (uint32_t i = 0; i < t->conns.cap; i++) {
        const struct hth_ucx_conn *c = hth_ids_at(&t->conns, i);
        uint64_t one = c ? conn_due_ms(c, now) : HTH_NEVER;

        if (one < due)
            due = one;
    }
    return due;
}

int hth_ucx_conns_expire(struct hth_ucx *t)
{
    uint64_t now = hth_now_ms(&t->clock);
    int done = 0;

    for (uint32_t i = 0; i < t->conns.cap; i++) {
        struct hth_ucx_conn *c = hth_ids_at(&t->conns, i);

        if (!conn_is_young(c) || c->due_ms > now)
            continue;
        hth_ucx_conn_fail(t, c, HEARTH_ETIMEOUT, "no answer within %" PRIu32 " ms", t->connect_ms);
        done++;
    }
    return done;
}
