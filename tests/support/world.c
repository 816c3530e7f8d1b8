/* SPDX-License-Identifier: Apache-2.0 */
#include "world_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDLE_MS 1500 /* in some worlds: connections that nobody uses are closed */

const char *const world_event_name[WORLD_EVENTS] = { "save", "protected", "failed", "recovered",
    "scratch", "loss", "kill", "restart", "stale", "late", "double", "drop", "flip", "skip",
    "again", "back" };

void world_say(struct world *w, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    int n = snprintf(line, sizeof(line), "%8llu ms  ", (unsigned long long)w->now_ms);

    va_start(ap, fmt);
    vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
    va_end(ap);
    for (const char *c = line; *c; c++)
        w->trace = (w->trace ^ (unsigned char)*c) * 0x100000001b3u;
    if (w->opts.loud)
        puts(line);
}

void world_broken(struct world *w, const char *fmt, ...)
{
    va_list ap;

    if (w->why[0])
        return;
    va_start(ap, fmt);
    vsnprintf(w->why, sizeof(w->why), fmt, ap);
    va_end(ap);
    world_say(w, "BROKEN: %s", w->why);
}

uint32_t world_roll(struct world *w, uint32_t sides)
{
    return (uint32_t)(hth_splitmix64(&w->dice) % sides);
}

/* ---- What engines are handed -------------------------------------------------------------------- */

static uint64_t now_ms(void *self)
{
    return ((struct world *)self)->now_ms + 1;
}

static uint64_t wall_ms(void *self)
{
    return ((struct world *)self)->now_ms + 1000000;
}

static uint64_t next_random(void *self)
{
    return hth_splitmix64(&((struct machine *)self)->seed);
}

static void submit(void *self, struct hth_work *work)
{
    struct machine *m = self;
    struct world *w = m->world;
    struct world_work *j;

    work->next = NULL;
    if (m->stopping || faults_keep(m, work))
        return;
    j = calloc(1, sizeof(*j));
    if (!j)
        abort();
    j->work = work;
    j->machine = m;
    if (!w->work_first)
        w->work_ready_ms = w->now_ms + w->opts.work_ms;
    if (w->work_last)
        w->work_last->next = j;
    else
        w->work_first = j;
    w->work_last = j;
}

/* Asked of each registration. On an engine's thread everything stands still meanwhile. */
static int on_reg(void *self, uint32_t node, const void *base, uint64_t len)
{
    struct world *w = self;

    (void)base;
    w->regs++;
    w->slot_regs += w->opts.slot_bytes && len >= w->opts.slot_bytes;
    if (w->working) {
        w->work_cost_ms += w->reg_ms;
        return node == (len >= w->opts.slot_bytes ? w->opts.reg_fails : w->opts.blob_fails)
                       ? HEARTH_ENOMEM
                       : 0;
    }
    w->now_ms += w->reg_ms;
    world_broken(w, "port %u registers %llu bytes on its engine's thread", node,
            (unsigned long long)len);
    return 0;
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

static void reply(void *self, uint32_t client, const void *bytes, size_t len, int fd,
        const void *attach, size_t attach_len)
{
    struct machine *m = self;
    struct letter *l = m->dying ? NULL : calloc(1, sizeof(*l));

    if (m->dying)
        return;
    (void)fd, (void)attach, (void)attach_len;
    if (!l || len > sizeof(l->bytes))
        abort();
    l->machine = m->index;
    l->client = client;
    l->len = len;
    memcpy(l->bytes, bytes, len);
    *m->world->letters_end = l;
    m->world->letters_end = &l->next;
}

static struct hth_loop_verdict script(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    struct world *w = arg;
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };
    uint32_t die;

    (void)to, (void)bytes, (void)len;
    for (uint32_t m = 0; m < w->machines; m++)
        if (w->machine[m].dying && w->machine[m].port == from && kind != HTH_LOOP_PULL)
            v.fault = HTH_LOOP_DROP;
    if (v.fault != HTH_LOOP_NONE || w->quiet || !w->opts.faults || w->calm == w->lineage)
        return v;
    if (kind == HTH_LOOP_PULL && w->slow_ms && (w->slow_port == 0 || w->slow_port == from))
        v.delay_ms = world_roll(w, w->slow_ms); /* a world where copies take their time */
    die = world_roll(w, w->slow_ms && kind == HTH_LOOP_PULL ? 60 : 400);
    if (die >= 12)
        return v;
    if (kind == HTH_LOOP_PULL && w->slow_ms && die > 8) {
        v.fault = HTH_LOOP_STALL;
        w->count[WORLD_DROP]++;
    } else if (kind == HTH_LOOP_PULL && die < 3) {
        v.fault = HTH_LOOP_FLIP;
        w->count[WORLD_FLIP]++;
    } else if (kind == HTH_LOOP_MESSAGE && die < 3) {
        v.fault = HTH_LOOP_DUPLICATE;
        w->count[WORLD_DOUBLE]++;
    } else if (die < 5) {
        v.fault = kind == HTH_LOOP_PULL ? HTH_LOOP_CUT : HTH_LOOP_DROP;
        w->count[WORLD_DROP]++;
    } else {
        v.delay_ms = 1 + world_roll(w, 300);

        v.late = kind == HTH_LOOP_MESSAGE && die < 8;
        w->count[WORLD_LATE]++;
    }
    return v;
}

