/* SPDX-License-Identifier: Apache-2.0 */
/* Some nodes with an object to fetch, a net that does wrong as told, and what came of it: one set
 * for each test program that includes this. */
#ifndef HEARTH_TESTS_REPLICATION_TRANSFERS_H
#define HEARTH_TESTS_REPLICATION_TRANSFERS_H

#include "check.h"
#include "pair.h"

#include "core/format/table.h"
#include <stdio.h>
#include <unistd.h>

#define MIB UINT64_C(1048576)

static const struct hth_save_id save = { 7, 77, 40, 1 };
static struct pair *p;

/* The net's faults and delays of pulls (and messages), by the node that serves. */
static struct {
    enum hth_loop_fault fault; /* of the n-th to m-th pull from `from` */
    uint32_t from, first, last;
    uint32_t pulls[8]; /* from each, all */
    enum hth_loop_fault message;
    uint16_t type; /* of the messages it hits; 0: all */
    uint32_t messages, until;
    uint32_t wants;             /* WANT messages that were sent */
    uint32_t sent;              /* messages of transfers, all */
    uint32_t delay_ms, pull_ms; /* of all; of pulls, more */
    uint64_t when[256];         /* of each pull */
    uint32_t count;
} net;

static inline struct hth_loop_verdict script(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    struct hth_loop_verdict v = { .delay_ms = net.delay_ms };
    uint32_t n;

    (void)arg, (void)from;
    if (kind == HTH_LOOP_PULL) {
        n = net.pulls[to]++;
        v.delay_ms += net.pull_ms;
        if (net.count < 256)
            net.when[net.count++] = p->now_ms;
        if (to == net.from && n >= net.first && n < net.last)
            v.fault = net.fault;
    } else if (kind == HTH_LOOP_MESSAGE) {
        uint16_t type = 0;

        if (len > 8)
            memcpy(&type, (const char *)bytes + 6, 2);
        net.wants += type == HTH_MSG_WANT;
        net.sent += type >= HTH_MSG_OFFER;
        if (net.message && type >= HTH_MSG_OFFER && (!net.type || type == net.type) &&
                net.messages++ < net.until)
            v.fault = net.message;
    }
    return v;
}

static inline void begin(void)
{
    alarm(100);
    p = pair_open(4);
    hth_loop_net_script(p->net, script, NULL);
}

static inline void end(void)
{
    pair_close(p);
}

static struct {
    uint32_t ended;
    int code;
    struct hearth_error err;
    struct hth_fetch *fetch;
    int unreached;
} out;

static inline void on_fetched(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err)
{
    (void)self;
    out.ended++;
    out.code = code;
    out.err = *err;
    out.fetch = fetch;
    out.unreached = hth_fetch_unreached(fetch);
}

static struct {
    uint32_t ended;
    int code;
    char text[HEARTH_ERROR_TEXT];
} offered;

static inline void on_offered(void *self, struct hth_save_id s, uint64_t object, uint32_t node,
        int code, const char *text)
{
    (void)self, (void)s, (void)object, (void)node;
    snprintf(offered.text, sizeof(offered.text), "%s", text);
    offered.ended++;
    offered.code = code;
}

static const uint32_t both[] = { 1, 2 };

static inline struct hth_fetch_want want_of(const struct hth_held *held, uint32_t sources)
{
    return (struct hth_fetch_want){
        .save = save,
        .object = held->object,
        .sources = both,
        .count = sources,
        .class = HTH_FETCH_RECOVERY,
        .deadline_ms = 20000,
        .done = on_fetched,
    };
}

/* The same object at nodes 1 and 2. */
static inline struct hth_held *two(uint64_t bytes)
{
    pair_seal(p, 2, save, 5, bytes, 1);
    return pair_seal(p, 1, save, 5, bytes, 1);
}

static inline int fetch(const struct hth_fetch_want *want)
{
    struct hth_fetch *f;
    struct hearth_error err;
    int rc = hth_fetch_start(&p->node[0].ctx, want, &f, &err);

    if (rc)
        return rc;
    cr_assert(eq(u32, out.ended, 0), "done ran inside start");
    cr_assert(pair_until(p, &out.ended, 1, 100000));
    pair_run(p, 500); /* once only, and nothing is left */
    cr_assert(eq(u32, out.ended, 1));
    return out.code;
}

static inline void no_leases(void)
{
    for (uint32_t i = 0; i < p->nodes; i++) {
        struct hth_held *held = p->node[i].open ? pair_held(p, i, save, 5) : NULL;

        if (held && held->slot)
            cr_assert(eq(u32, held->slot->leases, 0), "node %u", i);
    }
}

static inline void arrived_whole(uint32_t node)
{
    pair_run(p, 200); /* the receipts */
    cr_assert(eq(int, pair_equal(p, node, 1, save, 5), 1));
    cr_assert(eq(int, pair_held(p, node, save, 5)->verified, 1));
    no_leases();
}

static inline void served(uint64_t *a, uint64_t *b)
{
    uint64_t total, from[PAIR_NODES];

    hth_transfer_pulled(&p->node[0].ctx, &total, from);
    *a = from[1];
    *b = from[2];
    cr_assert(eq(u64, total, *a + *b));
}

#endif
