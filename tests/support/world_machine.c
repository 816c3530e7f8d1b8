/* SPDX-License-Identifier: Apache-2.0 */
/* The machines: the clock, random numbers, workers, transport and log that their engines are
 * handed, and the requests to an engine that stands still. */
#include "world_parts.h"

#include "content.h"

#include "engine/driver/attach.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IDLE_MS 1500 /* in some worlds, unused connections are closed after that time */

/* ---- What engines are handed
 * -------------------------------------------------------------------- */

/* Its clock is 1 when ours is 0, and goes as fast as it likes. */
static uint64_t machine_now_ms(void *self)
{
    struct machine *x = self;

    return block_clock_ms(x, (x->world->now_ms + 1) * x->rate / 1000);
}

/* The first moment of ours at which its clock shows that. */
static uint64_t machine_when(const struct machine *x, uint64_t its_ms)
{
    uint64_t ms;

    if (its_ms > HTH_NEVER / 2000)
        return HTH_NEVER;
    ms = (its_ms * 1000 + x->rate - 1) / x->rate;
    return ms ? ms - 1 : 0;
}

static uint64_t wall_ms(void *self)
{
    const struct machine *x = self;

    return (uint64_t)((int64_t)x->world->now_ms + 1000000 + x->wall_off_ms);
}

static uint64_t next_random(void *self)
{
    return hth_splitmix64(&((struct machine *)self)->seed);
}

static void submit(void *self, struct hth_work *work)
{
    struct machine *m = self;
    struct world *w = m->world;
    struct world_work *j, **at = &w->work_first;

    work->next = NULL;
    if (m->stopping || faults_keep(m, work))
        return;
    j = calloc(1, sizeof(*j));
    if (!j)
        abort();
    if (m->work_ready_ms < w->now_ms)
        m->work_ready_ms = w->now_ms;
    m->work_ready_ms += w->opts.work_ms;
    j->work = work;
    j->machine = m;
    j->done_ms = m->work_ready_ms;
    if (w->work_last && w->work_last->done_ms <= j->done_ms)
        at = &w->work_last->next;
    while (*at && (*at)->done_ms <= j->done_ms)
        at = &(*at)->next;
    j->next = *at;
    *at = j;
    if (!j->next)
        w->work_last = j;
}

static void log_line(void *self, enum hearth_log_level level, const char *event, const char *text)
{
    struct machine *m = self;

    if (level <= HEARTH_LOG_INFO)
        world_say(m->world, "m%u %s: %s", m->index, event, text);
}

static struct hth_transport *open_transport(
        void *self, const struct hth_transport_events *events, struct hearth_error *err)
{
    struct machine *m = self;
    struct hth_transport *t = NULL;

    return hth_loop_open(m->world->net, m->port, events, &t, err) ? NULL : t;
}

static void reply(void *self, uint32_t client, const void *bytes, size_t len, int fd)
{
    struct machine *m = self;
    size_t most = sizeof(struct hth_local_error) > sizeof(struct hth_local_event)
                          ? sizeof(struct hth_local_error)
                          : sizeof(struct hth_local_event);
    const struct hth_local_bytes *b = bytes;
    size_t attached = fd >= 0 && b->head.type == HTH_LOCAL_BYTES ? b->len : 0;
    struct letter *l;

    if (m->dying)
        return;
    l = calloc(1, sizeof(*l) + (len > most ? len : most) + attached);
    if (((const struct hth_local_head *)bytes)->type == HTH_LOCAL_LENT) {
        check_lent(m, hth_local_save_to(((const struct hth_local_lent *)bytes)->save));
        check_writers(m, client, ((const struct hth_local_lent *)bytes)->slot);
    }
    if (!l || len > HTH_LOCAL_MAX)
        abort();
    l->machine = m->index;
    l->client = client;
    l->len = len;
    l->attached = attached;
    memcpy(l->bytes, bytes, len);
    if (pread(fd, l->bytes + len, attached, 0) != (ssize_t)attached && attached)
        abort();
    *m->world->letters_end = l;
    m->world->letters_end = &l->next;
}

static int attach(void *self, int *fd, const void *bytes, uint64_t off, size_t len, int last)
{
    struct world *w = ((const struct machine *)self)->world;

    if (!w->working && len > WORLD_COPIED_HERE)
        world_broken(w, "an engine's thread copied %zu bytes for one answer", len);
    w->attached[w->working] += len;
    errno = w->attach_fails;
    return w->attach_fails ? -1 : hth_attach_put(fd, bytes, off, len, last);
}

