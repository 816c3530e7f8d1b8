/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model: what must be true, seen from outside of the engines, in the machines' memory.
 *
 *   P1  the newest save ever decided PROTECTED, or a newer one, can be had from the members that
 *       live, at every loss, at every recovery and whenever a copy of it is given up, and no older
 *       save is chosen; where more machines were lost than there are copies, the engines report
 *       ELOST if no save is whole, and only then
 *   P2  all ranks of a launch resume from one save, with the bytes of one lineage
 *   P3  a save is decided and reported PROTECTED only while 1 + min_copies machines hold each
 *       object whole; it is on a list without DEGRADED only while 1 + copies do, in as many failure
 *       domains
 *   P4  no rank waits for ever, and after the last fault a save becomes PROTECTED
 *   P5  then memory holds the saves that are kept, each object as often as it should, and nothing
 *       else; no save begins beside keep others
 *   P6  every head that a coordinator sends is on its record, and no two heads of an epoch have one
 *       position
 */
#include "raws.h"
#include "world_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRITE_MS 5000u

/* ---- Decisions
 * -------------------------------------------------------------------------------------- */

/* Copies on a machine that was lost a moment ago may still count as there. */
static int is_counted_on(const struct world *w)
{
    return w->restart_ms != HTH_NEVER ||
           (w->hurt && w->now_ms < w->hurt_ms + w->opts.dead_ms + NOTICED_MS);
}

static void lost_beyond(struct world *w)
{
    world_say(w, "step %llu is lost beyond redundancy", (unsigned long long)w->newest.id.step);
    w->newest = (struct known_save){ 0 };
    w->beyond = 1;
    past_lost(w);
}

/* A decision counts from the moment it is on record, whether or not a rank has received it.
 * `again`: it was on some record before, and recovery has gone back to it after losses; it may have
 * fewer copies since. */
static void decided(
        struct world *w, const struct machine *x, struct hth_save_id id, int degraded, int again)
{
    uint32_t rank, copies = look_anywhere(w, id, &rank);

    if ((w->opts.accept_loss || w->beyond || w->gone) && !look_copies(w, id, UINT32_MAX)) {
        w->late = w->gone;
        return; /* a list that goes on naming what the user gave up, until something newer is kept */
    }
    w->newest = (struct known_save){ id, 0 };
    w->beyond = w->gone = w->late = 0;
    options_decided(w, x, id, again);
    if (!copies && is_counted_on(w) &&
            (w->hurt > options_tolerance(w) || (w->hurt_rack && degraded))) {
        lost_beyond(w);
        return;
    }
    if (is_counted_on(w) || again)
        return;
    if (copies < options_need(w, x))
        world_broken(w,
                "P3: step %llu of epoch %llu is decided PROTECTED, and rank %d's object is on %u "
                "machines (-1: the common one)",
                (unsigned long long)id.step, (unsigned long long)id.epoch, (int)rank, copies);
}

/* Each save that a coordinator calls PROTECTED and not DEGRADED has all its copies, also after
 * losses in a row. Not so in worlds in which stored bytes change: no engine may have read them
 * since. */
static void check_degraded(struct world *w, const struct machine *x, const struct hth_save_id *keep,
        uint32_t saves, const void *bytes, size_t len)
{
    const struct hth_ctx *ctx = x->node ? hth_node_ctx(x->node) : NULL;
    uint32_t degraded, rank;

    if (!ctx || !ctx->epoch || x->index != w->member[0] || w->recovered < w->ranks ||
            is_counted_on(w) || w->hits[WORLD_KIND_ROT] || ctx->epoch->epoch != w->rank[0].epoch)
        return;
    degraded = look_degraded(bytes, len, ctx->epoch->epoch);
    for (uint32_t i = 0; i < saves; i++)
        if (!(degraded >> i & 1) && look_anywhere(w, keep[i], &rank) < 1 + w->opts.copies)
            world_broken(w, "P3: step %llu is kept and not DEGRADED without its copies",
                    (unsigned long long)keep[i].step);
        else if (!(degraded >> i & 1) && w->opts.racks &&
                 look_racks(w, keep[i]) < 1 + w->opts.copies)
            world_broken(w, "P3: step %llu is kept and not DEGRADED, and copies share a domain",
                    (unsigned long long)keep[i].step);
}

