/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints: opened, bound, enabled, and closed with whatever is under way. */
#include "strictfi.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Numbers of libfabric 2; a program built with older headers may ask by them. */
#define OPT_MAX_MSG_SIZE    12
#define OPT_MAX_RMA_SIZE    14
#define OPT_INJECT_MSG_SIZE 16

static struct sfi_ep *open_eps, *closed_eps;

struct sfi_ep *sfi_eps(void)
{
    return open_eps;
}

void sfi_eps_free(void)
{
    struct sfi_ep *next;

    for (struct sfi_ep *ep = closed_eps; ep; ep = next) {
        next = ep->next;
        free(ep);
    }
    closed_eps = NULL;
}

static struct sfi_ep *ep_of(struct fid *fid)
{
    return sfi_of(fid, struct sfi_ep, fid.fid);
}

/* ---- closing ---- */

static void ops_discard(struct sfi_ops_list *list)
{
    struct sfi_op *op;

    while ((op = list->head)) {
        sfi_list_take(list, op);
        if (op->cq)
            op->cq->expected--;
        sfi_op_free(op);
    }
}

static void mail_discard(struct sfi_ep *ep)
{
    struct sfi_letter *l;
    struct sfi_answer *a;

    while ((l = ep->inbox)) {
        ep->inbox = l->next;
        free(l);
    }
    while ((a = ep->answers)) {
        ep->answers = a->next;
        free(a);
    }
}

static void ep_unbind(struct sfi_ep *ep)
{
    if (ep->av)
        ep->av->children--;
    if (ep->eq) {
        sfi_eq_forget(ep->eq, &ep->fid.fid);
        ep->eq->children--;
    }
    if (ep->tx_cq)
        ep->tx_cq->children--;
    if (ep->rx_cq)
        ep->rx_cq->children--;
    if (ep->tx_cq)
        sfi_cq_part(ep->tx_cq, ep);
    if (ep->rx_cq)
        sfi_cq_part(ep->rx_cq, ep);
    ep->av = NULL;
}

static int ep_close(struct fid *fid)
{
    struct sfi_ep *ep = ep_of(fid), **at;
    struct sfi_domain *d = ep->domain;

    sfi_enter(d);
    if (ep->closed)
        sfi_sin("closed", "an endpoint was closed twice");
    if (ep->mrs)
        sfi_sin("children", "an endpoint was closed that %d open regions are bound to", ep->mrs);
    for (at = &open_eps; *at != ep; at = &(*at)->next)
        ;
    *at = ep->next;
    ep->next = closed_eps; /* so that a late call finds out */
    closed_eps = ep;
    ep->closed = 1;
    sfi_cm_leave(ep);
    ops_discard(&ep->tx);
    ops_discard(&ep->rx);
    mail_discard(ep);
    ep_unbind(ep);
    sfi_wire_close(ep);
    d->children--;
    sfi_leave(d);
    return 0;
}

/* ---- binding and enabling ---- */

static int cq_bind(struct sfi_ep *ep, struct sfi_cq *cq, uint64_t flags)
{
    if (!(flags & (FI_TRANSMIT | FI_RECV)))
        return -FI_EINVAL;
    if (flags & FI_TRANSMIT) {
        ep->tx_cq = cq;
        ep->tx_flags = flags;
        cq->children++;
    }
    if (flags & FI_RECV) {
        ep->rx_cq = cq;
        ep->rx_flags = flags;
        cq->children++;
    }
    return 0;
}

static int ep_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    struct sfi_ep *ep = ep_of(fid);
    int rc = 0;

    sfi_enter(ep->domain);
    if (ep->enabled)
        sfi_sin("enable", "something was bound to an endpoint that is enabled");
    if (bfid->fclass == FI_CLASS_AV) {
        ep->av = sfi_of(bfid, struct sfi_av, fid.fid);
        ep->av->children++;
    } else if (bfid->fclass == FI_CLASS_CQ) {
        rc = cq_bind(ep, sfi_of(bfid, struct sfi_cq, fid.fid), flags);
    } else if (bfid->fclass == FI_CLASS_EQ) {
        ep->eq = sfi_of(bfid, struct sfi_eq, fid.fid);
        ep->eq->children++;
    } else {
        rc = -FI_EINVAL;
    }
    sfi_leave(ep->domain);
    return rc;
}

