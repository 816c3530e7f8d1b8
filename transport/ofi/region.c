/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory. A region is registered once, for its life, for both directions: peers may read it, and
 * our own pulls may write it where the provider wants that registered. A grant registers nothing;
 * it hands out the region's key, and the provider enforces the region's bounds and that peers only
 * read. Descriptor, little-endian:
 *
 *    0 u8 2 (version)   1 u8 bytes of a raw key   2 u16 0   4 u32 number, see granted.c
 *    8 u64 remote base  16 u64 offset of the grant 24 u64 length of the grant
 *   32 u64 key; where the provider's keys are raw: 32 u64 its base, 40 raw key[<= 24]
 */
#include "ofi.h"

#include "core/base/bytes.h"
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define DESC_VERSION 2u
#define DESC_RAW     40u /* where a raw key begins */
#define KEY_TRIES    4

_Static_assert(DESC_RAW + HTH_OFI_RAW_KEY == HTH_DESC_MAX, "a descriptor has room for a raw key");

/* ---- registrations ---- */

static int mr_key_random(const struct hth_ofi *o, uint64_t *out)
{
    size_t bytes = o->info->domain_attr->mr_key_size;

    if (getrandom(out, sizeof(*out), 0) != sizeof(*out))
        return -FI_EIO;
    if (bytes < sizeof(*out))
        *out &= (UINT64_C(1) << 8 * bytes) - 1;
    return 0;
}

/* If registrations belong to an endpoint, they belong to the endpoint whose address peers have. */
static int mr_to_endpoint(struct hth_ofi *o, struct fid_mr *mr)
{
    int rc = fi_mr_bind(mr, &o->home->fid, 0);

    return rc ? rc : fi_mr_enable(mr);
}

int hth_ofi_mr_open(
        struct hth_ofi *o, void *base, uint64_t len, uint64_t access, struct fid_mr **out)
{
    struct fid_mr *mr = NULL;
    uint64_t key = 0;
    int rc = -FI_ENOKEY;

    for (int i = 0; i < KEY_TRIES && rc == -FI_ENOKEY; i++) {
        rc = mr_key_random(o, &key);
        if (!rc)
            rc = fi_mr_reg(o->domain, base, len, access, 0, key, 0, &mr, NULL);
    }
    if (!rc && (o->mr_mode & FI_MR_ENDPOINT)) {
        rc = mr_to_endpoint(o, mr);
        if (rc)
            fi_close(&mr->fid);
    }
    if (!rc)
        *out = mr;
    return rc;
}

/* Pulls write the region by a registration only if the provider requires that. Memory that this
 * process may not write cannot be registered for it: then only peers read it. */
static int region_register(struct hth_ofi *o, struct hth_region *region)
{
    uint64_t access = FI_REMOTE_READ;
    int rc;

    region->writable = 1;
    if (!(o->mr_mode & FI_MR_LOCAL))
        return hth_ofi_mr_open(o, region->base, region->len, access, &region->mr);
    rc = hth_ofi_mr_open(o, region->base, region->len, access | FI_READ, &region->mr);
    if (rc != -FI_EFAULT && rc != -FI_EACCES && rc != -FI_EPERM)
        return rc;
    region->writable = 0;
    return hth_ofi_mr_open(o, region->base, region->len, access, &region->mr);
}

/* The key as peers need it. */
static int region_key(struct hth_ofi *o, struct hth_region *region, struct hearth_error *err)
{
    size_t bytes = sizeof(region->raw);
    int rc;

    if (!(o->mr_mode & FI_MR_RAW)) {
        region->key = fi_mr_key(region->mr);
        return HEARTH_OK;
    }
    rc = fi_mr_raw_attr(region->mr, &region->raw_base, region->raw, &bytes, 0);
    if (rc == -FI_ETOOSMALL || (!rc && (bytes > sizeof(region->raw) || !bytes)))
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
                "libfabric provider %s has memory keys of %zu bytes; %u is the most here",
                o->info->fabric_attr->prov_name, bytes, HTH_OFI_RAW_KEY);
    if (rc)
        return hth_fail(
                err, HEARTH_EIO, -rc, "libfabric tells no memory key: %s", o->lib->strerror(-rc));
    region->raw_bytes = (uint8_t)bytes;
    return HEARTH_OK;
}

/* ---- regions ---- */

static void region_free(struct hth_ofi *o, struct hth_region *region)
{
    int rc = region->mr ? fi_close(&region->mr->fid) : 0;

    if (rc)
        hth_say(&o->log, HEARTH_LOG_ERROR, "ofi-close", "libfabric keeps a registration: %s",
                o->lib->strerror(-rc));
    free(region->granted);
    free(region);
}

