/* SPDX-License-Identifier: Apache-2.0 */
/* A save in parts: staged, sealed ahead of commit, given to another process. */
#include "check.h"
#include "rank.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct rank r;
static float x[1000], y[2][3];
static const int64_t nx = 1000, ny[] = { 3, 2 }, turned[] = { 1, 3 };
static struct hearth_piece piece[2];
static struct hearth_bytes text;

static void start(void)
{
    rank_start(&r);
    rank_open(&r);
    rank_fill(x, 1000, 1);
    rank_fill(&y[0][0], 6, 7);
    piece[0] = rank_piece("x", x, 1, &nx);
    piece[1] = rank_piece("y", y, 2, ny);
    piece[1].strides = turned;
    text = (struct hearth_bytes){ .struct_size = sizeof(text),
        .key = "text",
        .key_len = 4,
        .data = (void *)(uintptr_t) "bytes",
        .len = 5 };
}

#define ROOM 16384u

static struct hearth_save *begin(struct hearth *h, uint64_t step)
{
    struct hearth_begin_opts opts = { .struct_size = sizeof(opts), .wait_ms = 700 };
    struct hearth_save *save = NULL;
    struct hearth_error err = { 0 };

    cr_assert(eq(int, hearth_save_begin(h, step, ROOM, &opts, &save, &err), 0), "%s", err.text);
    return save;
}

static void protect(struct hearth_save *save)
{
    struct hearth_handle *handle;
    struct hearth_error err = { 0 };

    cr_assert(eq(int, hearth_save_commit(save, &handle, &err), 0), "%s", err.text);
    cr_assert(eq(int, hearth_wait(handle, HEARTH_PROTECTED, 5000, &err), 0), "%s", err.text);
    hearth_handle_close(handle);
}

/* x as it is now, y made contiguous, the text. */
static void check_saved(uint64_t step)
{
    float gx[1000], gy[3][2];
    char bytes[6] = "";
    int64_t five = 5;
    struct hearth_piece got[3] = { rank_piece("x", gx, 1, &nx), rank_piece("y", gy, 2, ny),
        rank_piece("text", bytes, 1, &five) };
    struct hearth_checkpoint *c = NULL;
    struct hearth_error err = { 0 };

    got[2].dtype = HEARTH_UINT8;
    cr_assert(eq(int, hearth_checkpoint_open(r.h, step, &c, &err), 0), "%s", err.text);
    cr_assert(eq(int, hearth_load(c, got, 3, 0, NULL, &err), 0), "%s", err.text);
    hearth_checkpoint_close(c);
    cr_assert(zero(int, memcmp(gx, x, sizeof(x))));
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++)
            cr_assert(epsilon_eq(flt, gy[i][k], y[k][i], 0.0f));
    must_say(bytes, "bytes");
}

Test(stage, copies_and_says_where)
{
    struct hearth_error err = { 0 };
    struct hearth_save *save;
    void *data[2] = { NULL };
    uint64_t offset[2];
    float first;

    start();
    save = begin(r.h, 5);
    must(hearth_save_stage(save, piece, 2, data, NULL));
    cr_assert(zero(int, memcmp(data[0], x, sizeof(x))));
    memcpy(&first, (char *)data[1] + 4, 4);
    cr_assert(epsilon_eq(flt, first, y[1][0], 0.0f));
    must(hearth_save_locate(save, (const void *const *)data, 2, offset, NULL));
    cr_assert(lt(u64, offset[0], offset[1]));
    x[999] = -3; /* written to both: what lies there is what is saved */
    memcpy((char *)data[0] + 999 * 4, &x[999], 4);
    must(hearth_save_add_bytes(save, &text, 1, NULL));
    must_fail(hearth_save_stage(save, piece, 2, NULL, &err), HEARTH_EINVAL);
    piece[0].data = NULL;
    must_fail(hearth_save_stage(save, piece, 1, data, &err), HEARTH_ESTATE);
    protect(save);
    check_saved(5);
    rank_end(&r);
}

