/* SPDX-License-Identifier: Apache-2.0 */
/* Many reads in one call: boxes by object and offset, raw ranges, here and from other nodes. */
#include "check.h"
#include "rank.h"

#include "core/format/block.h"
#include <stdio.h>
#include <stdlib.h>

#define MANY   300
#define WIDE   40
#define OBJECT "__0__0_src0.distcp"

static float stored[MANY][WIDE];
static struct hearth_place place[MANY + 1];
static const int64_t wide = WIDE, origin = 0;

/* One object of MANY tensors and a byte string; where they lie is in place[]. */
static struct hearth_checkpoint *start(struct rank *r, int remote)
{
    static struct hearth_piece piece[MANY];
    static char key[MANY][16];
    struct hearth_bytes b = { .struct_size = sizeof(b), .key = "b", .key_len = 1, .len = 9 };
    struct hearth_handle *handle;
    struct hearth_save *save;
    char text[] = "some text";
    size_t count = 0;

    b.data = text;
    rank_start(r);
    rank_open(r);
    rank_fill(&stored[0][0], (size_t)MANY * WIDE, 2);
    for (int i = 0; i < MANY; i++) {
        snprintf(key[i], sizeof(key[i]), "layer.%d", i);
        piece[i] = rank_piece(key[i], stored[i], 1, &wide);
    }
    must(hearth_save_begin(r->h, 3, hearth_save_bytes(piece, MANY, &b, 1), NULL, &save, NULL));
    must(hearth_save_add(save, piece, MANY, NULL));
    must(hearth_save_add_bytes(save, &b, 1, NULL));
    must(hearth_save_places(save, place, MANY + 1, &count, NULL));
    cr_assert(eq(sz, count, MANY + 1));
    must(hearth_save_commit(save, &handle, NULL));
    must(hearth_wait(handle, HEARTH_PROTECTED, 5000, NULL));
    hearth_handle_close(handle);
    fake_remote(r->fake, remote);
    return rank_recover(r->h, 3);
}

static struct hearth_box box_of(int i, float *dst)
{
    return (struct hearth_box){ .struct_size = sizeof(struct hearth_box),
        .object = OBJECT,
        .item = place[i].offset,
        .dtype = HEARTH_FLOAT32,
        .ndim = 1,
        .offset = &origin,
        .shape = &wide,
        .dst = dst };
}

static void read_them_backwards(struct hearth_checkpoint *c)
{
    static float got[MANY][WIDE];
    struct hearth_box box[MANY];
    struct hearth_error err = { 0 };

    memset(got, 0, sizeof(got));
    for (int i = 0; i < MANY; i++)
        box[i] = box_of(MANY - 1 - i, got[MANY - 1 - i]);
    cr_assert(eq(int, hearth_read_boxes(c, box, MANY, &err), 0), "%s", err.text);
    cr_assert(zero(int, memcmp(got, stored, sizeof(got))));
}

Test(boxes, are_read_in_any_order_here)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);

    read_them_backwards(c);
    must(hearth_read_boxes(c, NULL, 0, NULL));
    hearth_checkpoint_close(c);
    cr_assert(eq(u32, fake_counts(r.fake).leases, 0));
    rank_end(&r);
}

Test(boxes, of_another_node_come_in_one_range)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 1);
    struct hearth_item item = { .struct_size = sizeof(item) };
    uint32_t ranges;

    must(hearth_item_in(c, OBJECT, place[1].offset, &item, NULL)); /* the table is here then */
    ranges = fake_counts(r.fake).ranges;
    read_them_backwards(c);
    cr_assert(eq(u32, fake_counts(r.fake).ranges, ranges + 1));
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(boxes, may_be_parts_and_go_into_strided_memory)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);
    const int64_t from = 5, len = 7, step = 3;
    float got[2][21];
    struct hearth_box box[2] = { box_of(4, got[0]), box_of(250, got[1]) };

    for (int i = 0; i < 21; i++)
        got[0][i] = got[1][i] = -1;
    for (int i = 0; i < 2; i++) {
        box[i].offset = &from;
        box[i].shape = &len;
        box[i].dst_strides = &step;
    }
    must(hearth_read_boxes(c, box, 2, NULL));
    for (int i = 0; i < 21; i++) {
        cr_assert(epsilon_eq(flt, got[0][i], i % 3 ? -1 : stored[4][5 + i / 3], 0.0f));
        cr_assert(epsilon_eq(flt, got[1][i], i % 3 ? -1 : stored[250][5 + i / 3], 0.0f));
    }
    hearth_checkpoint_close(c);
    rank_end(&r);
}

