/* SPDX-License-Identifier: Apache-2.0 */
/* The same piece twice in a save of a rank: whoever loads it would get one of the two. */
#include "check.h"
#include "rank.h"

#include <stdio.h>
#include <string.h>

#define MANY 3000

static struct rank r;
static struct hearth_save *save;
static struct hearth_error err;
static float x[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
static const int64_t four = 4, eight = 8, zero = 0;

/* Half of "w": elements [at, at + 4). */
static struct hearth_piece half(const int64_t *at)
{
    struct hearth_piece p = rank_piece("w", x + *at, 1, &four);

    p.global_shape = &eight;
    p.global_offset = at;
    return p;
}

static void start(void)
{
    rank_start(&r);
    rank_open(&r);
    must(hearth_save_begin(r.h, 1, 1 << 20, NULL, &save, NULL));
}

static void end(void)
{
    struct hearth_piece whole = rank_piece("w", x, 1, &eight);
    struct hearth_handle *handle = NULL;
    struct hearth_checkpoint *c = NULL;

    must(hearth_save_commit(save, &handle, &err), err);
    must(hearth_wait(handle, HEARTH_PROTECTED, 5000, &err), err);
    hearth_handle_close(handle);
    memset(x, 0, sizeof(x));
    must(hearth_checkpoint_open(r.h, 1, &c, &err), err);
    cr_assert(eq(int, hearth_load(c, &whole, 1, 0, NULL, &err), 0), "%s", err.text);
    for (int i = 0; i < 8; i++)
        cr_assert(epsilon_eq(flt, x[i], (float)i + 1, 0.0f));
    hearth_checkpoint_close(c);
    rank_end(&r);
}

TestSuite(twice, .init = start, .fini = end);

static void refused(const char *says)
{
    cr_assert(ne(ptr, strstr(err.text, says), NULL), "%s", err.text);
    cr_assert(ne(ptr, strstr(err.text, "is in this rank's save already"), NULL), "%s", err.text);
}

Test(twice, in_one_call_is_refused_by_key_and_nothing_of_the_call_is_added)
{
    struct hearth_piece piece[3] = { half(&zero), half(&four), half(&zero) };

    must_fail(hearth_save_add(save, piece, 3, &err), HEARTH_EINVAL);
    refused("'w'");
    must(hearth_save_add(save, piece, 2, &err), err);
}

Test(twice, in_two_calls_of_whatever_kind_is_refused)
{
    struct hearth_piece lower = half(&zero), both[2] = { half(&four), lower };
    void *data[2];

    must(hearth_save_add(save, &lower, 1, &err), err);
    must_fail(hearth_save_add(save, &lower, 1, &err), HEARTH_EINVAL);
    refused("'w'");
    must_fail(hearth_save_stage(save, both, 2, data, &err), HEARTH_EINVAL);
    refused("'w'");
    must_fail(hearth_save_reserve(save, both, 2, data, &err), HEARTH_EINVAL);
    refused("'w'");
    must(hearth_save_stage(save, both, 1, data, &err), err);
}

Test(twice, in_two_objects_of_the_rank_is_refused)
{
    struct hearth_piece piece[2] = { half(&zero), half(&four) };

    must(hearth_save_add(save, piece, 2, &err), err);
    must(hearth_save_next_object(save, "second", 8192, &err), err);
    must_fail(hearth_save_add(save, &piece[1], 1, &err), HEARTH_EINVAL);
    refused("'w'");
    must(hearth_save_next_object(save, "third", 8192, &err), err);
    must_fail(hearth_save_add(save, &piece[0], 1, &err), HEARTH_EINVAL);
}

Test(twice, a_byte_string_is_refused_by_its_key_alone)
{
    struct hearth_piece piece[2] = { half(&zero), half(&four) };
    struct hearth_bytes b[2];

    for (int i = 0; i < 2; i++)
        b[i] = (struct hearth_bytes){ .struct_size = sizeof(b[0]),
            .key = "note",
            .key_len = 4,
            .data = x,
            .len = 4 + (size_t)i };
    must(hearth_save_add(save, piece, 2, &err), err);
    must_fail(hearth_save_add_bytes(save, b, 2, &err), HEARTH_EINVAL);
    refused("'note'");
    must(hearth_save_add_bytes(save, &b[1], 1, &err), err);
    must_fail(hearth_save_add_bytes(save, &b[0], 1, &err), HEARTH_EINVAL);
    refused("'note'");
}

/* Of no element nothing can be lost; another key, or another box of it, is another piece. */
Test(twice, empty_pieces_and_other_boxes_are_fine)
{
    struct hearth_piece none = half(&four), like = rank_piece("v", x, 1, &four);
    struct hearth_piece piece[5] = { half(&zero), half(&four), none, none, like };

    piece[2].shape = piece[3].shape = &zero;
    must(hearth_save_add(save, piece, 5, &err), err);
}

Test(twice, is_found_among_thousands)
{
    static char key[MANY][16];
    static struct hearth_piece piece[MANY];
    struct hearth_piece w[2] = { half(&zero), half(&four) };

    for (int i = 0; i < MANY; i++) {
        snprintf(key[i], sizeof(key[i]), "layer.%d", i);
        piece[i] = rank_piece(key[i], x, 0, NULL);
    }
    must(hearth_save_add(save, w, 2, &err), err);
    must(hearth_save_add(save, piece, MANY, &err), err);
    for (int i = 0; i < MANY; i += 500) {
        must_fail(hearth_save_add(save, &piece[i], 1, &err), HEARTH_EINVAL);
        refused(key[i]);
    }
}

/* The records came from another process. */
Test(twice, is_refused_by_whoever_has_taken_the_save)
{
    struct hearth_piece piece[2] = { half(&zero), half(&four) };
    struct hearth_ticket ticket;

    must(hearth_save_add(save, &piece[0], 1, &err), err);
    must(hearth_save_give(save, &ticket, &err), err);
    must(hearth_save_take(r.h, &ticket, &save, &err), err);
    must_fail(hearth_save_add(save, &piece[0], 1, &err), HEARTH_EINVAL);
    refused("'w'");
    must(hearth_save_add(save, &piece[1], 1, &err), err);
}
