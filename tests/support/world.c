/* SPDX-License-Identifier: Apache-2.0 */
#include "world_parts.h"

#include "core/base/bytes.h"
#include "replication/tree/tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const world_event_name[WORLD_EVENTS] = { "save", "protected", "failed", "recovered",
    "scratch", "loss", "kill", "restart", "stale", "late", "double", "drop", "flip", "skip",
    "again", "some", "back", "cut", "ticket", "said", "said-calm", "said-dead", "said-new" };

const struct world_kind_name world_kind_name[WORLD_KINDS_COUNT] = {
#define WORLD_KIND(kind, name, text) { #name, text },
    WORLD_KINDS(WORLD_KIND)
#undef WORLD_KIND
};

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

uint32_t world_roll_of(uint64_t *dice, uint32_t sides)
{
    return (uint32_t)(hth_splitmix64(dice) % sides);
}

uint32_t world_roll(struct world *w, uint32_t sides)
{
    return world_roll_of(&w->dice, sides);
}

static uint64_t now_ms(void *self)
{
    return ((struct world *)self)->now_ms + 1;
}

/* ---- The launcher
 * --------------------------------------------------------------------------------- */

void world_restart(struct world *w, uint64_t in_ms, const char *why)
{
    if (w->restart_ms != HTH_NEVER)
        return;
    w->restart_ms = w->now_ms + in_ms;
    world_say(w, "restart in %llu ms: %s", (unsigned long long)in_ms, why);
}

static void note_launch(struct world *w)
{
    w->count[WORLD_RESTART]++;
    w->lineage++;
    w->restart_ms = HTH_NEVER;
    w->front = 0;
    w->recovered = 0;
    w->gathers = w->asked = w->tabled = 0;
    free(w->packed);
    w->packed = NULL;
    w->launch_ranks = realloc(w->launch_ranks, (w->lineage + 1) * sizeof(*w->launch_ranks));
    if (!w->launch_ranks)
        abort();
    w->launch_ranks[w->lineage] = w->ranks;
}

static void launch(struct world *w)
{
    options_launch(w);
    note_launch(w);
    ill_restarted(w);
    for (uint32_t r = 0; r < w->ranks; r++)
        rank_kill(&w->rank[r]);
    for (uint32_t i = 0; i < w->machines; i++)
        w->machine[i].first_rank = UINT32_MAX;
    for (uint32_t i = 0; i < w->opts.nodes; i++) {
        w->machine[w->member[i]].first_rank = i * w->opts.ranks_per_node;
        machine_start(w, w->member[i]);
    }
    for (uint32_t r = 0; r < w->ranks; r++) {
        struct rank_state *s = &w->rank[r];

        *s = (struct rank_state){ .world = w,
            .rank = r,
            .step = R_ATTACH,
            .lineage = w->lineage,
            .machine = w->member[r / w->opts.ranks_per_node] };
        rank_connect(s);
        rank_due(s, w->now_ms + world_roll(w, 20));
    }
    world_say(w, "launch %llu", (unsigned long long)w->lineage);
    faults_launched(w);
    check_launched(w);
}

/* If all ranks have attached, they gather, and each rank joins its engine in its own time. */
static void gather(struct world *w)
{
    w->gathers = 0;
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].step != R_GATHER)
            return;
    for (uint32_t r = 0; r < w->ranks; r++) {
        w->rank[r].step = R_JOIN;
        w->rank[r].gathered = w->rank[r].attached;
        rank_due(&w->rank[r], w->now_ms + 1 + world_roll(w, 150));
    }
}

/* ---- Time
 * ------------------------------------------------------------------------------------------- */

static void deliver(struct world *w)
{
    while (w->letters) {
        struct letter *l = w->letters;
        struct rank_state *r = rank_of_client(w, l->machine, l->client);

        w->letters = l->next;
        if (!w->letters)
            w->letters_end = &w->letters;
        if (r)
            rank_hear(r, l);
        if (w->stranger)
            w->stranger(w, l);
        free(l);
    }
}

static struct machine *owner_of(struct world *w, struct hth_transport *t)
{
    unsigned char addr[HTH_ADDR_MAX];
    uint32_t len = 0, m;

    if (t->ops->address(t, addr, &len, NULL) || len != 4)
        return NULL;
    m = hth_get32(addr) - 1; /* its port */
    return m < w->machines && w->machine[m].node ? &w->machine[m] : NULL;
}

static int step_net(struct world *w)
{
    struct hth_transport *t;
    int did = 0;

    while (hth_loop_net_due_ms(w->net) <= w->now_ms + 1 && (t = hth_loop_net_first(w->net))) {
        struct machine *x = owner_of(w, t);

        if (x)
            machine_enter(x);
        t->ops->progress(t);
        if (x)
            machine_leave(x);
        w->events++;
        if (x)
            machine_due(x, 0);
        did = 1;
        if (++w->steps % 64 == 0 || w->armed || w->back_armed)
            break;
    }
    return did;
}

