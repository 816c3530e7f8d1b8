/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pulls: one fi_read() each, or several in a row where the provider's messages are shorter.
 *
 *   FREE ─► WAITS ─ taken by the library ─► POSTED ─ last piece ─► on_pull(0), FREE
 *     └► RIPE (no bytes) ─► on_pull(0)        │ failed
 *                                             ▼
 *                   FAILED ─ endpoint closed ─► on_pull(code), FREE
 *
 * A failed one waits for the endpoint's close like those that never hear back, so that after
 * on_pull() nobody writes there.
 */
#include "ofi.h"

#include "core/base/crc.h"

/* Counts the pulls that the library has. */
static void read_move_to(
        struct hth_ofi_conn *c, struct hth_ofi_pull *p, enum hth_ofi_pull_state state)
{
    c->reading += (state == HTH_OFI_PULL_POSTED) - (p->state == HTH_OFI_PULL_POSTED);
    p->state = state;
}

static struct hth_ofi_pull *read_find_free(struct hth_ofi_conn *c)
{
    for (uint32_t i = 0; i < HTH_OFI_RING; i++)
        if (c->pull[i].state == HTH_OFI_PULL_FREE)
            return &c->pull[i];
    return NULL;
}

static void read_post(struct hth_ofi_conn *c, uint32_t index)
{
    struct hth_ofi_pull *p = &c->pull[index];
    size_t most = c->o->info->ep_attr->max_msg_size;
    ssize_t rc = -FI_EAGAIN;

    if (c->o->sockets && most > HTH_OFI_SIP)
        most = HTH_OFI_SIP;
    p->piece = p->left < most ? p->left : most;
    if (hth_ofi_conn_has_room(c, HTH_OFI_PULL))
        rc = fi_read(c->ep, p->into, p->piece, fi_mr_desc(p->region->mr), FI_ADDR_UNSPEC, p->from,
                p->key, hth_ofi_context(c, HTH_OFI_PULL, index));
    if (!rc) {
        hth_ofi_conn_hold(c, HTH_OFI_PULL);
        read_move_to(c, p, HTH_OFI_PULL_POSTED);
        return;
    }
    read_move_to(c, p, HTH_OFI_PULL_WAITS);
    hth_ofi_conn_refused(c, rc);
}

void hth_ofi_pulls_post(struct hth_ofi_conn *c)
{
    for (uint32_t i = 0; c->pulls && c->state == HTH_OFI_UP && i < HTH_OFI_RING; i++)
        if (c->pull[i].state == HTH_OFI_PULL_WAITS)
            read_post(c, i);
}

int hth_ofi_pull(struct hth_transport *t, hth_conn conn, const unsigned char *desc,
        uint32_t desc_len, uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len,
        uint64_t cookie)
{
    struct hth_ofi *o = hth_ofi_of(t);
    struct hth_ofi_conn *c = hth_ofi_conn_get(o, conn);
    struct hth_ofi_desc d;
    struct hth_ofi_pull *p;

    if (hth_ofi_desc_read(desc, desc_len, &d) || d.raw_bytes ||
            !hth_ofi_desc_fits(&d, roff, region, doff, len))
        return HEARTH_EINVAL;
    if (!c || c->state != HTH_OFI_UP)
        return HEARTH_EPEER;
    p = read_find_free(c);
    if (!p)
        return HEARTH_EBUSY;
    *p = (struct hth_ofi_pull){ .cookie = cookie,
        .region = region,
        .into = region->base + doff,
        .left = len,
        .from = d.base + roff,
        .key = d.key,
        .number = d.number,
        .code = hth_ofi_grant_is_over(&c->grants, d.number) ? HEARTH_EDENIED : HEARTH_OK };
    region->busy++;
    c->pulls++;
    if (len && !p->code) {
        read_post(c, (uint32_t)(p - c->pull));
    } else {
        read_move_to(c, p, HTH_OFI_PULL_RIPE);
        o->ripe++;
    }
    return HEARTH_OK;
}

