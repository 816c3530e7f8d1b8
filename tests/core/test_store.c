/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of core/store/store.h, held by every store: each test runs on tmpfs and on plain
 * memory. */
#include "check.h"
#include "raws.h"
#include "store_mem.h"
#include "tmp_root.h"

#include "core/format/manifest.h"
#include "core/store/store_tmpfs.h"
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

static const struct hth_save_id save_a = { 7, 11, 40, 1 }, save_b = { 7, 11, 40, 2 },
                                save_c = { 7, 11, 50, 1 };
static int kinds[] = { 0, 1 };

/* One of the two, and what it takes to end and begin an engine's use of it. */
struct rig {
    int tmpfs;
    const char *root;
    struct hth_store *s;
    struct hth_store_faults faults;
};
static struct rig rig;

static struct hth_store_tmpfs_opts options(void)
{
    return (struct hth_store_tmpfs_opts){ .root = rig.root, .job = "job", .faults = &rig.faults };
}

static void begin(int tmpfs)
{
    alarm(60);
    rig.tmpfs = tmpfs;
    if (!tmpfs) {
        must(hth_store_mem_open(5, 64 * MIB, &rig.s));
        return;
    }
    struct hth_store_tmpfs_opts opts;
    rig.root = tmp_root(64 * MIB);
    cr_assert(rig.root != NULL);
    opts = options();
    must(hth_store_tmpfs_open(&opts, &rig.s, NULL));
}

static void nothing(void *arg, const struct hth_store_found *f)
{
    (void)arg, (void)f;
}

static void reopen(void)
{
    struct hth_store_tmpfs_opts opts = options();

    rig.s->ops->close(rig.s);
    if (rig.tmpfs)
        must(hth_store_tmpfs_open(&opts, &rig.s, NULL));
}

static void end(void)
{
    rig.s->ops->close(rig.s);
    if (rig.tmpfs)
        tmp_root_remove(rig.root);
    else
        hth_store_mem_destroy(rig.s);
}

static struct hth_slot *take(uint64_t bytes)
{
    struct hth_slot *slot;

    must(rig.s->ops->take(rig.s, bytes, &slot, NULL));
    return slot;
}

/* An object that differs from all others: its block, and one byte value after it. */
static void fill(struct hth_slot *slot, struct hth_save_id save, const char *name, int value)
{
    struct hth_block block = { .data_len = slot->capacity - HTH_BLOCK - 4096,
        .signature = HTH_SIG_TENSORS,
        .own = 1,
        .save = save,
        .generation = slot->generation };

    block.table_off = HTH_BLOCK + HTH_ALIGN(block.data_len);
    block.table_len = 64;
    snprintf(block.job, sizeof(block.job), "job");
    snprintf(block.name, sizeof(block.name), "%s", name);
    hth_block_encode(&block, slot->base);
    memset(slot->base + HTH_BLOCK, value, slot->capacity - HTH_BLOCK);
}

static struct hth_slot *sealed(struct hth_save_id save, const char *name, int value, uint64_t bytes)
{
    struct hth_slot *slot = take(bytes);

    fill(slot, save, name, value);
    must(rig.s->ops->seal(rig.s, slot, save, name, NULL));
    return slot;
}

/* Does it hold `value` in every byte after its block? */
static int holds(const struct hth_slot *slot, int value)
{
    for (uint64_t i = HTH_BLOCK; i < slot->capacity; i++)
        if (slot->base[i] != value)
            return 0;
    return 1;
}

/* The reports of scan(), as sorted lines "step.attempt dir name[.tmp] [slot]". */
struct seen {
    char line[32][200];
    struct hth_slot *slot[32];
    int count;
};

static void see(void *arg, const struct hth_store_found *f)
{
    struct seen *seen = arg;
    int at = seen->count++;
    char line[200];

    cr_assert(lt(int, at, 32));
    snprintf(line, sizeof(line), "%d.%d %.60s %.80s%s%s", (int)f->save.step, (int)f->save.attempt,
            strlen(f->dir) == HTH_SAVE_TEXT - 1 ? "private" : f->dir,
            strstr(f->name, ".manifest") ? "manifest" : f->name, f->tmp ? ".tmp" : "",
            f->slot ? " slot" : "");
    for (; at > 0 && strcmp(seen->line[at - 1], line) > 0; at--) {
        memcpy(seen->line[at], seen->line[at - 1], sizeof(line));
        seen->slot[at] = seen->slot[at - 1];
    }
    memcpy(seen->line[at], line, sizeof(line));
    seen->slot[at] = f->slot;
}