/* The array's second box is wrong: named, and the first one is not read either. */
static void refused(struct hearth_checkpoint *c, struct hearth_box wrong, int code,
        const char *word, const char *other)
{
    float got[WIDE] = { 7 };
    struct hearth_box box[2] = { box_of(0, got), wrong };
    struct hearth_error err = { 0 };

    must_fail(hearth_read_boxes(c, box, 2, &err), code);
    cr_assert(ne(ptr, strstr(err.text, word), NULL), "%s", err.text);
    cr_assert(ne(ptr, strstr(err.text, other), NULL), "%s", err.text);
    cr_assert(epsilon_eq(flt, got[0], 7.0f, 0.0f));
}

Test(boxes, one_wrong_is_named_and_none_is_read)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);
    const int64_t over = 1;
    static float got[WIDE];
    struct hearth_box box = box_of(7, got);

    box.dtype = HEARTH_INT32;
    refused(c, box, HEARTH_EINVAL, "'layer.7'", OBJECT);
    box = box_of(7, got);
    box.ndim = 0;
    refused(c, box, HEARTH_EINVAL, "'layer.7'", OBJECT);
    box = box_of(7, got);
    box.offset = &over;
    refused(c, box, HEARTH_EINVAL, "'layer.7'", "dimension 0");
    box = box_of(7, got);
    box.item++;
    refused(c, box, HEARTH_ENOENT, OBJECT, "begins at byte");
    box = box_of(7, got);
    box.object = "nosuch";
    refused(c, box, HEARTH_ENOENT, "'nosuch'", "step 3");
    box = box_of(7, NULL);
    refused(c, box, HEARTH_EINVAL, "dst is NULL", "box 1");
    box = box_of(MANY, got); /* the byte string */
    refused(c, box, HEARTH_EINVAL, "'b'", "byte string");
    box = box_of(7, got);
    box.struct_size = 8;
    refused(c, box, HEARTH_EINVAL, "struct_size", "hearth_box");
    hearth_checkpoint_close(c);
    rank_end(&r);
}

static void read_ranges(struct hearth_checkpoint *c)
{
    uint64_t end = place[MANY].offset + place[MANY].length;
    char *whole = malloc(end + 1), text[10] = "", part[5] = "";
    struct hearth_range range[] = { { sizeof(range[0]), OBJECT, place[MANY].offset, 9, text },
        { sizeof(range[0]), OBJECT, 0, end, whole }, { sizeof(range[0]), OBJECT, end - 4, 4, part },
        { sizeof(range[0]), OBJECT, end, 0, NULL } };
    struct hearth_error err = { 0 };

    cr_assert(eq(int, hearth_read_ranges(c, range, 4, &err), 0), "%s", err.text);
    must_say(text, "some text");
    must_say(part, "text");
    for (int i = 0; i < MANY; i++)
        cr_assert(zero(int, memcmp(whole + place[i].offset + place[i].length - sizeof(stored[i]),
                                    stored[i], sizeof(stored[i]))));
    range[2].len = 5;
    text[0] = '?';
    must_fail(hearth_read_ranges(c, range, 4, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, OBJECT), NULL), "%s", err.text);
    cr_assert(eq(chr, text[0], '?'));
    range[2].offset = UINT64_MAX;
    must_fail(hearth_read_ranges(c, range, 4, &err), HEARTH_EINVAL);
    free(whole);
}

