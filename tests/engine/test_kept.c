/* SPDX-License-Identifier: Apache-2.0 */
/* Saves that are kept and are not the newest, in virtual time: found on every node after a restart,
 * and brought back when they have lost a copy. */
#include "ours.h"

#include "core/local/wish.h"
#include "replication/held/holdings.h"
#include "replication/tree/tree.h"
#include "transport/session/frame.h"
#include <hearth/read.h>

#include <string.h>

#define NODES 4u
#define KEEP  3u
#define OLD   2u     /* place on the list of the save that things happen to */
#define IDLE  70000u /* ms: more than an idle connection lasts */

static struct hth_keep list;
static unsigned char written[KEEP][NODES][512]; /* by each rank */

static struct hth_ctx *ctx_of(uint32_t at)
{
    return hth_node_ctx(world_node(&w, at));
}

static struct hth_held *shard(uint32_t at, struct hth_save_id id, uint32_t owner)
{
    struct hth_held_save *s = hth_holdings_find(ctx_of(at), id);
    struct hth_held *h = s ? s->held : NULL;

    while (h && (h->object.kind != HTH_OBJECT_SHARD || h->object.owner != owner))
        h = h->next;
    return h;
}

/* Ranks that would begin a save are held back. 1: that is all ranks. */
static int hold_ranks(void)
{
    uint32_t held = 0;

    for (uint32_t r = 0; r < w.ranks; r++)
        if (w.rank[r].step == R_RUN && w.rank[r].recovered) {
            rank_due(&w.rank[r], HTH_NEVER);
            held++;
        }
    return held == w.ranks;
}

/* The list is full, and no rank begins another save. */
static void start_tree(uint32_t degree)
{
    struct world_opts o = { .seed = 1,
        .degree = degree,
        .nodes = NODES,
        .ranks_per_node = 1,
        .copies = 1,
        .keep = KEEP,
        .run_ms = 600000,
        .data_max = 100 };

    alarm(60);
    world_open(&w, &o);
    w.stranger = hear;
    while (!w.why[0] && !(w.count[WORLD_PROTECTED] >= (KEEP + 1) * w.ranks && hold_ranks()))
        world_advance(&w, w.now_ms + 1);
    world_advance(&w, w.now_ms + 500);
    list = ctx_of(0)->keep;
    cr_assert(eq(u32, list.saves, KEEP));
    cr_assert(eq(u32, list.degraded, 0));
    for (uint32_t i = 0; i < KEEP; i++)
        for (uint32_t r = 0; r < NODES; r++) {
            const struct hth_held *h = shard(r, list.save[i], r);

            memcpy(written[i][r], h->slot->base + HTH_BLOCK, h->object.data_len);
        }
}

static void start(void)
{
    start_tree(0);
}

static void start_chain(void)
{
    start_tree(1);
}

TestSuite(kept, .init = start, .fini = end);
TestSuite(chain, .init = start_chain, .fini = end);

static uint32_t degraded_at(uint32_t at, struct hth_save_id id)
{
    const struct hth_keep *k = &ctx_of(at)->keep;
    int place = hth_keep_at(k, id);

    cr_assert(ge(int, place, 0), "node %u has left step %" PRIu64 " out", at, id.step);
    return (uint32_t)hth_keep_degraded(k, place);
}

/* Until no save of the list is DEGRADED anywhere. */
static void all_come_back(void)
{
    uint32_t left = 1;

    for (uint64_t until = w.now_ms + SOON; left && w.now_ms < until && !w.why[0];) {
        world_advance(&w, w.now_ms + 10);
        left = 0;
        for (uint32_t n = 0; n < NODES; n++) {
            const struct hth_keep *k = &ctx_of(n)->keep;

            left += k->epoch != ctx_of(n)->epoch->epoch || k->degraded || k->saves != KEEP;
        }
    }
    cr_assert(eq(u32, left, 0), "%u nodes do not call all of the list PROTECTED", left);
    for (uint32_t i = 0; i < KEEP; i++)
        cr_assert(ge(u32, look_copies(&w, list.save[i], UINT32_MAX), 2), "save %u", i);
}