static struct seen scan(void)
{
    struct seen seen = { .count = 0 };

    must(rig.s->ops->scan(rig.s, see, &seen, NULL));
    return seen;
}

static void put_manifest(struct hth_save_id save)
{
    char name[HTH_SAVE_TEXT + 16];

    hth_save_text(save, name);
    strcat(name, ".manifest");
    must(rig.s->ops->record_put(rig.s, name, "M", 1, NULL));
}

#define STORE_TEST(test_name)                      \
    ParameterizedTestParameters(store, test_name)  \
    {                                              \
        return cr_make_param_array(int, kinds, 2); \
    }                                              \
    static void run_##test_name(void);             \
    ParameterizedTest(int *kind, store, test_name) \
    {                                              \
        begin(*kind);                              \
        run_##test_name();                         \
        end();                                     \
    }                                              \
    static void run_##test_name(void)

STORE_TEST(a_slot_goes_round_and_stays_where_it_is)
{
    struct hth_slot *slot = take(100 * KIB), *again;
    unsigned char *base = slot->base;
    uint64_t id = slot->id, generation = slot->generation;

    cr_assert(ge(u64, slot->capacity, 100 * KIB));
    must(rig.s->ops->receive(rig.s, slot, save_a, "obj", NULL));
    fill(slot, save_a, "obj", 1);
    must(rig.s->ops->seal(rig.s, slot, save_a, "obj", NULL));
    cr_assert(holds(slot, 1));
    rig.s->ops->give(rig.s, slot);
    again = take(100 * KIB);
    cr_assert(eq(ptr, again, slot));
    cr_assert(eq(ptr, again->base, base));
    cr_assert(eq(u64, again->id, id));
    cr_assert(gt(u64, again->generation, generation));
    cr_assert(holds(again, 1));
}

STORE_TEST(take_gives_the_smallest_slot_that_is_large_enough)
{
    uint64_t sizes[] = { 9 * MIB, 3 * MIB, 5 * MIB };
    struct hth_slot *slot;

    must(rig.s->ops->reserve(rig.s, sizes, 3, NULL));
    slot = take(4 * MIB + MIB / 2);
    cr_assert(ge(u64, slot->capacity, 5 * MIB));
    cr_assert(lt(u64, slot->capacity, 9 * MIB));
}

STORE_TEST(what_was_reserved_is_all_there_is)
{
    uint64_t sizes[] = { 3 * MIB, 3 * MIB }, huge = 500 * 1024 * 1024 * MIB;
    struct hth_slot *slot = NULL, *first;
    struct hearth_error err;

    must(rig.s->ops->reserve(rig.s, sizes, 2, NULL));
    first = take(3 * MIB);
    take(3 * MIB);
    must_fail(rig.s->ops->take(rig.s, 3 * MIB, &slot, &err), HEARTH_EBUSY);
    must(rig.s->ops->reserve(rig.s, sizes, 2, NULL)); /* they are there already */
    must_fail(rig.s->ops->take(rig.s, 3 * MIB, &slot, &err), HEARTH_EBUSY);
    must_fail(rig.s->ops->reserve(rig.s, &huge, 1, &err), HEARTH_ENOSPC);
    must_fail(rig.s->ops->take(rig.s, huge, &slot, &err), HEARTH_ENOSPC);
    rig.s->ops->give(rig.s, first);
    must(rig.s->ops->take(rig.s, 3 * MIB, &slot, &err), err);
}

STORE_TEST(slots_that_nobody_asks_for_any_more_make_way)
{
    uint64_t small[] = { 4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB };
    uint64_t large = 34 * MIB;
    struct hth_slot *kept;

    must(rig.s->ops->reserve(rig.s, small, 6, NULL));
    kept = sealed(save_a, "kept", 3, 4 * MIB);
    while (rig.s->ops->work(rig.s, HTH_WORK_ALL) != HTH_NEVER)
        ;
    must(rig.s->ops->reserve(rig.s, &large, 1, NULL));
    cr_assert(ge(u64, take(large)->capacity, large));
    cr_assert(holds(kept, 3));
}

