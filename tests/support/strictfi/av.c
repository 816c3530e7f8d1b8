/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses, and the vector that makes numbers of them. An address is four bytes that tell the
 * endpoint, and as much filling as the fabric's addresses have, which must arrive unaltered.
 */
#include "strictfi.h"

#include <stdlib.h>
#include <string.h>

void sfi_addr_write(const struct sfi_profile *p, uint32_t id, void *out)
{
    unsigned char *bytes = out;

    if (p->addr_format == FI_ADDR_STR) {
        memset(bytes, 0, p->addr_len);
        snprintf(out, p->addr_len, "fi_strict://%08x", id);
        return;
    }
    memcpy(bytes, &id, sizeof(id));
    for (size_t i = sizeof(id); i < p->addr_len; i++)
        bytes[i] = (unsigned char)(bytes[i - 1] * 31 + 7);
}

uint32_t sfi_addr_read(const struct sfi_profile *p, const void *addr)
{
    unsigned char want[SFI_ADDR];
    uint32_t id = 0;

    if (p->addr_format == FI_ADDR_STR) {
        if (strnlen(addr, p->addr_len) < p->addr_len)
            sscanf(addr, "fi_strict://%8x", &id);
        return id;
    }
    memcpy(&id, addr, sizeof(id));
    sfi_addr_write(p, id, want);
    return memcmp(want, addr, p->addr_len) == 0 ? id : 0;
}

uint32_t sfi_av_id(const struct sfi_av *av, fi_addr_t addr)
{
    return addr < av->count ? av->ids[addr] : 0;
}

fi_addr_t sfi_av_find(const struct sfi_av *av, uint32_t id)
{
    for (size_t i = 0; i < av->count; i++)
        if (av->ids[i] == id)
            return i;
    return FI_ADDR_NOTAVAIL;
}

static int av_room(struct sfi_av *av, size_t count)
{
    size_t cap = av->cap ? av->cap : 16;
    uint32_t *more;

    while (cap < av->count + count)
        cap *= 2;
    if (cap == av->cap)
        return 0;
    more = realloc(av->ids, cap * sizeof(*more));
    if (!more)
        return -FI_ENOMEM;
    av->ids = more;
    av->cap = cap;
    return 0;
}

static int av_insert(struct fid_av *fid, const void *addr, size_t count, fi_addr_t *out,
        uint64_t flags, void *context)
{
    struct sfi_av *av = sfi_of(fid, struct sfi_av, fid);
    const struct sfi_profile *p = av->domain->p;
    int rc, n = 0;

    (void)flags, (void)context;
    sfi_enter(av->domain);
    rc = av_room(av, count);
    for (size_t i = 0; i < count && !rc; i++) {
        uint32_t id = sfi_addr_read(p, (const char *)addr + i * p->addr_len);

        if (!id)
            sfi_sin("address", "fi_av_insert() was given bytes that are no address of this fabric");
        if (out)
            out[i] = av->count;
        av->ids[av->count++] = id;
        n++;
    }
    sfi_leave(av->domain);
    return rc ? rc : n;
}

static int av_insertsvc(struct fid_av *fid, const char *node, const char *service, fi_addr_t *out,
        uint64_t flags, void *context)
{
    (void)fid, (void)node, (void)service, (void)out, (void)flags, (void)context;
    return -FI_ENOSYS;
}

static int av_insertsym(struct fid_av *fid, const char *node, size_t nodes, const char *service,
        size_t services, fi_addr_t *out, uint64_t flags, void *context)
{
    (void)fid, (void)node, (void)nodes, (void)service, (void)services;
    (void)out, (void)flags, (void)context;
    return -FI_ENOSYS;
}

static int av_remove(struct fid_av *fid, fi_addr_t *addr, size_t count, uint64_t flags)
{
    struct sfi_av *av = sfi_of(fid, struct sfi_av, fid);

    (void)flags;
    sfi_enter(av->domain);
    for (size_t i = 0; i < count; i++) {
        if (!sfi_av_id(av, addr[i]))
            sfi_sin("address", "fi_av_remove() was given an address that is not in the vector");
        av->ids[addr[i]] = 0;
    }
    sfi_leave(av->domain);
    return 0;
}

static int av_lookup(struct fid_av *fid, fi_addr_t addr, void *out, size_t *len)
{
    struct sfi_av *av = sfi_of(fid, struct sfi_av, fid);
    const struct sfi_profile *p = av->domain->p;
    unsigned char bytes[SFI_ADDR];
    uint32_t id;

    sfi_enter(av->domain);
    id = sfi_av_id(av, addr);
    sfi_leave(av->domain);
    if (!id)
        return -FI_EINVAL;
    sfi_addr_write(p, id, bytes);
    memcpy(out, bytes, *len < p->addr_len ? *len : p->addr_len);
    *len = p->addr_len;
    return 0;
}

static const char *av_straddr(struct fid_av *fid, const void *addr, char *out, size_t *len)
{
    struct sfi_av *av = sfi_of(fid, struct sfi_av, fid);
    int n = snprintf(out, *len, "fi_strict://%08x", sfi_addr_read(av->domain->p, addr));

    *len = (size_t)n + 1;
    return out;
}

static int av_close(struct fid *fid)
{
    struct sfi_av *av = sfi_of(fid, struct sfi_av, fid.fid);
    struct sfi_domain *d = av->domain;

    sfi_enter(d);
    if (av->children)
        sfi_sin("children", "an address vector was closed that %d endpoints are bound to",
                av->children);
    d->children--;
    free(av->ids);
    free(av);
    sfi_leave(d);
    return 0;
}

static struct fi_ops av_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = av_close,
    .bind = sfi_no_bind,
    .control = sfi_no_control,
    .ops_open = sfi_no_ops,
};

static struct fi_ops_av av_ops = {
    .size = offsetof(struct fi_ops_av, av_set), /* and no later slot */
    .insert = av_insert,
    .insertsvc = av_insertsvc,
    .insertsym = av_insertsym,
    .remove = av_remove,
    .lookup = av_lookup,
    .straddr = av_straddr,
};

int sfi_av_open(
        struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **out, void *context)
{
    struct sfi_domain *d = sfi_of(domain, struct sfi_domain, fid);
    struct sfi_av *av;

    if (attr->flags || attr->name || d->p->type != FI_EP_RDM)
        return -FI_ENOSYS;
    av = calloc(1, sizeof(*av));
    if (!av)
        return -FI_ENOMEM;
    av->domain = d;
    av->fid.fid = (struct fid){ FI_CLASS_AV, context, &av_fid_ops };
    av->fid.ops = &av_ops;
    sfi_enter(d);
    d->children++;
    sfi_leave(d);
    *out = &av->fid;
    return 0;
}
