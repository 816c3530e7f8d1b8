/* SPDX-License-Identifier: Apache-2.0 */
/* Slots on a real tmpfs: the same pages for ever, room asked before it is used, no SIGBUS. */
#include "pinned.h"
#include "raws.h"

#include "pool_rig.h" /* last: it has variables of short names */
#include <criterion/logging.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (4 * MIB) /* of an object, as given at open */

static const struct hth_save_id save = { 3, 5, 9, 1 }, later = { 3, 5, 10, 1 };

static int through_fd(const struct hth_slot *slot, uint64_t bytes, uint64_t seed)
{
    void *view = mmap(NULL, bytes, PROT_READ, MAP_SHARED, slot->fd, 0);
    uint64_t bad;

    cr_assert(view != MAP_FAILED);
    bad = wrong(view, bytes, seed);
    munmap(view, bytes);
    return bad != 0;
}

/* 100 uses of one slot, lengths within 5 % of SIZE; words that a view made once saw wrong. The
 * view is a pinned one, or a plain mapping where the kernel lets us pin nothing. */
static uint64_t recycle(int *out_pinned)
{
    uint64_t size = SIZE, random = 1, bad = 0;
    struct hth_slot *slot;
    struct pinned view;
    unsigned char *base, *mapped;
    uint64_t id;

    must(s->ops->reserve(s, &size, 1, NULL));
    work_all();
    slot = take(size);
    base = slot->base;
    id = slot->id;
    *out_pinned = !pinned_open(&view, slot->base, slot->capacity);
    mapped = mmap(NULL, slot->capacity, PROT_READ, MAP_SHARED, slot->fd, 0);
    cr_assert(mapped != MAP_FAILED);
    slot->user = &view;
    for (uint64_t i = 1; i <= 100; i++) {
        uint64_t len = (SIZE * 95 / 100 + hth_splitmix64(&random) % (SIZE / 10)) / 8 * 8;
        const unsigned char *seen;

        pattern(slot->base, len, i);
        if (i % 2)
            must(s->ops->receive(s, slot, save, "obj", NULL));
        must(s->ops->seal(s, slot, save, "obj", NULL));
        seen = *out_pinned ? pinned_read(&view, len) : mapped;
        cr_assert(seen != NULL);
        bad += wrong(seen, len, i);
        cr_assert(through_fd(slot, len, i) == 0);
        s->ops->give(s, slot);
        slot = take(len);
        cr_assert(slot->base == base);
        cr_assert(eq(u64, slot->id, id));
    }
    if (*out_pinned)
        pinned_close(&view);
    munmap(mapped, slot->capacity);
    slot->user = NULL;
    return bad;
}

Test(pool, a_slot_recycled_100_times_shows_each_use_through_one_registration)
{
    int pinned;
    uint64_t bad;

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ 0 });
    bad = recycle(&pinned);
    if (!pinned)
        cr_log_warn("no io_uring: seen through a mapping, which pins nothing");
    cr_assert(eq(u64, bad, 0));
    teardown();
}

Test(pool, a_truncation_on_the_way_would_be_seen)
{
    int pinned;
    uint64_t bad;

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ .test_truncate = 1 });
    bad = recycle(&pinned);
    teardown();
    if (!pinned)
        cr_skip_test("no io_uring: nothing here pins pages as a network card does");
    cr_assert(gt(u64, bad, 0));
}

Test(pool, a_view_held_over_five_recycles_reads_unchanged_bytes)
{
    uint64_t sizes[] = { SIZE, SIZE };
    struct hth_slot *held, *other;

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ 0 });
    must(s->ops->reserve(s, sizes, 2, NULL));
    held = take(SIZE);
    pattern(held->base, SIZE, 1);
    must(s->ops->seal(s, held, save, "obj", NULL));
    s->ops->lease(s, held);
    s->ops->give(s, held);
    s->ops->remove(s, save);
    for (uint64_t i = 0; i < 5; i++) {
        other = take(SIZE);
        cr_assert(other != held);
        pattern(other->base, SIZE, 100 + i);
        must(s->ops->seal(s, other, later, "obj", NULL));
        s->ops->give(s, other);
        cr_assert(eq(u64, wrong(held->base, SIZE, 1), 0));
    }
    s->ops->unlease(s, held);
    teardown();
}

