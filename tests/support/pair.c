/* SPDX-License-Identifier: Apache-2.0 */
/* One step at a time: a work, or a message that is due, or a node's tick, or the clock. */
#include "pair.h"

#include "store_mem.h"

#include "core/base/auth.h"
#include "core/format/table.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPOCH 7u
#define NONCE 77u

static void need(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "pair: %s failed\n", what);
    abort();
}

static uint64_t now_ms(void *self)
{
    return ((struct pair *)self)->now_ms;
}

static uint64_t used_ms; /* of processors: hth_session_opts.busy_ms has no argument */

static uint64_t busy_ms(void)
{
    return used_ms;
}

static uint64_t wall_ms(void *self)
{
    return UINT64_C(1700000000000) + now_ms(self);
}

static uint64_t random_next(void *self)
{
    return hth_splitmix64(&((struct pair *)self)->seed);
}

static void submit(void *self, struct hth_work *work)
{
    struct pair *p = self;

    if (p->stopping)
        return;
    work->next = NULL;
    *p->works_end = work;
    p->works_end = &work->next;
}

static void reached(void *self, const char *point)
{
    struct pair *p = self;

    if (p->point_count < sizeof(p->points) / sizeof(*p->points))
        p->points[p->point_count++] = point;
}

static void log_line(void *arg, enum hearth_log_level level, const char *event, const char *text)
{
    struct pair_node *n = arg;
    size_t used = strlen(n->logged);

    if (getenv("PAIR_LOG"))
        fprintf(stderr, "%6" PRIu64 " node %u %s: %s\n", n->p->now_ms, n->index, event, text);
    if (level > HEARTH_LOG_WARN)
        return;
    snprintf(n->logged + used, sizeof(n->logged) - used, "%s ", event);
    snprintf(n->last, sizeof(n->last), "%s", text);
}

/* ---- Events of the parts
 * ---------------------------------------------------------------------- */

static void on_message(
        void *self, uint32_t from, uint16_t type, const unsigned char *body, size_t len)
{
    struct pair_node *n = self;

    if (!hth_tree_message(&n->ctx, from, type, body, len) &&
            !hth_blobs_message(&n->ctx, from, type, body, len))
        hth_transfer_message(&n->ctx, from, type, body, len);
}

static void on_peer_up(void *self, uint32_t node)
{
    ((struct pair_node *)self)->lost[node] = 0;
}

static void on_peer_down(void *self, uint32_t node, int code, const char *text)
{
    struct pair_node *n = self;

    (void)code, (void)text;
    n->peer_downs++;
    n->lost[node] = 1;
    hth_transfer_peer_down(&n->ctx, node);
    hth_blobs_peer_down(&n->ctx, node);
}

static int on_wanted(
        void *self, uint32_t from, struct hth_save_id save, const struct hth_object *object)
{
    (void)from, (void)save, (void)object;
    return ((struct pair_node *)self)->wanted;
}

static void on_sealed(void *self, struct hth_save_id save, uint64_t object)
{
    (void)save, (void)object;
    ((struct pair_node *)self)->sealed++;
}

static void on_no_room(void *self, struct hth_save_id save, int code, const char *text)
{
    struct pair_node *n = self;

    (void)save;
    need(text[0] != 0, "a refusal's reason");
    n->no_rooms++;
    n->no_room_code = code;
}

static void on_fact(
        void *self, uint32_t origin, uint16_t kind, const unsigned char *bytes, size_t len)
{
    struct pair_node *n = self;

    n->delivered++;
    need(kind < PAIR_KINDS, "kind");
    n->heard[kind]++;
    n->origin = origin;
    n->kind = kind;
    n->len = len;
    if (len)
        memcpy(n->fact, bytes, len);
    if (n->on_fact)
        n->on_fact(n);
}

static void on_blob(
        void *self, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    struct pair_node *n = self;

    (void)bytes, (void)len;
    n->arrived++;
    n->blob = *id;
}

static void on_blob_failed(void *self, const struct hth_blob_id *id, const struct hearth_error *err)
{
    struct pair_node *n = self;

    (void)id;
    n->blob_failed++;
    snprintf(n->last, sizeof(n->last), "%s", err->text);
}

/* ---- Nodes
 * -------------------------------------------------------------------------------------- */

