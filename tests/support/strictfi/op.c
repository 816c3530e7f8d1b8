/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operation, from the call that posts it until the program has read its completion: all that
 * time its context, its memory and its region are the provider's.
 */
#include "strictfi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static struct sfi_op *under_way; /* of the process */

/* ---- contexts ---- */

static void context_pattern(const struct sfi_op *op, uint64_t out[8])
{
    for (unsigned i = 0; i < 8; i++)
        out[i] = (uint64_t)(uintptr_t)op * 0x9e3779b97f4a7c15u + i;
}

/* FI_CONTEXT2: the memory behind the context is ours; a number there is found out here. */
static void context_take(struct sfi_op *op)
{
    uint64_t pattern[8];
    struct iovec from = { pattern, sizeof(pattern) }, to = { op->context, sizeof(pattern) };

    if (!op->context)
        sfi_sin("context", "FI_CONTEXT2: an operation was given no context");
    for (const struct sfi_op *o = under_way; o; o = o->all) {
        uintptr_t a = (uintptr_t)o->context, b = (uintptr_t)op->context;

        if (o != op && o->marked && (a > b ? a - b : b - a) < sizeof(struct fi_context2))
            sfi_sin("context",
                    "FI_CONTEXT2: a context was used again before its operation's completion "
                    "was read");
    }
    context_pattern(op, pattern);
    if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) < 0) {
        if (errno == EFAULT)
            sfi_sin("context", "FI_CONTEXT2: a context is no memory that can be written");
        memcpy(op->context, pattern, sizeof(pattern));
    }
    op->marked = 1;
}

static void context_check(const struct sfi_op *op)
{
    uint64_t pattern[8];

    context_pattern(op, pattern);
    if (op->marked && memcmp(op->context, pattern, sizeof(pattern)) != 0)
        sfi_sin("context", "FI_CONTEXT2: a program wrote into a context under way");
}

/* ---- operations ---- */

struct sfi_op *sfi_op_new(struct sfi_ep *ep, enum sfi_kind kind, void *context)
{
    struct sfi_op *op = calloc(1, sizeof(*op));

    if (!op)
        return NULL;
    op->ep = ep;
    op->kind = kind;
    op->context = context;
    op->id = ++ep->ids;
    op->due_turn = ep->turn + sfi_random(ep->domain->p->late + 1);
    op->at = &under_way;
    op->all = under_way;
    if (under_way)
        under_way->at = &op->all;
    under_way = op;
    return op;
}

void sfi_op_take_context(struct sfi_op *op)
{
    if (op->ep->domain->p->mode & FI_CONTEXT2)
        context_take(op);
}

void sfi_op_release(struct sfi_op *op)
{
    for (size_t i = 0; i < op->iovs; i++)
        if (op->mr[i])
            op->mr[i]->busy--;
    memset(op->mr, 0, sizeof(op->mr));
    op->marked = 0;
}

void sfi_op_free(struct sfi_op *op)
{
    sfi_op_release(op);
    *op->at = op->all;
    if (op->all)
        op->all->at = op->at;
    free(op->copy);
    free(op);
}

static uint32_t sum_bytes(uint32_t sum, const unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        sum = (sum ^ bytes[i]) * 0x01000193u;
    return sum;
}

uint32_t sfi_op_sum(const struct sfi_op *op)
{
    uint32_t sum = 0x811c9dc5u;

    for (size_t i = 0; i < op->iovs; i++)
        sum = sum_bytes(sum, op->iov[i].iov_base, op->iov[i].iov_len);
    return sum;
}

void sfi_op_end(struct sfi_op *op, int err)
{
    struct sfi_ep *ep = op->ep;

    sfi_list_take(op->kind == SFI_RECV ? &ep->rx : &ep->tx, op);
    op->err = err;
    op->state = SFI_DONE;
    if (op->cq)
        sfi_cq_put(op);
    else
        sfi_op_free(op);
}

/* Call before the program learns that the operation has ended. */
void sfi_op_check(const struct sfi_op *op)
{
    if (op->ep->closed)
        return;
    context_check(op);
    if (op->kind == SFI_SEND && !op->copy && op->sum != sfi_op_sum(op))
        sfi_sin("send-buffer", "a program wrote into the memory of a send under way");
}

/* ---- lists ---- */

void sfi_list_put(struct sfi_ops_list *list, struct sfi_op *op)
{
    op->next = NULL;
    if (list->tail)
        list->tail->next = op;
    else
        list->head = op;
    list->tail = op;
    list->count++;
}

void sfi_list_take(struct sfi_ops_list *list, struct sfi_op *op)
{
    struct sfi_op *before = NULL;

    for (struct sfi_op *o = list->head; o != op; o = o->next)
        before = o;
    if (before)
        before->next = op->next;
    else
        list->head = op->next;
    if (list->tail == op)
        list->tail = before;
    op->next = NULL;
    list->count--;
}
