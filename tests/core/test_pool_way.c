/* SPDX-License-Identifier: Apache-2.0 */
/* Free slots that make way for other sizes, and those that ranks and readers have mapped. */
#include "raws.h"

#include "pool_rig.h" /* last: it has variables of short names */
#include <criterion/logging.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static void *map_as_rank(const struct hth_slot *slot)
{
    void *mapped = mmap(NULL, slot->capacity, PROT_READ | PROT_WRITE, MAP_SHARED, slot->fd, 0);

    cr_assert(ne(ptr, mapped, MAP_FAILED));
    return mapped;
}

/* Its memory stays until the rank unmaps it, also where the engine had it since, for a copy. */
static void mapped_makes_no_way(int had_since)
{
    uint64_t first = 100 * MIB, second = 120 * MIB;
    struct hth_slot *slot;
    void *mapped;

    tight((struct hth_store_tmpfs_opts){ 0 });
    must(s->ops->reserve(s, &first, 1, NULL));
    work_all();
    must(s->ops->lend(s, first, 0, &slot, NULL));
    mapped = map_as_rank(slot);
    s->ops->give(s, slot);
    if (had_since)
        s->ops->give(s, take(first));
    must_fail(s->ops->reserve(s, &second, 1, NULL), HEARTH_ENOSPC);
    cr_assert(eq(ptr, s->ops->mapped(s), slot));
    cr_assert(eq(ptr, s->ops->mapped(s), NULL));
    munmap(mapped, slot->capacity); /* as the engine asks the rank to */
    must(s->ops->reserve(s, &second, 1, NULL));
    work_all();
    pattern(take(second)->base, second, 1);
    cr_assert(eq(ptr, strstr(said, "slot-lost"), NULL), "%s", said);
    teardown();
}

Test(pool_way, a_slot_that_a_rank_has_mapped_makes_no_way)
{
    mapped_makes_no_way(0);
}

Test(pool_way, a_slot_that_a_rank_had_before_the_engine_makes_no_way)
{
    mapped_makes_no_way(1);
}

/* The bytes are all that the caller gives, as at a begin: the slots in the way are as large as an
 * object was. */
Test(pool_way, free_slots_of_other_sizes_make_way_where_nothing_was_reserved)
{
    uint64_t small = 40 * MIB, large = 100 * MIB;
    struct hth_slot *slot[3];
    void *mapped;

    tight((struct hth_store_tmpfs_opts){ 0 });
    for (int i = 0; i < 3; i++)
        must(s->ops->lend(s, small, 0, &slot[i], NULL));
    mapped = map_as_rank(slot[0]);
    for (int i = 0; i < 3; i++)
        s->ops->give(s, slot[i]);
    must(s->ops->want(s, &large, 1, HTH_WANT_OR_READERS, NULL));
    work_all();
    pattern(take(large)->base, large, 1);
    (void)take(small); /* one had to go */
    must_fail(s->ops->want(s, &large, 1, HTH_WANT_BESIDE, NULL), HEARTH_ENOSPC);
    munmap(mapped, slot[0]->capacity);
    cr_assert(eq(ptr, strstr(said, "slot-lost"), NULL), "%s", said);
    teardown();
}

/* Where nothing was reserved take() does not wait for them, and needs the room. */
Test(pool_way, they_make_way_too_where_a_reader_has_the_only_one_of_the_size)
{
    uint64_t small = 40 * MIB, large = 80 * MIB;
    struct hth_slot *slot[2];

    tight((struct hth_store_tmpfs_opts){ 0 });
    slot[0] = take(large);
    slot[1] = take(small);
    s->ops->lease(s, slot[0]);
    s->ops->give(s, slot[0]);
    s->ops->give(s, slot[1]);
    must(s->ops->want(s, &large, 1, HTH_WANT_OR_READERS, NULL));
    work_all();
    (void)take(large);
    s->ops->unlease(s, slot[0]);
    teardown();
}

Test(pool_way, a_rank_is_waited_for_that_has_mapped_what_makes_way)
{
    uint64_t small = 100 * MIB, large = 120 * MIB;
    struct hth_slot *slot;
    struct hearth_error err;
    void *mapped;

    tight((struct hth_store_tmpfs_opts){ 0 });
    must(s->ops->lend(s, small, 0, &slot, NULL));
    mapped = map_as_rank(slot);
    s->ops->give(s, slot);
    for (int i = 0; i < 2; i++) {
        must_fail(s->ops->want(s, &large, 1, HTH_WANT_OR_READERS, &err), HEARTH_EBUSY);
        cr_assert(ne(ptr, strstr(err.text, "when ranks have unmapped"), NULL), "%s", err.text);
    }
    cr_assert(eq(ptr, s->ops->mapped(s), slot));
    munmap(mapped, slot->capacity);
    must(s->ops->want(s, &large, 1, HTH_WANT_OR_READERS, NULL));
    work_all();
    pattern(take(large)->base, large, 1);
    teardown();
}

