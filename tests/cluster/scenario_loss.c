/* SPDX-License-Identifier: Apache-2.0 */
/* Machines are lost with all they had, fresh ones take their places, the job is started again. */
#include "cluster.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* The objects that every node has are larger than any other, and were once too large. */
static int large_common(struct world *w, const char *arg)
{
    w->common_kib = 96 * 1024;
    w->kib = 1024;
    w->mib = 1024;
    return every_single(w, arg);
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

/* Nodes 2 and 3 hold copies of each other. Both live; arg "both": neither reaches the other, else
 * one does not. */
static int cut_for_good(struct world *w, const char *arg)
{
    uint64_t step = 2;
    int rc;

    w->kib = 2 * 1024;
    w->save_ms = 40000; /* the save in which it is noticed ends well */
    TRY(world_begin(w, 4, 1, step));
    if ((rc = path_cut(w, 2, 3, LOSE_ALL)))
        return rc;
    if (!strcmp(arg, "both"))
        TRY(path_cut(w, 3, 2, LOSE_ALL));
    for (int i = 0; i < 4; i++)
        TRY(world_save(w, ++step));
    if (!node_log_has(w, 0, "peers-apart"))
        return lost(w, "the coordinator's log does not say who is apart");
    TRY(replace(w, 3));
    TRY(world_restart(w, step));
    TRY(world_save(w, ++step));
    return 0;
}

/* Large packets between nodes 2 and 3, which hold copies of each other, are lost; messages pass. */
static int cut_large(struct world *w, const char *arg)
{
    uint64_t step = 2;

    (void)arg;
    w->kib = 2 * 1024;
    w->save_ms = 40000;
    TRY(world_begin(w, 4, 1, step));
    TRY(path_cut(w, 2, 3, LOSE_LARGE));
    TRY(path_cut(w, 3, 2, LOSE_LARGE));
    for (int i = 0; i < 3; i++)
        TRY(world_save(w, ++step));
    return node_log_has(w, 0, "peers-apart")
                   ? 0
                   : lost(w, "the coordinator's log does not say who is apart");
}

/* Node 4 reaches neither of the two that hold copies of what it owns, and all else is well. */
static int cut_both_holders(struct world *w, const char *arg)
{
    uint64_t step = 2;
    uint32_t cuts = 0;
    struct object o;

    (void)arg;
    w->copies = 2;
    w->kib = 2 * 1024;
    w->save_ms = 40000;
    TRY(world_begin(w, 7, 1, step));
    for (uint32_t k = 1; k < 7; k++) {
        if (k == 4 || object_find(w, k, step, 4, &o))
            continue;
        TRY(path_cut(w, 4, k, LOSE_ALL));
        TRY(path_cut(w, k, 4, LOSE_ALL));
        cuts++;
    }
    if (cuts != 2)
        return lost(w, "%u nodes besides the coordinator hold copies of rank 4's object", cuts);
    w->why[0] = '\0';
    for (int i = 0; i < 3; i++)
        TRY(world_save(w, ++step));
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

/* Two nodes on each machine: both are lost with it. */
static int every_machine(struct world *w, const char *arg)
{
    uint64_t step = 1;

    (void)arg;
    w->pods = 2;
    TRY(world_begin(w, 4, 1, step));
    for (uint32_t node = 0; node < 4; node += 2) {
        TRY(node_kill(w, node));
        TRY(node_kill(w, node + 1));
        TRY(node_up(w, node));
        TRY(node_up(w, node + 1));
        TRY(world_restart(w, step));
        TRY(world_save(w, ++step));
    }
    return 0;
}

/* All who have rank 1's part of a step: its own machine, and the one with the copy. */
static int replace_holders(struct world *w, uint64_t step)
{
    uint32_t other;

    TRY(object_holder(w, step, 1, w->seat[1], &other));
    TRY(replace(w, w->seat[1]));
    return replace(w, other);
}

/* From scratch, and saves work again; the next start finds them. */
static int begin_anew(struct world *w, const char *recover)
{
    world_stop(w);
    TRY(world_start(w));
    w->protected = w->protected_tag = 0;
    TRY(world_post(w, recover));
    TRY(world_recovered(w, 0));
    for (uint64_t step = 3; step < 6; step++)
        TRY(world_save(w, step));
    return world_restart(w, 5);
}

static int must_be_refused(struct world *w)
{
    world_stop(w);
    TRY(world_start(w));
    TRY(world_post(w, "recover"));
    for (uint32_t r = 0; r < w->ranks; r++) {
        TRY(rank_refusal(w, r, 25000, "beyond redundancy"));
        TRY(rank_refusal(w, r, 0, "err recover -302 ")); /* HEARTH_ELOST */
    }
    return 0;
}

/* One more machine is lost than there are copies, and nothing older is whole: said, by object and
 * rank, and nothing is invented. Then the loss is accepted. */
static int beyond(struct world *w, const char *arg)
{
    (void)arg;
    TRY(world_begin(w, 4, 1, 2));
    TRY(replace_holders(w, 2));
    TRY(must_be_refused(w));
    for (uint32_t r = 0; r < w->ranks; r++)
        TRY(rank_refusal(w, r, 0, "src0.distcp of rank 0")); /* with one copy they are pairs */
    return begin_anew(w, "recover 1");
}

/* Instead, the command that the refusal names, on every machine, on the two, too, that have
 * nothing of the save. One that is left out has the promise yet, and the job is refused as
 * before. */
static int beyond_removed(struct world *w, const char *arg)
{
    uint32_t left_out = NODES_MAX, removed = 0;
    int status;

    (void)arg;
    TRY(world_begin(w, 4, 1, 2));
    TRY(replace_holders(w, 2));
    TRY(must_be_refused(w));
    TRY(rank_refusal(w, 0, 0, "`hearth rm --root ROOT job/step-2_ckpt` on every node"));
    world_stop(w);
    for (uint32_t k = 0; k < w->nodes; k++) {
        char path[400];

        node_path(w, k, "step-2_ckpt", path, sizeof(path));
        if (left_out == NODES_MAX && !access(path, F_OK)) {
            left_out = k;
            continue;
        }
        TRY(node_remove(w, k, 2, &status));
        removed += status == 0;
        if (status != 0 && status != 3)
            return lost(w, "hearth rm on %s ends with %d", w->node[k].name, status);
    }
    if (left_out == NODES_MAX || !removed)
        return lost(w, "no two machines have what is left of step 2");
    TRY(must_be_refused(w));
    world_stop(w);
    for (uint32_t k = 0; k < w->nodes; k++)
        TRY(node_remove(w, k, 2, &status));
    return begin_anew(w, "recover");
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

/* The survivors' processes recover again in place; only the lost machine's rank is started. Where
 * that is rank 0, the ranks meet at the new machine. arg "K" or "K rebooted": under its old name
 * and address, and then they meet where they did. */
static int replaced_under_survivors(struct world *w, const char *arg)
{
    uint32_t k = (uint32_t)strtoul(arg, NULL, 10);
    char meet[64];

    TRY(world_begin(w, 3, 1, 2));
    w->reboots = strstr(arg, "rebooted") != NULL;
    w->launches += !w->reboots;
    TRY(replace(w, k));
    TRY(rank_start(w, k, k));
    snprintf(meet, sizeof(meet), "meet %s %u", w->node[w->seat[0]].address, rank_port(w));
    for (uint32_t r = 0; r < w->ranks; r++) {
        if (r == k)
            continue;
        if (!w->reboots) {
            TRY(rank_post(w, r, meet));
            TRY(rank_answer(w, r, 5000));
        }
        TRY(rank_post(w, r, "recover"));
    }
    TRY(rank_answer(w, k, 25000));
    TRY(rank_post(w, k, "recover"));
    TRY(world_recovered(w, 2));
    TRY(world_protected(w));
    return world_save(w, 3);
}

/* With SHA-256 of each chunk. */
static int every_single_strong(struct world *w, const char *arg)
{
    w->strong = 1;
    w->kib = 9 * 1024; /* more chunks than one, the last one not whole */
    return every_single(w, arg);
}

const struct scenario scenarios_loss[] = { { "lose-each-of-2", every_single, "2" },
    { "lose-each-of-3", every_single, "3" }, { "lose-each-of-3-large-common", large_common, "3" },
    { "lose-each-of-3-strong", every_single_strong, "3" }, { "lose-each-of-4", every_single, "4" },
    { "lose-each-of-5", every_single, "5" }, { "lose-neighbours-of-5", two_of_five, "1" },
    { "lose-two-apart-of-5", two_of_five, "2" }, { "cut-pair", cut_for_good, "both" },
    { "cut-pair-one-way", cut_for_good, "" }, { "cut-large-packets", cut_large, NULL },
    { "cut-both-holders", cut_both_holders, NULL }, { "lose-each-rack", every_rack, NULL },
    { "lose-each-machine-of-two-nodes", every_machine, NULL },
    { "lose-more-than-copies", beyond, NULL },
    { "lose-more-than-copies-and-remove", beyond_removed, NULL },
    { "lose-again-before-a-save", again_before_a_save, NULL },
    { "replace-under-survivors", replaced_under_survivors, "2" },
    { "replace-first-under-survivors", replaced_under_survivors, "0" },
    { "reboot-under-survivors", replaced_under_survivors, "2 rebooted" },
    { "reboot-first-under-survivors", replaced_under_survivors, "0 rebooted" }, { 0 } };
