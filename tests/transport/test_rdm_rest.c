/* SPDX-License-Identifier: Apache-2.0 */
/* A transport that looks from time to time: how late it is, and how often it looks. */
#include "check.h"

#include "transport/ofi/rdm_rest.h"

#include <inttypes.h>

/* When it looks next, after what has happened at 0, if `came` us after it something comes. */
static uint64_t seen(uint64_t came, int busy, unsigned *out_looks)
{
    uint64_t at = 0;

    for (*out_looks = 0; at < came; ++*out_looks)
        at += hth_rdm_rest_us(at, busy);
    return at;
}

Test(rdm_rest, what_comes_is_seen_an_eighth_later_at_most)
{
    unsigned looks;

    for (uint64_t came = 1; came < 3000000; came += came / 50 + 1) {
        uint64_t late = seen(came, 0, &looks) - came, busy = seen(came, 1, &looks) - came;

        cr_assert(late <= 50 || late <= came / 8, "%" PRIu64 " us: %" PRIu64, came, late);
        cr_assert(le(u64, late, 5000u));
        cr_assert(le(u64, busy, came < 1000000 ? 1000u : 5000u));
    }
}

/* A heartbeat is an event, too: that many looks each costs. */
Test(rdm_rest, looks_become_rare)
{
    unsigned lately, later;

    seen(40000, 0, &lately);
    seen(1040000, 0, &later);
    cr_expect(le(uint, lately, 60u));
    cr_expect(le(uint, later - lately, 200u));
}
