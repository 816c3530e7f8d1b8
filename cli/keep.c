/* SPDX-License-Identifier: Apache-2.0 */
/* keep: shows which saves a running job keeps, and sends the user's wishes about them. */
#include "cli.h"

#include "core/local/wish.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *word;
    enum hth_wish wish;
} words[] = {
    { "pin", HTH_WISH_PIN },
    { "unpin", HTH_WISH_UNPIN },
    { "release", HTH_WISH_RELEASE },
    { "bad", HTH_WISH_BAD },
    { "good", HTH_WISH_GOOD },
};

static int keep_step(const char *text, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || *end || errno ? HEARTH_EINVAL : HEARTH_OK;
}

static void keep_print(const json_t *kept)
{
    static const char *const titles[] = { "SAVE", "STATE", "AGE", "MARKS" };
    struct grid g = { .columns = 4 };
    char age[32], marks[80];

    grid_titles(&g, titles);
    for (size_t i = 0; i < json_array_size(kept); i++) {
        const json_t *row = json_array_get(kept, i);
        const char *save = json_string_value(json_object_get(row, "save"));
        const char *state = kept_state(row);
        struct hth_save_id id;

        if (!save || !state || hth_save_parse(save, &id))
            continue;
        human_age(age, json_integer_value(json_object_get(row, "age_s")));
        grid_add(&g, "step %" PRIu64 ", try %" PRIu32 "%s", id.step, hth_attempt_count(id.attempt),
                hth_attempt_of(id.attempt));
        grid_add(&g, "%s", state);
        grid_add(&g, "%s", age);
        kept_marks(json_is_true(json_object_get(row, "pinned")),
                json_integer_value(json_object_get(row, "tries")), marks);
        grid_add(&g, "%s", marks);
    }
    grid_print(&g, "lsrl");
    grid_free(&g);
}

static enum status keep_show(const struct args *a, int job)
{
    char *text = engine_status(job);
    json_t *status = text ? json_loads(text, 0, NULL) : NULL;
    const json_t *kept = json_object_get(status, "kept");
    enum status rc = STATUS_OK;

    free(text);
    if (!status) {
        remark("no engine of the job answers: hearth ls shows what lies here");
        rc = STATUS_NOT_FOUND;
    } else if (!json_is_array(kept)) {
        remark("the engine's answer cannot be read");
        rc = STATUS_SYSTEM;
    } else if (a->json) {
        rc = print_json(json_pack("{s:O}", "kept", kept));
    } else {
        keep_print(kept);
    }
    json_decref(status);
    return rc;
}

static const char *keep_nearest(const char *word)
{
    struct nearest near = { .word = word };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        nearest_try(&near, words[i].word);
    return near.found;
}

static enum status keep_change(const struct args *a, int job)
{
    struct hearth_error err = { 0 };
    uint64_t step = 0;
    size_t i = 0, count = sizeof(words) / sizeof(words[0]);
    const char *near;

    while (i < count && strcmp(words[i].word, a->value[1]) != 0)
        i++;
    if (i == count && (near = keep_nearest(a->value[1])))
        return complain_usage("keep: there is no '%.64s'; did you mean %s?", a->value[1], near);
    if (i == count || a->count != 3)
        return complain_usage(
                "keep: JOB, or JOB and one of pin, unpin, release, bad, good and a step");
    if (keep_step(a->value[2], &step))
        return complain_usage("keep: '%.64s' is not a step", a->value[2]);
    if (engine_wish(job, words[i].wish, step, &err))
        return complain(&err);
    return STATUS_OK;
}

enum status run_keep(const struct args *a)
{
    struct hearth_error err = { 0 };
    enum status status;
    int job = -1, rc;

    if (!a->root)
        return complain_usage("keep: which root? give --root or HEARTH_ROOT");
    rc = job_open(a->root, a->value[0], &job, &err);
    rc = rc ? rc : job_check(job, a->value[0], &err);
    if (rc == HEARTH_ENOENT)
        job_unknown(a->root, a->value[0], &err);
    if (rc)
        status = complain(&err);
    else
        status = a->count == 1 ? keep_show(a, job) : keep_change(a, job);
    if (job >= 0)
        close(job);
    return status;
}
