/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong in a simulated world at once, and when. */
#include "world_parts.h"

#include <string.h>

/* ---- Who is there
 * ------------------------------------------------------------------------------ */

static int is_member(const struct world *w, uint32_t m)
{
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        if (w->member[i] == m)
            return 1;
    return 0;
}

/* What is put aside to come back is taken only where there is no other. */
static uint32_t spare(struct world *w)
{
    uint32_t first = world_roll(w, w->machines);

    for (uint32_t i = 0; i < 2 * w->machines; i++) {
        uint32_t m = (first + i) % w->machines;

        if (!is_member(w, m) && m != w->stale_machine && (i >= w->machines || !returns_keep(w, m)))
            return m;
    }
    return UINT32_MAX;
}

/* ---- Losses, restarts ----------------------------------------------------------------------- */

/* As many at a time as there are promised copies, and one by one where nobody says two: the next
 * only after the last was noticed, since what is called PROTECTED until then may count on what is
 * lost, and after what is protected has all its copies again: the manifest too, which a recovery
 * brings back. */
int fault_may_lose(struct world *w, uint32_t count)
{
    if (w->hurt && w->now_ms >= w->hurt_ms + w->opts.dead_ms + NOTICED_MS &&
            w->recovered >= w->ranks &&
            (hth_save_none(w->newest.id) ||
                    look_copies(w, w->newest.id, UINT32_MAX) > options_tolerance(w)))
        w->hurt = 0;
    if (w->hurt || count > options_tolerance(w))
        return 0;
    w->hurt = count;
    w->hurt_rack = 0;
    w->hurt_ms = w->now_ms;
    return 1;
}

void fault_ranks_kill(struct world *w, uint32_t m)
{
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == m)
            rank_kill(&w->rank[r]);
}

static void replace(struct world *w, uint32_t node, const char *why)
{
    uint32_t m = spare(w);

    if (m == UINT32_MAX)
        return;
    w->member[node] = m;
    world_restart(w, 1 + fault_roll(w, 1500), why);
}

void fault_replace(struct world *w, uint32_t node)
{
    uint32_t m = w->member[node];

    fault_ranks_kill(w, m);
    machine_stop(w, m);
    replace(w, node, "machine replaced");
}

static void lose(struct world *w, uint32_t node)
{
    uint32_t m = w->member[node];

    w->count[WORLD_LOSS]++;
    world_say(w, "machine %u (node %u) is LOST", m, node);
    fault_ranks_kill(w, m);
    machine_lose(w, m);
    check_always(w, "after a loss");
    replace(w, node, "machine lost");
}

static void fault_loss(struct world *w)
{
    if (!fault_may_lose(w, 1))
        return;
    w->hits[WORLD_KIND_LOSS]++;
    lose(w, fault_roll(w, w->opts.nodes));
}

static void fault_two(struct world *w)
{
    uint32_t first = fault_roll(w, w->opts.nodes);

    if (w->opts.min_copies < 2 || !fault_may_lose(w, w->opts.min_copies))
        return;
    w->hits[WORLD_KIND_TWO]++;
    for (uint32_t i = 0; i < w->opts.min_copies; i++)
        lose(w, (first + i) % w->opts.nodes);
}

/* Loses a failure domain: a save with copies in several of them must survive the loss of one. */
static void fault_rack(struct world *w)
{
    if (!w->opts.racks || (!hth_save_none(w->newest.id) && look_racks(w, w->newest.id) < 2) ||
            !fault_may_lose(w, 1))
        return;
    w->hits[WORLD_KIND_RACK]++;
    w->hurt_rack = 1;
    for (uint32_t i = fault_roll(w, w->opts.racks); i < w->opts.nodes; i += w->opts.racks)
        lose(w, i);
}

/* What is PROTECTED is with copies of these neighbours alone, or is had all the same: the judge
 * looks. */
static void fault_beyond(struct world *w)
{
    uint32_t first = fault_roll(w, w->opts.nodes), count = 1 + w->opts.copies;

    if (w->hurt || w->beyond || w->stale_machine != UINT32_MAX || hth_save_none(w->newest.id) ||
            w->recovered < w->ranks || w->restart_ms != HTH_NEVER || count > w->opts.nodes)
        return;
    w->hits[WORLD_KIND_BEYOND]++;
    w->hurt = count;
    w->hurt_ms = w->now_ms;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t m = w->member[(first + i) % w->opts.nodes];

        w->count[WORLD_LOSS]++;
        world_say(w, "machine %u is LOST", m);
        fault_ranks_kill(w, m);
        machine_lose(w, m);
    }
    check_beyond(w);
    world_restart(w, 1 + fault_roll(w, 1500), "machines lost");
}

