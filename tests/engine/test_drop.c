/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a job, said by ranks to engines in virtual time: words that get lost, nodes that miss
 * it, ranks that do not count. */
#include "check.h"
#include "world_parts.h"

#include "core/base/bytes.h"
#include "replication/held/holdings.h"
#include "replication/transfer/transfer.h"
#include "replication/tree/tree.h"
#include "transport/session/frame.h"
#include <unistd.h>

#define NODES 3u
#define SOON  10000u /* ms */

static struct world w;
static uint32_t lost[2];  /* of CLOSE, of DROP */
static uint32_t deaf;     /* machine + 1 that receives no DROP; 0: none */
static uint64_t all_said; /* CLOSE and DROP, received or not */
/* The last OFFER to node 0, and what it has answered to those since `answers` was set to 0. */
static struct {
    size_t len;
    unsigned char body[4096];
} offer;
static uint32_t answers, wants;

static void note_offers(const struct hth_frame *f, uint32_t from, uint32_t to)
{
    int to_0 = to == w.machine[w.member[0]].port, from_0 = from == w.machine[w.member[0]].port;

    if (f->type == HTH_MSG_OFFER && to_0 && f->body_len <= sizeof(offer.body)) {
        offer.len = f->body_len;
        memcpy(offer.body, f->body, f->body_len);
    }
    answers += f->type == HTH_MSG_NAK && from_0;
    wants += f->type == HTH_MSG_WANT && from_0;
}

static struct hth_loop_verdict unreliable(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };
    uint32_t most = *(uint32_t *)arg;
    struct hth_frame f;

    if (kind != HTH_LOOP_MESSAGE || hth_frame_decode(&f, bytes, len, NULL))
        return v;
    note_offers(&f, from, to);
    if (f.type == HTH_MSG_UP && hth_get16(f.body + 4) == HTH_KIND_CLOSE) {
        all_said++;
        if (lost[0]++ < most)
            v.fault = HTH_LOOP_DROP;
    } else if (f.type == HTH_MSG_DOWN && hth_get16(f.body) == HTH_KIND_DROP) {
        all_said++;
        if (lost[1]++ < most || (deaf && to == w.machine[deaf - 1].port))
            v.fault = HTH_LOOP_DROP;
    }
    return v;
}

static uint32_t most_lost;

static void start(void)
{
    struct world_opts o = { .seed = 1,
        .nodes = NODES,
        .ranks_per_node = 2,
        .copies = 1,
        .keep = 1,
        .run_ms = 600000,
        .data_max = 100 };

    alarm(60);
    lost[0] = lost[1] = deaf = most_lost = 0;
    all_said = offer.len = answers = wants = 0;
    world_open(&w, &o);
    while (!w.why[0] && hth_save_none(w.newest.id))
        world_advance(&w, w.now_ms + 1);
    hth_loop_net_script(w.net, unreliable, &most_lost);
}

static void end(void)
{
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    world_close(&w);
}

TestSuite(drop, .init = start, .fini = end);

static void close_rank(uint32_t rank, enum hearth_leave leave)
{
    struct rank_state *r = &w.rank[rank];
    struct hth_local_close m = { .head = { sizeof(m), HTH_LOCAL_CLOSE, ++r->request, 0 },
        .leave = leave };

    hth_node_request(w.machine[r->machine].node, r->client, &m, sizeof(m), NULL);
    rank_kill(r);
}

static void close_all(enum hearth_leave leave)
{
    for (uint32_t r = 0; r < w.ranks; r++)
        close_rank(r, leave);
}

static int all_done(void)
{
    for (uint32_t k = 0; k < NODES; k++)
        if (!hth_node_done(world_node(&w, k)))
            return 0;
    return 1;
}

static uint32_t saves_at(uint32_t node)
{
    uint32_t n = 0;

    for (struct hth_held_save *s = hth_holdings_first(hth_node_ctx(world_node(&w, node))); s;
            s = s->next)
        n += !s->removed;
    return n;
}

/* No rank is there that a launcher would start again. */
static void pass(uint64_t ms)
{
    for (uint64_t until = w.now_ms + ms; !w.why[0] && w.now_ms < until && !all_done();) {
        world_advance(&w, w.now_ms + 1);
        w.restart_ms = HTH_NEVER;
    }
}

/* A job of that name again: it begins with nothing, and saves. */
static void the_next_job_begins(void)
{
    uint64_t scratch = w.count[WORLD_SCRATCH];

    w.newest = (struct known_save){ { 0 }, 0 };
    world_restart(&w, 1, "the next job");
    for (uint64_t until = w.now_ms + SOON;
            hth_save_none(w.newest.id) && !w.why[0] && w.now_ms < until;)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    for (uint32_t r = 0; r < w.ranks; r++) {
        const struct hth_local_error *e = world_error(&w, r);

        cr_assert(eq(int, e != NULL, 0), "rank %u: %s", r, e->text);
    }
    cr_assert(eq(u64, w.count[WORLD_SCRATCH], scratch + w.ranks));
    cr_assert(eq(int, hth_save_none(w.newest.id), 0));
    cr_assert(eq(int, all_done(), 0));
}

Test(drop, frees_everything_whatever_gets_lost)
{
    most_lost = 4;
    close_all(HEARTH_DROP);
    pass(SOON);
    cr_assert(eq(int, all_done(), 1));
    for (uint32_t k = 0; k < NODES; k++) {
        cr_assert(eq(u32, saves_at(k), 0));
        cr_assert(eq(int, (int)hth_node_leftover(world_node(&w, k)), HTH_LEAVE_NOTHING));
    }
    the_next_job_begins();
}

