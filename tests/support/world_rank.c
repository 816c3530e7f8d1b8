/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of the simulated job: attach, join, recover, and then one save after the other. */
#include "content.h"
#include "world_parts.h"

#include "core/base/bytes.h"
#include "core/base/crc.h"
#include "core/format/ranks.h"
#include "core/format/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEGIN_MS 3000u /* that a rank waits for its slot */

static struct machine *machine_of(const struct rank_state *r)
{
    return &r->world->machine[r->machine];
}

/* Bytes of the file that holds so many. */
static uint64_t object_bytes(const struct world *w, uint64_t len)
{
    return HTH_ALIGN(HTH_BLOCK + len) + hth_table_bytes(len, hth_item_bytes(0, 8), w->opts.strong);
}

void rank_due(struct rank_state *r, uint64_t ms)
{
    struct world *w = r->world;
    uint32_t i = r >= w->rank && r < w->rank + w->ranks_max
                         ? (uint32_t)(r - w->rank)
                         : w->ranks_max + (uint32_t)(r - w->stale);

    r->act_ms = ms;
    r->waits = 0;
    wake_at(w->wake, w->machines + i, ms);
}

/* The rank has asked its engine for something that it is owed by then, however fast the engine's
 * clock goes, and not counting the time for which the engine stood still. */
void rank_wait(struct rank_state *r, uint64_t ms)
{
    rank_due(r, r->world->now_ms + ms + ms / 8 + 3000);
    r->waits = 1;
    r->stood_ms = machine_stood_ms(machine_of(r));
}

/* Until a save is decided: by the coordinator, or, where that may be silent, without it. */
static uint64_t decided_ms(const struct world *w)
{
    const uint64_t silences = WORLD_BIT(STOP) | WORLD_BIT(SILENCE) | WORLD_BIT(PAIR) |
                              WORLD_BIT(ONEWAY) | WORLD_BIT(PARTITION) | WORLD_BIT(FLAP) |
                              WORLD_BIT(CRASH) | WORLD_BIT(WRITE) | WORLD_BIT(BLOCK);
    uint32_t times = w->opts.kinds & silences ? 4 : 1;

    return w->opts.save_ms + (uint64_t)times * w->opts.dead_ms;
}

static void rank_waited(struct rank_state *r)
{
    static const char *const what[] = { [R_JOIN] = "to join",
        [R_RECOVER] = "to recover",
        [R_BEGUN] = "for its slot of",
        [R_WAIT] = "for" };
    uint64_t stood_ms = machine_stood_ms(machine_of(r)) - r->stood_ms;

    if (stood_ms || machine_of(r)->stopped) {
        rank_wait(r, stood_ms + 1000);
        return;
    }
    rank_due(r, HTH_NEVER);
    if (r->lineage == r->world->lineage && r->world->restart_ms == HTH_NEVER)
        world_broken(r->world, "P4: rank %u waits %s step %llu for ever", r->rank,
                what[r->step] ? what[r->step] : "", (unsigned long long)r->next);
}

void rank_connect(struct rank_state *r)
{
    struct world *w = r->world;

    r->client = ++w->next_client;
    if (r->client >= w->client_cap) {
        w->client_cap = 2 * r->client + 64;
        w->client_rank = realloc(w->client_rank, w->client_cap * sizeof(*w->client_rank));
        if (!w->client_rank)
            abort();
    }
    w->client_rank[r->client] = r->rank;
}

struct rank_state *rank_of_client(struct world *w, uint32_t machine, uint32_t client)
{
    struct rank_state *r = client && client <= w->next_client && client < w->client_cap
                                   ? &w->rank[w->client_rank[client]]
                                   : NULL;

    if (r && r->client == client && r->machine == machine)
        return r;
    for (uint32_t i = 0; r && i < w->opts.ranks_per_node; i++)
        if (w->stale[i].client == client && w->stale[i].machine == machine)
            return &w->stale[i];
    return NULL;
}

