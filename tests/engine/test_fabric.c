/* SPDX-License-Identifier: Apache-2.0 */
/* An engine whose fabric the ranks choose: REFIT, what it keeps of that, and what it tells the
 * ranks. */
#include "check.h"
#include "content.h"
#include "store_mem.h"

#include "core/base/auth.h"
#include "engine/state/node.h"
#include "transport/loop/loop.h"
#include <unistd.h>

#define BEST  9u  /* ofi tcp */
#define WORSE 10u /* ucx tcp */

static struct {
    uint64_t now_ms, seed, request;
    struct hth_loop_net *net;
    struct hth_store *store;
    struct hth_node *node;
    struct hth_node_fabrics fabrics;
    uint32_t broken; /* bits: fabrics that do not open */
    unsigned settled;
    uint32_t settled_on;
    union {
        struct hth_local_head head;
        struct hth_local_error error;
        struct hth_local_attached attached;
        struct hth_local_refitted refitted;
        unsigned char bytes[HTH_LOCAL_MAX];
    } heard;
} w;

static uint64_t now(void *self)
{
    (void)self;
    return w.now_ms;
}

static uint64_t number(void *self)
{
    (void)self;
    return hth_splitmix64(&w.seed);
}

static void submit(void *self, struct hth_work *work)
{
    (void)self;
    work->run(work);
    work->done(work);
}

static void reply(void *self, uint32_t client, const void *bytes, size_t len, int fd)
{
    (void)self, (void)client, (void)fd;
    memcpy(&w.heard, bytes, len);
}

/* Its address is the fabric's number. */
static struct hth_transport *open_first(
        void *self, const struct hth_transport_events *events, struct hearth_error *err)
{
    uint32_t last = w.fabrics.last;
    struct hth_transport *t = NULL;

    (void)self;
    w.fabrics.offered = (HTH_FABRIC_BIT(BEST) | HTH_FABRIC_BIT(WORSE)) & ~w.broken;
    w.fabrics.opened = last && (w.fabrics.offered & HTH_FABRIC_BIT(last)) ? last : BEST;
    return hth_loop_open(w.net, w.fabrics.opened, events, &t, err) ? NULL : t;
}

static void settled(void *self)
{
    (void)self;
    w.settled++;
    w.settled_on = w.fabrics.opened;
}

static void engine_start(void)
{
    struct hth_node_env env = { .clock = { now, now, NULL },
        .random = { number, NULL },
        .workers = { submit, NULL },
        .session = { .job = "fabric" },
        .store = w.store,
        .transport = open_first,
        .fabrics = &w.fabrics,
        .reply = reply,
        .node = "one" };

    w.fabrics = (struct hth_node_fabrics){ .settled = settled };
    must(hth_node_open(&env, &w.node, NULL));
}

static void setup(void)
{
    struct hth_clock clock = { now, now, NULL };

    alarm(60);
    w.now_ms = 1000;
    must(hth_auth_init(NULL));
    must(hth_loop_net_open(&clock, 1, &w.net, NULL));
    must(hth_store_mem_open(1, 0, &w.store));
    engine_start();
}

static void teardown(void)
{
    hth_node_close(w.node);
    w.store->ops->close(w.store);
    hth_store_mem_destroy(w.store);
    hth_loop_net_close(w.net);
}

TestSuite(fabric, .init = setup, .fini = teardown);

static uint32_t ask(void *m, uint32_t len, enum hth_local_type type, struct hth_content *content)
{
    struct hth_local_head head = { len, type, ++w.request, 0 };

    memcpy(m, &head, sizeof(head));
    memset(&w.heard, 0, sizeof(w.heard));
    hth_node_request(w.node, 1, m, len, content);
    return w.heard.head.type;
}

static struct hth_local_attached attach(void)
{
    struct hth_local_attach m = {
        .version = hth_version_written(HTH_FORMAT_LOCAL), .world = 1, .job = "fabric"
    };

    cr_assert(eq(u32, ask(&m, sizeof(m), HTH_LOCAL_ATTACH, NULL), HTH_LOCAL_ATTACHED), "%s",
            w.heard.error.text);
    return w.heard.attached;
}

static struct hth_local_refitted refit(uint32_t fabric)
{
    struct hth_local_refit m = { .fabric = fabric };

    cr_assert(eq(u32, ask(&m, sizeof(m), HTH_LOCAL_REFIT, NULL), HTH_LOCAL_REFITTED), "%s",
            w.heard.error.text);
    cr_assert(zero(int, hth_node_ends(w.node)));
    return w.heard.refitted;
}