static void fault_kill(struct world *w)
{
    uint32_t m = fault_machine(w);

    if (!w->machine[m].node)
        return;
    w->count[WORLD_KILL]++;
    w->hits[WORLD_KIND_KILL]++;
    world_say(w, "the engine of machine %u is killed", m);
    fault_ranks_kill(w, m);
    machine_stop(w, m);
    world_restart(w, 1 + fault_roll(w, 1000), "an engine was killed");
}

/* Damages a record of a machine, with its ranks or under them: that may cost as much as losing its
 * memory. Only of one machine: two may have all copies of a manifest. */
static void fault_record(struct world *w)
{
    uint32_t m = fault_machine(w);
    uint64_t die = 1 + fault_roll(w, UINT32_MAX);

    if (!w->machine[m].node || !fault_may_lose(w, 1))
        return;
    if (fault_roll(w, 2)) {
        w->machine[m].spoil = die;
        fault_ranks_kill(w, m);
        machine_stop(w, m);
        world_restart(w, 1 + fault_roll(w, 1000), "an engine was killed, and a record changes");
    } else {
        ill_begin(w, WORLD_KIND_CRASH);
        for (uint32_t i = 0; i < w->opts.nodes; i++)
            if (!w->machine[w->member[i]].node) {
                w->machine[w->member[i]].spoil = die;
                break;
            }
    }
}

static void fault_restart(struct world *w)
{
    w->hits[WORLD_KIND_RESTART]++;
    world_restart(w, 1 + fault_roll(w, 500), "just so");
}

static void fault_rank(struct world *w)
{
    uint32_t r = fault_roll(w, w->ranks);

    w->hits[WORLD_KIND_RANK]++;
    world_say(w, "rank %u is killed", r);
    rank_kill(&w->rank[r]);
    world_restart(w, 1 + fault_roll(w, 500), "a rank was killed");
}

/* Replaced while it lives: it goes on in its old epoch, and may be a member again later. */
static void fault_stale(struct world *w)
{
    uint32_t node = fault_roll(w, w->opts.nodes);
    uint32_t m = w->member[node];
    uint32_t k = 0;

    if (w->stale_machine != UINT32_MAX) {
        for (uint32_t i = 0; i < w->opts.ranks_per_node; i++)
            rank_kill(&w->stale[i]);
        w->stale_machine = UINT32_MAX; /* a spare with full memory from now on */
        return;
    }
    if (!fault_may_lose(w, 1))
        return;
    w->count[WORLD_STALE]++;
    w->hits[WORLD_KIND_STALE]++;
    world_say(w, "machine %u (node %u) is replaced alive", m, node);
    replace(w, node, "machine replaced");
    if (is_member(w, m))
        return;
    w->stale_machine = m;
    for (uint32_t r = 0; r < w->ranks && k < w->opts.ranks_per_node; r++)
        if (w->rank[r].machine == m) {
            struct rank_state *s = &w->stale[k++];

            *s = w->rank[r];
            rank_due(s, s->act_ms);
            w->rank[r].step = R_NONE; /* the launcher's no more */
            w->rank[r].client = 0;
            w->rank[r].maps = 0;
            w->rank[r].writes = 0;
            rank_due(&w->rank[r], HTH_NEVER);
        }
}

/* ---- Another world
 * ---------------------------------------------------------------------------- */

/* Nobody runs any more: the job is started with the members that there are now. */
static void regroup(struct world *w, enum world_kind kind, const char *why)
{
    w->hits[kind]++;
    for (uint32_t r = 0; r < w->ranks; r++)
        rank_kill(&w->rank[r]);
    w->ranks = w->opts.nodes * w->opts.ranks_per_node;
    world_restart(w, 1 + fault_roll(w, 1000), why);
}

