/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a connection, and how it ends: for all files that find its end. Its life:
 * rdm_conn.c. */
#include "rdm.h"

#include <string.h>

void hth_rdm_scan_soon(struct hth_rdm *r)
{
    uint64_t at = hth_rdm_now(r) + HTH_RDM_SCAN_MS;

    if (at < r->scan_ms)
        r->scan_ms = at;
}

void hth_rdm_conn_up(struct hth_rdm_conn *c)
{
    struct hth_rdm *r = c->r;

    if (c->link.state == HTH_OFI_HALF_OPEN)
        hth_ofi_list_take(&r->half, &c->link);
    r->waiting--;
    if (r->o.sockets)
        hth_ofi_fds_seal(NULL, &r->o.self);
    hth_rdm_peer_note_socket(r, c->peer);
    hth_ofi_link_up(&c->link);
}

/* ---- ending ---- */

void hth_rdm_byes_post(struct hth_rdm *r)
{
    struct hth_rdm_end *e = &r->home;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < r->byes; i++) {
        struct hth_rdm_bye *bye = &r->bye[i];
        struct hth_rdm_op *op = hth_rdm_op_take(e, bye->peer, 0, 0);
        ssize_t rc = -FI_EAGAIN;

        if (op) {
            memcpy(op->bytes, bye->bytes, HTH_RDM_HEAD);
            rc = fi_send(e->ep, op->bytes, HTH_RDM_HEAD, e->mr ? fi_mr_desc(e->mr) : NULL,
                    bye->peer->home, op);
            if (rc)
                hth_rdm_op_give(op);
        }
        if (rc == -FI_EAGAIN && bye->due_ms > hth_rdm_now(r))
            r->bye[kept++] = *bye;
        else
            hth_rdm_peer_put(r, bye->peer);
    }
    r->byes = kept;
}

/* The connection may be gone before the library takes it. */
static void bye_queue(struct hth_rdm_conn *c)
{
    struct hth_rdm *r = c->r;
    struct hth_rdm_head head = { .kind = HTH_RDM_BYE,
        .to = c->peer_id,
        .token = c->peer_token,
        .seq = c->out_seq,
        .ack = c->in_seq };
    struct hth_rdm_bye *bye = &r->bye[r->byes];

    if (r->byes == HTH_RDM_BYES)
        return; /* the peer finds out by itself */
    r->byes++;
    hth_rdm_head_write(&head, bye->bytes);
    bye->due_ms = hth_rdm_now(r) + r->o.connect_ms;
    bye->peer = c->peer;
    c->peer->refs++;
    hth_rdm_byes_post(r);
}

void hth_rdm_conn_doom_ready(struct hth_rdm_conn *c)
{
    if (c->link.state != HTH_OFI_LEAVING || c->link.reading)
        return;
    hth_ofi_link_doom(&c->link);
}

static void pulls_orphan(struct hth_rdm_conn *c)
{
    for (uint32_t i = 0; c->link.reading && i < HTH_OFI_RING; i++) {
        struct hth_ofi_pull *p = &c->link.pull[i];

        if (p->state != HTH_OFI_PULL_POSTED || p->orphan)
            continue;
        p->orphan = 1;
        p->end->orphans++;
        p->end->orphan_bytes += p->piece;
    }
}

void hth_rdm_conn_leave(struct hth_rdm_conn *c, int code, const char *why, int tell)
{
    struct hth_rdm *r = c->r;

    if (c->link.state == HTH_OFI_DOOMED)
        return;
    hth_ofi_link_note(&c->link, c->peer->label, code, why);
    if (c->link.state == HTH_OFI_LEAVING)
        return;
    if (c->link.state == HTH_OFI_HALF_OPEN)
        hth_ofi_list_take(&r->half, &c->link);
    if ((c->link.state == HTH_OFI_UP && tell) || (c->link.state == HTH_OFI_HALF_OPEN && c->out_seq))
        bye_queue(c);
    if (c->link.state != HTH_OFI_UP)
        r->waiting--;
    hth_ofi_link_stuck(&c->link, 0);
    c->link.state = HTH_OFI_LEAVING;
    pulls_orphan(c);
    hth_rdm_conn_doom_ready(c);
}

void hth_rdm_conn_taken(struct hth_rdm_conn *c)
{
    c->stuck_ms = 0;
}

void hth_rdm_conn_refused(struct hth_rdm_conn *c, ssize_t rc)
{
    struct hth_rdm *r = c->r;

    if (rc != -FI_EAGAIN) {
        hth_rdm_conn_leave(c, HEARTH_EPEER, r->o.lib->strerror((int)-rc), 0);
        return;
    }
    if (!c->stuck_ms)
        c->stuck_ms = hth_rdm_now(r);
    hth_ofi_link_stuck(&c->link, 1);
    hth_rdm_scan_soon(r);
}