STORE_TEST(nothing_is_sealed_or_received_over_another)
{
    struct hth_slot *one = sealed(save_a, "obj", 1, MIB), *two = take(MIB), *three = take(MIB);

    must_fail(rig.s->ops->seal(rig.s, two, save_a, "obj", NULL), HEARTH_EEXIST);
    must(rig.s->ops->receive(rig.s, two, save_a, "next", NULL));
    must_fail(rig.s->ops->receive(rig.s, three, save_a, "next", NULL), HEARTH_EEXIST);
    must_fail(raw_put(rig.s, save_a, "obj", "x", 1, NULL), HEARTH_EEXIST);
    must(raw_put(rig.s, save_a, "raw", "x", 1, NULL));
    must_fail(rig.s->ops->seal(rig.s, three, save_a, "raw", NULL), HEARTH_EEXIST);
    must(rig.s->ops->seal(rig.s, three, save_b, "obj", NULL)); /* another save of the step */
    cr_assert(holds(one, 1));
}

STORE_TEST(a_leased_slot_is_free_only_after_its_last_lease)
{
    uint64_t size = 3 * MIB;
    struct hth_slot *slot, *other = NULL;

    must(rig.s->ops->reserve(rig.s, &size, 1, NULL));
    slot = sealed(save_a, "obj", 1, size);
    rig.s->ops->lease(rig.s, slot);
    rig.s->ops->lease(rig.s, slot);
    rig.s->ops->give(rig.s, slot);
    rig.s->ops->unlease(rig.s, slot);
    must_fail(rig.s->ops->take(rig.s, size, &other, NULL), HEARTH_EBUSY);
    cr_assert(holds(slot, 1));
    rig.s->ops->unlease(rig.s, slot);
    must(rig.s->ops->take(rig.s, size, &other, NULL));
    cr_assert(eq(ptr, other, slot));
}

STORE_TEST(a_rank_goes_on_in_its_slot_until_somebody_else_has_had_it)
{
    struct hth_slot *slot, *again;
    uint64_t id, generation;

    must(rig.s->ops->lend(rig.s, MIB, 2, &slot, NULL));
    fill(slot, save_a, "obj", 1);
    id = slot->id;
    generation = slot->generation;
    reopen();
    scan();
    must(rig.s->ops->claim(rig.s, id, generation, 2, &again, NULL));
    cr_assert(eq(u64, again->generation, generation));
    cr_assert(holds(again, 1));
    must_fail(rig.s->ops->claim(rig.s, id, generation, 2, &slot, NULL), HEARTH_ENOENT);
    rig.s->ops->give(rig.s, again);
    slot = take(MIB); /* another use of it */
    cr_assert(eq(u64, slot->id, id));
    rig.s->ops->give(rig.s, slot);
    must_fail(rig.s->ops->claim(rig.s, id, generation, 2, &again, NULL), HEARTH_ENOENT);
    must_fail(rig.s->ops->claim(rig.s, id + 4711, generation, 2, &again, NULL), HEARTH_ENOENT);
}

STORE_TEST(no_rank_goes_on_in_a_slot_that_is_read)
{
    struct hth_slot *slot = sealed(save_a, "obj", 1, MIB), *again;

    rig.s->ops->lease(rig.s, slot);
    rig.s->ops->give(rig.s, slot);
    must_fail(rig.s->ops->claim(rig.s, slot->id, slot->generation, 2, &again, NULL), HEARTH_ENOENT);
    rig.s->ops->unlease(rig.s, slot);
    must(rig.s->ops->claim(rig.s, slot->id, slot->generation, 2, &again, NULL));
}

STORE_TEST(raw_objects_and_records_come_back_as_they_were)
{
    struct hth_raw *raw = NULL;
    void *bytes;
    size_t len;

    must(raw_put(rig.s, save_a, ".metadata", "first", 5, NULL));
    must(raw_put(rig.s, save_a, ".metadata", "second!", 7, NULL));
    cr_assert(raw_is(rig.s, save_a, ".metadata", "second!", 7));
    must_fail(rig.s->ops->raw_open(rig.s, save_a, "none", &raw, NULL), HEARTH_ENOENT);
    must_fail(rig.s->ops->raw_open(rig.s, save_c, "none", &raw, NULL), HEARTH_ENOENT);
    must_fail(rig.s->ops->record_get(rig.s, "keep", &bytes, &len, NULL), HEARTH_ENOENT);
    must(rig.s->ops->record_put(rig.s, "keep", "", 0, NULL));
    must(rig.s->ops->record_get(rig.s, "keep", &bytes, &len, NULL));
    cr_assert(eq(sz, len, 0));
    free(bytes);
    rig.s->ops->record_remove(rig.s, "keep");
    must_fail(rig.s->ops->record_get(rig.s, "keep", &bytes, &len, NULL), HEARTH_ENOENT);
}

