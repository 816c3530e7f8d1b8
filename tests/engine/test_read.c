/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that are lent to readers, and the errors that readers get otherwise. In virtual time. */
#include "reader.h"

#include "core/base/crc.h"
#include "replication/transfer/transfer.h"
#include "transport/session/session_parts.h"

TestSuite(reading, .init = start, .fini = end);

static void ask_map(const struct hth_object *o)
{
    struct hth_local_map m = { .object = o->id };

    m.save = hth_local_save_of(w.newest.id);
    say(&m, sizeof(m), HTH_LOCAL_MAP);
}

static void unmap(uint64_t lease)
{
    struct hth_local_unmap m = { .lease = lease };

    say(&m, sizeof(m), HTH_LOCAL_UNMAP);
    wait_for(HTH_LOCAL_OK);
}

static void refused(int code)
{
    wait_for(HTH_LOCAL_ERROR);
    cr_assert(eq(int, heard.error.code, code), "%s", heard.error.text);
}

Test(reading, a_slot_is_lent_until_it_is_given_back_or_its_reader_goes)
{
    struct hth_held *h = shard(1, 1);
    uint64_t first;

    attach(1);
    ask_map(&h->object);
    wait_for(HTH_LOCAL_MAPPED);
    first = heard.mapped.lease;
    cr_assert(eq(u64, heard.mapped.slot, h->slot->id));
    cr_assert(eq(u64, heard.mapped.data_len, h->object.data_len));
    ask_map(&h->object);
    wait_for(HTH_LOCAL_MAPPED);
    cr_assert(eq(u32, h->slot->leases, 2));
    unmap(first);
    unmap(first); /* again: nothing */
    cr_assert(eq(u32, h->slot->leases, 1));
    hth_node_client_gone(world_node(&w, 1), OURS);
    cr_assert(zero(u32, h->slot->leases));
}

/* As an engine finds it when it starts. */
Test(reading, what_nobody_has_looked_at_is_looked_at_before_it_is_lent)
{
    struct hth_held *h = shard(1, 1);
    uint32_t before;

    attach(1);
    h->verified = 0;
    w.machine[1].slow_ms = 100;
    before = answers;
    ask_map(&h->object);
    range(&h->object);
    cr_assert(eq(u32, answers, before));
    world_advance(&w, w.now_ms + 500);
    cr_assert(eq(u32, answers, before + 2));
    cr_assert(eq(int, h->verified, 1));
    cr_assert(eq(u32, h->slot->leases, 1));
}

Test(reading, what_is_wrong_when_it_is_looked_at_is_lent_to_nobody_and_brought_back)
{
    struct hth_held *h = shard(1, 1);
    const struct hth_slot *was = h->slot;
    struct hth_object o = h->object;

    attach(1);
    h->verified = 0;
    tip(h);
    ask_map(&o);
    refused(HEARTH_ENOENT);
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(int, is_back(1, 1, was), 1));
}

Test(reading, a_range_of_what_is_wrong_here_comes_from_a_peer)
{
    struct hth_held *h = shard(1, 1);
    struct hth_object o = h->object;

    attach(1);
    h->verified = 0;
    tip(h);
    range(&o);
    wait_for(HTH_LOCAL_BYTES);
    cr_assert(eq(u64, heard.bytes.len, o.data_len));
}

Test(reading, who_goes_while_it_is_looked_at_is_answered_nothing)
{
    struct hth_held *h = shard(1, 1);
    uint32_t before;

    attach(1);
    h->verified = 0;
    w.machine[1].slow_ms = 100;
    ask_map(&h->object);
    hth_node_client_gone(world_node(&w, 1), OURS);
    before = answers;
    world_advance(&w, w.now_ms + 500);
    cr_assert(eq(u32, answers, before));
    cr_assert(eq(int, h->verified, 1));
    cr_assert(zero(u32, h->slot->leases));
}

/* The engine's own end frees what waits. */
Test(reading, an_engine_ends_while_somebody_waits_for_a_look)
{
    struct hth_held *h = shard(1, 1);

    attach(1);
    ask_map(&h->object);
    h->verified = 0;
    w.machine[1].slow_ms = 60000;
    ask_map(&h->object);
}