void rank_send(
        struct rank_state *r, const void *bytes, size_t len, const void *attach, size_t attach_len)
{
    struct machine *m = machine_of(r);

    if (!m->node) {
        r->step = R_FAILED;
        rank_due(r, HTH_NEVER);
        world_restart(r->world, 50, "no engine to talk to");
        return;
    }
    machine_ask(m, r->client, bytes, len, attach, attach_len);
}

void rank_kill(struct rank_state *r)
{
    if (!r->world)
        return;
    if (r->client) /* else its engine is down, and it does not wait for the next */
        machine_ask(machine_of(r), r->client, NULL, 0, NULL, 0);
    r->client = 0;
    r->maps = 0;
    r->writes = 0;
    r->step = R_NONE;
    rank_due(r, HTH_NEVER);
}

/* It remembers what it had handed over, and asks the next engine what became of it. */
void rank_leave(struct rank_state *r)
{
    if (r->step == R_CUT)
        return; /* it has left already */
    r->follows = r->step == R_WAIT;
    r->client = 0;
    rank_due(r, HTH_NEVER);
}

/* A rank that is not in the gathered table attaches as at the launch, and is waited for. */
void rank_back(struct rank_state *r)
{
    slots_unmap_all(r);
    rank_connect(r);
    r->step = r->step == R_ATTACH || r->step == R_GATHER ? R_ATTACH : R_BACK;
    rank_due(r, r->world->now_ms + world_roll(r->world, 20));
}

/* The bytes that a rank writes depend on the rank, the step and the launch. */
uint64_t rank_bytes(uint64_t lineage, uint64_t step, uint32_t rank, uint32_t max)
{
    uint64_t seed = lineage * 31 + step * 1009 + rank;

    return 64 + hth_splitmix64(&seed) % max;
}

void rank_fill(unsigned char *out, uint64_t len, uint64_t tag, uint64_t step, uint32_t rank)
{
    uint64_t seed = tag * 1000003 + step * 10007 + rank;

    memcpy(out, &tag, 8);
    for (uint64_t i = 8; i < len; i += 8) {
        uint64_t word = hth_splitmix64(&seed);

        memcpy(out + i, &word, len - i < 8 ? len - i : 8);
    }
}

void rank_write(struct hth_slot *slot, uint64_t len, uint64_t tag, uint64_t step, uint32_t rank)
{
    struct hth_item item = {
        .length = len, .kind = HTH_ITEM_BYTES, .key_len = 8, .key = "contents"
    };

    rank_fill(slot->base + HTH_BLOCK, len, tag, step, rank);
    hth_item_encode(&item, slot->base + HTH_ALIGN(HTH_BLOCK + len) + HTH_TABLE_HEAD);
}

/* Behind the one item. */
static void rank_sums(struct hth_slot *slot, uint64_t len)
{
    unsigned char *data = slot->base + HTH_BLOCK;
    unsigned char *sums = data + HTH_ALIGN(len) + HTH_TABLE_HEAD + hth_item_bytes(0, 8);

    for (uint32_t c = 0; c < HTH_CHUNKS(len); c++)
        hth_put32(sums + 4 * c, hth_crc32c_portable(data + c * HTH_CHUNK, hth_chunk_len(len, c)));
}

uint64_t world_common(unsigned char out[WORLD_COMMON_MAX], uint64_t tag, uint64_t step)
{
    uint64_t len = rank_bytes(rank_tag_lineage(tag), step, UINT32_MAX, WORLD_COMMON_MAX - 64);

    rank_fill(out, len, tag, step, UINT32_MAX);
    return len;
}

/* ---- Doing
 * ------------------------------------------------------------------------------------------ */

static void do_attach(struct rank_state *r)
{
    struct hth_local_attach m = { .head = { sizeof(m), HTH_LOCAL_ATTACH, ++r->request, 0 },
        .version = hth_version_written(HTH_FORMAT_LOCAL),
        .rank = r->rank,
        .world = r->world->ranks,
        .flags = r->world->opts.strong ? HTH_LOCAL_STRONG : 0,
        .job = "sim" };

    rank_send(r, &m, sizeof(m), NULL, 0);
}