Test(stage, says_where_the_object_lies_to_who_asks_with_places)
{
    struct hearth_error err = { 0 };
    struct hearth_save *save;
    uint64_t bytes;
    void *base;

    start();
    save = begin(r.h, 5);
    must_fail(hearth_save_data(NULL, &base, &bytes, &err), HEARTH_EINVAL);
    must_fail(hearth_save_data(save, NULL, &bytes, &err), HEARTH_EINVAL);
    must_fail(hearth_save_data(save, &base, NULL, &err), HEARTH_EINVAL);
    must(hearth_save_next_object(save, "second", 8192, NULL));
    must(hearth_save_data(save, &base, &bytes, NULL));
    cr_assert(eq(u64, bytes, 8192)); /* the open one */
    hearth_save_abort(save);
    rank_end(&r);
}

Test(stage, without_data_or_room_is_refused)
{
    struct hearth_error err = { 0 };
    struct hearth_save *save;
    void *data[2];

    start();
    save = begin(r.h, 5);
    piece[1].data = NULL;
    must_fail(hearth_save_stage(save, piece, 2, data, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "'y'"), NULL), "%s", err.text);
    for (int i = 0; i < 3; i++) {
        piece[0].key = &"xyzw"[i];
        must(hearth_save_stage(save, piece, 1, data, &err), err);
    }
    piece[0].key = "w";
    must_fail(hearth_save_stage(save, piece, 1, data, &err), HEARTH_ENOSPC);
    hearth_save_abort(save);
    rank_end(&r);
}