static void fault_shrink(struct world *w)
{
    uint32_t node = fault_roll(w, w->opts.nodes);

    if (w->opts.nodes < 3 || w->opts.nodes - 1 <= w->opts.copies || !fault_may_lose(w, 1))
        return;
    world_say(w, "the job goes on without machine %u (node %u)", w->member[node], node);
    for (uint32_t r = 0; r < w->ranks; r++)
        rank_kill(&w->rank[r]);
    w->opts.nodes--;
    for (uint32_t i = node; i < w->opts.nodes; i++)
        w->member[i] = w->member[i + 1];
    regroup(w, WORLD_KIND_SHRINK, "the job shrinks");
}

static void fault_grow(struct world *w)
{
    uint32_t m = spare(w);

    if (w->opts.nodes == w->nodes_max || m == UINT32_MAX)
        return;
    world_say(w, "the job goes on with machine %u too", m);
    w->member[w->opts.nodes++] = m;
    regroup(w, WORLD_KIND_GROW, "the job grows");
}

static void fault_renumber(struct world *w)
{
    for (uint32_t i = w->opts.nodes; i > 1; i--) {
        uint32_t j = fault_roll(w, i), m = w->member[i - 1];

        w->member[i - 1] = w->member[j];
        w->member[j] = m;
    }
    regroup(w, WORLD_KIND_RENUMBER, "the ranks are renumbered");
}

/* ---- Engines that die under ranks that save
 * ----------------------------------------------------- */

/* Its ranks have joined; nothing is lost with it but what it had not written down. */
static int may_crash(const struct world *w, uint32_t m)
{
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == m && w->rank[r].step != R_JOIN && w->rank[r].step != R_RECOVER &&
                w->rank[r].step != R_RUN && w->rank[r].step != R_BEGUN &&
                w->rank[r].step != R_WAIT && w->rank[r].step != R_CUT)
            return 0;
    return w->machine[m].node && !w->machine[m].stopped;
}

static void fault_crash(struct world *w)
{
    uint32_t count = 1 + fault_roll(w, 3);

    for (uint32_t i = 0; i < count; i++)
        ill_begin(w, WORLD_KIND_CRASH);
}

void world_crash(struct world *w, uint32_t m)
{
    if (!may_crash(w, m))
        return;
    w->hits[WORLD_KIND_CRASH]++;
    world_say(w, "the engine of machine %u is killed under its ranks", m);
    machine_kill(w, m);
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == m)
            rank_leave(&w->rank[r]);
}

void world_come(struct world *w, uint32_t m)
{
    if (w->machine[m].node || !is_member(w, m))
        return; /* a launch has started it, or does without it */
    world_say(w, "the engine of machine %u is started again", m);
    machine_start(w, m);
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == m && !w->rank[r].client && w->rank[r].step != R_NONE &&
                w->rank[r].step != R_CUT)
            rank_back(&w->rank[r]);
}

/* ---- Memory and clocks
 * --------------------------------------------------------------------------- */

/* A byte of what is protected, or of a copy of it, somewhere. */
static void fault_rot(struct world *w)
{
    struct machine *x = &w->machine[w->member[fault_roll(w, w->opts.nodes)]];
    struct look_object o;
    uint32_t count = 0, at;

    if (!x->store || hth_save_none(w->newest.id) || w->recovered < w->ranks ||
            !fault_may_lose(w, 1))
        return; /* what has been verified for a recovery is read at once */
    for (const struct slot *s = mem_of(x->store)->slots; s; s = s->next)
        count += look_slot(s, &o) && look_same(o.save, w->newest.id);
    at = count ? fault_roll(w, count) : 0;
    for (const struct slot *s = mem_of(x->store)->slots; s && count; s = s->next)
        if (look_slot(s, &o) && look_same(o.save, w->newest.id) && at-- == 0) {
            w->hits[WORLD_KIND_ROT]++;
            world_say(w, "machine %u: a byte of rank %u's object of step %llu changes", x->index,
                    o.rank, (unsigned long long)o.save.step);
            s->pub.base[HTH_BLOCK + fault_roll(w, (uint32_t)o.len)] ^= 0x20;
            return;
        }
}

static void fault_clock(struct world *w)
{
    struct machine *x = &w->machine[fault_machine(w)];

    w->hits[WORLD_KIND_CLOCK]++;
    x->wall_off_ms = (int64_t)fault_roll(w, 1000000) - 500000;
    world_say(w, "machine %u: its wall clock is %lld ms off", x->index, (long long)x->wall_off_ms);
}

