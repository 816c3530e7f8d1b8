/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A large common object at an engine of one node whose workers do what the test orders, and nothing
 * by themselves: what is too long for the engine's thread must be theirs, so it has not happened
 * before.
 */
#include "check.h"
#include "content.h"
#include "raws.h"
#include "store_mem.h"

#include "core/base/auth.h"
#include "core/format/epoch.h"
#include "core/format/table.h"
#include "engine/state/node.h"
#include "transport/loop/loop.h"
#include <hearth/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LEN   (40 * UINT64_C(1048576) + 5)
#define RANKS 2u
#define DATA  100u

static struct {
    uint64_t now_ms, seed, request;
    struct hth_loop_net *net;
    struct hth_store *store;
    struct hth_node *node;
    struct hth_work *works, **works_end;
    union {
        struct hth_local_head head;
        struct hth_local_error error;
        struct hth_local_attached attached;
        struct hth_local_lent lent;
        struct hth_local_event event;
        unsigned char bytes[HTH_LOCAL_MAX];
    } heard[RANKS + 1]; /* the last answer of each client */
    uint32_t level[RANKS + 1];
    int code[RANKS + 1]; /* of events */
    uint64_t before;     /* bytes in the store, before anything was put */
    unsigned char *bytes;
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
    work->next = NULL;
    *w.works_end = work;
    w.works_end = &work->next;
}

static struct hth_work *take_work(void)
{
    struct hth_work *work = w.works;

    if (work && !(w.works = work->next))
        w.works_end = &w.works;
    return work;
}

static int work_one(void)
{
    struct hth_work *work = take_work();

    if (!work)
        return 0;
    work->run(work);
    work->done(work);
    return 1;
}

static void reply(void *self, uint32_t client, const void *bytes, size_t len, int fd)
{
    struct hth_local_event e;

    (void)self, (void)fd;
    if (((const struct hth_local_head *)bytes)->type != HTH_LOCAL_EVENT) {
        memcpy(&w.heard[client], bytes, len);
        return;
    }
    memcpy(&e, bytes, sizeof(e));
    w.level[client] = e.level;
    w.code[client] = e.code;
}

static struct hth_transport *transport(
        void *self, const struct hth_transport_events *events, struct hearth_error *err)
{
    struct hth_transport *t = NULL;

    (void)self;
    return hth_loop_open(w.net, 1, events, &t, err) ? NULL : t;
}

/* Some time passes; workers do nothing. */
static void pass(uint64_t ms)
{
    for (uint64_t until = w.now_ms + ms; w.now_ms < until; w.now_ms += 10)
        hth_node_tick(w.node);
}

static void ask(uint32_t client, void *m, uint32_t len, enum hth_local_type type, uint64_t token,
        struct hth_content *content)
{
    struct hth_local_head head = { len, type, ++w.request, token };

    memcpy(m, &head, sizeof(head));
    memset(&w.heard[client], 0, sizeof(w.heard[client]));
    hth_node_request(w.node, client, m, len, content);
}

static void must_hear(uint32_t client, enum hth_local_type type)
{
    cr_assert(eq(u32, w.heard[client].head.type, (uint32_t)type), "client %u: %s", client,
            w.heard[client].head.type == HTH_LOCAL_ERROR ? w.heard[client].error.text : "nothing");
}