/* Each save of the list has its step's name on each node. */
static void all_are_published(void)
{
    for (uint32_t n = 0; n < NODES; n++)
        for (uint32_t i = 0; i < KEEP; i++) {
            const struct hth_held_save *s = hth_holdings_find(ctx_of(n), list.save[i]);

            cr_assert(s != NULL);
            cr_assert(eq(int, s->published, 1), "node %u: save %u", n, i);
        }
}

static void open_all(void)
{
    for (uint32_t n = 0; n < NODES; n++) {
        attach(n);
        for (uint32_t i = 0; i < KEEP; i++) {
            struct hth_local_find by_id = { .step = list.save[i].step, .wait_ms = SOON };
            struct hth_local_find by_step = by_id;
            struct hth_local_map manifest = { .off = 0 };

            by_id.save = manifest.save = hth_local_save_of(list.save[i]);
            ask(&by_id, sizeof(by_id), HTH_LOCAL_FIND, HTH_LOCAL_FOUND);
            cr_assert(eq(u32, heard.found.level, HEARTH_PROTECTED));
            ask(&by_step, sizeof(by_step), HTH_LOCAL_FIND, HTH_LOCAL_FOUND);
            cr_assert(eq(int, hth_save_cmp(hth_local_save_to(heard.found.save), list.save[i]), 0));
            ask(&manifest, sizeof(manifest), HTH_LOCAL_MANIFEST, HTH_LOCAL_BYTES);
        }
        hth_node_client_gone(world_node(&w, n), OURS);
    }
}

static void restart(void)
{
    world_restart(&w, 1, "the job is restarted");
    world_advance(&w, w.now_ms + 2);
    for (uint64_t until = w.now_ms + SOON; !hold_ranks() && w.now_ms < until && !w.why[0];)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, hold_ranks(), 1));
}

Test(kept, after_a_restart_every_save_of_the_list_is_opened_on_every_node)
{
    restart();
    open_all();
    all_come_back();
}

Test(kept, a_node_that_is_new_gets_its_part_of_every_save_of_the_list)
{
    machine_lose(&w, w.member[1]);
    w.member[1] = NODES;
    restart();
    open_all();
    all_come_back();
    all_are_published();
}

/* The coordinator's decisions do not come to the new machine. */
static struct hth_loop_verdict undecided(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };
    struct hth_frame f;

    (void)arg, (void)from;
    if (kind == HTH_LOOP_MESSAGE && to == w.machine[NODES].port &&
            !hth_frame_decode(&f, bytes, len, NULL) &&
            (f.type == HTH_MSG_DOWN
                            ? hth_get16(f.body) == HTH_KIND_HEAD
                            : f.type == HTH_MSG_TO && hth_get16(f.body + 4) == HTH_KIND_HEAD))
        v.fault = HTH_LOOP_DROP;
    return v;
}

Test(kept, a_save_of_the_list_is_waited_for_until_a_new_node_has_the_list)
{
    struct hth_local_find find = { .step = list.save[OLD].step, .wait_ms = 100 };

    machine_lose(&w, w.member[1]);
    w.member[1] = NODES;
    hth_loop_net_script(w.net, undecided, NULL);
    restart();
    attach(1);
    ask(&find, sizeof(find), HTH_LOCAL_FIND, HTH_LOCAL_ERROR);
    cr_assert(eq(int, heard.error.code, HEARTH_ETIMEOUT), "%s", heard.error.text);
    cr_assert(ne(ptr, strstr(heard.error.text, "still on its way"), NULL), "%s", heard.error.text);
    hth_loop_net_script(w.net, NULL, NULL);
    find.wait_ms = SOON;
    ask(&find, sizeof(find), HTH_LOCAL_FIND, HTH_LOCAL_FOUND);
    cr_assert(eq(u64, heard.found.save.step, list.save[OLD].step));
    find.step = 4711; /* the list is here, and says that there is none */
    ask(&find, sizeof(find), HTH_LOCAL_FIND, HTH_LOCAL_ERROR);
    cr_assert(eq(int, heard.error.code, HEARTH_ENOENT), "%s", heard.error.text);
}

