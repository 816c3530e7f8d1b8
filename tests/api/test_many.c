/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint of many objects, all on other nodes: what is on its way for it is bounded, and what
 * can be asked for at once is. */
#include "check.h"
#include "rank.h"

#include "core/format/chunk.h"
#include "core/local/local.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MANY   60
#define AHEAD  32 /* objects whose bytes may be on their way */
#define TABLES 32 /* tables that are asked for at once */
#define WIDE   10

static struct rank r;
static float stored[MANY][WIDE], got[MANY][WIDE];
static const int64_t wide = WIDE, origin = 0;
static char name[MANY][24];
static struct hearth_box box[MANY];
static struct hearth_error err;

/* Object i has one item, `key<i>`. */
static void save_many(uint64_t step)
{
    struct hearth_save *save;
    struct hearth_handle *handle;
    char key[16];

    for (int i = 0; i < MANY; i++) {
        struct hearth_begin_opts o = { .struct_size = sizeof(o), .name = name[i] };
        struct hearth_piece piece = rank_piece(key, stored[i], 1, &wide);

        snprintf(name[i], sizeof(name[i]), "object-%02d", i);
        snprintf(key, sizeof(key), "key%d", i);
        piece.key_len = strlen(key);
        rank_fill(stored[i], WIDE, (float)i);
        if (i)
            must(hearth_save_next_object(save, name[i], 4096, NULL));
        else
            must(hearth_save_begin(r.h, step, 4096, &o, &save, NULL));
        must(hearth_save_add(save, &piece, 1, NULL));
        box[i] = (struct hearth_box){ .struct_size = sizeof(box[i]),
            .object = name[i],
            .dtype = HEARTH_FLOAT32,
            .ndim = 1,
            .offset = &origin,
            .shape = &wide,
            .dst = got[i] };
    }
    must(hearth_save_commit(save, &handle, NULL));
    must(hearth_wait(handle, HEARTH_PROTECTED, 5000, NULL));
    hearth_handle_close(handle);
}

static struct hearth_checkpoint *start(void)
{
    struct hearth_checkpoint *c;

    rank_start(&r);
    rank_open(&r);
    save_many(3);
    fake_remote(r.fake, 1);
    must(hearth_checkpoint_open(r.h, 3, &c, NULL));
    return c;
}

static void list_all(struct hearth_checkpoint *c)
{
    struct hearth_item item = { .struct_size = sizeof(item) };
    char key[16];

    for (size_t i = 0; i < MANY; i++) {
        cr_assert(eq(int, hearth_item_at(c, 1, i, &item, &err), 0), "%zu: %s", i, err.text);
        snprintf(key, sizeof(key), "key%zu", i);
        cr_assert(eq(sz, item.key_len, strlen(key)));
        cr_assert(zero(int, memcmp(item.key, key, item.key_len)));
        must_say(item.object, name[i]);
    }
    must_fail(hearth_item_at(c, 1, MANY, &item, NULL), HEARTH_ENOENT);
}

