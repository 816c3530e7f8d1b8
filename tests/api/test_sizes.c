/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs of callers that were compiled with other headers. Whatever is filled is tried with every
 * size, older and newer; whatever is read is tried cut off after an old field, with rubbish behind
 * it, and with a field more than there is.
 */
#include "check.h"
#include "rank.h"

#include <hearth/metadata.h>
#include <hearth/value.h>
#include <stdlib.h>

#define MORE    24 /* bytes that a newer caller knows */
#define RUBBISH 0xee

static struct rank r;
static struct hearth_checkpoint *ckpt;
static float x[4] = { 1, 2, 3, 4 };
static const int64_t four = 4, none = 0;

static void start(void)
{
    struct hearth_piece piece = rank_piece("x", x, 1, &four);

    rank_start(&r);
    rank_open(&r);
    rank_save(r.h, 1, &piece, 1, NULL, 0);
    must(hearth_checkpoint_open(r.h, 1, &ckpt, NULL));
}

static void stop(void)
{
    hearth_checkpoint_close(ckpt);
    ckpt = NULL;
    rank_end(&r);
}

/* ---- what is filled ------------------------------------------------------------------------- */

typedef int fill_fn(void *what, void *out, struct hearth_error *err);

/* [size] bytes that say so, if they can, in a block of their own: ASan sees a byte too far. */
static unsigned char *of_size(size_t size)
{
    unsigned char *s = malloc(size);

    memset(s, RUBBISH, size);
    memcpy(s, &size, sizeof(size));
    return s;
}

static void all_sizes(fill_fn *fill, void *what, size_t whole)
{
    unsigned char *want = of_size(whole);

    must(fill(what, want, NULL));
    for (size_t size = sizeof(size); size <= whole + MORE; size++) {
        size_t known = size < whole ? size : whole, said;
        unsigned char *got = of_size(size + MORE);

        memcpy(got, &size, sizeof(size));
        must(fill(what, got, NULL));
        memcpy(&said, got, sizeof(said));
        cr_assert(eq(sz, said, size));
        cr_assert(zero(int, memcmp(got + sizeof(said), want + sizeof(said), known - sizeof(said))),
                "%zu of %zu", size, whole);
        for (size_t i = known; i < size; i++)
            cr_assert(zero(int, got[i]), "%zu of %zu: byte %zu", size, whole, i);
        for (size_t i = size; i < size + MORE; i++)
            cr_assert(eq(int, got[i], RUBBISH), "%zu of %zu: byte %zu", size, whole, i);
        free(got);
    }
    for (size_t size = 0; size < sizeof(size); size++) {
        unsigned char *got = of_size(sizeof(size));

        memcpy(got, &size, sizeof(size));
        must_fail(fill(what, got, NULL), HEARTH_EINVAL);
        free(got);
    }
    free(want);
}

static int fill_recovery(void *c, void *out, struct hearth_error *err)
{
    return hearth_checkpoint_info(c, out, err);
}

static int fill_item(void *c, void *out, struct hearth_error *err)
{
    return hearth_item_at(c, 0, 0, out, err);
}

static int fill_item_found(void *c, void *out, struct hearth_error *err)
{
    size_t count;

    return hearth_item_find(c, "x", 1, out, 1, &count, err);
}

static int fill_status(void *handle, void *out, struct hearth_error *err)
{
    return hearth_test(handle, out, err);
}

Test(sizes, answers_are_filled_as_far_as_they_go, .init = start, .fini = stop)
{
    struct hearth_save *save;
    struct hearth_handle *handle;

    all_sizes(fill_recovery, ckpt, sizeof(struct hearth_recovery));
    all_sizes(fill_item, ckpt, sizeof(struct hearth_item));
    all_sizes(fill_item_found, ckpt, sizeof(struct hearth_item));
    must(hearth_save_begin(r.h, 2, 8192, NULL, &save, NULL));
    must(hearth_save_commit(save, &handle, NULL));
    must(hearth_wait(handle, HEARTH_PROTECTED, 5000, NULL));
    all_sizes(fill_status, handle, sizeof(struct hearth_status));
    hearth_handle_close(handle);
}

static int fill_head(void *md, void *out, struct hearth_error *err)
{
    return hearth_metadata_info(md, out, err);
}

static int fill_entry(void *md, void *out, struct hearth_error *err)
{
    return hearth_metadata_entry_at(md, 0, out, err);
}

static int fill_chunk(void *md, void *out, struct hearth_error *err)
{
    return hearth_metadata_chunk_at(md, 0, 0, out, err);
}

