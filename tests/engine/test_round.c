/* SPDX-License-Identifier: Apache-2.0 */
/* A round of the engine's loop, over a transport that always has more to do. */
#include "check.h"

#include "engine/driver/round.h"

struct busy {
    struct hth_transport base;
    uint64_t now_ms, turn_ms;
    unsigned turns, last; /* last: the turn that finds nothing; 0: none does */
};

static uint64_t busy_now(void *self)
{
    return ((struct busy *)self)->now_ms;
}

static int busy_progress(struct hth_transport *t)
{
    struct busy *b = (struct busy *)(void *)t;

    b->now_ms += b->turn_ms;
    return ++b->turns != b->last;
}

static const struct hth_transport_ops busy_ops = { .name = "busy", .progress = busy_progress };

static void round_of(struct busy *b)
{
    struct hth_clock clock = { busy_now, busy_now, b };

    b->base.ops = &busy_ops;
    hth_round(&b->base, &clock);
}

Test(round, a_transport_that_always_has_more_to_do_does_not_keep_the_tick_waiting)
{
    struct busy b = { .now_ms = 1000, .turn_ms = 25 }, quick = { .now_ms = 1000, .turn_ms = 1 };

    round_of(&b);
    cr_expect(eq(u64, b.now_ms, 1025));
    round_of(&quick);
    cr_expect(eq(u64, quick.now_ms, 1000 + HTH_ROUND_MS));
}

Test(round, ends_when_nothing_is_left_or_the_clock_stands_still)
{
    struct busy b = { .last = 3 }, still = { .last = 0 };

    round_of(&b);
    cr_expect(eq(u32, b.turns, 3));
    round_of(&still);
    cr_expect(eq(u32, still.turns, HTH_ROUND_TURNS));
}
