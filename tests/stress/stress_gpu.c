/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves and loads of GPU memory from many threads, over the driver of the tests, with an engine
 * that runs in this process:
 *
 *     savers    begin, add, commit (or abort) in turn, fence, overwrite the source in their stream
 *     loader    loads the newest save on a stream, and closes it while the copies run
 *     forker    forks; the child is refused and ends
 *     rounds    the membership is opened and closed, so slots are pinned and unpinned each time;
 *               half of them limit the rate
 *
 * A save that is PROTECTED has the values from before the fence.
 */
#include <hearth/hearth.h>

#include "fake_engine.h"
#include "fakegpu.h"
#include "tmp_root.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAVERS 3
#define SAVES  20
#define ROUNDS 4
#define BYTES  200000
#define MS     30000

static struct hearth *h;
static char root[] = "/dev/shm/hearth-stress-XXXXXX";
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER; /* of steps */
static uint64_t last_step;
static atomic_int over;
static atomic_uint saved, aborted, loads;

__attribute__((format(printf, 1, 2))) _Noreturn static void fail(const char *fmt, ...)
{
    va_list args;

    fputs("stress_gpu: ", stderr);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    tmp_root_remove(root);
    _exit(1);
}

struct saver {
    int number;
    uint64_t at;
    void *context, *stream;
    struct hearth_piece piece;
};

/* The step, or 0: aborted. */
static uint64_t saver_begin(struct saver *s, int abort_it, struct hearth_handle **out)
{
    struct hearth_begin_opts o = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_save *save;
    struct hearth_error err;
    uint64_t step;

    o.stream = s->stream;
    o.wait_ms = MS;
    pthread_mutex_lock(&order);
    step = ++last_step;
    if (hearth_save_begin(h, step, hearth_save_bytes(&s->piece, 1, NULL, 0), &o, &save, &err))
        fail("%s", err.text);
    if (hearth_save_add(save, &s->piece, 1, &err))
        fail("%s", err.text);
    if (abort_it && hearth_save_fence(save, s->stream, &err))
        fail("%s", err.text);
    if (abort_it)
        hearth_save_abort(save);
    else if (hearth_save_commit(save, out, &err))
        fail("%s", err.text);
    pthread_mutex_unlock(&order);
    return abort_it ? 0 : step;
}

static void *save_many(void *arg)
{
    struct saver *s = arg;

    fakegpu_current(s->context);
    for (int i = 0; i < SAVES; i++) {
        struct hearth_handle *handle;
        struct hearth_error err;

        fakegpu_fill(s->stream, s->at, i, BYTES);
        if (!saver_begin(s, i % 5 == 4, &handle)) {
            aborted++;
            continue;
        }
        if (hearth_handle_fence(handle, i % 3 ? s->stream : NULL, &err))
            fail("%s", err.text);
        fakegpu_fill(s->stream, s->at, 0xee, BYTES);
        if (hearth_wait(handle, HEARTH_SEALED, MS, &err) && err.code != HEARTH_EFAILED)
            fail("%s", err.text);
        hearth_handle_close(handle);
        saved++;
    }
    fakegpu_wait(s->stream);
    return NULL;
}

/* All bytes of a save are the same. */
static void *load_many(void *arg)
{
    static unsigned char got[BYTES];
    struct saver *s = arg;

    fakegpu_current(s->context);
    while (!over) {
        struct hearth_checkpoint *ckpt;
        struct hearth_error err;
        int rc = 0;

        if (hearth_checkpoint_open(h, HEARTH_STEP_NEWEST, &ckpt, &err))
            continue; /* there is none so far */
        if (hearth_checkpoint_stream(ckpt, loads % 3 ? s->stream : NULL, &err))
            fail("%s", err.text);
        for (int i = 0; i < 3 && !rc; i++)
            rc = hearth_load(ckpt, &s->piece, 1, 0, NULL, &err);
        hearth_checkpoint_close(ckpt);
        fakegpu_wait(s->stream);
        if (rc == HEARTH_ENOENT || rc == HEARTH_ELOST || rc == HEARTH_EINVAL)
            continue; /* a newer save has freed it, as the stand-in says by the last one */
        if (rc)
            fail("%s", err.text);
        fakegpu_peek(s->at, got, sizeof(got));
        for (size_t i = 1; i < sizeof(got); i++)
            if (got[i] != got[0])
                fail("byte %zu is %d and not %d", i, got[i], got[0]);
        if (got[0] == 0xee)
            fail("what came behind the fence is in a save");
        loads++;
    }
    return NULL;
}