/* All ranks gather the same table, which is made once a launch. */
static const unsigned char *gathered(struct world *w)
{
    unsigned char *table;

    if (w->tabled)
        return w->table;
    free(w->table);
    w->table = table = malloc((size_t)w->ranks * HTH_GATHER);
    if (!table)
        abort();
    w->tabled = 1;
    for (uint32_t i = 0; i < w->ranks; i++) {
        const struct hth_local_attached *a = &w->rank[i].gathered;
        struct hth_gather g = { .job = "sim",
            .store = a->store,
            .highest_epoch = a->highest_epoch,
            .wall_ms = a->wall_ms,
            .random = a->random,
            .copies = w->opts.copies,
            .min_copies = w->opts.min_copies,
            .keep = w->opts.keep,
            .flags = (w->opts.strong ? HTH_GATHER_STRONG : 0) |
                     (w->allow_degraded ? HTH_GATHER_ALLOW_DEGRADED : 0),
            .bad_after = w->opts.bad_after,
            .objects = { .bytes = { w->opts.room ? object_bytes(w, w->opts.data_max + 64) : 0 },
                    .count = { w->opts.room != 0 } },
            .addr_len = a->addr_len,
            .rank = i,
            .world = w->ranks };

        snprintf(g.node, sizeof(g.node), "m%u", w->rank[i].machine);
        if (w->opts.racks && w->opts.pods)
            g.machine = w->opts.breaks & WORLD_BREAK_PODS
                                ? 0
                                : 1 + i / w->opts.ranks_per_node % w->opts.racks;
        else if (w->opts.racks)
            g.domain[0] = 1 + i / w->opts.ranks_per_node % w->opts.racks;
        memcpy(g.addr, a->addr, sizeof(g.addr));
        hth_gather_encode(&g, table + (size_t)i * HTH_GATHER);
    }
    return table;
}

static void do_join(struct rank_state *r)
{
    struct world *w = r->world;
    struct hth_local_join m = { .head = { sizeof(m), HTH_LOCAL_JOIN, ++r->request, 0 },
        .opts = { .copies = w->opts.copies,
                .min_copies = w->opts.min_copies,
                .keep = w->opts.keep,
                .allow_degraded = w->allow_degraded,
                .bad_after = w->opts.bad_after,
                .recover_ms = w->opts.recover_ms,
                .save_ms = w->opts.save_ms,
                .dead_ms = w->opts.dead_ms },
        .world = w->ranks,
        .rank = r->rank };

    rank_wait(r, w->opts.recover_ms);
    rank_send(r, &m, sizeof(m), gathered(w), (size_t)w->ranks * HTH_GATHER);
}

static void do_recover(struct rank_state *r)
{
    struct hth_local_recover m = { .head = { sizeof(m), HTH_LOCAL_RECOVER, ++r->request, 0 },
        .accept_loss = (uint32_t)r->world->opts.accept_loss };

    rank_wait(r, 2 * (uint64_t)r->world->opts
                                 .recover_ms); /* whole, and what the worst engine's life took */
    rank_send(r, &m, sizeof(m), NULL, 0);
}

static void send_begin(struct rank_state *r)
{
    struct world *w = r->world;
    uint64_t len = rank_bytes(r->lineage, r->next, r->rank, w->opts.data_max);
    struct {
        struct hth_local_begin m;
        unsigned char runs[HTH_RANK_RUNS * HTH_RANK_RUN_BYTES];
    } packet = { .m = { .head = { sizeof(packet.m), HTH_LOCAL_BEGIN, ++r->request, 0 },
                         .step = r->next,
                         .bytes = object_bytes(r->world, len),
                         .wait_ms = BEGIN_MS } };

    snprintf(packet.m.name, sizeof(packet.m.name), "__%u__0_src%u.distcp", r->rank, r->rank);
    packet.m.head.length += (uint32_t)some_put(r, packet.runs);
    r->begun = r->request;
    past_asked(r);
    r->writing = 0;
    rank_send(r, &packet, packet.m.head.length, NULL, 0);
}

