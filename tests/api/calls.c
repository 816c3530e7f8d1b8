/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a rank in a job: those that do not wait, in an order in which each can be made, and
 * those that wait for the engine. */
#include "calls.h"

#include "check.h"
#include <unistd.h>

#define BYTES  UINT64_C(65536)
#define LONG   10000u /* ms: longer than an engine is stopped here */

#define ANSWER "30 s"
#define PROMPT "2 s"
#define SLOT   "6 s, 5 ms for each MiB"

struct scene scene;
struct hearth_error calls_err;

static struct hearth_error *const err = &calls_err;

/* ---- a save, from begin to its handle
 * --------------------------------------------------------------- */

static struct hearth_piece piece(const char *key)
{
    return rank_piece(key, &scene.x, 0, NULL);
}

static int save_begin(void)
{
    return scene.save ? 0
                      : hearth_save_begin(scene.r.h, ++scene.step, BYTES, NULL, &scene.save, err);
}

static int save_add(void)
{
    struct hearth_piece p = piece("x");

    return hearth_save_add(scene.save, &p, 1, err);
}

static int save_reserve(void)
{
    struct hearth_piece p = piece("reserved");
    void *at;

    p.data = NULL;
    return hearth_save_reserve(scene.save, &p, 1, &at, err);
}

static int save_stage(void)
{
    struct hearth_piece p = piece("staged");
    void *at;

    return hearth_save_stage(scene.save, &p, 1, &at, err);
}

static int save_add_bytes(void)
{
    struct hearth_bytes b = HEARTH_BYTES_INIT;

    b.key = "text", b.key_len = 4;
    b.data = "of a byte string", b.len = 16;
    return hearth_save_add_bytes(scene.save, &b, 1, err);
}

static int save_locate(void)
{
    const void *at = &scene;
    uint64_t offset;

    return hearth_save_locate(scene.save, &at, 1, &offset, err);
}

static int save_places(void)
{
    struct hearth_place place[8];
    size_t count;

    return hearth_save_places(scene.save, place, 8, &count, err);
}

static int save_data(void)
{
    void *base;
    uint64_t bytes;

    return hearth_save_data(scene.save, &base, &bytes, err);
}

static int save_put_common(void)
{
    return hearth_save_put_common(scene.save, ".metadata", "m", 1, err);
}

static int save_seal(void)
{
    return hearth_save_seal(scene.save, err);
}

static int save_fence(void)
{
    return hearth_save_fence(scene.save, NULL, err);
}

static int handle_fence(void)
{
    return hearth_handle_fence(scene.handle, NULL, err);
}

static int save_commit(void)
{
    int rc = hearth_save_commit(scene.save, &scene.handle, err);

    scene.save = NULL;
    return rc;
}

static int save_abort(void)
{
    hearth_save_abort(scene.spare);
    scene.spare = NULL;
    return 0;
}

static int handle_test(void)
{
    struct hearth_status st = HEARTH_STATUS_INIT;

    return hearth_test(scene.handle, &st, err);
}

static int handle_id(void)
{
    struct hearth_save_id id;

    return hearth_handle_id(scene.handle, &id, err);
}

static int cancel(void)
{
    return hearth_cancel(scene.handle, err);
}

static int handle_close(void)
{
    hearth_handle_close(scene.handle);
    scene.handle = NULL;
    return 0;
}

static int log_poll(void)
{
    char text[512];

    hearth_log_poll(scene.r.h, NULL, text, sizeof(text));
    return 0;
}

/* ---- what was read of a checkpoint before
 * ----------------------------------------------------------- */

static int ckpt_info(void)
{
    struct hearth_recovery info = HEARTH_RECOVERY_INIT;

    return hearth_checkpoint_info(scene.old, &info, err);
}

static int ckpt_id(void)
{
    struct hearth_save_id id;

    return hearth_checkpoint_id(scene.old, &id, err);
}

static int ckpt_stream(void)
{
    return hearth_checkpoint_stream(scene.old, NULL, err);
}

static int ckpt_objects(void)
{
    return hearth_checkpoint_objects(scene.old) == 0;
}

static int item_at_of(struct hearth_checkpoint *c)
{
    scene.item = (struct hearth_item)HEARTH_ITEM_INIT;
    return hearth_item_at(c, 1, 0, &scene.item, err);
}

static int item_at(void)
{
    return item_at_of(scene.old);
}

static int item_find_of(struct hearth_checkpoint *c)
{
    size_t count;

    scene.text = (struct hearth_item)HEARTH_ITEM_INIT;
    return hearth_item_find(c, "text", 4, &scene.text, 1, &count, err);
}

static int item_find(void)
{
    return item_find_of(scene.old);
}

static const char object[] = "__0__0_src0.distcp";