static void tick(struct world *w, struct machine *x)
{
    if (x->due_ms && w->now_ms > x->due_ms + w->late_ms)
        w->late_ms = w->now_ms - x->due_ms;
    machine_enter(x);
    table_turn(x);
    hth_node_tick(x->node);
    machine_leave(x);
    machine_touch(w, x->index);
    if (x->due_ms <= w->now_ms)
        machine_due(x, w->now_ms + 1); /* not for ever in one instant */
}

/* Wakes machines first, then ranks, then the ranks of a stale machine. */
static int step_woken(struct world *w)
{
    uint32_t i = wake_next(w->wake, 0, w->now_ms), r;
    int did = 0;

    for (; i != UINT32_MAX; i = wake_next(w->wake, i + 1, w->now_ms)) {
        r = i - w->machines;
        if (i < w->machines)
            tick(w, &w->machine[i]);
        else
            rank_act(r < w->ranks_max ? &w->rank[r] : &w->stale[r - w->ranks_max]);
        did = 1;
    }
    return did;
}

/* Does everything that is due now; 0: nothing was. */
static int step(struct world *w)
{
    int did = step_net(w);

    world_work_step(w, &did);
    deliver(w);
    did |= step_woken(w);
    if (w->gathers)
        gather(w);
    return did;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t next_due(struct world *w)
{
    uint64_t due = hth_loop_net_due_ms(w->net);

    due = due ? due - 1 : 0;
    due = least(due, wake_first_ms(w->wake));
    due = least(due, w->restart_ms);
    due = least(due, world_work_due_ms(w));
    due = least(due, faults_due_ms(w));
    due = least(due, ill_due_ms(w));
    due = least(due, reads_due_ms(w));
    due = least(due, asks_due_ms(w));
    due = least(due, w->back.next_ms);
    return due > w->now_ms ? due : w->now_ms + 1;
}

static void become_quiet(struct world *w)
{
    ill_end_all(w, 0);
    returns_end(w);
    w->quiet = 1;
    w->quiet_ms = w->now_ms;
    w->goes_on = w->opts.kinds & WORLD_BIT(GOON) && w->restart_ms == HTH_NEVER;
    w->hits[WORLD_KIND_GOON] += (uint64_t)w->goes_on;
    w->rest_ms = w->now_ms + 120000;
    world_say(w, "no more faults");
    if (!w->goes_on)
        world_restart(w, 10, "the last one");
}

static void turn(struct world *w)
{
    if (w->restart_ms <= w->now_ms)
        launch(w);
    faults_act(w);
    ill_act(w);
    reads_act(w);
    asks_act(w);
    upgrade_act(w);
    returns_act(w);
    said_act(w);
    if (!w->quiet && !w->calm && w->now_ms >= w->opts.run_ms + w->hours_ms)
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

/* No rank saves any more. When all copies are at their own nodes again and every save that was
 * begun is decided, memory holds the saves that were PROTECTED after the last fault, and nothing
 * else. */
static void settle(struct world *w)
{
    const uint64_t minutes_ms = 900000; /* ten, on the slowest clock, and some to spare */
    const struct world_opts *o = &w->opts;
    const uint64_t home_ms = w->now_ms + o->save_ms + 4 * (uint64_t)o->dead_ms;
    const uint64_t until_ms = home_ms + 20000;
    int well = check_pool(w); /* notes slots that are lent and not written */

    w->resting = 1;
    world_advance(w, home_ms);
    while (!w->why[0] && !(well = check_pool(w)) && w->now_ms < until_ms)
        world_advance(w, w->now_ms + 50);
    if (!well)
        world_broken(w, "P5: %s", w->pool);
    if (w->hours_ms && !w->why[0] && !ill_any(w)) {
        world_advance(w, w->now_ms + minutes_ms);
        if (!w->why[0] && !check_home(w))
            world_broken(w, "P5: %s", w->pool);
    }
    if (w->opts.faults)
        reads_last(w);
    while (!w->why[0] && reads_due_ms(w) != HTH_NEVER)
        world_advance(w, w->now_ms + 50);
}

void world_run(struct world *w)
{
    w->rest_ms = w->opts.run_ms + 240000;
    while (!w->why[0] && hth_save_none(w->final.id)) {
        turn(w);
        if (w->now_ms > w->rest_ms)
            world_broken(
                    w, w->goes_on ? "P4: no save was protected within 120 s after the last fault, "
                                    "and nobody restarted the job"
                                  : "P4: no save was protected within 120 s after the last fault");
    }
    if (w->goes_on)
        settle(w);
    for (uint32_t m = 0; m < w->machines; m++)
        past_judge(&w->machine[m]);
}

const struct hearth_recovery *world_recovery(const struct world *w, uint32_t rank)
{
    return w->rank[rank].recovered ? &w->rank[rank].info : NULL;
}

const struct hth_local_error *world_error(const struct world *w, uint32_t rank)
{
    return w->rank[rank].error.code ? &w->rank[rank].error : NULL;
}

static void machines_open(struct world *w)
{
    const struct world_opts *o = &w->opts;
    int apart = fault_is_on(w, WORLD_KIND_CLOCK);

    for (uint32_t m = 0; m < w->machines; m++) {
        struct machine *x = &w->machine[m];

        *x = (struct machine){ .world = w,
            .index = m,
            .due_ms = HTH_NEVER,
            .seed = o->seed * 131 + m,
            .rate = apart ? 900 + world_roll(w, 201) : 1000,
            .port = m + 1 };
        x->asked_end = &x->asked;
    }
}

static void tables_open(struct world *w)
{
    uint32_t per_node = w->opts.ranks_per_node;

    w->machine = calloc(w->machines, sizeof(*w->machine));
    w->member = calloc(w->nodes_max, sizeof(*w->member));
    w->rank = calloc(w->ranks_max, sizeof(*w->rank));
    w->stale = calloc(per_node, sizeof(*w->stale));
    w->told = heard_open();
    w->notes = past_open();
    asks_open(w);
    w->said = said_open(w->opts.seed, w->machines);
    w->reads = reads_open();
    w->wake = wake_open(w->machines + w->ranks_max + per_node);
    if (!w->machine || !w->member || !w->rank || !w->stale)
        abort();
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        w->member[i] = i;
    for (uint32_t r = 0; r < w->ranks_max; r++)
        w->rank[r] = (struct rank_state){ .world = w, .act_ms = HTH_NEVER };
    for (uint32_t r = 0; r < per_node; r++)
        w->stale[r] = (struct rank_state){ .world = w, .act_ms = HTH_NEVER };
}

/* A save's manifest and what is common go down the tree one after the other, and each node
 * registers both before it gives them on: half of a save's time is enough for that. */
static uint32_t reg_most_ms(const struct world_opts *o)
{
    uint32_t degree = o->degree ? o->degree : HTH_TREE_DEGREE, levels = 0;

    for (uint32_t node = o->nodes - 1; node; node = (node - 1) / degree)
        levels++;
    return o->save_ms / (4 * (levels ? levels : 1));
}

static void faults_open(struct world *w)
{
    const struct world_opts *o = &w->opts;
    uint32_t most = reg_most_ms(o);

    w->reg_ms = o->reg_ms;
    if (!o->faults)
        return;
    if (!w->reg_ms && o->seed % 3 == 0)
        w->reg_ms = 20 + (uint32_t)(o->seed * 7919 % (most < 600 ? most : 600));
    w->opts.faults = 1 + world_roll(w, 2 * o->faults);
    faults_plan(w);
    if (world_roll(w, 3) == 0)
        w->slow_ms = 200 + world_roll(w, 600);
    if (w->slow_ms && world_roll(w, 2)) /* one of them has a bad cable */
        w->slow_port = 1 + world_roll(w, o->nodes);
}

static void defaults(struct world_opts *o)
{
    uint32_t *const ms[] = { &o->heartbeat_ms, &o->dead_ms, &o->connect_ms, &o->save_ms,
        &o->recover_ms, &o->every_ms, &o->min_copies };
    const uint32_t usual[] = { 200, 2000, 2000, 3000, 12000, 100, o->copies };

    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
        if (!*ms[i])
            *ms[i] = usual[i];
    o->kinds = o->kinds ? o->kinds : WORLD_FIRST;
}

void world_open(struct world *w, const struct world_opts *opts)
{
    struct hth_clock clock = { now_ms, now_ms, w };

    *w = (struct world){ .opts = *opts,
        .dice = opts->seed * 7919 + 17,
        .trace = 0xcbf29ce484222325u,
        .stale_machine = UINT32_MAX,
        .restart_ms = 0 };
    defaults(&w->opts);
    w->nodes_max = opts->nodes + (fault_is_on(w, WORLD_KIND_GROW) ? 2 : 0);
    w->machines = w->nodes_max + 2;
    w->ranks_max = w->nodes_max * opts->ranks_per_node;
    w->ranks = opts->nodes * opts->ranks_per_node;
    w->letters_end = &w->letters;
    w->next_fault_ms = w->back_ms[0] = w->back_ms[1] = HTH_NEVER;
    tables_open(w);
    if (hth_loop_net_open(&clock, 1, &w->net, NULL))
        abort();
    options_open(w);
    returns_end(w);
    machines_open(w);
    net_open(w);
    faults_open(w);
}

struct hth_node *world_node(struct world *w, uint32_t node)
{
    return w->machine[w->member[node]].node;
}

void world_close(struct world *w)
{
    ill_end_all(w, 1);
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
    wake_close(w->wake);
    heard_close(w->told);
    past_close(w->notes);
    said_close(w->said);
    reads_close(w->reads);
    free(w->client_rank);
    free(w->table);
    free(w->packed);
    free(w->launch_ranks);
    free(w->machine);
    free(w->member);
    free(w->rank);
    free(w->stale);
}