Test(kept, a_coordinator_that_is_new_finds_all_of_the_list)
{
    machine_lose(&w, w.member[0]);
    w.member[0] = NODES;
    restart();
    open_all();
    all_come_back();
}

/* The bytes that its rank wrote. */
static int is_right(uint32_t at, uint32_t save, uint32_t owner)
{
    const struct hth_held *h = shard(at, list.save[save], owner);

    return h && h->state == HTH_HELD_SEALED &&
           !memcmp(written[save][owner], h->slot->base + HTH_BLOCK, h->object.data_len);
}

Test(kept, a_save_that_is_not_the_newest_is_degraded_until_its_lost_copy_is_back)
{
    struct hth_save_id id = list.save[OLD];
    struct hth_held *h = shard(1, id, 1);
    struct hth_local_bad m = { .object = h->object.id };
    struct hth_local_find find = { .step = id.step };
    uint32_t seen = 0;

    attach(1);
    h->slot->base[HTH_BLOCK + 9] ^= 1;
    m.save = find.save = hth_local_save_of(id);
    ask(&m, sizeof(m), HTH_LOCAL_BAD, HTH_LOCAL_OK);
    for (uint64_t until = w.now_ms + SOON; w.now_ms < until && !w.why[0];) {
        for (uint32_t n = 0; n < NODES; n++) {
            seen |= degraded_at(n, id) << n;
            cr_assert(eq(u32, degraded_at(n, list.save[0]), 0)); /* which has lost nothing */
        }
        world_advance(&w, w.now_ms + 1);
    }
    cr_assert(eq(u32, seen, (1u << NODES) - 1)); /* every node has said so */
    all_come_back();
    cr_assert(eq(int, is_right(1, OLD, 1), 1));
    ask(&find, sizeof(find), HTH_LOCAL_FIND, HTH_LOCAL_FOUND);
    cr_assert(eq(u32, heard.found.level, HEARTH_PROTECTED));
    cr_assert(eq(u32, heard.found.degraded, 0));
}

Test(kept, what_was_lost_while_no_engine_ran_is_brought_back)
{
    struct hth_save_id id = list.save[OLD];
    struct hth_held_save *s = hth_holdings_find(ctx_of(2), id);

    hth_held_drop(ctx_of(2), s, shard(2, id, 2));
    machine_stop(&w, w.member[2]);
    machine_start(&w, w.member[2]);
    world_advance(&w, w.now_ms + 1000);
    all_come_back();
    cr_assert(eq(int, is_right(2, OLD, 2), 1));
}

Test(kept, copies_of_every_save_of_the_list_move_when_their_holder_is_lost)
{
    machine_lose(&w, w.member[2]);
    world_advance(&w, w.now_ms + 2 * SOON);
    for (uint32_t i = 0; i < KEEP; i++)
        for (uint32_t r = 0; r < NODES; r++) {
            uint32_t have = 0;

            for (uint32_t n = 0; n < NODES; n++)
                have += n != 2 && is_right(n, i, r);
            cr_assert(eq(u32, have, 2), "save %u, rank %u: %u", i, r, have);
        }
}

/* ---- What users ask
 * --------------------------------------------------------------------------------- */

static void wish(uint32_t what, struct hth_save_id id, int code)
{
    struct hth_local_wish m = { .wish = what };

    m.save = hth_local_save_of(id);
    ask(&m, sizeof(m), HTH_LOCAL_WISH, code ? HTH_LOCAL_ERROR : HTH_LOCAL_OK);
    if (code)
        cr_assert(eq(int, heard.error.code, code), "%s", heard.error.text);
    world_advance(&w, w.now_ms + 100); /* until all nodes have received it */
}