static int ep_enable(struct sfi_ep *ep)
{
    int rc;

    if (!ep->av && ep->domain->p->type == FI_EP_RDM)
        return -FI_ENOAV;
    if (!ep->tx_cq || !ep->rx_cq)
        return -FI_ENOCQ;
    if (ep->enabled)
        return -FI_EINVAL;
    rc = sfi_wire_open(ep);
    if (rc)
        return rc;
    ep->enabled = 1;
    if (ep->domain->p->progress == FI_PROGRESS_AUTO)
        sfi_auto_start();
    return 0;
}

static int ep_control(struct fid *fid, int command, void *arg)
{
    struct sfi_ep *ep = ep_of(fid);
    int rc = -FI_ENOSYS;

    (void)arg;
    sfi_enter(ep->domain);
    if (command == FI_ENABLE)
        rc = ep_enable(ep);
    sfi_leave(ep->domain);
    return rc;
}

/* ---- asking and cancelling ---- */

static int ep_getname(fid_t fid, void *addr, size_t *len)
{
    struct sfi_ep *ep = ep_of(fid);
    const struct sfi_profile *p = ep->domain->p;
    size_t room = *len;

    if (!ep->enabled)
        return -FI_EOPBADSTATE;
    *len = p->addr_len;
    if (room < p->addr_len)
        return -FI_ETOOSMALL;
    sfi_addr_write(p, ep->id, addr);
    return 0;
}

static int ep_getopt(fid_t fid, int level, int name, void *value, size_t *len)
{
    const struct sfi_profile *p = ep_of(fid)->domain->p;
    size_t found;

    if (level != FI_OPT_ENDPOINT)
        return -FI_ENOPROTOOPT;
    if (name == OPT_MAX_MSG_SIZE)
        found = p->max_msg < SFI_MESSAGE_MAX ? p->max_msg : SFI_MESSAGE_MAX;
    else if (name == OPT_MAX_RMA_SIZE)
        found = p->max_rma;
    else if (name == OPT_INJECT_MSG_SIZE)
        found = p->inject;
    else
        return sfi_cm_getopt(level, name, value, len);
    if (*len < sizeof(found))
        return -FI_ETOOSMALL;
    memcpy(value, &found, sizeof(found));
    *len = sizeof(found);
    return 0;
}

static int ep_setopt(fid_t fid, int level, int name, const void *value, size_t len)
{
    (void)fid, (void)level, (void)name, (void)value, (void)len;
    return -FI_ENOPROTOOPT;
}

/* Receives can be taken back. A send or a read cannot: no fabric promises that. */
static ssize_t ep_cancel(fid_t fid, void *context)
{
    struct sfi_ep *ep = ep_of(fid);
    ssize_t rc = -FI_ENOENT;

    sfi_enter(ep->domain);
    for (struct sfi_op *op = ep->rx.head; op; op = op->next) {
        if (op->context != context)
            continue;
        sfi_op_end(op, FI_ECANCELED);
        rc = 0;
        break;
    }
    sfi_leave(ep->domain);
    return rc;
}

static ssize_t no_size_left(struct fid_ep *ep)
{
    (void)ep;
    return -FI_ENOSYS;
}

static int no_tx_context(
        struct fid_ep *ep, int index, struct fi_tx_attr *attr, struct fid_ep **out, void *context)
{
    (void)ep, (void)index, (void)attr, (void)out, (void)context;
    return -FI_ENOSYS;
}

static int no_rx_context(
        struct fid_ep *ep, int index, struct fi_rx_attr *attr, struct fid_ep **out, void *context)
{
    (void)ep, (void)index, (void)attr, (void)out, (void)context;
    return -FI_ENOSYS;
}

/* ---- connections: not of these endpoints ---- */

static int no_setname(fid_t fid, void *addr, size_t len)
{
    (void)fid, (void)addr, (void)len;
    return -FI_ENOSYS;
}

static int no_getpeer(struct fid_ep *ep, void *addr, size_t *len)
{
    (void)ep, (void)addr, (void)len;
    return -FI_ENOSYS;
}

