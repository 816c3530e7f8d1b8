/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One turn of an endpoint: packets that have come are fetched, packets that are due are sent, and a
 * peer that was silent for a while is pinged.
 */
#include "strictfi.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIECE      ((size_t)1 << 20) /* of a read, by one permission */
#define FETCHED    64u               /* datagrams in one turn */
#define INBOX_MOST 16384u
#define ASK_MS     100 /* without an answer, until the peer is probed */
#define DEAD_MS    300 /* until an operation with a dead process ends */

static struct sfi_op *op_find(struct sfi_ep *ep, uint64_t id)
{
    struct sfi_op *op = ep->tx.head;

    while (op && op->id != id)
        op = op->next;
    return op;
}

/* No endpoint has that address any more. */
static void op_deserted(struct sfi_op *op)
{
    uint64_t now = sfi_now_ms();

    if (op->ep->domain->p->type == FI_EP_MSG)
        return; /* its connection goes down by itself */
    if (!op->since_ms)
        op->since_ms = now;
    if (op->kind == SFI_READ && op->ep->domain->p->dead_silent)
        op->state = SFI_AWAY;
    else if (now - op->since_ms >= DEAD_MS)
        sfi_op_end(op, FI_EHOSTUNREACH);
}

/* ---- arrivals ---- */

static void letter_put(struct sfi_ep *ep, const struct sfi_wire *head, const void *body, size_t len)
{
    struct sfi_letter *l = malloc(sizeof(*l) + len);

    if (!l)
        return;
    l->next = NULL;
    l->from = head->from;
    l->op = head->op;
    l->data = head->data;
    l->flags = head->flags;
    l->due_turn = ep->turn;
    if (!ep->domain->p->msg_order)
        l->due_turn += sfi_random(ep->domain->p->late + 1);
    l->len = len;
    memcpy(l->bytes, body, len);
    *ep->inbox_end = l;
    ep->inbox_end = &l->next;
    if (++ep->inbox_count > INBOX_MOST)
        sfi_sin("receives", "more than %u messages came and no receive was posted for them",
                INBOX_MOST);
}

static void receive_fill(struct sfi_op *op, const struct sfi_letter *l)
{
    size_t at = 0;

    for (size_t i = 0; i < op->iovs && at < l->len; i++) {
        size_t part = l->len - at < op->iov[i].iov_len ? l->len - at : op->iov[i].iov_len;

        memcpy(op->iov[i].iov_base, l->bytes + at, part);
        at += part;
    }
    op->got = at;
    op->peer = l->from;
    op->data = l->data;
    op->flags |= l->flags & FI_REMOTE_CQ_DATA;
}

void sfi_match(struct sfi_ep *ep)
{
    struct sfi_letter **at = &ep->inbox, *l;

    while ((l = *at) && ep->rx.head && !sfi_cq_full(ep->rx_cq)) {
        struct sfi_op *op = ep->rx.head;

        if (l->due_turn > ep->turn) {
            at = &l->next;
            continue;
        }
        receive_fill(op, l);
        if (ep->domain->p->delivered) {
            struct sfi_wire taken = { .word = SFI_WORD_TAKEN, .op = l->op };

            sfi_wire_answer(ep, l->from, &taken, NULL, 0);
        }
        sfi_op_end(op, op->got < l->len ? FI_ETRUNC : 0);
        *at = l->next;
        if (!l->next)
            ep->inbox_end = at;
        ep->inbox_count--;
        free(l);
    }
}

/* The next bytes, into the memory of the read. */
static void read_copy(struct sfi_op *op, const struct sfi_wire *go)
{
    struct iovec into[SFI_IOV], from = { (void *)(uintptr_t)go->addr, go->len };
    size_t skip = op->got, left = go->len, n = 0;
    ssize_t rc = 0;

    for (size_t i = 0; i < op->iovs && left; i++) {
        size_t off = skip < op->iov[i].iov_len ? skip : op->iov[i].iov_len;
        size_t part = op->iov[i].iov_len - off < left ? op->iov[i].iov_len - off : left;

        skip -= off;
        left -= part;
        if (part)
            into[n++] = (struct iovec){ (char *)op->iov[i].iov_base + off, part };
    }
    if (n && go->memory >= 0)
        rc = preadv(go->memory, into, (int)n, (off_t)go->addr);
    else if (n)
        rc = process_vm_readv((pid_t)go->pid, into, n, &from, 1, 0);
    if (rc < 0 && (errno == EPERM || errno == ENOSYS))
        sfi_sin("setup", "process_vm_readv() of process %u: %s", go->pid, strerror(errno));
    if (rc != (ssize_t)go->len) {
        sfi_op_end(op, FI_EFAULT);
        return;
    }
    op->got += go->len;
    op->state = SFI_HELD;
    if (op->got == op->len)
        sfi_op_end(op, 0);
}

