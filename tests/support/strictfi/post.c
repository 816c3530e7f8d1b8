/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that post operations, and everything that a caller must have heeded by then. */
#include "strictfi.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SELECTIVE (1ULL << 59) /* FI_SELECTIVE_COMPLETION */
#define SPINS     1000000u     /* refusals in a row without a look at the completion queue */

/* The arguments that all posting calls share. */
struct ask {
    const char *what;
    enum sfi_kind kind;
    const struct iovec *iov;
    void **desc;
    size_t count;
    fi_addr_t peer;
    void *context;
    uint64_t flags, data, addr, key;
};

static size_t ask_len(const struct ask *a)
{
    size_t len = 0;

    for (size_t i = 0; i < a->count; i++)
        len += a->iov[i].iov_len;
    return len;
}

static void ask_check(const struct sfi_ep *ep, const struct ask *a)
{
    const struct sfi_profile *p = ep->domain->p;
    size_t len = ask_len(a), most = a->kind == SFI_READ ? p->max_rma : p->max_msg;

    if (ep->closed)
        sfi_sin("closed", "%s was called on an endpoint that is closed", a->what);
    if (!ep->enabled)
        sfi_sin("enable", "%s was called on an endpoint that is not enabled", a->what);
    if (a->count > p->iov_limit || a->count > SFI_IOV)
        sfi_sin("iov", "%s was given %zu pieces of memory where %zu are the limit", a->what,
                a->count, p->iov_limit);
    if (a->kind == SFI_SEND && most > SFI_MESSAGE_MAX)
        most = SFI_MESSAGE_MAX;
    if (a->kind != SFI_RECV && len > most)
        sfi_sin("size", "%s was given %zu bytes where %zu are the limit", a->what, len, most);
    if (a->flags & FI_INJECT && len > p->inject)
        sfi_sin("inject", "%s was given %zu bytes to inject where %zu are the limit", a->what, len,
                p->inject);
}

/* -FI_EAGAIN in bursts: they end when the program has looked at its completions. */
static int ask_refused(struct sfi_ep *ep, const struct ask *a)
{
    const struct sfi_profile *p = ep->domain->p;

    if (!ep->burst && p->again && sfi_random(100) < p->again)
        ep->burst = 1 + sfi_random(4);
    if (!ep->burst)
        return 0;
    if (++ep->spins > SPINS)
        sfi_sin("retry", "%s was called %u times in vain and no completion queue was read", a->what,
                SPINS);
    return 1;
}

/* 0, or -FI_EAGAIN: no room. */
static int ask_room(struct sfi_ep *ep, const struct ask *a)
{
    const struct sfi_profile *p = ep->domain->p;
    const struct sfi_ops_list *list = a->kind == SFI_RECV ? &ep->rx : &ep->tx;
    size_t size = a->kind == SFI_RECV ? ep->rx_size : ep->tx_size;
    const struct sfi_cq *cq = a->kind == SFI_RECV ? ep->rx_cq : ep->tx_cq;

    if (list->count >= size && p->tx_abort)
        sfi_sin("queue-size",
                "%s was called with %zu operations under way, as many as the queue has", a->what,
                size);
    if (list->count >= size || (a->kind != SFI_RECV && !p->cq_abort && sfi_cq_full(cq)))
        return -FI_EAGAIN;
    return ask_refused(ep, a) ? -FI_EAGAIN : 0;
}

static struct sfi_cq *ask_cq(const struct sfi_ep *ep, const struct ask *a)
{
    uint64_t bound = a->kind == SFI_RECV ? ep->rx_flags : ep->tx_flags;

    if (a->flags & FI_INJECT && !a->context)
        return NULL;
    if (bound & SELECTIVE && !((a->flags | ep->op_flags) & FI_COMPLETION))
        return NULL;
    return a->kind == SFI_RECV ? ep->rx_cq : ep->tx_cq;
}

static int op_copy(struct sfi_op *op)
{
    size_t at = 0;

    op->copy = malloc(op->len + 1);
    if (!op->copy)
        return -FI_ENOMEM;
    for (size_t i = 0; i < op->iovs; i++) {
        memcpy(op->copy + at, op->iov[i].iov_base, op->iov[i].iov_len);
        at += op->iov[i].iov_len;
    }
    return 0;
}