static struct hth_raw *made(struct hth_save_id save, const char *name, uint64_t len)
{
    struct hth_raw *raw = NULL;

    must(rig.s->ops->raw_make(rig.s, save, name, len, &raw, NULL));
    for (uint64_t off = 0; off < len; off += MIB)
        must(rig.s->ops->raw_back(rig.s, raw, off, len - off < MIB ? len - off : MIB, NULL));
    memset(raw->base, 'r', len);
    return raw;
}

STORE_TEST(a_raw_object_is_seen_once_it_is_sealed_and_read_until_the_last_reader_ends)
{
    struct hth_raw *raw = made(save_a, "raw", 5 * MIB + 1), *none = NULL, *reader = NULL;

    cr_assert(eq(int, scan().count, 0));
    must_fail(rig.s->ops->raw_open(rig.s, save_a, "raw", &none, NULL), HEARTH_ENOENT);
    must(rig.s->ops->raw_seal(rig.s, raw, NULL));
    must(rig.s->ops->raw_open(rig.s, save_a, "raw", &reader, NULL));
    rig.s->ops->raw_close(rig.s, raw);
    must(raw_put(rig.s, save_a, "raw", "another", 7, NULL));
    rig.s->ops->remove(rig.s, save_a);
    cr_assert(eq(int, scan().count, 0));
    cr_assert(eq(u64, reader->len, 5 * MIB + 1));
    for (uint64_t i = 0; i < reader->len; i += 4096)
        cr_assert(eq(int, reader->base[i], 'r'));
    rig.s->ops->raw_close(rig.s, reader);
    rig.s->ops->raw_close(rig.s, NULL);
}

STORE_TEST(a_raw_object_of_a_save_that_was_removed_meanwhile_is_not_sealed)
{
    struct hth_raw *raw = made(save_a, "raw", MIB);

    rig.s->ops->remove(rig.s, save_a);
    must_fail(rig.s->ops->raw_seal(rig.s, raw, NULL), HEARTH_ENOENT);
    rig.s->ops->raw_close(rig.s, raw);
    reopen();
    cr_assert(eq(int, scan().count, 0));
}

STORE_TEST(a_raw_object_is_never_longer_than_its_bound)
{
    struct hth_raw *raw = NULL;

    must_fail(
            rig.s->ops->raw_make(rig.s, save_a, "raw", HTH_RAW_MAX + 1, &raw, NULL), HEARTH_EINVAL);
}

STORE_TEST(hostile_names_are_refused)
{
    static const char *const bad[] = { "", ".", "..", "a/b", "../x", "x.tmp", "a b", "a\n",
        "0123456789012345678901234567890123456789012345678901234567890123456789" };
    struct hth_slot *slot = take(MIB);

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        must_fail(rig.s->ops->seal(rig.s, slot, save_a, bad[i], NULL), HEARTH_EINVAL);
        must_fail(rig.s->ops->receive(rig.s, slot, save_a, bad[i], NULL), HEARTH_EINVAL);
        must_fail(raw_put(rig.s, save_a, bad[i], "x", 1, NULL), HEARTH_EINVAL);
    }
    must_fail(rig.s->ops->record_put(rig.s, "../keep", "x", 1, NULL), HEARTH_EINVAL);
    must_fail(rig.s->ops->record_put(rig.s, "", "x", 1, NULL), HEARTH_EINVAL);
}

STORE_TEST(a_save_of_the_same_step_takes_the_place_of_the_older_and_gives_it_back)
{
    struct seen seen;

    sealed(save_a, "obj", 1, MIB);
    must(rig.s->ops->publish(rig.s, save_a, NULL));
    struct hth_slot *b = sealed(save_b, "obj", 2, MIB);
    must(rig.s->ops->publish(rig.s, save_b, NULL));
    must(rig.s->ops->publish(rig.s, save_b, NULL)); /* again: nothing */
    seen = scan();
    cr_assert(eq(int, seen.count, 2));
    must_say(seen.line[0], "40.1 private obj slot");
    must_say(seen.line[1], "40.2 step-40_ckpt obj slot");
    /* a scan ends the last engine's use; b is what it was on tmpfs, and on memory */
    rig.s->ops->give(rig.s, b);
    rig.s->ops->remove(rig.s, save_b);
    seen = scan();
    cr_assert(eq(int, seen.count, 1));
    must_say(seen.line[0], "40.1 step-40_ckpt obj slot");
    cr_assert(holds(seen.slot[0], 1));
}

