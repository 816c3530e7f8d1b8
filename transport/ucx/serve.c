/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to questions of peers. UCX over TCP checks nothing, so the owner's own table is what
 * refuses: a question is answered only for a grant that lives, on the connection it was made
 * for, with its nonce, and inside its bounds. Then the bytes leave straight from the mapping. UCX
 * stops no send, so what was sent counts only after our word that the grant stood until the end:
 * after a revoke() the owner may write there at once.
 */
#include "ucx.h"

#include <stdlib.h>

static void serve_answer(struct hth_ucx *t, struct hth_ucx_conn *c, uint64_t pull, int code)
{
    unsigned char header[HTH_UCX_REPLY] = { 0 };

    hth_put64(header, pull);
    hth_put32(header + 8, (uint32_t)code);
    hth_ucx_post(t, c, HTH_UCX_AM_REPLY, header, sizeof(header));
}

void hth_ucx_serve(struct hth_ucx *t, struct hth_ucx_conn *c, const unsigned char *ask)
{
    const struct hth_ucx_grant *g = hth_ids_get(&t->grants, hth_get64(ask));
    uint64_t nonce = hth_get64(ask + 8), off = hth_get64(ask + 16), len = hth_get64(ask + 24);
    struct hth_ucx_packet *p;

    if (c->state != HTH_UCX_UP)
        return;
    if (!g || g->conn != c->id || g->nonce != nonce || off > g->len || len > g->len - off) {
        serve_answer(t, c, hth_get64(ask + 32), HEARTH_EDENIED);
        return;
    }
    if (len == 0) {
        serve_answer(t, c, hth_get64(ask + 32), 0);
        return;
    }
    if (c->serving >= HTH_UCX_CONN_PULLS) {
        hth_ucx_conn_fail(t, c, HEARTH_EPROTO, "the peer asks for more than %u pulls at once",
                HTH_UCX_CONN_PULLS);
        return;
    }
    p = hth_ucx_packet_new(t, c, HTH_UCX_AM_REPLY, 0);
    if (!p) {
        hth_ucx_conn_fail(t, c, HEARTH_EPEER, "this node has no memory for a reply");
        return;
    }
    p->region = p->holds = g->region;
    p->grant = g->id;
    p->data = g->region->base + g->off + off;
    p->data_len = len;
    p->header_len = HTH_UCX_REPLY;
    hth_put64(p->header, hth_get64(ask + 32));
    c->serving++;
    p->region->serving++;
    p->holds->held++;
    hth_ucx_packet_start(t, c, p);
}

void hth_ucx_served(struct hth_ucx *t, struct hth_ucx_packet *p)
{
    struct hth_ucx_conn *c = hth_ucx_conn_get(t, p->conn);
    int code = hth_ids_get(&t->grants, p->grant) ? 0 : HEARTH_EDENIED;

    if (c && c->state == HTH_UCX_UP)
        serve_answer(t, c, hth_get64(p->header), code);
    free(p);
}