Test(pool, what_is_given_to_readers_is_neither_written_nor_cut)
{
    char byte = 0;
    int fd = -1;
    struct hth_slot *slot;
    void *p;

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ .allow_non_tmpfs = 1 });
    slot = take(SIZE);
    slot->base[HTH_BLOCK] = 7;
    must(s->ops->seal(s, slot, save, "object", NULL));
    must(s->ops->reader(s, slot, &fd, NULL));
    cr_assert(lt(long, (long)pwrite(fd, &byte, 1, HTH_BLOCK), 0));
    cr_assert(lt(int, ftruncate(fd, 0), 0));
    cr_assert(lt(int, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HTH_BLOCK), 0));
    cr_assert(eq(ptr, mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED));
    p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0); /* a view of one's own */
    cr_assert(ne(ptr, p, MAP_FAILED));
    ((unsigned char *)p)[HTH_BLOCK] = 8;
    cr_assert(eq(int, slot->base[HTH_BLOCK], 7));
    munmap(p, SIZE);
    close(fd);
    teardown();
}

/* As a rank has it: by a descriptor that shares the engine's open file. */
static unsigned char *mapped_by_a_rank(const struct hth_slot *slot, int *out_fd)
{
    void *at;

    *out_fd = dup(slot->fd);
    at = mmap(NULL, slot->capacity, PROT_READ | PROT_WRITE, MAP_SHARED, *out_fd, 0);
    cr_assert(at != MAP_FAILED);
    return at;
}

static struct hth_slot *lend_small(uint32_t rank)
{
    struct hth_slot *slot;

    must(s->ops->lend(s, MIB, rank, &slot, NULL));
    return slot;
}

Test(pool, a_slot_of_a_rank_that_was_cut_off_is_lent_again_when_its_process_cannot_write_it)
{
    struct hth_slot *cut, *next;
    const unsigned char *base;
    unsigned char *rank;
    uint64_t id;
    int fd;

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ .margin_bytes = 4096 });
    cut = lend_small(0);
    id = cut->id;
    base = cut->base;
    rank = mapped_by_a_rank(cut, &fd);
    pattern(rank, cut->capacity, 1);
    s->ops->abandon(s, cut);
    next = lend_small(1);
    cr_assert(ne(u64, next->id, id));
    pattern(rank, next->capacity, 2);
    cr_assert(zero(u64, wrong(base, next->capacity, 2)), "the engine maps the same pages");
    close(fd);
    cr_assert(ne(u64, lend_small(1)->id, id));
    munmap(rank, next->capacity);
    next = lend_small(1);
    cr_assert(eq(u64, next->id, id));
    cr_assert(eq(ptr, next->base, (unsigned char *)(uintptr_t)base));
    cr_assert(zero(u64, wrong(next->base, next->capacity, 2)));
    teardown();
}

Test(pool, a_rank_that_comes_back_to_its_engine_has_its_slot_again)
{
    struct hth_slot *cut, *again;
    uint64_t id, generation;
    unsigned char *rank;
    int fd;

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ .margin_bytes = 4096 });
    cut = lend_small(0);
    id = cut->id;
    generation = cut->generation;
    rank = mapped_by_a_rank(cut, &fd);
    s->ops->abandon(s, cut);
    must(s->ops->claim(s, id, generation, 0, &again, NULL));
    pattern(rank, again->capacity, 3);
    cr_assert(zero(u64, wrong(again->base, again->capacity, 3)));
    s->ops->give(s, again);
    cr_assert(ne(u64, lend_small(1)->id, id), "it is mapped still");
    munmap(rank, again->capacity);
    close(fd);
    cr_assert(eq(u64, lend_small(1)->id, id));
    teardown();
}

