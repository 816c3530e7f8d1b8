/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of slots that is made by workers, and taken back from them. */
#include "raws.h"

#include <sys/statfs.h>

#include "pool_rig.h" /* last: it has variables of short names */

static const struct hth_save_id save = { 3, 5, 9, 1 };
static struct hth_work *asked;

static void submit(void *self, struct hth_work *work)
{
    (void)self;
    work->next = asked;
    asked = work;
}

static void do_works(void)
{
    while (asked) {
        struct hth_work *work = asked;

        asked = work->next;
        work->run(work);
        work->done(work);
    }
}

Test(pool_workers, a_large_raw_object_is_freed_by_the_workers)
{
    struct hth_raw *raw = NULL;

    root = tmp_root_mount(32 * MIB, NULL);
    if (!root)
        cr_skip_test("no right to mount a tmpfs of a given size");
    setup(32 * MIB,
            (struct hth_store_tmpfs_opts){ .margin_bytes = 1, .workers = { submit, NULL } });
    for (int removed = 0; removed < 2; removed++) {
        must(s->ops->raw_make(s, save, "raw", 20 * MIB, &raw, NULL));
        must(s->ops->raw_back(s, raw, 0, 20 * MIB, NULL));
        must(s->ops->raw_seal(s, raw, NULL));
        s->ops->raw_close(s, raw);
        cr_assert(ne(ptr, asked, NULL));
        if (removed)
            do_works();
        s->ops->remove(s, save);
        must_fail(s->ops->raw_make(s, save, "next", 20 * MIB, &raw, NULL), HEARTH_ENOSPC);
        do_works();
    }
    must(s->ops->raw_make(s, save, "next", 20 * MIB, &raw, NULL));
    s->ops->raw_close(s, raw);
    cr_assert(ne(ptr, asked, NULL));
    s->ops->close(s); /* with works that were never done */
}

static unsigned works(void)
{
    unsigned n = 0;

    for (const struct hth_work *work = asked; work; work = work->next)
        n++;
    return n;
}

static void do_all(void)
{
    while (s->ops->work(s, HTH_WORK_ALL) == HTH_NEVER && asked)
        do_works();
}

static void refused(uint64_t bytes)
{
    struct hth_slot *slot;
    struct hearth_error err;

    cr_assert(eq(int, s->ops->take(s, bytes, &slot, &err), HEARTH_EBUSY));
    cr_assert(ne(ptr, strstr(err.text, "is being prepared"), NULL), "%s", err.text);
}

Test(pool_workers, memory_is_made_by_the_workers_and_none_in_work)
{
    uint64_t sizes[] = { 16 * MIB, 16 * MIB, 16 * MIB }, missing;

    setup(128 * MIB, (struct hth_store_tmpfs_opts){ .workers = { submit, NULL } });
    must(s->ops->reserve(s, sizes, 3, NULL));
    missing = hth_store_tmpfs_missing(s);
    for (int i = 0; i < 3; i++)
        cr_assert(eq(u64, s->ops->work(s, HTH_WORK_ALL), HTH_NEVER));
    cr_assert(eq(u32, works(), 2)); /* side by side, and not all the workers there may be */
    cr_assert(eq(u64, hth_store_tmpfs_missing(s), missing));
    do_all();
    cr_assert(eq(u64, hth_store_tmpfs_missing(s), 0));
    cr_assert(eq(u32, works(), 0));
    for (int i = 0; i < 3; i++)
        pattern(take(16 * MIB)->base, 16 * MIB, 1);
    teardown();
}

Test(pool_workers, a_slot_that_is_foreseen_is_there_soon_and_none_is_made_beside_it)
{
    uint64_t size = 16 * MIB;

    setup(128 * MIB, (struct hth_store_tmpfs_opts){ .workers = { submit, NULL } });
    cr_assert(eq(int, s->ops->soon(s, size), 0));
    must(s->ops->foresee(s, &size, 1, NULL));
    (void)s->ops->work(s, HTH_WORK_ALL);
    cr_assert(eq(int, s->ops->soon(s, size), 1));
    do_all();
    cr_assert(eq(int, s->ops->soon(s, size), 0));
    (void)take(size);
    cr_assert(eq(u64, hth_store_tmpfs_missing(s), 0));
    refused(size); /* nothing was promised: what there is not is made, by the workers */
    cr_assert(eq(int, s->ops->soon(s, size), 1));
    do_all();
    (void)take(size);
    teardown();
}

/* A recovery pulls: clearing the memory of slots that it does not need would take processors from
 * it. */