/* A rank does something odd the next time it begins. */
static void fault_trick(struct world *w, enum world_kind kind)
{
    w->trick = kind;
    w->trick_rank = fault_roll(w, w->ranks);
    w->trick_dice = fault_roll(w, UINT32_MAX);
}

/* ---- Which comes when
 * ------------------------------------------------------------------------------ */

int fault_is_on(const struct world *w, enum world_kind kind)
{
    return w->opts.faults && w->opts.kinds >> kind & 1;
}

uint32_t fault_roll(struct world *w, uint32_t sides)
{
    return world_roll_of(&w->fault_dice, sides);
}

uint32_t fault_machine(struct world *w)
{
    return w->member[fault_roll(w, 4) ? fault_roll(w, w->opts.nodes) : 0];
}

/* Half of the faults come at any time, half so many events after a rank has begun a save. Each has
 * dice of its own, so that others may be left out. */
void faults_plan(struct world *w)
{
    w->fault_dice = w->opts.seed * 1000003 + 7919 * (uint64_t)w->fault_number++;
    w->next_fault_ms = (ill_is_for_hours(w) ? w->hours_until_ms : w->now_ms) + 1 +
                       fault_roll(w, (uint32_t)(2 * w->opts.run_ms / w->opts.faults));
    w->fault_saves = fault_roll(w, 2) ? w->count[WORLD_SAVE] + 1 + fault_roll(w, 4 * w->ranks) : 0;
    w->fault_events = fault_roll(w, 60 * w->opts.nodes);
}

static int fault_is_due(struct world *w)
{
    if (w->fault_saves && w->count[WORLD_SAVE] >= w->fault_saves) {
        w->fault_saves = 0;
        w->next_fault_ms = HTH_NEVER;
        w->fault_events += w->events;
        w->armed = 1;
    }
    return w->armed ? w->events >= w->fault_events : w->next_fault_ms <= w->now_ms;
}

/* How often, of those that are drawn one by one. */
static const uint8_t fault_weight[WORLD_KINDS_COUNT] = {
    [WORLD_KIND_LOSS] = 8,
    [WORLD_KIND_KILL] = 4,
    [WORLD_KIND_RESTART] = 4,
    [WORLD_KIND_STALE] = 4,
    [WORLD_KIND_RANK] = 2,
    [WORLD_KIND_CRASH] = 6,
    [WORLD_KIND_STOP] = 4,
    [WORLD_KIND_SILENCE] = 4,
    [WORLD_KIND_PAIR] = 3,
    [WORLD_KIND_ONEWAY] = 3,
    [WORLD_KIND_PARTITION] = 3,
    [WORLD_KIND_FLAP] = 3,
    [WORLD_KIND_TWO] = 24,
    [WORLD_KIND_SHRINK] = 3,
    [WORLD_KIND_GROW] = 3,
    [WORLD_KIND_RENUMBER] = 3,
    [WORLD_KIND_ROOM] = 3,
    [WORLD_KIND_WRITE] = 3,
    [WORLD_KIND_ROT] = 3,
    [WORLD_KIND_CLOCK] = 2,
    [WORLD_KIND_SLOW] = 3,
    [WORLD_KIND_GIVEUP] = 3,
    [WORLD_KIND_TWICE] = 3,
    [WORLD_KIND_APART] = 4,
    [WORLD_KIND_CUT] = 4,
    [WORLD_KIND_GROUPS] = 4,
    [WORLD_KIND_MTU] = 4,
    [WORLD_KIND_BLOCK] = 5,
    [WORLD_KIND_BEYOND] = 3,
    [WORLD_KIND_RECORD] = 4,
    [WORLD_KIND_READ] = 6,
    [WORLD_KIND_OPTIONS] = 4,
    [WORLD_KIND_RETURN] = 24,
    [WORLD_KIND_HOURS] = 4,
    [WORLD_KIND_RACK] = 24,
    [WORLD_KIND_FLIP] = 4,
    [WORLD_KIND_UPGRADE] = 5,
};

/* A flipped bit is noticed by a peer that pulls it, or by the engine that makes a SHA-256 of it. */
static uint32_t weight_of(const struct world *w, uint32_t kind)
{
    if (!fault_is_on(w, kind) || (kind == WORLD_KIND_TWO && w->opts.min_copies < 2) ||
            (kind == WORLD_KIND_RACK && !w->opts.racks) ||
            (kind == WORLD_KIND_FLIP && !w->opts.copies && !w->opts.strong))
        return 0;
    return fault_weight[kind];
}