void check_record(void *machine, const char *name, const void *bytes, size_t len)
{
    struct machine *x = machine;
    struct world *w = x->world;
    struct hth_save_id keep[16];
    uint32_t saves;
    int again;

    if (strcmp(name, "keep") != 0 || !(saves = look_keep(bytes, len, keep)))
        return;
    again = reads_was_decided(w, keep[0]);
    reads_decided(w, keep, saves);
    past_decided(x, keep, saves);
    said_decided(w, keep, saves);
    if (x->index == w->stale_machine)
        return;
    machine_watch(x, 0, 0); /* it is we who look */
    check_degraded(w, x, keep, saves, bytes, len);
    if (look_before(w->newest.id, keep[0]))
        decided(w, x, keep[0], look_degraded(bytes, len, w->rank[0].epoch) & 1, again);
    machine_watch(x, 1, 0);
}

/* ---- P1
 * --------------------------------------------------------------------------------------------- */

/* 1: the members have a whole save that is newer than the newest PROTECTED one; with `itself`, also
 * if they have that one. */
static int can_be_had(struct world *w, int itself)
{
    struct hth_save_id seen[64];
    struct look_object o;
    uint32_t count = 0, k;

    for (uint32_t i = 0; i < w->opts.nodes; i++) {
        struct hth_store *s = w->machine[w->member[i]].store;

        for (const struct slot *slot = s ? mem_of(s)->slots : NULL; slot; slot = slot->next) {
            if (!look_slot(slot, &o) || look_before(o.save, w->newest.id) ||
                    (!itself && look_same(o.save, w->newest.id)))
                continue;
            for (k = 0; k < count && !look_same(seen[k], o.save);)
                k++;
            if (k < count || count == 64)
                continue;
            seen[count++] = o.save;
            if (look_copies(w, o.save, UINT32_MAX))
                return 1;
        }
    }
    return 0;
}

/* ---- More lost than there are copies --------------------------------------------------------- */

static uint32_t keep_of(struct world *w, uint32_t m, struct hth_save_id out[16]);

/* If the save that is PROTECTED cannot be had any more, nor a newer one, the engines must say so,
 * and may choose an older one. */
void check_beyond(struct world *w)
{
    if (!can_be_had(w, 1))
        lost_beyond(w);
}

/* Machines are back with older memory: the newest save may still be whole, and so may `before`, the
 * newest on that memory. */
void check_gone(struct world *w, struct known_save before)
{
    if (can_be_had(w, 1))
        return;
    world_say(w, "step %llu is lost beyond redundancy, step %llu is back",
            (unsigned long long)w->newest.id.step, (unsigned long long)before.id.step);
    w->newest = before;
    w->gone = 1;
    past_lost(w);
    check_beyond(w);
}

/* 1: a member's list names a save. */
static int is_promised(struct world *w)
{
    struct hth_save_id keep[16];

    for (uint32_t i = 0; i < w->opts.nodes; i++)
        if (keep_of(w, w->member[i], keep))
            return 1;
    return 0;
}

/* If the loss that a rank reports is true, the user accepts it: the next launch begins with
 * nothing. */
void check_lost(struct world *w, const struct rank_state *r, const char *text)
{
    if (r->lineage != w->lineage)
        return;
    if (w->late && !can_be_had(w, 1))
        lost_beyond(w);
    if (w->beyond && !can_be_had(w, 1))
        w->opts.accept_loss = 1;
    else if (!fault_is_on(w, WORLD_KIND_WRITE) && !fault_is_on(w, WORLD_KIND_ROOM))
        world_broken(w, "rank %u cannot recover: %s", r->rank, text);
}

static int is_recoverable(struct world *w)
{
    return hth_save_none(w->newest.id) || can_be_had(w, 1);
}

void check_always(struct world *w, const char *when)
{
    if (!is_recoverable(w))
        world_broken(w,
                "P1 %s: step %llu of epoch %llu was PROTECTED and neither it nor a newer save can be had",
                when, (unsigned long long)w->newest.id.step,
                (unsigned long long)w->newest.id.epoch);
}