static int no_connect(struct fid_ep *ep, const void *addr, const void *data, size_t len)
{
    (void)ep, (void)addr, (void)data, (void)len;
    return -FI_ENOSYS;
}

static int no_listen(struct fid_pep *pep)
{
    (void)pep;
    return -FI_ENOSYS;
}

static int no_accept(struct fid_ep *ep, const void *data, size_t len)
{
    (void)ep, (void)data, (void)len;
    return -FI_ENOSYS;
}

static int no_reject(struct fid_pep *pep, fid_t handle, const void *data, size_t len)
{
    (void)pep, (void)handle, (void)data, (void)len;
    return -FI_ENOSYS;
}

static int no_shutdown(struct fid_ep *ep, uint64_t flags)
{
    (void)ep, (void)flags;
    return -FI_ENOSYS;
}

static int no_join(
        struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc, void *context)
{
    (void)ep, (void)addr, (void)flags, (void)mc, (void)context;
    return -FI_ENOSYS;
}

static struct fi_ops ep_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = ep_close,
    .bind = ep_bind,
    .control = ep_control,
    .ops_open = sfi_no_ops,
};

static struct fi_ops_ep ep_ops = {
    .size = sizeof(struct fi_ops_ep),
    .cancel = ep_cancel,
    .getopt = ep_getopt,
    .setopt = ep_setopt,
    .tx_ctx = no_tx_context,
    .rx_ctx = no_rx_context,
    .rx_size_left = no_size_left,
    .tx_size_left = no_size_left,
};

static struct fi_ops_cm ep_cm_ops = {
    .size = sizeof(struct fi_ops_cm),
    .setname = no_setname,
    .getname = ep_getname,
    .getpeer = no_getpeer,
    .connect = no_connect,
    .listen = no_listen,
    .accept = no_accept,
    .reject = no_reject,
    .shutdown = no_shutdown,
    .join = no_join,
};

/* As verbs of libfabric up to 1.20: it waits, and then fails, if no program listens at the
 * address. */
static int ep_resolve(const struct fi_info *info)
{
    uint64_t ms = sfi_setting("STRICTFI_RESOLVE_MS", 0);
    char name[SFI_ADDR];

    if (!ms || info->ep_attr->type != FI_EP_MSG || info->handle || !info->dest_addr)
        return 0;
    sfi_sockaddr_text(info->dest_addr, name, sizeof(name));
    if (sfi_wire_is_bound(name))
        return 0;
    usleep((useconds_t)(1000 * ms));
    return -FI_ETIMEDOUT;
}

int sfi_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **out, void *context)
{
    struct sfi_domain *d = sfi_of(domain, struct sfi_domain, fid);
    struct sfi_ep *ep;
    int rc;

    if (info->ep_attr->type != d->p->type)
        return -FI_EINVAL;
    rc = ep_resolve(info);
    if (rc)
        return rc;
    ep = calloc(1, sizeof(*ep));
    if (!ep)
        return -FI_ENOMEM;
    ep->domain = d;
    ep->sock = -1;
    ep->owner = getpid();
    ep->op_flags = info->tx_attr->op_flags;
    ep->tx_size = info->tx_attr->size < d->p->tx_size ? info->tx_attr->size : d->p->tx_size;
    ep->rx_size = info->rx_attr->size < d->p->rx_size ? info->rx_attr->size : d->p->rx_size;
    ep->inbox_end = &ep->inbox;
    ep->answers_end = &ep->answers;
    ep->fid.fid = (struct fid){ FI_CLASS_EP, context, &ep_fid_ops };
    ep->fid.ops = &ep_ops;
    ep->fid.cm = d->p->type == FI_EP_MSG ? &sfi_cm_ops : &ep_cm_ops;
    ep->fid.msg = &sfi_msg_ops;
    ep->fid.rma = &sfi_rma_ops;
    sfi_enter(d);
    ep->request = info->handle;
    if (ep->request)
        ep->peer = sfi_request_from(ep->request);
    ep->next = open_eps;
    open_eps = ep;
    d->children++;
    sfi_leave(d);
    *out = &ep->fid;
    return 0;
}