STORE_TEST(of_the_saves_that_were_replaced_the_newest_comes_back_after_a_restart_too)
{
    static const char *const lines[] = { "40.1 step-40_ckpt obj slot", "40.2 step-40_ckpt obj slot",
        "40.3 step-40_ckpt obj slot" };
    struct hth_save_id save = save_a;
    struct seen seen;

    for (save.attempt = 1; save.attempt <= 3; save.attempt++) {
        sealed(save, "obj", (int)save.attempt, MIB);
        must(rig.s->ops->publish(rig.s, save, NULL));
    }
    reopen();
    for (save.attempt = 3; save.attempt >= 1; save.attempt--) {
        seen = scan();
        cr_assert(eq(int, seen.count, (int)save.attempt));
        must_say(seen.line[save.attempt - 1], lines[save.attempt - 1]);
        rig.s->ops->give(rig.s, seen.slot[save.attempt - 1]);
        rig.s->ops->remove(rig.s, save);
    }
}

STORE_TEST(objects_are_received_into_a_published_save)
{
    struct hth_slot *slot = take(MIB);
    struct seen seen;

    sealed(save_a, "mine", 1, MIB);
    must(rig.s->ops->receive(rig.s, slot, save_a, "theirs", NULL));
    must(rig.s->ops->publish(rig.s, save_a, NULL));
    fill(slot, save_a, "theirs", 2);
    must(rig.s->ops->seal(rig.s, slot, save_a, "theirs", NULL));
    seen = scan();
    cr_assert(eq(int, seen.count, 2));
    must_say(seen.line[1], "40.1 step-40_ckpt theirs slot");
}

STORE_TEST(a_restart_finds_everything_and_frees_what_was_held)
{
    uint64_t id = rig.s->ops->id(rig.s), generation;
    struct hth_slot *slot;
    struct seen seen;

    sealed(save_a, "obj", 1, 3 * MIB);
    must(raw_put(rig.s, save_a, "raw", "text", 4, NULL));
    put_manifest(save_a);
    must(rig.s->ops->publish(rig.s, save_a, NULL));
    slot = take(3 * MIB);
    fill(slot, save_c, "half", 2);
    must(rig.s->ops->receive(rig.s, slot, save_c, "half", NULL));
    must(raw_put(rig.s, save_c, "alone", "", 0, NULL));
    generation = take(5 * MIB)->generation; /* held: free after the restart */

    for (int time = 0; time < 2; time++) {
        reopen();
        cr_assert(eq(u64, rig.s->ops->id(rig.s), id));
        seen = scan();
        cr_assert(eq(int, seen.count, 5));
        must_say(seen.line[0], "40.1 .hearth manifest");
        must_say(seen.line[1], "40.1 step-40_ckpt obj slot");
        must_say(seen.line[2], "40.1 step-40_ckpt raw");
        must_say(seen.line[3], "50.1 private alone");
        must_say(seen.line[4], "50.1 private half.tmp slot");
        cr_assert(holds(seen.slot[1], 1));
        cr_assert(holds(seen.slot[4], 2));
        cr_assert(eq(int, (int)seen.slot[1]->leases, 0));
    }
    slot = take(5 * MIB);
    cr_assert(gt(u64, slot->generation, generation));
    cr_assert(ne(ptr, slot, seen.slot[1]));
    cr_assert(ne(ptr, slot, seen.slot[4]));
    fill(seen.slot[4], save_c, "half", 3);
    must(rig.s->ops->seal(rig.s, seen.slot[4], save_c, "half", NULL));
    cr_assert(holds(seen.slot[1], 1));
}

STORE_TEST(a_removed_save_leaves_nothing)
{
    struct hth_slot *slot = sealed(save_a, "obj", 1, MIB);

    must(raw_put(rig.s, save_a, "raw", "text", 4, NULL));
    put_manifest(save_a);
    must(rig.s->ops->publish(rig.s, save_a, NULL));
    rig.s->ops->give(rig.s, slot);
    rig.s->ops->remove(rig.s, save_a);
    rig.s->ops->remove(rig.s, save_a); /* again: nothing */
    cr_assert(eq(int, scan().count, 0));
    reopen();
    cr_assert(eq(int, scan().count, 0));
}

