/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that are replaced under a job that saves every second. */
#include "cluster.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EACH_MS 1000

struct saving {
    uint64_t step, next_ms;
};

static int save_in_time(struct world *w, struct saving *s)
{
    uint64_t now = now_ms();

    if (now < s->next_ms)
        nap_ms((unsigned)(s->next_ms - now));
    s->next_ms = now_ms() + EACH_MS;
    return world_save(w, s->step++);
}

/* The command runs in a process of its own, at any time of a save. */
static pid_t upgrade_begin(struct world *w, uint32_t k, uint32_t late_ms)
{
    const char *const args[] = { "upgrade", "job", NULL };
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        char text[2000];
        int status = 1;

        nap_ms(late_ms);
        if (node_hearth(w, k, args, text, sizeof(text), &status))
            status = 1;
        note(w, "hearth upgrade on %s: status %d: %s", w->node[k].name, status, text);
        fflush(NULL);
        _exit(status);
    }
    return pid;
}

static int upgrade_one(struct world *w, uint32_t k, uint32_t late_ms, struct saving *s)
{
    pid_t before = node_engine(w, k), command = upgrade_begin(w, k, late_ms);
    int status = 0, rc = 0;

    do
        rc = save_in_time(w, s);
    while (!rc && waitpid(command, &status, WNOHANG) == 0);
    if (rc)
        return rc;
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return lost(w, "hearth upgrade on %s ended with status %x", w->node[k].name, status);
    return node_engine(w, k) != before ? 0
                                       : lost(w, "%s has the engine that it had", w->node[k].name);
}

/* An engine that is killed in a save. */
static int kill_one(struct world *w, uint32_t k, struct saving *s)
{
    TRY(world_save_begin(w, s->step));
    TRY(node_engine_signal(w, k, SIGKILL));
    TRY(world_answers(w, 20000));
    return world_save_end(w, s->step++);
}

/* Each engine of four in turn, arg times, and a kill after each. No save fails, and the newest is
 * there at the end. */
static int upgrade_each(struct world *w, const char *arg)
{
    unsigned rounds = (unsigned)strtoul(arg, NULL, 10);
    struct saving s = { .step = 3 };

    w->loses_engines = 1;
    TRY(world_begin(w, 4, 1, 2));
    for (unsigned i = 0; i < rounds; i++)
        for (uint32_t k = 0; k < w->nodes; k++) {
            TRY(upgrade_one(w, k, (i * 4 + k) * 170 % EACH_MS, &s));
            TRY(kill_one(w, (k + 1) % w->nodes, &s));
        }
    note(w, "%u upgrades, %u kills, %lu saves", rounds * w->nodes, rounds * w->nodes,
            (unsigned long)s.step - 1);
    return world_restart(w, s.step - 1);
}

/* The coordinator's engine, and another, are replaced while a save waits for one rank. */
static int upgrade_in_a_save(struct world *w, const char *arg)
{
    static const uint32_t nodes[] = { 1, 0 };
    char line[64];

    (void)arg;
    w->loses_engines = 1;
    TRY(world_begin(w, 4, 1, 2));
    for (uint32_t i = 0; i < 2; i++) {
        const char *const args[] = { "upgrade", "job", NULL };
        char text[2000];
        int status;

        w->tags++;
        w->step_of[w->tags] = w->newest = 3 + i;
        snprintf(line, sizeof(line), "save %u %lu", 3 + i, (unsigned long)w->tags);
        for (uint32_t r = 0; r < 3; r++)
            TRY(rank_post(w, r, line));
        for (uint32_t r = 0; r < 3; r++)
            TRY(rank_answer(w, r, 15000));
        TRY(node_hearth(w, nodes[i], args, text, sizeof(text), &status));
        if (status)
            return lost(w, "hearth upgrade on %s: %s", w->node[nodes[i]].name, text);
        TRY(rank_post(w, 3, line));
        TRY(rank_answer(w, 3, 15000));
        TRY(world_save_end(w, 3 + i));
    }
    return world_restart(w, 4);
}

const struct scenario scenarios_upgrade[] = { { "upgrade-in-a-save", upgrade_in_a_save, NULL },
    { "upgrade-each", upgrade_each, "1" }, { 0 } };
/* On demand. */
const struct scenario scenarios_upgrades[] = { { "upgrade-each-20", upgrade_each, "20" }, { 0 } };
