/* SPDX-License-Identifier: Apache-2.0 */
/* Notes taken while UCX had the thread, and what is done about each afterwards. */
#include "ucx.h"

#include <stdlib.h>

#define OWNER(event, type, member) \
    ((type *)(void *)((unsigned char *)(event)-offsetof(type, member)))

void hth_ucx_note(struct hth_ucx *t, struct hth_ucx_event *event, enum hth_ucx_kind kind)
{
    event->kind = kind;
    event->next = NULL;
    *t->noted_end = event;
    t->noted_end = &event->next;
}

static void inbound(struct hth_ucx *t, struct hth_ucx_inbound *in)
{
    struct hth_ucx_conn *c = hth_ucx_conn_get(t, in->conn);

    if (c && !c->muted) {
        if (in->id == HTH_UCX_AM_GREETING)
            hth_ucx_conn_greeted(t, c, in->bytes, in->len);
        else if (!c->announced)
            hth_ucx_conn_fail(t, c, HEARTH_EPROTO, "the peer spoke before its greeting");
        else if (in->id == HTH_UCX_AM_ASK)
            hth_ucx_serve(t, c, in->bytes, in->len);
        else if (t->events.on_message)
            t->events.on_message(t->events.self, in->conn, in->bytes, in->len);
    }
    free(in);
}

static void run(struct hth_ucx *t, struct hth_ucx_event *e)
{
    struct hth_ucx_request *request;

    switch (e->kind) {
    case HTH_UCX_REQUEST:
        request = OWNER(e, struct hth_ucx_request, event);
        hth_ucx_conn_accept(t, request->request);
        free(request);
        break;
    case HTH_UCX_INBOUND:
        inbound(t, OWNER(e, struct hth_ucx_inbound, event));
        break;
    case HTH_UCX_WRITABLE:
        hth_ucx_writable(t, OWNER(e, struct hth_ucx_conn, writable));
        break;
    case HTH_UCX_PULLED:
        hth_ucx_pulled(OWNER(e, struct hth_ucx_pull, event));
        break;
    case HTH_UCX_DOWN:
        hth_ucx_conn_down(t, OWNER(e, struct hth_ucx_conn, down));
        break;
    }
}

/* Only what is noted now: what the user starts meanwhile has its turn in the next round. */
int hth_ucx_events_run(struct hth_ucx *t)
{
    struct hth_ucx_event *e = t->noted;
    int done = 0;

    t->noted = NULL;
    t->noted_end = &t->noted;
    while (e) {
        struct hth_ucx_event *next = e->next;

        run(t, e);
        done++;
        e = next;
    }
    return done;
}
