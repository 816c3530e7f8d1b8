/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection is in, and how it comes to be over: for all that find it out. Its life: rdm_conn.c. */
#include "rdm.h"

#include <stdio.h>
#include <string.h>

void hth_rdm_list_push(struct hth_rdm_list *list, struct hth_rdm_conn *c)
{
    c->next = NULL;
    if (list->tail)
        list->tail->next = c;
    else
        list->head = c;
    list->tail = c;
    list->count++;
}

void hth_rdm_list_take(struct hth_rdm_list *list, struct hth_rdm_conn *c)
{
    struct hth_rdm_list all = *list;
    struct hth_rdm_conn *next;

    *list = (struct hth_rdm_list){ NULL, NULL, 0 };
    for (struct hth_rdm_conn *i = all.head; i; i = next) {
        next = i->next;
        if (i != c)
            hth_rdm_list_push(list, i);
    }
}

void hth_rdm_scan_soon(struct hth_rdm *r)
{
    uint64_t at = hth_rdm_now(r) + HTH_RDM_SCAN_MS;

    if (at < r->scan_ms)
        r->scan_ms = at;
}

void hth_rdm_conn_up(struct hth_rdm_conn *c)
{
    struct hth_rdm *r = c->r;

    if (c->state == HTH_RDM_HALF_OPEN)
        hth_rdm_list_take(&r->half, c);
    r->waiting--;
    c->state = HTH_RDM_UP;
    c->known = 1;
    if (r->o.sockets)
        hth_ofi_fds_seal(NULL, &r->o.self);
    hth_rdm_peer_note_socket(r, c->peer);
    if (c->dialled)
        r->o.events.on_up(r->o.events.self, c->id);
    else
        r->o.events.on_accept(r->o.events.self, c->id);
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
    if (c->state != HTH_RDM_LEAVING || c->reading)
        return;
    c->state = HTH_RDM_DOOMED;
    hth_rdm_list_push(&c->r->doomed, c);
}

static void pulls_orphan(struct hth_rdm_conn *c)
{
    for (uint32_t i = 0; c->reading && i < HTH_RDM_PULLS; i++) {
        struct hth_rdm_pull *p = &c->pull[i];

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

    if (c->state == HTH_RDM_DOOMED)
        return;
    c->code = code;
    snprintf(c->detail, sizeof(c->detail), "%s: %s", c->peer->label, why);
    if (c->state == HTH_RDM_LEAVING)
        return;
    if (c->state == HTH_RDM_HALF_OPEN)
        hth_rdm_list_take(&r->half, c);
    if ((c->state == HTH_RDM_UP && tell) || (c->state == HTH_RDM_HALF_OPEN && c->out_seq))
        bye_queue(c);
    if (c->state != HTH_RDM_UP)
        r->waiting--;
    r->stuck -= (uint32_t)c->stuck;
    c->stuck = 0;
    c->state = HTH_RDM_LEAVING;
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
    r->stuck += !c->stuck;
    c->stuck = 1;
    hth_rdm_scan_soon(r);
}
