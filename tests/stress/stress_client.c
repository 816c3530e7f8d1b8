/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One `struct hearth` in the hands of many threads, with an engine in the same process:
 *
 *     savers    begin, add, commit in turn; each waits for its own save while the others go on
 *     tester    looks at every handle that is open: no save ever falls back a level
 *     reader    loads the save of the epoch before and has a view of it: the bytes stay
 *     logger    takes log lines
 *     opener    opens the newest save again and again while the job recovers into new epochs, and
 *               has a view of it that outlives its checkpoint
 *
 * A thread that is late finds its save PROTECTED or, where a newer one took its place, failed with
 * a reason; at the end the newest save is there again, all of it.
 */
#include <hearth/hearth.h>

#include "tmp_root.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAVERS  3
#define ROUNDS  40
#define EPOCHS  100
#define FLOATS  3000
#define WAIT_MS 30000

struct open_handle {
    struct hearth_handle *handle; /* NULL: none */
    uint64_t step;
    uint32_t level;
};

static struct hearth *h;
static char root[] = "/dev/shm/hearth-stress-XXXXXX";
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER; /* of steps */
static uint64_t last_step;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards open */
static struct open_handle open_handles[SAVERS];
static atomic_int ready, over; /* the reader has its view; the savers are done */
static atomic_uint protected_saves, tests, loads, lines, opened;

__attribute__((format(printf, 1, 2))) _Noreturn static void fail(const char *fmt, ...)
{
    va_list args;

    fputs("stress_client: ", stderr);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    tmp_root_remove(root);
    _exit(1);
}

static void fill(float *at, uint64_t step)
{
    for (size_t i = 0; i < FLOATS; i++)
        at[i] = (float)(i % 1000) + (float)step;
}

static void check(const float *at, uint64_t step)
{
    for (size_t i = 0; i < FLOATS; i++)
        if (at[i] != (float)(i % 1000) + (float)step)
            fail("float %zu of step %lu is %f", i, (unsigned long)step, (double)at[i]);
}

static struct hearth_piece piece_of(float *data)
{
    static const int64_t shape[] = { FLOATS };

    return (struct hearth_piece){ .struct_size = sizeof(struct hearth_piece),
        .key = "weights",
        .key_len = 7,
        .data = data,
        .dtype = HEARTH_FLOAT32,
        .ndim = 1,
        .shape = shape };
}

/* The next step, handed over. */
static struct hearth_handle *save_next(float *data, uint64_t *out_step)
{
    const struct hearth_begin_opts opts = { .struct_size = sizeof(opts), .wait_ms = WAIT_MS };
    struct hearth_piece piece = piece_of(data);
    struct hearth_handle *handle = NULL;
    struct hearth_error err = { 0 };
    struct hearth_save *save;

    pthread_mutex_lock(&order);
    *out_step = last_step + 1;
    fill(data, *out_step);
    if (hearth_save_begin(
                h, *out_step, hearth_save_bytes(&piece, 1, NULL, 0), &opts, &save, &err) ||
            hearth_save_add(save, &piece, 1, &err) || hearth_save_commit(save, &handle, &err))
        fail("step %lu: %s", (unsigned long)*out_step, err.text);
    last_step = *out_step;
    pthread_mutex_unlock(&order);
    return handle;
}

static void *saver(void *arg)
{
    struct open_handle *mine = arg;
    float *data = malloc(FLOATS * sizeof(*data));

    for (int i = 0; data && i < ROUNDS; i++) {
        struct hearth_error err = { 0 };
        uint64_t step;
        struct hearth_handle *handle = save_next(data, &step);
        int rc;

        pthread_mutex_lock(&lock);
        *mine = (struct open_handle){ handle, step, 0 };
        pthread_mutex_unlock(&lock);
        rc = hearth_wait(handle, HEARTH_PROTECTED, WAIT_MS, &err);
        if (rc && (rc != HEARTH_EFAILED || !err.text[0]))
            fail("step %lu: %d: %s", (unsigned long)step, rc, err.text);
        protected_saves += rc == HEARTH_OK;
        pthread_mutex_lock(&lock);
        mine->handle = NULL;
        pthread_mutex_unlock(&lock);
        hearth_handle_close(handle);
    }
    free(data);
    return NULL;
}

