/* SPDX-License-Identifier: Apache-2.0 */
/* ml-flashpoint goes on saving beside engines that linger: it removes a step, writes that step's
 * buffers again and links them into a newer one. Played with files, as it was seen to do it. */
#include "foreign_rig.h"

#define NEWER 15u

/* All objects of a step of node 0 lie in the pool, in the order of their names. */
static void put_in_pool(uint32_t step)
{
    put(0, step);
    sh("cd %s/job && mkdir buffer_pool && cd step-%u_ckpt && n=0 && for f in *.distcp; do "
       "mv $f ../buffer_pool/buffer_0_$n.dist && ln -s %s/job/buffer_pool/buffer_0_$n.dist $f; "
       "n=$((n+1)); done",
            one[0].root, step, one[0].root);
}

/* Step 12 is removed, and what the data have as step 7 becomes step 15, in the same buffers. */
static void save_newer(void)
{
    sh("cd %s/job && rm -r step-12_ckpt && cp -r %s/container/step-7_ckpt step-%u_ckpt && "
       "chmod -R u+rwX . && cd step-%u_ckpt && n=0 && for f in *.distcp; do "
       "b=../buffer_pool/buffer_0_$n.dist; cat $f > $b && rm $f && "
       "ln -s %s/job/buffer_pool/buffer_0_$n.dist $f; n=$((n+1)); done",
            one[0].root, data(), NEWER, NEWER, one[0].root);
}

Test(foreign_pool, an_engine_that_lingers_finds_the_newest_step_in_the_same_buffers)
{
    start();
    put_in_pool(12);
    recover_step(12);
    check_all(12);
    part();
    save_newer();
    recover_step(NEWER);
    check_all(7);
    end();
}

Test(foreign_pool, an_engine_that_lingers_finds_the_first_step_on_an_empty_base)
{
    start();
    all(run);
    for (int i = 0; i < NODES; i++) {
        cr_assert(eq(int, one[i].rc, 0), "rank %d: %s", i, one[i].err.text);
        cr_assert(eq(ptr, one[i].c, NULL));
    }
    part();
    put_in_pool(12);
    recover_step(12);
    check_all(12);
    end();
}

/* ---- The newest whole step wins, whoever wrote it -------------------------------------------- */

static void save_step(uint64_t step)
{
    one[0].step = one[1].step = step;
    all(save);
}

/* A line of that event waits for each rank. */
static void all_hear(const char *part)
{
    for (int i = 0; i < NODES; i++) {
        uint32_t level = 0;
        char text[1024] = "";

        while (!strstr(text, part))
            cr_assert(
                    eq(int, hearth_log_poll(one[i].h, &level, text, sizeof(text)), 1), "%s", part);
    }
}

static void theirs_then_ours(void)
{
    start();
    put_in_pool(12);
    recover_step(12);
    save_step(13);
    part();
}

/* ml-flashpoint saved 12, Hearth 13, ml-flashpoint 15 and was stopped before it removed 13. */
static void newer_than_ours(void)
{
    theirs_then_ours();
    save_newer();
    recover_step(NEWER);
    all_hear("step 15, which Hearth did not write, is whole and newer than Hearth's step 13");
}

Test(foreign_pool, a_newer_step_of_another_program_is_chosen_and_said_and_read)
{
    newer_than_ours();
    check_all(7); /* also when 13 is PROTECTED again: copies of 15 stay */
    end();
}

Test(foreign_pool, what_hearth_keeps_stays_when_a_newer_step_of_another_program_is_chosen)
{
    newer_than_ours();
    part();
    sh("rm -r %s/job/step-%u_ckpt", one[0].root, NEWER);
    recover_step(13);
    end();
}

/* Its finalize removes all that is older. */
Test(foreign_pool, a_newer_step_of_another_program_is_chosen_where_ours_was_removed)
{
    theirs_then_ours();
    save_newer();
    sh("rm -r %s/job/step-13_ckpt %s/job/step-13_ckpt", one[0].root, one[1].root);
    recover_step(NEWER);
    check_all(7);
    save_step(16);
    part();
    recover_step(16); /* ours is newer again */
    end();
}

Test(foreign_pool, an_engine_that_is_told_so_takes_other_programs_steps_last)
{
    setenv("HEARTH_FOREIGN_LAST", "1", 1);
    theirs_then_ours();
    save_newer();
    recover_step(13);
    unsetenv("HEARTH_FOREIGN_LAST");
    end();
}

static int try_save(struct one *o, uint64_t step)
{
    struct hearth_save *s = NULL;
    int rc = hearth_save_begin(o->h, step, 4096, NULL, &s, &o->err);

    hearth_save_abort(s);
    return rc;
}

/* One path is one state: the save fails before it takes anything, on the node that has the other.
 * */
Test(foreign_pool, a_save_of_a_step_that_another_program_has_fails_with_both_named)
{
    start();
    put_in_pool(12);
    recover_step(12);
    must_fail(try_save(&one[0], 12), HEARTH_EEXIST);
    cr_assert(ne(ptr, strstr(one[0].err.text, "step 12 (epoch "), NULL), "%s", one[0].err.text);
    cr_assert(ne(ptr, strstr(one[0].err.text, "/job/step-12_ckpt is there and not Hearth's"), NULL),
            "%s", one[0].err.text);
    save_step(13);
    end();
}