static int item_in_of(struct hearth_checkpoint *c)
{
    struct hearth_item item = HEARTH_ITEM_INIT;

    return hearth_item_in(c, object, 0, &item, err);
}

static int item_in(void)
{
    return item_in_of(scene.old);
}

static int read_box_of(struct hearth_checkpoint *c)
{
    return hearth_read_box(c, &scene.item, NULL, NULL, &scene.x, NULL, err);
}

static int read_box(void)
{
    return read_box_of(scene.old);
}

static struct hearth_box box(void)
{
    struct hearth_box b = HEARTH_BOX_INIT;

    b.object = object;
    b.dtype = HEARTH_FLOAT32;
    b.dst = &scene.x;
    return b;
}

static int read_boxes_of(struct hearth_checkpoint *c)
{
    struct hearth_box b = box();

    return hearth_read_boxes(c, &b, 1, err);
}

static int read_boxes(void)
{
    return read_boxes_of(scene.old);
}

static int prefetch_boxes_of(struct hearth_checkpoint *c)
{
    struct hearth_box b = box();

    return hearth_prefetch_boxes(c, &b, 1, err);
}

static int prefetch_boxes(void)
{
    return prefetch_boxes_of(scene.old);
}

static int prefetch(void)
{
    return hearth_prefetch(scene.old, &scene.item, 1, err);
}

static int read_ranges_of(struct hearth_checkpoint *c)
{
    char got[4];
    struct hearth_range range = HEARTH_RANGE_INIT;

    range.object = object;
    range.len = sizeof(got);
    range.dst = got;
    return hearth_read_ranges(c, &range, 1, err);
}

static int read_ranges(void)
{
    return read_ranges_of(scene.old);
}

static int read_bytes_of(struct hearth_checkpoint *c)
{
    char got[16];

    return hearth_read_bytes(c, &scene.text, 0, got, sizeof(got), err);
}

static int read_bytes(void)
{
    return read_bytes_of(scene.old);
}

static int load_of(struct hearth_checkpoint *c, struct hearth_report **out)
{
    struct hearth_piece p[2] = { piece("x"), piece("missing") };

    return hearth_load(c, p, 2, HEARTH_LOAD_PARTIAL, out, err);
}

static int load(void)
{
    return load_of(scene.old, &scene.report);
}

static int report_missing(void)
{
    return hearth_report_missing(scene.report) != 1;
}

static int report_key(void)
{
    size_t len;

    return hearth_report_key(scene.report, 0, &len) == NULL;
}

static int report_close(void)
{
    hearth_report_close(scene.report);
    return 0;
}

static int object_fd_of(struct hearth_checkpoint *c)
{
    uint64_t offset, bytes;
    int fd, rc = hearth_object_fd(c, object, &fd, &offset, &bytes, err);

    if (!rc)
        close(fd);
    return rc;
}

static int object_fd(void)
{
    return object_fd_of(scene.old);
}

static int view_open(void)
{
    struct hearth_view view = HEARTH_VIEW_INIT;
    int rc = hearth_view_open(scene.old, &scene.item, &view, err);

    hearth_view_close(scene.r.h, &view);
    return rc;
}

static int view_close(void)
{
    hearth_view_close(scene.r.h, &scene.view);
    return 0;
}

static int ckpt_close(void)
{
    hearth_checkpoint_close(scene.old);
    scene.old = NULL;
    return 0;
}

static int job_close(void)
{
    hearth_close(scene.helper, HEARTH_KEEP);
    scene.helper = NULL;
    return 0;
}

