/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pulls: one fi_read() each, or several in a row where the provider's messages are shorter, on the pull
 * endpoint of the moment.
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
#include "core/base/crc.h"
#include <string.h>

/* Counts the pulls that the library has. */
static void pull_move_to(
        struct hth_rdm_conn *c, struct hth_rdm_pull *p, enum hth_ofi_pull_state state)
{
    c->reading += (state == HTH_OFI_PULL_POSTED) - (p->state == HTH_OFI_PULL_POSTED);
    p->state = state;
}

static struct hth_rdm_pull *pull_find_free(struct hth_rdm_conn *c)
{
    for (uint32_t i = 0; i < HTH_RDM_PULLS; i++)
        if (c->pull[i].state == HTH_OFI_PULL_FREE)
            return &c->pull[i];
    return NULL;
}

/* A raw key becomes one that the library takes, for as long as the pull needs it. */
static int pull_map_key(struct hth_rdm *r, struct hth_rdm_pull *p)
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
    struct hth_rdm_pull *p = &c->pull[index];
    struct hth_rdm_op *op;
    fi_addr_t at;
    ssize_t rc = hth_rdm_peer_at(c, e, &at);

    if (!rc)
        rc = pull_map_key(c->r, p);
    if (rc)
        return rc;
    op = hth_rdm_op_take(e, c->peer, c->id, index);
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
    pull_move_to(c, p, HTH_OFI_PULL_POSTED);
    hth_rdm_conn_taken(c);
    return 0;
}