Test(reading, what_is_not_there_is_refused_by_name)
{
    struct hth_local_map m = { .object = 4711, .len = 8 };
    struct hth_object o = shard(1, 1)->object;
    struct hth_save_id none = w.newest.id;

    attach(1);
    m.save = hth_local_save_of(w.newest.id);
    say(&m, sizeof(m), HTH_LOCAL_MAP);
    refused(HEARTH_ENOENT);
    say(&m, sizeof(m), HTH_LOCAL_RANGE);
    refused(HEARTH_EINVAL);
    o.data_len = hth_object_file_bytes(&o);
    range(&o); /* from behind the block on, so it ends beyond the file */
    refused(HEARTH_EINVAL);
    none.step += 1000;
    m.save = hth_local_save_of(none);
    say(&m, sizeof(m), HTH_LOCAL_RANGE);
    refused(HEARTH_ELOST);
    say(&m, sizeof(m), HTH_LOCAL_MANIFEST);
    refused(HEARTH_ENOENT);
}

static void common(struct hth_save_id save, const char *name)
{
    struct hth_local_common m = { .save = hth_local_save_of(save) };

    strcpy(m.name, name);
    say(&m, sizeof(m), HTH_LOCAL_COMMON_GET);
}

Test(reading, a_common_object_is_read_whole_on_every_node)
{
    unsigned char want[WORLD_COMMON_MAX];
    uint64_t len = world_common(want, rank_tag(w.lineage, w.newest.id.attempt), w.newest.id.step);
    struct hth_save_id foreign = { .epoch = 1, .step = w.newest.id.step };

    for (uint32_t at = 0; at < w.opts.nodes; at++) {
        attach(at);
        common(w.newest.id, WORLD_COMMON);
        wait_for(HTH_LOCAL_BYTES);
        cr_assert(eq(u64, heard.bytes.len, len));
        common(w.newest.id, "none");
        refused(HEARTH_ENOENT);
        common(w.newest.id, "../lock");
        refused(HEARTH_EINVAL);
        common(foreign, WORLD_COMMON); /* of a container that is not here */
        refused(HEARTH_ENOENT);
        cr_assert(ne(ptr, strstr(heard.error.text, "hearth_recover_opts.common"), NULL), "%s",
                heard.error.text);
        hth_node_client_gone(world_node(&w, at), OURS);
    }
}

/* ---- Ranges of others'
 * ------------------------------------------------------------------------- */

#define FAR 2u /* a node that holds nothing of rank 0: copies go to the next node */

static struct hth_object far_object(void)
{
    struct hth_object o = shard(0, 0)->object;

    cr_assert(eq(ptr, object_at(FAR, 0, HTH_OBJECT_SHARD), NULL));
    attach(FAR);
    return o;
}

static uint64_t pulled(void)
{
    uint64_t bytes = 0;

    hth_transfer_pulled(hth_node_ctx(world_node(&w, FAR)), &bytes, NULL);
    return bytes;
}

Test(reading, a_range_is_pulled_once_for_all_who_ask_and_who_goes_is_answered_nothing)
{
    struct hth_object o = far_object();
    uint32_t before = answers;
    uint64_t none, twice;

    none = pulled();
    w.slow_ms = 100;
    range(&o);
    range(&o);
    cr_assert(eq(u32, answers, before));
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(u32, answers, before + 2));
    cr_assert(eq(u32, heard.head.type, HTH_LOCAL_BYTES));
    twice = pulled();
    range(&o);
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(u64, pulled() - twice, twice - none));
    range(&o);
    range(&o);
    hth_node_client_gone(world_node(&w, FAR), OURS);
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(u32, answers, before + 3));
}

Test(reading, what_no_node_has_any_more_is_an_error_for_all_who_wait)
{
    struct hth_object o = far_object();
    uint32_t before = answers;

    for (uint32_t at = 0; at < FAR; at++)
        hth_held_drop(hth_node_ctx(world_node(&w, at)),
                hth_holdings_find(hth_node_ctx(world_node(&w, at)), w.newest.id), shard(at, 0));
    range(&o);
    range(&o);
    for (int i = 0; i < 60 && answers < before + 2; i++)
        world_advance(&w, w.now_ms + 1000);
    cr_assert(eq(u32, answers, before + 2));
    refused(HEARTH_ELOST);
}