void machine_watch(const struct machine *x, int runs, int worker)
{
    if (x->world->opts.watch)
        x->world->opts.watch(x->index, runs, worker);
}

/* ---- Workers
 * --------------------------------------------------------------------------------------- */

uint64_t world_work_run(struct world *w, struct hth_work *work)
{
    w->working = 1;
    w->work_cost_ms = 0;
    work->run(work);
    w->working = 0;
    return w->work_cost_ms;
}

static void work_end(struct world_work *j)
{
    machine_due(j->machine, 0); /* its `done` may leave something to do */
    machine_enter(j->machine);
    j->work->done(j->work);
    machine_leave(j->machine);
    free(j);
}

static void work_one(struct world *w)
{
    struct world_work *j = w->work_first, **at = &w->slow;
    uint64_t cost_ms;

    w->work_first = j->next;
    if (!w->work_first)
        w->work_last = NULL;
    machine_watch(j->machine, 1, 1);
    cost_ms = world_work_run(w, j->work) + j->machine->slow_ms;
    machine_watch(j->machine, 0, 1);
    if (!cost_ms && !j->machine->stopped) {
        work_end(j);
        return;
    }
    j->done_ms = j->machine->stopped ? HTH_NEVER : w->now_ms + cost_ms;
    while (*at && (*at)->done_ms <= j->done_ms)
        at = &(*at)->next;
    j->next = *at;
    *at = j;
}

static void work_slow_end(struct world *w)
{
    struct world_work *j = w->slow;

    w->slow = j->next;
    if (j->machine->stopped) { /* its engine receives the result when it goes on */
        struct world_work **at = &w->slow;

        while (*at)
            at = &(*at)->next;
        j->done_ms = HTH_NEVER;
        j->next = NULL;
        *at = j;
        return;
    }
    work_end(j);
}

uint64_t world_work_due_ms(const struct world *w)
{
    uint64_t ready = w->work_first ? w->work_first->done_ms : HTH_NEVER;
    uint64_t done = w->slow ? w->slow->done_ms : HTH_NEVER;

    return ready < done ? ready : done;
}

void world_work_step(struct world *w, int *out_did)
{
    while (w->work_first && w->work_first->done_ms <= w->now_ms) {
        work_one(w);
        *out_did = 1;
    }
    while (w->slow && w->slow->done_ms <= w->now_ms) {
        work_slow_end(w);
        *out_did = 1;
    }
}

static void drain_work(struct world *w)
{
    struct world_work *j;

    world_let_go(w);
    while (w->work_first || w->slow)
        if (w->work_first) {
            work_one(w);
        } else {
            j = w->slow;
            w->slow = j->next;
            work_end(j);
        }
}

/* The engine never receives the results of work that its workers have not ended. */
static void forget_work(struct world *w, const struct machine *x)
{
    struct world_work **lists[2] = { &w->work_first, &w->slow };

    for (int i = 0; i < 2; i++)
        for (struct world_work **at = lists[i]; *at;) {
            struct world_work *j = *at;

            if (j->machine != x) {
                at = &j->next;
                continue;
            }
            *at = j->next;
            free(j);
        }
    w->work_last = w->work_first;
    while (w->work_last && w->work_last->next)
        w->work_last = w->work_last->next;
}

/* ---- Due
 * ------------------------------------------------------------------------------------------- */

void machine_due(struct machine *x, uint64_t ms)
{
    x->due_ms = x->node && !x->stopped ? ms : HTH_NEVER;
    wake_at(x->world->wake, x->index, x->due_ms);
}

void machine_touch(struct world *w, uint32_t m)
{
    struct machine *x = &w->machine[m];

    machine_due(x, x->node ? machine_when(x, hth_node_due_ms(x->node)) : HTH_NEVER);
}

/* ---- Start and stop
 * ------------------------------------------------------------------------------- */

static struct hth_session_opts session_of(const struct world *w)
{
    const struct world_opts *o = &w->opts;

