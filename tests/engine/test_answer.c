/* SPDX-License-Identifier: Apache-2.0 */
/* Which thread copies the bytes of an answer. The world itself is broken where an engine's thread
 * copies many. */
#include "reader.h"

#include "engine/state/answer.h"
#include "replication/transfer/transfer.h"
#include <errno.h>

#define FAR 2u /* a node that holds nothing of rank 0 */

static void start_large(void)
{
    start_with(12u << 20);
}

TestSuite(answers, .init = start_large, .fini = end);

/* Of rank 0, and longer than what is copied at once. */
static struct hth_object large(void)
{
    struct hth_object o = shard(0, 0)->object;

    cr_assert(gt(u64, o.data_len, ANSWER_HERE));
    return o;
}

static void range_of(const struct hth_object *o, uint64_t len)
{
    struct hth_object part = *o;

    part.data_len = len;
    range(&part);
}

Test(answers, a_long_range_of_this_node_is_copied_by_workers)
{
    struct hth_object o = large();
    struct hth_held *h = shard(0, 0);
    uint64_t here;
    uint32_t before;

    attach(0);
    here = w.attached[0];
    before = answers;
    w.machine[0].slow_ms = 100;
    range(&o);
    cr_assert(eq(u32, answers, before));
    cr_assert(eq(u32, h->slot->leases, 1), "nothing may be written there meanwhile");
    wait_for(HTH_LOCAL_BYTES);
    cr_assert(eq(u64, heard.bytes.len, o.data_len));
    cr_assert(eq(u64, w.attached[1], o.data_len));
    cr_assert(eq(u64, w.attached[0], here));
    cr_assert(zero(u32, h->slot->leases));
}

Test(answers, a_long_range_of_a_peer_is_copied_by_workers_once_for_all_who_ask)
{
    struct hth_object o = large();
    uint32_t before;

    attach(FAR);
    w.slow_ms = 100;
    before = answers;
    range(&o);
    range(&o);
    cr_assert(eq(u32, answers, before));
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(u32, answers, before + 2));
    cr_assert(eq(u32, heard.head.type, HTH_LOCAL_BYTES));
    cr_assert(eq(u64, w.attached[1], o.data_len));
}

Test(answers, a_short_one_is_copied_at_once)
{
    struct hth_object o = large();
    uint64_t here;

    attach(0);
    here = w.attached[0];
    w.machine[0].slow_ms = 100;
    range_of(&o, ANSWER_HERE);
    cr_assert(eq(u32, heard.head.type, HTH_LOCAL_BYTES));
    cr_assert(eq(u64, w.attached[0] - here, ANSWER_HERE));
    range_of(&o, ANSWER_HERE + 1);
    cr_assert(zero(u32, heard.head.type));
    wait_for(HTH_LOCAL_BYTES);
    cr_assert(eq(u64, w.attached[1], ANSWER_HERE + 1));
}

Test(answers, who_goes_while_it_is_copied_is_answered_nothing_and_its_lease_ends)
{
    struct hth_object o = large();
    struct hth_held *h = shard(0, 0);
    uint32_t before;

    attach(0);
    w.machine[0].slow_ms = 100;
    range(&o);
    cr_assert(eq(u32, h->slot->leases, 1));
    hth_node_client_gone(world_node(&w, 0), OURS);
    cr_assert(eq(u32, h->slot->leases, 1), "a worker reads there");
    before = answers;
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(u32, answers, before));
    cr_assert(zero(u32, h->slot->leases));
}

Test(answers, without_a_descriptor_all_who_asked_hear_why)
{
    struct hth_object o = large();
    uint32_t before;

    attach(FAR);
    w.attach_fails = EMFILE;
    before = answers;
    range(&o);
    range(&o);
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(u32, answers, before + 2));
    cr_assert(eq(u32, heard.head.type, HTH_LOCAL_ERROR));
    cr_assert(eq(int, heard.error.code, HEARTH_EIO));
    cr_assert(eq(int, heard.error.native, EMFILE));
}

Test(answers, an_engine_ends_while_its_workers_copy)
{
    struct hth_object o = large();

    attach(0);
    w.machine[0].slow_ms = 60000;
    range(&o);
    attach(FAR);
    w.machine[FAR].slow_ms = 60000;
    range(&o);
    world_advance(&w, w.now_ms + SOON);
}