Test(many, tables_are_asked_for_at_once)
{
    struct hearth_checkpoint *c = start();

    fake_gather(r.fake, TABLES); /* one by one the first would wait for ever */
    list_all(c);
    cr_assert(eq(u32, fake_counts(r.fake).ranges, MANY));
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(many, tables_here_are_mapped_and_leased_as_ever)
{
    struct hearth_checkpoint *c;

    rank_start(&r);
    rank_open(&r);
    save_many(3);
    must(hearth_checkpoint_open(r.h, 3, &c, NULL));
    list_all(c);
    cr_assert(eq(u32, fake_counts(r.fake).leases, MANY));
    cr_assert(eq(u32, fake_counts(r.fake).ranges, 0));
    cr_assert(eq(int, hearth_read_boxes(c, box, MANY, &err), 0), "%s", err.text);
    cr_assert(zero(int, memcmp(got, stored, sizeof(got))));
    hearth_checkpoint_close(c);
    cr_assert(eq(u32, fake_counts(r.fake).leases, 0));
    rank_end(&r);
}

Test(many, a_wrong_table_is_asked_for_again_and_then_named)
{
    struct hearth_checkpoint *c = start();

    fake_flip(r.fake, 1);
    list_all(c);
    hearth_checkpoint_close(c);
    must(hearth_checkpoint_open(r.h, 3, &c, NULL));
    fake_flip(r.fake, MANY * 2);
    must_fail(hearth_item_at(c, 1, 0, &(struct hearth_item){ .struct_size = 8 }, &err),
            HEARTH_ECORRUPT);
    cr_assert(ne(ptr, strstr(err.text, "object-00"), NULL), "%s", err.text);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(many, what_is_refused_is_said_and_can_be_asked_for_later)
{
    struct hearth_checkpoint *c = start();
    struct hearth_item item = { .struct_size = sizeof(item) };

    fake_refuse(r.fake, HTH_LOCAL_RANGE, HEARTH_ELOST, "nobody has it");
    must_fail(hearth_item_at(c, 1, 0, &item, &err), HEARTH_ELOST);
    cr_assert(ne(ptr, strstr(err.text, "nobody has it"), NULL), "%s", err.text);
    fake_refuse(r.fake, 0, 0, "");
    list_all(c);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(many, objects_ahead_are_bounded)
{
    struct hearth_checkpoint *c = start();
    uint32_t before;

    list_all(c);
    before = fake_counts(r.fake).ranges;
    must(hearth_prefetch_boxes(c, box, MANY, NULL));
    must(hearth_read_boxes(c, &box[MANY - 1], 1, NULL)); /* asked for behind those */
    cr_assert(eq(u32, fake_counts(r.fake).ranges, before + AHEAD + 1));
    cr_assert(eq(int, hearth_read_boxes(c, box, MANY, &err), 0), "%s", err.text);
    cr_assert(zero(int, memcmp(got, stored, sizeof(got))));
    cr_assert(eq(u32, fake_counts(r.fake).ranges, before + MANY)); /* each came once */
    hearth_checkpoint_close(c);
    rank_end(&r);
}

#define SLICES 100
#define SLICE  (64 << 10)
#define APART  (256 << 10)

/* Rows of a tensor on another node, of each its first bytes: as far apart that none is brought with
 * another. */
static struct {
    unsigned char *x, got[SLICES][SLICE];
    int64_t row[SLICES][2];
    struct hearth_box box[SLICES];
} slice;

static struct hearth_checkpoint *start_slices(void)
{
    static const int64_t all[] = { SLICES, APART }, part[] = { 1, SLICE };
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_checkpoint *c;
    struct hearth_piece piece;
    size_t found;

    slice.x = malloc(SLICES * APART);
    for (size_t i = 0; i < SLICES * APART; i++)
        slice.x[i] = (unsigned char)(i * 2654435761u >> 13);
    piece = rank_piece("x", slice.x, 2, all);
    piece.dtype = HEARTH_UINT8;
    rank_start(&r);
    rank_open(&r);
    rank_save(r.h, 1, &piece, 1, NULL, 0);
    fake_remote(r.fake, 1);
    c = rank_recover(r.h, 1);
    must(hearth_item_find(c, "x", 1, &item, 1, &found, NULL));
    for (int i = 0; i < SLICES; i++) {
        slice.row[i][0] = i;
        slice.box[i] = (struct hearth_box){ .struct_size = sizeof(slice.box[i]),
            .object = item.object,
            .item = item.offset,
            .dtype = HEARTH_UINT8,
            .ndim = 2,
            .offset = slice.row[i],
            .shape = part,
            .dst = slice.got[i] };
    }
    return c;
}

static void check_slices(void)
{
    for (size_t i = 0; i < SLICES; i++)
        cr_assert(zero(int, memcmp(slice.got[i], slice.x + i * APART, SLICE)), "slice %zu", i);
}

static void end_slices(struct hearth_checkpoint *c)
{
    hearth_checkpoint_close(c);
    rank_end(&r);
    free(slice.x);
}

Test(many, slices_of_one_object_are_asked_for_together)
{
    struct hearth_checkpoint *c = start_slices();
    uint32_t before;

    must(hearth_read_boxes(c, slice.box, 1, NULL)); /* its holder has checksums of slices */
    before = fake_counts(r.fake).ranges;
    fake_gather(r.fake, AHEAD); /* one by one the first would wait for ever */
    cr_assert(eq(int, hearth_read_boxes(c, &slice.box[1], SLICES - 1, &err), 0), "%s", err.text);
    cr_assert(eq(u32, fake_counts(r.fake).ranges, before + SLICES - 1));
    check_slices();
    end_slices(c);
}

Test(many, slices_of_a_holder_without_checksums_are_asked_for_one_after_another)
{
    struct hearth_checkpoint *c = start_slices();
    uint64_t before;

    fake_without_sums(r.fake);
    before = fake_counts(r.fake).range_bytes;
    must(hearth_read_boxes(c, slice.box, SLICES, NULL));
    check_slices();
    cr_assert(le(u64, fake_counts(r.fake).range_bytes - before, SLICES * APART + 2 * HTH_CHUNK));
    end_slices(c);
}

Test(many, slices_that_are_refused_leave_nothing_on_its_way)
{
    struct hearth_checkpoint *c = start_slices();
    uint32_t before;

    must(hearth_read_boxes(c, slice.box, 2, NULL));
    fake_refuse(r.fake, HTH_LOCAL_RANGE, HEARTH_ELOST, "nobody has it");
    must_fail(hearth_read_boxes(c, &slice.box[1], SLICES - 1, &err), HEARTH_ELOST);
    fake_refuse(r.fake, 0, 0, "");
    before = fake_counts(r.fake).ranges;
    for (int i = SLICES - 1; i > 0; i--) /* from the last one on: prefetches would be in the way */
        must(hearth_read_boxes(c, &slice.box[i], 1, NULL));
    cr_assert(eq(u32, fake_counts(r.fake).ranges, before + SLICES - 1));
    check_slices();
    end_slices(c);
}

Test(many, wrong_bytes_of_a_slice_among_many_are_asked_for_again)
{
    struct hearth_checkpoint *c = start_slices();

    must(hearth_read_boxes(c, slice.box, 1, NULL));
    fake_flip(r.fake, 3);
    cr_assert(eq(int, hearth_read_boxes(c, &slice.box[1], SLICES - 1, &err), 0), "%s", err.text);
    check_slices();
    cr_assert(eq(u32, fake_counts(r.fake).bads, 3));
    end_slices(c);
}

#define PARTED 8
#define TALL   64
#define LINE   (128 << 10)

/* Columns of tensors, each followed by a whole short one, as tensor parallelism has them. Columns
 * are read in parts, and whatever was asked for ahead of them would be in their way. */
Test(many, what_lies_behind_columns_travels_once)
{
    static const int64_t all[] = { TALL, LINE }, part[] = { TALL, LINE / 8 }, first[] = { 0, 0 };
    static const int64_t few = SLICE;
    static unsigned char columns[PARTED][TALL * LINE / 8], shorts[PARTED][SLICE];
    unsigned char *x = malloc(TALL * LINE);
    struct hearth_piece piece[2 * PARTED];
    struct hearth_box both[2 * PARTED];
    struct hearth_item item = { .struct_size = sizeof(item) };
    char key[2 * PARTED][8];
    struct hearth_checkpoint *c;
    size_t found;
    uint32_t before;

    for (size_t i = 0; i < TALL * LINE; i++)
        x[i] = (unsigned char)(i * 2654435761u >> 13);
    for (int i = 0; i < 2 * PARTED; i++) {
        snprintf(key[i], sizeof(key[i]), "k%d", i);
        piece[i] = rank_piece(key[i], x, i % 2 ? 1 : 2, i % 2 ? &few : all);
        piece[i].dtype = HEARTH_UINT8;
    }
    rank_start(&r);
    rank_open(&r);
    rank_save(r.h, 1, piece, 2 * PARTED, NULL, 0);
    fake_remote(r.fake, 1);
    fake_without_sums(r.fake);
    c = rank_recover(r.h, 1);
    for (int i = 0; i < 2 * PARTED; i++) {
        must(hearth_item_find(c, key[i], strlen(key[i]), &item, 1, &found, NULL));
        both[i] = (struct hearth_box){ .struct_size = sizeof(box[i]),
            .object = item.object,
            .item = item.offset,
            .dtype = HEARTH_UINT8,
            .ndim = i % 2 ? 1 : 2,
            .offset = first,
            .shape = i % 2 ? &few : part,
            .dst = i % 2 ? shorts[i / 2] : columns[i / 2] };
    }
    before = fake_counts(r.fake).ranges;
    must(hearth_read_boxes(c, both, 2 * PARTED, NULL));
    for (int i = 0; i < PARTED; i++) {
        cr_assert(zero(int, memcmp(shorts[i], x, SLICE)), "%d", i);
        for (int row = 0; row < TALL; row++)
            cr_assert(zero(int, memcmp(columns[i] + row * (LINE / 8), x + row * LINE, LINE / 8)),
                    "%d", i);
    }
    cr_assert(le(u32, fake_counts(r.fake).ranges - before, PARTED * (2 + 1))); /* two parts each */
    hearth_checkpoint_close(c);
    rank_end(&r);
    free(x);
}

/* What is dropped is answered when another node has answered. */
Test(many, a_begin_waits_for_an_engine_that_still_brings_what_nobody_reads)
{
    struct hearth_checkpoint *c = start();
    struct hearth_save *save;
    struct timespec since, now;

    list_all(c);
    fake_silence(r.fake, HTH_LOCAL_RANGE);
    must(hearth_prefetch_boxes(c, box, 1, NULL));
    hearth_checkpoint_close(c);
    usleep(1100000);
    fake_silence(r.fake, HTH_LOCAL_BEGIN);
    clock_gettime(CLOCK_MONOTONIC, &since);
    must_fail(hearth_save_begin(r.h, 4, 1 << 20, NULL, &save, &err), HEARTH_EBUSY);
    clock_gettime(CLOCK_MONOTONIC, &now);
    cr_assert(ge(long, (now.tv_sec - since.tv_sec) * 1000 + (now.tv_nsec - since.tv_nsec) / 1000000,
            1000));
    fake_silence(r.fake, 0);
    rank_end(&r);
}

static void limit_files(rlim_t most)
{
    struct rlimit files;

    must(getrlimit(RLIMIT_NOFILE, &files));
    files.rlim_cur = most;
    must(setrlimit(RLIMIT_NOFILE, &files));
}

/* Each object that is ahead is a descriptor. A save that is being written meanwhile must not
 * pay. */
Test(many, reading_them_takes_few_descriptors)
{
    struct hearth_checkpoint *c = start();
    float x = 5;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);
    struct hearth_handle *handle;
    struct hearth_save *save;
    int next = dup(0);

    close(next);
    must(hearth_save_begin(r.h, 4, 8192, NULL, &save, NULL));
    limit_files((rlim_t)next + AHEAD + 8);
    must(hearth_prefetch_boxes(c, box, MANY, NULL));
    cr_assert(eq(int, hearth_read_boxes(c, &box[MANY - 1], 1, &err), 0), "%s", err.text);
    cr_assert(eq(int, hearth_read_boxes(c, box, MANY, &err), 0), "%s", err.text);
    cr_assert(zero(int, memcmp(got, stored, sizeof(got))));
    must(hearth_save_add(save, &piece, 1, NULL));
    cr_assert(eq(int, hearth_save_commit(save, &handle, &err), 0), "%s", err.text);
    hearth_handle_close(handle);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(many, without_a_descriptor_the_sentence_says_so_and_the_connection_stays)
{
    struct hearth_checkpoint *c = start();
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_save *save;
    struct hearth_handle *handle;
    struct rlimit files;
    int last;

    must(getrlimit(RLIMIT_NOFILE, &files));
    while ((last = dup(0)) < 100)
        ;
    must(hearth_save_begin(r.h, 4, 8192, NULL, &save, NULL));
    fake_remote(r.fake, 0);
    limit_files((rlim_t)last + 1);
    must_fail(hearth_item_at(c, 1, 0, &item, &err), HEARTH_EPROTO);
    cr_expect(ne(ptr, strstr(err.text, "RLIMIT_NOFILE"), NULL), "%s", err.text);
    limit_files(files.rlim_cur);
    cr_assert(eq(u32, fake_counts(r.fake).leases, 0));
    must(hearth_item_at(c, 1, 0, &item, NULL));
    must(hearth_save_commit(save, &handle, NULL));
    hearth_handle_close(handle);
    hearth_checkpoint_close(c);
    rank_end(&r);
}