/* ---- Machines ------------------------------------------------------------------------------------ */

void machine_touch(struct world *w, uint32_t m)
{
    struct machine *x = &w->machine[m];

    x->due_ms = x->node ? hth_node_due_ms(x->node) : HTH_NEVER;
}

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
    j->machine->due_ms = 0; /* its `done` may leave something to do */
    j->work->done(j->work);
    free(j);
}

static void work_one(struct world *w)
{
    struct world_work *j = w->work_first, **at = &w->slow;
    uint64_t cost_ms;

    w->work_first = j->next;
    if (!w->work_first)
        w->work_last = NULL;
    w->work_ready_ms = w->now_ms + w->opts.work_ms;
    cost_ms = world_work_run(w, j->work);
    if (!cost_ms) {
        work_end(j);
        return;
    }
    j->done_ms = w->now_ms + cost_ms;
    while (*at && (*at)->done_ms <= j->done_ms)
        at = &(*at)->next;
    j->next = *at;
    *at = j;
}

static void work_slow_end(struct world *w)
{
    struct world_work *j = w->slow;

    w->slow = j->next;
    work_end(j);
}

static void drain_work(struct world *w)
{
    world_let_go(w);
    while (w->work_first || w->slow)
        if (w->work_first)
            work_one(w);
        else
            work_slow_end(w);
}

void machine_start(struct world *w, uint32_t m)
{
    struct machine *x = &w->machine[m];
    struct hearth_error err;
    struct hth_node_env env = {
        .clock = { now_ms, wall_ms, w },
        .random = { next_random, x },
        .workers = { submit, x },
        .log = { log_line, x },
        .points = { faults_point, x },
        .session = { .heartbeat_ms = 200,
                .dead_ms = 2000,
                .hello_ms = 1000,
                .connect_ms = 2000,
                .stall_ms = 1000,
                .idle_ms = w->opts.seed % 3 ? 0 : IDLE_MS,
                .links_max = w->opts.seed % 6 ? 0 : w->opts.nodes,
                .no_fence = (w->opts.breaks & HTH_BREAK_FENCE) != 0,
                .job = "sim" },
        .transport = open_transport,
        .transport_self = x,
        .reply = reply,
        .reply_self = x,
        .retry_ms = 100,
        .breaks = w->opts.breaks,
    };

    if (x->node)
        return;
    if (!x->store) {
        if (hth_store_mem_open(w->opts.seed * 1000 + m * 40 + ++x->uses, 0, &x->store))
            abort();
    }
    snprintf(env.node, sizeof(env.node), "m%u", m);
    if (w->opts.adjust)
        w->opts.adjust(m, &env.session);
    env.store = x->store;
    if (hth_node_open(&env, &x->node, &err))
        world_broken(w, "machine %u: no engine: %s", m, err.text);
    machine_touch(w, m);
}

void machine_stop(struct world *w, uint32_t m)
{
    struct machine *x = &w->machine[m];

    drain_work(w); /* nothing of it is left in the workers' hands */
    x->stopping = 1;
    if (x->node)
        hth_node_close(x->node);
    x->stopping = 0;
    x->node = NULL;
    x->dying = 0;
    x->due_ms = HTH_NEVER;
}

void machine_lose(struct world *w, uint32_t m)
{
    machine_stop(w, m);
    hth_store_mem_destroy(w->machine[m].store);
    w->machine[m].store = NULL;
}

/* ---- The launcher --------------------------------------------------------------------------------- */

void world_restart(struct world *w, uint64_t in_ms, const char *why)
{
    if (w->restart_ms != HTH_NEVER)
        return;
    w->restart_ms = w->now_ms + in_ms;
    world_say(w, "restart in %llu ms: %s", (unsigned long long)in_ms, why);
}

