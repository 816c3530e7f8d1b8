/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions and keys. A closed region stays in the list, so that the error of a late user is that it
 * is closed, and not that there never was one.
 */
#include "strictfi.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct sfi_mr *regions; /* of the process */

void sfi_regions_free(void)
{
    struct sfi_mr **at = &regions;

    while (*at) {
        struct sfi_mr *m = *at;

        if (m->closed) {
            *at = m->next;
            free(m);
        } else {
            at = &m->next;
        }
    }
}

/* ---- keys ---- */

void sfi_key_raw(struct sfi_domain *d, uint64_t key, unsigned char *raw)
{
    memset(raw, 0, SFI_RAW_KEY);
    if (!(d->p->mr_mode & FI_MR_RAW)) {
        memcpy(raw, &key, sizeof(key));
        return;
    }
    for (struct sfi_mapped *m = d->mapped; m; m = m->next) {
        if (m->key != key)
            continue;
        if (m->gone)
            sfi_sin("key", "a key was used after fi_mr_unmap_key()");
        memcpy(raw, m->raw, SFI_RAW_KEY);
        return;
    }
    sfi_sin("key", "FI_MR_RAW: a key was used that fi_mr_map_raw() did not give");
}

int sfi_key_map(struct sfi_domain *d, const struct fi_mr_map_raw *map)
{
    struct sfi_mapped *m;

    if (map->key_size != d->p->mr_key_size)
        sfi_sin("key", "fi_mr_map_raw() was given a key of %zu bytes where keys have %zu",
                map->key_size, d->p->mr_key_size);
    m = calloc(1, sizeof(*m));
    if (!m)
        return -FI_ENOMEM;
    m->key = sfi_unique();
    memcpy(m->raw, map->raw_key, map->key_size);
    m->next = d->mapped;
    d->mapped = m;
    *map->key = m->key;
    return 0;
}

int sfi_key_unmap(struct sfi_domain *d, uint64_t key)
{
    for (struct sfi_mapped *m = d->mapped; m; m = m->next)
        if (m->key == key && !m->gone) {
            m->gone = 1;
            return 0;
        }
    sfi_sin("key", "fi_mr_unmap_key() was given a key that is not mapped");
}

void sfi_keys_free(struct sfi_domain *d)
{
    struct sfi_mapped *next;

    for (struct sfi_mapped *m = d->mapped; m; m = next) {
        next = m->next;
        free(m);
    }
    d->mapped = NULL;
}

static struct sfi_mr *mr_of_key(struct sfi_domain *d, const unsigned char *raw)
{
    for (struct sfi_mr *m = regions; m; m = m->next)
        if (m->domain == d && memcmp(m->raw, raw, SFI_RAW_KEY) == 0)
            return m;
    return NULL;
}

static int mr_key(struct sfi_mr *m, uint64_t requested)
{
    const struct sfi_profile *p = m->domain->p;
    uint64_t more[3] = { requested, 0, 0 };
    struct sfi_mr *other;

    if (p->mr_mode & FI_MR_PROV_KEY)
        for (int i = 0; i < 3; i++)
            more[i] = sfi_unique();
    else if (p->mr_key_size < 8 && requested >> 8 * p->mr_key_size)
        return -FI_EKEYREJECTED;
    memcpy(m->raw, more, p->mr_key_size);
    other = mr_of_key(m->domain, m->raw);
    if (other && !other->closed)
        return -FI_ENOKEY;
    if (other) /* a client's key comes back: the closed region gives its name up */
        memset(other->raw, 0xff, sizeof(other->raw));
    memcpy(&m->fid.key, m->raw, sizeof(m->fid.key));
    if (p->mr_mode & FI_MR_RAW)
        m->fid.key = FI_KEY_NOTAVAIL;
    return 0;
}

/* ---- what a program does with a region ---- */

static int mr_close(struct fid *fid)
{
    struct sfi_mr *m = sfi_of(fid, struct sfi_mr, fid.fid);
    struct sfi_domain *d = m->domain;

    sfi_enter(d);
    if (m->closed)
        sfi_sin("mr-closed", "a region was closed twice");
    if (m->busy)
        sfi_sin("mr-busy", "a region was closed while %u operations under way use it", m->busy);
    m->closed = 1;
    if (m->ep)
        m->ep->mrs--;
    d->mr_count--;
    d->children--;
    sfi_count(&sfi_stats()->deregistrations, 1);
    sfi_leave(d);
    return 0;
}

