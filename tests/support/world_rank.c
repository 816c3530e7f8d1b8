/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of the simulated job: attach, join, recover, and then one save after the other. */
#include "content.h"
#include "world_parts.h"

#include "core/format/table.h"

#include <stdio.h>
#include <string.h>

static struct machine *machine_of(const struct rank_state *r)
{
    return &r->world->machine[r->machine];
}

void rank_send(
        struct rank_state *r, const void *bytes, size_t len, const void *attach, size_t attach_len)
{
    struct machine *m = machine_of(r);

    if (!m->node) {
        r->step = R_FAILED;
        r->act_ms = HTH_NEVER;
        world_restart(r->world, 50, "no engine to talk to");
        return;
    }
    hth_node_request(
            m->node, r->client, bytes, len, attach_len ? content_of(attach, attach_len) : NULL);
    m->due_ms = 0;
}

void rank_kill(struct rank_state *r)
{
    struct machine *m;

    if (!r->world || !r->client)
        return;
    m = machine_of(r);
    if (m->node) {
        hth_node_client_gone(m->node, r->client);
        m->due_ms = 0;
    }
    r->client = 0;
    r->step = R_NONE;
    r->act_ms = HTH_NEVER;
}

/* What a rank writes says who, when and in which launch. */
uint64_t rank_bytes(uint64_t lineage, uint64_t step, uint32_t rank, uint32_t max)
{
    uint64_t seed = lineage * 31 + step * 1009 + rank;

    return 64 + hth_splitmix64(&seed) % max;
}

void rank_fill(unsigned char *out, uint64_t len, uint64_t lineage, uint64_t step, uint32_t rank)
{
    uint64_t seed = lineage * 1000003 + step * 10007 + rank;

    memcpy(out, &lineage, 8);
    for (uint64_t i = 8; i < len; i += 8) {
        uint64_t word = hth_splitmix64(&seed);

        memcpy(out + i, &word, len - i < 8 ? len - i : 8);
    }
}

uint64_t world_common(unsigned char out[WORLD_COMMON_MAX], uint64_t lineage, uint64_t step)
{
    uint64_t len = rank_bytes(lineage, step, UINT32_MAX, WORLD_COMMON_MAX - 64);

    rank_fill(out, len, lineage, step, UINT32_MAX);
    return len;
}

/* ---- Doing ------------------------------------------------------------------------------------------ */

static void do_attach(struct rank_state *r)
{
    struct hth_local_attach m = { .head = { sizeof(m), HTH_LOCAL_ATTACH, ++r->request, 0 },
        .version = hth_version_written(HTH_FORMAT_LOCAL),
        .rank = r->rank,
        .world = r->world->ranks,
        .job = "sim" };

    r->act_ms = HTH_NEVER;
    rank_send(r, &m, sizeof(m), NULL, 0);
}

static void do_join(struct rank_state *r)
{
    struct world *w = r->world;
    static unsigned char table[4096 * HTH_GATHER];
    struct hth_local_join m = { .head = { sizeof(m), HTH_LOCAL_JOIN, ++r->request, 0 },
        .opts = { .copies = w->opts.copies,
                .min_copies = w->opts.min_copies,
                .keep = w->opts.keep,
                .recover_ms = 12000,
                .save_ms = w->opts.save_ms,
                .dead_ms = 2000 },
        .world = w->ranks,
        .rank = r->rank };

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
            .addr_len = a->addr_len,
            .rank = i,
            .world = w->ranks };

        snprintf(g.node, sizeof(g.node), "m%u", w->rank[i].machine);
        memcpy(g.addr, a->addr, sizeof(g.addr));
        hth_gather_encode(&g, table + (size_t)i * HTH_GATHER);
    }
    r->act_ms = HTH_NEVER;
    rank_send(r, &m, sizeof(m), table, (size_t)w->ranks * HTH_GATHER);
}

static void do_recover(struct rank_state *r)
{
    struct hth_local_recover m = { .head = { sizeof(m), HTH_LOCAL_RECOVER, ++r->request, 0 },
        .accept_loss = (uint32_t)r->world->opts.accept_loss };

    r->act_ms = HTH_NEVER;
    rank_send(r, &m, sizeof(m), NULL, 0);
}

