/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a save of the running epoch: how long a decision is waited for, and which save it is. */
#include "check.h"
#include "rank.h"

#include <string.h>

static struct rank r;
static float x[4] = { 1, 2, 3, 4 };
static const int64_t four = 4;

/* Step 1, attempt 1, PROTECTED. */
static void start(void)
{
    struct hearth_piece piece = rank_piece("x", x, 1, &four);

    rank_start(&r);
    rank_open(&r);
    rank_save(r.h, 1, &piece, 1, NULL, 0);
}

static void end(void)
{
    rank_end(&r);
}

TestSuite(find, .init = start, .fini = end);

static struct hearth_save_id id_of_open(uint64_t step)
{
    struct hearth_checkpoint *c = NULL;
    struct hearth_save_id id = { 0 };

    must(hearth_checkpoint_open(r.h, step, &c, NULL));
    must(hearth_checkpoint_id(c, &id, NULL));
    hearth_checkpoint_close(c);
    return id;
}

/* Saved again, and not decided. */
static struct hearth_handle *save_again(void)
{
    struct hearth_piece piece = rank_piece("x", x, 1, &four);
    struct hearth_handle *handle = NULL;
    struct hearth_save *save;

    fake_hold(r.fake, HEARTH_SEALED);
    must(hearth_save_begin(r.h, 1, hearth_save_bytes(&piece, 1, NULL, 0), NULL, &save, NULL));
    must(hearth_save_add(save, &piece, 1, NULL));
    must(hearth_save_commit(save, &handle, NULL));
    return handle;
}

Test(find, a_decision_is_waited_for_as_long_as_was_asked_or_as_for_open)
{
    struct hearth_find_opts opts = { .struct_size = sizeof(opts), .wait_ms = 77 };
    struct hearth_handle *handle = save_again();
    struct hearth_checkpoint *c = NULL;
    struct hearth_error err;

    must_fail(hearth_checkpoint_find(r.h, 1, &opts, &c, &err), HEARTH_ETIMEOUT);
    cr_assert(ne(ptr, strstr(err.text, "step 1: not decided yet"), NULL), "%s", err.text);
    cr_assert(eq(u32, fake_counts(r.fake).find_wait_ms, 77));
    must_fail(hearth_checkpoint_open(r.h, 1, &c, &err), HEARTH_ETIMEOUT);
    cr_assert(eq(u32, fake_counts(r.fake).find_wait_ms, r.opts.open_ms));
    must(hearth_checkpoint_open(r.h, HEARTH_STEP_NEWEST, &c, NULL));
    cr_assert(eq(u32, fake_counts(r.fake).find_wait_ms, 0));
    hearth_checkpoint_close(c);
    hearth_handle_close(handle);
}

Test(find, an_id_opens_that_save_alone)
{
    struct hearth_handle *handle = save_again();
    struct hearth_save_id again = { 0 }, first, got;
    struct hearth_find_opts opts = { .struct_size = sizeof(opts), .save = &again };
    struct hearth_checkpoint *c = NULL;

    must(hearth_handle_id(handle, &again, NULL));
    first = id_of_open(HEARTH_STEP_NEWEST);
    cr_assert(eq(u32, first.attempt, 1));
    cr_assert(eq(u32, again.attempt, 2));
    must_fail(hearth_checkpoint_find(r.h, 1, &opts, &c, NULL), HEARTH_ETIMEOUT);
    opts.save = &first;
    must(hearth_checkpoint_find(r.h, 1, &opts, &c, NULL));
    must(hearth_checkpoint_id(c, &got, NULL));
    cr_assert(zero(int, memcmp(&got, &first, sizeof(got))));
    hearth_checkpoint_close(c);
    hearth_handle_close(handle);
}

Test(find, what_is_no_id_of_this_step_is_refused)
{
    struct hearth_save_id id = id_of_open(1), none = { 0 }, odd = id;
    struct hearth_find_opts opts = { .struct_size = sizeof(opts), .save = &id };
    struct hearth_checkpoint *c = NULL;
    struct hearth_error err;

    odd.reserved = 1;
    must_fail(hearth_checkpoint_find(r.h, 2, &opts, &c, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "hearth_handle_id()"), NULL), "%s", err.text);
    opts.save = &none;
    must_fail(hearth_checkpoint_find(r.h, 0, &opts, &c, &err), HEARTH_EINVAL);
    opts.save = &odd;
    must_fail(hearth_checkpoint_find(r.h, 1, &opts, &c, &err), HEARTH_EINVAL);
    opts = (struct hearth_find_opts){ .struct_size = sizeof(opts), .wait_ms = 86400001 };
    must_fail(hearth_checkpoint_find(r.h, 1, &opts, &c, &err), HEARTH_EINVAL);
    opts = (struct hearth_find_opts){ .struct_size = sizeof(opts), .reserved = 1 };
    must_fail(hearth_checkpoint_find(r.h, 1, &opts, &c, &err), HEARTH_EINVAL);
    must_fail(hearth_checkpoint_find(r.h, 1, NULL, NULL, &err), HEARTH_EINVAL);
    must_fail(hearth_checkpoint_id(NULL, &id, &err), HEARTH_EINVAL);
    must_fail(hearth_handle_id(NULL, &id, &err), HEARTH_EINVAL);
}