Test(pool_workers, while_few_are_wanted_workers_make_what_somebody_was_refused_and_no_more)
{
    uint64_t sizes[] = { 80 * MIB, 80 * MIB, 80 * MIB, 60 * MIB }, missing;

    setup(512 * MIB, (struct hth_store_tmpfs_opts){ .workers = { submit, NULL } });
    must(s->ops->reserve(s, sizes, 4, NULL));
    missing = hth_store_tmpfs_missing(s);
    (void)s->ops->work(s, 0);
    cr_assert(eq(u32, works(), 0));
    refused(60 * MIB);
    while (s->ops->work(s, 1) == HTH_NEVER && asked) {
        cr_assert(eq(u32, works(), 1));
        do_works();
        if (s->ops->soon(s, 60 * MIB) == 0)
            break;
    }
    cr_assert(eq(int, s->ops->soon(s, 80 * MIB), 1));
    pattern(take(60 * MIB)->base, 60 * MIB, 1);
    cr_assert(lt(u64, missing - hth_store_tmpfs_missing(s), 80 * MIB)); /* that one slot */
    refused(80 * MIB);
    refused(80 * MIB);
    (void)s->ops->work(s, 2);
    cr_assert(eq(u32, works(), 2)); /* one each: two may wait for this size */
    do_all();
    cr_assert(eq(u64, hth_store_tmpfs_missing(s), 0));
    teardown();
}

static void do_newest(void)
{
    struct hth_work *work = asked;

    asked = work->next;
    work->run(work);
    work->done(work);
}

/* Rss, not blocks: memory that is allocated and not cleared counts as blocks too. */
Test(pool_workers, a_slot_is_cold_until_workers_have_cleared_it_and_the_cleared_one_is_lent)
{
    uint64_t sizes[] = { 8 * MIB, 8 * MIB };
    struct hth_slot *slot;

    setup(128 * MIB, (struct hth_store_tmpfs_opts){ .workers = { submit, NULL } });
    must(s->ops->foresee(s, sizes, 2, NULL));
    cr_assert(zero(int, s->ops->cold(s, 8 * MIB, 0))); /* it is not ready */
    while (hth_store_tmpfs_missing(s)) {
        (void)s->ops->work(s, 2);
        do_works();
    }
    for (int piece = 0; piece < 2; piece++) { /* the first slot's worker does not begin */
        cr_assert(eq(int, s->ops->cold(s, 8 * MIB, 0), 1));
        (void)s->ops->work(s, HTH_WORK_ALL);
        cr_assert(eq(u32, works(), 2));
        do_newest();
    }
    cr_assert(zero(int, s->ops->cold(s, 8 * MIB, 0)));
    must(s->ops->lend(s, 8 * MIB, 0, &slot, NULL));
    cr_assert(eq(long, smaps_kib(slot, "Rss"), (long)(slot->capacity / 1024)));
    cr_assert(eq(int, s->ops->cold(s, 8 * MIB, 1), 1)); /* the other one */
    s->ops->give(s, slot);
    cr_assert(zero(int, s->ops->cold(s, 8 * MIB, 0)));
    do_all();
    teardown();
}

static struct hth_slot *take_made(uint64_t bytes)
{
    refused(bytes);
    do_all();
    return take(bytes);
}

static uint64_t pages(void)
{
    struct statfs fs;

    must(statfs(root, &fs));
    return fs.f_blocks - fs.f_bfree;
}

/* Peers would call a node lost whose engine makes pages of a gigabyte, or of many small slots. */
Test(pool_workers, no_pages_are_made_but_by_the_workers)
{
    uint64_t sizes[] = { MIB, 16 * MIB, 40 * MIB }, before;
    struct hth_slot *slot = NULL;

    root = tmp_root_mount(256 * MIB, NULL);
    if (!root)
        cr_skip_test("no right to mount a tmpfs");
    setup(256 * MIB, (struct hth_store_tmpfs_opts){ .workers = { submit, NULL } });
    for (int how = 0; how < 2; how++) {
        before = pages();
        if (how)
            must(s->ops->want(s, sizes, 3, HTH_WANT_FIRST, NULL));
        for (int i = 0; i < 3; i++)
            refused(sizes[i]);
        (void)s->ops->work(s, HTH_WORK_ALL);
        refused(sizes[0]);
        cr_assert(eq(u64, pages(), before));
        do_all();
        cr_assert(gt(u64, pages(), before));
        for (int i = 0; i < 3; i++) {
            slot = take(sizes[i]);
            pattern(slot->base, sizes[i], 3);
        }
    }
    must(s->ops->seal(s, slot, save, "object", NULL));
    before = pages();
    s->ops->condemn(s, slot, "test"); /* another takes its place */
    cr_assert(lt(u64, pages(), before + 8));
    do_all();
    teardown();
}