static void fill_ctx(struct pair_node *n)
{
    struct hth_ctx *c = &n->ctx;

    *c = (struct hth_ctx){
        .clock = { now_ms, wall_ms, n->p },
        .random = { random_next, n->p },
        .workers = { submit, n->p },
        .log = { .emit = log_line, .self = n },
        .points = { reached, n->p },
        .opts = { .job = "pair",
                .copies = 1,
                .min_copies = 1,
                .keep = 1,
                .save_ms = 60000,
                .recover_ms = 60000,
                .dead_ms = 2000,
                .retry_ms = 100,
                .inflight_bytes = UINT64_C(64) << 20 },
        .store = n->store,
        .lost = n->lost,
    };
}

void pair_node_open(struct pair *p, uint32_t node)
{
    struct pair_node *n = &p->node[node];
    struct hth_ctx *c = &n->ctx;
    struct hth_session_opts opts = {
        .heartbeat_ms = 200,
        .dead_ms = 2000,
        .stall_ms = 1000,
        .connect_ms = 2000,
        .busy_ms = busy_ms,
        .job = "pair",
    };
    struct hth_session_events events = {
        .self = n, .on_message = on_message, .on_peer_up = on_peer_up, .on_peer_down = on_peer_down
    };
    struct hth_transfer_events transfer = { .self = n,
        .wanted = on_wanted,
        .early = on_wanted,
        .sealed = on_sealed,
        .no_room = on_no_room };
    struct hth_blob_events blobs = { n, on_blob, on_blob_failed };
    struct hth_transport_events link;

    fill_ctx(n);
    need(!hth_session_open(&opts, &events, &c->clock, &c->random, &c->log, &c->session, NULL),
            "session");
    link = hth_session_events_for(c->session);
    need(!hth_loop_open(p->net, node, &link, &n->transport, NULL), "transport");
    hth_session_attach(c->session, n->transport);
    need(!n->transport->ops->address(
                 n->transport, p->member[node].addr, &p->member[node].addr_len, NULL),
            "address");
    need(!hth_holdings_open(c, &c->holdings, NULL), "holdings");
    need(!hth_tree_open(c, on_fact, n, &c->tree, NULL), "tree");
    need(!hth_blobs_open(c, &blobs, &c->blobs, NULL), "blobs");
    need(!hth_transfer_open(c, &transfer, &c->transfer, NULL), "transfer");
    need(!hth_holdings_adopt(c, NULL), "adopt");
    n->epoch = (struct hth_epoch){ .epoch = EPOCH,
        .nonce = NONCE,
        .world = p->nodes,
        .nodes = p->nodes,
        .self = node,
        .member = p->member };
    c->epoch = &n->epoch;
    hth_session_join(c->session, &n->epoch);
    n->open = 1;
}

static int on_reg(void *self, uint32_t node, const void *base, uint64_t len)
{
    struct pair *p = self;

    (void)base;
    p->regs++;
    p->regs_by_engine += !p->working;
    if (len < UINT64_C(1) << 20)
        return 0;
    p->regs_large++;
    if (p->working)
        p->slow_ms = p->now_ms + p->reg_ms;
    else
        p->now_ms += p->reg_ms;
    return node == p->reg_node ? p->reg_code : 0;
}

static void slow_end(struct pair *p)
{
    struct hth_work *work = p->slow;

    p->slow = NULL;
    work->done(work);
}

static int one_work(struct pair *p)
{
    struct hth_work *work = p->works;

    if (p->slow && p->slow_ms <= p->now_ms) {
        slow_end(p);
        return 1;
    }
    if (!work || p->slow)
        return 0;
    p->works = work->next;
    if (!p->works)
        p->works_end = &p->works;
    p->slow_ms = p->work_ms ? p->now_ms + p->work_ms : 0;
    p->working = 1;
    work->run(work);
    p->working = 0;
    if (p->slow_ms > p->now_ms)
        p->slow = work;
    else
        work->done(work);
    return 1;
}

void pair_works(struct pair *p)
{
    while (p->works || p->slow)
        if (p->slow)
            slow_end(p);
        else
            (void)one_work(p);
}

