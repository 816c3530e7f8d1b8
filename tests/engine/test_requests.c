/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of ranks in any order. Four connections (two ranks of a node, and a helper of each) send
 * an engine in virtual time requests that are nearly right: tokens, slots, leases and saves are
 * those that it gave out, mostly. Whatever they say: the engine answers each request once, keeps
 * nothing for connections that are gone, and the job's ranks go on to a PROTECTED save with the
 * pool as it is owed.
 *
 * HEARTH_TEST_SEEDS=FIRST-LAST: other seeds than the first few.
 */
#include "check.h"
#include "content.h"
#include "played_meeting.h"
#include "saving.h"
#include <hearth/read.h>

#include "core/format/ranks.h"
#include "core/format/table.h"
#include "engine/saves/begin.h"
#include "engine/saves/loan.h"
#include "engine/state/client.h"
#include "engine/state/node_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST   90000u /* connections that are no ranks of the world */
#define CLIENTS 4u
#define SEEDS   16u
#define STEPS   150u
#define STEP    100000u /* every rank of the world has long saved less */
#define ROOM    (UINT64_C(1) << 20)
#define GIVEN   8u

struct told {
    uint64_t token, slot, generation;
    uint32_t client;
};

static struct world w;
static struct played_meeting meeting; /* of node 0 */
static uint64_t dice, request;
static uint32_t client[CLIENTS]; /* 0: none */
static struct {
    uint64_t request;
    uint32_t client;
} asked[4096]; /* and not answered */
static uint32_t opens, last_client;
static struct told lent[GIVEN];
static struct hth_local_save save[GIVEN];
static struct hth_local_given given[GIVEN];
static uint64_t lease[GIVEN];

static uint32_t roll(uint32_t sides)
{
    return world_roll_of(&dice, sides);
}

/* One of what was given out, or something near it. */
static uint64_t nearly(uint64_t value)
{
    switch (roll(40)) {
    case 0:
        return value + 1;
    case 1:
        return roll(4);
    case 2:
        return UINT64_MAX - roll(2);
    default:
        return value;
    }
}

/* The newest that the speaker was lent, mostly. */
static const struct told *any_lent(void)
{
    if (roll(8))
        for (uint32_t i = 0; i < GIVEN; i++)
            if (lent[i].client == last_client && roll(4))
                return &lent[i];
    return &lent[roll(GIVEN)];
}

static struct hth_local_save any_save(void)
{
    struct hth_local_save s = save[roll(GIVEN)];

    if (roll(8) == 0)
        s = hth_local_save_of(w.newest.id);
    if (roll(10) == 0)
        s.step = nearly(s.step);
    if (roll(10) == 0)
        s.attempt = (uint32_t)nearly(s.attempt);
    if (roll(16) == 0)
        s.epoch = nearly(s.epoch);
    return s;
}

/* ---- answers and events ---------------------------------------------------------------------- */

static int is_here(uint32_t id)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        if (client[i] == id)
            return id >= FIRST;
    return 0;
}

static void answered(uint64_t number)
{
    for (uint32_t i = 0; i < opens; i++)
        if (asked[i].request == number) {
            asked[i] = asked[--opens];
            return;
        }
    cr_assert(zero(u64, number), "an answer to request %llu, which is not open",
            (unsigned long long)number);
}

