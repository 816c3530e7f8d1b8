/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The offers of the provider: the core does not compare an offer with a program's hints, so a
 * provider that ignores them is handed to every program.
 */
#include "strictfi.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define CAPS                                                                                       \
    (FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | \
            FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM)
/* FI_MR_BASIC, FI_MR_SCALABLE and FI_LOCAL_MR: names that libfabric 2 warns of. */
#define LEGACY_BASIC    (1 << 0)
#define LEGACY_SCALABLE (1 << 1)
#define LEGACY_LOCAL    (1ULL << 55)

static int hint_mr(const struct sfi_profile *p, const struct fi_info *hints)
{
    int has = hints->domain_attr->mr_mode;

    if (has == LEGACY_BASIC)
        has = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY |
              (hints->mode & LEGACY_LOCAL ? FI_MR_LOCAL : 0);
    else if (has == LEGACY_SCALABLE)
        has = 0;
    return !(p->mr_mode & ~has);
}

static int hint_domain(const struct sfi_profile *p, const struct fi_info *hints)
{
    const struct fi_domain_attr *d = hints->domain_attr;
    int automatic = p->progress == FI_PROGRESS_AUTO;

    if (!d)
        return p->type == FI_EP_MSG || !p->mr_mode; /* ofi_rxm looks for a fabric without */
    return hint_mr(p, hints) && (automatic || d->data_progress != FI_PROGRESS_AUTO) &&
           (automatic || d->control_progress != FI_PROGRESS_AUTO) &&
           !(d->resource_mgmt == FI_RM_ENABLED && p->resources != FI_RM_ENABLED) &&
           d->cq_data_size <= 8 && (d->mr_cnt <= p->mr_cnt) && !(d->caps & ~CAPS) &&
           !(d->name && strncmp(d->name, "strict", 6) != 0);
}

static int hint_queues(const struct sfi_profile *p, const struct fi_info *hints)
{
    const struct fi_tx_attr *tx = hints->tx_attr;
    const struct fi_rx_attr *rx = hints->rx_attr;

    if (tx &&
            (tx->size > p->tx_size || tx->inject_size > p->inject || tx->iov_limit > p->iov_limit ||
                    tx->rma_iov_limit > 1 || (tx->msg_order & ~p->msg_order) ||
                    (tx->comp_order & ~p->comp_order) || (tx->caps & ~CAPS)))
        return 0;
    return !rx || !(rx->size > p->rx_size || rx->iov_limit > p->iov_limit ||
                          (rx->msg_order & ~p->msg_order) || (rx->comp_order & ~p->comp_order) ||
                          (rx->caps & ~CAPS));
}

static uint64_t mode_of(const struct sfi_profile *p, const struct fi_info *hints)
{
    int data = !hints || hints->mode & p->data_mode ||
               (hints->domain_attr && hints->domain_attr->cq_data_size);

    return p->mode | (data ? p->data_mode : 0);
}

static int hint_format(const struct sfi_profile *p, uint32_t format)
{
    if (p->type == FI_EP_MSG)
        return format <= FI_SOCKADDR_IN6;
    return !format || format == p->addr_format;
}

static int hint_ok(const struct sfi_profile *p, const struct fi_info *hints)
{
    const struct fi_ep_attr *ep = hints->ep_attr;
    const struct fi_fabric_attr *fabric = hints->fabric_attr;

    if ((hints->caps & ~CAPS) || (mode_of(p, hints) & ~hints->mode))
        return 0;
    if (!hint_format(p, hints->addr_format))
        return 0;
    if (ep && ((ep->type && ep->type != p->type) || ep->max_msg_size > p->max_msg ||
                      ep->tx_ctx_cnt > 1 || ep->rx_ctx_cnt > 1))
        return 0;
    if (fabric && fabric->name && strcmp(fabric->name, p->fabric) != 0)
        return 0;
    return hint_domain(p, hints) && hint_queues(p, hints);
}

static void info_domain(
        const struct sfi_profile *p, const struct fi_domain_attr *asked, struct fi_domain_attr *out)
{
    out->threading = asked && asked->threading ? asked->threading : p->threading;
    out->control_progress = out->data_progress = p->progress;
    out->resource_mgmt = p->resources;
    out->av_type = asked && asked->av_type ? asked->av_type : FI_AV_TABLE;
    out->mr_mode = p->mr_mode;
    out->mr_key_size = p->mr_key_size;
    out->mr_cnt = p->mr_cnt;
    out->mr_iov_limit = 1;
    out->cq_data_size = 8;
    out->cq_cnt = out->ep_cnt = 256;
    out->tx_ctx_cnt = out->rx_ctx_cnt = 256;
    out->max_ep_tx_ctx = out->max_ep_rx_ctx = 1;
    out->caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
}

static void info_queues(const struct sfi_profile *p, uint64_t caps, const struct fi_info *hints,
        struct fi_info *out)
{
    const struct fi_tx_attr *tx = hints ? hints->tx_attr : NULL;
    const struct fi_rx_attr *rx = hints ? hints->rx_attr : NULL;