static struct hearth_handle *commit_part(struct one *o, struct hearth_save *s)
{
    float x = (float)o->opts.rank;
    struct hearth_piece piece = rank_piece(o->opts.rank ? "x1" : "x0", &x, 0, NULL);
    struct hearth_handle *handle;

    must(hearth_save_add(s, &piece, 1, NULL));
    must(hearth_save_commit(s, &handle, NULL));
    return handle;
}

/* ml-flashpoint's save of step 14 begins after ours, and is finished before ours is COMPLETE. */
Test(foreign_pool, a_save_whose_directory_another_program_makes_meanwhile_fails_with_both_named)
{
    struct hearth_save *s[NODES];
    struct hearth_handle *handle[NODES];

    start();
    put_in_pool(12);
    recover_step(12);
    for (int i = 0; i < NODES; i++)
        must(hearth_save_begin(one[i].h, 14, 8192, NULL, &s[i], NULL));
    sh("mkdir %s/job/step-14_ckpt", one[0].root);
    for (int i = 0; i < NODES; i++)
        handle[i] = commit_part(&one[i], s[i]);
    for (int i = 0; i < NODES; i++) {
        must_fail(hearth_wait(handle[i], HEARTH_PROTECTED, 20000, &one[i].err), HEARTH_EFAILED);
        cr_assert(ne(ptr, strstr(one[i].err.text, "step 14 (epoch "), NULL), "%s", one[i].err.text);
        cr_assert(ne(ptr, strstr(one[i].err.text, "/job/step-14_ckpt is there and not Hearth's"),
                          NULL),
                "%s", one[i].err.text);
        hearth_handle_close(handle[i]);
    }
    save_step(15);
    end();
}

/* ---- Read while it changes ------------------------------------------------------------------- */

static void must_be_lost(int rc, const struct hearth_item *item, const char *call)
{
    cr_assert(eq(int, rc, HEARTH_ELOST), "%s: %s", call, one[0].err.text);
    cr_assert(
            ne(ptr, strstr(one[0].err.text, item->object), NULL), "%s: %s", call, one[0].err.text);
    cr_assert(ne(ptr, strstr(one[0].err.text, "recover again"), NULL), "%s", one[0].err.text);
}

/* Each call that gives bytes of the file, which was opened before. */
static void all_calls_fail(const struct hearth_item *item)
{
    struct hearth_checkpoint *c = one[0].c;
    struct hearth_view view = { .struct_size = sizeof(view) };
    struct hearth_error *err = &one[0].err;
    unsigned char *to = malloc(item->bytes + 1);
    int64_t zeros[8] = { 0 };
    struct hearth_range range = { sizeof(range), item->object, item->offset, 8, to };
    struct hearth_piece piece = { .struct_size = sizeof(piece),
        .key = item->key,
        .key_len = item->key_len,
        .dtype = item->dtype,
        .ndim = item->ndim,
        .shape = item->shape,
        .data = to };
    int fd;

    must_be_lost(hearth_read_bytes(c, item, 0, to, item->bytes, err), item, "bytes");
    must_be_lost(hearth_read_box(c, item, zeros, item->shape, to, NULL, err), item, "box");
    must_be_lost(hearth_read_ranges(c, &range, 1, err), item, "ranges");
    must_be_lost(hearth_view_open(c, item, &view, err), item, "view");
    must_be_lost(hearth_load(c, &piece, 1, 0, NULL, err), item, "load");
    must_be_lost(hearth_object_fd(c, item->object, &fd, &(uint64_t){ 0 }, &(uint64_t){ 0 }, err),
            item, "descriptor");
    free(to);
}

Test(foreign_pool, a_buffer_that_is_written_again_under_its_readers_is_an_error_by_name)
{
    struct hearth_item item = { .struct_size = sizeof(item) };
    void *bytes;
    size_t len;

    start();
    put_in_pool(12);
    recover_step(12);
    for (size_t i = 0; item.kind != 10 || !item.ndim; i++)
        must(hearth_item_at(one[0].c, 0, i, &item, NULL));
    save_newer();
    all_calls_fail(&item);
    must_fail(hearth_read_common(one[0].c, "common.pt", &bytes, &len, NULL), HEARTH_ELOST);
    end();
}

/* A smaller save in the same buffer, which is cut when it is closed. */
Test(foreign_pool, a_buffer_that_is_cut_under_its_readers_is_an_error_by_name)
{
    struct hearth_item item = { .struct_size = sizeof(item) };

    start();
    put_in_pool(12);
    recover_step(12);
    for (size_t i = 0; item.kind != 10 || !item.ndim; i++)
        must(hearth_item_at(one[0].c, 0, i, &item, NULL));
    sh("truncate -s 100 %s/job/step-12_ckpt/%s", one[0].root, item.object);
    all_calls_fail(&item);
    end();
}

/* A writer that has a buffer mapped changes neither its length nor its times. */
Test(foreign_pool, a_view_is_what_it_was_whatever_is_written_later)
{
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_view view = { .struct_size = sizeof(view) };
    unsigned char *was;

    start();
    put_in_pool(12);
    recover_step(12);
    must(hearth_item_at(one[0].c, 0, 0, &item, NULL));
    must(hearth_view_open(one[0].c, &item, &view, NULL));
    was = malloc(view.bytes);
    memcpy(was, view.data, view.bytes);
    save_newer();
    cr_assert(zero(int, memcmp(was, view.data, view.bytes)));
    hearth_view_close(one[0].h, &view);
    free(was);
    end();
}