/* How many other member machines have this rank's object of that save, whole. */
static uint32_t elsewhere(struct world *w, const struct machine *x, const struct look_object *o)
{
    struct look_object other;
    uint32_t count = 0;

    for (uint32_t i = 0; i < w->opts.nodes; i++) {
        struct hth_store *s = w->machine[w->member[i]].store;

        for (const struct slot *slot = s && w->member[i] != x->index ? mem_of(s)->slots : NULL;
                slot; slot = slot->next)
            if (look_slot(slot, &other) && look_same(other.save, o->save) &&
                    other.rank == o->rank && look_whole(slot, &other)) {
                count++;
                break;
            }
    }
    return count;
}

/* 1: enough other machines have a copy; or at least one has, and machines were lost, the job
 * restarts or recovers, or a machine was replaced alive. */
static int may_be_freed(struct world *w, const struct machine *x, const struct look_object *o)
{
    uint32_t left = elsewhere(w, x, o);

    return left >= 1 + options_tolerance(w) ||
           (left && (w->hurt || w->restart_ms != HTH_NEVER || w->recovered < w->ranks ||
                            w->stale_machine != UINT32_MAX));
}

void check_freed(void *machine, const struct slot *slot)
{
    struct machine *x = machine;
    struct world *w = x->world;
    struct look_object o;

    if (!w->opts.faults || !look_slot(slot, &o) || !look_same(o.save, w->newest.id) ||
            may_be_freed(w, x, &o))
        return; /* where nothing goes wrong by itself a test may have dropped the job */
    if (!look_whole(slot, &o) || (!elsewhere(w, x, &o) && can_be_had(w, 0)))
        return;
    if (w->hurt > options_tolerance(w) && is_counted_on(w)) {
        lost_beyond(w); /* the others that had it are lost, and that is not known yet */
        return;
    }
    world_broken(w,
            "P1: machine %u frees a copy of rank %u's object of step %llu, which is PROTECTED, and %u "
            "others have one",
            x->index, o.rank, (unsigned long long)o.save.step, elsewhere(w, x, &o));
}

/* ---- P5: at home ------------------------------------------------------------------------- */

/* Which node has whose object of the save, in one number; 0: not all copies are there. */
static uint64_t seats_of(struct world *w, struct hth_save_id id)
{
    uint64_t sum = 0, seat;
    uint32_t count = 0;
    struct look_object o;

    for (uint32_t i = 0; i < w->opts.nodes; i++) {
        struct hth_store *store = w->machine[w->member[i]].store;

        for (const struct slot *s = store ? mem_of(store)->slots : NULL; s; s = s->next) {
            if (!look_slot(s, &o) || !look_same(o.save, id))
                continue;
            seat = ((uint64_t)i << 32 | (o.rank + 1)) * 0x9e3779b97f4a7c15u;
            sum += (seat ^ seat >> 29) * 0xbf58476d1ce4e5b9u;
            count++;
        }
    }
    return count == w->ranks * (1 + w->opts.copies) ? sum : 0;
}

static uint64_t faults_so_far(const struct world *w)
{
    return w->fault_number + w->count[WORLD_BACK];
}

void check_launched(struct world *w)
{
    w->well_since = ill_any(w) ? UINT64_MAX : faults_so_far(w);
}

/* Notes the places of copies at the first save of a launch without a fault so far. Only under the
 * epoch's first map: a bad network may have moved copies before that save. */
static void note_home(struct world *w, struct hth_save_id id)
{
    if (w->home_of == w->lineage || w->well_since != faults_so_far(w) || ill_any(w) ||
            !heard_first_map(&w->machine[w->member[0]]))
        return;
    w->home = seats_of(w, id);
    w->home_of = w->home ? w->lineage : w->home_of;
}

/* A machine that was lost twice in ten minutes has its copies again ten minutes later. 0:
 * w->pool says which save's are elsewhere. */
int check_home(struct world *w)
{
    struct hth_save_id keep[16];
    uint32_t saves = keep_of(w, w->member[0], keep);
    uint64_t seats = saves ? seats_of(w, keep[0]) : 0;

    if (!seats || w->home_of != w->lineage || seats == w->home)
        return 1;
    snprintf(w->pool, sizeof(w->pool),
            "all have been well for ten minutes, and not all copies of step %llu are where the "
            "launch's first were",
            (unsigned long long)keep[0].step);
    return 0;
}