static enum world_kind fault_kind(struct world *w)
{
    uint32_t sum = 0, at;
    int kind = 0;

    for (int i = 0; i < WORLD_KINDS_COUNT; i++)
        sum += weight_of(w, (uint32_t)i);
    at = sum ? fault_roll(w, sum) : 0;
    for (; sum && kind < WORLD_KINDS_COUNT; kind++) {
        uint32_t weight = weight_of(w, (uint32_t)kind);

        if (at < weight)
            return kind;
        at -= weight;
    }
    return WORLD_KINDS_COUNT;
}

static void fault_of(struct world *w, enum world_kind kind)
{
    static void (*const at_once[WORLD_KINDS_COUNT])(struct world *) = {
        [WORLD_KIND_LOSS] = fault_loss,
        [WORLD_KIND_RACK] = fault_rack,
        [WORLD_KIND_KILL] = fault_kill,
        [WORLD_KIND_RECORD] = fault_record,
        [WORLD_KIND_RESTART] = fault_restart,
        [WORLD_KIND_STALE] = fault_stale,
        [WORLD_KIND_RANK] = fault_rank,
        [WORLD_KIND_CRASH] = fault_crash,
        [WORLD_KIND_TWO] = fault_two,
        [WORLD_KIND_BEYOND] = fault_beyond,
        [WORLD_KIND_SHRINK] = fault_shrink,
        [WORLD_KIND_GROW] = fault_grow,
        [WORLD_KIND_RENUMBER] = fault_renumber,
        [WORLD_KIND_ROT] = fault_rot,
        [WORLD_KIND_CLOCK] = fault_clock,
        [WORLD_KIND_READ] = reads_begin,
        [WORLD_KIND_OPTIONS] = options_draw,
        [WORLD_KIND_RETURN] = returns_begin,
        [WORLD_KIND_HOURS] = ill_hours,
        [WORLD_KIND_UPGRADE] = upgrade_begin,
    };

    if (at_once[kind])
        at_once[kind](w);
    else if (kind == WORLD_KIND_GIVEUP || kind == WORLD_KIND_TWICE || kind == WORLD_KIND_CUT ||
             kind == WORLD_KIND_FLIP)
        fault_trick(w, kind);
    else
        ill_begin(w, kind);
}

static void fault(struct world *w)
{
    uint32_t number = w->fault_number - 1;
    enum world_kind kind = fault_kind(w);

    w->armed = 0;
    if (kind != WORLD_KINDS_COUNT && !(number < 64 && w->opts.left_out >> number & 1)) {
        world_say(w, "fault %u: %s", number, world_kind_name[kind].name);
        fault_of(w, kind);
    }
    faults_plan(w);
}

uint64_t faults_due_ms(const struct world *w)
{
    uint64_t due = w->quiet || w->calm ? HTH_NEVER : w->next_fault_ms;

    for (int i = 0; i < 2; i++)
        due = w->back_ms[i] < due ? w->back_ms[i] : due;
    return due;
}

/* ---- An engine that dies under ranks that recover, and is started again by them
 * ----------------- */

/* Half of the launches have one: so many events after the first rank has asked to recover. Nothing
 * else goes wrong until all have recovered, so they have to. */
void faults_launched(struct world *w)
{
    w->back_ms[0] = w->back_ms[1] = HTH_NEVER;
    w->back_armed = 0;
    w->calm = 0;
    if (w->opts.back_node) {
        w->back_planned = w->quiet && !w->count[WORLD_BACK];
        w->back_events = w->opts.back_event;
    } else {
        w->back_planned = !w->quiet && fault_is_on(w, WORLD_KIND_BACK) && world_roll(w, 2) &&
                          ill_due_ms(w) == HTH_NEVER;
        w->back_events = world_roll(w, 40 * w->opts.nodes);
    }
    if (w->back_planned)
        w->calm = w->lineage;
}

static int all_recovered(const struct world *w)
{
    return w->recovered == w->ranks;
}

/* None of its ranks has begun to save. */
static int is_in_recovery(const struct world *w, uint32_t m)
{
    for (uint32_t r = 0; r < w->ranks; r++) {
        const struct rank_state *s = &w->rank[r];

        if (s->machine == m && s->step != R_JOIN && s->step != R_RECOVER &&
                !(s->step == R_RUN && s->act_ms != HTH_NEVER))
            return 0;
    }
    return w->machine[m].node != NULL && !w->machine[m].stopped;
}