Test(pool, no_slot_is_made_in_place_of_one_that_a_returning_rank_has_mapped)
{
    struct hth_slot *slot;
    struct hearth_error err;
    uint64_t id, bytes = MIB;
    unsigned char *rank;
    int fd;

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ .margin_bytes = 4096 });
    slot = lend_small(0);
    id = slot->id;
    rank = mapped_by_a_rank(slot, &fd);
    s->ops->abandon(s, slot);
    s->ops->expect(s, 1);
    must_fail(s->ops->lend(s, MIB, 1, &slot, &err), HEARTH_EBUSY);
    cr_assert(ne(ptr, strstr(err.text, "have come back"), NULL), "%s", err.text);
    cr_assert(eq(int, s->ops->soon(s, MIB), 1));
    must(s->ops->want(s, &bytes, 1, HTH_WANT_BESIDE, NULL));
    munmap(rank, slot->capacity);
    close(fd);
    cr_assert(eq(int, s->ops->soon(s, MIB), 0));
    cr_assert(eq(u64, lend_small(1)->id, id));
    cr_assert(ne(u64, lend_small(1)->id, id), "room is there, and only one was waited for");
    teardown();
}

Test(pool, the_third_save_faults_no_pages_in)
{
    uint64_t sizes[] = { SIZE, SIZE };
    struct rusage before, after;
    struct hth_slot *slot[2];

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ 0 });
    must(s->ops->reserve(s, sizes, 2, NULL));
    work_all();
    for (int use = 0; use < 3; use++) {
        getrusage(RUSAGE_SELF, &before);
        for (int i = 0; i < 2; i++) {
            slot[i] = take(SIZE);
            memset(slot[i]->base, use, SIZE);
            must(s->ops->seal(s, slot[i], save, i ? "b" : "a", NULL));
        }
        getrusage(RUSAGE_SELF, &after);
        for (int i = 0; i < 2; i++)
            s->ops->give(s, slot[i]);
    }
    cr_assert(lt(long, after.ru_minflt - before.ru_minflt, (long)(2 * SIZE / 4096 / 100)));
    teardown();
}

static struct hth_slot *lend(uint64_t bytes, uint32_t rank)
{
    struct hth_slot *slot;

    must(s->ops->lend(s, bytes, rank, &slot, NULL));
    return slot;
}

/* Slots it had before are mapped there; any other is page by page new to it. */
Test(pool, a_rank_is_lent_the_slot_that_it_had)
{
    uint64_t sizes[] = { SIZE, SIZE, SIZE, SIZE };
    struct hth_slot *slot[4];

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ 0 });
    must(s->ops->reserve(s, sizes, 4, NULL));
    slot[0] = lend(SIZE, 0);
    slot[1] = lend(SIZE, 1);
    slot[2] = take(SIZE);
    slot[3] = take(SIZE);
    s->ops->give(s, slot[3]);
    slot[3] = lend(SIZE, 2);
    for (int use = 0; use < 3; use++) {
        for (int i = 0; i < 4; i++)
            s->ops->give(s, slot[(i + use) % 4]);
        cr_assert(eq(ptr, lend(SIZE, 2), slot[3]));
        cr_assert(eq(ptr, take(SIZE), slot[2]));
        cr_assert(eq(ptr, lend(SIZE, 1), slot[1]));
        cr_assert(eq(ptr, lend(SIZE, 0), slot[0]));
    }
    for (int i = 0; i < 4; i++)
        s->ops->give(s, slot[i]);
    cr_assert(eq(ptr, lend(SIZE, 3), slot[2])); /* the engine's, before one of another rank */
    teardown();
}

