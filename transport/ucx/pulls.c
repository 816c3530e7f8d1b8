/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of our pulls, and how each of them ends, once.
 *
 * UCX knows nothing of a question without its answer: 1 to 3 of 4 pulls get no completion when an
 * owner dies. So this table is the truth; what is left in it when a connection has been closed
 * fails then, and not earlier: UCX writes into a destination until it has given the receive back,
 * which after a forced close it does a little later than it reports the close.
 */
#include "ucx.h"

#include "core/base/crc.h"

#include <stdlib.h>

void hth_ucx_pull_complete(struct hth_ucx_pull *p, int code)
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
    const struct hth_ucx_pull was = *p;
    struct hth_ucx *t = p->t;

    hth_ids_drop(&t->pulls, p->id);
    free(p);
    t->pulled_crc = t->gets || was.code ? NULL : &was.crc;
    if (t->events.on_pull)
        t->events.on_pull(t->events.self, was.cookie, was.code);
    t->pulled_crc = NULL;
}

int hth_ucx_pulled_crc(struct hth_transport *base, uint32_t *out)
{
    const uint32_t *crc = ((struct hth_ucx *)(void *)base)->pulled_crc;

    if (crc)
        *out = *crc;
    return crc != NULL;
}

/* UCX has given the destination back. */
void hth_ucx_pull_received(struct hth_ucx_pull *p, ucs_status_t status, size_t len)
{
    struct hth_ucx_conn *c = hth_ucx_conn_get(p->t, p->conn);

    c->receiving--; /* c is not NULL: a connection stays until this is 0 */
    p->received = status == UCS_OK && len == p->len;
    if (p->received && !p->t->gets) /* this thread has copied it, and its cache still has most */
        p->crc = hth_crc32c(p->dst, p->len);
    if (p->received && p->judged)
        hth_ucx_pull_complete(p, p->code);
    else if (!p->received)
        hth_ucx_conn_fail(p->t, c, HEARTH_EPEER, "a pull broke off: %s", ucs_status_string(status));
}

void hth_ucx_pulls_fail(struct hth_ucx *t, struct hth_ucx_conn *c)
{
    for (uint32_t i = 0; c->pulls && i < t->pulls.cap; i++) {
        struct hth_ucx_pull *p = hth_ids_at(&t->pulls, i);

        if (p && p->conn == c->id && !p->completed)
            hth_ucx_pull_complete(p, c->code);
    }
}

/* After the worker is gone, and with it every callback that was still owed. */
void hth_ucx_pulls_fini(struct hth_ucx *t)
{
    for (uint32_t i = 0; i < t->pulls.cap; i++)
        free(hth_ids_at(&t->pulls, i));
    hth_ids_fini(&t->pulls);
}
