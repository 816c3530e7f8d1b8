/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric: domains and event queues hang from it, and sleepers ask it first. */
#include "strictfi.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void sfi_lock(void)
{
    pthread_mutex_lock(&lock);
}

void sfi_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* The thread of FI_PROGRESS_AUTO may hold it when a program forks. */
void sfi_lock_survives_fork(void)
{
    pthread_atfork(sfi_lock, sfi_unlock, sfi_unlock);
}

static int fabric_close(struct fid *fid)
{
    struct sfi_fabric *f = sfi_of(fid, struct sfi_fabric, fid.fid);

    if (f->children)
        sfi_sin("children", "a fabric was closed that has %d open domains or queues", f->children);
    free(f);
    return 0;
}

static int fabric_trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
    int rc = 0;

    (void)fabric;
    sfi_lock();
    for (int i = 0; i < count && !rc; i++)
        if (fids[i]->fclass == FI_CLASS_CQ)
            rc = sfi_cq_trywait(sfi_of(fids[i], struct sfi_cq, fid.fid));
        else if (fids[i]->fclass == FI_CLASS_EQ)
            rc = sfi_eq_trywait(sfi_of(fids[i], struct sfi_eq, fid.fid));
    sfi_unlock();
    return rc;
}

static int no_wait(struct fid_fabric *fabric, struct fi_wait_attr *attr, struct fid_wait **set)
{
    (void)fabric, (void)attr, (void)set;
    return -FI_ENOSYS;
}

static int domain2_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
        uint64_t flags, void *context)
{
    (void)flags;
    return sfi_domain_open(fabric, info, domain, context);
}

static struct fi_ops fabric_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = fabric_close,
    .bind = sfi_no_bind,
    .control = sfi_no_control,
    .ops_open = sfi_no_ops,
};

static struct fi_ops_fabric fabric_ops = {
    .size = sizeof(struct fi_ops_fabric),
    .domain = sfi_domain_open,
    .passive_ep = sfi_pep_open,
    .eq_open = sfi_eq_open,
    .wait_open = no_wait,
    .trywait = fabric_trywait,
    .domain2 = domain2_open,
};

int sfi_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
    const struct sfi_profile *p = sfi_profile();
    struct sfi_fabric *f;

    if (!p || !attr->name || strcmp(attr->name, p->fabric) != 0)
        return -FI_ENODATA;
    f = calloc(1, sizeof(*f));
    if (!f)
        return -FI_ENOMEM;
    f->fid.fid = (struct fid){ FI_CLASS_FABRIC, context, &fabric_fid_ops };
    f->fid.ops = &fabric_ops;
    *fabric = &f->fid;
    return 0;
}