static int fill_stored(void *md, void *out, struct hearth_error *err)
{
    return hearth_metadata_stored_at(md, 0, out, err);
}

Test(sizes, metadata_is_filled_as_far_as_it_goes)
{
    struct hearth_piece piece = rank_piece("x", x, 1, &four);
    struct hearth_metadata_writer *w;
    struct hearth_metadata *md;
    void *bytes;
    size_t len;

    must(hearth_metadata_write(NULL, "save", &w, NULL));
    must(hearth_metadata_add_piece(w, &piece, "object", 0, 16, NULL));
    must(hearth_metadata_finish(w, &bytes, &len, NULL));
    must(hearth_metadata_open(bytes, len, &md, NULL));
    all_sizes(fill_head, md, sizeof(struct hearth_metadata_head));
    all_sizes(fill_entry, md, sizeof(struct hearth_metadata_entry));
    all_sizes(fill_chunk, md, sizeof(struct hearth_metadata_chunk));
    all_sizes(fill_stored, md, sizeof(struct hearth_metadata_stored));
    hearth_metadata_close(md);
    hearth_free(bytes);
}

static int fill_value(void *v, void *out, struct hearth_error *err)
{
    return hearth_value_root(v, out, err);
}

Test(sizes, values_are_filled_as_far_as_they_go)
{
    static const unsigned char seven[] = "\x80\2K\7.";
    struct hearth_values *v;

    must(hearth_values_open(seven, sizeof(seven) - 1, &v, NULL));
    all_sizes(fill_value, v, sizeof(struct hearth_value));
    hearth_values_close(v);
}

/* Its last field is the one by which it is closed, so there is no shorter one. */
Test(sizes, a_view_of_a_newer_caller_is_filled_and_closed, .init = start, .fini = stop)
{
    struct hearth_item item = HEARTH_ITEM_INIT;
    size_t whole = sizeof(struct hearth_view);

    must(hearth_item_at(ckpt, 0, 0, &item, NULL));
    for (size_t size = 0; size <= whole + MORE; size++) {
        unsigned char *got = of_size(size < sizeof(size) ? sizeof(size) : size);
        struct hearth_view *view = (struct hearth_view *)(void *)got;

        memcpy(got, &size, sizeof(size));
        if (size < whole) {
            must_fail(hearth_view_open(ckpt, &item, view, NULL), HEARTH_EINVAL);
            for (size_t i = sizeof(size); i < size; i++)
                cr_assert(eq(int, got[i], RUBBISH), "%zu: byte %zu", size, i);
            hearth_view_close(r.h, view); /* what was not opened */
        } else {
            must(hearth_view_open(ckpt, &item, view, NULL));
            cr_assert(eq(sz, view->struct_size, size));
            cr_assert(zero(int, memcmp(view->data, x, sizeof(x))));
            hearth_view_close(r.h, view);
            for (size_t i = sizeof(size); i < size; i++)
                cr_assert(zero(int, got[i]), "%zu: byte %zu", size, i);
        }
        free(got);
    }
    cr_assert(eq(u32, fake_counts(r.fake).leases, 1), "the checkpoint's own");
}

/* ---- what is read --------------------------------------------------------------------------- */

typedef int take_fn(void *s, struct hearth_error *err);

/* known[whole] is accepted; `cut`: so is a caller's who knows so much of it, 0: there is none. */
static void all_ages(take_fn *take, const void *known, size_t whole, size_t cut)
{
    unsigned char *newer = of_size(whole + MORE), *older = of_size(cut ? cut : whole);
    size_t start_at = sizeof(size_t);

    memcpy(newer + start_at, (const char *)known + start_at, whole - start_at);
    memset(newer + whole, 0, MORE);
    must(take(newer, NULL));
    for (size_t i = 0; i < MORE; i += MORE - 1) {
        newer[whole + i] = 1;
        must_fail(take(newer, NULL), HEARTH_EUNSUPPORTED);
        newer[whole + i] = 0;
    }
    memcpy(older + start_at, (const char *)known + start_at, (cut ? cut : whole) - start_at);
    must(take(older, NULL));
    free(newer);
    free(older);
}

static int open_as(void *s, struct hearth_error *err)
{
    struct hearth *h = NULL;
    int rc = hearth_open(s, &h, err);

    hearth_close(h, HEARTH_KEEP);
    return rc;
}

