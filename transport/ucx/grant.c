/* SPDX-License-Identifier: Apache-2.0 */
/* The peers that may read which memory: the owner's table of grants, and the end of a region
 * with them. */
#include "ucx.h"

#include <stdlib.h>
#include <sys/random.h>

int hth_ucx_dereg(struct hth_transport *base, struct hth_region *r)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;

    if (!r)
        return 0;
    hth_ucx_grants_drop(t, r, 0);
    if (r->pulls || r->serving)
        return HEARTH_EBUSY;
    r->dead = 1;
    if (t->gets)
        hth_ucx_key_end(t, r);
    if (!r->held)
        hth_ucx_region_free(t, r);
    return 0;
}

/* When no worker is left that could use them. */
void hth_ucx_regions_fini(struct hth_ucx *t)
{
    while (t->regions) {
        hth_ucx_grants_drop(t, t->regions, 0);
        hth_ucx_region_free(t, t->regions);
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

/* A row of the table, which is asked at each question. */
static int grant_new(struct hth_ucx *t, struct hth_region *region, uint64_t off, uint64_t len,
        hth_conn conn, struct hth_ucx_desc *out, struct hearth_error *err)
{
    struct hth_ucx_grant *g = malloc(sizeof(*g));

    if (!g)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a grant");
    *g = (struct hth_ucx_grant){ .region = region, .off = off, .len = len, .conn = conn };
    g->id = hth_ids_put(&t->grants, g);
    if (!g->id || getrandom(&g->nonce, sizeof(g->nonce), 0) != sizeof(g->nonce)) {
        hth_ids_drop(&t->grants, g->id);
        free(g);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no room for more than %u grants", HTH_UCX_GRANTS);
    }
    *out = (struct hth_ucx_desc){ .grant = g->id, .at = g->nonce, .len = len };
    return 0;
}

int hth_ucx_grant(struct hth_transport *base, struct hth_region *region, uint64_t off, uint64_t len,
        hth_conn conn, unsigned char *out_desc, uint32_t *out_len, struct hearth_error *err)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    struct hth_ucx_conn *c = hth_ucx_conn_get(t, conn);
    struct hth_ucx_desc d = { 0 };
    int rc;

    if (!region || off > region->len || len > region->len - off)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "a grant of %" PRIu64 " bytes at %" PRIu64 " is outside of its region", len, off);
    if (!c || c->state != HTH_UCX_UP)
        return hth_fail(err, HEARTH_EPEER, 0, "a grant for a connection that is gone");
    if (t->gets)
        d = hth_ucx_key_grant(t, c, region, off, len);
    else if ((rc = grant_new(t, region, off, len, conn, &d, err)))
        return rc;
    *out_len = hth_ucx_desc_encode(t, &d, out_desc);
    return 0;
}

/* A network card reads without asking this node. There a grant cannot be revoked (no
 * HTH_CAP_REVOKES): the holder waits for the peer's message, or drops the connection. */
void hth_ucx_revoke(struct hth_transport *base, const unsigned char *desc, uint32_t len)
{
    struct hth_ucx *t = (struct hth_ucx *)(void *)base;
    struct hth_ucx_grant *g;
    struct hth_ucx_desc d;

    if (hth_ucx_desc_decode(t, desc, len, &d) < 0)
        return;
    g = t->gets ? NULL : hth_ids_get(&t->grants, d.grant);
    if (!g || g->nonce != d.at)
        return;
    hth_ids_drop(&t->grants, d.grant);
    free(g);
}
