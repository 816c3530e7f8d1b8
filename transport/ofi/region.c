/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory. A region is only noted; what peers may read is registered per grant, over exactly the
 * granted bytes and with a key of its own, read-only. So the provider itself enforces the
 * bounds, and revoking is closing. Descriptor, little-endian:
 *
 *    0 u64 1 (version)   8 u64 owner's id   16 u64 key   24 u64 remote base   32 u64 length
 */
#include "ofi.h"

#include "core/base/bytes.h"
#include <stdlib.h>
#include <sys/random.h>

#define DESC_VERSION 1u
#define DESC_BYTES   40u
#define KEY_TRIES    4

int hth_ofi_mr_open(
        struct hth_ofi *o, void *base, uint64_t len, uint64_t access, struct fid_mr **out)
{
    uint64_t key = 0;
    int rc = -FI_ENOKEY;

    for (int i = 0; i < KEY_TRIES && rc == -FI_ENOKEY; i++) {
        if (getrandom(&key, sizeof(key), 0) != sizeof(key))
            return -FI_EIO;
        if (o->info->domain_attr->mr_key_size < sizeof(key))
            key &= (UINT64_C(1) << 8 * o->info->domain_attr->mr_key_size) - 1;
        rc = fi_mr_reg(o->domain, base, len, access, 0, key, 0, out, NULL);
    }
    return rc;
}

int hth_ofi_reg(struct hth_transport *t, void *base, uint64_t len, struct hth_region **out,
        struct hearth_error *err)
{
    struct hth_ofi *o = hth_ofi_of(t);
    struct hth_region *region;

    if (!base || !len || len > UINTPTR_MAX - (uintptr_t)base)
        return hth_fail(err, HEARTH_EINVAL, 0, "memory to register needs an address and a length");
    region = calloc(1, sizeof(*region));
    if (!region)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a region");
    region->base = base;
    region->len = len;
    region->next = o->regions;
    if (o->regions)
        o->regions->prev = region;
    o->regions = region;
    *out = region;
    return HEARTH_OK;
}

static void ofi_grant_end(struct hth_ofi *o, struct hth_ofi_grant *g)
{
    int rc = g->mr ? fi_close(&g->mr->fid) : 0;

    if (rc)
        hth_say(&o->log, HEARTH_LOG_ERROR, "ofi-close", "libfabric keeps a registration: %s",
                o->lib->strerror(-rc));
    hth_ids_drop(&o->grants, g->id);
    free(g);
}

void hth_ofi_grants_end(struct hth_ofi *o, hth_conn conn)
{
    for (uint32_t i = 0; i < o->grants.cap && o->grants.count; i++) {
        struct hth_ofi_grant *g = hth_ids_at(&o->grants, i);

        if (g && (!conn || g->conn == conn))
            ofi_grant_end(o, g);
    }
}

static void ofi_region_free(struct hth_ofi *o, struct hth_region *region)
{
    for (uint32_t i = 0; i < o->grants.cap && o->grants.count; i++) {
        struct hth_ofi_grant *g = hth_ids_at(&o->grants, i);

        if (g && g->region == region)
            ofi_grant_end(o, g);
    }
    if (region->local)
        fi_close(&region->local->fid);
    if (region->prev)
        region->prev->next = region->next;
    else
        o->regions = region->next;
    if (region->next)
        region->next->prev = region->prev;
    free(region);
}

int hth_ofi_dereg(struct hth_transport *t, struct hth_region *region)
{
    if (!region)
        return HEARTH_OK;
    if (region->busy)
        return HEARTH_EBUSY;
    ofi_region_free(hth_ofi_of(t), region);
    return HEARTH_OK;
}

void hth_ofi_regions_end(struct hth_ofi *o)
{
    while (o->regions)
        ofi_region_free(o, o->regions);
}

static void ofi_desc_write(const struct hth_ofi *o, const struct hth_ofi_grant *g,
        const unsigned char *base, uint64_t len, unsigned char *out)
{
    hth_put64(out, DESC_VERSION);
    hth_put64(out + 8, g->id);
    hth_put64(out + 16, g->key);
    hth_put64(out + 24, o->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)base : 0);
    hth_put64(out + 32, len);
}

int hth_ofi_desc_read(const unsigned char *desc, uint32_t len, struct hth_ofi_desc *out)
{
    if (!desc || len != DESC_BYTES || hth_get64(desc) != DESC_VERSION)
        return HEARTH_EINVAL;
    out->grant = hth_get64(desc + 8);
    out->key = hth_get64(desc + 16);
    out->base = hth_get64(desc + 24);
    out->len = hth_get64(desc + 32);
    return out->len > UINT64_MAX - out->base ? HEARTH_EINVAL : HEARTH_OK;
}

int hth_ofi_grant(struct hth_transport *t, struct hth_region *region, uint64_t off, uint64_t len,
        hth_conn conn, unsigned char *out_desc, uint32_t *out_len, struct hearth_error *err)
{
    struct hth_ofi *o = hth_ofi_of(t);
    const struct hth_ofi_conn *c = hth_ofi_conn_get(o, conn);
    struct hth_ofi_grant *g;
    int rc;

    if (!region || off > region->len || len > region->len - off)
        return hth_fail(err, HEARTH_EINVAL, 0, "a grant must lie in its region");
    if (!c || c->state != HTH_OFI_UP)
        return hth_fail(err, HEARTH_EPEER, 0, "the connection to grant memory to is gone");
    g = calloc(1, sizeof(*g));
    if (g)
        g->id = hth_ids_put(&o->grants, g);
    if (!g || !g->id) {
        free(g);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a grant");
    }
    rc = len ? hth_ofi_mr_open(o, region->base + off, len, FI_REMOTE_READ, &g->mr) : 0;
    if (rc) {
        hth_ids_drop(&o->grants, g->id);
        free(g);
        return hth_fail(err, rc == -FI_ENOMEM ? HEARTH_ENOMEM : HEARTH_EIO, -rc,
                "libfabric cannot register %" PRIu64 " bytes for a peer: %s", len,
                o->lib->strerror(-rc));
    }
    g->key = g->mr ? fi_mr_key(g->mr) : 0;
    g->conn = conn;
    g->region = region;
    ofi_desc_write(o, g, region->base + off, len, out_desc);
    *out_len = DESC_BYTES;
    return HEARTH_OK;
}

void hth_ofi_revoke(struct hth_transport *t, const unsigned char *desc, uint32_t len)
{
    struct hth_ofi *o = hth_ofi_of(t);
    struct hth_ofi_grant *g;
    struct hth_ofi_desc d;

    if (hth_ofi_desc_read(desc, len, &d))
        return;
    g = hth_ids_get(&o->grants, d.grant);
    if (g && g->key == d.key)
        ofi_grant_end(o, g);
}