enum trick { T_NONE, T_GIVE_UP, T_TWICE, T_CANCEL, T_ABORT, T_AHEAD, T_CUT, T_FLIP };

/* The trick that the rank does with this save; T_NONE: none. */
static enum trick trick_of(struct rank_state *r)
{
    struct world *w = r->world;
    enum world_kind kind = w->trick;

    if (!kind || w->trick_rank != r->rank || r->lineage != w->lineage)
        return T_NONE;
    w->trick = 0;
    w->hits[kind]++;
    if (kind == WORLD_KIND_CUT || kind == WORLD_KIND_FLIP)
        return kind == WORLD_KIND_CUT ? T_CUT : T_FLIP;
    return kind == WORLD_KIND_GIVEUP ? T_GIVE_UP : T_TWICE + w->trick_dice % 4;
}

/* The ranks train in step: a rank that comes late begins the step that the others have begun. */
static void in_step(struct rank_state *r)
{
    struct world *w = r->world;

    if (r->lineage != w->lineage)
        return;
    if (r->next < w->front)
        r->next = w->front;
    w->front = r->next;
}

static void do_begin(struct rank_state *r)
{
    struct world *w = r->world;

    if (w->resting)
        return;
    if (ill_is_for_hours(w) && r->hour == w->now_ms / w->hours_every_ms) {
        uint64_t turn_ms = (r->hour + 1) * w->hours_every_ms;

        rank_due(
                r, (turn_ms < w->hours_until_ms ? turn_ms : w->hours_until_ms) + world_roll(w, 50));
        return;
    }
    r->hour = ill_is_for_hours(w) ? w->now_ms / w->hours_every_ms : 0;
    if (w->back.pauses) {
        rank_due(r, w->now_ms + 50);
        return;
    }
    in_step(r);
    if (!w->quiet && w->opts.faults && world_roll(w, 200) == 0 && !upgrade_alone(w)) {
        w->count[WORLD_SKIP]++; /* stuck somewhere, or its begin failed alone */
        r->next++;
        rank_due(r, w->now_ms + 100);
        return;
    }
    if (some_pass(r)) { /* meanwhile the others save */
        r->next++;
        rank_due(r, w->now_ms + w->opts.every_ms + 300);
        return;
    }
    r->trick = trick_of(r);
    if (r->trick == T_AHEAD) {
        r->next++;
        r->some = 0;
    }
    r->began_ms = w->now_ms;
    w->count[WORLD_SAVE]++;
    r->step = R_BEGUN;
    rank_wait(r, BEGIN_MS);
    send_begin(r);
    if (r->trick == T_TWICE && r->step == R_BEGUN)
        send_begin(r);
    if (r->trick == T_GIVE_UP && r->step == R_BEGUN) {
        r->begun = 0;
        r->next++;
        r->step = R_RUN;
        rank_due(r, w->now_ms + 100);
    }
}

/* One rank of each step hands over the common object. */
static void do_common(struct rank_state *r, uint64_t token, uint64_t tag)
{
    unsigned char bytes[WORLD_COMMON_MAX];
    struct hth_local_common m = { .head = { sizeof(m), HTH_LOCAL_COMMON, ++r->request, token },
        .name = WORLD_COMMON };

    m.len = world_common(bytes, tag, r->next);
    rank_send(r, &m, sizeof(m), bytes, m.len);
}

static void send_head(struct rank_state *r, enum hth_local_type type)
{
    struct hth_local_head m = { sizeof(m), type, ++r->request, r->token };

    if (r->step == R_WAIT)
        rank_send(r, &m, sizeof(m), NULL, 0);
}

