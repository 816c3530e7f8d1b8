/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bench/bench.h"

#define WAIT_MS 120000u

static struct hearth *h;
static char root[300];
static unsigned jobs;
static uint64_t step;

static void trainer_must(int code, const struct hearth_error *err)
{
    if (code)
        die("%s", err->text);
}

void trainer_open(const char *base, uint64_t bytes, uint32_t pin)
{
    struct hearth_opts o = HEARTH_OPTS_INIT;
    struct hearth_checkpoint *ckpt = NULL;
    struct hearth_error err = { 0 };

    snprintf(root, sizeof(root), "%s/job%u", base, jobs++);
    if (mkdir(root, 0700))
        die("%s: %s", root, strerror(errno));
    o.root = root, o.job = "gpu", o.node = "n0", o.world = 1;
    o.transport = "tcp", o.start = HEARTH_START_IN_PROCESS, o.any_root = 1;
    o.allow_degraded = 1, o.object_bytes = &bytes, o.object_count = 1;
    o.pin = pin;
    trainer_must(hearth_open(&o, &h, &err), &err);
    trainer_must(hearth_recover(h, NULL, &ckpt, &err), &err);
    hearth_checkpoint_close(ckpt);
    step = 0;
}

static int gone(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

void trainer_close(void)
{
    hearth_close(h, HEARTH_DROP);
    nftw(root, gone, 16, FTW_DEPTH | FTW_PHYS);
}

struct hearth_save *trainer_begin(const struct hearth_piece *pieces, size_t count, void *stream)
{
    struct hearth_begin_opts o = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_error err = { 0 };
    struct hearth_save *save;

    o.wait_ms = WAIT_MS;
    o.stream = stream;
    trainer_must(hearth_save_begin(
                         h, ++step, hearth_save_bytes(pieces, count, NULL, 0), &o, &save, &err),
            &err);
    return save;
}

void trainer_add(struct hearth_save *save, const struct hearth_piece *pieces, size_t count)
{
    struct hearth_error err = { 0 };

    trainer_must(hearth_save_add(save, pieces, count, &err), &err);
}

void trainer_fence(struct hearth_save *save, void *stream)
{
    struct hearth_error err = { 0 };

    trainer_must(hearth_save_fence(save, stream, &err), &err);
}

struct hearth_handle *trainer_commit(struct hearth_save *save)
{
    struct hearth_handle *handle;
    struct hearth_error err = { 0 };

    trainer_must(hearth_save_commit(save, &handle, &err), &err);
    return handle;
}

void trainer_end(struct hearth_handle *handle)
{
    struct hearth_error err = { 0 };

    trainer_must(hearth_wait(handle, HEARTH_PROTECTED, WAIT_MS, &err), &err);
    hearth_handle_close(handle);
    nap_ms(5); /* the older save's slot is on its way back */
}

void trainer_save(const struct hearth_piece *pieces, size_t count, void *stream)
{
    struct hearth_save *save = trainer_begin(pieces, count, stream);

    trainer_add(save, pieces, count);
    trainer_fence(save, NULL);
    trainer_end(trainer_commit(save));
}

/* The library's line, as docs/use/gpu.md has it. */
static int trainer_line(struct pinned *out)
{
    char text[600];
    uint32_t level;
    int found = 0;

    while (hearth_log_poll(h, &level, text, sizeof(text))) {
        uint64_t ms;

        if (strncmp(text, "pin: ", 5) != 0)
            continue;
        found = 1;
        snprintf(out->why, sizeof(out->why), "%s", text);
        if (sscanf(text,
                    "pin: slots are pinned for %*[^:]: the first one, %" SCNu64
                    " bytes, in %*u parts and %" SCNu64 " ms",
                    &out->bytes, &ms) == 2)
            out->s = (double)ms / 1e3;
    }
    return found;
}

struct pinned trainer_pin(const struct hearth_piece *pieces, size_t count, void *stream)
{
    struct pinned out = { .why = "no line of the log says that slots are pinned" };
    double until = now_s() + 60;

    trainer_save(pieces, count, stream);
    while (!trainer_line(&out) && now_s() < until)
        nap_ms(5);
    for (unsigned i = 0; i < 3 && out.bytes; i++) {
        trainer_save(pieces, count, stream);
        nap_ms((unsigned)(out.s * 1500) + 20); /* no line is written of the others */
    }
    return out;
}

int trainer_load(
        const struct hearth_piece *pieces, size_t count, double *out_s, char *why, size_t len)
{
    struct hearth_checkpoint *ckpt;
    struct hearth_error err = { 0 };
    double from;
    int rc;

    trainer_must(hearth_checkpoint_open(h, step, &ckpt, &err), &err);
    from = now_s();
    rc = hearth_load(ckpt, pieces, count, 0, NULL, &err);
    if (out_s)
        *out_s = now_s() - from;
    hearth_checkpoint_close(ckpt);
    if (rc == HEARTH_EUNSUPPORTED)
        snprintf(why, len, "%s", err.text);
    else
        trainer_must(rc, &err);
    return rc;
}

struct hearth_piece trainer_piece(const char *key, const void *at, uint32_t dtype, uint32_t ndim,
        const int64_t *shape, const int64_t *strides)
{
    struct hearth_piece p = { .struct_size = sizeof(p),
        .key = key,
        .key_len = strlen(key),
        .from = at,
        .dtype = dtype,
        .ndim = ndim,
        .shape = shape,
        .strides = strides };

    return p;
}
