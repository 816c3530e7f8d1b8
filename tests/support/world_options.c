/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options that differ from one launch to the next: the job is started again with other `copies`,
 * `min_copies`, `keep`, `allow_degraded`, failure domains or ranks a node, on the memory that it
 * has. The judge requires of a save the promises of the launch that decided it, until the present
 * launch has decided another save.
 */
#include "world_parts.h"

#include <string.h>

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static struct world_options now(const struct world *w)
{
    const struct world_opts *o = &w->opts;

    return (struct world_options){ .copies = o->copies,
        .min_copies = o->min_copies,
        .keep = o->keep,
        .ranks_per_node = o->ranks_per_node,
        .racks = o->racks };
}

void options_open(struct world *w)
{
    struct world_options o = now(w);

    w->largest = o;
    w->tolerance = o.min_copies;
    if (!fault_is_on(w, WORLD_KIND_OPTIONS))
        return;
    w->largest.copies = most(o.copies, least(3, w->nodes_max - 1));
    w->largest.keep = most(o.keep, 3);
}

/* Memory that is bounded has to be enough for all of them: its domains and ranks stay. */
void options_draw(struct world *w)
{
    const struct world_options *top = &w->largest;
    struct world_options o = now(w);
    uint32_t copies = least(top->copies, w->opts.nodes - 1);

    o.copies = fault_roll(w, 3) ? 1 + fault_roll(w, copies) : least(o.copies, copies);
    o.min_copies = 1 + fault_roll(w, o.copies);
    o.keep = fault_roll(w, 3) ? 1 + fault_roll(w, top->keep) : o.keep;
    o.allow_degraded = fault_roll(w, 2);
    if (fault_roll(w, 3) == 0)
        o.ranks_per_node = 1 + fault_roll(w, top->ranks_per_node);
    if (fault_roll(w, 3) == 0 && !w->opts.room)
        o.racks = fault_roll(w, 2) ? 2 + fault_roll(w, w->opts.nodes - 1) : 0;
    if (o.racks && !o.allow_degraded) /* else it is refused */
        o.min_copies = least(o.min_copies, o.racks - 1);
    w->hits[WORLD_KIND_OPTIONS]++;
    w->after = o;
    w->changes = 1;
    world_restart(w, 1 + fault_roll(w, 1000), "the job's options change");
}

static uint64_t epoch_of(const struct machine *x)
{
    const struct hth_ctx *ctx = x->node ? hth_node_ctx(x->node) : NULL;

    return ctx && ctx->epoch ? ctx->epoch->epoch : 0;
}

/* The options of the launch that ends, with the last epoch that one of its engines has joined. */
static void remember(struct world *w)
{
    struct world_options *o;
    uint64_t epoch;

    if (w->pasts == LAUNCHES)
        memmove(w->past, w->past + 1, --w->pasts * sizeof(*w->past));
    o = &w->past[w->pasts++];
    *o = now(w);
    o->allow_degraded = w->allow_degraded;
    for (uint32_t r = 0; r < w->ranks; r++)
        o->last_epoch = w->rank[r].epoch > o->last_epoch ? w->rank[r].epoch : o->last_epoch;
    for (uint32_t i = 0; i < w->machines; i++) {
        epoch = i != w->stale_machine ? epoch_of(&w->machine[i]) : 0;
        o->last_epoch = epoch > o->last_epoch ? epoch : o->last_epoch;
    }
}

/* As many copies as its nodes can have, whatever has become of them since. */
void options_launch(struct world *w)
{
    const struct world_options *o = &w->after;
    struct world_opts *to = &w->opts;

    remember(w);
    w->older_keep = most(w->older_keep, to->keep);
    if (!w->changes)
        return;
    w->changes = 0;
    for (uint32_t r = 0; r < w->ranks; r++)
        rank_kill(&w->rank[r]);
    to->copies = least(o->copies, to->nodes - 1);
    to->min_copies = least(o->min_copies, to->copies);
    to->keep = o->keep;
    to->racks = o->racks;
    if (w->stale_machine == UINT32_MAX)
        to->ranks_per_node = o->ranks_per_node;
    w->allow_degraded = o->allow_degraded;
    w->ranks = to->nodes * to->ranks_per_node;
    world_say(w, "options: copies %u, min_copies %u, keep %u, ranks %u, racks %u%s", to->copies,
            to->min_copies, to->keep, to->ranks_per_node, to->racks,
            w->allow_degraded ? ", allow_degraded" : "");
}

/* The options by which an engine decides: those of its epoch's launch. NULL: of the present one. */
static const struct world_options *options_past(const struct world *w, const struct machine *x)
{
    uint64_t epoch = epoch_of(x);

    for (uint32_t i = 0; epoch && i < w->pasts; i++)
        if (epoch <= w->past[i].last_epoch)
            return &w->past[i];
    return epoch || !w->pasts ? NULL : &w->past[w->pasts - 1];
}

uint32_t options_need(const struct world *w, const struct machine *x)
{
    const struct world_options *past = options_past(w, x);

    if (w->allow_degraded || (past && past->allow_degraded))
        return 1;
    return 1 + (past ? least(past->min_copies, w->opts.min_copies) : w->opts.min_copies);
}

void options_decided(struct world *w, const struct machine *x, struct hth_save_id id, int again)
{
    uint32_t have = look_copies(w, id, UINT32_MAX), need = options_need(w, x);

    w->tolerance = need - 1;
    if (need == 1 || again)
        w->tolerance = least(have ? have - 1 : 0, w->opts.min_copies);
    if (!options_past(w, x) && id.epoch == w->rank[0].epoch)
        w->older_keep = 0;
}

uint32_t options_tolerance(const struct world *w)
{
    return least(w->tolerance, w->opts.min_copies);
}

uint32_t options_keep(const struct machine *x)
{
    const struct world *w = x->world;
    const struct world_options *past = options_past(w, x);
    uint32_t keep = most(w->older_keep, w->opts.keep);

    if (x->index == w->stale_machine) /* it goes on with the options of its own launch */
        return w->largest.keep;
    return past ? most(past->keep, keep) : keep;
}