    return (struct hth_session_opts){ .heartbeat_ms = o->heartbeat_ms,
        .dead_ms = o->dead_ms,
        .hello_ms = 1000,
        .connect_ms = o->connect_ms,
        .stall_ms = 1000,
        .idle_ms = o->seed % 3 ? 0 : IDLE_MS,
        .links_max = o->seed % 6 ? 0 : w->nodes_max,
        .no_fence = (o->breaks & HTH_BREAK_FENCE) != 0,
        .all_alive = (o->breaks & HTH_BREAK_ALIVE) != 0,
        .busy_ms = fault_is_on(w, WORLD_KIND_BLOCK) ? block_used_ms : NULL,
        .job = "sim" };
}

/* Of its ranks' objects and as many copies of others', for keep + 1 saves, and one largest beside;
 * with the 16th more that the store makes of each. */
uint64_t world_slots_owed(const struct world *w)
{
    const struct world_opts *o = &w->opts;
    uint64_t object = HTH_ALIGN(HTH_BLOCK + 64 + (uint64_t)o->data_max) + 256;
    uint64_t objects = (uint64_t)w->largest.ranks_per_node * (1 + w->largest.copies);

    return (objects * (w->largest.keep + 1) + 1) * ((object + object / 16 + 63) / 64 * 64);
}

/* The bytes of all slots that a node owes at most, and of its small objects. */
uint64_t world_room(const struct world *w)
{
    const struct world_opts *o = &w->opts;
    uint64_t small = 8192 + HTH_ALIGN(WORLD_COMMON_MAX) +
                     (uint64_t)HTH_MANIFEST_OBJECT * (w->nodes_max * w->largest.ranks_per_node + 4);

    return o->room ? (world_slots_owed(w) + small * (w->largest.keep + 1)) * o->room / 100 : 0;
}

static void store_make(struct world *w, struct machine *x)
{
    if (hth_store_mem_open(w->opts.seed * 1000 + x->index * 40 + ++x->uses, 0, &x->store))
        abort();
    hth_store_mem_room(x->store, world_room(w));
    if (fault_is_on(w, WORLD_KIND_RECORD))
        hth_store_mem_remember(x->store);
    hth_store_mem_watch(x->store, check_record, check_freed, x);
    hth_store_mem_processes(x->store, slots_elsewhere, x);
}

static void record_spoil(struct machine *x)
{
    char what[240];

    if (x->spoil && hth_store_mem_spoil(x->store, x->spoil, what)) {
        x->world->hits[WORLD_KIND_RECORD]++;
        world_say(x->world, "machine %u: %s", x->index, what);
    }
    x->spoil = 0;
}

void machine_start(struct world *w, uint32_t m)
{
    struct machine *x = &w->machine[m];
    struct hearth_error err;
    struct hth_node_env env = {
        .clock = { machine_now_ms, wall_ms, x },
        .random = { next_random, x },
        .workers = { submit, x },
        .log = { .emit = log_line, .self = x },
        .points = { faults_point, x },
        .session = session_of(w),
        .transport = open_transport,
        .transport_self = x,
        .meeting = table_hands(x),
        .successor = upgrade_successor(),
        .reply = reply,
        .attach = attach,
        .reply_self = x,
        .strong = (int)w->opts.strong,
        .retry_ms = 100,
        .tree_degree = w->opts.degree,
        .breaks = w->opts.breaks | (w->opts.seed % 4 < 2 ? HTH_TEST_WORKER : 0),
    };

    if (x->node)
        return;
    if (!x->store)
        store_make(w, x);
    record_spoil(x);
    snprintf(env.node, sizeof(env.node), "m%u", m);
    if (w->opts.adjust)
        w->opts.adjust(m, &env.session);
    env.store = x->store;
    if (hth_node_open(&env, &x->node, &err)) {
        x->node = NULL;
        if (fault_is_on(w, WORLD_KIND_WRITE) || fault_is_on(w, WORLD_KIND_ROOM))
            world_say(w, "machine %u: no engine: %s", m, err.text);
        else
            world_broken(w, "machine %u: no engine: %s", m, err.text);
    }
    said_changed(x);
    machine_touch(w, m);
}

static void forget_asked(struct machine *x)
{
    struct asked *a;

    while ((a = x->asked)) {
        x->asked = a->next;
        free(a);
    }
    x->asked_end = &x->asked;
}

static void engine_close(struct world *w, struct machine *x)
{
    x->stopping = 1;
    forget_asked(x);
    block_forget(x);
    table_forget(x);
    world_stop(w, x->index, 0);
    if (x->node) {
        past_judge(x);
        hth_node_close(x->node);
    }
    x->stopping = 0;
    x->node = NULL;
    x->ends++;
    w->dies -= x->dying;
    x->dying = 0;
    said_changed(x);
    machine_due(x, HTH_NEVER);
}