static void do_begin(struct rank_state *r)
{
    struct world *w = r->world;
    uint64_t len = rank_bytes(r->lineage, r->next, r->rank, w->opts.data_max);
    struct hth_local_begin m = { .head = { sizeof(m), HTH_LOCAL_BEGIN, ++r->request, 0 },
        .step = r->next,
        .bytes = HTH_ALIGN(HTH_BLOCK + len) + hth_table_bytes(len, hth_item_bytes(0, 8)),
        .wait_ms = 3000 };

    if (!w->quiet && w->opts.faults && world_roll(w, 200) == 0) {
        w->count[WORLD_SKIP]++; /* stuck somewhere, or its begin failed alone */
        r->next++;
        r->act_ms = w->now_ms + 100;
        return;
    }
    snprintf(m.name, sizeof(m.name), "__%u__0_src%u.distcp", r->rank, r->rank);
    w->count[WORLD_SAVE]++;
    r->act_ms = HTH_NEVER;
    rank_send(r, &m, sizeof(m), NULL, 0);
}

/* One rank of each step has something for everybody. */
static void do_common(struct rank_state *r, uint64_t token)
{
    unsigned char bytes[WORLD_COMMON_MAX];
    struct hth_local_common m = { .head = { sizeof(m), HTH_LOCAL_COMMON, ++r->request, token },
        .name = WORLD_COMMON };

    m.len = world_common(bytes, r->lineage, r->next);
    rank_send(r, &m, sizeof(m), bytes, m.len);
}

/* The slot is in our hands: write, seal, commit. */
static void do_write(struct rank_state *r, const struct hth_local_lent *lent)
{
    struct world *w = r->world;
    struct hth_slot *slot = hth_node_lent(machine_of(r)->node, lent->slot);
    uint64_t len = rank_bytes(r->lineage, r->next, r->rank, w->opts.data_max);
    struct hth_item item = {
        .length = len, .kind = HTH_ITEM_BYTES, .key_len = 8, .key = "contents"
    };
    struct hth_local_seal seal = { .head = { sizeof(seal), HTH_LOCAL_SEAL, ++r->request,
                                           lent->head.token },
        .slot = lent->slot,
        .generation = lent->generation,
        .data_len = len,
        .items_len = hth_item_bytes(0, 8),
        .items = 1 };
    struct hth_local_head commit = { sizeof(commit), HTH_LOCAL_COMMIT, 0, lent->head.token };

    if (!slot) {
        world_broken(w, "rank %u: the slot it was lent is not there", r->rank);
        return;
    }
    rank_fill(slot->base + HTH_BLOCK, len, r->lineage, r->next, r->rank);
    hth_item_encode(&item, slot->base + HTH_ALIGN(HTH_BLOCK + len) + HTH_TABLE_HEAD);
    r->token = lent->head.token;
    r->save = hth_local_save_to(lent->save);
    r->step = R_WAIT;
    rank_send(r, &seal, sizeof(seal), NULL, 0);
    if (r->step == R_WAIT && r->rank == r->next % w->ranks)
        do_common(r, lent->head.token);
    commit.request = ++r->request;
    if (r->step == R_WAIT)
        rank_send(r, &commit, sizeof(commit), NULL, 0);
    if (r->step == R_WAIT)
        r->act_ms = w->now_ms + w->opts.save_ms + 5500; /* nothing waits for ever */
}

void rank_act(struct rank_state *r)
{
    if (r->step == R_WAIT && r->lineage == r->world->lineage && r->world->restart_ms == HTH_NEVER)
        world_broken(r->world, "P4: rank %u waits for step %llu for ever", r->rank,
                (unsigned long long)r->next);
    r->act_ms = HTH_NEVER;
    if (r->step == R_ATTACH || r->step == R_BACK)
        do_attach(r);
    else if (r->step == R_JOIN)
        do_join(r);
    else if (r->step == R_RECOVER)
        do_recover(r);
    else if (r->step == R_RUN)
        do_begin(r);
}

/* ---- Hearing ------------------------------------------------------------------------------------------ */

static void next_save(struct rank_state *r, uint64_t in_ms)
{
    r->step = R_RUN;
    r->act_ms = r->world->now_ms + in_ms;
}