Test(pool, a_slot_that_nobody_had_comes_before_one_of_somebody_else)
{
    uint64_t sizes[] = { SIZE, SIZE, SIZE };
    struct hth_slot *rank, *engine, *fresh;

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ 0 });
    must(s->ops->reserve(s, sizes, 3, NULL));
    work_all();
    rank = lend(SIZE, 0);
    engine = take(SIZE);
    s->ops->give(s, rank);
    s->ops->give(s, engine);
    fresh = lend(SIZE, 1);
    cr_assert(ne(ptr, fresh, rank));
    cr_assert(ne(ptr, fresh, engine));
    s->ops->give(s, fresh);
    cr_assert(eq(ptr, take(SIZE), engine));
    cr_assert(ne(ptr, take(SIZE), engine));
    teardown();
}

/* The slot that a rank had is preferred among slots of one class only: a larger one is for larger
 * objects. */
Test(pool, the_slot_that_a_rank_had_is_not_wasted_on_a_small_object)
{
    uint64_t sizes[] = { 16 * MIB, 17 * MIB };
    struct hth_slot *small, *large;

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ 0 });
    must(s->ops->reserve(s, sizes, 2, NULL));
    small = lend(17 * MIB, 0); /* both fit, and the smaller one is best */
    large = lend(17 * MIB, 1);
    cr_assert(lt(u64, small->capacity, large->capacity));
    s->ops->give(s, small);
    s->ops->give(s, large);
    cr_assert(eq(ptr, lend(17 * MIB, 1), large)); /* as good for it, and its own */
    s->ops->give(s, large);
    cr_assert(eq(ptr, lend(16 * MIB, 1), small)); /* a slot for 16 MiB is not as large */
    cr_assert(eq(ptr, lend(17 * MIB, 0), large));
    teardown();
}

Test(pool, background_work_makes_what_was_reserved_and_then_rests)
{
    uint64_t size = 40 * MIB, missing;

    setup(128 * MIB, (struct hth_store_tmpfs_opts){ 0 });
    cr_assert(eq(u64, s->ops->work(s, HTH_WORK_ALL), HTH_NEVER));
    must(s->ops->reserve(s, &size, 1, NULL));
    missing = hth_store_tmpfs_missing(s);
    cr_assert(ge(u64, missing, size));
    cr_assert(eq(u64, s->ops->work(s, HTH_WORK_ALL), 0));
    cr_assert(lt(u64, hth_store_tmpfs_missing(s), missing)); /* a piece, not all */
    cr_assert(gt(u64, hth_store_tmpfs_missing(s), 0));
    work_all();
    cr_assert(eq(u64, hth_store_tmpfs_missing(s), 0));
    teardown();
}

/* Room that is promised and not yet made counts: two reservations cannot both have it. */
Test(pool, room_that_was_promised_is_not_given_twice)
{
    uint64_t one[] = { 40 * MIB }, two[] = { 40 * MIB, 40 * MIB };
    struct hearth_error err;

    root = tmp_root_mount(64 * MIB, NULL);
    if (!root)
        cr_skip_test("no right to mount a tmpfs of a given size");
    setup(64 * MIB, (struct hth_store_tmpfs_opts){ 0 });
    must(s->ops->reserve(s, one, 1, NULL));
    must_fail(s->ops->reserve(s, two, 2, &err), HEARTH_ENOSPC);
    cr_assert(strstr(err.text, "do not fit: ") != NULL);
    work_all();
    take(40 * MIB);
    teardown();
}

/* A job that opens again at once with other sizes. */
Test(pool, memory_that_is_not_made_yet_is_counted_once)
{
    uint64_t first = 100 * MIB, second = 120 * MIB;

    tight((struct hth_store_tmpfs_opts){ .limit_bytes = 150 * MIB });
    must(s->ops->reserve(s, &first, 1, NULL));
    must(s->ops->reserve(s, &second, 1, NULL)); /* none of it is made */
    (void)s->ops->work(s, HTH_WORK_ALL);
    must(s->ops->reserve(s, &first, 1, NULL)); /* fits in what is there */
    work_all();
    pattern(take(second)->base, second, 1);
    cr_assert(eq(ptr, strstr(said, "slot-lost"), NULL), "%s", said);
    teardown();
}