static int mr_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    struct sfi_mr *m = sfi_of(fid, struct sfi_mr, fid.fid);
    struct sfi_domain *d = m->domain;

    (void)flags;
    sfi_enter(d);
    if (bfid->fclass != FI_CLASS_EP || !(d->p->mr_mode & FI_MR_ENDPOINT)) {
        sfi_leave(d);
        return -FI_EINVAL;
    }
    if (m->enabled || m->ep)
        sfi_sin("mr-bind", "a region was bound a second time, or after it was enabled");
    m->ep = sfi_of(bfid, struct sfi_ep, fid.fid);
    if (!m->ep->enabled)
        sfi_sin("mr-bind", "a region was bound to an endpoint that is not enabled");
    m->ep->mrs++;
    sfi_leave(d);
    return 0;
}

static int mr_raw_attr(struct sfi_mr *m, const struct fi_mr_raw_attr *raw)
{
    size_t size = m->domain->p->mr_key_size, room = *raw->key_size;

    *raw->key_size = size;
    if (room < size)
        return -FI_ETOOSMALL;
    if (raw->base_addr)
        *raw->base_addr = m->domain->p->mr_mode & FI_MR_VIRT_ADDR ? m->base : 0;
    memcpy(raw->raw_key, m->raw, size);
    return 0;
}

static int mr_control(struct fid *fid, int command, void *arg)
{
    struct sfi_mr *m = sfi_of(fid, struct sfi_mr, fid.fid);
    struct sfi_domain *d = m->domain;
    int rc = -FI_ENOSYS;

    sfi_enter(d);
    if (command == FI_ENABLE) {
        if (d->p->mr_mode & FI_MR_ENDPOINT && !m->ep)
            sfi_sin("mr-bind", "FI_MR_ENDPOINT: a region was enabled before it was bound");
        m->enabled = 1;
        rc = 0;
    } else if (command == FI_GET_RAW_MR) {
        rc = mr_raw_attr(m, arg);
    }
    sfi_leave(d);
    return rc;
}

static struct fi_ops mr_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = mr_close,
    .bind = mr_bind,
    .control = mr_control,
    .ops_open = sfi_no_ops,
};

/* ---- registering ---- */

/* FI_MR_ALLOCATED: each page must be mapped. */
static void memory_check(const void *buf, size_t len)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)buf / page * page, end = (uintptr_t)buf + len;
    unsigned char seen[16384];

    while (at < end) {
        size_t part = end - at < page * sizeof(seen) ? end - at : page * sizeof(seen);

        if (mincore((void *)at, part, seen) && errno == ENOMEM)
            sfi_sin("allocated", "FI_MR_ALLOCATED: memory was registered that is not mapped");
        at += part;
    }
}

/* Takes as long as pinning does, if STRICTFI_REG_MS_PER_GIB is set. */
static void registering_takes(size_t len)
{
    uint64_t ms = sfi_setting("STRICTFI_REG_MS_PER_GIB", 0);
    uint64_t ns = (uint64_t)((double)len / (1 << 30) * (double)ms * 1e6);
    struct timespec ts = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

    if (ns)
        nanosleep(&ts, NULL);
}

static void registering_counted(struct strictfi_stats *s)
{
    uint64_t now = atomic_fetch_add(&s->registering, 1) + 1;
    uint64_t most = atomic_load(&s->registering_most);

    while (most < now && !atomic_compare_exchange_weak(&s->registering_most, &most, now))
        ;
}

static int mr_enlist(struct sfi_mr *m, uint64_t requested)
{
    struct sfi_domain *d = m->domain;
    int rc = -FI_ENOMEM;

    sfi_lock();
    if (d->mr_count < d->p->mr_cnt)
        rc = mr_key(m, requested);
    if (!rc) {
        m->next = regions;
        regions = m;
        d->mr_count++;
        d->children++;
    }
    sfi_unlock();
    return rc;
}

static int mr_reg_one(struct sfi_domain *d, const struct fi_mr_attr *attr, struct fid_mr **out)
{
    struct strictfi_stats *s = sfi_stats();
    const struct iovec *iov = attr->mr_iov;
    struct sfi_mr *m;
    int rc;

    if (attr->iov_count != 1 || !iov->iov_len || attr->offset)
        return -FI_EINVAL;
    m = calloc(1, sizeof(*m));
    if (!m)
        return -FI_ENOMEM;
    m->domain = d;
    m->base = (uintptr_t)iov->iov_base;
    m->len = iov->iov_len;
    m->access = attr->access;
    m->enabled = !(d->p->mr_mode & FI_MR_ENDPOINT);
    m->fid.fid = (struct fid){ FI_CLASS_MR, attr->context, &mr_fid_ops };
    m->fid.mem_desc = &m->fid;
    registering_counted(s);
    if (d->p->mr_mode & FI_MR_ALLOCATED)
        memory_check(iov->iov_base, iov->iov_len);
    registering_takes(iov->iov_len);
    rc = mr_enlist(m, attr->requested_key);
    atomic_fetch_sub(&s->registering, 1);
    if (rc) {
        free(m);
        return rc;
    }
    sfi_count_registration(m->len);
    *out = &m->fid;
    return 0;
}