static int op_fill(struct sfi_op *op, const struct ask *a)
{
    static const uint64_t access[] = {
        [SFI_SEND] = FI_SEND, [SFI_RECV] = FI_RECV, [SFI_READ] = FI_READ
    };

    op->flags = a->flags;
    op->data = a->data;
    op->addr = a->addr;
    op->len = ask_len(a);
    for (size_t i = 0; i < a->count; i++) {
        op->iov[i] = a->iov[i];
        if (!(a->flags & FI_INJECT))
            op->mr[i] = sfi_mr_local(
                    op->ep, a->desc ? a->desc[i] : NULL, &a->iov[i], access[a->kind], a->what);
        if (op->mr[i])
            op->mr[i]->busy++;
        op->iovs = i + 1;
    }
    if (a->kind == SFI_READ)
        sfi_key_raw(op->ep->domain, a->key, op->raw);
    if (a->kind == SFI_SEND)
        op->sum = sfi_op_sum(op);
    return a->flags & FI_INJECT ? op_copy(op) : 0;
}

static uint32_t ask_peer(const struct sfi_ep *ep, const struct ask *a)
{
    uint32_t peer = ep->peer;

    if (ep->domain->p->type == FI_EP_RDM) {
        peer = sfi_av_id(ep->av, a->peer);
        if (!peer)
            sfi_sin("address", "%s was given an address that is not in the vector", a->what);
    } else if (ep->state != SFI_UP) {
        sfi_sin("connect", "%s was called on an endpoint that is not connected", a->what);
    }
    return peer;
}

static ssize_t ask_post(struct sfi_ep *ep, const struct ask *a)
{
    uint32_t peer = 0;
    struct sfi_op *op;
    int rc;

    ask_check(ep, a);
    if (ep->state == SFI_DOWN)
        return -FI_ENOTCONN;
    if (a->kind != SFI_RECV)
        peer = ask_peer(ep, a);
    rc = ask_room(ep, a);
    if (rc)
        return rc;
    op = sfi_op_new(ep, a->kind, a->context);
    if (!op)
        return -FI_ENOMEM;
    op->peer = peer;
    rc = op_fill(op, a);
    if (rc) {
        sfi_op_free(op);
        return rc;
    }
    op->cq = ask_cq(ep, a);
    if (op->cq) {
        sfi_op_take_context(op);
        sfi_cq_expect(op->cq);
    }
    sfi_list_put(a->kind == SFI_RECV ? &ep->rx : &ep->tx, op);
    sfi_auto_nudge();
    return 0;
}

static ssize_t ask_do(struct fid_ep *fid, const struct ask *a)
{
    struct sfi_ep *ep = sfi_of(fid, struct sfi_ep, fid);
    struct sfi_domain *d = ep->domain;
    ssize_t rc;

    sfi_enter(d);
    rc = ask_post(ep, a);
    sfi_leave(d);
    return rc;
}

/* ---- messages ---- */

static ssize_t msg_recvmsg(struct fid_ep *ep, const struct fi_msg *m, uint64_t flags)
{
    struct ask a = { .what = "fi_recvmsg()",
        .kind = SFI_RECV,
        .iov = m->msg_iov,
        .desc = m->desc,
        .count = m->iov_count,
        .context = m->context,
        .flags = flags };

    return ask_do(ep, &a);
}

static ssize_t msg_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
        fi_addr_t src, void *context)
{
    struct ask a = { .what = "fi_recv()",
        .kind = SFI_RECV,
        .iov = iov,
        .desc = desc,
        .count = count,
        .context = context };

    (void)src;
    return ask_do(ep, &a);
}

static ssize_t msg_recv(
        struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src, void *context)
{
    struct iovec iov = { buf, len };

    return msg_recvv(ep, &iov, &desc, 1, src, context);
}

static ssize_t msg_sendmsg(struct fid_ep *ep, const struct fi_msg *m, uint64_t flags)
{
    struct ask a = { .what = "fi_sendmsg()",
        .kind = SFI_SEND,
        .iov = m->msg_iov,
        .desc = m->desc,
        .count = m->iov_count,
        .peer = m->addr,
        .context = m->context,
        .flags = flags,
        .data = m->data };

    return ask_do(ep, &a);
}

static ssize_t msg_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
        fi_addr_t dest, void *context)
{
    struct ask a = { .what = "fi_send()",
        .kind = SFI_SEND,
        .iov = iov,
        .desc = desc,
        .count = count,
        .peer = dest,
        .context = context };

    return ask_do(ep, &a);
}

static ssize_t msg_send(
        struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest, void *context)
{
    struct iovec iov = { (void *)(uintptr_t)buf, len };

    return msg_sendv(ep, &iov, &desc, 1, dest, context);
}

