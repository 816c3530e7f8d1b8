/* SPDX-License-Identifier: Apache-2.0 */
/* Where a node's engine receives the ranks' table. */
#include "ticket.h"
#include "record.h"

void hth_ticket_encode(const struct hth_ticket *t, unsigned char out[HTH_TICKET])
{
    struct hth_writer w = { .at = out, .cap = HTH_TICKET };

    hth_write(&w, t->digest, HTH_DIGEST);
    hth_write64(&w, t->len);
    hth_write64(&w, t->at.store);
    hth_write_text(&w, t->at.node, HTH_NAME_MAX);
    hth_write32(&w, t->at.addr_len);
    hth_write32(&w, 0);
    hth_write(&w, t->at.addr, t->at.addr_len);
    hth_write_zeros(&w, HTH_ADDR_MAX - t->at.addr_len);
}

int hth_ticket_decode(struct hth_ticket *out, const unsigned char in[HTH_TICKET])
{
    struct hth_reader r = { .at = in, .len = HTH_TICKET };
    struct hth_ticket t = { 0 };

    hth_read_into(&r, t.digest, HTH_DIGEST);
    t.len = hth_read64(&r);
    t.at.store = hth_read64(&r);
    hth_read_text(&r, t.at.node, HTH_NAME_MAX);
    t.at.addr_len = hth_read32(&r);
    hth_read_zeros(&r, 4);
    if (!t.len || t.len > HTH_TABLE_MOST || !t.at.addr_len || t.at.addr_len > HTH_ADDR_MAX ||
            hth_node_check(t.at.node, NULL))
        return HEARTH_EPROTO;
    hth_read_into(&r, t.at.addr, t.at.addr_len);
    hth_read_zeros(&r, HTH_ADDR_MAX - t.at.addr_len);
    if (r.bad)
        return HEARTH_EPROTO;
    *out = t;
    return HEARTH_OK;
}