static int mr_regattr(
        struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **out)
{
    struct sfi_domain *d = sfi_of(fid, struct sfi_domain, fid.fid);
    int rc;

    (void)flags;
    sfi_claim(d);
    rc = mr_reg_one(d, attr, out);
    sfi_disclaim(d);
    return rc;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access,
        uint64_t offset, uint64_t key, uint64_t flags, struct fid_mr **out, void *context)
{
    struct fi_mr_attr attr = { .mr_iov = iov,
        .iov_count = count,
        .access = access,
        .offset = offset,
        .requested_key = key,
        .context = context };

    return mr_regattr(fid, &attr, flags, out);
}

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset,
        uint64_t key, uint64_t flags, struct fid_mr **out, void *context)
{
    struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };

    return mr_regv(fid, &iov, 1, access, offset, key, flags, out, context);
}

struct fi_ops_mr sfi_mr_ops = {
    .size = sizeof(struct fi_ops_mr),
    .reg = mr_reg,
    .regv = mr_regv,
    .regattr = mr_regattr,
};

/* ---- looking at what operations name ---- */

struct sfi_mr *sfi_mr_local(
        struct sfi_ep *ep, void *desc, const struct iovec *iov, uint64_t access, const char *what)
{
    struct sfi_mr *m;

    if (!(ep->domain->p->mr_mode & FI_MR_LOCAL) || !iov->iov_len)
        return NULL;
    if (!desc && ep->domain->p->local_rma && access != FI_READ)
        return NULL;
    if (!desc)
        sfi_sin("mr-local", "FI_MR_LOCAL: %s was given no descriptor for its memory", what);
    for (m = regions; m && m->fid.mem_desc != desc; m = m->next)
        ;
    if (!m || m->domain != ep->domain)
        sfi_sin("mr-desc", "%s was given a descriptor that is no region of its domain", what);
    if (m->closed)
        sfi_sin("mr-closed", "%s was given the descriptor of a closed region", what);
    if (!m->enabled)
        sfi_sin("mr-bind", "%s was given the descriptor of a region that is not enabled", what);
    if ((uintptr_t)iov->iov_base < m->base || (uintptr_t)iov->iov_base - m->base > m->len ||
            iov->iov_len > m->len - ((uintptr_t)iov->iov_base - m->base))
        sfi_sin("mr-bounds", "%s has memory outside the region of its descriptor", what);
    if (access & ~m->access)
        sfi_sin("mr-access", "%s was given a region that was not registered for that", what);
    return m;
}

static const char *remote_refused(const struct sfi_ep *ep, const struct sfi_mr *m, char *why,
        size_t cap, uint64_t at, uint64_t len)
{
    const char *rule = NULL;

    if (!m) {
        rule = "key";
        snprintf(why, cap, "a peer's memory was read with a key that it never gave");
    } else if (m->closed) {
        rule = "mr-closed";
        snprintf(why, cap, "a peer's memory was read after its region was closed");
    } else if (!m->enabled) {
        rule = "mr-bind";
        snprintf(why, cap, "a peer's memory was read before its region was enabled");
    } else if (m->ep && m->ep != ep) {
        rule = "mr-bind";
        snprintf(why, cap, "a peer's memory was read through an endpoint to which it is not bound");
    } else if (!(m->access & FI_REMOTE_READ)) {
        rule = "mr-access";
        snprintf(why, cap, "a peer's memory was read that has no FI_REMOTE_READ");
    } else if (at > m->len || len > m->len - at) {
        rule = "mr-bounds";
        snprintf(why, cap,
                "a peer's memory was read outside its region: %" PRIu64 " bytes at %" PRIu64
                " of %" PRIu64,
                len, at, m->len);
    }
    return rule;
}

const char *sfi_mr_remote(struct sfi_ep *ep, const unsigned char *raw, uint64_t addr, uint64_t len,
        uint64_t *out_va, char *why, size_t cap)
{
    const struct sfi_profile *p = ep->domain->p;
    struct sfi_mr *m = mr_of_key(ep->domain, raw);
    const char *rule;
    uint64_t at;

    if (p->keyless) {
        *out_va = addr;
        return NULL;
    }
    at = m && p->mr_mode & FI_MR_VIRT_ADDR ? addr - m->base : addr;
    rule = remote_refused(ep, m, why, cap, at, len);
    if (!rule)
        *out_va = m->base + at;
    return rule;
}