/* So many saves more. */
static void save_on(uint32_t saves)
{
    uint64_t until = w.count[WORLD_PROTECTED] + (uint64_t)saves * w.ranks;

    for (uint32_t r = 0; r < w.ranks; r++)
        rank_due(&w.rank[r], w.now_ms + 1);
    while (!w.why[0] && !(w.count[WORLD_PROTECTED] >= until && hold_ranks()))
        world_advance(&w, w.now_ms + 1);
    world_advance(&w, w.now_ms + 500);
}

static void all_keep(struct hth_save_id id, int kept, int pinned)
{
    for (uint32_t n = 0; n < NODES; n++) {
        const struct hth_keep *k = &ctx_of(n)->keep;
        int at = hth_keep_at(k, id);

        cr_assert(eq(int, at >= 0, kept), "node %u", n);
        cr_assert(eq(int, hth_holdings_find(ctx_of(n), id) != NULL, kept), "node %u", n);
        if (at >= 0)
            cr_assert(eq(int, hth_keep_pinned(k, at), pinned), "node %u", n);
    }
}

Test(kept, a_pinned_save_stays_and_the_last_place_cannot_be_pinned)
{
    attach(2); /* not the coordinator's node */
    wish(HTH_WISH_PIN, (struct hth_save_id){ .step = list.save[2].step }, HEARTH_OK);
    wish(HTH_WISH_PIN, list.save[1], HEARTH_OK);
    wish(HTH_WISH_PIN, list.save[0], HEARTH_ESTATE);
    cr_assert(ne(ptr, strstr(heard.error.text, "keep is 3"), NULL), "%s", heard.error.text);
    save_on(3);
    all_keep(list.save[0], 0, 0);
    all_keep(list.save[1], 1, 1);
    all_keep(list.save[2], 1, 1);
    wish(HTH_WISH_UNPIN, list.save[1], HEARTH_OK);
    restart();
    all_keep(list.save[2], 1, 1);
    save_on(1);
    all_keep(list.save[1], 0, 0);
    all_keep(list.save[2], 1, 1);
}

Test(kept, a_released_save_is_freed_on_every_node_and_never_the_newest)
{
    attach(3);
    wish(HTH_WISH_RELEASE, list.save[0], HEARTH_ESTATE);
    all_keep(list.save[0], 1, 0);
    wish(HTH_WISH_RELEASE, list.save[1], HEARTH_OK);
    all_keep(list.save[0], 1, 0);
    all_keep(list.save[1], 0, 0);
    all_keep(list.save[2], 1, 0);
    wish(HTH_WISH_RELEASE, list.save[1], HEARTH_ENOENT);
}

Test(kept, a_save_that_is_marked_bad_is_passed_over_and_every_rank_is_told)
{
    attach(1);
    wish(HTH_WISH_BAD, list.save[0], HEARTH_OK);
    w.newest.id = list.save[1]; /* the model need not find what is not chosen */
    restart();
    for (uint32_t r = 0; r < w.ranks; r++) {
        cr_assert(eq(u64, w.rank[r].from.step, list.save[1].step));
        cr_assert(eq(u32, w.rank[r].info.passed, 1));
        cr_assert(ne(ptr, strstr(w.rank[r].info.text, "1 newer passed over"), NULL), "%s",
                w.rank[r].info.text);
    }
}

Test(kept, where_all_are_marked_bad_the_newest_is_taken)
{
    attach(1);
    for (uint32_t i = 0; i < KEEP; i++)
        wish(HTH_WISH_BAD, list.save[i], HEARTH_OK);
    restart();
    cr_assert(eq(u64, w.rank[0].from.step, list.save[0].step));
    cr_assert(eq(u32, w.rank[0].info.passed, 0));
}

