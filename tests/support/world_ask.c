/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that is no rank asks engines at random what they and other members' engines know, while
 * the job saves, dies and recovers (`asks`). The judge of the answers (P8): each question is
 * answered in time while its engine runs, by the node that was asked; an error names that node.
 */
#include "world_parts.h"

#include "engine/job/elsewhere.h"

#include <stdio.h>
#include <string.h>

#define ASKER   0xffff0000u /* a client that no rank is */
#define MOST_MS 600u        /* beyond ELSEWHERE_MS: the world's ticks are late in it */

static uint32_t ask_roll(struct world *w, uint32_t sides)
{
    return world_roll_of(&w->ask.dice, sides);
}

static void ask_say(struct world *w, struct machine *x, void *m, size_t len, uint32_t type)
{
    const struct hth_local_head head = { (uint32_t)len, type, ++w->ask.request, 0 };

    memcpy(m, &head, sizeof(head));
    w->ask.machine = x->index;
    w->ask.ends = x->ends;
    w->ask.stood_ms = machine_stood_ms(x);
    w->ask.until_ms = w->now_ms + ELSEWHERE_MS + MOST_MS;
    w->ask.waits = 1;
    machine_ask(x, ASKER, m, len, NULL, 0);
}

/* Of a member of the epoch that the engine is in, or one beyond. */
static void ask_elsewhere(struct world *w, struct machine *x)
{
    static const uint32_t types[] = { HTH_LOCAL_STATUS, HTH_LOCAL_HISTORY, HTH_LOCAL_NODES,
        HTH_LOCAL_EVENTS };
    const struct hth_epoch *epoch = hth_node_ctx(x->node)->epoch;
    struct hth_local_elsewhere m = { .type = types[ask_roll(w, 4)], .what = 0 };

    m.node = ask_roll(w, epoch ? epoch->nodes + 1 : 1);
    if (ask_roll(w, 4) == 0)
        m.node = HTH_NODE_NONE;
    w->ask.name[0] = '\0';
    if (epoch && (m.node < epoch->nodes || m.node == HTH_NODE_NONE))
        snprintf(w->ask.name, sizeof(w->ask.name), "%.64s",
                epoch->member[m.node == HTH_NODE_NONE ? 0 : m.node].node);
    ask_say(w, x, &m, sizeof(m), HTH_LOCAL_ELSEWHERE);
}

static void ask_here(struct world *w, struct machine *x)
{
    struct hth_local_history m = { .what = ask_roll(w, 2), .skip = ask_roll(w, 40) };

    w->ask.name[0] = '\0';
    ask_say(w, x, &m, sizeof(m), HTH_LOCAL_HISTORY);
}

/* A stopped engine answers later; one that has ended does not. */
static void ask_judge_wait(struct world *w)
{
    const struct machine *x = &w->machine[w->ask.machine];
    uint64_t stood_ms = machine_stood_ms(x) - w->ask.stood_ms;

    if (!x->node || x->ends != w->ask.ends) {
        w->ask.waits = 0;
        return;
    }
    if (stood_ms || x->stopped || x->blocked || w->hits[WORLD_KIND_BLOCK]) {
        w->ask.stood_ms += stood_ms;
        w->ask.until_ms = w->now_ms + stood_ms + 1000;
        return;
    }
    world_broken(
            w, "P8: machine %u does not answer a question about node '%s'", x->index, w->ask.name);
}

static void asks_hear(struct world *w, const struct letter *l)
{
    const struct hth_local_error *e = (const void *)l->bytes;
    char want[HTH_NAME_MAX + 16];
    const char *text = (const char *)l->bytes + l->len;

    if (l->client != ASKER || l->machine != w->ask.machine || e->head.request != w->ask.request)
        return;
    w->ask.waits = 0;
    snprintf(want, sizeof(want), "\"node\": \"%s\"", w->ask.name);
    if (e->head.type == HTH_LOCAL_ERROR) {
        if (w->ask.name[0] && e->code != HEARTH_ESTATE && !strstr(e->text, w->ask.name))
            world_broken(w, "P8: machine %u: an error does not name node %s: %s", l->machine,
                    w->ask.name, e->text);
        return;
    }
    w->ask.answers++;
    if (l->attached < 2 || text[0] != '{' || text[l->attached - 1] != '}' ||
            (w->ask.name[0] && !memmem(text, l->attached, want, strlen(want))))
        world_broken(
                w, "P8: machine %u: what it answers is not of node '%s'", l->machine, w->ask.name);
}

void asks_open(struct world *w)
{
    w->ask.due_ms = w->opts.asks ? 100 : HTH_NEVER;
    w->ask.dice = w->opts.seed * 0x9e3779b97f4a7c15u + 71;
    if (w->opts.asks)
        w->stranger = asks_hear;
}

void asks_act(struct world *w)
{
    struct machine *x;

    if (w->now_ms < w->ask.due_ms)
        return;
    w->ask.due_ms = w->now_ms + 1 + ask_roll(w, 300);
    if (w->ask.waits && w->now_ms >= w->ask.until_ms)
        ask_judge_wait(w);
    x = &w->machine[ask_roll(w, w->machines)];
    if (w->ask.waits || !x->node)
        return;
    if (ask_roll(w, 4))
        ask_elsewhere(w, x);
    else
        ask_here(w, x);
}

uint64_t asks_due_ms(const struct world *w)
{
    return w->ask.due_ms;
}