static void join(void)
{
    unsigned char table[RANKS * HTH_GATHER];

    for (uint32_t r = 0; r < RANKS; r++) {
        struct hth_local_attach m = { .version = hth_version_written(HTH_FORMAT_LOCAL),
            .rank = r,
            .world = RANKS,
            .job = "common" };
        struct hth_gather g = {
            .job = "common", .node = "one", .wall_ms = 1, .copies = 1, .min_copies = 1, .keep = 1
        };

        ask(r + 1, &m, sizeof(m), HTH_LOCAL_ATTACH, 0, NULL);
        must_hear(r + 1, HTH_LOCAL_ATTACHED);
        g.store = w.heard[r + 1].attached.store;
        g.addr_len = w.heard[r + 1].attached.addr_len;
        memcpy(g.addr, w.heard[r + 1].attached.addr, sizeof(g.addr));
        hth_gather_encode(&g, table + r * HTH_GATHER);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        struct hth_local_join m = {
            .opts = { .copies = 1, .min_copies = 1, .keep = 1, .allow_degraded = 1 },
            .world = RANKS,
            .rank = r
        };
        struct hth_local_recover recover = { 0 };

        ask(r + 1, &m, sizeof(m), HTH_LOCAL_JOIN, 0, content_of(table, sizeof(table)));
        must_hear(r + 1, HTH_LOCAL_JOINED);
        ask(r + 1, &recover, sizeof(recover), HTH_LOCAL_RECOVER, 0, NULL);
    }
    while (work_one()) /* the plan */
        ;
    must_hear(1, HTH_LOCAL_RECOVERED);
    must_hear(2, HTH_LOCAL_RECOVERED);
}

static void setup(void)
{
    struct hth_node_env env = { .clock = { now, now, NULL },
        .random = { number, NULL },
        .workers = { submit, NULL },
        .session = { .job = "common" },
        .transport = transport,
        .reply = reply,
        .node = "one" };

    alarm(60);
    w.now_ms = 1000;
    w.works_end = &w.works;
    must(hth_auth_init(NULL));
    must(hth_loop_net_open(&env.clock, 1, &w.net, NULL));
    must(hth_store_mem_open(1, 0, &w.store));
    env.store = w.store;
    must(hth_node_open(&env, &w.node, NULL));
    w.bytes = malloc(LEN);
    memset(w.bytes, 'c', LEN);
    join();
}

static void teardown(void)
{
    hth_node_close(w.node);
    w.store->ops->close(w.store);
    hth_store_mem_destroy(w.store);
    hth_loop_net_close(w.net);
    free(w.bytes);
}

TestSuite(common, .init = setup, .fini = teardown);

static uint64_t begin(uint32_t client)
{
    struct hth_local_begin m = { .step = 7,
        .bytes = HTH_ALIGN(HTH_BLOCK + DATA) + hth_table_bytes(DATA, hth_item_bytes(0, 8), 0) };

    snprintf(m.name, sizeof(m.name), "object%u", client);
    ask(client, &m, sizeof(m), HTH_LOCAL_BEGIN, 0, NULL);
    must_hear(client, HTH_LOCAL_LENT);
    w.before = hth_store_mem_used(w.store);
    return w.heard[client].head.token;
}

static void put(uint64_t token)
{
    struct hth_local_common m = { .name = ".metadata", .len = LEN };

    ask(1, &m, sizeof(m), HTH_LOCAL_COMMON, token, content_of(w.bytes, LEN));
}

static void seal_and_commit(uint32_t client, const struct hth_local_lent *lent)
{
    struct hth_slot *slot = hth_node_lent(w.node, lent->slot);
    struct hth_item item = {
        .length = DATA, .kind = HTH_ITEM_BYTES, .key_len = 8, .key = "contents"
    };
    struct hth_local_seal m = { .slot = lent->slot,
        .generation = lent->generation,
        .data_len = DATA,
        .items_len = hth_item_bytes(0, 8),
        .items = 1 };
    struct hth_local_head commit;
    uint64_t token = lent->head.token;

    hth_item_encode(&item, slot->base + HTH_ALIGN(HTH_BLOCK + DATA) + HTH_TABLE_HEAD);
    ask(client, &m, sizeof(m), HTH_LOCAL_SEAL, token, NULL);
    must_hear(client, HTH_LOCAL_OK);
    ask(client, &commit, sizeof(commit), HTH_LOCAL_COMMIT, token, NULL);
    must_hear(client, HTH_LOCAL_SAVE_ID);
}