int hth_ofi_pulls_read(const struct hth_ofi_conn *c, uint32_t number)
{
    for (uint32_t i = 0; c->pulls && i < HTH_OFI_RING; i++)
        if (c->pull[i].state != HTH_OFI_PULL_FREE && c->pull[i].number == number)
            return 1;
    return 0;
}

/* If that was the last pull under a grant that is over, the owner may be waiting for OVER. */
static void read_tell_owner(struct hth_ofi_conn *c, uint32_t number)
{
    if (c->state != HTH_OFI_UP || !hth_ofi_grant_is_over(&c->grants, number) ||
            hth_ofi_pulls_read(c, number))
        return;
    if (hth_ofi_grant_unread(&c->grants, number))
        hth_ofi_conn_leave(c, HEARTH_ENOMEM, "no memory to answer about a grant");
    else
        hth_ofi_words_post(c);
}

static void read_complete(struct hth_ofi_conn *c, struct hth_ofi_pull *p, int code)
{
    const uint32_t crc = p->crc; /* the place may be another's in the callback */
    struct hth_ofi *o = c->o;

    if (p->state == HTH_OFI_PULL_RIPE)
        o->ripe--;
    read_move_to(c, p, HTH_OFI_PULL_FREE);
    p->region->busy--;
    c->pulls--;
    read_tell_owner(c, p->number);
    o->pulled_crc = o->sockets && !code ? &crc : NULL;
    o->events.on_pull(o->events.self, p->cookie, code);
    o->pulled_crc = NULL;
}

uint64_t hth_ofi_pulled_ms(struct hth_transport *t, hth_conn conn)
{
    const struct hth_ofi_conn *c = hth_ofi_conn_get(hth_ofi_of(t), conn);

    return c ? c->pulled_ms : 0;
}

int hth_ofi_pulled_crc(struct hth_transport *t, uint32_t *out)
{
    const uint32_t *crc = hth_ofi_of(t)->pulled_crc;

    if (crc)
        *out = *crc;
    return crc != NULL;
}

void hth_ofi_pulled(struct hth_ofi_conn *c, uint32_t index)
{
    struct hth_ofi_pull *p = &c->pull[index];

    if (p->state != HTH_OFI_PULL_POSTED)
        return;
    if (c->o->sockets)
        p->crc = hth_crc32c_more(p->crc, p->into, p->piece);
    c->pulled_ms = hth_now_ms(&c->o->clock);
    p->left -= p->piece;
    p->into += p->piece;
    p->from += p->piece;
    if (!p->left && c->code != HEARTH_ECANCELED)
        read_complete(c, p, HEARTH_OK);
    else if (c->state == HTH_OFI_UP)
        read_post(c, index);
    else
        read_move_to(c, p, HTH_OFI_PULL_FAILED);
}

void hth_ofi_pull_failed(struct hth_ofi_conn *c, uint32_t index, int fi_err)
{
    struct hth_ofi_pull *p = &c->pull[index];

    if (p->state != HTH_OFI_PULL_POSTED)
        return;
    read_move_to(c, p, HTH_OFI_PULL_FAILED);
    if (fi_err == FI_EACCES || fi_err == FI_EPERM || fi_err == FI_ENOKEY)
        p->code = HEARTH_EDENIED;
}

int hth_ofi_pulls_ripen(struct hth_ofi *o)
{
    int n = 0;

    for (uint32_t s = 0; o->ripe && s < o->conns.cap; s++) {
        struct hth_ofi_conn *c = hth_ids_at(&o->conns, s);

        for (uint32_t i = 0; c && i < HTH_OFI_RING && c->state == HTH_OFI_UP; i++)
            if (c->pull[i].state == HTH_OFI_PULL_RIPE) {
                read_complete(c, &c->pull[i], c->pull[i].code);
                n++;
            }
    }
    return n;
}

void hth_ofi_pulls_end(struct hth_ofi_conn *c)
{
    for (uint32_t i = 0; i < HTH_OFI_RING; i++) {
        struct hth_ofi_pull *p = &c->pull[i];

        if (p->state == HTH_OFI_PULL_FREE)
            continue;
        read_complete(c, p,
                p->code                       ? p->code
                : c->code == HEARTH_ECANCELED ? c->code
                                              : HEARTH_EPEER);
    }
}