static void region_list(struct hth_ofi *o, struct hth_region *region)
{
    pthread_mutex_lock(&o->regions_lock);
    region->next = o->regions;
    if (o->regions)
        o->regions->prev = region;
    o->regions = region;
    pthread_mutex_unlock(&o->regions_lock);
}

static void region_unlist(struct hth_ofi *o, struct hth_region *region)
{
    pthread_mutex_lock(&o->regions_lock);
    if (region->prev)
        region->prev->next = region->next;
    else
        o->regions = region->next;
    if (region->next)
        region->next->prev = region->prev;
    pthread_mutex_unlock(&o->regions_lock);
}

int hth_ofi_reg(struct hth_transport *t, void *base, uint64_t len, struct hth_region **out,
        struct hearth_error *err)
{
    struct hth_ofi *o = hth_ofi_of(t);
    struct hth_region *region;
    int rc;

    if (!base || !len || len > UINTPTR_MAX - (uintptr_t)base)
        return hth_fail(err, HEARTH_EINVAL, 0, "memory to register needs an address and a length");
    region = calloc(1, sizeof(*region));
    if (!region)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a region");
    region->base = base;
    region->len = len;
    rc = region_register(o, region);
    if (rc)
        rc = hth_fail(err, rc == -FI_ENOMEM ? HEARTH_ENOMEM : HEARTH_EIO, -rc,
                "libfabric cannot register %" PRIu64 " bytes: %s", len, o->lib->strerror(-rc));
    else
        rc = region_key(o, region, err);
    if (rc) {
        region_free(o, region);
        return rc;
    }
    region_list(o, region);
    *out = region;
    return HEARTH_OK;
}

int hth_ofi_dereg(struct hth_transport *t, struct hth_region *region)
{
    struct hth_ofi *o = hth_ofi_of(t);

    if (!region)
        return HEARTH_OK;
    if (hth_ofi_granted_end(o, region) || region->busy)
        return HEARTH_EBUSY;
    region_unlist(o, region);
    region_free(o, region);
    return HEARTH_OK;
}

void hth_ofi_regions_end(struct hth_ofi *o)
{
    while (o->regions) {
        struct hth_region *region = o->regions;

        region_unlist(o, region);
        region_free(o, region);
    }
}

/* ---- grants ---- */

int hth_ofi_grant(struct hth_ofi *o, struct hth_region *region, uint64_t off, uint64_t len,
        hth_conn conn, unsigned char *out_desc, uint32_t *out_len, struct hearth_error *err)
{
    unsigned char *at = out_desc;
    uint32_t number;

    if (!region || off > region->len || len > region->len - off)
        return hth_fail(err, HEARTH_EINVAL, 0, "a grant must lie in its region");
    if (hth_ofi_granted_number(o, region, conn, &number))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a grant");
    memset(at, 0, HTH_DESC_MAX);
    at[0] = DESC_VERSION;
    at[1] = region->raw_bytes;
    hth_put32(at + 4, number);
    hth_put64(at + 8, o->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)region->base : 0);
    hth_put64(at + 16, off);
    hth_put64(at + 24, len);
    hth_put64(at + 32, region->raw_bytes ? region->raw_base : region->key);
    memcpy(at + DESC_RAW, region->raw, region->raw_bytes);
    *out_len = DESC_RAW + region->raw_bytes;
    return HEARTH_OK;
}

/* The peer has the region's key: it is valid until the region or the peer's connection ends. */
void hth_ofi_revoke(struct hth_transport *t, const unsigned char *desc, uint32_t len)
{
    (void)t, (void)desc, (void)len;
}

int hth_ofi_desc_read(const unsigned char *desc, uint32_t len, struct hth_ofi_desc *out)
{
    uint64_t base, off;

    if (!desc || len < DESC_RAW || desc[0] != DESC_VERSION || desc[1] > HTH_OFI_RAW_KEY ||
            len != DESC_RAW + desc[1])
        return HEARTH_EINVAL;
    base = hth_get64(desc + 8);
    off = hth_get64(desc + 16);
    *out = (struct hth_ofi_desc){
        .len = hth_get64(desc + 24), .number = hth_get32(desc + 4), .raw_bytes = desc[1]
    };
    if (off > UINT64_MAX - base || out->len > UINT64_MAX - base - off)
        return HEARTH_EINVAL;
    out->base = base + off;
    out->key = hth_get64(desc + 32);
    memcpy(out->raw, desc + DESC_RAW, out->raw_bytes);
    return HEARTH_OK;
}

int hth_ofi_desc_fits(const struct hth_ofi_desc *d, uint64_t roff, const struct hth_region *region,
        uint64_t doff, uint64_t len)
{
    return region && region->writable && roff <= d->len && len <= d->len - roff &&
           doff <= region->len && len <= region->len - doff;
}