static void launch(struct world *w)
{
    w->count[WORLD_RESTART]++;
    w->lineage++;
    w->restart_ms = HTH_NEVER;
    for (uint32_t r = 0; r < w->ranks; r++)
        rank_kill(&w->rank[r]);
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        machine_start(w, w->member[i]);
    for (uint32_t r = 0; r < w->ranks; r++) {
        struct rank_state *s = &w->rank[r];

        *s = (struct rank_state){ .world = w,
            .rank = r,
            .step = R_ATTACH,
            .lineage = w->lineage,
            .machine = w->member[r / w->opts.ranks_per_node],
            .client = ++w->next_client,
            .act_ms = w->now_ms + world_roll(w, 20) };
    }
    world_say(w, "launch %llu", (unsigned long long)w->lineage);
    faults_launched(w);
}

/* Every rank has attached: the all-gather, and each says so to its engine in its own time. */
static void gather(struct world *w)
{
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].step != R_GATHER)
            return;
    for (uint32_t r = 0; r < w->ranks; r++) {
        w->rank[r].step = R_JOIN;
        w->rank[r].gathered = w->rank[r].attached;
        w->rank[r].act_ms = w->now_ms + 1 + world_roll(w, 150);
    }
}

/* ---- Time ------------------------------------------------------------------------------------------- */

static void deliver(struct world *w)
{
    while (w->letters) {
        struct letter *l = w->letters;

        w->letters = l->next;
        if (!w->letters)
            w->letters_end = &w->letters;
        for (uint32_t r = 0; r < w->ranks; r++)
            if (w->rank[r].client == l->client && w->rank[r].machine == l->machine)
                rank_hear(&w->rank[r], l);
        for (uint32_t r = 0; r < w->opts.ranks_per_node; r++)
            if (w->stale[r].client == l->client && w->stale[r].machine == l->machine && l->client)
                rank_hear(&w->stale[r], l);
        if (w->stranger)
            w->stranger(w, l);
        free(l);
    }
}

static struct machine *owner_of(struct world *w, const struct hth_transport *t)
{
    for (uint32_t m = 0; m < w->machines; m++)
        if (w->machine[m].node && hth_node_transport(w->machine[m].node) == t)
            return &w->machine[m];
    return NULL;
}

/* An engine is woken now. due_ms 0: for something that has just happened. */
static void note_late(struct world *w, uint64_t due_ms)
{
    if (due_ms && w->now_ms + 1 > due_ms + w->late_ms)
        w->late_ms = w->now_ms + 1 - due_ms;
}

/* Everything that is due now; 0: nothing was. */
static int step(struct world *w)
{
    struct hth_transport *t;
    int did = 0;

    while (hth_loop_net_due_ms(w->net) <= w->now_ms + 1 && (t = hth_loop_net_first(w->net))) {
        struct machine *x = owner_of(w, t);

        t->ops->progress(t);
        w->events++;
        if (x)
            x->due_ms = 0;
        did = 1;
        if (++w->steps % 64 == 0 || w->armed || w->back_armed)
            break;
    }
    while (w->work_first && w->work_ready_ms <= w->now_ms) {
        work_one(w);
        did = 1;
    }
    while (w->slow && w->slow->done_ms <= w->now_ms) {
        work_slow_end(w);
        did = 1;
    }
    deliver(w);
    for (uint32_t m = 0; m < w->machines; m++)
        if (w->machine[m].node && w->machine[m].due_ms <= w->now_ms + 1) {
            note_late(w, w->machine[m].due_ms);
            hth_node_tick(w->machine[m].node);
            machine_touch(w, m);
            if (w->machine[m].due_ms <= w->now_ms + 1)
                w->machine[m].due_ms = w->now_ms + 2; /* not for ever in one instant */
            did = 1;
        }
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].act_ms <= w->now_ms) {
            rank_act(&w->rank[r]);
            did = 1;
        }
    for (uint32_t r = 0; r < w->opts.ranks_per_node; r++)
        if (w->stale[r].world && w->stale[r].act_ms <= w->now_ms)
            rank_act(&w->stale[r]);
    gather(w);
    return did;
}

static uint64_t next_due(struct world *w)
{
    uint64_t due = hth_loop_net_due_ms(w->net);

    due = due ? due - 1 : 0;
    for (uint32_t m = 0; m < w->machines; m++)
        if (w->machine[m].node && w->machine[m].due_ms != HTH_NEVER &&
                w->machine[m].due_ms - 1 < due)
            due = w->machine[m].due_ms - 1;
    for (uint32_t r = 0; r < w->ranks; r++)
        due = w->rank[r].act_ms < due ? w->rank[r].act_ms : due;
    for (uint32_t r = 0; r < w->opts.ranks_per_node; r++)
        due = w->stale[r].world && w->stale[r].act_ms < due ? w->stale[r].act_ms : due;
    due = w->restart_ms < due ? w->restart_ms : due;
    for (int i = 0; i < 2; i++)
        due = w->back_ms[i] < due ? w->back_ms[i] : due;
    if (w->work_first)
        due = w->work_ready_ms < due ? w->work_ready_ms : due;
    if (w->slow)
        due = w->slow->done_ms < due ? w->slow->done_ms : due;
    if (!w->quiet && w->next_fault_ms < due)
        due = w->next_fault_ms;
    return due > w->now_ms ? due : w->now_ms + 1;
}