void hth_rdm_pulls_post(struct hth_rdm_conn *c)
{
    struct hth_rdm_end *e;
    ssize_t rc = 0;

    if (!c->pulls || c->state != HTH_RDM_UP)
        return;
    e = hth_rdm_pull_end(c->r);
    if (!e) {
        hth_rdm_conn_refused(c, -FI_EAGAIN);
        return;
    }
    if (!hth_rdm_peer_knows(c, e))
        return; /* its answer goes on */
    for (uint32_t i = 0; !rc && i < HTH_RDM_PULLS; i++)
        if (c->pull[i].state == HTH_OFI_PULL_WAITS)
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

int hth_rdm_pull(struct hth_transport *t, hth_conn conn, const unsigned char *desc,
        uint32_t desc_len, uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len,
        uint64_t cookie)
{
    struct hth_rdm *r = hth_rdm_of(t);
    struct hth_rdm_conn *c = hth_rdm_conn_get(r, conn);
    struct hth_ofi_desc d;
    struct hth_rdm_pull *p;

    if (hth_ofi_desc_read(desc, desc_len, &d) || !hth_ofi_desc_fits(&d, roff, region, doff, len) ||
            !d.raw_bytes != !(r->o.mr_mode & FI_MR_RAW))
        return HEARTH_EINVAL;
    if (!c || c->state != HTH_RDM_UP)
        return HEARTH_EPEER;
    p = pull_find_free(c);
    if (!p)
        return HEARTH_EBUSY;
    *p = (struct hth_rdm_pull){ .cookie = cookie,
        .region = region,
        .into = region->base + doff,
        .left = len,
        .from = d.base + roff,
        .key = d.key,
        .number = d.number,
        .code = hth_ofi_grant_is_over(&c->grants, d.number) ? HEARTH_EDENIED : HEARTH_OK,
        .raw_bytes = d.raw_bytes };
    memcpy(p->raw, d.raw, d.raw_bytes);
    region->busy++;
    c->pulls++;
    r->lately_us = hth_rdm_real_us();
    pull_move_to(c, p, len && !p->code ? HTH_OFI_PULL_WAITS : HTH_OFI_PULL_RIPE);
    r->ripe += p->state == HTH_OFI_PULL_RIPE;
    if (p->state == HTH_OFI_PULL_WAITS)
        hth_rdm_pulls_post(c);
    return HEARTH_OK;
}

int hth_rdm_pulls_read(const struct hth_rdm_conn *c, uint32_t number)
{
    for (uint32_t i = 0; c->pulls && i < HTH_RDM_PULLS; i++)
        if (c->pull[i].state != HTH_OFI_PULL_FREE && c->pull[i].number == number)
            return 1;
    return 0;
}

/* If that was the last pull under a grant that is over, the owner may be waiting for OVER. */
static void pull_tell_owner(struct hth_rdm_conn *c, uint32_t number)
{
    if (c->state != HTH_RDM_UP || !hth_ofi_grant_is_over(&c->grants, number) ||
            hth_rdm_pulls_read(c, number))
        return;
    if (hth_ofi_grant_unread(&c->grants, number))
        hth_rdm_conn_leave(c, HEARTH_ENOMEM, "no memory to answer about a grant", 1);
    else
        hth_rdm_flush(c);
}

static void pull_complete(struct hth_rdm_conn *c, struct hth_rdm_pull *p, int code)
{
    const uint32_t crc = p->crc; /* the place may be another's in the callback */
    struct hth_rdm *r = c->r;

    if (p->state == HTH_OFI_PULL_RIPE)
        r->ripe--;
    if (p->mapped)
        fi_mr_unmap_key(r->o.domain, p->key);
    pull_move_to(c, p, HTH_OFI_PULL_FREE);
    p->region->busy--;
    c->pulls--;
    pull_tell_owner(c, p->number);
    r->o.pulled_crc = r->o.sockets && !code ? &crc : NULL;
    r->o.events.on_pull(r->o.events.self, p->cookie, code);
    r->o.pulled_crc = NULL;
}

static void pull_disown(struct hth_rdm_pull *p)
{
    if (!p->orphan)
        return;
    p->orphan = 0;
    p->end->orphans--;
    p->end->orphan_bytes -= p->piece;
}

static void pull_failed(struct hth_rdm_conn *c, struct hth_rdm_pull *p, int fi_err)
{
    pull_move_to(c, p, HTH_OFI_PULL_FAILED);
    if (fi_err == FI_EACCES || fi_err == FI_EPERM || fi_err == FI_ENOKEY)
        p->code = HEARTH_EDENIED;
    if (c->state == HTH_RDM_UP)
        hth_rdm_conn_leave(c, HEARTH_EPEER, c->r->o.lib->strerror(fi_err), 1);
    hth_rdm_conn_doom_ready(c);
}

uint64_t hth_rdm_pulled_ms(struct hth_transport *t, hth_conn conn)
{
    const struct hth_rdm_conn *c = hth_rdm_conn_get(hth_rdm_of(t), conn);

    return c ? c->pulled_ms : 0;
}

void hth_rdm_pulled(struct hth_rdm_conn *c, uint32_t index, int fi_err)
{
    struct hth_rdm_pull *p = &c->pull[index];

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
    if (c->r->o.sockets)
        p->crc = hth_crc32c_more(p->crc, p->into, p->piece);
    c->pulled_ms = hth_now_ms(&c->r->o.clock);
    p->left -= p->piece;
    p->into += p->piece;
    p->from += p->piece;
    if (!p->left && c->state == HTH_RDM_UP) { /* not UP: the owner may have freed the bytes */
        pull_complete(c, p, HEARTH_OK);
    } else if (c->state == HTH_RDM_UP) {
        pull_move_to(c, p, HTH_OFI_PULL_WAITS);
    } else {
        pull_move_to(c, p, HTH_OFI_PULL_FAILED);
    }
    hth_rdm_pulls_post(c);
    hth_rdm_conn_doom_ready(c);
}

int hth_rdm_pulls_ripen(struct hth_rdm *r)
{
    int n = 0;

    for (uint32_t s = 0; r->ripe && s < r->o.conns.cap; s++) {
        struct hth_rdm_conn *c = hth_ids_at(&r->o.conns, s);

        for (uint32_t i = 0; c && i < HTH_RDM_PULLS && c->state == HTH_RDM_UP; i++)
            if (c->pull[i].state == HTH_OFI_PULL_RIPE) {
                pull_complete(c, &c->pull[i], c->pull[i].code);
                n++;
            }
    }
    return n;
}

static void pulls_return_one(struct hth_rdm_conn *c, const struct hth_rdm_end *e)
{
    for (uint32_t i = 0; c->reading && i < HTH_RDM_PULLS; i++) {
        struct hth_rdm_pull *p = &c->pull[i];

        if (p->state != HTH_OFI_PULL_POSTED || p->end != e)
            continue;
        p->orphan = 0;
        pull_move_to(c, p, c->state == HTH_RDM_UP ? HTH_OFI_PULL_WAITS : HTH_OFI_PULL_FAILED);
    }
}

void hth_rdm_pulls_return(struct hth_rdm *r, const struct hth_rdm_end *e)
{
    for (uint32_t s = 0; s < r->o.conns.cap; s++) {
        struct hth_rdm_conn *c = hth_ids_at(&r->o.conns, s);

        if (!c || !c->reading)
            continue;
        pulls_return_one(c, e);
        if (c->state == HTH_RDM_UP)
            hth_rdm_conn_refused(c, -FI_EAGAIN); /* again at the next turn */
        hth_rdm_conn_doom_ready(c);
    }
}

void hth_rdm_pulls_end(struct hth_rdm_conn *c)
{
    for (uint32_t i = 0; i < HTH_RDM_PULLS; i++) {
        struct hth_rdm_pull *p = &c->pull[i];

        if (p->state == HTH_OFI_PULL_FREE)
            continue;
        pull_complete(c, p,
                p->code                       ? p->code
                : c->code == HEARTH_ECANCELED ? c->code
                                              : HEARTH_EPEER);
    }
}