static int begin_with(void *s, struct hearth_error *err)
{
    struct hearth_save *save = NULL;
    int rc = hearth_save_begin(r.h, 5, 8192, s, &save, err);

    hearth_save_abort(save);
    return rc;
}

static int recover_with(void *s, struct hearth_error *err)
{
    struct hearth_checkpoint *c = NULL;
    int rc = hearth_recover(r.h, s, &c, err);

    hearth_checkpoint_close(c);
    return rc;
}

static int find_with(void *s, struct hearth_error *err)
{
    struct hearth_checkpoint *c = NULL;
    int rc = hearth_checkpoint_find(r.h, 1, s, &c, err);

    hearth_checkpoint_close(c);
    return rc;
}

static int add_piece(void *s, struct hearth_error *err)
{
    struct hearth_save *save;
    int rc;

    must(hearth_save_begin(r.h, 6, 8192, NULL, &save, NULL));
    rc = hearth_save_add(save, s, 1, err);
    hearth_save_abort(save);
    return rc;
}

static int add_bytes(void *s, struct hearth_error *err)
{
    struct hearth_save *save;
    int rc;

    must(hearth_save_begin(r.h, 7, 8192, NULL, &save, NULL));
    rc = hearth_save_add_bytes(save, s, 1, err);
    hearth_save_abort(save);
    return rc;
}

/* Each begins where the one before it ends in the caller's headers. */
static int read_two_boxes(void *s, struct hearth_error *err)
{
    size_t size = *(const size_t *)s;
    unsigned char *two = malloc(2 * size);
    int rc;

    for (int i = 0; i < 2; i++)
        memcpy(two + i * size, s, size);
    rc = hearth_read_boxes(ckpt, (struct hearth_box *)(void *)two, 2, err);
    free(two);
    return rc;
}

static int read_one_range(void *s, struct hearth_error *err)
{
    return hearth_read_ranges(ckpt, s, 1, err);
}

Test(sizes, options_of_open_of_any_age_are_taken)
{
    rank_start(&r);
    all_ages(open_as, &r.opts, sizeof(r.opts), offsetof(struct hearth_opts, log));
    rank_end(&r);
}

Test(sizes, options_of_any_age_are_taken, .init = start, .fini = stop)
{
    struct hearth_begin_opts begin = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_find_opts find = HEARTH_FIND_OPTS_INIT;
    struct hearth_recover_opts recover = HEARTH_RECOVER_OPTS_INIT;

    begin.name = "other";
    all_ages(begin_with, &begin, sizeof(begin), offsetof(struct hearth_begin_opts, wait_ms));
    find.wait_ms = 100;
    all_ages(find_with, &find, sizeof(find), offsetof(struct hearth_find_opts, wait_ms));
    recover.deadline_ms = 5000;
    all_ages(recover_with, &recover, sizeof(recover),
            offsetof(struct hearth_recover_opts, deadline_ms));
}

Test(sizes, sources_and_targets_of_any_age_are_taken, .init = start, .fini = stop)
{
    struct hearth_piece piece = rank_piece("y", NULL, 1, &four);
    struct hearth_bytes bytes = HEARTH_BYTES_INIT;
    struct hearth_range range = HEARTH_RANGE_INIT;
    struct hearth_item item = HEARTH_ITEM_INIT;
    struct hearth_box box = HEARTH_BOX_INIT;
    static const char text[] = "what is saved need not be writable";
    float got[4];

    piece.from = x;
    all_ages(add_piece, &piece, sizeof(piece), offsetof(struct hearth_piece, global_shape));
    bytes.key = "text", bytes.key_len = 4, bytes.data = text, bytes.len = sizeof(text);
    all_ages(add_bytes, &bytes, sizeof(bytes), 0);
    must(hearth_item_at(ckpt, 0, 0, &item, NULL));
    box.object = item.object, box.item = item.offset, box.dtype = item.dtype, box.ndim = 1;
    box.offset = &none, box.shape = &four, box.dst = got;
    all_ages(read_two_boxes, &box, sizeof(box), offsetof(struct hearth_box, dst_strides));
    range.object = item.object, range.len = 4, range.dst = got;
    all_ages(read_one_range, &range, sizeof(range), 0);
}

/* ---- what is read and filled ---------------------------------------------------------------- */