Test(seal, goes_before_what_every_node_gets)
{
    struct hearth_error err = { 0 };
    struct hearth_save *save;
    struct hearth_place place[3];
    void *data[2], *bytes;
    size_t count, len;
    struct hearth_checkpoint *c;

    start();
    save = begin(r.h, HEARTH_STEP_LATER);
    must(hearth_save_stage(save, piece, 2, data, NULL));
    must(hearth_save_add_bytes(save, &text, 1, NULL));
    must_fail(hearth_save_seal(save, &err), HEARTH_ESTATE);
    must(hearth_save_set_step(save, 6, NULL));
    must(hearth_save_seal(save, NULL));
    must_fail(hearth_save_seal(save, &err), HEARTH_ESTATE);
    must_fail(hearth_save_add(save, piece, 1, &err), HEARTH_ESTATE);
    must_fail(hearth_save_stage(save, piece, 1, data, &err), HEARTH_ESTATE);
    must_fail(hearth_save_add_bytes(save, &text, 1, &err), HEARTH_ESTATE);
    must_fail(hearth_save_data(save, &bytes, &place[0].length, &err), HEARTH_ESTATE);
    must_fail(hearth_save_next_object(save, "more", 100, &err), HEARTH_ESTATE);
    cr_assert(ne(ptr, strstr(err.text, "sealed"), NULL), "%s", err.text);
    must(hearth_save_places(save, place, 3, &count, NULL)); /* a question writes nothing */
    cr_assert(eq(sz, count, 3));
    must(hearth_save_put_common(save, ".metadata", &place[2].offset, 8, NULL));
    protect(save);
    check_saved(6);
    must(hearth_checkpoint_open(r.h, 6, &c, NULL));
    must(hearth_read_common(c, ".metadata", &bytes, &len, NULL));
    cr_assert(zero(int, memcmp(bytes, &place[2].offset, 8)));
    hearth_free(bytes);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(seal, that_fails_leaves_nothing_to_commit)
{
    struct hearth_error err = { 0 };
    struct hearth_handle *handle;
    struct hearth_save *save;

    start();
    save = begin(r.h, 6);
    must(hearth_save_add(save, piece, 2, NULL));
    fake_refuse(r.fake, HTH_LOCAL_SEAL, HEARTH_EFAILED, "node c has no room");
    must(hearth_save_seal(save, &err), err); /* sent; the call does not wait for the answer */
    fake_counts(r.fake);
    usleep(100000);
    must_fail(hearth_save_commit(save, &handle, &err), HEARTH_EFAILED);
    cr_assert(ne(ptr, strstr(err.text, "node c has no room"), NULL), "%s", err.text);
    fake_refuse(r.fake, HTH_LOCAL_SEAL, HEARTH_OK, "");
    save = begin(r.h, 7);
    must(hearth_save_add(save, piece, 2, NULL));
    must(hearth_save_seal(save, NULL));
    hearth_save_abort(save); /* sealed, and given up */
    cr_assert(eq(u32, fake_counts(r.fake).aborts, 2));
    rank_end(&r);
}

Test(seal, is_said_again_to_the_engine_that_comes_in_place_of_the_one_that_heard_it)
{
    struct hearth_error err = { 0 };
    struct hearth_save *save;

    start();
    save = begin(r.h, 6);
    must(hearth_save_add(save, piece, 2, NULL));
    must(hearth_save_add_bytes(save, &text, 1, NULL));
    must(hearth_save_seal(save, NULL));
    fake_crash(r.fake);
    fake_back(r.fake);
    must(hearth_save_put_common(save, ".metadata", "m", 1, &err), err);
    protect(save);
    cr_assert(eq(u32, fake_counts(r.fake).regains, 1));
    check_saved(6);
    rank_end(&r);
}

static struct hearth *open_helper(void)
{
    struct hearth_opts opts = r.opts;
    struct hearth *h = NULL;
    struct hearth_error err = { 0 };

    opts.helper = 1;
    cr_assert(eq(int, hearth_open(&opts, &h, &err), 0), "%s", err.text);
    return h;
}

static ptrdiff_t staged[2]; /* payloads of stage_and_give(), from the giver's data */

static void stage_and_give(struct hearth_ticket *ticket)
{
    struct hearth_save *save = begin(r.h, HEARTH_STEP_LATER);
    struct hearth_error err = { 0 };
    uint64_t bytes = 0;
    void *data[2], *base;

    must(hearth_save_stage(save, piece, 2, data, NULL));
    must(hearth_save_data(save, &base, &bytes, NULL));
    cr_assert(eq(u64, bytes, ROOM));
    for (int i = 0; i < 2; i++)
        staged[i] = (char *)data[i] - (char *)base;
    cr_assert(eq(int, hearth_save_give(save, ticket, &err), 0), "%s", err.text);
}

/* The same bytes, at the same distances, in whoever has the save now. */
static void check_staged(struct hearth_save *save)
{
    uint64_t bytes = 0;
    float got[2][3];
    void *base;

    must(hearth_save_data(save, &base, &bytes, NULL));
    cr_assert(eq(u64, bytes, ROOM));
    cr_assert(zero(int, memcmp((char *)base + staged[0], x, sizeof(x))));
    memcpy(got, (char *)base + staged[1], sizeof(got));
    for (int i = 0; i < 6; i++)
        cr_assert(epsilon_eq(flt, (&got[0][0])[i], y[i % 2][i / 2], 0.0f));
}

Test(give, another_connection_goes_on_where_the_first_one_stopped)
{
    struct hearth_ticket ticket, wrong;
    struct hearth_error err = { 0 };
    struct hearth_place place[3];
    struct hearth_save *save = NULL;
    struct hearth *h;
    size_t count;

    start();
    h = open_helper();
    stage_and_give(&ticket);
    wrong = ticket;
    wrong.bytes[20] ^= 1;
    must_fail(hearth_save_take(h, &wrong, &save, &err), HEARTH_ENOENT);
    must(hearth_save_take(h, &ticket, &save, &err), err);
    must_fail(hearth_save_take(h, &ticket, &save, &err), HEARTH_ENOENT);
    check_staged(save);
    must(hearth_save_places(save, place, 3, &count, NULL));
    cr_assert(eq(sz, count, 2));
    cr_assert(eq(u64, place[1].offset, place[0].length));
    must(hearth_save_add_bytes(save, &text, 1, NULL));
    must_fail(hearth_save_add(save, piece, 1, &err), HEARTH_ESTATE); /* as for the giver */
    must(hearth_save_set_step(save, 8, NULL));
    cr_assert(eq(u32, fake_counts(r.fake).step_wait_ms, 700)); /* the giver's own */
    must(hearth_save_put_common(save, ".metadata", "m", 1, NULL));
    must(hearth_save_seal(save, NULL));
    protect(save);
    check_saved(8);
    hearth_close(h, HEARTH_KEEP);
    rank_end(&r);
}

static unsigned open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned count = 0;

    cr_assert(ne(ptr, d, NULL));
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

/* The engine has given it to us by then, whatever else it said. */
Test(give, what_is_taken_and_makes_no_sense_goes_back)
{
    struct hearth_ticket ticket;
    struct hearth_error err = { 0 };
    struct hearth_save *save = NULL;
    struct hearth *h;
    uint32_t aborts;
    unsigned files;

    start();
    h = open_helper();
    stage_and_give(&ticket);
    fake_runs(r.fake, UINT32_MAX);
    aborts = fake_counts(r.fake).aborts;
    files = open_files();
    must_fail(hearth_save_take(h, &ticket, &save, &err), HEARTH_EPROTO);
    cr_assert(eq(u32, open_files(), files));
    cr_assert(eq(u32, fake_counts(r.fake).aborts, aborts + 1));
    hearth_close(h, HEARTH_KEEP);
    rank_end(&r);
}

Test(give, what_cannot_be_given_is_gone_nevertheless)
{
    struct hearth_ticket ticket = { .bytes = "no ticket" };
    struct hearth_error err = { 0 };
    struct hearth_save *save;

    start();
    must_fail(hearth_save_take(r.h, &ticket, &save, &err), HEARTH_ENOENT);
    must_fail(hearth_save_take(r.h, NULL, &save, &err), HEARTH_EINVAL);
    save = begin(r.h, 3);
    must(hearth_save_seal(save, NULL));
    must_fail(hearth_save_give(save, &ticket, &err), HEARTH_ESTATE);
    save = begin(r.h, 4);
    must(hearth_save_next_object(save, "second", 8192, NULL));
    must_fail(hearth_save_give(save, &ticket, &err), HEARTH_ESTATE);
    cr_assert(ne(ptr, strstr(err.text, "2 objects"), NULL), "%s", err.text);
    save = begin(r.h, HEARTH_STEP_LATER);
    must(hearth_save_put_common(save, "c", "c", 1, NULL));
    must_fail(hearth_save_give(save, &ticket, &err), HEARTH_ESTATE);
    must_fail(hearth_save_give(begin(r.h, 5), NULL, &err), HEARTH_EINVAL);
    cr_assert(eq(u32, fake_counts(r.fake).aborts, 4));
    rank_end(&r);
}

Test(give, ends_with_the_giver)
{
    struct hearth_ticket ticket;
    struct hearth_error err = { 0 };
    struct hearth_save *save;
    struct hearth *h;

    start();
    h = open_helper();
    stage_and_give(&ticket);
    hearth_close(r.h, HEARTH_KEEP); /* which is posted */
    r.h = NULL;
    for (int i = 0; i < 500 && fake_counts(r.fake).closes == 0; i++)
        usleep(10000);
    usleep(10000); /* and the end of its connection comes after it */
    must_fail(hearth_save_take(h, &ticket, &save, &err), HEARTH_ENOENT);
    hearth_close(h, HEARTH_KEEP);
    rank_end(&r);
}

Test(stage, under_the_kill_switch_is_plain_memory)
{
    struct hearth_checkpoint *c = NULL;
    struct hearth_error err = { 0 };
    struct hearth_handle *handle;
    struct hearth_ticket ticket;
    struct hearth_save *save;
    uint64_t bytes = 0;
    void *data[2], *base;

    start();
    r.opts.off = 1;
    hearth_close(r.h, HEARTH_KEEP);
    rank_open(&r);
    save = begin(r.h, HEARTH_STEP_LATER);
    must(hearth_save_stage(save, piece, 2, data, NULL));
    cr_assert(zero(int, memcmp(data[0], x, sizeof(x))));
    must(hearth_save_give(save, &ticket, NULL));
    must(hearth_save_take(r.h, &ticket, &save, NULL));
    must(hearth_save_data(save, &base, &bytes, NULL));
    cr_assert(eq(u64, bytes, ROOM));
    memset(base, 1, ROOM); /* all of it is ours, though nothing was kept */
    must(hearth_save_add_bytes(save, &text, 1, NULL));
    must(hearth_save_set_step(save, 4, NULL));
    must(hearth_save_seal(save, NULL));
    must(hearth_save_put_common(save, ".metadata", "m", 1, NULL));
    must(hearth_save_commit(save, &handle, NULL));
    must(hearth_wait(handle, HEARTH_PROTECTED, 100, NULL));
    hearth_handle_close(handle);
    must_fail(hearth_checkpoint_open(r.h, HEARTH_STEP_NEWEST, &c, &err), HEARTH_ENOENT);
    rank_end(&r);
}

/* ---- Chunks that are complete -------------------------------------------------------------- */

#define LARGE (UINT64_C(256) << 20)

/* A save of a large item and, 120 ms later, a small one. Returns the chunks that were reported
 * before the commit. */
static uint32_t large_save(uint64_t step, uint64_t large_bytes, int reserves)
{
    unsigned char *bytes = calloc(1, large_bytes);
    int64_t n = (int64_t)large_bytes;
    struct hearth_piece large = rank_piece("large", bytes, 1, &n);
    struct hearth_begin_opts opts = { .struct_size = sizeof(opts), .wait_ms = 5000 };
    struct hearth_save *save = NULL;
    struct hearth_error err = { 0 };
    uint32_t written;
    void *place;

    large.dtype = HEARTH_UINT8;
    cr_assert(eq(int, hearth_save_begin(r.h, step, large_bytes + 2 * ROOM, &opts, &save, &err), 0),
            "%s", err.text);
    if (reserves)
        must(hearth_save_reserve(save, &piece[1], 1, &place, NULL));
    must(hearth_save_add(save, &large, 1, NULL));
    usleep(120000);
    must(hearth_save_add(save, &piece[0], 1, NULL));
    written = fake_counts(r.fake).written;
    hearth_save_abort(save);
    free(bytes);
    return written;
}

static void start_with(uint32_t copy_threads)
{
    rank_start(&r);
    r.opts.copy_threads = copy_threads;
    rank_open(&r);
    rank_fill(x, 1000, 1);
    piece[0] = rank_piece("x", x, 1, &nx);
    piece[1] = rank_piece("y", y, 2, ny);
}

Test(stage, chunks_that_are_complete_are_reported_before_the_commit)
{
    start_with(1);
    cr_assert(ge(u32, large_save(1, LARGE, 0), 16)); /* 64, if the copy takes less than 100 ms */
    rank_end(&r);
}

/* All processors would copy. */
Test(stage, chunks_are_not_reported_if_copies_take_more_than_half_of_the_processors)
{
    cpu_set_t set;

    cr_assert(eq(int, sched_getaffinity(0, sizeof(set), &set), 0));
    start_with((uint32_t)CPU_COUNT(&set) / 2 + 1);
    cr_assert(eq(u32, large_save(1, LARGE, 0), 0));
    rank_end(&r);
}

Test(stage, chunks_are_not_reported_if_callers_have_places_or_the_object_is_small)
{
    start_with(1);
    cr_assert(zero(u32, large_save(1, LARGE, 1)));
    cr_assert(zero(u32, large_save(1, LARGE - 3 * ROOM, 0)));
    rank_end(&r);
}

/* Pulls would take processors from the copy. */
Test(stage, chunks_are_not_reported_by_a_copy_that_takes_all_processors)
{
    start_with(64);
    if (sysconf(_SC_NPROCESSORS_ONLN) <= 64)
        cr_assert(zero(u32, large_save(1, LARGE, 0)));
    rank_end(&r);
}