const struct call calls_own[] = { { .name = "hearth_save_begin", .make = save_begin },
    { .name = "hearth_save_add", .make = save_add },
    { .name = "hearth_save_reserve", .make = save_reserve },
    { .name = "hearth_save_stage", .make = save_stage },
    { .name = "hearth_save_add_bytes", .make = save_add_bytes },
    { .name = "hearth_save_locate", .make = save_locate },
    { .name = "hearth_save_places", .make = save_places },
    { .name = "hearth_save_data", .make = save_data },
    { .name = "hearth_save_put_common", .make = save_put_common },
    { .name = "hearth_save_fence", .make = save_fence },
    { .name = "hearth_save_seal", .make = save_seal },
    { .name = "hearth_save_commit", .make = save_commit },
    { .name = "hearth_handle_fence", .make = handle_fence },
    { .name = "hearth_test", .make = handle_test },
    { .name = "hearth_handle_id", .make = handle_id }, { .name = "hearth_cancel", .make = cancel },
    { .name = "hearth_handle_close", .make = handle_close },
    { .name = "hearth_save_abort", .make = save_abort },
    { .name = "hearth_log_poll", .make = log_poll },
    { .name = "hearth_checkpoint_info", .make = ckpt_info },
    { .name = "hearth_checkpoint_id", .make = ckpt_id },
    { .name = "hearth_checkpoint_stream", .make = ckpt_stream },
    { .name = "hearth_checkpoint_objects", .make = ckpt_objects },
    { .name = "hearth_item_at", .make = item_at },
    { .name = "hearth_item_find", .make = item_find },
    { .name = "hearth_item_in", .make = item_in }, { .name = "hearth_read_box", .make = read_box },
    { .name = "hearth_read_boxes", .make = read_boxes },
    { .name = "hearth_read_ranges", .make = read_ranges },
    { .name = "hearth_read_bytes", .make = read_bytes },
    { .name = "hearth_prefetch", .make = prefetch },
    { .name = "hearth_prefetch_boxes", .make = prefetch_boxes },
    { .name = "hearth_load", .make = load },
    { .name = "hearth_report_missing", .make = report_missing },
    { .name = "hearth_report_key", .make = report_key },
    { .name = "hearth_report_close", .make = report_close },
    { .name = "hearth_object_fd", .make = object_fd },
    { .name = "hearth_view_open", .make = view_open },
    { .name = "hearth_view_close", .make = view_close },
    { .name = "hearth_checkpoint_close", .make = ckpt_close },
    { .name = "hearth_close", .make = job_close }, { 0 } };

/* ---- what asks the engine
 * ------------------------------------------------------------------------- */

static int open_helper(void)
{
    struct hearth_opts o = scene.r.opts;

    o.helper = 1;
    return hearth_open(&o, &scene.helper, err);
}

static int open_and_close(void)
{
    int rc = open_helper();

    if (!rc)
        job_close();
    return rc;
}

static int begin_when_there_is_room(void)
{
    struct hearth_begin_opts patient = HEARTH_BEGIN_OPTS_INIT;
    int rc;

    patient.wait_ms = LONG;
    rc = hearth_save_begin(scene.r.h, ++scene.step, BYTES, &patient, &scene.spare, err);
    return rc ? rc : save_abort();
}

static int begin_spare(void)
{
    struct hearth_begin_opts patient = HEARTH_BEGIN_OPTS_INIT;

    patient.wait_ms = LONG;
    return hearth_save_begin(scene.r.h, HEARTH_STEP_LATER, BYTES, &patient, &scene.spare, err);
}

static int next_object(void)
{
    int rc = hearth_save_next_object(scene.spare, "more", BYTES, err);

    save_abort();
    return rc;
}

static int set_step(void)
{
    int rc = hearth_save_set_step(scene.spare, ++scene.step, err);

    save_abort();
    return rc;
}

static int take(void)
{
    int rc = hearth_save_take(scene.r.h, &scene.ticket, &scene.spare, err);

    return rc ? rc : save_abort();
}

static int give(void)
{
    int rc = hearth_save_give(scene.spare, &scene.ticket, err);

    return rc ? rc : take();
}

static int begin_and_give(void)
{
    int rc = begin_spare();

    return rc ? rc : hearth_save_give(scene.spare, &scene.ticket, err);
}

static int begin_and_add(void)
{
    struct hearth_begin_opts patient = HEARTH_BEGIN_OPTS_INIT;
    int rc;

    patient.wait_ms = LONG;
    rc = hearth_save_begin(scene.r.h, ++scene.step, BYTES, &patient, &scene.save, err);
    if (rc || (rc = save_add()) || (rc = save_add_bytes()))
        return rc;
    return save_put_common();
}

static int commit_and_wait(void)
{
    int rc = save_commit();

    rc = rc ? rc : hearth_wait(scene.handle, HEARTH_PROTECTED, LONG, err);
    handle_close();
    return rc;
}

void scene_save(void)
{
    cr_assert(zero(int, begin_and_add()), "%s", calls_err.text);
    cr_assert(zero(int, commit_and_wait()), "%s", calls_err.text);
}

static int keep_list(void)
{
    struct hearth_kept kept[4] = { HEARTH_KEPT_INIT };
    size_t count;

    return hearth_keep_list(scene.r.h, kept, 4, &count, err);
}

static int one_of_step(
        int (*ask)(struct hearth *, const struct hearth_save_id *, struct hearth_error *))
{
    struct hearth_save_id id = { .epoch = 0 };
    int rc = hearth_checkpoint_id(scene.fresh, &id, err);

    return rc ? rc : ask(scene.r.h, &id, err);
}

static int pin(void)
{
    return one_of_step(hearth_keep_pin);
}

static int unpin(void)
{
    return one_of_step(hearth_keep_unpin);
}

static int mark_bad(void)
{
    return one_of_step(hearth_keep_mark_bad);
}

