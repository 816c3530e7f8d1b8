/* SPDX-License-Identifier: Apache-2.0 */
/* grant(), pull() and on_pull(), on the caller's thread. In between a lane has the pull
 * (pulls.c). */
#include "tcp.h"

#include <string.h>

int hth_tcp_grant(struct hth_transport *t, struct hth_region *region, uint64_t off, uint64_t len,
        hth_conn conn, unsigned char *out_desc, uint32_t *out_len, struct hearth_error *err)
{
    struct hth_tcp_conn *c = hth_tcp_conn_get(hth_tcp_of(t), conn);

    if (!c || c->state != HTH_TCP_UP)
        return hth_fail(err, HEARTH_EPEER, 0, "the connection to grant memory to is gone");
    hth_tcp_widen(c);
    return hth_tcp_grant_make(c, region, off, len, out_desc, out_len, err);
}

static struct hth_tcp_pull *pull_free(struct hth_tcp_conn *c)
{
    for (uint32_t i = 0; i < HTH_TCP_PULLS; i++)
        if (!c->pull[i].bulk)
            return &c->pull[i];
    return NULL;
}

/* The socket with the least to do. One of a connection that is up does not retire. */
static struct hth_tcp_bulk *bulk_for(const struct hth_tcp_conn *c)
{
    struct hth_tcp_bulk *least = NULL;

    for (uint32_t i = 0; i < c->bulks; i++)
        if (!c->bulk[i]->is_retiring && (!least || c->bulk[i]->load < least->load))
            least = c->bulk[i];
    return least;
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
    hth_tcp_widen(c);
    *p = (struct hth_tcp_pull){ .bulk = bulk_for(c),
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
    p->bulk->load += len;
    hth_tcp_bulk_begin(p->bulk, p);
    return HEARTH_OK;
}

void hth_tcp_pull_report(struct hth_tcp_pull *p, int code)
{
    struct hth_tcp_conn *c = p->bulk->conn;
    struct hth_transport_events *to = &c->t->events;
    const struct hth_tcp_pull was = *p; /* the place may be another's in the callback */

    c->pulls--;
    p->bulk->load -= p->len;
    p->bulk = NULL;
    p->region->busy--;
    c->t->pulled = code ? NULL : &was;
    to->on_pull(to->self, was.cookie, code);
    c->t->pulled = NULL;
}

void hth_tcp_pull_move(struct hth_tcp_pull *p)
{
    struct hth_tcp_conn *c = p->bulk->conn;

    if (c->state != HTH_TCP_UP) { /* since a callback of another one: it ends with the others */
        p->bulk = c->bulk[0];
        p->bulk->load += p->len;
        return;
    }
    if (p->denied) { /* what else was asked for has no end any more */
        hth_tcp_pull_report(p, HEARTH_EDENIED);
        return;
    }
    p->bulk->load -= p->len;
    p->into -= p->came - p->ended;
    p->came = p->asked = p->ended;
    p->crc = p->ended_crc;
    p->requests = 0;
    p->waits = 0;
    p->bulk = bulk_for(c);
    p->bulk->load += p->len;
    hth_tcp_bulk_begin(p->bulk, p);
}

uint64_t hth_tcp_pulled_ms(struct hth_transport *t, hth_conn conn)
{
    const struct hth_tcp_conn *c = hth_tcp_conn_get(hth_tcp_of(t), conn);
    uint64_t last = c ? c->pulled_ms : 0;

    for (uint32_t i = 0; c && i < c->bulks; i++) {
        uint64_t ms = atomic_load(&c->bulk[i]->pulled_ms);

        last = ms > last ? ms : last;
    }
    return last;
}

int hth_tcp_pulled_crc(struct hth_transport *t, uint32_t *out)
{
    const struct hth_tcp_pull *p = hth_tcp_of(t)->pulled;

    if (p)
        *out = p->crc;
    return p != NULL;
}

void hth_tcp_pulls_end(struct hth_tcp_conn *c)
{
    int code = c->code == HEARTH_ECANCELED || c->code == HEARTH_EPROTO ? c->code : HEARTH_EPEER;

    for (uint32_t i = 0; c->pulls && i < HTH_TCP_PULLS; i++)
        if (c->pull[i].bulk)
            hth_tcp_pull_report(&c->pull[i], code);
}