static int other_reserves(uint64_t bytes, struct hth_store **out, struct hearth_error *err)
{
    struct hth_store_tmpfs_opts opts = { .root = root, .job = "other", .margin_bytes = 4 * MIB };

    if (!*out)
        must(hth_store_tmpfs_open(&opts, out, NULL));
    return (*out)->ops->reserve(*out, &bytes, 1, err);
}

/* The kernel counts as free what an engine has promised and not made. */
Test(pool, two_engines_of_a_machine_do_not_promise_the_same_memory)
{
    uint64_t size = 100 * MIB;
    struct hth_store *other = NULL;
    struct hearth_error err;

    tight((struct hth_store_tmpfs_opts){ 0 });
    must(s->ops->reserve(s, &size, 1, NULL));
    must_fail(other_reserves(size, &other, &err), HEARTH_ENOSPC);
    cr_assert(ne(ptr, strstr(err.text, "promised to other engines here"), NULL), "%s", err.text);
    must(other_reserves(40 * MIB, &other, &err), err);
    work_all();
    (void)s->ops->work(
            s, HTH_WORK_ALL); /* what is made is promised no more: the kernel counts it */
    must(other_reserves(60 * MIB, &other, &err), err);
    must_fail(s->ops->reserve(s, (uint64_t[]){ size, 40 * MIB }, 2, &err), HEARTH_ENOSPC);
    other->ops->close(other);
    teardown();
}

/* An engine that looks before it stages a save promises nothing. */
Test(pool, room_that_an_engine_only_looks_for_is_not_promised)
{
    uint64_t size = 100 * MIB;
    struct hth_store *other = NULL;
    struct hearth_error err;

    tight((struct hth_store_tmpfs_opts){ 0 });
    must(s->ops->enough(s, &size, 1, NULL));
    must(other_reserves(size, &other, &err), err);
    must_fail(s->ops->enough(s, &size, 1, NULL), HEARTH_ENOSPC);
    other->ops->close(other);
    teardown();
}

Test(pool, what_an_engine_promised_that_was_killed_counts_no_more)
{
    uint64_t size = 100 * MIB;
    struct hearth_error err;
    int status;
    pid_t pid;

    tight((struct hth_store_tmpfs_opts){ 0 });
    pid = fork();
    if (pid == 0) {
        struct hth_store *other = NULL;

        _exit(other_reserves(size, &other, &err) != 0);
    }
    cr_assert(eq(int, waitpid(pid, &status, 0), pid));
    cr_assert(zero(int, status));
    must(s->ops->reserve(s, &size, 1, &err), err);
    teardown();
}

static void fill_mount(void)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/filler", root);
    fd = open(path, O_RDWR | O_CREAT, 0600);
    for (uint64_t off = 0; fallocate(fd, 0, (off_t)off, 4096) == 0; off += 4096)
        ;
    close(fd);
}

Test(pool, a_full_mount_is_an_error_and_what_is_sealed_stays)
{
    struct hth_slot *slot, *none;
    struct hearth_error err;

    root = tmp_root_mount(32 * MIB, NULL);
    if (!root)
        cr_skip_test("no right to mount a tmpfs of a given size");
    setup(32 * MIB, (struct hth_store_tmpfs_opts){ .margin_bytes = 1 });
    slot = take(SIZE);
    pattern(slot->base, SIZE, 7);
    must(s->ops->seal(s, slot, save, "obj", NULL));
    must(s->ops->publish(s, save, NULL));
    fill_mount();
    must_fail(s->ops->take(s, SIZE, &none, &err), HEARTH_ENOSPC);
    cr_assert(strstr(err.text, "free in its file system 0 bytes") != NULL, "%s", err.text);
    must_fail(raw_put(s, save, "raw", slot->base, MIB, &err), HEARTH_ENOSPC);
    cr_assert(strstr(err.text, "common object 'raw' of 1048576 bytes: enlarge") != NULL, "%s",
            err.text);
    must(s->ops->record_put(s, "keep", "x", 1, &err), err); /* has memory of its own */
    cr_assert(eq(u64, wrong(slot->base, SIZE, 7), 0));
    s->ops->give(s, slot); /* going back needs no room */
    slot = take(SIZE);
    pattern(slot->base, SIZE, 8);
    s->ops->close(s);
}