static int unmark_bad(void)
{
    return one_of_step(hearth_keep_unmark_bad);
}

static int release(void)
{
    int rc = one_of_step(hearth_keep_release);

    return rc == HEARTH_ESTATE ? 0 : rc; /* it is the newest */
}

static int fresh(void)
{
    return hearth_checkpoint_open(scene.r.h, HEARTH_STEP_NEWEST, &scene.fresh, err);
}

static int fresh_close(int rc)
{
    hearth_checkpoint_close(scene.fresh);
    scene.fresh = NULL;
    return rc;
}

static int ckpt_open(void)
{
    return fresh_close(fresh());
}

static int ckpt_find(void)
{
    return fresh_close(
            hearth_checkpoint_find(scene.r.h, HEARTH_STEP_NEWEST, NULL, &scene.fresh, err));
}

static int first_item_at(void)
{
    return fresh_close(item_at_of(scene.fresh));
}

static int first_item_find(void)
{
    return fresh_close(item_find_of(scene.fresh));
}

static int first_item_in(void)
{
    return fresh_close(item_in_of(scene.fresh));
}

static int first_load(void)
{
    return fresh_close(load_of(scene.fresh, NULL));
}

static int first_object_fd(void)
{
    return fresh_close(object_fd_of(scene.fresh));
}

static int first_prefetch_boxes(void)
{
    return fresh_close(prefetch_boxes_of(scene.fresh));
}

static int first_read_boxes(void)
{
    return fresh_close(read_boxes_of(scene.fresh));
}

static int first_read_ranges(void)
{
    return fresh_close(read_ranges_of(scene.fresh));
}

static int read_common(void)
{
    void *bytes = NULL;
    size_t len;
    int rc = hearth_read_common(scene.fresh, ".metadata", &bytes, &len, err);

    hearth_free(bytes);
    return fresh_close(rc);
}

static int fresh_closed(void)
{
    return fresh_close(0);
}

static int recover(void)
{
    return fresh_close(hearth_recover(scene.r.h, NULL, &scene.fresh, err));
}

#define OBJECT ANSWER " an object, and 100 ms for each MiB of it"

const struct call calls_waiting[] = { { "hearth_open", open_and_close,
                                              "`open_ms` for each of the three", NULL },
    { "hearth_save_begin", begin_when_there_is_room, "`wait_ms` + " SLOT, NULL },
    { "hearth_save_next_object", next_object, SLOT, begin_spare },
    { "hearth_save_set_step", set_step, "begin's `wait_ms` + " PROMPT, begin_spare },
    { "hearth_save_give", give, "begin's `wait_ms` + " PROMPT, begin_spare },
    { "hearth_save_take", take, "begin's `wait_ms` + " PROMPT, begin_and_give },
    { "hearth_wait", commit_and_wait, "`deadline_ms`", begin_and_add },
    { "hearth_keep_list", keep_list, ANSWER, NULL },
    { "hearth_checkpoint_find", ckpt_find, "`wait_ms` + " ANSWER, NULL },
    { "hearth_checkpoint_open", ckpt_open, "`open_ms` + " ANSWER, NULL },
    { "hearth_item_at", first_item_at, OBJECT, fresh },
    { "hearth_item_find", first_item_find, OBJECT, fresh },
    { "hearth_item_in", first_item_in, OBJECT, fresh },
    { "hearth_load", first_load, OBJECT, fresh },
    { "hearth_object_fd", first_object_fd, OBJECT, fresh },
    { "hearth_prefetch_boxes", first_prefetch_boxes, OBJECT, fresh },
    { "hearth_read_boxes", first_read_boxes, OBJECT, fresh },
    { "hearth_read_ranges", first_read_ranges, OBJECT, fresh },
    { "hearth_read_common", read_common, ANSWER, fresh }, { "hearth_keep_pin", pin, ANSWER, fresh },
    { "hearth_keep_unpin", unpin, ANSWER, NULL },
    { "hearth_keep_mark_bad", mark_bad, ANSWER, NULL },
    { "hearth_keep_unmark_bad", unmark_bad, ANSWER, NULL },
    { "hearth_keep_release", release, ANSWER, NULL },
    { "hearth_recover", recover, "`deadline_ms` + 5 s, and the meeting of the ranks",
            fresh_closed },
    { 0 } };

/* ---- what lies on another node
 * ---------------------------------------------------------------------- */

const struct call calls_far[] = { { "hearth_read_box", read_box, OBJECT, NULL },
    { "hearth_read_bytes", read_bytes, OBJECT, NULL },
    { "hearth_read_boxes", read_boxes, OBJECT, NULL },
    { "hearth_read_ranges", read_ranges, OBJECT, NULL }, { 0 } };