Test(common, an_engine_goes_on_answering_while_a_large_one_is_put_and_done_waits_for_it)
{
    struct hth_local_lent lent[2];
    struct hth_local_head status;
    uint64_t token = begin(1);
    struct hth_work *held;
    int pieces = 0;

    lent[0] = w.heard[1].lent;
    put(token);
    must_hear(1, HTH_LOCAL_OK);
    cr_assert(ne(ptr, w.works, NULL));
    ask(2, &status, sizeof(status), HTH_LOCAL_STATUS, 0, NULL);
    must_hear(2, HTH_LOCAL_BYTES);
    begin(2);
    lent[1] = w.heard[2].lent;
    seal_and_commit(1, &lent[0]);
    seal_and_commit(2, &lent[1]);
    held = take_work(); /* the common object's, which was asked for first */
    while (work_one())
        pass(10);
    pass(2000);
    cr_assert(lt(u32, w.level[1], (uint32_t)HEARTH_COMPLETE), "DONE before its common object");
    cr_assert(
            zero(int, raw_is(w.store, hth_local_save_to(lent[0].save), ".metadata", w.bytes, LEN)));
    submit(NULL, held);
    while (work_one()) {
        pieces++;
        pass(10);
    }
    cr_assert(eq(int, pieces, 4), "three pieces, and the end of the content");
    pass(1000);
    cr_assert(eq(u32, w.level[1], (uint32_t)HEARTH_PROTECTED));
    cr_assert(eq(u32, w.level[2], (uint32_t)HEARTH_PROTECTED));
    cr_assert(raw_is(w.store, hth_local_save_to(lent[0].save), ".metadata", w.bytes, LEN));
}

static void nothing_is_left(void)
{
    cr_assert(ge(u64, hth_store_mem_used(w.store), w.before + LEN), "nothing was being put");
    while (work_one())
        pass(10);
    cr_assert(eq(u64, hth_store_mem_used(w.store), w.before));
}

Test(common, a_save_cancelled_while_one_is_put_leaves_nothing_of_it)
{
    struct hth_local_head cancel;
    uint64_t token = begin(1);

    put(token);
    work_one();
    ask(1, &cancel, sizeof(cancel), HTH_LOCAL_CANCEL, token, NULL);
    pass(100);
    cr_assert(eq(int, w.code[1], HEARTH_EFAILED));
    nothing_is_left();
}

Test(common, a_rank_that_dies_while_one_is_put_leaves_nothing_of_it)
{
    put(begin(1));
    work_one();
    hth_node_client_gone(w.node, 1);
    pass(100);
    nothing_is_left();
}

Test(common, an_engine_that_ends_while_one_is_put_leaves_nothing_of_it)
{
    put(begin(1));
    work_one();
    w.works = NULL; /* as a pool that was stopped */
    w.works_end = &w.works;
    hth_node_close(w.node);
    w.node = NULL;
    cr_assert(eq(u64, hth_store_mem_used(w.store), w.before));
}

Test(common, no_room_is_an_answer_and_fails_the_save)
{
    uint64_t token = begin(1);

    hth_store_mem_fail_at(w.store, 2); /* its directory is the first */
    put(token);
    must_hear(1, HTH_LOCAL_ERROR);
    cr_assert(eq(int, w.heard[1].error.code, HEARTH_ENOSPC));
    pass(100);
    cr_assert(eq(int, w.code[1], HEARTH_ENOSPC));
}

Test(common, another_length_than_was_announced_is_refused)
{
    uint64_t token = begin(1);
    struct hth_local_common m = { .name = ".metadata", .len = LEN + 1 };

    ask(1, &m, sizeof(m), HTH_LOCAL_COMMON, token, content_of(w.bytes, LEN));
    must_hear(1, HTH_LOCAL_ERROR);
    cr_assert(eq(int, w.heard[1].error.code, HEARTH_EPROTO));
    ask(1, &m, sizeof(m), HTH_LOCAL_COMMON, token, NULL); /* nor none at all */
    must_hear(1, HTH_LOCAL_ERROR);
    pass(100);
    cr_assert(eq(int, w.code[1], HEARTH_EFAILED));
}