/* ---- What engines report to ranks ------------------------------------------------------------ */

void check_protected(struct world *w, struct rank_state *r, struct hth_save_id id, int degraded)
{
    w->count[WORLD_PROTECTED]++;
    if (r->lineage != w->lineage)
        return; /* late news for a rank that was replaced */
    if ((w->beyond || w->gone) && w->restart_ms != HTH_NEVER)
        return; /* of what was lost since */
    if (look_before(w->newest.id, id) && w->stale_machine == UINT32_MAX) {
        world_broken(w, "P3: step %llu is called PROTECTED, and no coordinator has written so",
                (unsigned long long)id.step);
        return;
    }
    if (look_before(w->newest.id, id)) /* by a coordinator that is about to be stale */
        w->newest.id = id;
    if (!look_same(w->newest.id, id))
        return;
    if (w->newest.lineage != r->lineage && !is_counted_on(w) && !degraded &&
            look_copies(w, id, UINT32_MAX) < 1 + w->opts.copies)
        world_broken(w, "P3: step %llu is called PROTECTED and not DEGRADED without its copies",
                (unsigned long long)id.step);
    w->newest.lineage = r->lineage;
    note_home(w, id);
    if (w->quiet && r->began_ms >= w->quiet_ms)
        w->final = w->newest;
}

/* 1: this rank had written an object of that save, or no machine has one that would show it. */
static int had_written(struct world *w, struct hth_save_id id, uint32_t rank)
{
    struct look_object o;

    for (uint32_t m = 0; m < w->machines;
            m++) { /* one that was replaced alive may have all of it */
        struct hth_store *store = w->machine[m].store;

        for (const struct slot *s = store ? mem_of(store)->slots : NULL; s; s = s->next)
            if (look_slot(s, &o) && look_same(o.save, id))
                return rank < look_ranks(w, &o) && look_part(w, &o, rank);
    }
    return 1;
}

/* The newest save was made by some ranks that had recovered already, in the epoch in which this
 * rank recovers only now: the save that it resumes from may be freed. */
static int is_saved_since(const struct world *w, const struct rank_state *r)
{
    return w->newest.id.attempt >> 31 && w->newest.id.epoch == r->epoch &&
           w->newest.id.nonce == r->nonce;
}

/* The object a rank resumes from, byte for byte as some launch wrote it. A rank that the save does
 * not have resumes from nothing of its own. */
static void check_object(struct world *w, struct rank_state *r)
{
    struct hth_store *s = w->machine[r->machine].store;
    struct look_object o;

    for (const struct slot *slot = mem_of(s)->slots; slot; slot = slot->next) {
        if (!look_slot(slot, &o) || !look_same(o.save, r->from) || o.rank != r->rank)
            continue;
        if (!look_whole(slot, &o))
            world_broken(w, "P2: rank %u resumed from wrong bytes", r->rank);
        r->from_lineage = o.tag;
        return;
    }
    if (!is_saved_since(w, r) && had_written(w, r->from, r->rank))
        world_broken(w, "P2: rank %u resumed and its object is not on its node", r->rank);
}

static void check_bytes(struct world *w, struct rank_state *r)
{
    unsigned char common[WORLD_COMMON_MAX];
    uint64_t len;

    check_object(w, r);
    if (!r->from_lineage)
        return;
    len = world_common(common, r->from_lineage, r->from.step);
    if (!is_saved_since(w, r) &&
            !raw_is(w->machine[r->machine].store, r->from, WORLD_COMMON, common, len))
        world_broken(w,
                "P2: rank %u resumed and the common object of its step is not there or wrong",
                r->rank);
    for (uint32_t i = 0; i < w->ranks; i++) { /* one other has been compared with all before it */
        if (&w->rank[i] == r || !w->rank[i].recovered || !w->rank[i].from_lineage)
            continue;
        if (w->rank[i].from_lineage != r->from_lineage)
            world_broken(w, "P2: ranks %u and %u resume from bytes of two launches", r->rank, i);
        break;
    }
}