static void start_again(void)
{
    hth_node_close(w.node);
    w.store->ops->close(w.store);
    engine_start();
}

/* This engine ends, and the next one begins. */
static void refit_leaves(uint32_t fabric)
{
    struct hth_local_refit m = { .fabric = fabric };

    cr_assert(zero(u32, ask(&m, sizeof(m), HTH_LOCAL_REFIT, NULL)), "the next engine is to answer");
    cr_assert(eq(int, hth_node_ends(w.node), 1));
    cr_assert(ne(ptr, hth_node_transport(w.node), NULL), "what is under way ends with the engine");
    start_again();
}

static void join(const struct hth_local_attached *a, uint64_t epoch)
{
    struct hth_local_join m = {
        .opts = { .copies = 1, .min_copies = 1, .keep = 1, .allow_degraded = 1 }, .world = 1
    };
    struct hth_gather g = { .job = "fabric",
        .node = "one",
        .wall_ms = epoch,
        .copies = 1,
        .min_copies = 1,
        .keep = 1,
        .world = 1,
        .store = a->store };
    unsigned char table[HTH_GATHER];

    g.addr_len = a->addr_len;
    memcpy(g.addr, a->addr, sizeof(g.addr));
    hth_gather_encode(&g, table);
    cr_assert(eq(u32, ask(&m, sizeof(m), HTH_LOCAL_JOIN, content_of(table, sizeof(table))),
                      HTH_LOCAL_JOINED),
            "%s", w.heard.error.text);
}

static struct hth_local_attached attach_again(void)
{
    hth_node_client_gone(w.node, 1);
    return attach();
}

Test(fabric, before_any_epoch_the_next_engine_takes_another_one)
{
    struct hth_local_attached a = attach(), b;
    struct hth_local_refitted r;

    must_say(a.provider, "tcp");
    cr_assert(eq(u32, a.fabrics, HTH_FABRIC_BIT(BEST) | HTH_FABRIC_BIT(WORSE)));
    cr_assert(zero(u32, a.first_fabric));
    refit_leaves(WORSE);
    cr_assert(eq(u32, w.fabrics.opened, WORSE));
    b = attach();
    cr_assert(ne(int, memcmp(b.addr, a.addr, sizeof(b.addr)), 0));
    cr_assert(eq(u32, b.fabrics, a.fabrics), "it could go back");
    cr_assert(zero(u32, b.first_fabric), "the job has run on none");
    r = refit(WORSE); /* the next rank of the node */
    must_say(r.transport, "loop");
    cr_assert(eq(int, memcmp(r.addr, b.addr, sizeof(r.addr)), 0));
    refit(31); /* none that there is */
    refit(77);
    refit(1); /* one that this node has not */
}

Test(fabric, the_engine_says_that_a_fabric_does_not_open)
{
    struct hth_local_refitted r;

    attach();
    w.broken = HTH_FABRIC_BIT(WORSE);
    refit_leaves(WORSE);
    attach();
    r = refit(WORSE);
    cr_assert(eq(u32, r.fabrics, HTH_FABRIC_BIT(BEST)));
    cr_assert(eq(u32, w.fabrics.opened, BEST));
}

/* The next engine would begin on this one again, and the ranks would meet for ever. */
Test(fabric, an_engine_that_cannot_record_another_one_does_without_it)
{
    struct hth_local_refitted r;

    attach();
    hth_store_mem_fail_at(w.store, 1);
    r = refit(WORSE);
    cr_assert(eq(u32, r.fabrics, HTH_FABRIC_BIT(BEST)));
    cr_assert(eq(u32, w.fabrics.opened, BEST));
}

/* Peers know it by its address, and memory is registered there. */
Test(fabric, in_an_epoch_it_ends_for_another_one_and_what_began_is_on_record)
{
    struct hth_local_attached a;

    attach();
    refit_leaves(WORSE);
    a = attach();
    cr_assert(zero(u32, w.settled), "another one can still be taken");
    join(&a, 7);
    cr_assert(eq(u32, w.settled, 1));
    cr_assert(eq(u32, w.settled_on, WORSE));
    a = attach_again();
    cr_assert(eq(u32, a.first_fabric, WORSE));
    start_again();
    cr_assert(eq(u32, w.fabrics.opened, WORSE), "the next engine begins with it");
    a = attach();
    join(&a, 7);
    refit_leaves(BEST);
    cr_assert(eq(u32, w.fabrics.opened, BEST));
    a = attach();
    cr_assert(eq(u32, a.first_fabric, WORSE), "it began on that");
}
