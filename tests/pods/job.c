/* SPDX-License-Identifier: Apache-2.0 */
/* A job of one rank, as a trainer of a pod runs it. */
#include "pods.h"

#include <stdio.h>
#include <string.h>

#define WORDS 4096

static int64_t words[WORDS];
static const int64_t shape[1] = { WORDS }, offset[1];
static const struct hearth_piece piece = { .struct_size = sizeof(piece),
    .key = "w",
    .key_len = 1,
    .data = words,
    .dtype = HEARTH_INT64,
    .ndim = 1,
    .shape = shape,
    .global_shape = shape,
    .global_offset = offset };

static int64_t word_of(uint64_t step, size_t i)
{
    return (int64_t)(step * 1000003 + i * 7919);
}

int pod_save(struct hearth *h, uint64_t step, int ms, struct hearth_error *err)
{
    struct hearth_begin_opts begin = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_handle *handle;
    struct hearth_save *save;
    int rc;

    begin.wait_ms = (uint32_t)ms; /* the first slots are being made */
    for (size_t i = 0; i < WORDS; i++)
        words[i] = word_of(step, i);
    rc = hearth_save_begin(h, step, hearth_save_bytes(&piece, 1, NULL, 0), &begin, &save, err);
    if (rc)
        return rc;
    rc = hearth_save_add(save, &piece, 1, err);
    rc = rc ? rc : hearth_save_commit(save, &handle, err);
    if (rc)
        return rc;
    rc = hearth_wait(handle, HEARTH_PROTECTED, (uint32_t)ms, err);
    hearth_handle_close(handle);
    return rc;
}

/* want 0: nothing is there. */
static int job_recover(struct hearth *h, uint64_t want, struct hearth_error *err)
{
    struct hearth_recovery found = HEARTH_RECOVERY_INIT;
    struct hearth_checkpoint *ck = NULL;
    int rc = hearth_recover(h, NULL, &ck, err);

    memset(words, 0, sizeof(words));
    if (!rc && ck) {
        rc = hearth_load(ck, &piece, 1, 0, NULL, err);
        rc = rc ? rc : hearth_checkpoint_info(ck, &found, err);
        hearth_checkpoint_close(ck);
    }
    if (rc)
        return rc;
    for (size_t i = 0; i < WORDS && want; i++)
        if (found.step != want || words[i] != word_of(want, i)) {
            snprintf(err->text, sizeof(err->text),
                    "step %llu came back, or wrong bytes of step %llu",
                    (unsigned long long)found.step, (unsigned long long)want);
            return -1;
        }
    return 0;
}

static int job_saves(struct pod *p, struct hearth *h, uint64_t step, struct hearth_error *err)
{
    int rc = p->condition->saves ? p->condition->saves(p, h, step, err) : 0;

    return rc ? rc : pod_save(h, step, 10000, err);
}

int pod_job(struct pod *p, char *said, size_t len)
{
    struct hearth_error err = { 0 };
    struct hearth *h;
    int rc = 0;

    for (unsigned turn = 0; turn < 2 && !rc; turn++) {
        rc = p->condition->opens ? p->condition->opens(p, turn, &err) : 0;
        rc = rc ? rc : hearth_open(&p->opts, &h, &err);
        if (rc)
            break;
        rc = job_recover(h, turn ? 2 : 0, &err);
        for (uint64_t step = 1; step <= 2 && !rc; step++)
            rc = job_saves(p, h, 2 * turn + step, &err);
        hearth_close(h, turn && !rc ? HEARTH_DROP : HEARTH_KEEP);
    }
    snprintf(said, len, "%s", err.text);
    return rc ? -1 : 0;
}
