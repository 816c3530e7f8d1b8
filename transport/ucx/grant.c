/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory, and who may read it: regions, and the owner's table of grants on them.
 *
 * Descriptor: 0 "HUCX"  4 u32 1  8 u64 grant  16 u64 nonce  24 u64 length of the grant
 */
#include "ucx.h"

#include <stdlib.h>
#include <sys/random.h>

#define DESC_MAGIC 0x58435548u
#define DESC_BYTES 32u
_Static_assert(DESC_BYTES <= HTH_DESC_MAX, "a descriptor must fit into its message");

/* Inside UCX for as long as pinning takes. */
static ucs_status_t region_map(struct hth_ucx *t, struct hth_region *r)
{
    ucp_mem_map_params_t map = { 0 };

    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    map.address = r->base;
    map.length = r->len;
    return ucp_mem_map(t->context, &map, &r->memh);
}

static void region_unmap(struct hth_ucx *t, struct hth_region *r)
{
    ucp_mem_unmap(t->context, r->memh);
    free(r);
}

/* The last one out of UCX unmaps what was over meanwhile. */
static void region_mapped(struct hth_ucx *t, struct hth_region *r)
{
    struct hth_region *over = NULL;

    pthread_mutex_lock(&t->memory);
    if (r) {
        r->next = t->regions;
        if (r->next)
            r->next->prev = r;
        t->regions = r;
    }
    if (--t->mapping == 0) {
        over = t->over;
        t->over = NULL;
    }
    pthread_mutex_unlock(&t->memory);
    while (over) {
        struct hth_region *next = over->next;

        region_unmap(t, over);
        over = next;
    }
}

int hth_ucx_reg(struct hth_transport *base, void *at, uint64_t len, struct hth_region **out,
        struct hearth_error *err)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    struct hth_region *r;
    ucs_status_t status;

    if (!at || !len || len > UINTPTR_MAX - (uintptr_t)at)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "no memory to register: %" PRIu64 " bytes at %p", len, at);
    r = calloc(1, sizeof(*r));
    if (!r)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a registration");
    r->base = at;
    r->len = len;
    pthread_mutex_lock(&t->memory);
    t->mapping++;
    pthread_mutex_unlock(&t->memory);
    status = region_map(t, r);
    region_mapped(t, status == UCS_OK ? r : NULL);
    if (status != UCS_OK) {
        free(r);
        return hth_fail(err, HEARTH_ENOMEM, 0, "UCX cannot register %" PRIu64 " bytes: %s", len,
                ucs_status_string(status));
    }
    *out = r;
    return 0;
}

/* Now, or, so that nobody waits for those who pin, when they are through. */
static void ucx_region_free(struct hth_ucx *t, struct hth_region *r)
{
    int later;

    pthread_mutex_lock(&t->memory);
    if (r->next)
        r->next->prev = r->prev;
    if (r->prev)
        r->prev->next = r->next;
    else
        t->regions = r->next;
    later = t->mapping > 0;
    if (later) {
        r->next = t->over;
        t->over = r;
    }
    pthread_mutex_unlock(&t->memory);
    if (!later)
        region_unmap(t, r);
}

int hth_ucx_dereg(struct hth_transport *base, struct hth_region *r)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;

    if (!r)
        return 0;
    hth_ucx_grants_drop(t, r, 0);
    if (r->pulls || r->serving)
        return HEARTH_EBUSY;
    r->dead = 1;
    if (!r->held)
        ucx_region_free(t, r);
    return 0;
}

/* UCX has given a packet back that held the region. */
void hth_ucx_region_put(struct hth_ucx *t, struct hth_region *r)
{
    r->held--;
    if (r->dead && !r->held)
        ucx_region_free(t, r);
}

/* When no worker is left that could use them. */
void hth_ucx_regions_fini(struct hth_ucx *t)
{
    while (t->regions) {
        hth_ucx_grants_drop(t, t->regions, 0);
        ucx_region_free(t, t->regions);
    }
}

/* All grants on the region, or all of the connection. */
void hth_ucx_grants_drop(struct hth_ucx *t, const struct hth_region *region, hth_conn conn)
{
    for (uint32_t i = 0; t->grants.count && i < t->grants.cap; i++) {
        struct hth_ucx_grant *g = hth_ids_at(&t->grants, i);

        if (!g || (region ? g->region != region : g->conn != conn))
            continue;
        hth_ids_drop(&t->grants, g->id);
        free(g);
    }
}

int hth_ucx_grant(struct hth_transport *base, struct hth_region *region, uint64_t off, uint64_t len,
        hth_conn conn, unsigned char *out_desc, uint32_t *out_len, struct hearth_error *err)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    struct hth_ucx_conn *c = hth_ucx_conn_get(t, conn);
    struct hth_ucx_grant *g;

    if (!region || off > region->len || len > region->len - off)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "a grant of %" PRIu64 " bytes at %" PRIu64 " is outside of its region", len, off);
    if (!c || c->state != HTH_UCX_UP)
        return hth_fail(err, HEARTH_EPEER, 0, "a grant for a connection that is gone");
    g = malloc(sizeof(*g));
    if (!g)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a grant");
    *g = (struct hth_ucx_grant){ .region = region, .off = off, .len = len, .conn = conn };
    g->id = hth_ids_put(&t->grants, g);
    if (!g->id || getrandom(&g->nonce, sizeof(g->nonce), 0) != sizeof(g->nonce)) {
        hth_ids_drop(&t->grants, g->id);
        free(g);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no room for more than %u grants", HTH_UCX_GRANTS);
    }
    hth_put32(out_desc, DESC_MAGIC);
    hth_put32(out_desc + 4, 1);
    hth_put64(out_desc + 8, g->id);
    hth_put64(out_desc + 16, g->nonce);
    hth_put64(out_desc + 24, len);
    *out_len = DESC_BYTES;
    return 0;
}

int hth_ucx_desc_decode(
        const unsigned char *desc, uint32_t len, uint64_t *out_grant, uint64_t *out_nonce)
{
    if (!desc || len != DESC_BYTES || hth_get32(desc) != DESC_MAGIC || hth_get32(desc + 4) != 1)
        return HEARTH_EINVAL;
    *out_grant = hth_get64(desc + 8);
    *out_nonce = hth_get64(desc + 16);
    return 0;
}

void hth_ucx_revoke(struct hth_transport *base, const unsigned char *desc, uint32_t len)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    struct hth_ucx_grant *g;
    uint64_t id, nonce;

    if (hth_ucx_desc_decode(desc, len, &id, &nonce) < 0)
        return;
    g = hth_ids_get(&t->grants, id);
    if (!g || g->nonce != nonce)
        return;
    hth_ids_drop(&t->grants, id);
    free(g);
}
