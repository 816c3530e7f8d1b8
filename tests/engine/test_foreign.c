/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A foreign container's `.metadata` takes a worker long to read. Meanwhile the coordinator's engine
 * lives on, and may be told to begin anew, come to its deadline, or end.
 */
#include "container.h"

#ifdef HEARTH_POINTS /* workers keep what they are given at a named point */

#define READS    2000u /* ms; the recovery is at its `.metadata` by then */
#define LONG     8000u /* four times dead_ms, and less than the recovery's deadline */
#define TOO_LONG 14000u

static struct world w;

static void open_world(uint32_t at)
{
    container_open(&w, at, "metadata");
}

/* Has a plan reached that node? */
static int is_chosen(uint32_t node)
{
    struct hth_held_save *s =
            hth_holdings_find(hth_node_ctx(world_node(&w, node)), hth_save_of_foreign(STEP));

    return s && s->has_manifest;
}

/* Until then no node has a plan and no rank has recovered: so many workers are reading. */
static void held_until(uint64_t ms, uint32_t readers)
{
    uint32_t count = 0;

    world_advance(&w, ms);
    must_say(w.why, "");
    for (const struct hth_work *work = w.kept; work; work = work->next)
        count++;
    cr_assert(eq(u32, count, readers));
    for (uint32_t r = 0; r < NODES; r++) {
        cr_assert(not(is_chosen(r)), "node %u", r);
        cr_assert(eq(ptr, (void *)(uintptr_t)world_recovery(&w, r), NULL), "rank %u", r);
    }
}

static void all_recover_by(uint64_t ms)
{
    world_advance(&w, ms);
    must_say(w.why, "");
    for (uint32_t r = 0; r < NODES; r++) {
        const struct hearth_recovery *info = world_recovery(&w, r);

        cr_assert(ne(ptr, (void *)(uintptr_t)info, NULL), "rank %u", r);
        cr_assert(eq(u64, info->step, STEP));
        cr_assert(eq(u64, info->epoch, 0));
    }
}

/* The engine of node 0 answers a rank. */
static int answers(void)
{
    struct hth_local_head m = { sizeof(m), HTH_LOCAL_STATUS, 77, 0 };

    cr_assert(eq(ptr, w.letters, NULL));
    hth_node_request(world_node(&w, 0), w.rank[0].client, &m, sizeof(m), NULL);
    return w.letters && ((struct hth_local_head *)(void *)w.letters->bytes)->request == 77;
}

Test(foreign, an_engine_whose_worker_reads_metadata_lives_and_answers)
{
    for (uint32_t at = 0; at < 2; at++) { /* there, or first brought from another node */
        open_world(at);
        held_until(LONG, 1);
        for (uint32_t r = 0; r < NODES; r++)
            cr_assert(eq(ptr, (void *)(uintptr_t)world_error(&w, r), NULL));
        cr_assert(answers());
        world_let_go(&w);
        all_recover_by(LONG + 1000);
        world_close(&w);
    }
}

Test(foreign, a_new_epoch_does_not_wait_for_what_the_old_one_has_read)
{
    open_world(0);
    held_until(READS, 1);
    world_restart(&w, 10, "the ranks were killed");
    held_until(2 * READS, 2);
    world_let_go(&w);
    all_recover_by(2 * READS + 1000);
    world_close(&w);
}

/* It was brought from another node. The next epoch finds it bad, puts it aside and brings it
 * anew. */
Test(foreign, a_copy_that_is_put_aside_stays_while_a_worker_reads_it)
{
    struct hth_held_save *s;

    open_world(1);
    held_until(READS, 1);
    s = hth_holdings_find(hth_node_ctx(world_node(&w, 0)), hth_save_of_foreign(STEP));
    cr_assert(ne(ptr, s, NULL));
    s->held->slot->base[0] ^= 1;
    world_restart(&w, 10, "the ranks were killed");
    held_until(2 * READS, 2);
    cr_assert(eq(int, s->held->slot->base[0], 0x80)); /* of a pickle */
    world_let_go(&w);
    all_recover_by(2 * READS + 1000);
    world_close(&w);
}

Test(foreign, a_recovery_that_ends_at_its_deadline_says_what_it_was_waiting_for)
{
    const struct hth_local_error *e;

    open_world(0);
    held_until(LONG, 1);
    while (!(e = world_error(&w, 0)) && w.now_ms < TOO_LONG)
        world_advance(&w, w.now_ms + 10);
    cr_assert(ne(ptr, (void *)(uintptr_t)e, NULL));
    cr_assert(eq(int, e->code, HEARTH_ETIMEOUT));
    must_say(e->text, "the .metadata of step 5 is still being read by node m0");
    held_until(TOO_LONG, 2); /* the job was started again */
    world_let_go(&w);
    all_recover_by(2 * TOO_LONG);
    world_close(&w);
}

/* The worker threads have ended; in the second round one of them had read the container. No engine
 * receives the result. */
Test(foreign, an_engine_that_ends_frees_what_a_worker_was_reading)
{
    for (int ran = 0; ran < 2; ran++) {
        open_world(0);
        held_until(READS, 1);
        if (ran)
            w.kept->run(w.kept);
        w.kept = NULL;
        world_close(&w);
    }
}

/* The program that wrote the container was stopped on that node: the files on the others may be of
 * no whole save. */
Test(foreign, a_container_that_is_not_finished_on_one_node_is_not_recovered)
{
    container_open(&w, 0, NULL);
    hth_holdings_find(hth_node_ctx(world_node(&w, 1)), hth_save_of_foreign(STEP))->unfinished = 1;
    world_advance(&w, READS);
    must_say(w.why, "");
    for (uint32_t r = 0; r < NODES; r++) {
        cr_assert(not(is_chosen(r)), "node %u", r);
        cr_assert(ne(ptr, (void *)(uintptr_t)world_recovery(&w, r), NULL), "rank %u", r);
        must_say(world_recovery(&w, r)->text, "nothing to recover");
    }
    world_close(&w);
}

#endif