Test(drop, one_rank_that_keeps_keeps_all_and_is_not_asked_for_ever)
{
    for (uint32_t r = 0; r < w.ranks; r++)
        close_rank(r, r == 3 ? HEARTH_KEEP : HEARTH_DROP);
    pass(600000);
    for (uint32_t k = 0; k < NODES; k++) {
        cr_assert(eq(int, hth_node_done(world_node(&w, k)), 0));
        cr_assert(ge(u32, saves_at(k), 1));
        cr_assert(eq(int, (int)hth_node_leftover(world_node(&w, k)), HTH_LEAVE_ALL));
    }
    cr_assert(le(u64, all_said, 40)); /* in ten minutes */
}

Test(drop, a_rank_counts_once_and_only_in_its_epoch)
{
    struct hth_local_close m = { .leave = HEARTH_DROP };
    struct rank_state *r = &w.rank[0];
    uint64_t epoch = hth_node_ctx(world_node(&w, 0))->epoch->epoch;
    struct hth_local_attach a = {
        .version = hth_version_written(HTH_FORMAT_LOCAL), .rank = 1, .world = w.ranks
    };

    memcpy(a.job, "sim", 4);
    close_rank(0, HEARTH_DROP);
    hth_node_client_gone(w.machine[r->machine].node, r->client);
    hth_node_client_gone(w.machine[r->machine].node, w.rank[1].client);
    for (uint32_t i = 1; i <= 2; i++) { /* another process of the rank; one of the epoch before */
        a.head = (struct hth_local_head){ sizeof(a), HTH_LOCAL_ATTACH, i, 0 };
        a.rank = i == 1 ? 0 : 1;
        a.epoch = epoch - (i - 1);
        a.nonce = hth_node_ctx(world_node(&w, 0))->epoch->nonce;
        hth_node_request(w.machine[r->machine].node, 77770 + i, &a, sizeof(a), NULL);
        m.head = (struct hth_local_head){ sizeof(m), HTH_LOCAL_CLOSE, i, 0 };
        hth_node_request(w.machine[r->machine].node, 77770 + i, &m, sizeof(m), NULL);
        hth_node_client_gone(w.machine[r->machine].node, 77770 + i);
    }
    for (uint32_t i = 2; i < w.ranks; i++)
        close_rank(i, HEARTH_DROP);
    pass(SOON);
    cr_assert(eq(int, hth_node_done(world_node(&w, 0)), 0));
    cr_assert(ge(u32, saves_at(0), 1));
}

static void miss_it(uint32_t machine)
{
    deaf = machine + 1;
    close_all(HEARTH_DROP);
    pass(SOON);
    for (uint32_t k = 0; k < NODES; k++)
        cr_assert(eq(int, saves_at(k) > 0, k == machine), "node %u has %u saves", k, saves_at(k));
    cr_assert(eq(int, hth_node_done(world_node(&w, 0)), 1)); /* it has waited long enough */
    cr_assert(eq(int, (int)hth_node_leftover(world_node(&w, 0)), HTH_LEAVE_RECORDS));
    deaf = 0;
}

/* The node holds half of a checkpoint that was PROTECTED. To free it is not a loss, since the job
 * was closed with HEARTH_DROP. */
Test(drop, a_node_that_missed_it_gives_up_its_saves_when_the_next_job_begins)
{
    miss_it(2);
    the_next_job_begins();
}

Test(drop, the_record_of_it_outlives_the_engines)
{
    miss_it(1);
    for (uint32_t k = 0; k < NODES; k++)
        machine_stop(&w, w.member[k]);
    the_next_job_begins();
}

Test(drop, a_job_that_begins_meanwhile_begins_with_nothing)
{
    close_all(HEARTH_DROP);
    for (uint64_t until = w.now_ms + SOON; saves_at(0) && !w.why[0] && w.now_ms < until;) {
        world_advance(&w, w.now_ms + 1);
        w.restart_ms = HTH_NEVER;
    }
    cr_assert(eq(int, all_done(), 0)); /* it is under way */
    the_next_job_begins();
}

/* A node that missed the end still offers its objects to those that have freed everything. */
Test(drop, no_copy_is_taken_of_a_job_that_was_dropped)
{
    struct hth_ctx *ctx;

    for (uint64_t until = w.now_ms + SOON; !offer.len && !w.why[0] && w.now_ms < until;)
        world_advance(&w, w.now_ms + 1);
    cr_assert(gt(sz, offer.len, 0));
    most_lost = 0;
    close_all(HEARTH_DROP);
    for (uint64_t until = w.now_ms + SOON; saves_at(0) && !w.why[0] && w.now_ms < until;) {
        world_advance(&w, w.now_ms + 1);
        w.restart_ms = HTH_NEVER;
    }
    cr_assert(eq(int, hth_node_done(world_node(&w, 0)), 0)); /* it still answers */
    ctx = hth_node_ctx(world_node(&w, 0));
    answers = wants = 0;
    hth_transfer_message(ctx, 1, HTH_MSG_OFFER, offer.body, offer.len);
    for (uint64_t until = w.now_ms + 500; !w.why[0] && w.now_ms < until && !answers;) {
        world_advance(&w, w.now_ms + 1);
        w.restart_ms = HTH_NEVER;
    }
    cr_assert(eq(u32, wants, 0));
    cr_assert(eq(u32, answers, 1));
    cr_assert(eq(u32, saves_at(0), 0));
}