/* The rank has sent its engine all messages about its part of the save. */
static void hand_over(struct rank_state *r, uint64_t tag)
{
    struct world *w = r->world;

    r->has_common = r->rank == (r->some ? some_lowest(r) : r->next % w->ranks);
    if (r->step == R_WAIT && r->has_common)
        do_common(r, r->token, tag);
    send_head(r, r->trick == T_ABORT ? HTH_LOCAL_ABORT : HTH_LOCAL_COMMIT);
    if (r->trick == T_CANCEL)
        send_head(r, HTH_LOCAL_CANCEL);
    if (r->step != R_WAIT)
        return;
    rank_wait(r, decided_ms(w));
    if (r->trick == T_ABORT) { /* the engine sends no event about it */
        r->next++;
        r->step = R_RUN;
        rank_due(r, w->now_ms + 200);
    }
}

/* The slot came too late: the rank has given that save up. */
static void give_back(struct rank_state *r, uint64_t token)
{
    struct hth_local_head m = { sizeof(m), HTH_LOCAL_ABORT, ++r->request, token };

    if (!(r->world->opts.breaks & WORLD_BREAK_GRANT))
        rank_send(r, &m, sizeof(m), NULL, 0);
}

#define WRITE_MS 40u /* that a large object takes, so that peers pull parts of it meanwhile */

/* A large object is written in two steps. In the first its chunks are reported as complete, but for
 * the last one, and a byte of the first chunk is still another one: what was pulled of it too early
 * must not count. 1: the rest comes later. */
static int write_some(struct rank_state *r, const struct hth_local_lent *lent,
        struct hth_slot *slot, uint64_t len)
{
    struct hth_local_written_chunks m = { .head = { sizeof(m), HTH_LOCAL_WRITTEN, ++r->request,
                                                  lent->head.token },
        .chunks = (uint32_t)(len / HTH_CHUNK) };
    int may = r->trick == T_NONE || r->trick == T_FLIP, later = !r->writing && may && m.chunks > 1;

    r->writing = later;
    if (!later)
        return 0;
    r->lent = *lent;
    rank_write(slot, len, rank_tag(r->lineage, lent->save.attempt), r->next, r->rank);
    slot->base[HTH_BLOCK + 99] ^= (r->rank + r->next) % 3 != 0;
    rank_due(r, r->world->now_ms + WRITE_MS);
    rank_send(r, &m, sizeof(m), NULL, 0);
    return 1;
}

/* The rank has the slot: it writes, seals and commits. */
static void do_write(struct rank_state *r, const struct hth_local_lent *lent)
{
    struct world *w = r->world;
    struct hth_slot *slot = hth_node_lent(machine_of(r)->node, lent->slot);
    uint64_t len = rank_bytes(r->lineage, r->next, r->rank, w->opts.data_max);
    uint64_t tag = rank_tag(r->lineage, lent->save.attempt);
    struct hth_local_seal seal = { .head = { sizeof(seal), HTH_LOCAL_SEAL, ++r->request,
                                           lent->head.token },
        .slot = lent->slot,
        .generation = lent->generation,
        .data_len = len,
        .items_len = hth_item_bytes(0, 8),
        .items = 1 };

    if (r->step != R_BEGUN || lent->head.request != r->begun) {
        give_back(r, lent->head.token);
        return;
    }
    if (!slot) {
        world_broken(w, "rank %u: the slot it was lent is not there", r->rank);
        return;
    }
    slots_map(r, lent->slot);
    if (r->trick == T_CUT) {
        slots_cut(r, lent->slot);
        return;
    }
    if (write_some(r, lent, slot, len))
        return;
    rank_write(slot, len, tag, r->next, r->rank);
    seal.summed = r->trick == T_FLIP || (r->rank + r->next) % 2;
    if (seal.summed)
        rank_sums(slot, len);
    if (r->trick == T_FLIP)
        slot->base[HTH_BLOCK + w->trick_dice % len] ^= 1u << w->trick_dice % 8;
    r->token = lent->head.token;
    r->save = hth_local_save_to(lent->save);
    past_begun(r);
    r->step = R_WAIT;
    r->follows = 0;
    rank_send(r, &seal, sizeof(seal), NULL, 0);
    hand_over(r, tag);
}

