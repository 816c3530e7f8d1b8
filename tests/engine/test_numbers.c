/* SPDX-License-Identifier: Apache-2.0 */
/* Epoch numbers that no honest joining gives, in one machine's records: the job opens, recovers the
 * newest protected save, and what it saves then is the newest. The model looks at all of that. */
#include "check.h"
#include "world_parts.h"

#include <stdlib.h>
#include <unistd.h>

static void limit(void)
{
    alarm(60);
}

TestSuite(numbers, .init = limit);

static struct world_opts small_world(void)
{
    return (struct world_opts){ .seed = 1,
        .nodes = 3,
        .ranks_per_node = 2,
        .copies = 1,
        .keep = 2,
        .run_ms = 100000,
        .data_max = 100 };
}

static void put_number(struct hth_store *store, uint64_t epoch)
{
    struct hth_epoch e;
    unsigned char *bytes;
    void *old;
    size_t len;

    must(store->ops->record_get(store, "epoch", &old, &len, NULL));
    must(hth_epoch_decode(&e, old, len, NULL));
    e.epoch = epoch;
    bytes = malloc(len);
    hth_epoch_encode(&e, bytes);
    must(store->ops->record_put(store, "epoch", bytes, len, NULL));
    hth_epoch_fini(&e);
    free(bytes);
    free(old);
}

/* Until a save of this launch is PROTECTED, or something is broken. */
static void run_until_protected(struct world *w)
{
    uint64_t until = w->now_ms + 30000;

    while (!w->why[0] && w->now_ms < until &&
            (hth_save_none(w->newest.id) || w->newest.lineage != w->lineage))
        world_advance(w, w->now_ms + 1);
    cr_assert(eq(int, w->why[0], 0), "%s", w->why);
    cr_assert(eq(u64, w->newest.lineage, w->lineage), "nothing is PROTECTED in launch %u",
            (unsigned)w->lineage);
}

static void relaunch(struct world *w)
{
    uint64_t before = w->lineage;

    world_restart(w, 1, "the test");
    while (!w->why[0] && w->lineage == before)
        world_advance(w, w->now_ms + 1);
    run_until_protected(w);
}

static void kill_ranks_of(struct world *w, uint32_t m)
{
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == m)
            rank_kill(&w->rank[r]);
}

static void stop_engines(struct world *w)
{
    for (uint32_t i = 0; i < w->opts.nodes; i++) {
        kill_ranks_of(w, w->member[i]);
        machine_stop(w, w->member[i]);
    }
}

/* The record of one machine says `epoch`; the engines start anew, or go on as they are. */
static void heals(uint64_t epoch, int anew, uint64_t most)
{
    struct world_opts o = small_world();
    struct world w;

    world_open(&w, &o);
    run_until_protected(&w);
    relaunch(&w);
    if (anew)
        stop_engines(&w);
    put_number(w.machine[w.member[1]].store, epoch);
    for (int i = 0; i < 4; i++) {
        struct hth_save_id before = w.newest.id;

        relaunch(&w);
        cr_assert(gt(int, hth_save_cmp(w.newest.id, before), 0));
        cr_assert(le(u64, w.newest.id.epoch, most));
        if (i == 2)
            stop_engines(&w);
    }
    world_close(&w);
}

#define Y2200 UINT64_C(7258118400000)

Test(numbers, a_record_of_a_number_that_no_job_reaches_is_left_out)
{
    for (int anew = 0; anew < 2; anew++) {
        heals(UINT64_MAX, anew, Y2200);
        heals(HTH_EPOCH_MOST + 1, anew, Y2200);
        heals(HTH_EPOCH_MOST, anew, Y2200); /* no save of it is there */
    }
}

Test(numbers, after_a_wrong_clock_they_go_on_from_there)
{
    heals(Y2200, 0, Y2200 + 10);
    heals(Y2200, 1, Y2200 + 10);
}

/* It is believed, and there is none above the next one: the nonces rise then. */
Test(numbers, after_the_highest_that_is_believed_the_job_goes_on_as_ever)
{
    heals(HTH_EPOCH_BELIEVED, 0, HTH_EPOCH_MOST);
    heals(HTH_EPOCH_BELIEVED, 1, HTH_EPOCH_MOST);
    heals(HTH_EPOCH_BELIEVED - 2, 1, HTH_EPOCH_MOST);
}

/* The machine that knows of it goes, and fresh ones come. */
Test(numbers, at_the_top_a_lost_machine_is_replaced_as_ever)
{
    struct world_opts o = small_world();
    struct world w;

    world_open(&w, &o);
    run_until_protected(&w);
    stop_engines(&w); /* one that lives knows its own epoch better */
    put_number(w.machine[w.member[0]].store, HTH_EPOCH_BELIEVED);
    relaunch(&w);
    cr_assert(eq(u64, w.newest.id.epoch, HTH_EPOCH_MOST));
    for (uint32_t i = 0; i < o.nodes; i++) {
        struct hth_save_id before = w.newest.id;

        kill_ranks_of(&w, w.member[i]);
        machine_lose(&w, w.member[i]);
        relaunch(&w);
        cr_assert(gt(int, hth_save_cmp(w.newest.id, before), 0));
    }
    world_close(&w);
}