STORE_TEST(condemned_slots_are_few_and_the_pool_keeps_its_size)
{
    uint64_t sizes[] = { 3 * MIB, 3 * MIB };
    struct hth_slot *slot;

    must(rig.s->ops->reserve(rig.s, sizes, 2, NULL));
    for (int i = 0; i < 7; i++) {
        slot = sealed(save_a, "bad", i, 3 * MIB);
        rig.s->ops->condemn(rig.s, slot, "chunk 3/../crc");
        while (rig.s->ops->work(rig.s, HTH_WORK_ALL) != HTH_NEVER)
            ;
    }
    take(3 * MIB);
    take(3 * MIB);
    must_fail(rig.s->ops->take(rig.s, 3 * MIB, &slot, NULL), HEARTH_EBUSY);
    reopen();
    cr_assert(eq(int, scan().count, 0));
}

STORE_TEST(a_condemned_slot_can_be_read_until_its_lease_ends)
{
    struct hth_slot *slot = sealed(save_a, "bad", 9, MIB);
    uint64_t id = slot->id;

    rig.s->ops->lease(rig.s, slot);
    rig.s->ops->condemn(rig.s, slot, "crc");
    cr_assert(holds(slot, 9));
    rig.s->ops->unlease(rig.s, slot);
    cr_assert(eq(int, scan().count, 0));
    for (int i = 0; i < 4 && !rig.s->ops->take(rig.s, MIB, &slot, NULL); i++)
        cr_assert(ne(u64, slot->id, id)); /* nor is it written to */
}

/* A small life of two saves. 0, or the first error. */
static int life(void)
{
    uint64_t sizes[] = { 2 * MIB, 2 * MIB, 2 * MIB };
    struct hth_slot *slot;
    int rc = rig.s->ops->reserve(rig.s, sizes, 3, NULL);

    for (int i = 0; !rc && i < 2; i++) {
        struct hth_save_id save = i ? save_b : save_c;

        rc = rig.s->ops->take(rig.s, 2 * MIB, &slot, NULL);
        if (rc)
            return rc;
        fill(slot, save, "obj", 10 + i);
        if (i)
            rc = rig.s->ops->receive(rig.s, slot, save, "obj", NULL);
        if (!rc)
            rc = rig.s->ops->seal(rig.s, slot, save, "obj", NULL);
        if (!rc)
            rc = raw_put(rig.s, save, "raw", "text", 4, NULL);
        if (!rc)
            rc = rig.s->ops->record_put(rig.s, "keep", "K", 1, NULL);
        if (!rc)
            rc = rig.s->ops->publish(rig.s, save, NULL);
    }
    return rc;
}

static void fail_at(uint64_t n)
{
    if (rig.tmpfs)
        rig.faults.fail_at = n ? rig.faults.calls + n : 0;
    else
        hth_store_mem_fail_at(rig.s, n);
}

static void give_back(void *arg, const struct hth_store_found *f)
{
    struct seen *seen = arg;

    if (f->slot && hth_save_cmp(f->save, save_a))
        seen->slot[seen->count++] = f->slot;
}

STORE_TEST(every_allocation_may_fail_and_what_is_sealed_stays)
{
    uint64_t n = 0;
    struct seen seen, dead;
    int rc;

#ifndef HEARTH_POINTS
    if (rig.tmpfs) /* no call of this build can be made to fail */
        return;
#endif
    sealed(save_a, "safe", 77, 2 * MIB);
    must(rig.s->ops->publish(rig.s, save_a, NULL));
    do {
        fail_at(++n);
        rc = life();
        fail_at(0);
        cr_assert(rc == 0 || rc == HEARTH_ENOSPC, "allocation %d: %d", (int)n, rc);
        reopen();
        seen = scan();
        for (int i = 0; i < seen.count; i++)
            if (seen.slot[i] && strstr(seen.line[i], "safe"))
                cr_assert(holds(seen.slot[i], 77), "allocation %d", (int)n);
        cr_assert(strstr(seen.line[0], "40.1") != NULL, "allocation %d", (int)n);
        dead.count = 0;
        must(rig.s->ops->scan(rig.s, give_back, &dead, NULL));
        for (int i = 0; i < dead.count; i++)
            rig.s->ops->give(rig.s, dead.slot[i]);
        rig.s->ops->remove(rig.s, save_b);
        rig.s->ops->remove(rig.s, save_c);
        rig.s->ops->record_remove(rig.s, "keep");
        seen = scan();
        cr_assert(eq(int, seen.count, 1), "allocation %d", (int)n);
        must_say(seen.line[0], "40.1 step-40_ckpt safe slot");
    } while (rc);
    cr_assert(gt(u64, n, 8));
    must(rig.s->ops->scan(rig.s, nothing, NULL, NULL));
}