static void hear(struct world *world, const struct letter *l)
{
    const struct hth_local_head *h = (const void *)l->bytes;
    const void *m = h;

    (void)world;
    if (l->machine || !is_here(l->client))
        return;
    if (h->request)
        answered(h->request);
    if (h->type == HTH_LOCAL_LENT) {
        const struct hth_local_lent *a = m;

        memmove(lent + 1, lent, sizeof(lent) - sizeof(lent[0]));
        lent[0] = (struct told){ h->token, a->slot, a->generation, l->client };
        if (a->save.epoch)
            save[roll(GIVEN)] = a->save;
    } else if (h->type == HTH_LOCAL_SAVE_ID) {
        save[roll(GIVEN)] = ((const struct hth_local_save_id *)m)->save;
    } else if (h->type == HTH_LOCAL_TAKEN) {
        const struct hth_local_taken *a = m;

        memmove(lent + 1, lent, sizeof(lent) - sizeof(lent[0]));
        lent[0] = (struct told){ h->token, a->slot, a->generation, l->client };
    } else if (h->type == HTH_LOCAL_GIVEN) {
        memmove(given + 1, given, sizeof(given) - sizeof(given[0]));
        given[0] = *(const struct hth_local_given *)m;
    } else if (h->type == HTH_LOCAL_MAPPED) {
        lease[roll(GIVEN)] = ((const struct hth_local_mapped *)m)->lease;
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

static void say(void *m, size_t len, uint32_t type, uint64_t token, struct hth_content *content)
{
    struct hth_local_head head = { (uint32_t)len, type, ++request, token };
    struct hth_node *node = world_node(&w, 0);

    memcpy(m, &head, sizeof(head));
    cr_assert(lt(u32, opens, 4096u));
    asked[opens].request = request;
    asked[opens++].client = last_client;
    hth_node_request(node, last_client, m, len, content);
    machine_touch(&w, 0);
}

static void say_head(uint32_t type)
{
    struct hth_local_head m;

    say(&m, sizeof(m), type, nearly(any_lent()->token), NULL);
}

static void attach(uint32_t i)
{
    struct hth_local_attach m = { .version = hth_version_written(HTH_FORMAT_LOCAL),
        .rank = i % 2,
        .world = 4,
        .pid = 4711 + i,
        .helper = i >= 2,
        .epoch = w.rank[0].epoch,
        .nonce = w.rank[0].nonce,
        .ahead = i < 2 && roll(4),
        .job = "sim" };

    say(&m, sizeof(m), HTH_LOCAL_ATTACH, 0, NULL);
}

/* Mostly the speaker's rank alone, since the other node's ranks save nothing. */
static size_t put_ranks(unsigned char *out)
{
    uint32_t own = (last_client - FIRST) % 2, first = roll(8) ? own : 1 - own;
    struct hth_ranks ranks = { .runs = 1, .run = { { .first = first, .count = 1, .step = 1 } } };

    if (roll(6) == 0)
        return 0;
    hth_ranks_encode(&ranks, out);
    return hth_ranks_bytes(&ranks);
}

/* Steps go forward, mostly. */
static uint64_t any_step(void)
{
    return STEP + request / 8 + roll(3);
}

static void begin(void)
{
    struct {
        struct hth_local_begin m;
        unsigned char runs[HTH_RANK_RUNS * HTH_RANK_RUN_BYTES];
    } p = { .m = { .step = roll(4) ? any_step() : UINT64_MAX,
                    .bytes = roll(10) ? HTH_BLOCK * (2 + roll(3)) : nearly(ROOM),
                    .wait_ms = roll(3) ? 0 : roll(2000),
                    .cancel_old = roll(5) == 0,
                    .attempt = roll(3) ? 0 : 1 + roll(4) } };
    uint64_t token = roll(3) ? 0 : nearly(any_lent()->token);
    size_t len = sizeof(p.m) + put_ranks(p.runs);

    if (token || !roll(20))
        p.m.index = 1 + roll(2);
    snprintf(p.m.name, sizeof(p.m.name), "object%u", p.m.index + (roll(4) == 0));
    say(&p, len, HTH_LOCAL_BEGIN, token, NULL);
}

static void set_step(void)
{
    struct hth_local_set_step m = { .step = any_step(),
        .wait_ms = roll(3) ? 0 : roll(1000),
        .attempt = roll(3) ? 0 : 1 + roll(3) };

    say(&m, sizeof(m), HTH_LOCAL_SET_STEP, nearly(any_lent()->token), NULL);
}

/* If the slot is lent to us, its item is written there as the message describes it. */
static void seal(void)
{
    const struct told *l = any_lent();
    struct hth_local_seal m = { .slot = l->slot,
        .generation = nearly(l->generation),
        .data_len = nearly(roll(HTH_BLOCK)),
        .items_len = nearly(hth_item_bytes(0, 8)),
        .items = 1,
        .index = roll(4) ? 0 : roll(3) };
    struct hth_slot *slot = hth_node_lent(world_node(&w, 0), l->slot);
    struct hth_item item = {
        .length = m.data_len, .kind = HTH_ITEM_BYTES, .key_len = 8, .key = "contents"
    };
    uint64_t at = HTH_ALIGN(HTH_BLOCK + m.data_len) + HTH_TABLE_HEAD;

    if (slot && m.data_len < HTH_BLOCK && at + hth_item_bytes(0, 8) <= slot->capacity)
        hth_item_encode(&item, slot->base + at);
    say(&m, sizeof(m), HTH_LOCAL_SEAL, nearly(l->token), NULL);
}

static void common(uint32_t type)
{
    struct hth_local_common m = { .save = any_save(), .len = roll(64) };
    unsigned char bytes[64] = { 1 };
    struct hth_content *content =
            type == HTH_LOCAL_COMMON && roll(6) ? content_of(bytes, nearly(m.len) % 64) : NULL;

    snprintf(m.name, sizeof(m.name), roll(8) ? "common%u" : "../common%u", roll(3));
    say(&m, sizeof(m), type, nearly(any_lent()->token), content);
}

static void follow(void)
{
    struct hth_local_follow m = { .save = any_save() };

    say(&m, sizeof(m), HTH_LOCAL_FOLLOW, HTH_LOCAL_OWN | roll(4), NULL);
}

static void regain(void)
{
    struct {
        struct hth_local_regain m;
        unsigned char runs[HTH_RANK_RUNS * HTH_RANK_RUN_BYTES];
    } p = { .m = { .save = any_save(),
                    .slot = nearly(any_lent()->slot),
                    .generation = nearly(any_lent()->generation),
                    .bytes = HTH_BLOCK * (2 + roll(3)),
                    .index = roll(4) ? 0 : roll(3) } };

    if (roll(4) == 0)
        p.m.save.epoch = 0;
    snprintf(p.m.name, sizeof(p.m.name), "object%u", roll(3));
    say(&p, sizeof(p.m) + put_ranks(p.runs), HTH_LOCAL_REGAIN, HTH_LOCAL_OWN | roll(4), NULL);
}

static void meet(void)
{
    struct hth_local_meet m = { .left_ms = roll(2000) };

    meeting.refuses = roll(6) ? 0 : HEARTH_EINVAL;
    say(&m, sizeof(m), HTH_LOCAL_MEET, 0, NULL);
}

/* The meeting ends for that rank, if the rank waits for it. */
static void meeting_says(uint32_t rank, int code)
{
    if (!meeting.waits[rank])
        return;
    meeting.waits[rank] = 0;
    hth_node_met(world_node(&w, 0), rank, 1 + roll(2), code, "the ranks have not met");
    machine_touch(&w, 0);
}

static void table_comes(void)
{
    struct hth_buf *table = hth_buf_of("a table", 1 + roll(7));

    cr_assert(ne(ptr, table, NULL));
    hth_node_table(world_node(&w, 0), 1 + roll(2), table);
    hth_buf_put(table);
}

static void map(uint32_t type)
{
    struct hth_local_map m = { .save = any_save(),
        .object = hth_object_id(roll(4), roll(8) ? 0 : roll(3)),
        .off = nearly(0),
        .len = nearly(roll(100)) };

    say(&m, sizeof(m), type, 0, NULL);
}

static void give(void)
{
    struct hth_local_give m = {
        .written = { .room = nearly(HTH_BLOCK), .data_len = roll(HTH_BLOCK), .has_bytes = roll(2) }
    };

    say(&m, sizeof(m), HTH_LOCAL_GIVE, any_lent()->token, NULL);
}

static void take(void)
{
    const struct hth_local_given *g = &given[roll(2) ? 0 : roll(GIVEN)];
    struct hth_local_take m = { .secret = { g->secret[0], nearly(g->secret[1]) } };

    say(&m, sizeof(m), HTH_LOCAL_TAKE, g->head.token, NULL);
}

static void ask_else(void)
{
    struct hth_local_find find = { .step = roll(2) ? HEARTH_STEP_NEWEST : any_step(),
        .wait_ms = roll(3000) };
    struct hth_local_bad bad = {
        .save = any_save(), .object = hth_object_id(roll(4), 0), .chunk = nearly(0)
    };
    struct hth_local_unmap unmap = { .lease = nearly(lease[roll(GIVEN)]) };
    struct hth_local_recover recover = { .deadline_ms = roll(5000) };

    switch (roll(7)) {
    case 0:
        find.save = roll(2) ? any_save() : (struct hth_local_save){ 0 };
        say(&find, sizeof(find), HTH_LOCAL_FIND, 0, NULL);
        break;
    case 1:
        say(&bad, sizeof(bad), HTH_LOCAL_BAD, 0, NULL);
        break;
    case 2:
        say_head(roll(2) ? HTH_LOCAL_STATUS : HTH_LOCAL_KEPT);
        break;
    case 3:
        say(&recover, sizeof(recover), HTH_LOCAL_RECOVER, 0, NULL);
        break;
    case 4:
        meet();
        break;
    default:
        say(&unmap, sizeof(unmap), HTH_LOCAL_UNMAP, 0, NULL);
        break;
    }
}

static void say_any(void)
{
    static const uint32_t with_map[] = { HTH_LOCAL_MAP, HTH_LOCAL_RANGE, HTH_LOCAL_MANIFEST };

    switch (roll(16)) {
    case 0:
    case 1:
    case 2:
        begin();
        break;
    case 3:
        set_step();
        break;
    case 4:
    case 5:
        seal();
        break;
    case 6:
        common(roll(3) ? HTH_LOCAL_COMMON : HTH_LOCAL_COMMON_GET);
        break;
    case 7:
    case 8:
        say_head(HTH_LOCAL_COMMIT);
        break;
    case 9:
        say_head(roll(2) ? HTH_LOCAL_ABORT : HTH_LOCAL_CANCEL);
        break;
    case 10:
        follow();
        break;
    case 11:
        regain();
        break;
    case 12:
        map(with_map[roll(3)]);
        break;
    case 13:
        give();
        break;
    case 14:
        take();
        break;
    default:
        ask_else();
        break;
    }
}

/* ---- the oracle ------------------------------------------------------------------------------ */

/* The world's judge knows none of our saves; what must be true is asked below. */
static void advance(uint64_t ms)
{
    uint64_t until_ms = w.now_ms + ms;

    do {
        w.why[0] = '\0';
        world_advance(&w, until_ms);
    } while (w.why[0] && w.now_ms < until_ms);
    w.why[0] = '\0';
}

static void client_ends(uint32_t i)
{
    if (!client[i])
        return;
    hth_node_client_gone(world_node(&w, 0), client[i]);
    machine_touch(&w, 0);
    for (uint32_t k = 0; k < opens;)
        if (asked[k].client == client[i])
            asked[k] = asked[--opens];
        else
            k++;
    client[i] = 0;
}

/* Answers that are due at once have come, and so have those that had a deadline. */
static void all_are_answered(uint64_t seed)
{
    for (uint32_t rank = 0; rank < 2; rank++)
        meeting_says(rank, HEARTH_ETIMEOUT);
    for (int i = 0; i < 400 && opens; i++)
        advance(100);
    cr_assert(eq(u32, opens, 0u), "seed %llu: request %llu of %llu has no answer",
            (unsigned long long)seed, (unsigned long long)asked[0].request,
            (unsigned long long)request);
}

static void nothing_is_kept(uint64_t seed)
{
    const struct hth_node *n = world_node(&w, 0);

    for (const struct loan *l = n->loans; l; l = l->next)
        cr_assert(lt(u32, l->client, FIRST), "seed %llu: a loan", (unsigned long long)seed);
    for (const struct client *c = n->clients; c; c = c->next)
        cr_assert(lt(u32, c->id, FIRST), "seed %llu: a client", (unsigned long long)seed);
    cr_assert(eq(ptr, n->leases, NULL));
    cr_assert(eq(ptr, n->pending, NULL));
    cr_assert(eq(ptr, n->finds, NULL));
    cr_assert(eq(ptr, n->bad_copies, NULL));
    cr_assert(eq(ptr, n->meetings, NULL));
}

/* A slot that is lent is in a rank's hands. */
static void no_slot_is_forgotten(uint64_t seed)
{
    for (uint32_t m = 0; m < 2; m++)
        for (const struct slot *s = mem_of(w.machine[m].store)->slots; s; s = s->next)
            cr_assert(s->state != HELD || hth_node_lent(w.machine[m].node, s->pub.id) != NULL,
                    "seed %llu: slot %llu of machine %u is lent, and no rank has it",
                    (unsigned long long)seed, (unsigned long long)s->pub.id, m);
}

static void the_job_goes_on(uint64_t seed)
{
    struct known_save before = w.newest;
    int i;

    world_restart(&w, 50, "the ranks that sent the requests are gone");
    for (i = 0; i < 600 && (hth_save_cmp(w.newest.id, before.id) <= 0 || w.restart_ms != HTH_NEVER);
            i++)
        advance(100);
    cr_assert(gt(int, hth_save_cmp(w.newest.id, before.id), 0),
            "seed %llu: no save was PROTECTED: %s", (unsigned long long)seed, w.heard);
    w.resting = 1;
    for (i = 0; i < 200 && !check_pool(&w); i++)
        advance(100);
    cr_assert(lt(int, i, 200), "seed %llu: %s", (unsigned long long)seed, w.pool);
    no_slot_is_forgotten(seed);
}

static void run(uint64_t seed)
{
    dice = seed;
    opens = 0;
    request = 0;
    memset(lent, 0, sizeof(lent));
    memset(save, 0, sizeof(save));
    memset(given, 0, sizeof(given));
    memset(lease, 0, sizeof(lease));
    memset(client, 0, sizeof(client));
    saving_open(&w, 2, 1);
    w.stranger = hear;
    played_meeting_begin(&meeting, &w, 0);
    hth_store_mem_room(w.machine[0].store, ROOM);
    for (uint32_t i = 0; i < 2; i++) /* their places are ours */
        hth_node_client_gone(world_node(&w, 0), w.rank[i].client);
    for (uint32_t i = 0; i < w.ranks; i++)
        rank_due(&w.rank[i], HTH_NEVER);
    for (uint32_t i = 0; i < STEPS && world_node(&w, 0); i++) {
        uint32_t c = roll(CLIENTS);

        last_client = client[c];
        if (client[c] && roll(30) == 0) {
            if (roll(2))
                all_are_answered(seed);
            client_ends(c);
        } else if (!client[c]) {
            client[c] = last_client = FIRST + 4 * i + c;
            attach(c);
        } else {
            say_any();
        }
        if (roll(10) == 0)
            table_comes();
        if (roll(6) == 0)
            meeting_says(roll(2), roll(2) ? HEARTH_OK : HEARTH_ETIMEOUT);
        if (roll(3))
            advance(roll(8) ? 1 : roll(1000));
    }
    cr_assert(ne(ptr, world_node(&w, 0), NULL), "seed %llu: the engine has ended",
            (unsigned long long)seed);
    all_are_answered(seed);
    for (uint32_t i = 0; i < CLIENTS; i++)
        client_ends(i);
    advance(1000);
    nothing_is_kept(seed);
    hth_store_mem_room(w.machine[0].store, 0);
    the_job_goes_on(seed);
    world_close(&w);
}

Test(requests, in_any_order_are_answered_once_and_leave_nothing, .timeout = 600)
{
    unsigned long long first = 1, last = SEEDS;
    const char *seeds = getenv("HEARTH_TEST_SEEDS");

    if (seeds)
        cr_assert(eq(int, sscanf(seeds, "%llu-%llu", &first, &last), 2));
    for (uint64_t seed = first; seed <= last; seed++) {
        alarm(60);
        run(seed);
    }
}
