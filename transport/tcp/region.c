/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and grants. A region is an address and a length, nothing is pinned. A grant is a place of
 * our table, good on the connection it was made for, and looked up for every piece that is sent:
 * once it is gone, no byte of it is read. Lanes look it up and pin it while they read: its end
 * waits for a write that is under way, which never waits itself. Descriptor, little-endian:
 *
 *     0 u8 1 (version)   1 zeros   8 u64 grant   16 secret[16]
 */
#include "tcp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define DESC_VERSION 1u

int hth_tcp_reg(struct hth_transport *transport, void *base, uint64_t len, struct hth_region **out,
        struct hearth_error *err)
{
    struct hth_tcp *t = hth_tcp_of(transport);
    struct hth_region *region;

    if (!base || !len || len > UINTPTR_MAX - (uintptr_t)base)
        return hth_fail(err, HEARTH_EINVAL, 0, "memory to register needs an address and a length");
    region = calloc(1, sizeof(*region));
    if (!region)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a region");
    region->base = base;
    region->len = len;
    pthread_mutex_lock(&t->regions_lock);
    region->next = t->regions;
    if (t->regions)
        t->regions->prev = region;
    t->regions = region;
    pthread_mutex_unlock(&t->regions_lock);
    *out = region;
    return HEARTH_OK;
}

/* ---- grants ---- */

static void grant_list(struct hth_tcp_grant *g)
{
    g->region_next = g->region->grants;
    if (g->region_next)
        g->region_next->region_prev = g;
    g->region->grants = g;
    g->conn_next = g->conn->grants;
    if (g->conn_next)
        g->conn_next->conn_prev = g;
    g->conn->grants = g;
}

/* No lane finds it any more, and none reads its memory: one may have a write of a piece to end. */
static void grant_forget(struct hth_tcp *t, struct hth_tcp_grant *g)
{
    pthread_mutex_lock(&t->grants_lock);
    hth_ids_drop(&t->grants, g->id);
    while (g->readers)
        pthread_cond_wait(&t->grants_unread, &t->grants_lock);
    pthread_mutex_unlock(&t->grants_lock);
}

static void grant_free(struct hth_tcp_grant *g)
{
    if (g->region_next)
        g->region_next->region_prev = g->region_prev;
    if (g->region_prev)
        g->region_prev->region_next = g->region_next;
    else
        g->region->grants = g->region_next;
    if (g->conn_next)
        g->conn_next->conn_prev = g->conn_prev;
    if (g->conn_prev)
        g->conn_prev->conn_next = g->conn_next;
    else
        g->conn->grants = g->conn_next;
    grant_forget(g->conn->t, g);
    free(g);
}

int hth_tcp_grant_make(struct hth_tcp_conn *c, struct hth_region *region, uint64_t off,
        uint64_t len, unsigned char *out_desc, uint32_t *out_len, struct hearth_error *err)
{
    struct hth_tcp *t = c->t;
    struct hth_tcp_grant *g;

    if (!region || off > region->len || len > region->len - off)
        return hth_fail(err, HEARTH_EINVAL, 0, "a grant must lie in its region");
    g = calloc(1, sizeof(*g));
    if (!g)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a grant");
    *g = (struct hth_tcp_grant){ .region = region, .conn = c, .off = off, .len = len };
    if (getrandom(g->secret, sizeof(g->secret), 0) == sizeof(g->secret)) {
        pthread_mutex_lock(&t->grants_lock);
        g->id = hth_ids_put(&t->grants, g);
        pthread_mutex_unlock(&t->grants_lock);
    }
    if (!g->id) {
        free(g);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no room for a grant: %" PRIu32 " are given",
                t->grants.count);
    }
    grant_list(g);
    memset(out_desc, 0, HTH_TCP_DESC);
    out_desc[0] = DESC_VERSION;
    hth_put64(out_desc + 8, g->id);
    memcpy(out_desc + 16, g->secret, sizeof(g->secret));
    *out_len = HTH_TCP_DESC;
    return HEARTH_OK;
}