void pair_node_close(struct pair *p, uint32_t node)
{
    struct pair_node *n = &p->node[node];

    if (!n->open)
        return;
    pair_works(p);
    p->stopping = 1;
    n->transport->ops->close(n->transport);
    p->stopping = 0;
    hth_session_close(n->ctx.session);
    hth_transfer_close(&n->ctx);
    hth_jobs_close(&n->ctx);
    hth_drafts_close(&n->ctx);
    hth_blobs_close(&n->ctx);
    hth_tree_close(&n->ctx);
    hth_holdings_close(&n->ctx);
    n->store->ops->close(n->store);
    n->open = 0;
}

struct pair *pair_open(uint32_t nodes)
{
    struct pair *p = calloc(1, sizeof(*p));
    struct hth_clock clock = { now_ms, wall_ms, p };

    need(p && nodes <= PAIR_NODES, "memory");
    need(!hth_auth_init(NULL), "libsodium");
    p->now_ms = 1000;
    p->nodes = nodes;
    p->works_end = &p->works;
    need(!hth_loop_net_open(&clock, 1, &p->net, NULL), "net");
    hth_loop_net_on_reg(p->net, on_reg, p);
    for (uint32_t i = 0; i < nodes; i++) {
        p->node[i].p = p;
        p->node[i].index = i;
        need(!hth_store_mem_open(i + 1, 0, &p->node[i].store), "store");
        snprintf(p->member[i].node, sizeof(p->member[i].node), "node%u", i);
        p->member[i].store = i + 1;
    }
    for (uint32_t i = 0; i < nodes; i++)
        pair_node_open(p, i);
    return p;
}

void pair_close(struct pair *p)
{
    for (uint32_t i = 0; i < p->nodes; i++)
        pair_node_close(p, i);
    hth_loop_net_close(p->net);
    for (uint32_t i = 0; i < p->nodes; i++)
        hth_store_mem_destroy(p->node[i].store);
    free(p);
}

/* ---- Time
 * --------------------------------------------------------------------------------------- */

static uint64_t node_tick(struct pair_node *n)
{
    struct hth_ctx *c = &n->ctx;
    uint64_t due[4], next = HTH_NEVER;

    if (hth_session_due_ms(c->session) <= n->p->now_ms)
        hth_session_tick(c->session);
    if (hth_transfer_due_ms(c) <= n->p->now_ms)
        hth_transfer_tick(c);
    if (hth_blobs_due_ms(c) <= n->p->now_ms)
        hth_blobs_tick(c);
    if (hth_tree_due_ms(c) <= n->p->now_ms)
        hth_tree_tick(c);
    due[0] = hth_session_due_ms(c->session);
    due[1] = hth_transfer_due_ms(c);
    due[2] = hth_blobs_due_ms(c);
    due[3] = hth_tree_due_ms(c);
    for (int i = 0; i < 4; i++)
        next = due[i] < next ? due[i] : next;
    return next;
}

void pair_busy(struct pair *p, uint64_t ms)
{
    p->now_ms += ms;
    used_ms += ms;
}

int pair_step(struct pair *p)
{
    struct hth_transport *t = hth_loop_net_first(p->net);
    uint64_t next, due;

    if (one_work(p))
        return 1;
    if (t && hth_loop_net_due_ms(p->net) <= p->now_ms) {
        t->ops->progress(t);
        return 1;
    }
    next = HTH_NEVER;
    for (uint32_t i = 0; i < p->nodes; i++) {
        due = p->node[i].open ? node_tick(&p->node[i]) : HTH_NEVER;
        next = due < next ? due : next;
    }
    due = hth_loop_net_due_ms(p->net);
    next = due < next ? due : next;
    if (p->slow)
        next = p->slow_ms < next ? p->slow_ms : next;
    if ((p->works && !p->slow) || next <= p->now_ms)
        return 1;
    if (next == HTH_NEVER)
        return 0;
    p->now_ms = next;
    return 1;
}

void pair_run(struct pair *p, uint64_t ms)
{
    uint64_t end = p->now_ms + ms;

    while (p->now_ms < end && pair_step(p))
        ;
}

int pair_until(struct pair *p, const uint32_t *value, uint32_t at_least, uint64_t ms)
{
    uint64_t end = p->now_ms + ms;

    while (*value < at_least && p->now_ms < end && pair_step(p))
        ;
    return *value >= at_least;
}