    out->tx_attr->caps = caps & (FI_MSG | FI_RMA | FI_SEND | FI_READ | FI_WRITE);
    out->tx_attr->mode = p->mode;
    out->rx_attr->mode = mode_of(p, hints);
    out->tx_attr->op_flags = tx ? tx->op_flags : 0;
    out->rx_attr->op_flags = rx ? rx->op_flags : 0;
    out->tx_attr->msg_order = out->rx_attr->msg_order = p->msg_order;
    out->tx_attr->comp_order = out->rx_attr->comp_order = p->comp_order;
    out->tx_attr->inject_size = p->inject;
    out->tx_attr->size = tx && tx->size ? tx->size : p->tx_size;
    out->tx_attr->iov_limit = out->rx_attr->iov_limit = p->iov_limit;
    out->tx_attr->rma_iov_limit = 1;
    out->rx_attr->caps =
            caps & (FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SOURCE);
    out->rx_attr->size = rx && rx->size ? rx->size : p->rx_size;
}

static struct fi_info *info_new(
        const struct sfi_profile *p, const struct fi_info *hints, unsigned nic)
{
    struct fi_info *out = fi_dupinfo(NULL);
    char name[32];

    if (!out)
        return NULL;
    out->caps = hints && hints->caps ? hints->caps | FI_LOCAL_COMM | FI_REMOTE_COMM : CAPS;
    out->mode = mode_of(p, hints);
    out->addr_format = p->addr_format;
    out->ep_attr->type = p->type;
    out->ep_attr->protocol = FI_PROTO_UNSPEC;
    out->ep_attr->max_msg_size = p->max_msg > p->max_rma ? p->max_msg : p->max_rma;
    out->ep_attr->tx_ctx_cnt = out->ep_attr->rx_ctx_cnt = 1;
    info_domain(p, hints ? hints->domain_attr : NULL, out->domain_attr);
    info_queues(p, out->caps, hints, out);
    snprintf(name, sizeof(name), "strict%u", nic);
    out->domain_attr->name = strdup(name);
    out->fabric_attr->name = strdup(p->fabric); /* prov_name is the core's to fill in */
    if (!out->domain_attr->name || !out->fabric_attr->name) {
        fi_freeinfo(out);
        return NULL;
    }
    return out;
}

static int name_wanted(const struct fi_info *info, const struct fi_info *hints)
{
    const char *name = hints && hints->domain_attr ? hints->domain_attr->name : NULL;

    return !name || strcmp(name, info->domain_attr->name) == 0;
}

/* FI_EP_MSG: numeric addresses, as of IP over the fabric. 0, or no such address. */
static int info_address(struct fi_info *info, const char *node, const char *service, uint64_t flags)
{
    struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
        .ai_socktype = SOCK_STREAM };
    struct addrinfo *found;
    void *copy;

    if (info->ep_attr->type != FI_EP_MSG || !node)
        return 0;
    if (getaddrinfo(node, service, &hints, &found))
        return -FI_ENODATA;
    copy = malloc(found->ai_addrlen);
    if (copy) {
        memcpy(copy, found->ai_addr, found->ai_addrlen);
        *(flags & FI_SOURCE ? &info->src_addr : &info->dest_addr) = copy;
        *(flags & FI_SOURCE ? &info->src_addrlen : &info->dest_addrlen) = found->ai_addrlen;
        info->addr_format = found->ai_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    }
    freeaddrinfo(found);
    return copy ? 0 : -FI_ENOMEM;
}

/* Without `node` the hints' own, as ofi_rxm gives them. */
static int info_address_of_hints(struct fi_info *info, const struct fi_info *hints)
{
    if (info->ep_attr->type != FI_EP_MSG || !hints || !hints->src_addr)
        return 0;
    info->src_addr = malloc(hints->src_addrlen);
    if (!info->src_addr)
        return -FI_ENOMEM;
    memcpy(info->src_addr, hints->src_addr, hints->src_addrlen);
    info->src_addrlen = hints->src_addrlen;
    info->addr_format = hints->addr_format ? hints->addr_format : info->addr_format;
    return 0;
}

int sfi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
        const struct fi_info *hints, struct fi_info **info)
{
    const struct sfi_profile *p = sfi_profile();
    unsigned nics = (unsigned)sfi_setting("STRICTFI_NICS", 1);
    struct fi_info *first = NULL, **end = &first;

    (void)version;
    if (!p || (hints && !hint_ok(p, hints)))
        return -FI_ENODATA;
    for (unsigned i = 0; i < nics; i++) {
        struct fi_info *one = info_new(p, hints, i);
        int rc;

        if (!one) {
            fi_freeinfo(first);
            return -FI_ENOMEM;
        }
        rc = node ? info_address(one, node, service, flags) : info_address_of_hints(one, hints);

        if (name_wanted(one, hints) && !rc) {
            *end = one;
            end = &one->next;
        } else {
            fi_freeinfo(one);
        }
    }
    *info = first;
    return first ? 0 : -FI_ENODATA;
}