Test(ranges, of_an_object_here)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);

    read_ranges(c);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(ranges, of_an_object_elsewhere_are_checked)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 1);
    struct hearth_range range = { sizeof(range), OBJECT, 100, 4, (char[4]){ 0 } };
    struct hearth_error err = { 0 };

    read_ranges(c);
    hearth_checkpoint_close(c);
    c = rank_recover(r.h, 3);
    must(hearth_item_in(c, OBJECT, 0, &(struct hearth_item){ .struct_size = 8 }, NULL));
    fake_flip(r.fake, 3); /* ahead, and both tries */
    must_fail(hearth_read_ranges(c, &range, 1, &err), HEARTH_ECORRUPT);
    cr_assert(ne(ptr, strstr(err.text, "chunk 0"), NULL), "%s", err.text);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(boxes, brought_ahead_are_not_asked_for_again)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 1);
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_box box = box_of(7, NULL);
    static float got[WIDE];
    uint32_t ranges;

    must(hearth_item_in(c, OBJECT, place[1].offset, &item, NULL));
    ranges = fake_counts(r.fake).ranges;
    must(hearth_prefetch_boxes(c, &box, 1, NULL));
    box.dst = got;
    must(hearth_read_boxes(c, &box, 1, NULL));
    cr_assert(eq(u32, fake_counts(r.fake).ranges, ranges + 1));
    cr_assert(zero(int, memcmp(got, stored[7], sizeof(got))));
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(item_in, finds_items_of_one_object_alone)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0);
    struct hearth_item item = { .struct_size = sizeof(item) }, by_key = item;
    struct hearth_error err = { 0 };
    char text[10] = "";
    size_t count;

    must(hearth_item_in(c, OBJECT, place[MANY].offset, &item, NULL));
    cr_assert(eq(u32, item.kind, 20));
    must(hearth_read_bytes(c, &item, 0, text, 9, NULL));
    must_say(text, "some text");
    must(hearth_item_in(c, OBJECT, place[17].offset, &item, NULL));
    cr_assert(zero(int, memcmp(item.key, "layer.17", item.key_len)));
    must(hearth_item_find(c, "layer.17", 8, &by_key, 1, &count, NULL));
    cr_assert(eq(u64, by_key.handle, item.handle));
    must_fail(hearth_item_in(c, OBJECT, place[17].offset + 1, &item, &err), HEARTH_ENOENT);
    cr_assert(ne(ptr, strstr(err.text, OBJECT), NULL), "%s", err.text);
    must_fail(hearth_item_in(c, "other", 0, &item, &err), HEARTH_ENOENT);
    must_fail(hearth_item_in(c, NULL, 0, &item, &err), HEARTH_EINVAL);
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(item_in, opens_no_other_object)
{
    struct rank r;
    float x = 1, y = 2;
    struct hearth_piece piece[2] = { rank_piece("x", &x, 0, NULL), rank_piece("y", &y, 0, NULL) };
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_checkpoint *c;
    struct hearth_handle *handle;
    struct hearth_save *save;

    rank_start(&r);
    rank_open(&r);
    must(hearth_save_begin(r.h, 1, 8192, NULL, &save, NULL));
    must(hearth_save_add(save, &piece[0], 1, NULL));
    must(hearth_save_next_object(save, "second", 8192, NULL));
    must(hearth_save_add(save, &piece[1], 1, NULL));
    must(hearth_save_commit(save, &handle, NULL));
    must(hearth_wait(handle, HEARTH_PROTECTED, 5000, NULL));
    hearth_handle_close(handle);
    c = rank_recover(r.h, 1);
    must(hearth_item_in(c, "second", 0, &item, NULL));
    cr_assert(eq(u32, fake_counts(r.fake).leases, 1));
    must(hearth_item_at(c, 1, 0, &item, NULL)); /* the index of all is in order nevertheless */
    cr_assert(zero(int, memcmp(item.key, "x", 1)));
    must(hearth_item_at(c, 1, 1, &item, NULL));
    must_say(item.object, "second");
    hearth_checkpoint_close(c);
    rank_end(&r);
}

Test(open, takes_a_save_of_this_epoch_beside_the_recovered_one)
{
    struct rank r;
    struct hearth_checkpoint *c = start(&r, 0), *now = NULL;
    struct hearth_recovery info = { .struct_size = sizeof(info) };
    static float x[4] = { 1, 2, 3, 4 }, got[4];
    int64_t n = 4;
    struct hearth_piece piece = rank_piece("x", x, 1, &n);
    struct hearth_error err = { 0 };
    uint32_t leases;

    must_fail(hearth_checkpoint_open(r.h, 9, &now, &err), HEARTH_ENOENT);
    cr_assert(ne(ptr, strstr(err.text, "step 9"), NULL), "%s", err.text);
    must(hearth_checkpoint_open(r.h, HEARTH_STEP_NEWEST, &now, &err), err);
    must(hearth_checkpoint_info(now, &info, NULL));
    cr_assert(eq(u64, info.step, 3));
    hearth_checkpoint_close(now);
    read_them_backwards(c);
    leases = fake_counts(r.fake).leases;
    rank_save(r.h, 4, &piece, 1, NULL, 0);
    must(hearth_checkpoint_open(r.h, 4, &now, &err), err);
    piece.data = got;
    must(hearth_load(now, &piece, 1, 0, NULL, &err), err);
    cr_assert(zero(int, memcmp(got, x, sizeof(x))));
    cr_assert(eq(u32, fake_counts(r.fake).ranges, 0));
    read_them_backwards(c); /* leased: it stays as it was */
    hearth_checkpoint_close(now);
    cr_assert(eq(u32, fake_counts(r.fake).leases, leases));
    must_fail(hearth_checkpoint_open(r.h, 4, NULL, &err), HEARTH_EINVAL);
    hearth_checkpoint_close(c);
    rank_end(&r);
}
