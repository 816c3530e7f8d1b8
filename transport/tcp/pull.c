/* SPDX-License-Identifier: Apache-2.0 */
/* pull(): a place in the table, and its request sent if that can be. */
#include "tcp.h"

#include <string.h>

static struct hth_tcp_pull *pull_free(struct hth_tcp_conn *c)
{
    for (uint32_t i = 0; i < HTH_TCP_PULLS; i++)
        if (!c->pull[i].is_open)
            return &c->pull[i];
    return NULL;
}

int hth_tcp_pull(struct hth_transport *t, hth_conn conn, const unsigned char *desc,
        uint32_t desc_len, uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len,
        uint64_t cookie)
{
    struct hth_tcp_conn *c = hth_tcp_conn_get(hth_tcp_of(t), conn);
    unsigned char secret[16];
    struct hth_tcp_pull *p;
    uint64_t grant;

    if (!hth_tcp_desc_read(desc, desc_len, &grant, secret) || !region || doff > region->len ||
            len > region->len - doff)
        return HEARTH_EINVAL;
    if (!c || c->state != HTH_TCP_UP)
        return HEARTH_EPEER;
    p = pull_free(c);
    if (!p)
        return HEARTH_EBUSY;
    *p = (struct hth_tcp_pull){ .is_open = 1,
        .waits = 1,
        .turn = p->turn + 1,
        .cookie = cookie,
        .region = region,
        .into = region->base + doff,
        .roff = roff,
        .len = len,
        .grant = grant };
    memcpy(p->secret, secret, sizeof(secret));
    region->busy++;
    c->pulls++;
    c->waiting++;
    hth_tcp_bulk_write(c);
    return HEARTH_OK;
}
