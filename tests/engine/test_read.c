/* SPDX-License-Identifier: Apache-2.0 */
/* What is lent to readers, and what they are told where it is not. In virtual time. */
#include "reader.h"

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
