/* SPDX-License-Identifier: Apache-2.0 */
/* The faults between machines: messages and pulls, one by one, and memory that is registered. */
#include "world_parts.h"

#define SMALL 1000u /* bytes of a pull that passes where packets above that are lost */

/* An engine that has come to the point where it dies sends nothing more. */
static int is_dying(const struct world *w, uint32_t port)
{
    for (uint32_t m = 0; w->dies && m < w->machines; m++)
        if (w->machine[m].dying && w->machine[m].port == port)
            return 1;
    return 0;
}

static struct hth_loop_verdict pull_verdict(struct world *w, uint32_t die)
{
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };

    if (w->slow_ms && die > 8) {
        v.fault = HTH_LOOP_STALL;
        w->count[WORLD_DROP]++;
    } else if (die < 3) {
        v.fault = HTH_LOOP_FLIP;
        w->count[WORLD_FLIP]++;
    } else if (die < 5) {
        v.fault = HTH_LOOP_CUT;
        w->count[WORLD_DROP]++;
    } else {
        v.delay_ms = 1 + world_roll(w, 300);
        w->count[WORLD_LATE]++;
    }
    return v;
}

static struct hth_loop_verdict message_verdict(
        struct world *w, enum hth_loop_kind kind, uint32_t die)
{
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };

    if (kind == HTH_LOOP_MESSAGE && die < 3) {
        v.fault = HTH_LOOP_DUPLICATE;
        w->count[WORLD_DOUBLE]++;
    } else if (die < 5) {
        v.fault = HTH_LOOP_DROP;
        w->count[WORLD_DROP]++;
    } else {
        v.delay_ms = 1 + world_roll(w, 300);
        v.late = kind == HTH_LOOP_MESSAGE && die < 8;
        w->count[WORLD_LATE]++;
    }
    return v;
}

static struct hth_loop_verdict net_fault(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    struct world *w = arg;
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };
    int pull = kind == HTH_LOOP_PULL;
    uint32_t die, delay_ms = 0;

    if (pull && len > SMALL && from && to && ill_stalls(w, from - 1, to - 1)) {
        w->count[WORLD_DROP]++;
        v.fault = HTH_LOOP_STALL;
        return v;
    }
    if (!pull && is_dying(w, from))
        v.fault = HTH_LOOP_DROP;
    else if (kind == HTH_LOOP_MESSAGE)
        heard_word(w, from, bytes, len);
    if (v.fault != HTH_LOOP_NONE || w->quiet || !w->opts.faults || w->calm == w->lineage ||
            !fault_is_on(w, WORLD_KIND_NET))
        return v;
    if (pull && w->slow_ms && (w->slow_port == 0 || w->slow_port == from))
        delay_ms = world_roll(w, w->slow_ms); /* a world where copies take their time */
    die = world_roll(w, w->slow_ms && pull ? 60 : w->net_sides);
    if (die < 12) {
        v = pull ? pull_verdict(w, die) : message_verdict(w, kind, die);
        w->hits[WORLD_KIND_NET]++;
        said_noise(w, from, to);
    }
    v.delay_ms += delay_ms;
    return v;
}

static struct hth_loop_verdict script(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    struct hth_loop_verdict v = net_fault(arg, kind, from, to, bytes, len);

    v.delay_ms += block_delay_ms(arg, from);
    return v;
}

/* Called for each registration. Only workers may register: on an engine's thread everything stands
 * still meanwhile. */
static int on_reg(void *self, uint32_t node, const void *base, uint64_t len)
{
    struct world *w = self;

    (void)base;
    w->regs++;
    w->slot_regs += w->opts.slot_bytes && len >= w->opts.slot_bytes;
    if (w->working) {
        w->work_cost_ms += w->reg_ms;
        return node == (len >= w->opts.slot_bytes ? w->opts.reg_fails : w->opts.blob_fails)
                       ? HEARTH_ENOMEM
                       : 0;
    }
    w->now_ms += w->reg_ms;
    world_broken(w, "port %u registers %llu bytes on its engine's thread", node,
            (unsigned long long)len);
    return 0;
}

void net_open(struct world *w)
{
    hth_loop_net_script(w->net, script, w);
    hth_loop_net_on_reg(w->net, on_reg, w);
    if (w->opts.faults && w->opts.seed % 5 == 0)
        hth_loop_net_no_revoke(w->net);
    w->net_sides = 400u << world_roll(w, 4) % 4;
}