Test(pool_workers, a_large_slot_that_workers_are_at_is_waited_for)
{
    uint64_t size = 100 * MIB;
    struct hearth_error err = { 0 };
    struct hth_slot *slot;

    setup(128 * MIB, (struct hth_store_tmpfs_opts){ .workers = { submit, NULL } });
    must(s->ops->reserve(s, &size, 1, NULL));
    cr_assert(eq(int, s->ops->soon(s, size), 1));
    must_fail(s->ops->take(s, size, &slot, &err), HEARTH_EBUSY);
    cr_assert(ne(ptr, strstr(err.text, "is being prepared"), NULL), "%s", err.text);
    do_all();
    cr_assert(eq(int, s->ops->soon(s, size), 0));
    (void)take(size);
    teardown();
}

Test(pool_workers, what_is_foreseen_again_is_there_already)
{
    uint64_t two[] = { 16 * MIB, 16 * MIB };
    struct hth_slot *first;

    setup(128 * MIB, (struct hth_store_tmpfs_opts){ .workers = { submit, NULL } });
    first = take_made(16 * MIB); /* the first save's: it counts */
    must(s->ops->foresee(s, two, 2, NULL));
    cr_assert(lt(u64, hth_store_tmpfs_missing(s), 20 * MIB));
    do_all();
    must(s->ops->foresee(s, two, 2, NULL));
    cr_assert(eq(u64, hth_store_tmpfs_missing(s), 0));
    s->ops->give(s, first);
    must(s->ops->foresee(s, two, 2, NULL));
    cr_assert(eq(u64, hth_store_tmpfs_missing(s), 0));
    teardown();
}

/* A worker has it for a moment yet, to touch its pages. */
Test(pool_workers,
        a_slot_that_is_ready_may_be_taken_given_and_put_aside_while_its_pages_are_touched)
{
    uint64_t size = 4 * MIB;
    struct hth_slot *slot;
    int how = 0;

    setup(128 * MIB, (struct hth_store_tmpfs_opts){ .workers = { submit, NULL } });
    must(s->ops->reserve(s, &size, 1, NULL));
    for (; how < 2; how++) {
        while (hth_store_tmpfs_missing(s)) {
            (void)s->ops->work(s, HTH_WORK_ALL);
            do_works();
        }
        (void)s->ops->work(s, HTH_WORK_ALL);
        cr_assert(eq(u32, works(), 1));
        slot = take(size);
        pattern(slot->base, size, 7);
        if (how) {
            s->ops->give(s, slot);
            cr_assert(eq(ptr, take(size),
                    slot)); /* and had again at once: no rank is refused for that */
            s->ops->give(s, slot);
        } else {
            s->ops->condemn(s, slot, "test"); /* another one takes its place */
        }
        do_works();
        if (how)
            cr_assert(eq(u64, wrong(slot->base, size, 7), 0));
    }
    do_all();
    (void)take(size);
    teardown();
}

/* Rank 3 is cut off while a worker has a piece of its slot. */
static struct hth_slot *cut_off_while_touched(uint64_t bytes)
{
    struct hth_slot *slot = NULL;

    while (hth_store_tmpfs_missing(s)) {
        (void)s->ops->work(s, HTH_WORK_ALL);
        do_works();
    }
    (void)s->ops->work(s, HTH_WORK_ALL);
    cr_assert(eq(u32, works(), 1));
    must(s->ops->lend(s, bytes, 3, &slot, NULL));
    s->ops->abandon(s, slot);
    return slot;
}

Test(pool_workers, a_slot_whose_rank_was_cut_off_is_had_back_from_the_workers)
{
    uint64_t small = 16 * MIB, large = 40 * MIB;
    struct hearth_error err = { 0 };
    struct hth_slot *slot, *again = NULL;

    root = tmp_root_mount(48 * MIB, NULL);
    if (!root)
        cr_skip_test("no right to mount a tmpfs");
    setup(48 * MIB, (struct hth_store_tmpfs_opts){ .workers = { submit, NULL } });
    must(s->ops->reserve(s, &small, 1, NULL));
    slot = cut_off_while_touched(small);
    must(s->ops->claim(s, slot->id, slot->generation, 3, &again, &err), err);
    s->ops->abandon(s, again);
    do_works();
    (void)cut_off_while_touched(small);
    must(s->ops->reserve(s, &large, 1, &err), err);
    do_all();
    teardown();
}

Test(pool_workers, a_store_that_ends_forgets_what_its_workers_had)
{
    uint64_t size = 16 * MIB;

    setup(128 * MIB, (struct hth_store_tmpfs_opts){ .workers = { submit, NULL } });
    must(s->ops->reserve(s, &size, 1, NULL));
    (void)s->ops->work(s, HTH_WORK_ALL);
    cr_assert(eq(u32, works(), 1));
    teardown();
}
