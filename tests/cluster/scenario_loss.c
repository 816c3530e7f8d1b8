/* SPDX-License-Identifier: Apache-2.0 */
/* Machines are lost with all they had, fresh ones take their places, the job is started again. */
#include "cluster.h"

#include <stdlib.h>
#include <string.h>

static int replace(struct world *w, uint32_t k)
{
    TRY(node_kill(w, k));
    return node_up(w, k);
}

/* arg "N": each of N machines in turn; two ranks to a machine where there are two. */
static int every_single(struct world *w, const char *arg)
{
    uint32_t nodes = (uint32_t)strtoul(arg, NULL, 10);
    uint64_t step = 2;

    TRY(world_begin(w, nodes, nodes == 2 ? 2 : 1, step));
    for (uint32_t k = 0; k < nodes; k++) {
        TRY(replace(w, k));
        TRY(world_restart(w, step));
        if (w->pulled < (uint64_t)w->kib * 1024)
            return lost(
                    w, "node %u was lost and %lu bytes were pulled", k, (unsigned long)w->pulled);
        TRY(world_post(w, "peek"));
        TRY(world_answers(w, 10000));
        TRY(world_save(w, ++step));
    }
    return 0;
}

/* Any two of five, with two copies; arg "a b". */
static int two_of_five(struct world *w, const char *arg)
{
    uint64_t step = 1;

    w->copies = 2;
    w->kib = 2 * 1024;
    TRY(world_begin(w, 5, 1, step));
    for (uint32_t a = 0; a < 5; a++) {
        uint32_t b = (a + (uint32_t)strtoul(arg, NULL, 10)) % 5;

        TRY(node_kill(w, a));
        TRY(node_kill(w, b));
        TRY(node_up(w, a));
        TRY(node_up(w, b));
        TRY(world_restart(w, step));
        TRY(world_save(w, ++step));
    }
    return 0;
}

static int every_rack(struct world *w, const char *arg)
{
    uint64_t step = 1;

    (void)arg;
    w->racks = 3;
    w->kib = 2 * 1024;
    TRY(world_begin(w, 6, 1, step));
    for (uint32_t rack = 0; rack < 3; rack++) {
        TRY(node_kill(w, rack));
        TRY(node_kill(w, rack + 3));
        TRY(node_up(w, rack));
        TRY(node_up(w, rack + 3));
        TRY(world_restart(w, step));
        TRY(world_save(w, ++step));
    }
    return 0;
}

/* Both holders of a rank's bytes are lost, and nothing older is whole: said, and not invented. */
static int beyond(struct world *w, const char *arg)
{
    (void)arg;
    TRY(world_begin(w, 4, 1, 2));
    for (uint32_t k = 1; k < 4; k++) /* whoever holds whose: three of four are too many */
        TRY(replace(w, k));
    world_stop(w);
    TRY(world_start(w));
    TRY(world_post(w, "recover"));
    for (uint32_t r = 0; r < w->ranks; r++)
        TRY(rank_refusal(w, r, 25000, "beyond redundancy"));
    if (!strstr(w->rank[0].answer, "err recover -302 "))
        return lost(w, "the code is not HEARTH_ELOST: %s", w->rank[0].answer);
    return 0;
}

/* A is lost, and B as soon as the copies are back, before another save. */
static int again_before_a_save(struct world *w, const char *arg)
{
    (void)arg;
    TRY(world_begin(w, 4, 1, 2));
    for (uint32_t k = 1; k < 4; k++) {
        TRY(replace(w, k));
        TRY(world_restart(w, 2));
        TRY(world_protected(w));
    }
    TRY(replace(w, 0)); /* the coordinator */
    TRY(world_restart(w, 2));
    TRY(world_protected(w));
    return world_save(w, 3);
}

/* The survivors' processes recover again in place; only the lost machine's rank is started. */
static int replaced_under_survivors(struct world *w, const char *arg)
{
    uint32_t k = (uint32_t)strtoul(arg, NULL, 10);

    TRY(world_begin(w, 3, 1, 2));
    TRY(replace(w, k));
    TRY(rank_start(w, k, k));
    for (uint32_t r = 0; r < w->ranks; r++)
        if (r != k)
            TRY(rank_post(w, r, "recover"));
    TRY(rank_answer(w, k, 25000));
    TRY(rank_post(w, k, "recover"));
    TRY(world_answers(w, 25000));
    return world_save(w, 3);
}

const struct scenario scenarios_loss[] = { { "lose-each-of-2", every_single, "2", 1 },
    { "lose-each-of-3", every_single, "3", 1 }, { "lose-each-of-4", every_single, "4", 1 },
    { "lose-each-of-5", every_single, "5", 1 }, { "lose-neighbours-of-5", two_of_five, "1", 1 },
    { "lose-two-apart-of-5", two_of_five, "2", 0 }, { "lose-each-rack", every_rack, NULL, 1 },
    { "lose-more-than-copies", beyond, NULL, 1 },
    { "lose-again-before-a-save", again_before_a_save, NULL, 1 },
    { "replace-under-survivors", replaced_under_survivors, "2", 0 }, { 0 } };