/* The ranks of the first node request this save; the other ranks receive its id. */
static void restart_with(struct hth_save_id wanted)
{
    struct hth_local_recover m = { .wants = 1 };
    struct rank_state *r = &w.rank[0];

    m.save = hth_local_save_of(wanted);
    world_restart(&w, 1, "the job goes back");
    world_advance(&w, w.now_ms + 2);
    while (!w.why[0] && r->step != R_RECOVER)
        world_advance(&w, w.now_ms + 1);
    rank_due(r, HTH_NEVER);
    m.head = (struct hth_local_head){ sizeof(m), HTH_LOCAL_RECOVER, ++r->request, 0 };
    rank_send(r, &m, sizeof(m), NULL, 0);
    for (uint64_t until = w.now_ms + SOON;
            !hold_ranks() && !r->error.code && w.now_ms < until && !w.why[0];)
        world_advance(&w, w.now_ms + 1);
}

Test(kept, a_recovery_of_a_chosen_step_goes_back_to_it)
{
    w.newest.id = list.save[OLD];
    restart_with((struct hth_save_id){ .step = list.save[OLD].step });
    cr_assert(eq(int, hold_ranks(), 1));
    for (uint32_t r = 0; r < w.ranks; r++)
        cr_assert(eq(int, hth_save_cmp(w.rank[r].from, list.save[OLD]), 0));
    save_on(1);
    cr_assert(eq(u64, w.newest.id.step, list.save[OLD].step + 1));
}

Test(kept, a_step_that_cannot_be_had_is_an_error_that_names_those_that_can)
{
    restart_with((struct hth_save_id){ .step = 4711 });
    cr_assert(eq(int, w.rank[0].error.code, HEARTH_ENOENT));
    cr_assert(ne(ptr, strstr(w.rank[0].error.text, "step 4711 is asked for"), NULL), "%s",
            w.rank[0].error.text);
}

/* ---- Marking by count
 * ------------------------------------------------------------------------------- */

/* So many jobs recover and end without a save. */
static void try_in_vain(uint32_t jobs)
{
    while (jobs--) {
        restart();
        world_advance(&w, w.now_ms + 1000); /* what was recovered is protected again */
    }
}

static void all_go_on_from(uint32_t save, uint32_t passed)
{
    for (uint32_t r = 0; r < w.ranks; r++) {
        cr_assert(eq(u64, w.rank[r].from.step, list.save[save].step), "rank %u", r);
        cr_assert(eq(u32, w.rank[r].info.passed, passed), "rank %u", r);
    }
}

/* The ranks end, and are not started again. */
static void job_ends(void)
{
    for (uint32_t r = 0; r < w.ranks; r++)
        rank_kill(&w.rank[r]);
    world_advance(&w, w.now_ms + 2000);
}

Test(kept, a_save_that_jobs_recover_in_vain_is_marked_bad_and_every_rank_is_told)
{
    w.opts.bad_after = 3;
    try_in_vain(3);
    all_go_on_from(0, 0);
    job_ends();
    w.newest.id = list.save[1];
    restart();
    all_go_on_from(1, 1);
    for (uint32_t r = 0; r < w.ranks; r++)
        cr_assert(ne(ptr, strstr(w.rank[r].info.text, "3 jobs recovered it"), NULL), "%s",
                w.rank[r].info.text);
    for (uint32_t n = 0; n < NODES; n++)
        cr_assert(eq(int, hth_keep_is_bad(&ctx_of(n)->keep, list.save[0]), 1), "node %u", n);
}

Test(kept, tries_are_counted_also_where_engines_end_with_their_job)
{
    w.opts.bad_after = 2;
    for (int jobs = 2; jobs--;) {
        try_in_vain(1);
        for (uint32_t n = 0; n < NODES; n++)
            machine_stop(&w, w.member[n]);
    }
    w.newest.id = list.save[1];
    restart();
    all_go_on_from(1, 1);
}

Test(kept, marking_by_count_is_off_unless_it_is_asked_for)
{
    try_in_vain(5);
    all_go_on_from(0, 0);
    cr_assert(eq(u32, ctx_of(0)->keep.tries, 0));
}