Test(sizes, the_environment_fills_options_of_any_age)
{
    size_t whole = sizeof(struct hearth_opts), cut = offsetof(struct hearth_opts, spare_bytes);
    unsigned char *newer = of_size(whole + MORE), *older = of_size(cut);
    struct hearth_opts o;
    size_t size;

    setenv("HEARTH_JOB", "from-env", 1);
    setenv("HEARTH_LEASE_BYTES", "7", 1);
    setenv("HEARTH_SPARE_BYTES", "8", 1);
    memset(newer + sizeof(size), 0, whole + MORE - sizeof(size));
    must(hearth_opts_from_env((void *)newer, NULL));
    memcpy(&o, newer, whole);
    cr_assert(eq(sz, o.struct_size, whole + MORE));
    must_say(o.job, "from-env");
    cr_assert(eq(u64, o.spare_bytes, 8));
    newer[whole + MORE - 1] = 1;
    must_fail(hearth_opts_from_env((void *)newer, NULL), HEARTH_EUNSUPPORTED);

    setenv("HEARTH_SPARE_BYTES", "an older program's own affair", 1);
    memset(older + sizeof(size), 0, cut - sizeof(size));
    must(hearth_opts_from_env((void *)older, NULL)); /* ASan would see more of it written */
    memcpy(&o, older, cut);
    cr_assert(eq(sz, o.struct_size, cut));
    must_say(o.job, "from-env");
    cr_assert(eq(u64, o.lease_bytes, 7));
    memset(older, 0, sizeof(size));
    must_fail(hearth_opts_from_env((void *)older, NULL), HEARTH_EINVAL);
    free(newer);
    free(older);
}

/* ---- what is called ------------------------------------------------------------------------- */

static int alone(void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    (void)self, (void)err;
    memcpy(all, mine, len);
    return 0;
}

static int closed;

static void close_it(struct hearth_bootstrap *b)
{
    (void)b;
    closed++;
}

static int open_with(void *s, struct hearth_error *err)
{
    struct hearth *h = NULL;
    int rc;

    r.opts.bootstrap = s;
    rc = hearth_open(&r.opts, &h, err);
    hearth_close(h, HEARTH_KEEP);
    return rc;
}

Test(sizes, a_bootstrap_of_any_age_is_called)
{
    struct hearth_bootstrap b = HEARTH_BOOTSTRAP_INIT, *ours = NULL;
    struct hearth_error err = { 0 };

    rank_start(&r);
    b.allgather = alone, b.close = close_it;
    all_ages(open_with, &b, sizeof(b), 0);
    b.struct_size = offsetof(struct hearth_bootstrap, self);
    must_fail(open_with(&b, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "HEARTH_BOOTSTRAP_INIT"), NULL), "%s", err.text);
    b.struct_size = 0;
    must_fail(open_with(&b, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "bootstrap"), NULL), "%s", err.text);
    hearth_bootstrap_close(&b); /* one that says no size has no close either */
    cr_assert(zero(int, closed));
    b = hearth_bootstrap_init();
    must_fail(open_with(&b, &err), HEARTH_EINVAL);
    b.close = close_it;
    hearth_bootstrap_close(&b);
    cr_assert(eq(int, closed, 1));
    must(hearth_bootstrap_tcp("127.0.0.1", 1, 1, 2, 100, &ours, &err), err);
    cr_assert(eq(sz, ours->struct_size, sizeof(*ours)));
    hearth_bootstrap_close(ours);
    rank_end(&r);
}

/* Sizes of this version: a field that moves, or goes, changes what older callers mean. */
_Static_assert(sizeof(struct hearth_opts) == 312, "hearth_opts");
_Static_assert(sizeof(struct hearth_begin_opts) == 48, "hearth_begin_opts");
_Static_assert(sizeof(struct hearth_recover_opts) == 40, "hearth_recover_opts");
_Static_assert(sizeof(struct hearth_find_opts) == 24, "hearth_find_opts");
_Static_assert(sizeof(struct hearth_bootstrap) == 32, "hearth_bootstrap");
_Static_assert(sizeof(struct hearth_piece) == 80, "hearth_piece");
_Static_assert(sizeof(struct hearth_bytes) == 40, "hearth_bytes");
_Static_assert(sizeof(struct hearth_box) == 72, "hearth_box");
_Static_assert(sizeof(struct hearth_range) == 40, "hearth_range");
_Static_assert(sizeof(struct hearth_view) == 48, "hearth_view");
_Static_assert(sizeof(struct hearth_kept) == 72, "hearth_kept");
_Static_assert(sizeof(struct hearth_item) == 104, "hearth_item");

Test(sizes, the_version_is_one_number)
{
    cr_assert(eq(u32, hearth_version_number(), HEARTH_VERSION_NUMBER));
}