void check_recovered(struct world *w, struct rank_state *r)
{
    if (hth_save_none(r->from)) {
        w->count[WORLD_SCRATCH]++;
        if (w->beyond && !w->opts.accept_loss && r->lineage == w->lineage && is_promised(w))
            world_broken(w, "P1: rank %u starts from scratch behind its user's back", r->rank);
        if (!hth_save_none(w->newest.id) && r->lineage == w->lineage && !is_saved_since(w, r))
            world_broken(w, "P1: rank %u starts from scratch although step %llu was PROTECTED",
                    r->rank, (unsigned long long)w->newest.id.step);
        return;
    }
    w->count[WORLD_RECOVERED]++;
    world_say(w, "rank %u resumes from step %llu of epoch %llu", r->rank,
            (unsigned long long)r->from.step, (unsigned long long)r->from.epoch);
    if (r->lineage != w->lineage)
        return;
    if (look_before(r->from, w->newest.id) && !is_saved_since(w, r))
        world_broken(w, "P1: rank %u resumes from step %llu although step %llu was PROTECTED",
                r->rank, (unsigned long long)r->from.step, (unsigned long long)w->newest.id.step);
    for (uint32_t i = 0; i < w->ranks; i++) {
        if (&w->rank[i] == r || !w->rank[i].recovered)
            continue;
        if (!look_same(w->rank[i].from, r->from))
            world_broken(w, "P2: ranks %u and %u resume from different saves", r->rank, i);
        break;
    }
    if (hth_save_foreign(r->from))
        return; /* no rank of this world has written it */
    check_bytes(w, r);
    if (r->rank == 0) /* once per launch: it looks at everything */
        check_always(w, "after a recovery");
}

/* A save that was never PROTECTED is passed over for want of room, for the one that was. */
void check_no_room(struct world *w, const char *text)
{
    const char *at = strstr(text, "step ");
    uint64_t step = at ? strtoull(at + 5, NULL, 10) : 0;

    if (step > w->newest.id.step && !hth_save_none(w->newest.id) &&
            look_copies(w, w->newest.id, UINT32_MAX))
        world_broken(w, "P4: no recovery, for want of room of step %llu; step %llu is PROTECTED",
                (unsigned long long)step, (unsigned long long)w->newest.id.step);
}

/* ---- P5: room
 * ------------------------------------------------------------------------------------------ */

/* No save begins beside more than options_keep() older ones. Slots that are read or checked do not
 * count, for their saves may have been given up already; nor do foreign containers. */
void check_lent(struct machine *x, struct hth_save_id save)
{
    struct hth_save_id seen[64];
    uint32_t count = 0, k;

    for (const struct slot *s = mem_of(x->store)->slots; s; s = s->next) {
        if (s->state != SEALED || s->pub.leases || s->dir->save.epoch < 2 ||
                !look_before(s->dir->save, save))
            continue;
        for (k = 0; k < count && !look_same(seen[k], s->dir->save);)
            k++;
        if (k == count && count < 64)
            seen[count++] = s->dir->save;
    }
    if (count > options_keep(x))
        world_broken(x->world, "P5: machine %u lends a slot for step %llu beside %u older saves",
                x->index, (unsigned long long)save.step, count);
}

/* ---- P5: the pool
 * ------------------------------------------------------------------------------------- */

static int is_kept(const struct hth_save_id *keep, uint32_t saves, struct hth_save_id id)
{
    for (uint32_t i = 0; i < saves; i++)
        if (look_same(keep[i], id))
            return 1;
    return 0;
}

static uint32_t keep_of(struct world *w, uint32_t m, struct hth_save_id out[16])
{
    struct hth_store *s = w->machine[m].store;

    for (const struct file *f = s ? mem_of(s)->files : NULL; f; f = f->next)
        if (!f->dir && !strcmp(f->name, "keep"))
            return look_keep(f->bytes, f->len, out);
    return 0;
}

/* Lent, and not written, for longer than any rank takes. */
static int is_forgotten(const struct world *w, struct slot *s)
{
    if (s->state != HELD)
        return 0;
    if (s->seen_generation != s->pub.generation) {
        s->seen_generation = s->pub.generation;
        s->seen_ms = w->now_ms;
    }
    return w->now_ms - s->seen_ms > WRITE_MS;
}