static void read_refused(struct sfi_op *op, const char *body, size_t len)
{
    const char *why = body + strnlen(body, len) + 1;
    struct sfi_ep *ep = op->ep;

    if (why >= body + len || body[len - 1])
        return;
    if (!sfi_forgiven(body))
        sfi_sin(body, "%s", why);
    sfi_op_end(op, FI_EACCES);
    if (ep->domain->p->type == FI_EP_MSG) { /* such a queue pair is lost */
        sfi_cm_leave(ep);
        sfi_cm_down(ep, FI_ECONNABORTED);
    }
}

static void heard(struct sfi_ep *ep, const struct sfi_wire *head, const void *body, size_t len)
{
    struct sfi_op *op = NULL;

    if (head->word >= SFI_WORD_CONNECT) {
        sfi_cm_heard(ep, head, body, len);
    } else if (ep->domain->p->type == FI_EP_MSG && head->from != ep->peer) {
        return;
    } else if (head->word == SFI_WORD_MESSAGE) {
        letter_put(ep, head, body, len);
    } else if (head->word == SFI_WORD_READ) {
        sfi_serve(ep, head);
    } else if (head->word != SFI_WORD_PROBE) {
        op = op_find(ep, head->op);
        if (!op || op->peer != head->from || op->state != SFI_AWAY)
            return; /* of an operation that ended meanwhile */
        if (head->word == SFI_WORD_TAKEN && op->kind == SFI_SEND)
            sfi_op_end(op, 0);
        else if (head->word == SFI_WORD_GO && op->kind == SFI_READ)
            read_copy(op, head);
        else if (head->word == SFI_WORD_NO && op->kind == SFI_READ)
            read_refused(op, body, len);
    }
}

static void fetch(struct sfi_ep *ep)
{
    static unsigned char body[SFI_MESSAGE_MAX + 1024];
    struct sfi_wire head;
    ssize_t n;

    for (unsigned i = 0; i < FETCHED; i++) {
        n = sfi_wire_fetch(ep->sock, &head, body, sizeof(body));
        if (n < 0)
            break;
        heard(ep, &head, body, (size_t)n);
        if (head.memory >= 0)
            close(head.memory);
    }
}

/* ---- departures ---- */

/* Messages to one peer stay in order: none leaves before an earlier one has. */
static int send_waits(const struct sfi_ep *ep, const struct sfi_op *op)
{
    if (!ep->domain->p->msg_order)
        return 0;
    for (const struct sfi_op *o = ep->tx.head; o != op; o = o->next)
        if (o->kind == SFI_SEND && o->state == SFI_HELD && o->peer == op->peer)
            return 1;
    return 0;
}

static int send_leave(struct sfi_op *op)
{
    struct sfi_wire head = {
        .word = SFI_WORD_MESSAGE, .op = op->id, .data = op->data, .flags = op->flags
    };
    struct iovec copy = { op->copy, op->len };

    return sfi_wire_send(
            op->ep, op->peer, &head, op->copy ? &copy : op->iov, op->copy ? 1 : op->iovs);
}

static int read_leave(struct sfi_op *op)
{
    struct sfi_wire head = { .word = SFI_WORD_READ, .op = op->id, .addr = op->addr + op->got };

    head.len = op->len - op->got < PIECE ? op->len - op->got : PIECE;
    memcpy(head.raw, op->raw, sizeof(head.raw));
    return sfi_wire_send(op->ep, op->peer, &head, NULL, 0);
}

static void op_leave(struct sfi_op *op)
{
    int rc = op->kind == SFI_SEND ? send_leave(op) : read_leave(op);

    if (rc == -ECONNREFUSED) {
        op_deserted(op);
    } else if (!rc) {
        op->state = SFI_AWAY;
        op->asked_ms = sfi_now_ms();
        if (op->kind == SFI_SEND && !op->ep->domain->p->delivered)
            sfi_op_end(op, 0);
    }
}

static void op_probe(struct sfi_op *op)
{
    struct sfi_wire head = { .word = SFI_WORD_PROBE };
    uint64_t now = sfi_now_ms();

    if (now - op->asked_ms < ASK_MS)
        return;
    op->asked_ms = now;
    if (sfi_wire_send(op->ep, op->peer, &head, NULL, 0) == -ECONNREFUSED)
        op_deserted(op);
}

void sfi_progress(struct sfi_ep *ep)
{
    struct sfi_op *next;

    if (!ep->enabled || ep->owner != getpid())
        return;
    ep->turn++;
    sfi_wire_flush(ep);
    fetch(ep);
    sfi_match(ep);
    sfi_cm_progress(ep);
    for (struct sfi_op *op = ep->tx.head; op; op = next) {
        next = op->next;
        if (op->state == SFI_AWAY)
            op_probe(op);
        else if (op->due_turn <= ep->turn && !(op->kind == SFI_SEND && send_waits(ep, op)))
            op_leave(op);
    }
}

int sfi_restless(const struct sfi_ep *ep)
{
    for (const struct sfi_op *op = ep->tx.head; op; op = op->next)
        if (op->state == SFI_HELD && op->due_turn > ep->turn)
            return 1;
    for (const struct sfi_letter *l = ep->inbox; l; l = l->next)
        if (l->due_turn > ep->turn || ep->rx.head)
            return 1;
    return 0;
}