/* The rest of a large object. */
static void do_write_on(struct rank_state *r)
{
    struct hth_local_lent lent = r->lent;

    if (machine_of(r)->node && hth_node_lent(machine_of(r)->node, lent.slot)) {
        do_write(r, &lent);
        return;
    }
    r->writing = 0; /* its epoch is over, or its engine: the rank is about to learn so */
    r->next++;
    r->step = R_RUN;
    rank_due(r, r->world->now_ms + 100);
}

/* The same step once more, with other bytes, or the next one: all ranks choose alike. */
static void after_failure(struct rank_state *r)
{
    if ((r->next * 7 + r->lineage) % 2 && r->tried != r->next) {
        r->tried = r->next;
        r->world->count[WORLD_AGAIN]++;
    } else {
        some_next(r);
    }
}

/* The rank notices that its connection has ended: it gives its save up, and looks for its engine,
 * which may be away. */
static void do_notice(struct rank_state *r)
{
    slots_end(r);
    after_failure(r);
    r->step = R_RUN;
    if (machine_of(r)->node)
        rank_back(r);
    r->world->well_ms = r->world->now_ms;
}

void rank_act(struct rank_state *r)
{
    if (r->waits) {
        rank_waited(r);
        return;
    }
    rank_due(r, HTH_NEVER);
    if (r->step == R_CUT)
        do_notice(r);
    else if (r->step == R_ATTACH || r->step == R_BACK)
        do_attach(r);
    else if (r->step == R_JOIN && !table_ask(r, gathered(r->world)))
        do_join(r);
    else if (r->step == R_RECOVER)
        do_recover(r);
    else if (r->step == R_RUN)
        do_begin(r);
    else if (r->step == R_BEGUN && r->writing)
        do_write_on(r);
}

/* ---- Hearing
 * ------------------------------------------------------------------------------------------ */

static void next_save(struct rank_state *r, uint64_t in_ms)
{
    uint32_t every_ms = r->world->opts.every_ms;

    r->step = R_RUN;
    rank_due(r, r->world->now_ms + (every_ms > in_ms ? every_ms : in_ms));
}

static void hear_error(struct rank_state *r, const struct hth_local_error *e)
{
    struct world *w = r->world;

    r->error = *e;
    world_say(w, "rank %u: %s: %s", r->rank, hearth_strerror(e->code), e->text);
    if (r->step == R_RUN || (r->step == R_BEGUN && e->head.request != r->begun))
        return; /* of what it has given up */
    if (r->step == R_BEGUN || r->step == R_WAIT) {
        w->count[WORLD_FAILED]++;
        upgrade_judge(w, r->rank, e->text);
        after_failure(r);
        next_save(r, 100 + world_roll(w, 50));
        return;
    }
    if ((r->step == R_RECOVER || r->step == R_JOIN) && r->lineage == w->lineage &&
            w->calm == w->lineage && w->restart_ms == HTH_NEVER &&
            !(e->code == HEARTH_ELOST && (w->beyond || w->late)))
        world_broken(w, "P4: rank %u cannot recover, though only an engine was started again: %s",
                r->rank, e->text);
    if (r->step == R_RECOVER && e->code == HEARTH_ELOST)
        check_lost(w, r, e->text);
    if (r->step == R_RECOVER && e->code == HEARTH_ENOSPC && r->lineage == w->lineage)
        check_no_room(w, e->text);
    r->step = R_FAILED;
    rank_due(r, HTH_NEVER);
    world_restart(w, 100 + world_roll(w, 500), "a rank could not join or recover");
}

