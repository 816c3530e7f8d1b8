/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that no caller should pass: NULL, sizes that do not fit, structs of no size. */
#include "check.h"
#include "rank.h"

Test(args, null_for_a_save_or_handle_is_refused)
{
    struct hearth_ticket ticket = { { 0 } };
    struct hearth_status st = { .struct_size = sizeof(st) };

    must_fail(hearth_save_add(NULL, NULL, 0, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_add_bytes(NULL, NULL, 0, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_reserve(NULL, NULL, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_stage(NULL, NULL, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_set_step(NULL, 1, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_locate(NULL, NULL, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_places(NULL, NULL, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_data(NULL, NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_put_common(NULL, NULL, NULL, 0, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_seal(NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_give(NULL, &ticket, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_take(NULL, &ticket, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_next_object(NULL, NULL, 1, NULL), HEARTH_EINVAL);
    must_fail(hearth_test(NULL, &st, NULL), HEARTH_EINVAL);
    must_fail(hearth_cancel(NULL, NULL), HEARTH_EINVAL);
    cr_assert(eq(int, hearth_log_poll(NULL, NULL, NULL, 0), 0));
    must_fail(hearth_opts_from_env(NULL, NULL), HEARTH_EINVAL);
    cr_assert(eq(u64, hearth_save_bytes(NULL, 3, NULL, 3), 0));
}

Test(args, null_for_a_checkpoint_is_refused)
{
    struct hearth_view view = { .struct_size = sizeof(view) };

    must_fail(hearth_checkpoint_open(NULL, 1, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_checkpoint_info(NULL, NULL, NULL), HEARTH_EINVAL);
    cr_assert(eq(sz, hearth_checkpoint_objects(NULL), 0));
    must_fail(hearth_item_find(NULL, NULL, 0, NULL, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_item_in(NULL, NULL, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_view_open(NULL, NULL, &view, NULL), HEARTH_EINVAL);
    must_fail(hearth_read_box(NULL, NULL, NULL, NULL, NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_read_boxes(NULL, NULL, 0, NULL), HEARTH_EINVAL);
    must_fail(hearth_read_ranges(NULL, NULL, 0, NULL), HEARTH_EINVAL);
    must_fail(hearth_prefetch_boxes(NULL, NULL, 0, NULL), HEARTH_EINVAL);
    must_fail(hearth_prefetch(NULL, NULL, 0, NULL), HEARTH_EINVAL);
    must_fail(hearth_read_bytes(NULL, NULL, 0, NULL, 0, NULL), HEARTH_EINVAL);
    must_fail(hearth_read_common(NULL, NULL, NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_object_fd(NULL, NULL, NULL, NULL, NULL, NULL), HEARTH_EINVAL);
    hearth_view_close(NULL, &view);
    cr_assert(eq(sz, hearth_report_missing(NULL), 0));
    cr_assert(eq(ptr, (void *)(uintptr_t)hearth_report_key(NULL, 0, NULL), NULL));
    hearth_free(NULL);
}

Test(args, null_where_one_is_open_is_refused)
{
    struct hearth_checkpoint *c;
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_save *save;
    float x = 1;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL);
    struct rank r;

    rank_start(&r);
    rank_open(&r);
    must_fail(hearth_save_begin(r.h, 1, 8192, NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_take(r.h, NULL, &save, NULL), HEARTH_EINVAL);
    must(hearth_save_begin(r.h, 1, 8192, NULL, &save, NULL));
    must_fail(hearth_save_add(save, NULL, 1, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_add_bytes(save, NULL, 1, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_reserve(save, &piece, 1, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_locate(save, NULL, 1, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_places(save, NULL, 1, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_data(save, NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_put_common(save, "a", NULL, 1, NULL), HEARTH_EINVAL);
    hearth_save_abort(save);
    rank_save(r.h, 2, &piece, 1, NULL, 0);
    must_fail(hearth_checkpoint_open(r.h, 2, NULL, NULL), HEARTH_EINVAL);
    must(hearth_checkpoint_open(r.h, 2, &c, NULL));
    must_fail(hearth_checkpoint_info(c, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_load(c, NULL, 1, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_item_at(c, 1, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_item_find(c, NULL, 0, NULL, 1, NULL, NULL), HEARTH_EINVAL);
    must(hearth_item_at(c, 1, 0, &item, NULL));
    must_fail(hearth_item_in(c, NULL, 0, &item, NULL), HEARTH_EINVAL);
    must_fail(hearth_view_open(c, &item, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_view_open(c, NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_read_box(c, NULL, NULL, NULL, NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_read_boxes(c, NULL, 1, NULL), HEARTH_EINVAL);
    must_fail(hearth_read_ranges(c, NULL, 1, NULL), HEARTH_EINVAL);
    must_fail(hearth_prefetch(c, NULL, 1, NULL), HEARTH_EINVAL);
    must_fail(hearth_read_bytes(c, &item, 0, NULL, 4, NULL), HEARTH_EINVAL);
    must_fail(hearth_read_common(c, NULL, NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_object_fd(c, NULL, NULL, NULL, NULL, NULL), HEARTH_EINVAL);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(args, null_for_metadata_or_values_is_refused)
{
    struct hearth_piece piece = rank_piece("x", NULL, 0, NULL);
    struct hearth_metadata_writer *w;

    must_fail(hearth_metadata_open(NULL, 1, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_info(NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_entry_at(NULL, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_entry_find(NULL, NULL, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_chunk_at(NULL, 0, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_path_at(NULL, 0, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_stored_at(NULL, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_stored_find(NULL, NULL, 0, NULL, 0, NULL, NULL), HEARTH_EINVAL);
    hearth_metadata_close(NULL);
    must_fail(hearth_metadata_write(NULL, NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_add_piece(NULL, &piece, "o", 0, 0, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_add_bytes(NULL, "n", 1, "o", 0, 0, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_add_path(NULL, "n", 1, NULL, 0, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_finish(NULL, NULL, NULL, NULL), HEARTH_EINVAL);
    hearth_metadata_abandon(NULL);
    must(hearth_metadata_write(NULL, NULL, &w, NULL));
    must_fail(hearth_metadata_add_piece(w, NULL, "o", 0, 0, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_add_piece(w, &piece, NULL, 0, 0, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_add_bytes(w, NULL, 1, "o", 0, 0, NULL), HEARTH_EINVAL);
    must_fail(hearth_metadata_add_path(w, "n", 1, NULL, 1, NULL), HEARTH_EINVAL);
    hearth_metadata_abandon(w);
    must_fail(hearth_values_open(NULL, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_value_root(NULL, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_value_child(NULL, NULL, 0, NULL, NULL), HEARTH_EINVAL);
    hearth_values_close(NULL);
}

/* Two lengths whose sum is small again. */
Test(args, more_bytes_than_there_are_is_no_space)
{
    int64_t most = INT64_MAX;
    struct hearth_piece piece[2] = { rank_piece("a", NULL, 1, &most),
        rank_piece("b", NULL, 1, &most) };
    struct hearth_bytes b = { .struct_size = sizeof(b), .key = "c", .key_len = 1, .len = SIZE_MAX };
    struct hearth_error err = { 0 };
    struct hearth_save *save;
    void *data[2];
    struct rank r;

    piece[0].dtype = piece[1].dtype = HEARTH_UINT8;
    b.data = &b;
    rank_start(&r);
    rank_open(&r);
    cr_assert(eq(u64, hearth_save_bytes(piece, 2, &b, 1), UINT64_MAX));
    must_fail(hearth_save_begin(r.h, 1, UINT64_MAX, NULL, &save, NULL), HEARTH_ENOSPC);
    must(hearth_save_begin(r.h, 1, 8192, NULL, &save, NULL));
    must_fail(hearth_save_reserve(save, piece, 2, data, &err), HEARTH_ENOSPC);
    must_fail(hearth_save_add_bytes(save, &b, 1, &err), HEARTH_ENOSPC);
    hearth_save_abort(save);
    rank_end(&r);
}

/* Memory that the caller has not cleared may have such sizes. */
Test(args, a_struct_of_senseless_size_is_refused)
{
    struct hearth_begin_opts begin = { .struct_size = SIZE_MAX };
    struct hearth_opts opts = { .struct_size = SIZE_MAX / 2 };
    struct hearth_item item = { .struct_size = SIZE_MAX };
    struct hearth_checkpoint *c;
    struct hearth_save *save;
    struct hearth *h;
    float x = 1;
    struct hearth_piece piece = rank_piece("x", &x, 0, NULL), two[2] = { piece, piece };
    struct rank r;

    two[0].struct_size = two[1].struct_size = SIZE_MAX / 2 + 1;
    rank_start(&r);
    rank_open(&r);
    must_fail(hearth_open(&opts, &h, NULL), HEARTH_EINVAL);
    must_fail(hearth_save_begin(r.h, 1, 8192, &begin, &save, NULL), HEARTH_EINVAL);
    rank_save(r.h, 2, &piece, 1, NULL, 0);
    must(hearth_checkpoint_open(r.h, 2, &c, NULL));
    must_fail(hearth_load(c, two, 2, 0, NULL, NULL), HEARTH_EINVAL);
    must_fail(hearth_item_at(c, 1, 0, &item, NULL), HEARTH_EINVAL);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(args, an_empty_tensor_may_have_dimensions_of_any_length)
{
    static const int64_t shape[] = { INT64_MAX, 0, INT64_MAX, INT64_MAX };
    static const int64_t strides[] = { INT64_MAX, 1, 1, INT64_MAX }, origin[4] = { 0 };
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_checkpoint *c;
    float x;
    struct hearth_piece piece[2] = { rank_piece("c", &x, 4, shape), rank_piece("s", &x, 4, shape) };
    struct rank r;

    piece[1].strides = strides;
    rank_start(&r);
    rank_open(&r);
    rank_save(r.h, 1, piece, 2, NULL, 0);
    must(hearth_checkpoint_open(r.h, 1, &c, NULL));
    must(hearth_load(c, piece, 2, 0, NULL, NULL));
    must(hearth_item_at(c, 1, 0, &item, NULL));
    must(hearth_read_box(c, &item, origin, shape, &x, NULL, NULL));
    must(hearth_read_box(c, &item, origin, shape, &x, strides, NULL));
    hearth_checkpoint_close(c);
    rank_end(&r);
}

/* Each of the two constants says something to one kind of call alone. */
Test(args, a_constant_for_another_call_is_no_step)
{
    struct hearth_checkpoint *c = NULL;
    struct hearth_save *save = NULL;
    struct hearth_error err = { 0 };
    struct rank r;

    rank_start(&r);
    rank_open(&r);
    must_fail(hearth_save_begin(r.h, HEARTH_STEP_NEWEST, 8192, NULL, &save, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "HEARTH_STEP_NEWEST is for reading"), NULL), "%s", err.text);
    must_fail(hearth_checkpoint_open(r.h, HEARTH_STEP_LATER, &c, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "HEARTH_STEP_LATER is for"), NULL), "%s", err.text);
    must(hearth_save_begin(r.h, HEARTH_STEP_LATER, 8192, NULL, &save, &err), err);
    must_fail(hearth_save_set_step(save, HEARTH_STEP_NEWEST, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "HEARTH_STEP_NEWEST is for reading"), NULL), "%s", err.text);
    must_fail(hearth_save_set_step(save, HEARTH_STEP_LATER, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "HEARTH_STEP_LATER is for"), NULL), "%s", err.text);
    must(hearth_save_set_step(save, 3, &err), err); /* what was refused has changed nothing */
    must_fail(hearth_save_set_step(save, 4, &err), HEARTH_ESTATE);
    hearth_save_abort(save);
    rank_end(&r);
}

/* Of a world of one; sets of more are tests/cluster's. */
Test(args, who_takes_part_in_a_save_is_named_right)
{
    static const uint32_t twice[] = { 0, 0 }, other[] = { 1 }, me[] = { 0 };
    struct hearth_begin_opts o = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_save *save = NULL;
    struct hearth_error err;
    struct rank r;

    rank_start(&r);
    rank_open(&r);
    o.rank_count = 1;
    must_fail(hearth_save_begin(r.h, 1, 8, &o, &save, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "ranks is NULL"), NULL), "%s", err.text);
    o.ranks = other;
    must_fail(hearth_save_begin(r.h, 1, 8, &o, &save, &err), HEARTH_EINVAL);
    cr_assert(
            ne(ptr, strstr(err.text, "rank 1 is named and the world has 1"), NULL), "%s", err.text);
    o.ranks = twice;
    o.rank_count = 2;
    must_fail(hearth_save_begin(r.h, 1, 8, &o, &save, &err), HEARTH_EINVAL);
    o.rank_count = 0;
    must_fail(hearth_save_begin(r.h, 1, 8, &o, &save, &err), HEARTH_EINVAL);
    o.ranks = me;
    o.rank_count = 1;
    must(hearth_save_begin(r.h, 1, 8, &o, &save, &err), err); /* all that there are */
    hearth_save_abort(save);
    rank_end(&r);
}

/* A new epoch would end the save, and recovery would have to come before the next. */
Test(args, a_recovery_that_is_refused_for_its_options_has_begun_no_epoch)
{
    static const char *const none[] = { NULL }, *const bad[] = { "../x" }, *const good[] = { "c" };
    struct hearth_save_id id = { .step = 1, .reserved = 1 };
    struct hearth_recover_opts late = HEARTH_RECOVER_OPTS_INIT, missing = late, named = late,
                               many = late, saved = late;
    const struct hearth_recover_opts *const wrong[] = { &late, &missing, &named, &many, &saved };
    struct hearth_checkpoint *c = NULL;
    struct hearth_handle *handle;
    struct hearth_save *save;
    struct rank r;

    late.deadline_ms = UINT32_MAX;
    missing.common = none;
    missing.common_count = 1;
    named.common = bad;
    named.common_count = 1;
    many.common = good;
    many.common_count = 1000;
    saved.save = &id;
    rank_start(&r);
    rank_open(&r);
    must(hearth_save_begin(r.h, 1, 8, NULL, &save, NULL));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        must_fail(hearth_recover(r.h, wrong[i], &c, NULL), HEARTH_EINVAL);
    must(hearth_save_commit(save, &handle, NULL));
    must(hearth_wait(handle, HEARTH_PROTECTED, 5000, NULL));
    hearth_handle_close(handle);
    must(hearth_save_begin(r.h, 2, 8, NULL, &save, NULL));
    hearth_save_abort(save);
    rank_end(&r);
}
