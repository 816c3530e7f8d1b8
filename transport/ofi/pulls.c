/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pulls of a connection of either kind: one fi_read() each, or several in a row where the
 * provider's messages are shorter. How a piece is posted, and which failures are final, is for
 * pull.c and rdm_pull.c.
 *
 *   FREE ─► WAITS ─ taken by the library ─► POSTED ─ last piece ─► on_pull(0), FREE
 *     └► RIPE (no bytes) ─► on_pull(0)        │ failed
 *                                             ▼
 *            FAILED ─ the library has nothing of the connection ─► on_pull(code), FREE
 */
#include "ofi.h"

#include "core/base/crc.h"
#include <string.h>

/* Counts the pulls that the library has. */
void hth_ofi_pull_move_to(
        struct hth_ofi_link *c, struct hth_ofi_pull *p, enum hth_ofi_pull_state state)
{
    c->reading += (state == HTH_OFI_PULL_POSTED) - (p->state == HTH_OFI_PULL_POSTED);
    p->state = state;
}

static struct hth_ofi_pull *pull_find_free(struct hth_ofi_link *c)
{
    for (uint32_t i = 0; i < HTH_OFI_RING; i++)
        if (c->pull[i].state == HTH_OFI_PULL_FREE)
            return &c->pull[i];
    return NULL;
}

int hth_ofi_pull(struct hth_transport *t, hth_conn conn, const unsigned char *desc,
        uint32_t desc_len, uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len,
        uint64_t cookie)
{
    struct hth_ofi *o = hth_ofi_of(t);
    struct hth_ofi_link *c = hth_ofi_link_get(o, conn);
    struct hth_ofi_desc d;
    struct hth_ofi_pull *p;

    if (hth_ofi_desc_read(desc, desc_len, &d) || !hth_ofi_desc_fits(&d, roff, region, doff, len) ||
            !d.raw_bytes != !(o->mr_mode & FI_MR_RAW))
        return HEARTH_EINVAL;
    if (!c || c->state != HTH_OFI_UP)
        return HEARTH_EPEER;
    p = pull_find_free(c);
    if (!p)
        return HEARTH_EBUSY;
    *p = (struct hth_ofi_pull){ .cookie = cookie,
        .region = region,
        .into = region->base + doff,
        .left = len,
        .from = d.base + roff,
        .key = d.key,
        .number = d.number,
        .code = hth_ofi_grant_is_over(&c->grants, d.number) ? HEARTH_EDENIED : HEARTH_OK,
        .raw_bytes = d.raw_bytes };
    memcpy(p->raw, d.raw, d.raw_bytes);
    region->busy++;
    c->pulls++;
    hth_ofi_pull_move_to(c, p, len && !p->code ? HTH_OFI_PULL_WAITS : HTH_OFI_PULL_RIPE);
    o->ripe += p->state == HTH_OFI_PULL_RIPE;
    if (p->state == HTH_OFI_PULL_WAITS)
        o->pull_post(c, (uint32_t)(p - c->pull));
    return HEARTH_OK;
}

static int link_reads(const struct hth_ofi_link *c, uint32_t number)
{
    for (uint32_t i = 0; c->pulls && i < HTH_OFI_RING; i++)
        if (c->pull[i].state != HTH_OFI_PULL_FREE && c->pull[i].number == number)
            return 1;
    return 0;
}

int hth_ofi_grant_is_read(struct hth_ofi *o, hth_conn conn, uint32_t number)
{
    const struct hth_ofi_link *c = hth_ofi_link_get(o, conn);

    return c && link_reads(c, number);
}

/* If that was the last pull under a grant that is over, the owner may be waiting for OVER. */
static void pull_tell_owner(struct hth_ofi_link *c, uint32_t number)
{
    if (c->state != HTH_OFI_UP || !hth_ofi_grant_is_over(&c->grants, number) ||
            link_reads(c, number))
        return;
    if (hth_ofi_grant_unread(&c->grants, number))
        c->o->leave(c, HEARTH_ENOMEM, "no memory to answer about a grant");
    else
        c->o->grants_flush(c->o, c->id);
}

void hth_ofi_pull_complete(struct hth_ofi_link *c, struct hth_ofi_pull *p, int code)
{
    const uint32_t crc = p->crc; /* the place may be another's in the callback */
    struct hth_ofi *o = c->o;

    o->ripe -= p->state == HTH_OFI_PULL_RIPE;
    if (p->mapped)
        fi_mr_unmap_key(o->domain, p->key);
    hth_ofi_pull_move_to(c, p, HTH_OFI_PULL_FREE);
    p->region->busy--;
    c->pulls--;
    pull_tell_owner(c, p->number);
    o->pulled_crc = o->sockets && !code ? &crc : NULL;
    o->events.on_pull(o->events.self, p->cookie, code);
    o->pulled_crc = NULL;
}

int hth_ofi_pull_came(struct hth_ofi_link *c, struct hth_ofi_pull *p)
{
    if (c->o->sockets)
        p->crc = hth_crc32c_more(p->crc, p->into, p->piece);
    c->pulled_ms = hth_now_ms(&c->o->clock);
    p->left -= p->piece;
    p->into += p->piece;
    p->from += p->piece;
    return !p->left;
}

void hth_ofi_pull_failed(struct hth_ofi_link *c, struct hth_ofi_pull *p, int fi_err)
{
    hth_ofi_pull_move_to(c, p, HTH_OFI_PULL_FAILED);
    if (fi_err == FI_EACCES || fi_err == FI_EPERM || fi_err == FI_ENOKEY)
        p->code = HEARTH_EDENIED;
}

int hth_ofi_pulls_ripen(struct hth_ofi *o)
{
    int n = 0;

    for (uint32_t s = 0; o->ripe && s < o->conns.cap; s++) {
        struct hth_ofi_link *c = hth_ids_at(&o->conns, s);

        for (uint32_t i = 0; c && i < HTH_OFI_RING && c->state == HTH_OFI_UP; i++)
            if (c->pull[i].state == HTH_OFI_PULL_RIPE) {
                hth_ofi_pull_complete(c, &c->pull[i], c->pull[i].code);
                n++;
            }
    }
    return n;
}

void hth_ofi_pulls_end(struct hth_ofi_link *c)
{
    for (uint32_t i = 0; i < HTH_OFI_RING; i++) {
        struct hth_ofi_pull *p = &c->pull[i];

        if (p->state == HTH_OFI_PULL_FREE)
            continue;
        hth_ofi_pull_complete(c, p,
                p->code                       ? p->code
                : c->code == HEARTH_ECANCELED ? c->code
                                              : HEARTH_EPEER);
    }
}

/* ---- what is asked about them ---- */

uint64_t hth_ofi_pulled_ms(struct hth_transport *t, hth_conn conn)
{
    const struct hth_ofi_link *c = hth_ofi_link_get(hth_ofi_of(t), conn);

    return c ? c->pulled_ms : 0;
}

int hth_ofi_pulled_crc(struct hth_transport *t, uint32_t *out)
{
    const uint32_t *crc = hth_ofi_of(t)->pulled_crc;

    if (crc)
        *out = *crc;
    return crc != NULL;
}
