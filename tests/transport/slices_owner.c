/* SPDX-License-Identifier: Apache-2.0 */
/* An owner: whoever connects may pull what it has, until it is killed. */
#include "slices_parts.h"

#include <string.h>
#include <unistd.h>

#define CALLERS 256u

struct owner {
    struct hth_transport *t;
    struct hth_region *region;
    struct {
        hth_conn conn; /* 0: unused */
        int told;
    } caller[CALLERS];
};

static void on_accept(void *self, hth_conn conn)
{
    struct owner *o = self;
    unsigned i = 0;

    while (i < CALLERS && o->caller[i].conn)
        i++;
    SLICES_MUST(i < CALLERS);
    o->caller[i].conn = conn;
    o->caller[i].told = 0;
}

static void on_up(void *self, hth_conn conn)
{
    (void)self, (void)conn;
}

static void on_down(void *self, hth_conn conn, int code, const char *detail)
{
    struct owner *o = self;
    unsigned i = 0;

    (void)code, (void)detail;
    while (i < CALLERS && o->caller[i].conn != conn)
        i++;
    SLICES_MUST(i < CALLERS); /* a connection ends once */
    o->caller[i].conn = 0;
}

static void on_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    (void)self, (void)conn, (void)bytes, (void)len;
}

static void on_pull(void *self, uint64_t cookie, int code)
{
    (void)self, (void)cookie, (void)code;
    slices_fail("an owner pulls nothing");
}

static void tell(struct owner *o, unsigned i)
{
    struct slices_grant g = { 0 };
    hth_conn conn = o->caller[i].conn;

    if (o->t->ops->grant(o->t, o->region, 0, SLICES_OBJECT, conn, g.desc, &g.desc_len, NULL))
        return; /* it ends */
    o->caller[i].told = o->t->ops->send(o->t, conn, &g, sizeof(g)) == 0;
    if (!o->caller[i].told)
        o->t->ops->revoke(o->t, g.desc, g.desc_len);
}

void slices_owner(const struct slices_fabric *fabric, uint32_t owner, int out)
{
    static struct owner o;
    struct hth_transport_events events = { &o, on_accept, on_up, on_down, on_message, on_up,
        on_pull };
    struct slices_offer offer = { .owner = owner };
    unsigned char *bytes = slices_map(SLICES_OBJECT);

    slices_fill(bytes, SLICES_OBJECT, owner);
    o.t = slices_open(fabric, &events);
    SLICES_MUST(o.t->ops->reg(o.t, bytes, SLICES_OBJECT, &o.region, NULL) == 0);
    SLICES_MUST(o.t->ops->address(o.t, offer.addr, &offer.addr_len, NULL) == 0);
    SLICES_MUST(write(out, &offer, sizeof(offer)) == (ssize_t)sizeof(offer));
    for (;;) {
        o.t->ops->progress(o.t);
        for (unsigned i = 0; i < CALLERS; i++)
            if (o.caller[i].conn && !o.caller[i].told)
                tell(&o, i);
        slices_rest(o.t, 5);
    }
}