static void put_text(const char *dir, const char *name, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    cr_assert(f != NULL);
    fputs(text, f);
    fclose(f);
}

/* Names in a directory of the job's. */
static uint32_t entries(const char *name)
{
    char path[256];
    uint32_t count = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "%s/job/%s", root, name);
    dir = opendir(path);
    cr_assert(dir != NULL, "%s", path);
    for (struct dirent *e; (e = readdir(dir));)
        count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

Test(pool, a_slot_does_not_go_back_over_a_file_that_has_its_name)
{
    char path[256];
    struct hth_slot *slot;
    struct stat st;

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ 0 });
    slot = take(SIZE);
    must(s->ops->seal(s, slot, save, "obj", NULL));
    snprintf(path, sizeof(path), "%s/job/.hearth/pool/%016" PRIx64, root, slot->id);
    put_text(root, path + strlen(root), "somebody's");
    s->ops->give(s, slot);
    must(stat(path, &st));
    cr_assert(eq(long, (long)st.st_size, 10));
    cr_assert(strstr(said, "slot-lost") != NULL, "%s", said);
    cr_assert(ne(ptr, take(SIZE), slot));
    teardown();
}

Test(pool, what_is_put_aside_as_evidence_is_bounded)
{
    struct hth_slot *slot;

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ 0 });
    for (uint32_t i = 0; i < HTH_EVIDENCE_MAX + 2; i++) {
        slot = take(MIB);
        must(s->ops->seal(s, slot, save, "obj", NULL));
        s->ops->condemn(s, slot, "crc");
    }
    cr_assert(eq(u32, entries(".hearth/evidence"), HTH_EVIDENCE_MAX));
    teardown();
}

/* Another program takes the room between reserve() and the work on it. */
Test(pool, a_slot_whose_memory_is_gone_is_given_up_and_said)
{
    uint64_t size = 20 * MIB;

    root = tmp_root_mount(32 * MIB, NULL);
    if (!root)
        cr_skip_test("no right to mount a tmpfs of a given size");
    setup(32 * MIB, (struct hth_store_tmpfs_opts){ 0 });
    must(s->ops->reserve(s, &size, 1, NULL));
    fill_mount();
    work_all();
    cr_assert(strstr(said, "slot-lost") != NULL, "%s", said);
    cr_assert(eq(u64, hth_store_tmpfs_missing(s), 0));
    teardown();
}

/* A /proc with one cgroup of this limit. */
static void put_cgroup(char *proc, const char *limit, const char *current)
{
    char path[256], line[256];

    cr_assert(mkdtemp(proc) != NULL);
    snprintf(path, sizeof(path), "%s/self", proc);
    must(mkdir(path, 0700));
    put_text(proc, "self/cgroup", "0::/\n");
    snprintf(line, sizeof(line), "30 23 0:26 / %s rw - cgroup2 cgroup rw\n", proc);
    put_text(proc, "self/mountinfo", line);
    put_text(proc, "memory.max", limit);
    put_text(proc, "memory.current", current);
}

/* Past a cgroup's limit the kernel kills. So each reservation looks at the limit before. */
Test(pool, a_cgroup_limit_below_the_mount_counts)
{
    static char proc[] = "/tmp/hearth-pool-XXXXXX";
    uint64_t size = 10 * MIB;
    struct hth_slot *slot;
    struct hearth_error err;

    put_cgroup(proc, "33554432\n", "16777216\n");
    setup(64 * MIB, (struct hth_store_tmpfs_opts){ .proc = proc, .margin_bytes = MIB });
    must(s->ops->reserve(s, &size, 1, NULL));
    must_fail(s->ops->take(s, 14 * MIB, &slot, &err), HEARTH_ENOSPC);
    cr_assert(strstr(err.text, "up to the cgroup's limit 16777216 bytes") != NULL, "%s", err.text);
    teardown();
    tmp_root_remove(proc);
}