Test(kept, a_job_that_has_begun_a_save_is_not_counted_nor_are_those_before_it)
{
    uint64_t begun;

    w.opts.bad_after = 2;
    try_in_vain(2);
    begun = w.count[WORLD_SAVE];
    for (uint32_t r = 0; r < w.ranks; r++)
        rank_due(&w.rank[r], w.now_ms + 1);
    while (!w.why[0] && w.count[WORLD_SAVE] < begun + w.ranks)
        world_advance(&w, w.now_ms + 1);
    job_ends();
    for (uint32_t n = 0; n < NODES; n++)
        cr_assert(eq(u32, ctx_of(n)->keep.tries, 0), "node %u", n);
}

/* The processes stay, as where another machine's were replaced, and join and recover once more. */
static void recover_again(void)
{
    w.tabled = 0;
    for (uint32_t r = 0; r < w.ranks; r++) {
        w.rank[r].gathered.highest_epoch = w.rank[r].epoch;
        w.rank[r].step = R_JOIN;
        rank_due(&w.rank[r], w.now_ms + 1);
    }
    for (uint64_t until = w.now_ms + SOON; !hold_ranks() && w.now_ms < until && !w.why[0];)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, hold_ranks(), 1));
}

Test(kept, ranks_that_recover_again_are_counted_as_one_job)
{
    w.opts.bad_after = 2;
    restart();
    for (int i = 0; i < 3; i++)
        recover_again();
    all_go_on_from(0, 0);
    cr_assert(eq(u32, ctx_of(0)->keep.tries, 1));
}

Test(kept, a_count_is_seen_on_every_node_and_can_be_undone)
{
    w.opts.bad_after = 2;
    try_in_vain(2);
    world_advance(&w, w.now_ms + SOON);
    job_ends();
    for (uint32_t n = 0; n < NODES; n++)
        cr_assert(eq(u32, hth_keep_tries(&ctx_of(n)->keep, list.save[0]), 2), "node %u", n);
    node = 2;
    wish(HTH_WISH_GOOD, list.save[0], HEARTH_OK);
    restart();
    all_go_on_from(0, 0);
    cr_assert(eq(u32, ctx_of(0)->keep.tries, 1));
}

/* ---- As of when
 * ------------------------------------------------------------------------------------- */

/* How many saves of its list this node vouches for. */
static uint32_t confirmed(uint32_t at)
{
    struct hth_local_head m;
    uint32_t n = 0;

    node = at;
    ask(&m, sizeof(m), HTH_LOCAL_KEPT, HTH_LOCAL_KEPT_LIST);
    for (uint32_t i = 0; i < heard.kept.count; i++)
        n += (heard.kept.kept[i].flags & HTH_KEPT_IS_CONFIRMED) != 0;
    return n;
}

static void coordinator_goes_and_comes_back(void)
{
    for (uint32_t n = 0; n < NODES; n++) {
        attach(n);
        cr_assert(eq(u32, confirmed(n), KEEP), "node %u", n);
    }
    machine_stop(&w, w.member[0]);
    for (uint32_t n = 1; n < NODES; n++) {
        uint64_t bound = w.opts.dead_ms + (n + 1) * w.opts.heartbeat_ms;

        world_advance(&w, w.now_ms + (n == 1 ? bound : w.opts.heartbeat_ms) + 10);
        cr_assert(eq(u32, confirmed(n), 0), "node %u", n);
    }
    machine_start(&w, w.member[0]);
    world_advance(&w, w.now_ms + SOON);
    for (uint32_t n = 1; n < NODES; n++)
        cr_assert(eq(u32, confirmed(n), KEEP), "node %u again", n);
}

/* Each node has the next one below it, and idle connections end: only node 1 has one with the
 * coordinator. */
Test(chain, nobody_vouches_for_what_a_coordinator_said_that_is_gone)
{
    world_advance(&w, w.now_ms + IDLE);
    coordinator_goes_and_comes_back();
}

/* A node that had a connection with the coordinator has no reason to make another one. */
Test(chain, a_coordinator_that_is_back_is_heard_by_way_of_others)
{
    coordinator_goes_and_comes_back();
}