/* ---- Objects
 * --------------------------------------------------------------------------------------- */

struct hth_held *pair_write(struct pair *p, uint32_t node, struct hth_save_id save, uint64_t id,
        uint64_t bytes, uint64_t seed, uint64_t *items_len)
{
    struct hth_ctx *c = &p->node[node].ctx;
    struct hth_object object = {
        .id = id, .owner = node, .kind = HTH_OBJECT_SHARD, .data_len = bytes
    };
    struct hth_item item = { .length = bytes, .kind = HTH_ITEM_BYTES, .key_len = 1, .key = "k" };
    struct hth_held_save *s = hth_holdings_get(c, save);
    struct hth_held *held;
    struct hth_slot *slot;

    *items_len = hth_item_bytes(0, 1);
    snprintf(object.name, sizeof(object.name), "object-%" PRIu64, id);
    need(!c->store->ops->take(c->store,
                 HTH_BLOCK + HTH_ALIGN(bytes) + hth_table_bytes(bytes, *items_len, c->opts.strong),
                 &slot, NULL),
            "slot");
    for (uint64_t at = 0; at + 8 <= bytes; at += 8) {
        uint64_t v = hth_splitmix64(&seed);

        memcpy(slot->base + HTH_BLOCK + at, &v, 8);
    }
    hth_item_encode(&item, slot->base + HTH_BLOCK + HTH_ALIGN(bytes) + HTH_TABLE_HEAD);
    held = s ? hth_held_add(s, &object, HTH_HELD_LENT, slot) : NULL;
    need(held != NULL, "held");
    return held;
}

struct outcome {
    uint32_t ended;
    int code;
};

static void on_seal(void *self, struct hth_held_save *save, struct hth_held *held, int code,
        const struct hearth_error *err)
{
    struct outcome *o = self;

    (void)save, (void)held, (void)err;
    o->ended++;
    o->code = code;
}

struct hth_held *pair_seal(struct pair *p, uint32_t node, struct hth_save_id save, uint64_t id,
        uint64_t bytes, uint64_t seed)
{
    struct hth_ctx *c = &p->node[node].ctx;
    struct outcome outcome = { 0 };
    uint64_t items_len;
    struct hth_held *held = pair_write(p, node, save, id, bytes, seed, &items_len);

    held->object.owner = (uint32_t)(id >> 32); /* copies on several nodes are one object */
    need(!hth_seal_start(c, hth_holdings_find(c, save), held,
                 &(struct hth_seal_part){ .items = 1, .items_len = items_len }, on_seal, &outcome,
                 NULL),
            "seal");
    need(pair_until(p, &outcome.ended, 1, 1000) && !outcome.code, "sealing");
    return held;
}

struct hth_held *pair_held(struct pair *p, uint32_t node, struct hth_save_id save, uint64_t id)
{
    struct hth_held_save *s = hth_holdings_find(&p->node[node].ctx, save);

    return s ? hth_held_find(s, id) : NULL;
}

int pair_equal(struct pair *p, uint32_t node, uint32_t other, struct hth_save_id save, uint64_t id)
{
    struct hth_held *a = pair_held(p, node, save, id), *b = pair_held(p, other, save, id);

    return a && b && a->slot && b->slot && a->state == HTH_HELD_SEALED &&
           hth_object_file_bytes(&a->object) == hth_object_file_bytes(&b->object) &&
           !memcmp(a->slot->base, b->slot->base, hth_object_file_bytes(&a->object));
}

int pair_logged(const struct pair *p, uint32_t node, const char *event)
{
    const char *at = p->node[node].logged;
    int times = 0;

    while ((at = strstr(at, event))) {
        times++;
        at += strlen(event);
    }
    return times;
}

struct hth_head pair_head(const struct pair *p, uint32_t node, struct hth_places *out_map)
{
    struct hth_store *s = p->node[node].store;
    const unsigned char *map;
    struct hth_head h;
    void *bytes;
    size_t len, map_len;

    if (s->ops->record_get(s, "head", &bytes, &len, NULL) ||
            hth_head_decode(&h, &map, &map_len, bytes, len, NULL) ||
            (out_map && hth_places_decode(out_map, map, map_len, NULL)))
        abort();
    free(bytes);
    return h;
}
