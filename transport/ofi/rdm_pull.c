/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pulls of connections that are made of packets (pulls.c), on the pull endpoint of the moment.
 *
 *   FREE ─► WAITS ─ peer knows the endpoint, library takes it ─► POSTED ─ last piece ─► on_pull(0), FREE
 *     │       ▲                                                     │  │ failed
 *     │       └──────────── its endpoint was closed ────────────────┘  ▼
 *     └► RIPE (no bytes) ─► on_pull(0)        orphan's endpoint closed ─► FAILED ─► on_pull(code), FREE
 *
 * A posted pull whose connection is over is an orphan: the library has no way to take it back but
 * by closing the endpoint, and until then the bytes may still come.
 */
#include "rdm.h"

#include "core/base/bytes.h"

/* Maps a raw key to a key that the library accepts, for as long as the pull needs it. */
static int pull_map_key(struct hth_rdm *r, struct hth_ofi_pull *p)
{
    uint64_t key;
    int rc;

    if (!p->raw_bytes || p->mapped)
        return 0;
    rc = fi_mr_map_raw(r->o.domain, p->key, p->raw, p->raw_bytes, &key, 0);
    if (rc)
        return rc;
    p->key = key;
    p->mapped = 1;
    return 0;
}

/* 0 or -fi_errno. */
static ssize_t pull_post(struct hth_rdm_conn *c, uint32_t index, struct hth_rdm_end *e)
{
    struct hth_ofi_pull *p = &c->link.pull[index];
    struct hth_rdm_op *op;
    fi_addr_t at;
    ssize_t rc = hth_rdm_peer_at(c, e, &at);

    if (!rc)
        rc = pull_map_key(c->r, p);
    if (rc)
        return rc;
    op = hth_rdm_op_take(e, c->peer, c->link.id, index);
    if (!op)
        return -FI_EAGAIN;
    p->piece = p->left < e->most ? p->left : e->most;
    rc = fi_read(e->ep, p->into, p->piece,
            c->r->o.mr_mode & FI_MR_LOCAL ? fi_mr_desc(p->region->mr) : NULL, at, p->from, p->key,
            op);
    if (rc) {
        hth_rdm_op_give(op);
        return rc;
    }
    p->end = e;
    hth_ofi_pull_move_to(&c->link, p, HTH_OFI_PULL_POSTED);
    hth_rdm_conn_taken(c);
    return 0;
}

void hth_rdm_pulls_post(struct hth_rdm_conn *c)
{
    struct hth_rdm_end *e;
    ssize_t rc = 0;

    if (!c->link.pulls || c->link.state != HTH_OFI_UP)
        return;
    e = hth_rdm_pull_end(c->r);
    if (!e) {
        hth_rdm_conn_refused(c, -FI_EAGAIN);
        return;
    }
    if (!hth_rdm_peer_knows(c, e))
        return; /* its answer goes on */
    for (uint32_t i = 0; !rc && i < HTH_OFI_RING; i++)
        if (c->link.pull[i].state == HTH_OFI_PULL_WAITS)
            rc = pull_post(c, i, e);
    if (rc)
        hth_rdm_conn_refused(c, rc);
}

int hth_rdm_reader_taken(struct hth_rdm_conn *c, const unsigned char *bytes, size_t len)
{
    if (len != 8 || hth_get64(bytes) > c->end_told)
        return HEARTH_EPROTO;
    c->end_ok = (uint32_t)hth_get64(bytes);
    hth_rdm_pulls_post(c);
    return HEARTH_OK;
}

void hth_rdm_pull_post(struct hth_ofi_link *link, uint32_t index)
{
    struct hth_rdm_conn *c = (struct hth_rdm_conn *)link;

    (void)index; /* it is posted after the pulls that wait already */
    c->r->lately_us = hth_rdm_real_us();
    hth_rdm_pulls_post(c);
}

static void pull_disown(struct hth_ofi_pull *p)
{
    if (!p->orphan)
        return;
    p->orphan = 0;
    p->end->orphans--;
    p->end->orphan_bytes -= p->piece;
}

static void pull_failed(struct hth_rdm_conn *c, struct hth_ofi_pull *p, int fi_err)
{
    hth_ofi_pull_failed(&c->link, p, fi_err);
    if (c->link.state == HTH_OFI_UP)
        hth_rdm_conn_leave(c, HEARTH_EPEER, c->r->o.lib->strerror(fi_err), 1);
    hth_rdm_conn_doom_ready(c);
}

void hth_rdm_pulled(struct hth_rdm_conn *c, uint32_t index, int fi_err)
{
    struct hth_ofi_pull *p = &c->link.pull[index];
    int is_up;

    if (p->state != HTH_OFI_PULL_POSTED)
        return;
    pull_disown(p);
    if (fi_err) {
        pull_failed(c, p, fi_err);
        return;
    }
    if (c->r->o.sockets && c->peer->sealed != p->end->number) {
        hth_ofi_fds_seal(NULL, &c->r->o.self);
        c->peer->sealed = p->end->number;
    }
    is_up = c->link.state == HTH_OFI_UP; /* if not, the owner may have freed the bytes */
    if (hth_ofi_pull_came(&c->link, p) && is_up)
        hth_ofi_pull_complete(&c->link, p, HEARTH_OK);
    else
        hth_ofi_pull_move_to(&c->link, p, is_up ? HTH_OFI_PULL_WAITS : HTH_OFI_PULL_FAILED);
    hth_rdm_pulls_post(c);
    hth_rdm_conn_doom_ready(c);
}

static void pulls_return_one(struct hth_rdm_conn *c, const struct hth_rdm_end *e)
{
    for (uint32_t i = 0; c->link.reading && i < HTH_OFI_RING; i++) {
        struct hth_ofi_pull *p = &c->link.pull[i];

        if (p->state != HTH_OFI_PULL_POSTED || p->end != e)
            continue;
        p->orphan = 0;
        hth_ofi_pull_move_to(&c->link, p,
                c->link.state == HTH_OFI_UP ? HTH_OFI_PULL_WAITS : HTH_OFI_PULL_FAILED);
    }
}

void hth_rdm_pulls_return(struct hth_rdm *r, const struct hth_rdm_end *e)
{
    for (uint32_t s = 0; s < r->o.conns.cap; s++) {
        struct hth_rdm_conn *c = hth_ids_at(&r->o.conns, s);

        if (!c || !c->link.reading)
            continue;
        pulls_return_one(c, e);
        if (c->link.state == HTH_OFI_UP)
            hth_rdm_conn_refused(c, -FI_EAGAIN); /* again at the next turn */
        hth_rdm_conn_doom_ready(c);
    }
}