Test(pool_way, what_was_reserved_makes_no_way_for_what_was_not)
{
    uint64_t small = 100 * MIB, large = 120 * MIB;

    tight((struct hth_store_tmpfs_opts){ 0 });
    must(s->ops->reserve(s, &small, 1, NULL));
    work_all();
    must_fail(s->ops->want(s, &large, 1, HTH_WANT_OR_READERS, NULL), HEARTH_ENOSPC);
    (void)take(small);
    teardown();
}

/* A job that is over keeps its memory: if each run has a new name, the mount fills up. */
Test(pool_way, names_the_job_that_takes_the_room)
{
    struct hth_store_tmpfs_opts opts = { .margin_bytes = 4 * MIB, .job = "last-run" };
    struct hth_store *last;
    struct hth_slot *slot;
    struct hearth_error err;
    uint64_t bytes = 100 * MIB;

    tight((struct hth_store_tmpfs_opts){ 0 });
    opts.root = root;
    must(hth_store_tmpfs_open(&opts, &last, NULL));
    must(last->ops->take(last, 120 * MIB, &slot, NULL));
    must_fail(s->ops->reserve(s, &bytes, 1, &err), HEARTH_ENOSPC);
    cr_assert(ne(ptr, strstr(err.text, "; job 'last-run' takes 13"), NULL), "%s", err.text);
    cr_assert(eq(ptr, strstr(err.text, "hearth clean"), NULL), "it is served: %s", err.text);
    last->ops->close(last);
    s->ops->close(s);
    setup(200 * MIB, (struct hth_store_tmpfs_opts){ .margin_bytes = 4 * MIB });
    must_fail(s->ops->reserve(s, &bytes, 1, &err), HEARTH_ENOSPC);
    cr_assert(
            ne(ptr,
                    strstr(err.text, " bytes of it, and no engine serves it: `hearth clean` it if "
                                     "it is over (in "),
                    NULL),
            "%s", err.text);
    teardown();
}

/* Neither slots nor an engine's first records fit. */
Test(pool_way, names_the_job_that_takes_the_room_of_a_common_object_and_of_a_new_job)
{
    static const struct hth_save_id save = { 1, 2, 3, 1 };
    struct hth_store_tmpfs_opts opts = { .margin_bytes = 4 * MIB, .job = "last-run" };
    struct hth_store *last, *next;
    struct hearth_error err;
    struct hth_slot *slot;
    struct hth_raw *raw;
    char path[128], *fill = calloc(1, MIB);
    int fd;

    tight((struct hth_store_tmpfs_opts){ 0 });
    opts.root = root;
    must(hth_store_tmpfs_open(&opts, &last, NULL));
    must(last->ops->take(last, 160 * MIB, &slot, NULL));
    must_fail(s->ops->raw_make(s, save, "raw", 60 * MIB, &raw, &err), HEARTH_ENOSPC);
    cr_assert(ne(ptr, strstr(err.text, "lower keep if above 1; job 'last-run' takes 1"), NULL),
            "%s", err.text);
    snprintf(path, sizeof(path), "%s/fill", root);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (write(fd, fill, MIB) > 0)
        continue;
    opts.job = "next";
    must_fail(hth_store_tmpfs_open(&opts, &next, &err), HEARTH_ENOSPC);
    cr_assert(ne(ptr, strstr(err.text, "; job 'last-run' takes 1"), NULL), "%s", err.text);
    close(fd);
    free(fill);
    last->ops->close(last);
    teardown();
}

/* What is said to fit fits, to the last slot, and no more does. */
Test(pool_way, room_is_what_may_still_be_made)
{
    uint64_t sizes[100];
    struct hth_store_room room;
    struct hth_slot *slot;

    tight((struct hth_store_tmpfs_opts){ .limit_bytes = 150 * MIB });
    for (uint32_t i = 0; i < 100; i++)
        sizes[i] = 4 * MIB;
    must(s->ops->reserve(s, sizes, 3, NULL));
    work_all();
    slot = take(4 * MIB);
    must(s->ops->room(s, &room));
    cr_expect(eq(u64, room.slots, 3 * slot->capacity));
    cr_expect(eq(u64, room.free, 2 * slot->capacity));
    cr_expect(eq(u64, room.max, 150 * MIB));
    cr_expect(eq(u64, room.size, 200 * MIB));
    cr_expect(le(u64, room.left, 200 * MIB - room.slots));
    cr_expect(eq(u64, room.spare, 150 * MIB - room.slots));
    /* reserve() counts the slots that there are among those that it ensures */
    must(s->ops->enough(s, sizes, 3 + room.spare / slot->capacity, NULL));
    must_fail(s->ops->enough(s, sizes, 4 + room.spare / slot->capacity, NULL), HEARTH_ENOSPC);
    s->ops->give(s, slot);
    teardown();
}
