/* SPDX-License-Identifier: Apache-2.0 */
/* The domain: everything belongs to one, and it is closed last. */
#include "strictfi.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int thread_id(void)
{
    return (int)syscall(SYS_gettid);
}

void sfi_claim(struct sfi_domain *d)
{
    int nobody = 0;

    if (d->threading != FI_THREAD_DOMAIN)
        return;
    if (!atomic_compare_exchange_strong(&d->inside, &nobody, thread_id()))
        sfi_sin("threads", "two threads are in calls of one domain at once, which was opened with "
                           "FI_THREAD_DOMAIN");
}

void sfi_disclaim(struct sfi_domain *d)
{
    if (d->threading == FI_THREAD_DOMAIN)
        atomic_store(&d->inside, 0);
}

void sfi_enter(struct sfi_domain *d)
{
    sfi_claim(d);
    sfi_lock();
}

void sfi_leave(struct sfi_domain *d)
{
    sfi_unlock();
    sfi_disclaim(d);
}

static int domain_close(struct fid *fid)
{
    struct sfi_domain *d = sfi_of(fid, struct sfi_domain, fid.fid);

    sfi_lock();
    if (d->children)
        sfi_sin("children",
                "a domain was closed that has %d open endpoints, queues, vectors or regions",
                d->children);
    d->fabric->children--;
    sfi_keys_free(d);
    sfi_unlock();
    free(d);
    return 0;
}

static int domain_control(struct fid *fid, int command, void *arg)
{
    struct sfi_domain *d = sfi_of(fid, struct sfi_domain, fid.fid);
    int rc = -FI_ENOSYS;

    sfi_enter(d);
    if (command == FI_MAP_RAW_MR)
        rc = sfi_key_map(d, arg);
    else if (command == FI_UNMAP_KEY)
        rc = sfi_key_unmap(d, *(uint64_t *)arg);
    sfi_leave(d);
    return rc;
}

static int no_scalable(
        struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context)
{
    (void)domain, (void)info, (void)ep, (void)context;
    return -FI_ENOSYS;
}

static int no_counter(struct fid_domain *domain, struct fi_cntr_attr *attr,
        struct fid_cntr **counter, void *context)
{
    (void)domain, (void)attr, (void)counter, (void)context;
    return -FI_ENOSYS;
}

static int no_poll(struct fid_domain *domain, struct fi_poll_attr *attr, struct fid_poll **set)
{
    (void)domain, (void)attr, (void)set;
    return -FI_ENOSYS;
}

static int no_stx(
        struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx, void *context)
{
    (void)domain, (void)attr, (void)stx, (void)context;
    return -FI_ENOSYS;
}

static int no_srx(
        struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **ep, void *context)
{
    (void)domain, (void)attr, (void)ep, (void)context;
    return -FI_ENOSYS;
}

static struct fi_ops domain_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = domain_close,
    .bind = sfi_no_bind,
    .control = domain_control,
    .ops_open = sfi_no_ops,
};

static struct fi_ops_domain domain_ops = {
    .size = offsetof(struct fi_ops_domain, query_atomic), /* and no later slot */
    .av_open = sfi_av_open,
    .cq_open = sfi_cq_open,
    .endpoint = sfi_ep_open,
    .scalable_ep = no_scalable,
    .cntr_open = no_counter,
    .poll_open = no_poll,
    .stx_ctx = no_stx,
    .srx_ctx = no_srx,
};

/* A program names in `info` what it will heed, and may not take bits back. */
static void domain_check(const struct sfi_profile *p, const struct fi_info *info)
{
    if (info->domain_attr->mr_mode != p->mr_mode)
        sfi_sin("info", "fi_domain() was given mr_mode 0x%x where 0x%x was offered",
                (unsigned)info->domain_attr->mr_mode, (unsigned)p->mr_mode);
    if (p->mode & ~info->mode)
        sfi_sin("info", "fi_domain() was given an info without the mode bits that were offered");
}

int sfi_domain_open(
        struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context)
{
    struct sfi_fabric *f = sfi_of(fabric, struct sfi_fabric, fid);
    struct sfi_domain *d = calloc(1, sizeof(*d));

    if (!d)
        return -FI_ENOMEM;
    d->p = sfi_profile();
    domain_check(d->p, info);
    d->fabric = f;
    d->threading = info->domain_attr->threading;
    d->fid.fid = (struct fid){ FI_CLASS_DOMAIN, context, &domain_fid_ops };
    d->fid.ops = &domain_ops;
    d->fid.mr = &sfi_mr_ops;
    sfi_lock();
    f->children++;
    sfi_unlock();
    *domain = &d->fid;
    return 0;
}