static void test_one(struct open_handle *o)
{
    struct hearth_status now = { .struct_size = sizeof(now) };
    struct hearth_error err = { 0 };

    if (!o->handle)
        return;
    if (hearth_test(o->handle, &now, &err))
        fail("test of step %lu: %s", (unsigned long)o->step, err.text);
    if (now.level < o->level || (now.step && now.step != o->step))
        fail("step %lu was at level %u and is step %lu at level %u", (unsigned long)o->step,
                o->level, (unsigned long)now.step, now.level);
    o->level = now.level;
    tests++;
}

static void *tester(void *arg)
{
    (void)arg;
    while (!over) {
        pthread_mutex_lock(&lock);
        for (int i = 0; i < SAVERS; i++)
            test_one(&open_handles[i]);
        pthread_mutex_unlock(&lock);
        usleep(200);
    }
    return NULL;
}

static int view_first(struct hearth_checkpoint *ckpt, struct hearth_view *view)
{
    struct hearth_item item = { .struct_size = sizeof(item) };
    struct hearth_error err = { 0 };
    size_t count;
    int rc;

    *view = (struct hearth_view){ .struct_size = sizeof(*view) };
    rc = hearth_item_find(ckpt, "weights", 7, &item, 1, &count, &err);
    if (!rc)
        rc = hearth_view_open(ckpt, &item, view, &err);
    if (rc && rc != HEARTH_ENOENT)
        fail("view: %s", err.text);
    return rc;
}

static void check_view(const struct hearth_view *view, float *room, uint64_t step)
{
    memcpy(room, view->data, FLOATS * sizeof(*room)); /* the view need not be aligned */
    check(room, step);
}

static void *reader(void *arg)
{
    struct hearth_checkpoint *ckpt = arg;
    float *data = malloc(FLOATS * sizeof(*data));
    struct hearth_piece piece = piece_of(data);
    struct hearth_view stays, view;

    if (!data || view_first(ckpt, &stays))
        fail("no view of what was recovered");
    ready = 1;
    while (!over) {
        struct hearth_error err = { 0 };

        memset(data, 0, FLOATS * sizeof(*data));
        if (hearth_load(ckpt, &piece, 1, 0, NULL, &err))
            fail("load: %s", err.text);
        check(data, 1);
        check_view(&stays, data, 1);
        if (!view_first(ckpt, &view)) { /* no more when a newer save is protected */
            check_view(&view, data, 1);
            hearth_view_close(h, &view);
        }
        loads++;
    }
    hearth_view_close(h, &stays);
    free(data);
    return NULL;
}

static void *logger(void *arg)
{
    char text[300];

    (void)arg;
    while (!over)
        if (hearth_log_poll(h, NULL, text, sizeof(text)))
            lines++;
        else
            usleep(500);
    return NULL;
}

static struct hearth_checkpoint *open_and_recover(void)
{
    struct hearth_opts opts = HEARTH_OPTS_INIT;
    struct hearth_checkpoint *ckpt = NULL;
    struct hearth_error err = { 0 };

    opts.root = root;
    opts.job = "stress";
    opts.node = "only";
    opts.world = 1;
    opts.allow_degraded = 1;
    opts.start = HEARTH_START_IN_PROCESS;
    opts.transport = "tcp";
    opts.log_level = HEARTH_LOG_DEBUG;
    if (hearth_open(&opts, &h, &err) || hearth_recover(h, NULL, &ckpt, &err))
        fail("%s", err.text);
    return ckpt;
}

static void first_save(void)
{
    float *data = malloc(FLOATS * sizeof(*data));
    struct hearth_error err = { 0 };
    struct hearth_handle *handle;
    uint64_t step;

    if (!data || open_and_recover())
        fail("there was something before us");
    handle = save_next(data, &step);
    if (hearth_wait(handle, HEARTH_PROTECTED, WAIT_MS, &err))
        fail("%s", err.text);
    hearth_handle_close(handle);
    hearth_close(h, HEARTH_KEEP);
    free(data);
}