static void found_nothing(void *arg, const struct hth_store_found *f)
{
    (void)arg, (void)f;
}

/* A restarted container of a pod: its own cgroup is empty, and the pod's is not. */
Test(pool, what_a_container_before_this_one_made_counts)
{
    static char proc[] = "/tmp/hearth-pool-XXXXXX";
    uint64_t sizes[] = { 10 * MIB, 10 * MIB };
    char path[256];
    struct hearth_error err;

    put_cgroup(proc, "16777216\n", "0\n");
    snprintf(path, sizeof(path), "%s/self/ns", proc);
    must(mkdir(path, 0700));
    put_text(proc, "self/ns/cgroup", "");
    put_text(proc, "memory.stat", "anon 0\nfile 0\nshmem 0\n");
    setup(64 * MIB, (struct hth_store_tmpfs_opts){ .proc = proc, .margin_bytes = MIB });
    must(s->ops->reserve(s, sizes, 1, NULL));
    work_all();
    s->ops->close(s);
    setup(64 * MIB, (struct hth_store_tmpfs_opts){ .proc = proc, .margin_bytes = MIB });
    must(s->ops->scan(s, found_nothing, NULL, NULL));
    must_fail(s->ops->reserve(s, sizes, 2, &err), HEARTH_ENOSPC);
    cr_assert(ne(ptr, strstr(said, "charged-above"), NULL), "%s", said);
    put_text(proc, "memory.stat", "anon 0\nfile 0\nshmem 12582912\n"); /* all is charged here */
    must(s->ops->scan(s, found_nothing, NULL, NULL));
    must(s->ops->reserve(s, sizes, 2, &err), err);
    teardown();
    tmp_root_remove(proc);
}

Test(pool, the_limit_of_the_options_counts)
{
    uint64_t sizes[] = { SIZE, SIZE };
    struct hearth_error err;

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ .limit_bytes = 8 * MIB });
    must(s->ops->reserve(s, sizes, 1, NULL));
    must_fail(s->ops->reserve(s, sizes, 2, &err), HEARTH_ENOSPC);
    cr_assert(strstr(err.text, "exceed the limit of 8388608") != NULL, "%s", err.text);
    teardown();
}

Test(pool, sizes_that_no_machine_has_are_refused)
{
    uint64_t sizes[] = { UINT64_MAX, UINT64_MAX / 2, UINT64_C(1) << 55, UINT64_C(1) << 50 };
    struct hth_slot *slot;

    setup(64 * MIB, (struct hth_store_tmpfs_opts){ 0 });
    for (size_t i = 0; i < 4; i++) {
        must_fail(s->ops->reserve(s, &sizes[i], 1, NULL), HEARTH_ENOSPC);
        must_fail(s->ops->take(s, sizes[i], &slot, NULL), HEARTH_ENOSPC);
    }
    must_fail(s->ops->reserve(s, sizes, 4, NULL), HEARTH_ENOSPC);
    teardown();
}

/* Room that other objects were promised and do not have yet is not free either. */
Test(pool, a_raw_object_that_does_not_fit_is_refused_before_its_first_byte)
{
    struct hth_raw *one = NULL, *two = NULL;
    struct hearth_error err;

    root = tmp_root_mount(32 * MIB, NULL);
    if (!root)
        cr_skip_test("no right to mount a tmpfs of a given size");
    setup(32 * MIB, (struct hth_store_tmpfs_opts){ .margin_bytes = 1 });
    must_fail(s->ops->raw_make(s, save, "raw", 33 * MIB, &one, &err), HEARTH_ENOSPC);
    must(s->ops->raw_make(s, save, "one", 20 * MIB, &one, NULL));
    must_fail(s->ops->raw_make(s, save, "two", 20 * MIB, &two, &err), HEARTH_ENOSPC);
    cr_assert(strstr(err.text, "'two' of 20971520 bytes") != NULL, "%s", err.text);
    must(s->ops->raw_back(s, one, 0, 16 * MIB, NULL));
    fill_mount();
    must_fail(s->ops->raw_back(s, one, 16 * MIB, 4 * MIB, &err), HEARTH_ENOSPC);
    cr_assert(strstr(err.text, "'one' of 20971520 bytes") != NULL, "%s", err.text);
    s->ops->raw_close(s, one);
    must(s->ops->raw_make(s, save, "two", 12 * MIB, &two, NULL));
    must(s->ops->raw_back(s, two, 0, 12 * MIB, NULL));
    must(s->ops->raw_seal(s, two, NULL));
    s->ops->raw_close(s, two);
    s->ops->close(s);
}