void machine_stop(struct world *w, uint32_t m)
{
    drain_work(w); /* nothing of it is left in the workers' hands */
    engine_close(w, &w->machine[m]);
}

void machine_kill(struct world *w, uint32_t m)
{
    world_let_go(w);
    forget_work(w, &w->machine[m]);
    engine_close(w, &w->machine[m]);
}

void machine_lose(struct world *w, uint32_t m)
{
    machine_stop(w, m);
    hth_store_mem_destroy(w->machine[m].store);
    w->machine[m].store = NULL;
}

/* ---- What it is asked
 * ----------------------------------------------------------------------------- */

static void ask_now(struct machine *x, uint32_t client, const void *bytes, size_t len,
        const void *attach, size_t attach_len)
{
    const struct hth_local_head *head = bytes;
    struct hth_content *content = NULL;

    if (!x->node)
        return;
    if (attach_len) /* a join is through with its table when it returns */
        content = head->type == HTH_LOCAL_JOIN ? content_view(attach, attach_len)
                                               : content_of(attach, attach_len);
    machine_enter(x);
    if (len)
        hth_node_request(x->node, client, bytes, len, content);
    else
        hth_node_client_gone(x->node, client);
    machine_leave(x);
    machine_due(x, 0);
}

void machine_ask(struct machine *x, uint32_t client, const void *bytes, size_t len,
        const void *attach, size_t attach_len)
{
    struct asked *a;

    if (!x->stopped) {
        ask_now(x, client, bytes, len, attach, attach_len);
        return;
    }
    a = calloc(1, sizeof(*a) + len + attach_len);
    if (!a)
        abort();
    a->client = client;
    a->len = len;
    a->attach_len = attach_len;
    if (len)
        memcpy(a->bytes, bytes, len);
    if (attach_len)
        memcpy(a->bytes + len, attach, attach_len);
    *x->asked_end = a;
    x->asked_end = &a->next;
}

/* The engine now receives the results of work that its workers did while it was stopped. */
static void go_on_work(struct world *w, const struct machine *x)
{
    struct world_work *done = NULL, **end = &done;

    for (struct world_work **at = &w->slow; *at;) {
        struct world_work *j = *at;

        if (j->machine != x || j->done_ms != HTH_NEVER) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        j->done_ms = w->now_ms;
        *end = j;
        end = &j->next;
    }
    *end = w->slow;
    w->slow = done;
}

uint64_t machine_stood_ms(const struct machine *x)
{
    return x->stood_ms + (x->stopped ? x->world->now_ms - x->stopped_ms : 0);
}

static void go_on(struct world *w, struct machine *x)
{
    struct asked *a;

    go_on_work(w, x);
    machine_due(x, 0);
    while (!x->stopped && (a = x->asked)) {
        x->asked = a->next;
        if (!x->asked)
            x->asked_end = &x->asked;
        ask_now(x, a->client, a->bytes, a->len, a->bytes + a->len, a->attach_len);
        free(a);
    }
}

void machine_still(struct machine *x, int on, int blocked)
{
    struct world *w = x->world;

    if (x->stopped == !!on)
        return;
    if (on)
        x->stopped_ms = w->now_ms;
    else
        x->stood_ms += w->now_ms - x->stopped_ms;
    x->stopped = !!on;
    x->blocked = on && blocked;
    hth_loop_net_silence(w->net, x->port, (x->stopped && !x->blocked) || x->silent);
    hth_loop_net_block(w->net, x->port, x->blocked);
    said_changed(x);
    if (on)
        machine_due(x, HTH_NEVER);
    else
        go_on(w, x);
}

void world_stop(struct world *w, uint32_t m, int on)
{
    machine_still(&w->machine[m], on, 0);
}

void world_silence(struct world *w, uint32_t m, int on)
{
    struct machine *x = &w->machine[m];

    x->silent = !!on;
    hth_loop_net_silence(w->net, x->port, (x->stopped && !x->blocked) || x->silent);
    said_changed(x);
}

void world_mute(struct world *w, uint32_t from, uint32_t to, int on)
{
    if (hth_loop_net_mute(w->net, w->machine[from].port, w->machine[to].port, on))
        abort();
    said_muted(w, from, to, on);
}