static void all_at_once(void)
{
    struct hearth_checkpoint *ckpt = open_and_recover();
    pthread_t savers[SAVERS], others[3];

    if (!ckpt)
        fail("the first save is gone");
    if (pthread_create(&others[0], NULL, tester, NULL) ||
            pthread_create(&others[1], NULL, reader, ckpt) ||
            pthread_create(&others[2], NULL, logger, NULL))
        fail("no thread");
    while (!ready)
        usleep(1000);
    for (int i = 0; i < SAVERS; i++)
        if (pthread_create(&savers[i], NULL, saver, &open_handles[i]))
            fail("no thread");
    for (int i = 0; i < SAVERS; i++)
        pthread_join(savers[i], NULL);
    over = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(others[i], NULL);
    hearth_checkpoint_close(ckpt);
    hearth_close(h, HEARTH_KEEP);
}

static void *opener(void *arg)
{
    float *data = malloc(FLOATS * sizeof(*data));

    (void)arg;
    if (!data)
        fail("no memory");
    while (!over) {
        struct hearth_checkpoint *ckpt = NULL;

        struct hearth_view view;
        int has_view;

        if (!hearth_checkpoint_open(h, HEARTH_STEP_NEWEST, &ckpt, NULL)) {
            opened++;
            has_view = !view_first(ckpt, &view);
            hearth_checkpoint_close(ckpt);
            if (has_view)
                check_view(&view, data, last_step);
            hearth_view_close(h, has_view ? &view : NULL);
        }
    }
    free(data);
    return NULL;
}

static void new_epochs(void)
{
    struct hearth_checkpoint *ckpt = open_and_recover();
    pthread_t openers[SAVERS];

    over = 0;
    for (int i = 0; i < SAVERS; i++)
        if (pthread_create(&openers[i], NULL, opener, NULL))
            fail("no thread");
    for (int i = 0; i < EPOCHS; i++) {
        struct hearth_error err = { 0 };

        hearth_checkpoint_close(ckpt);
        ckpt = NULL;
        if (hearth_recover(h, NULL, &ckpt, &err) || !ckpt)
            fail("recovery %d: %s", i, err.text);
    }
    over = 1;
    for (int i = 0; i < SAVERS; i++)
        pthread_join(openers[i], NULL);
    hearth_checkpoint_close(ckpt);
    hearth_close(h, HEARTH_KEEP);
}

static void last_is_there(void)
{
    struct hearth_checkpoint *ckpt = open_and_recover();
    struct hearth_recovery info = { .struct_size = sizeof(info) };
    float *data = malloc(FLOATS * sizeof(*data));
    struct hearth_piece piece = piece_of(data);
    struct hearth_error err = { 0 };

    if (!ckpt || !data || hearth_checkpoint_info(ckpt, &info, &err) ||
            hearth_load(ckpt, &piece, 1, 0, NULL, &err))
        fail("the last save: %s", err.text);
    if (info.step != last_step)
        fail("step %lu came back, the last was %lu", (unsigned long)info.step,
                (unsigned long)last_step);
    check(data, last_step);
    hearth_checkpoint_close(ckpt);
    hearth_close(h, HEARTH_DROP);
    free(data);
}

int main(void)
{
    alarm(110);
    if (!mkdtemp(root))
        fail("no directory in /dev/shm");
    first_save();
    all_at_once();
    new_epochs();
    last_is_there();
    if (!protected_saves || !tests || !loads || !lines || !opened)
        fail("%u saves, %u tests, %u loads, %u lines, %u opened: a thread did nothing",
                protected_saves, tests, loads, lines, opened);
    tmp_root_remove(root);
    printf("%u of %d saves protected, %u tests, %u loads, %u log lines\n", protected_saves,
            SAVERS * ROUNDS, tests, loads, lines);
    return 0;
}
