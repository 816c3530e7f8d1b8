/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that UCX knows, from any thread; and its end, when UCX has given back all that it has of
 * it. */
#include "ucx.h"

#include <stdlib.h>

/* Inside UCX for as long as pinning takes. */
static ucs_status_t region_map(struct hth_ucx *t, struct hth_region *r)
{
    ucp_mem_map_params_t map = { 0 };
    ucs_status_t status;

    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    map.address = r->base;
    map.length = r->len;
    status = ucp_mem_map(t->context, &map, &r->memh);
    if (status != UCS_OK || !t->gets)
        return status;
    status = ucp_rkey_pack(t->context, r->memh, &r->key, &r->key_len);
    if (status != UCS_OK)
        ucp_mem_unmap(t->context, r->memh);
    return status;
}

static void region_unmap(struct hth_ucx *t, struct hth_region *r)
{
    if (r->key)
        ucp_rkey_buffer_release(r->key);
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
    r->serial = ++t->serial;
    pthread_mutex_unlock(&t->memory);
    status = region_map(t, r);
    region_mapped(t, status == UCS_OK ? r : NULL);
    if (status != UCS_OK) {
        free(r);
        return hth_fail(err, HEARTH_ENOMEM, 0, "UCX cannot register %" PRIu64 " bytes: %s%s", len,
                ucs_status_string(status),
                t->rdma ? " (the card pins them: does `ulimit -l` allow it?)" : "");
    }
    *out = r;
    return 0;
}

/* Frees the region now. If other threads are registering memory, it is freed when they have ended,
 * so that no caller waits for them. */
void hth_ucx_region_free(struct hth_ucx *t, struct hth_region *r)
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

/* UCX has given a packet back that held the region. */
void hth_ucx_region_put(struct hth_ucx *t, struct hth_region *r)
{
    r->held--;
    if (r->dead && !r->held)
        hth_ucx_region_free(t, r);
}