static ssize_t msg_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc,
        uint64_t data, fi_addr_t dest, void *context)
{
    struct iovec iov = { (void *)(uintptr_t)buf, len };
    struct ask a = { .what = "fi_senddata()",
        .kind = SFI_SEND,
        .iov = &iov,
        .desc = &desc,
        .count = 1,
        .peer = dest,
        .context = context,
        .flags = FI_REMOTE_CQ_DATA,
        .data = data };

    return ask_do(ep, &a);
}

static ssize_t msg_injectdata(
        struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t dest)
{
    struct iovec iov = { (void *)(uintptr_t)buf, len };
    struct ask a = { .what = "fi_injectdata()",
        .kind = SFI_SEND,
        .iov = &iov,
        .count = 1,
        .peer = dest,
        .flags = FI_INJECT | FI_REMOTE_CQ_DATA,
        .data = data };

    return ask_do(ep, &a);
}

static ssize_t msg_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest)
{
    struct iovec iov = { (void *)(uintptr_t)buf, len };
    struct ask a = { .what = "fi_inject()",
        .kind = SFI_SEND,
        .iov = &iov,
        .count = 1,
        .peer = dest,
        .flags = FI_INJECT };

    return ask_do(ep, &a);
}

struct fi_ops_msg sfi_msg_ops = {
    .size = sizeof(struct fi_ops_msg),
    .recv = msg_recv,
    .recvv = msg_recvv,
    .recvmsg = msg_recvmsg,
    .send = msg_send,
    .sendv = msg_sendv,
    .sendmsg = msg_sendmsg,
    .inject = msg_inject,
    .senddata = msg_senddata,
    .injectdata = msg_injectdata,
};

/* ---- reads; no program writes into another's memory ---- */

static ssize_t rma_readmsg(struct fid_ep *ep, const struct fi_msg_rma *m, uint64_t flags)
{
    struct ask a = { .what = "fi_readmsg()",
        .kind = SFI_READ,
        .iov = m->msg_iov,
        .desc = m->desc,
        .count = m->iov_count,
        .peer = m->addr,
        .context = m->context,
        .flags = flags };

    if (m->rma_iov_count != 1)
        sfi_sin("iov", "fi_readmsg() was given %zu remote pieces where 1 is the limit",
                m->rma_iov_count);
    a.addr = m->rma_iov->addr;
    a.key = m->rma_iov->key;
    return ask_do(ep, &a);
}

static ssize_t rma_readv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
        fi_addr_t src, uint64_t addr, uint64_t key, void *context)
{
    struct ask a = { .what = "fi_read()",
        .kind = SFI_READ,
        .iov = iov,
        .desc = desc,
        .count = count,
        .peer = src,
        .context = context,
        .addr = addr,
        .key = key };

    return ask_do(ep, &a);
}

static ssize_t rma_read(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src,
        uint64_t addr, uint64_t key, void *context)
{
    struct iovec iov = { buf, len };

    return rma_readv(ep, &iov, &desc, 1, src, addr, key, context);
}

static ssize_t no_write(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
        uint64_t addr, uint64_t key, void *context)
{
    (void)ep, (void)buf, (void)len, (void)desc, (void)dest, (void)addr, (void)key, (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_writev(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
        fi_addr_t dest, uint64_t addr, uint64_t key, void *context)
{
    (void)ep, (void)iov, (void)desc, (void)count, (void)dest, (void)addr, (void)key;
    (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_writemsg(struct fid_ep *ep, const struct fi_msg_rma *m, uint64_t flags)
{
    (void)ep, (void)m, (void)flags;
    return -FI_ENOSYS;
}

static ssize_t no_inject_write(
        struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest, uint64_t addr, uint64_t key)
{
    (void)ep, (void)buf, (void)len, (void)dest, (void)addr, (void)key;
    return -FI_ENOSYS;
}

static ssize_t no_writedata(struct fid_ep *ep, const void *buf, size_t len, void *desc,
        uint64_t data, fi_addr_t dest, uint64_t addr, uint64_t key, void *context)
{
    (void)data;
    return no_write(ep, buf, len, desc, dest, addr, key, context);
}

static ssize_t no_inject_writedata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
        fi_addr_t dest, uint64_t addr, uint64_t key)
{
    (void)data;
    return no_inject_write(ep, buf, len, dest, addr, key);
}

struct fi_ops_rma sfi_rma_ops = {
    .size = sizeof(struct fi_ops_rma),
    .read = rma_read,
    .readv = rma_readv,
    .readmsg = rma_readmsg,
    .write = no_write,
    .writev = no_writev,
    .writemsg = no_writemsg,
    .inject = no_inject_write,
    .writedata = no_writedata,
    .injectdata = no_inject_writedata,
};