static void hear_event(struct rank_state *r, const struct hth_local_event *e)
{
    struct world *w = r->world;

    if (r->step != R_WAIT || (e->head.token != r->token && !r->follows) ||
            !look_same(hth_local_save_to(e->save), r->save))
        return;
    past_heard(r, e);
    if (e->code) {
        w->count[WORLD_FAILED]++;
        upgrade_judge(w, r->rank, e->text);
        some_failed(r, e->text);
        snprintf(w->heard, sizeof(w->heard), "%s", e->text);
        world_say(
                w, "rank %u: step %llu failed: %s", r->rank, (unsigned long long)r->next, e->text);
        after_failure(r);
        next_save(r, 200);
    } else if (e->level >= HEARTH_PROTECTED) {
        r->heard = hth_local_save_to(e->save);
        check_protected(w, r, r->heard, (int)e->degraded);
        w->count[WORLD_SOME] += (uint64_t)r->some;
        some_next(r);
        next_save(r, 100 + world_roll(w, 10));
    }
}

static void hear_recovered(struct rank_state *r, const struct hth_local_recovered *m)
{
    struct world *w = r->world;
    int again = r->recovered;

    w->recovered += !r->recovered && r->lineage == w->lineage;
    r->from = hth_local_save_to(m->save);
    r->recovered = 1;
    r->info = hth_local_recovery_to(&m->info);
    if (!again)
        check_recovered(w, r);
    r->next = hth_save_none(r->from) ? 1 : r->from.step + 1;
    r->somed = r->some = 0;
    next_save(r, world_roll(w, 50));
}

/* Asks for the result of the save that it had handed over to the engine before. */
static void do_follow(struct rank_state *r)
{
    struct hth_local_follow m = { .head = { sizeof(m), HTH_LOCAL_FOLLOW, ++r->request, 0 },
        .save = hth_local_save_of(r->save) };

    r->step = R_WAIT;
    rank_wait(r, decided_ms(r->world));
    rank_send(r, &m, sizeof(m), NULL, 0);
}

/* After its engine's restart a rank joins with the table it has, if the engine is not in the
 * epoch. */
static void hear_attached(struct rank_state *r, const struct hth_local_attached *m)
{
    int joined = r->epoch && m->epoch == r->epoch && m->nonce == r->nonce;

    r->attached = *m;
    rank_due(r, HTH_NEVER);
    if (r->step != R_BACK) {
        r->step = R_GATHER;
        r->world->gathers = 1;
        return;
    }
    if (joined && r->recovered && r->follows) {
        do_follow(r);
        return;
    }
    if (joined && r->recovered) {
        next_save(r, 1 + world_roll(r->world, 10));
        return;
    }
    r->step = joined ? R_RECOVER : R_JOIN;
    rank_due(r, r->world->now_ms + world_roll(r->world, 10));
}

static void hear_joined(struct rank_state *r, const struct hth_local_joined *m)
{
    r->epoch = m->epoch;
    r->nonce = m->nonce;
    reads_joined(r);
    r->step = R_RECOVER;
    r->world->asked = 1;
    rank_due(r, r->world->now_ms + world_roll(r->world, 30));
}

void rank_hear(struct rank_state *r, const struct letter *l)
{
    const struct hth_local_head *head = (const void *)l->bytes;

    if (table_heard(r, l) || reads_hear(r, l))
        return;
    switch ((enum hth_local_type)head->type) {
    case HTH_LOCAL_ERROR:
        hear_error(r, (const void *)l->bytes);
        break;
    case HTH_LOCAL_ATTACHED:
        hear_attached(r, (const void *)l->bytes);
        break;
    case HTH_LOCAL_JOINED:
        hear_joined(r, (const void *)l->bytes);
        break;
    case HTH_LOCAL_RECOVERED:
        hear_recovered(r, (const void *)l->bytes);
        break;
    case HTH_LOCAL_LENT:
        do_write(r, (const void *)l->bytes);
        break;
    case HTH_LOCAL_LET_GO:
        slots_unmap(r, ((const struct hth_local_let_go *)(const void *)l->bytes)->slot);
        break;
    case HTH_LOCAL_EVENT:
        hear_event(r, (const void *)l->bytes);
        break;
    default:
        break;
    }
}