/* The same step once more, with other bytes, or the next one: all ranks think alike. */
static void after_failure(struct rank_state *r)
{
    if ((r->next * 7 + r->lineage) % 2 && r->tried != r->next) {
        r->tried = r->next;
        r->world->count[WORLD_AGAIN]++;
    } else {
        r->next++;
    }
}

static void hear_error(struct rank_state *r, const struct hth_local_error *e)
{
    struct world *w = r->world;

    r->error = *e;
    world_say(w, "rank %u: %s: %s", r->rank, hearth_strerror(e->code), e->text);
    if (r->step == R_RUN || r->step == R_WAIT) {
        w->count[WORLD_FAILED]++;
        after_failure(r);
        next_save(r, 100 + world_roll(w, 50));
        return;
    }
    if ((r->step == R_RECOVER || r->step == R_JOIN) && r->lineage == w->lineage &&
            w->calm == w->lineage && w->restart_ms == HTH_NEVER)
        world_broken(w, "P4: rank %u cannot recover, though only an engine was started again: %s",
                r->rank, e->text);
    if (r->step == R_RECOVER && e->code == HEARTH_ELOST)
        world_broken(w, "rank %u cannot recover: %s", r->rank, e->text);
    r->step = R_FAILED;
    world_restart(w, 100 + world_roll(w, 500), "a rank could not join or recover");
}

static void hear_event(struct rank_state *r, const struct hth_local_event *e)
{
    struct world *w = r->world;

    if (r->step != R_WAIT || e->head.token != r->token)
        return;
    if (e->code) {
        w->count[WORLD_FAILED]++;
        snprintf(w->heard, sizeof(w->heard), "%s", e->text);
        world_say(
                w, "rank %u: step %llu failed: %s", r->rank, (unsigned long long)r->next, e->text);
        after_failure(r);
        next_save(r, 200);
    } else if (e->level >= HEARTH_PROTECTED) {
        check_protected(w, r, hth_local_save_to(e->save));
        r->next++;
        next_save(r, 100 + world_roll(w, 10));
    }
}

static void hear_recovered(struct rank_state *r, const struct hth_local_recovered *m)
{
    struct world *w = r->world;

    r->from = hth_local_save_to(m->save);
    r->recovered = 1;
    r->info = hth_local_recovery_to(&m->info);
    check_recovered(w, r);
    r->next = hth_save_none(r->from) ? 1 : r->from.step + 1;
    next_save(r, world_roll(w, 50));
}

/* After its engine's restart a rank joins with the table it has, if the engine is not in the epoch. */
static void hear_attached(struct rank_state *r, const struct hth_local_attached *m)
{
    int joined = r->epoch && m->epoch == r->epoch && m->nonce == r->nonce;

    r->attached = *m;
    if (r->step != R_BACK) {
        r->step = R_GATHER;
        return;
    }
    if (joined && r->recovered) {
        next_save(r, 1 + world_roll(r->world, 10));
        return;
    }
    r->step = joined ? R_RECOVER : R_JOIN;
    r->act_ms = r->world->now_ms + world_roll(r->world, 10);
}

void rank_hear(struct rank_state *r, const struct letter *l)
{
    const struct hth_local_head *head = (const void *)l->bytes;

    switch ((enum hth_local_type)head->type) {
    case HTH_LOCAL_ERROR:
        hear_error(r, (const void *)l->bytes);
        break;
    case HTH_LOCAL_ATTACHED:
        hear_attached(r, (const void *)l->bytes);
        break;
    case HTH_LOCAL_JOINED:
        r->epoch = ((const struct hth_local_joined *)(const void *)l->bytes)->epoch;
        r->nonce = ((const struct hth_local_joined *)(const void *)l->bytes)->nonce;
        r->step = R_RECOVER;
        r->act_ms = r->world->now_ms + world_roll(r->world, 30);
        break;
    case HTH_LOCAL_RECOVERED:
        hear_recovered(r, (const void *)l->bytes);
        break;
    case HTH_LOCAL_LENT:
        do_write(r, (const void *)l->bytes);
        break;
    case HTH_LOCAL_EVENT:
        hear_event(r, (const void *)l->bytes);
        break;
    default:
        break;
    }
}