/* 0: a slot of this machine holds an object that its node does not owe. */
static int pool_slots(struct world *w, uint32_t m, const struct hth_save_id *keep, uint32_t saves)
{
    uint32_t lent = 0;

    for (struct slot *s = mem_of(w->machine[m].store)->slots; s; s = s->next) {
        lent += (uint32_t)is_forgotten(w, s);
        if (!s->dir || is_kept(keep, saves, s->dir->save))
            continue;
        snprintf(w->pool, sizeof(w->pool), "machine %u has %s of step %llu of epoch %llu still", m,
                s->name, (unsigned long long)s->dir->save.step,
                (unsigned long long)s->dir->save.epoch);
        return 0;
    }
    if (lent)
        snprintf(w->pool, sizeof(w->pool), "machine %u has %u slots in nobody's hands", m, lent);
    return !lent;
}

/* 1: no fault of this world moves copies to other nodes than those that had them first. */
static int pool_stays(const struct world *w)
{
    const uint64_t stay = WORLD_BIT(CRASH) | WORLD_BIT(CUT) | WORLD_BIT(GIVEUP) | WORLD_BIT(TWICE) |
                          WORLD_BIT(RANK) | WORLD_BIT(KILL) | WORLD_BIT(RESTART) | WORLD_BIT(ROOM) |
                          WORLD_BIT(CLOCK) | WORLD_BIT(GOON) | WORLD_BIT(UPGRADE);

    /* With racks some machines hold more than others; beside a save of some ranks one of all may
     * need room. */
    return !(w->opts.kinds & ~stay) && !w->opts.racks && !w->opts.some;
}

/* The slots of a machine are no larger than the job owes, whatever number of engines it has had. */
static int pool_size(struct world *w, uint32_t m)
{
    uint64_t owed = world_slots_owed(w), bytes = 0;

    for (const struct slot *s = mem_of(w->machine[m].store)->slots; s; s = s->next)
        bytes += s->pub.capacity;
    if (bytes <= owed)
        return 1;
    snprintf(w->pool, sizeof(w->pool), "machine %u has slots of %llu bytes, and owes %llu", m,
            (unsigned long long)bytes, (unsigned long long)owed);
    return 0;
}

/* Each object of the save has as many copies as it should have, no more. */
static int pool_copies(struct world *w, struct hth_save_id id)
{
    uint32_t objects = 0, ranks = 0, least = look_copies(w, id, UINT32_MAX);
    struct look_object o, any = { .tag = 0 };

    for (uint32_t i = 0; i < w->opts.nodes; i++)
        for (const struct slot *s = mem_of(w->machine[w->member[i]].store)->slots; s; s = s->next)
            if (look_slot(s, &o) && look_same(o.save, id)) {
                objects++;
                any = o;
            }
    for (uint32_t r = 0; r < w->ranks; r++)
        ranks += objects && look_part(w, &any, r);
    if (least == 1 + w->opts.copies && objects == ranks * (1 + w->opts.copies))
        return 1;
    snprintf(w->pool, sizeof(w->pool),
            "step %llu is on %u machines at least and there are %u objects of it: %u of %u ranks",
            (unsigned long long)id.step, least, objects, 1 + w->opts.copies, ranks);
    return 0;
}

/* Each older save that is kept is as safe as when it was PROTECTED. Bytes that changed there are
 * found only when they are read, so worlds with such changes are left out. */
static int pool_older(struct world *w, const struct hth_save_id *keep, uint32_t saves)
{
    uint32_t least;

    for (uint32_t i = 1; i < saves && !w->hits[WORLD_KIND_ROT]; i++) {
        least = look_copies(w, keep[i], UINT32_MAX);
        if (least >= 1 + w->opts.min_copies)
            continue;
        snprintf(w->pool, sizeof(w->pool),
                "step %llu of epoch %llu is kept, and an object of it is on %u machines",
                (unsigned long long)keep[i].step, (unsigned long long)keep[i].epoch, least);
        return 0;
    }
    return 1;
}

int check_pool(struct world *w)
{
    struct hth_save_id keep[16];
    uint32_t saves = keep_of(w, w->member[0], keep);

    if (!saves || w->restart_ms != HTH_NEVER)
        return 0;
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        if (!w->machine[w->member[i]].store || !pool_slots(w, w->member[i], keep, saves) ||
                (pool_stays(w) && !pool_size(w, w->member[i])))
            return 0;
    return pool_copies(w, keep[0]) && pool_older(w, keep, saves);
}