int hth_tcp_desc_read(
        const unsigned char *desc, uint32_t len, uint64_t *out_id, unsigned char out_secret[16])
{
    if (!desc || len != HTH_TCP_DESC || hth_get64(desc) != DESC_VERSION)
        return 0;
    *out_id = hth_get64(desc + 8);
    memcpy(out_secret, desc + 16, 16);
    return 1;
}

void hth_tcp_revoke(struct hth_transport *transport, const unsigned char *desc, uint32_t len)
{
    struct hth_tcp *t = hth_tcp_of(transport);
    unsigned char secret[16];
    struct hth_tcp_grant *g;
    uint64_t id;

    if (!hth_tcp_desc_read(desc, len, &id, secret))
        return;
    g = hth_ids_get(&t->grants, id);
    if (g && memcmp(g->secret, secret, sizeof(secret)) == 0)
        grant_free(g);
}

/* ---- lanes ---- */

static int grant_holds(
        const struct hth_tcp_grant *g, const unsigned char secret[16], uint64_t off, uint64_t len)
{
    unsigned char differs = 0;

    for (size_t i = 0; i < sizeof(g->secret); i++) /* takes as long for any guess */
        differs |= g->secret[i] ^ secret[i];
    return !differs && off <= g->len && len <= g->len - off;
}

int hth_tcp_grant_check(const struct hth_tcp_conn *c, uint64_t id, const unsigned char secret[16],
        uint64_t off, uint64_t len)
{
    struct hth_tcp *t = c->t;
    const struct hth_tcp_grant *g;
    int holds;

    pthread_mutex_lock(&t->grants_lock);
    g = hth_ids_get(&t->grants, id);
    holds = g && g->conn == c && grant_holds(g, secret, off, len);
    pthread_mutex_unlock(&t->grants_lock);
    return holds;
}

int hth_tcp_grant_stands(struct hth_tcp *t, uint64_t id)
{
    int stands;

    pthread_mutex_lock(&t->grants_lock);
    stands = hth_ids_get(&t->grants, id) != NULL;
    pthread_mutex_unlock(&t->grants_lock);
    return stands;
}

struct hth_tcp_grant *hth_tcp_grant_pin(struct hth_tcp *t, uint64_t id)
{
    struct hth_tcp_grant *g;

    pthread_mutex_lock(&t->grants_lock);
    g = hth_ids_get(&t->grants, id);
    if (g)
        g->readers++;
    pthread_mutex_unlock(&t->grants_lock);
    return g;
}

void hth_tcp_grant_unpin(struct hth_tcp *t, struct hth_tcp_grant *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&t->grants_lock);
    if (!--g->readers)
        pthread_cond_broadcast(&t->grants_unread);
    pthread_mutex_unlock(&t->grants_lock);
}

void hth_tcp_grants_end(struct hth_tcp_conn *c)
{
    while (c->grants)
        grant_free(c->grants);
}

/* ---- the end of a region ---- */

static void region_free(struct hth_tcp *t, struct hth_region *region)
{
    pthread_mutex_lock(&t->regions_lock);
    if (region->next)
        region->next->prev = region->prev;
    if (region->prev)
        region->prev->next = region->next;
    else
        t->regions = region->next;
    pthread_mutex_unlock(&t->regions_lock);
    free(region);
}

/* Bytes that peers pulled were copied when they were sent, so only this node's own pulls hold the
 * region. */
int hth_tcp_dereg(struct hth_transport *transport, struct hth_region *region)
{
    if (!region)
        return HEARTH_OK;
    while (region->grants)
        grant_free(region->grants);
    if (region->busy)
        return HEARTH_EBUSY;
    region_free(hth_tcp_of(transport), region);
    return HEARTH_OK;
}

void hth_tcp_regions_end(struct hth_tcp *t)
{
    while (t->regions) {
        t->regions->busy = 0;
        hth_tcp_dereg(&t->base, t->regions);
    }
}