static void *fork_many(void *arg)
{
    const struct timespec pause = { .tv_nsec = 5000000 };
    int status;

    while (!over) {
        pid_t child = fork();

        if (!child)
            _exit(hearth_cancel(NULL, NULL) == HEARTH_EINVAL ? 0 : 1);
        if (waitpid(child, &status, 0) != child || status)
            fail("a child ended with %d", status);
        nanosleep(&pause, NULL);
    }
    return arg;
}

static void one_round(struct saver *savers, const struct hearth_opts *opts, int round)
{
    pthread_t thread[SAVERS], forker, loader;
    struct hearth_checkpoint *ckpt = NULL;
    struct hearth_error err;

    if (hearth_open(opts, &h, &err) || hearth_recover(h, NULL, &ckpt, &err))
        fail("%s", err.text);
    hearth_checkpoint_close(ckpt);
    over = 0;
    for (int i = 0; i < SAVERS; i++)
        pthread_create(&thread[i], NULL, save_many, &savers[i]);
    pthread_create(&loader, NULL, load_many, &savers[SAVERS]);
    if (round & 1)
        pthread_create(&forker, NULL, fork_many, NULL);
    for (int i = 0; i < SAVERS; i++)
        pthread_join(thread[i], NULL);
    over = 1;
    pthread_join(loader, NULL);
    if (round & 1)
        pthread_join(forker, NULL);
    hearth_close(h, HEARTH_KEEP);
    if (fakegpu()->registered)
        fail("%lu registrations are left", (unsigned long)fakegpu()->registered);
}

int main(void)
{
    static const int64_t shape[] = { BYTES };
    struct hearth_opts opts = HEARTH_OPTS_INIT;
    struct saver savers[SAVERS + 1] = { 0 }; /* the last one loads */
    struct fake_engine *fake;

    alarm(110);
    if (!mkdtemp(root))
        return 1;
    fakegpu_start("recent", 2);
    fake = fake_start(root, "job");
    opts.root = root;
    opts.job = "job";
    opts.node = "fake";
    opts.world = 1;
    opts.allow_degraded = 1;
    opts.start = HEARTH_START_NEVER;
    for (int i = 0; i <= SAVERS; i++) {
        struct saver *s = &savers[i];

        s->context = fakegpu_context(i % 2);
        fakegpu_current(s->context);
        s->stream = fakegpu_stream();
        s->at = fakegpu_alloc(s->context, BYTES, FAKEGPU_PLAIN);
        s->piece = (struct hearth_piece){ .struct_size = sizeof(s->piece),
            .key = "x",
            .key_len = 1,
            .data = (void *)(uintptr_t)s->at,
            .dtype = HEARTH_UINT8,
            .memory = HEARTH_CUDA,
            .ndim = 1,
            .shape = shape };
    }
    fakegpu()->delay_us = 500;
    for (int round = 0; round < ROUNDS; round++) {
        opts.copy_mib_s = round & 2 ? 200 : 0;
        one_round(savers, &opts, round);
    }
    fake_stop(fake);
    tmp_root_remove(root);
    if (fakegpu()->sins)
        fail("%s", fakegpu()->sin);
    if (!loads)
        fail("nothing was loaded");
    printf("%u saves, %u given up, %u loads\n", saved, aborted, loads);
    return 0;
}