Test(pool, files_and_directories_are_for_their_owner_alone)
{
    static const char *const paths[] = { "", "/.hearth", "/.hearth/pool", "/.hearth/lock",
        "/.hearth/store", "/step-9_ckpt", "/step-9_ckpt/obj", "/step-9_ckpt/raw" };
    struct hth_slot *slot;
    char path[256];
    struct stat st;

    umask(0);
    setup(64 * MIB, (struct hth_store_tmpfs_opts){ 0 });
    slot = take(SIZE);
    must(s->ops->seal(s, slot, save, "obj", NULL));
    must(raw_put(s, save, "raw", "x", 1, NULL));
    must(s->ops->publish(s, save, NULL));
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        snprintf(path, sizeof(path), "%s/job%s", root, paths[i]);
        must(stat(path, &st));
        cr_assert(zero(int, (int)st.st_mode & 0077), "%s", path);
    }
    teardown();
}

/* KiB of the slot that are mapped as huge pages of 2 MiB; skipped where no huge page is free. */
static long huge_kib(const struct hth_slot *slot)
{
    long kib = smaps_kib(slot, "ShmemPmdMapped");

    if (kib == 0 && madvise(slot->base, slot->capacity, 25 /* MADV_COLLAPSE */) && errno != EINVAL)
        cr_skip_test("no huge page is free");
    return kib;
}

/* A slot of 4 MiB, backed; NULL: skipped. */
static struct hth_slot *slot_on(const char *huge, int no_collapse)
{
    uint64_t size = 3 * MIB;

    root = tmp_root_mount(64 * MIB, huge);
    if (!root)
        cr_skip_test("no right to mount, or no huge pages for tmpfs in this kernel");
    setup(64 * MIB, (struct hth_store_tmpfs_opts){ .no_collapse = no_collapse });
    must(s->ops->reserve(s, &size, 1, NULL));
    work_all();
    return take(size);
}

Test(pool, huge_pages_of_the_mount_are_used)
{
    struct hth_slot *slot = slot_on("huge=within_size", 0);

    cr_assert(eq(u64, (uint64_t)(uintptr_t)slot->base % HTH_SLOT_ROUND, 0));
    cr_assert(eq(u64, slot->capacity % HTH_SLOT_ROUND, 0));
    cr_assert(eq(long, huge_kib(slot), (long)(slot->capacity / 1024)));
    must_say(said, "");
    teardown();
}

Test(pool, a_mount_that_gives_huge_pages_on_advice_is_asked_for_them)
{
    struct hth_slot *slot = slot_on("huge=advise", 1);

    cr_assert(eq(long, huge_kib(slot), (long)(slot->capacity / 1024)));
    must_say(said, "");
    teardown();
}

Test(pool, a_mount_without_huge_pages_is_said_at_open_with_what_to_do)
{
    struct hth_slot *slot = slot_on("huge=never", 1);

    cr_assert(eq(long, huge_kib(slot), 0));
    cr_assert(ne(ptr, strstr(said, "no-huge-pages: "), NULL), "%s", said);
    cr_assert(ne(ptr, strstr(said, "mount -o remount,huge=within_size "), NULL), "%s", said);
    cr_assert(eq(ptr, strstr(strstr(said, "no-huge-pages") + 1, "no-huge-pages"), NULL)); /* once */
    teardown();
}