/* The coordinator's machine is one of the likelier. */
static uint32_t victim(struct world *w)
{
    uint32_t first = world_roll(w, 3) ? world_roll(w, w->opts.nodes) : 0;
    uint32_t m = w->opts.back_node ? w->member[w->opts.back_node - 1] : UINT32_MAX;

    if (w->opts.back_node)
        return is_in_recovery(w, m) ? m : UINT32_MAX;
    for (uint32_t i = 0; i < w->opts.nodes; i++) {
        m = w->member[(first + i) % w->opts.nodes];
        if (is_in_recovery(w, m))
            return m;
    }
    return UINT32_MAX;
}

static void back_kill(struct world *w, uint32_t m, int i)
{
    w->count[WORLD_BACK]++;
    w->hits[WORLD_KIND_BACK]++;
    world_say(w, "the engine of machine %u is killed under its ranks", m);
    machine_stop(w, m);
    w->back_machine[i] = m;
    w->back_ms[i] = w->now_ms + 1 + world_roll(w, 500);
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == m)
            rank_leave(&w->rank[r]);
}

/* One that dies with the first, or UINT32_MAX. */
static uint32_t second(struct world *w, uint32_t first)
{
    uint32_t m;

    if (w->opts.back_node && !w->opts.back_also)
        return UINT32_MAX;
    if (!w->opts.back_node && world_roll(w, 3))
        return UINT32_MAX;
    m = w->opts.back_also ? w->member[w->opts.back_also - 1]
                          : w->member[world_roll(w, w->opts.nodes)];
    return m != first && is_in_recovery(w, m) ? m : UINT32_MAX;
}

static void back_die(struct world *w)
{
    uint32_t m = victim(w), also;

    w->back_armed = 0;
    w->back_planned = 0;
    if (m == UINT32_MAX || all_recovered(w))
        return; /* it is over already */
    also = second(w, m);
    back_kill(w, m, 0);
    if (also != UINT32_MAX)
        back_kill(w, also, 1);
}

static void back_come(struct world *w, int i)
{
    w->back_ms[i] = HTH_NEVER;
    machine_start(w, w->back_machine[i]);
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == w->back_machine[i] && !w->rank[r].client)
            rank_back(&w->rank[r]);
}

int faults_keep(struct machine *m, struct hth_work *work)
{
    struct hth_work **at = &m->world->kept;

    if (!m->keep_next)
        return 0;
    m->keep_next = 0;
    while (*at)
        at = &(*at)->next;
    *at = work;
    return 1;
}

void world_let_go(struct world *w)
{
    struct hth_work *work;

    w->opts.hold_point = NULL;
    while ((work = w->kept)) {
        w->kept = work->next;
        (void)world_work_run(w, work);
        work->done(work);
    }
}

void faults_point(void *machine, const char *point)
{
    struct machine *m = machine;
    struct world *w = m->world;

    if (w->opts.hold_point && !strcmp(point, w->opts.hold_point))
        m->keep_next = 1;
    if (!w->back_planned || !w->opts.back_point || w->member[w->opts.back_node - 1] != m->index ||
            strcmp(point, w->opts.back_point) != 0)
        return;
    if (!is_in_recovery(w, m->index) || all_recovered(w))
        return; /* the job before, or the next save: it is not killed there */
    w->dies += !m->dying;
    m->dying = 1;
    hth_store_mem_fail_at(
            m->store, strcmp(point, "running") == 0); /* it dies before it is written */
    w->back_armed = 1;
    w->back_events = w->events;
}

static void back_act(struct world *w)
{
    if (w->back_planned && !w->opts.back_point && w->restart_ms == HTH_NEVER && !w->back_armed &&
            w->asked) {
        w->back_armed = 1;
        w->back_events += w->events;
    }
    if (w->back_armed && w->events >= w->back_events)
        back_die(w);
    for (int i = 0; i < 2; i++)
        if (w->back_ms[i] <= w->now_ms && w->restart_ms == HTH_NEVER)
            back_come(w, i);
}

void faults_act(struct world *w)
{
    back_act(w);
    if (w->calm && w->restart_ms == HTH_NEVER && !all_recovered(w))
        return;
    w->calm = 0;
    if (!w->quiet && w->opts.faults && fault_is_due(w))
        fault(w);
}