Test(reading, where_all_that_have_it_are_lost_it_is_refused_at_once)
{
    struct hth_object o = far_object();
    uint32_t *down = hth_node_ctx(world_node(&w, FAR))->lost;

    down[0] = down[1] = 1;
    range(&o);
    cr_assert(eq(u32, heard.head.type, HTH_LOCAL_ERROR));
    refused(HEARTH_ELOST);
    down[0] = down[1] = 0;
}

Test(reading, an_engine_ends_while_ranges_are_on_their_way)
{
    struct hth_object o = far_object();

    w.slow_ms = 60000;
    range(&o);
    range(&o);
}

/* ---- Slices of others' ---------------------------------------------------------------------- */

/* A few bytes of the object of rank 0, which the answer's checksum proves. */
static void slice_is_read(const struct hth_object *o, uint32_t summed)
{
    struct hth_local_map m = { .object = o->id, .off = HTH_BLOCK + 3, .len = 5 };
    const unsigned char *right = shard(0, 0)->slot->base;
    uint32_t sum = hth_crc32c(right + m.off, m.len);

    m.save = hth_local_save_of(w.newest.id);
    say(&m, sizeof(m), HTH_LOCAL_RANGE);
    wait_for(HTH_LOCAL_BYTES);
    cr_assert(eq(u64, heard.bytes.len, m.len));
    cr_assert(eq(u32, heard.bytes.summed, summed));
    cr_assert(eq(u32, heard.bytes.sum, summed ? sum : 0));
}

Test(reading, a_slice_of_another_nodes_moves_what_was_asked_for)
{
    struct hth_object o = far_object();
    uint64_t before = pulled();

    slice_is_read(&o, 1);
    cr_assert(eq(u64, pulled() - before, 5));
}

/* Node FAR speaks an older protocol with all from here on. */
static void far_is_older(void)
{
    struct hth_session *session = hth_node_ctx(world_node(&w, FAR))->session;

    session->opts.version_high = HTH_VERSION_SUMS - 1;
    for (uint32_t i = 0; i < FAR; i++)
        hth_session_drop(session, i);
    machine_touch(&w, w.member[FAR]);
    world_advance(&w, w.now_ms + SOON);
}

Test(reading, a_slice_comes_in_whole_chunks_from_an_engine_that_has_no_checksums_of_slices)
{
    struct hth_object o = far_object();
    uint64_t before;

    far_is_older();
    before = pulled();
    slice_is_read(&o, 0);
    cr_assert(ge(u64, pulled() - before, o.data_len));
    cr_assert(eq(u8, hth_session_version(hth_node_ctx(world_node(&w, FAR))->session, 0),
            HTH_VERSION_SUMS - 1));
}

Test(reading, a_slice_of_a_chunk_that_is_wrong_comes_from_another_and_the_copy_is_brought_back)
{
    const struct hth_held *h = shard(0, 0);
    const struct hth_slot *was = h->slot;
    struct hth_object o = far_object();
    struct hth_local_map m = { .object = o.id, .off = HTH_BLOCK + 3, .len = 5 };

    tip(h); /* a byte that is not in the slice */
    m.save = hth_local_save_of(w.newest.id);
    say(&m, sizeof(m), HTH_LOCAL_RANGE);
    wait_for(HTH_LOCAL_BYTES);
    cr_assert(eq(u32, heard.bytes.sum, hth_crc32c(written + 3, 5)));
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(int, is_back(0, 0, was), 1));
}

static const struct hth_store_ops *real;

static int no_reader(
        struct hth_store *s, const struct hth_slot *slot, int *out_fd, struct hearth_error *err)
{
    (void)s, (void)slot, (void)out_fd;
    return hth_fail(err, HEARTH_EIO, 0, "no descriptor is left");
}

Test(reading, a_slot_without_a_descriptor_to_read_it_by_is_lent_to_nobody)
{
    struct hth_held *h = shard(1, 1);
    struct hth_store *store = hth_node_ctx(world_node(&w, 1))->store;
    struct hth_store_ops ops = *store->ops;

    attach(1);
    real = store->ops;
    ops.reader = no_reader;
    store->ops = &ops;
    ask_map(&h->object);
    store->ops = real;
    refused(HEARTH_EIO);
    cr_assert(zero(u32, h->slot->leases));
}
