/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job as a whole: all ranks receive the same orders, and the bytes that they recover are
 * compared with those that they wrote. The rule that every recovery is held to: the newest step
 * that all ranks saw PROTECTED, or a later one that was begun, the same on all ranks, every byte of
 * one save.
 */
#include "cluster.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int world_open(struct world *w, uint32_t nodes, uint32_t per_node)
{
    w->nodes = nodes;
    w->per_node = per_node;
    w->ranks = nodes * per_node;
    w->save_ms = w->save_ms ? w->save_ms : 20000;
    w->open_ms = w->open_ms ? w->open_ms : 15000;
    w->recover_ms = w->recover_ms ? w->recover_ms : 15000;
    w->kib = w->kib ? w->kib : 5 * 1024;
    w->mib = w->mib ? w->mib : 256;
    for (uint32_t r = 0; r < w->ranks; r++)
        w->seat[r] = r / per_node;
    for (uint32_t k = 0; k < nodes; k++)
        TRY(node_up(w, k));
    return 0;
}

int world_start(struct world *w)
{
    w->launches++;
    for (uint32_t r = 0; r < w->ranks; r++)
        TRY(rank_start(w, r, w->seat[r]));
    return world_answers(w, w->open_ms + 10000);
}

void world_stop(struct world *w)
{
    for (uint32_t r = 0; r < w->ranks; r++)
        rank_kill(w, r);
    note(w, "all ranks killed");
}

void world_close(struct world *w)
{
    if (w->closing)
        w->closing();
    world_stop(w);
    for (uint32_t k = 0; k < NODES_MAX; k++)
        node_kill(w, k);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
}

int world_post(struct world *w, const char *line)
{
    for (uint32_t r = 0; r < w->ranks; r++)
        TRY(rank_post(w, r, line));
    return 0;
}

int world_answers(struct world *w, unsigned ms)
{
    uint64_t until = now_ms() + ms;
    int rc = 0;

    for (uint32_t r = 0; r < w->ranks; r++) {
        uint64_t now = now_ms();
        int one = rank_answer(w, r, now < until ? (unsigned)(until - now) : 1);

        rc = rc ? rc : one;
    }
    return rc;
}

int world_answers_any(struct world *w, unsigned ms)
{
    uint64_t until = now_ms() + ms;
    int errors = 0;

    for (uint32_t r = 0; r < w->ranks; r++) {
        uint64_t now = now_ms();

        if (!rank_poll(w, r, now < until ? (unsigned)(until - now) : 1))
            return lost(w, "rank %u did not answer '%s' in %u ms", r, w->rank[r].asked, ms);
        errors |= strncmp(w->rank[r].answer, "ok ", 3) != 0;
    }
    return errors;
}

static int check_got(struct world *w, uint64_t want)
{
    if (want == STEP_ANY && w->got < w->protected)
        return lost(w, "step %lu was PROTECTED, and recovered was %lu", (unsigned long)w->protected,
                (unsigned long)w->got);
    if (want == STEP_ANY && w->got > w->newest)
        return lost(w, "step %lu was recovered and never begun", (unsigned long)w->got);
    if (want != STEP_ANY && w->got != want)
        return lost(w, "step %lu was due, and recovered was %lu", (unsigned long)want,
                (unsigned long)w->got);
    if (w->got == 0)
        return 0;
    if (w->got_tag == 0 || w->got_tag > w->tags || w->step_of[w->got_tag] != w->got)
        return lost(w, "step %lu carries tag %lu, which no save of it had", (unsigned long)w->got,
                (unsigned long)w->got_tag);
    if (w->got == w->protected && w->got_tag < w->protected_tag)
        return lost(w, "step %lu is there in an older attempt than the one that was PROTECTED",
                (unsigned long)w->got);
    return 0;
}

int world_recovered(struct world *w, uint64_t want)
{
    TRY(world_answers(w, w->recover_ms + 10000));
    w->pulled = 0;
    for (uint32_t r = 0; r < w->ranks; r++) {
        unsigned long step = 0, tag = 0, pulled = 0;

        sscanf(w->rank[r].answer, "ok recover %lu %lu %lu %*u %u", &step, &tag, &pulled,
                &w->beyond);
        if (r && (step != w->got || tag != w->got_tag))
            return lost(w, "rank 0 recovered step %lu (tag %lu), rank %u step %lu (tag %lu)",
                    (unsigned long)w->got, (unsigned long)w->got_tag, r, step, tag);
        w->got = step;
        w->got_tag = tag;
        w->pulled += pulled;
    }
    TRY(check_got(w, want));
    w->newest = w->got; /* the job goes on from here */
    w->protected = w->got < w->protected ? w->got : w->protected;
    return 0;
}

int world_recover(struct world *w, uint64_t want)
{
    TRY(world_post(w, "recover"));
    return world_recovered(w, want);
}

int world_save_begin(struct world *w, uint64_t step)
{
    char line[64];

    w->tags++;
    w->step_of[w->tags] = step;
    w->newest = step;
    snprintf(line, sizeof(line), "save %lu %lu", (unsigned long)step, (unsigned long)w->tags);
    return world_post(w, line);
}

int world_save_end(struct world *w, uint64_t step)
{
    char line[64];

    snprintf(line, sizeof(line), "wait %lu %u %u", (unsigned long)step, PROTECTED,
            w->save_ms + 10000);
    TRY(world_post(w, line));
    TRY(world_answers(w, w->save_ms + 12000));
    w->protected = step;
    w->protected_tag = w->tags;
    return 0;
}

int world_save(struct world *w, uint64_t step)
{
    TRY(world_save_begin(w, step));
    TRY(world_answers(w, 15000));
    return world_save_end(w, step);
}

int world_restart(struct world *w, uint64_t step)
{
    world_stop(w);
    TRY(world_start(w));
    return world_recover(w, step);
}

/* The coordinator says so in its log, in the epoch that it has joined last. */
int world_is_protected(struct world *w)
{
    char path[300], line[4096];
    int is = 0;
    FILE *f;

    node_path(w, w->seat[0], ".hearth/log", path, sizeof(path));
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        is = strstr(line, " joined epoch") ? 0 : is || strstr(line, " protected step");
    if (f)
        fclose(f);
    return is;
}

int world_protected(struct world *w)
{
    uint64_t until = now_ms() + 15000;

    for (; !world_is_protected(w); nap_ms(10))
        if (now_ms() >= until)
            return lost(w, "the recovered save was not protected again in 15 s");
    return 0;
}

int world_begin(struct world *w, uint32_t nodes, uint32_t per_node, uint64_t steps)
{
    TRY(world_open(w, nodes, per_node));
    TRY(world_start(w));
    TRY(world_recover(w, 0));
    for (uint64_t s = 1; s <= steps; s++)
        TRY(world_save(w, s));
    return 0;
}