static void become_quiet(struct world *w)
{
    w->quiet = 1;
    world_say(w, "no more faults");
    world_restart(w, 10, "the last one");
}

static void turn(struct world *w)
{
    if (w->restart_ms <= w->now_ms)
        launch(w);
    faults_act(w);
    if (!w->quiet && !w->calm && w->now_ms >= w->opts.run_ms)
        become_quiet(w);
    if (!step(w))
        w->now_ms = next_due(w);
    else if (w->steps % 256 == 0)
        w->now_ms++;
}

void world_advance(struct world *w, uint64_t until_ms)
{
    while (!w->why[0] && w->now_ms < until_ms)
        turn(w);
}

void world_run(struct world *w)
{
    const uint64_t rest_ms = w->opts.run_ms + 120000;

    while (!w->why[0] && hth_save_none(w->final.id)) {
        turn(w);
        if (w->now_ms > rest_ms)
            world_broken(w, "no save was protected within 120 s after the last fault");
    }
}

const struct hearth_recovery *world_recovery(const struct world *w, uint32_t rank)
{
    return w->rank[rank].recovered ? &w->rank[rank].info : NULL;
}

const struct hth_local_error *world_error(const struct world *w, uint32_t rank)
{
    return w->rank[rank].error.code ? &w->rank[rank].error : NULL;
}

void world_open(struct world *w, const struct world_opts *opts)
{
    struct hth_clock clock = { now_ms, wall_ms, w };

    *w = (struct world){ .opts = *opts,
        .dice = opts->seed * 7919 + 17,
        .trace = 0xcbf29ce484222325u,
        .stale_machine = UINT32_MAX,
        .restart_ms = 0 };
    if (!w->opts.save_ms)
        w->opts.save_ms = 3000;
    if (!w->opts.min_copies)
        w->opts.min_copies = opts->copies;
    w->machines = opts->nodes + 2;
    w->ranks = opts->nodes * opts->ranks_per_node;
    w->machine = calloc(w->machines, sizeof(*w->machine));
    w->member = calloc(opts->nodes, sizeof(*w->member));
    w->rank = calloc(w->ranks, sizeof(*w->rank));
    w->stale = calloc(opts->ranks_per_node, sizeof(*w->stale));
    w->letters_end = &w->letters;
    if (!w->machine || !w->member || !w->rank || !w->stale ||
            hth_loop_net_open(&clock, 1, &w->net, NULL))
        abort();
    hth_loop_net_script(w->net, script, w);
    hth_loop_net_on_reg(w->net, on_reg, w);
    w->reg_ms = opts->reg_ms;
    if (opts->faults && !w->reg_ms && opts->seed % 3 == 0)
        w->reg_ms = 20 + (uint32_t)(opts->seed * 7919 % 600);
    if (opts->faults && opts->seed % 5 == 0)
        hth_loop_net_no_revoke(w->net);
    for (uint32_t m = 0; m < w->machines; m++)
        w->machine[m] = (struct machine){
            .world = w, .index = m, .due_ms = HTH_NEVER, .seed = opts->seed * 131 + m, .port = m + 1
        };
    for (uint32_t i = 0; i < opts->nodes; i++)
        w->member[i] = i;
    for (uint32_t r = 0; r < w->ranks; r++)
        w->rank[r] = (struct rank_state){ .world = w, .act_ms = HTH_NEVER };
    w->next_fault_ms = w->back_ms[0] = w->back_ms[1] = HTH_NEVER;
    if (opts->faults)
        w->opts.faults = 1 + world_roll(w, 2 * opts->faults);
    if (opts->faults)
        faults_plan(w);
    if (opts->faults && world_roll(w, 3) == 0)
        w->slow_ms = 200 + world_roll(w, 600);
    if (w->slow_ms && world_roll(w, 2)) /* one of them has a bad cable */
        w->slow_port = 1 + world_roll(w, opts->nodes);
}

struct hth_node *world_node(struct world *w, uint32_t node)
{
    return w->machine[w->member[node]].node;
}

void world_close(struct world *w)
{
    for (uint32_t m = 0; m < w->machines; m++) {
        machine_stop(w, m);
        hth_store_mem_destroy(w->machine[m].store);
    }
    while (w->letters) {
        struct letter *l = w->letters;

        w->letters = l->next;
        free(l);
    }
    hth_loop_net_close(w->net);
    free(w->machine);
    free(w->member);
    free(w->rank);
    free(w->stale);
}
